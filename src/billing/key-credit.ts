/** The credit that one replica holds for one key: its lease, the calls that wait for more, and how fast it is spent. */
import { newId } from "../ids.ts";
import type { Estimate } from "./insufficient-credit.ts";
import type { CreditShortage } from "./ledger-port.ts";

/** Whose credit a call uses. */
export interface Payer {
  orgId: string;
  keyId: string;
  /** The workspace whose budget counts too; undefined: none. */
  workspaceId?: string | undefined;
  /** The keys that its key descends from, whose budgets count too; undefined: none. */
  ancestors?: readonly string[] | undefined;
}

/** A lease as its credit leaser sees it. In micro-dollars, `idle` is what no running call was promised. */
export interface Lease {
  readonly id: string;
  readonly credit: KeyCredit;
  /** The UTC day whose budget it counts against, `YYYY-MM-DD`. */
  readonly day: string;
  idle: number;
  /** Calls that it was promised to and that have not ended. */
  running: number;
  /** What it was promised to them. */
  promised: number;
  /** `new` until the ledger knows it; `old` when another has followed it and its calls still run; `gone` when it was ended or lost. */
  state: "new" | "open" | "old" | "gone";
}

/** A call that waits for credit. */
export interface CreditWaiter {
  ceiling: number;
  estimate: Estimate;
  /** On the steady clock, in milliseconds. */
  since: number;
  serve(lease: Lease): void;
  refuse(cause: unknown): void;
}

/** Over how many milliseconds the pace of spending is felt: what a key credit spends in them is what it likes to have. */
const PACE_MS = 2_000;

/** One key's credit in one replica. */
export class KeyCredit {
  readonly payer: Payer;
  lease: Lease | undefined;
  waiters: CreditWaiter[] = [];
  /** A take is under way. */
  taking = false;
  /** The other credit leasers were asked since the last grant. */
  recalled = false;
  /** They are being asked at the moment. */
  recalling = false;
  /** The last take that failed. */
  short: CreditShortage | undefined;
  /** What its running calls were promised, whatever the lease. */
  promised = 0;
  running = 0;
  /** When a call last began, on the steady clock in milliseconds. */
  usedAt = 0;
  /** Before this moment no credit is fetched ahead of need. */
  contentUntil = 0;
  /** Whether a later look at the waiters is arranged. */
  watched = false;
  #spent = 0;
  #spentAt = 0;

  constructor(payer: Payer) {
    this.payer = payer;
  }

  /** Notes that `micro` was spent at `steadyMs`. */
  spend(micro: number, steadyMs: number): void {
    this.#spent = this.pace(steadyMs) + micro;
    this.#spentAt = steadyMs;
  }

  /** About what is spent in two seconds, in micro-dollars. */
  pace(steadyMs: number): number {
    return Math.floor(this.#spent * Math.exp((this.#spentAt - steadyMs) / PACE_MS));
  }

  /** The lease of `day`, made when there is none. The one that it follows is returned in `before`. */
  leaseOf(day: string): { lease: Lease; before: Lease | undefined } {
    const before = this.lease;
    if (before?.day === day) return { lease: before, before: undefined };
    const lease: Lease = { id: newId("lease"), credit: this, day, idle: 0, running: 0, promised: 0, state: "new" };
    this.lease = lease;
    return { lease, before };
  }

  /** Gives idle credit to the calls that wait, in order, as far as it goes. */
  serve(lease: Lease): void {
    while (this.waiters.length > 0 && lease.state === "open" && this.waiters[0]!.ceiling <= lease.idle) {
      const waiter = this.waiters.shift()!;
      waiter.serve(lease);
    }
  }
}
