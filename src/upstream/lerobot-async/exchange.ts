/**
 * One robot at a time. LeRobot's server keeps one queue for all of its clients, so a call holds the server alone, and a session holds it
 * until 30 s after its last call. The lease is valid among all replicas. The server knows nothing of leases, so an answer that comes after
 * the lease's end is thrown away.
 */
import { createHash } from "node:crypto";
import { now, sleep, steadyNow } from "../../clock.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import { calledOff, unreachable } from "../transport/failures.ts";
import type { GrpcClient } from "../transport/grpc.ts";
import type { ServerLeases, Taken } from "../transport/leases.ts";
import type { Address, UpstreamServer } from "../transport/servers.ts";
import { Turns } from "../transport/turns.ts";
import type { CallOptions } from "../wire.ts";
import { readActions } from "./decode.ts";
import { encodeNothing } from "./encode.ts";

const LEASE_MS = 30_000;
/** A call keeps the server this much longer than it may take. */
const GRACE_MS = 1_000;
/** Milliseconds between two attempts to lease a server that another replica is about to release. */
const AGAIN_MS = 15;
/** Further apart than any chunk is long, so that no step is taken for one that was predicted before. */
const TIMESTEP = 10_000;
const MAX_TIMESTEPS = 100_000;

type LerobotMethod = "Ready" | "SendPolicyInstructions" | "SendObservations" | "GetActions";

/** What a call does while it holds the server: the answer, and what the server is set up with afterwards. */
type LerobotWork<T> = (taken: Taken) => Promise<{ answer: T; setup: string | undefined }>;

/** One server under its lease. */
export class Leased implements UpstreamServer {
  readonly #calls: GrpcClient;
  readonly #leases: ServerLeases;
  readonly #name: string;
  readonly #turns = new Turns();
  #released: Promise<void> = Promise.resolve();

  constructor(address: Address, calls: GrpcClient, leases: ServerLeases) {
    this.#calls = calls;
    this.#leases = leases;
    this.#name = createHash("sha256").update(address.url.href).digest("hex");
  }

  get idle(): boolean {
    return this.#calls.idle && this.#turns.free;
  }

  /** One observation and the bytes of the chunk that answers it; a session has the server over all of its episodes. Rejects with an UpstreamFailure: `UPSTREAM_BUSY` while another session holds the server. */
  act(
    { session, episode }: { session: string; episode: string },
    setup: Buffer,
    observe: (timestep: number, timestamp: number) => Buffer,
    call: CallOptions,
  ): Promise<{ chunk: Buffer; timestep: number }> {
    const digest = createHash("sha256").update(setup).digest("hex");
    return this.#has(session, call, async ({ epoch, session: before, setup: known = "" }) => {
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
    return this.#has("", call, async ({ setup }) => {
      await this.#ask("Ready", encodeNothing(), call);
      return { answer: undefined, setup };
    });
  }

  /** How many bytes of actions the server has right after its queue was emptied: none, unless another client talks to it. */
  unasked(call: CallOptions): Promise<number> {
    return this.#has("", call, async ({ setup }) => {
      await this.#ask("Ready", encodeNothing(), call);
      return { answer: readActions(await this.#ask("GetActions", encodeNothing(), call)).length, setup };
    });
  }

  close(): void {
    this.#calls.close();
  }

  /** Does the work while this call holds the server. */
  #has<T>(session: string, call: CallOptions, work: LerobotWork<T>): Promise<T> {
    return this.#turns.run(call.signal, async () => {
      await this.#released;
      const began = steadyNow();
      const runMs = Math.max(0, call.budgetMs) + GRACE_MS;
      const taken = await this.#take(session, runMs, call);
      // A server that was restarted has no policy, and only a failure shows it.
      let known: string | undefined;
      try {
        const { answer, setup } = await work(taken);
        if (steadyNow() - began >= runMs)
          throw new UpstreamFailure(AttemptFailure.TIMEOUT, "the answer came after the lease's end");
        known = setup;
        return answer;
      } finally {
        const released = { epoch: taken.epoch, keepMs: session === "" ? 0 : LEASE_MS, setup: known };
        // A lease that cannot be released runs out.
        this.#released = this.#leases.release(this.#name, released).catch(() => {});
      }
    });
  }

  async #take(session: string, runMs: number, { signal }: CallOptions): Promise<Taken> {
    for (;;) {
      const taken = await this.#leases.take(this.#name, session, runMs).catch((cause: unknown) => {
        throw unreachable("the leases cannot be read", cause);
      });
      if (typeof taken === "object") return taken;
      if (taken === "busy")
        throw new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, "the server serves another session");
      await sleep(AGAIN_MS, signal).catch(() => {
        throw calledOff(signal);
      });
    }
  }

  #ask(method: LerobotMethod, message: Buffer, call: CallOptions): Promise<Buffer> {
    return this.#calls.unary({ ...call, path: `/transport.AsyncInference/${method}` }, message);
  }
}
