/** Outbound supply: model servers that connect to the gateway and serve calls on their own stream. */
import { create } from "@bufbuild/protobuf";
import {
  type OutboundService,
  type ServeRequest,
  type ServeResponse,
  ServeResponseSchema,
} from "../../gen/limber/outbound/v1/outbound_service_pb.ts";
import type { Call, Implementation, StreamHandler, StreamWriter } from "../call.ts";
import { UpstreamFailure, violation } from "../contracts/contract.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import type { Sql } from "../store/database/tx.ts";
import type { OutboundConnection, OutboundHub, OutboundQuestion } from "../upstream/limber-outbound.ts";
import { ownProvider } from "./supply/declare.ts";

/** Dependencies of outbound supply. */
export interface OutboundDeps {
  sql: Sql;
  hub: OutboundHub;
  /** Resolves once the other replicas can know the servers that are registered here. */
  announced(): Promise<void>;
}

/** The outbound RPC. */
export function outboundService(deps: OutboundDeps): Implementation<typeof OutboundService> {
  return {
    serve: (speaker, call) => {
      const registration = new OutboundRegistration(deps, speaker, call);
      call.signal.addEventListener("abort", () => registration.leave(), { once: true });
      return registration;
    },
  };
}

/** One server's stream. */
class OutboundRegistration implements StreamHandler<ServeRequest> {
  readonly #deps: OutboundDeps;
  readonly #writer: StreamWriter<ServeResponse>;
  readonly #call: Call;
  #greeted = false;
  #registered: { provider: string; connection: OutboundConnection } | undefined;
  #isClosed = false;

  constructor(deps: OutboundDeps, speaker: StreamWriter<ServeResponse>, call: Call) {
    this.#deps = deps;
    this.#writer = speaker;
    this.#call = call;
  }

  hear({ message }: ServeRequest): void {
    if (message.case === undefined) return;
    if (message.case === "hello") {
      if (this.#greeted) throw violation("hello", "must be sent only once, as the first message", "unexpected");
      this.#greeted = true;
      void this.#greet(message.value.provider);
      return;
    }
    if (!this.#registered)
      throw violation("hello", "must be the first message; wait for `welcome` before sending others", "missing");
    try {
      this.#registered.connection.hear(message);
    } catch (thrown) {
      if (!(thrown instanceof UpstreamFailure)) throw thrown;
      throw violation("call_id", "does not match any call", "unexpected");
    }
  }

  room(): void {}

  close(): void {
    this.leave();
    this.#writer.end();
  }

  cut(refusal: Refusal): void {
    this.leave();
    this.#writer.end(refusal);
  }

  /** Ends the stream, because the server disconnected or must disconnect. */
  leave(): void {
    this.#isClosed = true;
    if (this.#registered) this.#deps.hub.unregister(this.#registered.provider, this.#registered.connection);
    this.#registered = undefined;
  }

  async #greet(name: string): Promise<void> {
    try {
      const { name: provider } = await ownProvider(this.#deps.sql, name, this.#call);
      if (this.#isClosed) return;
      const speaker = this.#writer;
      const connection = this.#deps.hub.register(provider, {
        say: (question: OutboundQuestion) => speaker.say(create(ServeResponseSchema, { message: question })),
        get behind() {
          return speaker.behind;
        },
        end: () =>
          speaker.end(
            refuse(
              Reason.NOT_READY,
              "this stream was replaced, or the gateway is shutting down; connect again",
              {},
              { retryAfter: 1 },
            ),
          ),
      });
      this.#registered = { provider, connection };
      await this.#deps.announced();
      if (this.#isClosed) return;
      speaker.say(create(ServeResponseSchema, { message: { case: "welcome", value: { provider } } }));
    } catch (thrown) {
      this.#writer.end(thrown);
    }
  }
}
