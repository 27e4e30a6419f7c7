/** What the log keeps of a plan: what was considered, what was dropped and why, and what could serve. Made for many alike calls at once. */
import { Refusal } from "../../errors.ts";
import { droppedOf, dropsOf, wordOf } from "./drops.ts";
import { consideredRows, withoutSupply, wrongActionSpace } from "./expand.ts";
import { declare, type PlanArgs } from "./intent.ts";

/** An offering of a digest. */
export interface DigestedOffering {
  readonly offering_id: string;
  readonly model: string;
  readonly provider: string;
}

/** The part of a plan that it has in common with those of alike requests. Kept as JSON. */
export interface PlanDigest {
  readonly considered: number;
  /** What could serve, by the names of the offerings; none where so much was considered that it was not looked at. */
  readonly able: readonly DigestedOffering[];
  /** By the word of the reason: how many were dropped. */
  readonly drops: Readonly<Record<string, number>>;
  /** The first of them. */
  readonly dropped: readonly (DigestedOffering & { readonly reason: string })[];
}

/** More offerings than this are counted and not looked at. */
const MOST_CONSIDERED = 2_000;
/** Of what could serve, so many are named. */
const MOST_ABLE = 64;
/** Of what was dropped, so many are named. */
const MOST_DROPPED = 8;

/** The digest of a request's plan; undefined where the request itself is wrong. */
export function digestOf(args: PlanArgs): PlanDigest | undefined {
  try {
    return made(args);
  } catch (thrown) {
    if (thrown instanceof Refusal) return undefined;
    throw thrown;
  }
}

function made(args: PlanArgs): PlanDigest {
  const ask = declare(args);
  const rows = [...consideredRows(ask)];
  const nothing = { considered: rows.length, able: [], drops: {}, dropped: [] };
  if (rows.length > MOST_CONSIDERED || wrongActionSpace(ask) || withoutSupply(ask)) return nothing;
  const all = dropsOf(ask);
  const drops: Record<string, number> = {};
  const dropped = droppedOf(ask, all).map(({ offeringId, model, provider, reason }) => {
    const word = wordOf(reason);
    drops[word] = (drops[word] ?? 0) + 1;
    return { offering_id: offeringId, model, provider, reason: word };
  });
  const gone = new Set(all.map(({ row }) => row));
  const able = rows
    .filter((row) => !gone.has(row))
    .map((row) => {
      const { id, model, provider } = ask.snapshot.offerings[row]!;
      return { offering_id: id, model, provider };
    })
    .sort((a, b) => (a.offering_id < b.offering_id ? -1 : 1));
  return {
    considered: rows.length,
    able: able.slice(0, MOST_ABLE),
    drops,
    // Named in one order, so that alike plans have one digest: the rarest reasons first, which say the most.
    dropped: dropped
      .sort(
        (a, b) => drops[a.reason]! - drops[b.reason]! || (a.reason + a.offering_id < b.reason + b.offering_id ? -1 : 1),
      )
      .slice(0, MOST_DROPPED),
  };
}
