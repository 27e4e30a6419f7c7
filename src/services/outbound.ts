/** Outbound supply: model servers that dial the gateway, and are called on their own stream. */
import { create } from "@bufbuild/protobuf";
import {
  type OutboundService,
  type ServeRequest,
  type ServeResponse,
  ServeResponseSchema,
} from "../../gen/limber/outbound/v1/outbound_service_pb.ts";
import { violation } from "../contracts/conflicts.ts";
import { UpstreamFailure } from "../contracts/failure.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import type { Sql } from "../store/database/tx.ts";
import type { Berth, Dock, Question } from "../upstream/limber-outbound/hub.ts";
import type { Call, Implementation, Listener, Speaker } from "../call.ts";
import { ownProvider } from "./supply/declare.ts";

/** What outbound supply needs of the house. */
export interface OutboundParts {
  sql: Sql;
  dock: Dock;
  /** Resolves when the other replicas can know which servers are moored here. */
  announced(): Promise<void>;
}

/** The outbound RPC. */
export function outboundService(parts: OutboundParts): Implementation<typeof OutboundService> {
  return {
    serve: (speaker, call) => {
      const mooring = new Mooring(parts, speaker, call);
      call.signal.addEventListener("abort", () => mooring.leave(), { once: true });
      return mooring;
    },
  };
}

/** One server's stream. */
class Mooring implements Listener<ServeRequest> {
  readonly #parts: OutboundParts;
  readonly #speaker: Speaker<ServeResponse>;
  readonly #call: Call;
  #greeted = false;
  #moored: { provider: string; berth: Berth } | undefined;
  #gone = false;

  constructor(parts: OutboundParts, speaker: Speaker<ServeResponse>, call: Call) {
    this.#parts = parts;
    this.#speaker = speaker;
    this.#call = call;
  }

  hear({ message }: ServeRequest): void {
    if (message.case === undefined) return;
    if (message.case === "hello") {
      if (this.#greeted) throw violation("hello", "comes once, as the first message", "unexpected");
      this.#greeted = true;
      void this.#greet(message.value.provider);
      return;
    }
    if (!this.#moored)
      throw violation("hello", "has to be the first message; wait for `welcome` before others", "missing");
    try {
      this.#moored.berth.hear(message);
    } catch (thrown) {
      if (!(thrown instanceof UpstreamFailure)) throw thrown;
      throw violation("call_id", "answers a call that was never made", "unexpected");
    }
  }

  room(): void {}

  close(): void {
    this.leave();
    this.#speaker.end();
  }

  cut(refusal: Refusal): void {
    this.leave();
    this.#speaker.end(refusal);
  }

  /** The server is gone, or has to go. */
  leave(): void {
    this.#gone = true;
    if (this.#moored) this.#parts.dock.unmoor(this.#moored.provider, this.#moored.berth);
    this.#moored = undefined;
  }

  async #greet(name: string): Promise<void> {
    try {
      const { name: provider } = await ownProvider(this.#parts.sql, name, this.#call);
      if (this.#gone) return;
      const speaker = this.#speaker;
      const berth = this.#parts.dock.moor(provider, {
        say: (question: Question) => speaker.say(create(ServeResponseSchema, { message: question })),
        get behind() {
          return speaker.behind;
        },
        end: () =>
          speaker.end(
            refuse(
              Reason.NOT_READY,
              "dial again: this stream was replaced, or the gateway closes",
              {},
              { retryAfter: 1 },
            ),
          ),
      });
      this.#moored = { provider, berth };
      await this.#parts.announced();
      if (this.#gone) return;
      speaker.say(create(ServeResponseSchema, { message: { case: "welcome", value: { provider } } }));
    } catch (thrown) {
      this.#speaker.end(thrown);
    }
  }
}
