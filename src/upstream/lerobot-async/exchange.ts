/** One robot at a time: LeRobot's server keeps one queue for all of its clients. */
import { createHash } from "node:crypto";
import { now } from "../../clock.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import { Exclusive } from "../transport/exclusive.ts";
import type { GrpcClient } from "../transport/grpc.ts";
import type { ServerLeases } from "../transport/leases.ts";
import type { Address, UpstreamServer } from "../transport/servers.ts";
import type { CallOptions } from "../wire.ts";
import { readActions } from "./decode.ts";
import { encodeNothing } from "./encode.ts";

/** Further apart than any chunk is long, so that no step is taken for one that was predicted before. */
const TIMESTEP = 10_000;
const MAX_TIMESTEPS = 100_000;

type LerobotMethod = "Ready" | "SendPolicyInstructions" | "SendObservations" | "GetActions";

/** One server under its lease. */
export class Leased implements UpstreamServer {
  readonly #calls: GrpcClient;
  readonly #lease: Exclusive;

  constructor(address: Address, calls: GrpcClient, leases: ServerLeases) {
    this.#calls = calls;
    this.#lease = new Exclusive(address, leases);
  }

  get idle(): boolean {
    return this.#calls.idle && this.#lease.free;
  }

  /** One observation and the bytes of the chunk that answers it; a session has the server over all of its episodes. Rejects with an UpstreamFailure: `UPSTREAM_BUSY` while another session holds the server. */
  act(
    { session, episode }: { session: string; episode: string },
    setup: Buffer,
    observe: (timestep: number, timestamp: number) => Buffer,
    call: CallOptions,
  ): Promise<{ chunk: Buffer; timestep: number }> {
    const digest = createHash("sha256").update(setup).digest("hex");
    return this.#lease.has(session, call, async ({ epoch, session: before, setup: known = "" }) => {
      const [loaded, last] = known.split(" ");
      const goesOn = before === session && (session === "" || last === episode);
      if (!goesOn || loaded !== digest) await this.#ask("Ready", encodeNothing(), call);
      if (loaded !== digest) await this.#ask("SendPolicyInstructions", setup, call);
      const timestep = (epoch % MAX_TIMESTEPS) * TIMESTEP;
      await this.#ask("SendObservations", observe(timestep, now() / 1_000), call);
      for (let tries = 0; tries < 2; tries++) {
        const chunk = readActions(await this.#ask("GetActions", encodeNothing(), call));
        if (chunk.length > 0) return { answer: { chunk, timestep }, setup: `${digest} ${episode}` };
      }
      throw new UpstreamFailure(AttemptFailure.EMPTY_ANSWER, "the server has no actions: did its policy fail?");
    });
  }

  /** Resolves when the server answers; its queue is empty then. */
  ready(call: CallOptions): Promise<void> {
    return this.#lease.has("", call, async ({ setup }) => {
      await this.#ask("Ready", encodeNothing(), call);
      return { answer: undefined, setup };
    });
  }

  /** How many bytes of actions the server has right after its queue was emptied: none, unless another client talks to it. */
  unasked(call: CallOptions): Promise<number> {
    return this.#lease.has("", call, async ({ setup }) => {
      await this.#ask("Ready", encodeNothing(), call);
      return { answer: readActions(await this.#ask("GetActions", encodeNothing(), call)).length, setup };
    });
  }

  close(): void {
    this.#calls.close();
  }

  #ask(method: LerobotMethod, message: Buffer, call: CallOptions): Promise<Buffer> {
    return this.#calls.unary({ ...call, path: `/transport.AsyncInference/${method}` }, message);
  }
}
