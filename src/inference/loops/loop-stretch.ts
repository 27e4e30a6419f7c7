/** What became of a control loop's observations since its last bill, for the log: holds by their reason, tries by how they ended. */
import { type HoldReason, HoldReasonSchema } from "../../../gen/limber/v1/control_loop_pb.ts";
import { failureWord } from "../../contracts/failure.ts";
import type { Try } from "../../routing/index.ts";
import type { LoopStretch } from "../call-billing.ts";

/** Tries that ended alike. */
interface AlikeTries {
  readonly offeringId: string;
  readonly status: Try["status"];
  readonly reason: Try["reason"];
  count: number;
  latencyMs: number;
}

/** More kinds of tries than this are not told apart in one stretch. */
const MOST_KINDS = 32;

/** Counts, until somebody takes what was counted. */
export class StretchCounts {
  /** There is none before the first hold of a stretch. */
  #holds: Map<HoldReason, number> | undefined;
  #tries: AlikeTries[] = [];

  /** An answer left, after these tries. */
  chunk(tries: readonly Try[]): void {
    for (const tried of tries) this.#add(tried);
  }

  /** The robot was told to hold, after these tries. */
  hold(reason: HoldReason, tries: readonly Try[]): void {
    this.#holds ??= new Map();
    this.#holds.set(reason, (this.#holds.get(reason) ?? 0) + 1);
    for (const tried of tries) this.#add(tried);
  }

  /** What was counted since it was last asked; undefined where that is nothing. */
  take(): LoopStretch | undefined {
    if (this.#holds === undefined && this.#tries.length === 0) return undefined;
    const holds =
      this.#holds && Object.fromEntries([...this.#holds].map(([reason, count]) => [wordOfHold(reason), count]));
    const attempts = this.#tries.map(({ offeringId, status, reason, count, latencyMs }) => ({
      offering_id: offeringId,
      status,
      reason: failureWord(reason),
      latency_ms: Math.round((latencyMs / count) * 1000) / 1000,
      count,
    }));
    this.#holds = undefined;
    this.#tries = [];
    return { attempts, ...(holds && { holds }) };
  }

  #add({ step, status, reason, latencyMs }: Try): void {
    const offeringId = step.offering.id;
    for (const known of this.#tries) {
      if (known.offeringId !== offeringId || known.status !== status || known.reason !== reason) continue;
      known.count += 1;
      known.latencyMs += latencyMs;
      return;
    }
    if (this.#tries.length < MOST_KINDS) this.#tries.push({ offeringId, status, reason, count: 1, latencyMs });
  }
}

/** The word of a reason, such as `late`. */
export const wordOfHold = (reason: HoldReason): string =>
  HoldReasonSchema.value[reason]?.name.slice("HOLD_REASON_".length).toLowerCase() ?? "";
