/** For servers that serve one robot at a time: who has one, among all replicas. */
import { steadyNow } from "../../clock.ts";

/** A server that was taken, and what the one before left there. */
export interface Taken {
  /** Counts up with every taking, so that nobody mistakes an old one for a new one. */
  readonly epoch: number;
  /** Whose session the server served last; undefined where nothing is known. */
  readonly session: string | undefined;
  /** What the server was set up with, as whoever released it said; undefined where nothing is known. */
  readonly setup: string | undefined;
}

/** How a server is given back. */
export interface Released {
  readonly epoch: number;
  /** For so long the session keeps the server. */
  readonly keepMs: number;
  /** What the server is set up with; undefined where nobody knows. */
  readonly setup: string | undefined;
}

/** The leases of all servers. A session is a caller's word; the empty one stands for calls without. */
export interface ServerLeases {
  /**
   * Takes a server for one call of a session, for `runMs` unless it is released before. `running`: a call of the same session, or of none,
   * has it and will be done. `busy`: another session has it. Rejects when nobody can say.
   */
  take(server: string, session: string, runMs: number): Promise<Taken | "running" | "busy">;
  /** Gives a server back, where it wasn't taken by somebody else meanwhile. */
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

/** Leases that this process knows alone, for who has no other replicas. */
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
