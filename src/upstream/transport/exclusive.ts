/**
 * Servers that serve one robot at a time. A call holds the server alone, and a session holds it until 30 s after its last call. The lease is
 * valid among all replicas. The server knows nothing of leases, so an answer that comes after the lease's end is thrown away.
 */
import { createHash } from "node:crypto";
import { sleep, steadyNow } from "../../clock.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import type { CallOptions } from "../wire.ts";
import { calledOff, unreachable } from "./failures.ts";
import type { ServerLeases, Taken } from "./leases.ts";
import type { Address } from "./servers.ts";
import { Turns } from "./turns.ts";

const LEASE_MS = 30_000;
/** A call keeps the server this much longer than it may take. */
const GRACE_MS = 1_000;
/** Milliseconds between two attempts to lease a server that another replica is about to release. */
const AGAIN_MS = 15;

/** What a call does while it holds the server: the answer, and what the server is set up with afterwards. */
export type ExclusiveWork<T> = (taken: Taken) => Promise<{ answer: T; setup: string | undefined }>;

/** One server under its lease. */
export class Exclusive {
  readonly #leases: ServerLeases;
  readonly #name: string;
  readonly #turns = new Turns();
  #released: Promise<void> = Promise.resolve();

  constructor({ url }: Pick<Address, "url">, leases: ServerLeases) {
    this.#leases = leases;
    this.#name = createHash("sha256").update(url.href).digest("hex");
  }

  /** No call of this process has it or waits for it. */
  get free(): boolean {
    return this.#turns.free;
  }

  /** Does the work while this call holds the server. Rejects with an UpstreamFailure: `UPSTREAM_BUSY` while another session holds it. */
  has<T>(session: string, call: CallOptions, work: ExclusiveWork<T>): Promise<T> {
    return this.#turns.run(call.signal, async () => {
      await this.#released;
      const began = steadyNow();
      const runMs = Math.max(0, call.budgetMs) + GRACE_MS;
      const taken = await this.#take(session, runMs, call);
      // A server that was restarted has lost its state, and only a failure shows it.
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
}
