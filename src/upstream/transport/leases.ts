/** Leases, among all replicas, of servers that serve one robot at a time. */
import { steadyNow } from "../../clock.ts";

/** A server that was leased, and the state in which the lease before left it. */
export interface Taken {
  /** Grows with every lease, so that an old one is never taken for a new one. */
  readonly epoch: number;
  /** Whose session the server served last; undefined where nothing is known. */
  readonly session: string | undefined;
  /** What the server was set up with at the last release; undefined where nothing is known. */
  readonly setup: string | undefined;
}

/** How a server is released. */
export interface Released {
  readonly epoch: number;
  /** For so long the session keeps the server. */
  readonly keepMs: number;
  /** What the server is set up with; undefined where that is unknown. */
  readonly setup: string | undefined;
}

/** The leases of all servers. A session is named by the caller; the empty name stands for calls without one. */
export interface ServerLeases {
  /**
   * Takes a server for one call of a session, for `runMs` unless it is released before. `running`: a call of the same session, or of none,
   * has it and will be done. `busy`: another session has it. Rejects when that cannot be found out.
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

/** More servers than this are not remembered: what is set up there is then not known any more. */
const MOST_KNOWN = 4_096;

/** Leases in this process alone, for a gateway of one replica. */
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
