/**
 * Servers that serve one robot at a time. A call holds the server exclusively, and its session holds it until 30 s after its last call. The
 * lease applies to all replicas. The server does not know leases, so an answer after the lease's end is discarded.
 */
import { createHash } from "node:crypto";
import type { Signal } from "../../cancellation.ts";
import { sleep, steadyNow } from "../../clock.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import type { CallOptions } from "../wire.ts";
import { calledOff, unreachable } from "./failures.ts";
import type { Address } from "./servers.ts";

const LEASE_MS = 30_000;
/** Extra milliseconds for which a call holds the server. */
const GRACE_MS = 1_000;
/** Milliseconds between two attempts to lease a server that another replica is about to release. */
const AGAIN_MS = 15;

/** A call's work while it holds the server: the response, and the server's setup afterwards. */
type ExclusiveWork<T> = (taken: Taken) => Promise<{ answer: T; setup: string | undefined }>;

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

  /** No call of this process holds it or waits for it. */
  get free(): boolean {
    return this.#turns.free;
  }

  /** Runs the work while this call holds the server. Rejects with an UpstreamFailure: `UPSTREAM_BUSY` while another session holds it. */
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
          throw new UpstreamFailure(AttemptFailure.TIMEOUT, "the response arrived after the lease expired");
        known = setup;
        return answer;
      } finally {
        const released = { epoch: taken.epoch, keepMs: session === "" ? 0 : LEASE_MS, setup: known };
        // A lease that cannot be released expires.
        this.#released = this.#leases.release(this.#name, released).catch(() => {});
      }
    });
  }

  async #take(session: string, runMs: number, { signal }: CallOptions): Promise<Taken> {
    for (;;) {
      const taken = await this.#leases.take(this.#name, session, runMs).catch((cause: unknown) => {
        throw unreachable("failed to read the leases", cause);
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

/** A leased server, and the state that the previous lease left. */
interface Taken {
  /** Grows with every lease, so that an old one is never taken for a new one. */
  readonly epoch: number;
  /** The session that the server served last; undefined if unknown. */
  readonly session: string | undefined;
  /** The server's setup at the last release; undefined if unknown. */
  readonly setup: string | undefined;
}

/** How a server is released. */
interface Released {
  readonly epoch: number;
  /** How long the session keeps the server. */
  readonly keepMs: number;
  /** The server's setup; undefined if unknown. */
  readonly setup: string | undefined;
}

/** The leases of all servers. A session is named by the caller; the empty name is for calls without one. */
export interface ServerLeases {
  /**
   * Leases a server for one call of a session, for `runMs` unless it is released before. `running`: a call of the same session, or of none, has
   * it and will finish. `busy`: another session has it. Rejects if the lease cannot be determined.
   */
  take(server: string, session: string, runMs: number): Promise<Taken | "running" | "busy">;
  /** Releases a server, unless it was leased by another call meanwhile. */
  release(server: string, released: Released): Promise<void>;
}

interface HeldLease {
  epoch: number;
  session: string;
  setup: string | undefined;
  runningUntil: number;
  until: number;
}

/** Maximum number of servers whose setup is kept. */
const MOST_KNOWN = 4_096;

/** Leases in this process only, for a gateway with one replica. */
export function localLeases(): ServerLeases {
  const known = new Map<string, HeldLease>();
  return {
    async take(server, session, runMs) {
      const at = steadyNow();
      const held = known.get(server);
      if (held && held.until > at && held.session !== session) return held.session === "" ? "running" : "busy";
      if (held && held.runningUntil > at) return "running";
      const until = at + runMs;
      if (known.size >= MOST_KNOWN) for (const [name, one] of known) if (one.until <= at) known.delete(name);
      known.set(server, { epoch: (held?.epoch ?? 0) + 1, session, setup: undefined, runningUntil: until, until });
      return { epoch: (held?.epoch ?? 0) + 1, session: held?.session, setup: held?.setup };
    },
    async release(server, { epoch, keepMs, setup }) {
      const held = known.get(server);
      if (held?.epoch !== epoch) return;
      const at = steadyNow();
      known.set(server, { ...held, setup, runningUntil: at, until: at + keepMs });
    },
  };
}

const MAX_WAITING = 256;

/** A queue with one running call at a time. */
export class Turns {
  readonly #waiting: (() => void)[] = [];
  #taken = false;

  /** No call runs or waits. */
  get free(): boolean {
    return !this.#taken;
  }

  /** Runs the work in turn. Rejects with an UpstreamFailure if canceled while waiting, or if the queue is full. */
  async run<T>(signal: Signal, work: () => Promise<T>): Promise<T> {
    if (signal.aborted) throw calledOff(signal);
    if (this.#taken) await this.#wait(signal);
    this.#taken = true;
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#taken = false;
      else next();
    }
  }

  #wait(signal: Signal): Promise<void> {
    if (this.#waiting.length >= MAX_WAITING) {
      throw new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, "too many calls are queued for this server");
    }
    return new Promise((resolve, reject) => {
      const go = (): void => {
        signal.removeEventListener("abort", leave);
        resolve();
      };
      const leave = (): void => {
        this.#waiting.splice(this.#waiting.indexOf(go), 1);
        reject(calledOff(signal));
      };
      signal.addEventListener("abort", leave, { once: true });
      this.#waiting.push(go);
    });
  }
}
