/** Withdrawing an offering: it takes no new calls, and goes when those that run have ended. */
import type { Signal } from "../cancellation.ts";
import { sleep } from "../clock.ts";
import { Reason, refuse } from "../errors.ts";
import { emit } from "../events/emit.ts";
import { type Act, audit } from "../store/account/audit.ts";
import { type Sql, type Tx, tx } from "../store/database/tx.ts";
import {
  deleteOffering,
  inFlightOn,
  type OfferingRecord,
  setOfferingStatus,
  withdrawnUntil,
} from "../store/supply/supply.ts";
import type { Upstream } from "../upstream/index.ts";
import type { FrameOptions } from "../upstream/pictures/frames.ts";
import type { Vault } from "../vault.ts";

/** Milliseconds that a withdrawal waits for running calls; the sweep handles what takes longer. */
const PATIENCE_MS = 3_000;
const LOOK_MS = 50;

const ROUTED = ["live", "degraded"] as const;
const UNROUTED = ["pending", "verifying", "rejected", "suspended", "paused"] as const;
/** They were live, and calls on record name them. */
const ONCE_LIVE: ReadonlySet<string> = new Set(["suspended", "paused"]);

/** How an offering is to be withdrawn. */
interface Withdrawal {
  /** Also when calls are routed to it. */
  force: boolean;
  by: Pick<Act, "actor" | "requestId">;
  signal: Signal;
}

/** Withdraws an offering. Refuses with `offering_live` one that calls are routed to, unless it is forced. */
export async function withdraw(
  { sql, refresh }: SupplyDeps,
  known: OfferingRecord,
  { force, by, signal }: Withdrawal,
): Promise<OfferingRecord> {
  const { id } = known;
  if (ROUTED.some((status) => status === known.status) && !force) {
    const inFlight = await inFlightOn(sql, id);
    const text = "calls are routed to this offering; send ?force=true to withdraw it anyway";
    throw refuse(Reason.OFFERING_LIVE, text, { inFlight });
  }
  const gone = await tx(sql, async (tx) => {
    const draining = await setOfferingStatus(tx, id, { from: ROUTED, to: "draining" });
    if (draining) return draining;
    // An offering that never had a call leaves nothing to look up later.
    const never = !ONCE_LIVE.has(known.status) && (await deleteOffering(tx, id, UNROUTED));
    const removed = never ? undefined : await setOfferingStatus(tx, id, { from: UNROUTED, to: "removed" });
    if (never || removed) await tell(tx, known, by);
    return removed ?? (never ? { ...known, status: "removed" as const } : known);
  });
  await refresh();
  if (gone.status !== "draining" && !(known.status === "draining")) return gone;
  for (let waited = 0; waited < PATIENCE_MS && !signal.aborted; waited += LOOK_MS) {
    if ((await inFlightOn(sql, id)) === 0) {
      const removed = await remove(sql, gone, by);
      // Where it was the last of its model, the model is its owner's alone again.
      await refresh();
      return removed ?? gone;
    }
    await sleep(LOOK_MS);
  }
  return gone;
}

/** Removes what was withdrawn and has no calls any more, or has had the time of its longest. */
export async function removeDrained(sql: Sql): Promise<void> {
  for (const offering of await withdrawnUntil(sql)) {
    if (offering.over || (await inFlightOn(sql, offering.id)) === 0) await remove(sql, offering, { actor: "system" });
  }
}

function remove(
  sql: Sql,
  { id }: OfferingRecord,
  by: Pick<Act, "actor" | "requestId">,
): Promise<OfferingRecord | undefined> {
  return tx(sql, async (tx) => {
    const removed = await setOfferingStatus(tx, id, { from: ["draining"], to: "removed" });
    if (removed) await tell(tx, removed, by);
    return removed;
  });
}

async function tell(tx: Tx, { id, orgId }: OfferingRecord, by: Pick<Act, "actor" | "requestId">): Promise<void> {
  await emit(tx, orgId, { case: "offeringRemoved", value: { offeringId: id } });
  await audit(tx, { ...by, orgId, action: "offering.removed", subject: id });
}

/** The dependencies. */
export interface SupplyDeps {
  sql: Sql;
  vault: Vault;
  upstream: Upstream;
  agent: FrameOptions["agent"];
  allowPrivate: boolean;
  /** How often what is live is probed again, in seconds. */
  probeEveryS: number;
  /** Resolves when this replica routes over what the database has now; the others follow by notification. */
  refresh(): Promise<void>;
}
