/** How every offering does at the moment: its breaker, and figures that are measured where there are enough samples. */
import { AttemptFailure } from "../contracts/failure.ts";
import { type Breaker, type BreakerEvent, blamesProvider, CLOSED, reduce, restsUntil } from "./breaker.ts";
import type { Offering } from "./offering.ts";
import { Sketch } from "./sketch.ts";
import type { Snapshot } from "./snapshot.ts";

/** One cell per row of the snapshot and figure; the planner reads these. Measured once there are enough samples, else advertised. */
export interface HealthView {
  /** The snapshot whose rows these are. */
  readonly snapshot: Snapshot;
  /** Median and 95th percentile in milliseconds; Infinity when neither measured nor advertised. */
  readonly p50Ms: Float64Array;
  readonly p95Ms: Float64Array;
  /** Milliseconds of a call that has to wake it first. */
  readonly coldMs: Float64Array;
  /** Units per second; 0 when not known. */
  readonly unitsPerS: Float64Array;
  /** Uptime over 30 days as a fraction; 0 when not known. */
  readonly uptime: Float64Array;
  /** Share of the last calls that succeeded; 1 when there were none. */
  readonly success: Float64Array;
  /** Until when its breaker lets nothing through; 0 when it does. */
  readonly restsUntil: Float64Array;
  /** When it was last used; -Infinity when it never was. */
  readonly usedAt: Float64Array;
}

/** How a call at an offering ended. `cancelled`: nobody waited for it any longer. */
export interface Report {
  readonly outcome: "ok" | "cancelled" | AttemptFailure;
  readonly latencyMs: number;
  /** Units of the answer; 0 when there was none. */
  readonly units: number;
  /** It had to be woken first. */
  readonly cold: boolean;
  readonly at: number;
}

/** What can be said of one offering, for `GET /v1/status`. */
export interface OfferingHealth {
  readonly offering: Offering;
  readonly breaker: Breaker;
  readonly success: number;
  readonly p50Ms: number | undefined;
  readonly p95Ms: number | undefined;
  readonly p99Ms: number | undefined;
  /** The last failure that counted against it. */
  readonly lastFailure: AttemptFailure | undefined;
}

interface Cell {
  offering: Offering;
  row: number;
  breaker: Breaker;
  latency: Sketch | undefined;
  coldMs: number | undefined;
  unitsPerS: number | undefined;
  uptime: number | undefined;
  success: number;
  usedAt: number;
  lastFailure: AttemptFailure | undefined;
}

/** Below this many samples (five fresh ones, a little faded) the advertised figures stand. */
const ENOUGH_SAMPLES = 4;
/** What counts as usual where nothing is known: a caller's tiny deadlines must not open a breaker for everyone. */
const USUAL_MS = 1000;
/** How much one call moves a running average. */
const NEWEST_SHARE = 0.1;

/** The health of all offerings of one replica. It outlives snapshots: figures follow an offering's id. */
export class HealthBoard {
  private readonly random: () => number;
  private readonly cells = new Map<string, Cell>();
  private view_: HealthView;

  /** `random` gives numbers in [0, 1) for the jitter of cooldowns. */
  constructor(snapshot: Snapshot, random: () => number) {
    this.random = random;
    this.view_ = this.adopt(snapshot, 0);
  }

  /** The figures, indexed as the newest snapshot is. */
  get view(): HealthView {
    return this.view_;
  }

  /** Takes over to a new snapshot: what is known of an offering stays, what is gone is forgotten. */
  adopt(snapshot: Snapshot, now: number): HealthView {
    const view = emptyView(snapshot);
    this.view_ = view;
    const gone = new Set(this.cells.keys());
    for (let row = 0; row < snapshot.offerings.length; row++) {
      const offering = snapshot.offerings[row]!;
      const cell = this.cells.get(offering.id);
      gone.delete(offering.id);
      if (cell) {
        cell.offering = offering;
        cell.row = row;
        this.write(cell, now);
      } else {
        this.cells.set(offering.id, newCell(offering, row));
        writeAdvertised(view, row, offering);
      }
    }
    for (const id of gone) this.cells.delete(id);
    return view;
  }

  /**
   * Asks to send one call. False when the breaker rests, or when its one probe is under way; `force` asks an open
   * breaker all the same. True notes the use, and the probe where this is one.
   */
  admit(offeringId: string, now: number, budgetMs: number, force = false): boolean {
    const cell = this.cells.get(offeringId);
    if (!cell) return true;
    if (!force && restsUntil(cell.breaker) > now) return false;
    if (cell.breaker.state !== "closed") this.move(cell, { kind: "probing", at: now, budgetMs });
    cell.usedAt = now;
    this.view_.usedAt[cell.row] = now;
    return true;
  }

  /** Notes how a call ended. Reports on offerings that are gone are dropped. */
  report(offeringId: string, report: Report): void {
    const cell = this.cells.get(offeringId);
    if (!cell) return;
    cell.usedAt = Math.max(cell.usedAt, report.at);
    const verdict = this.verdictOf(cell, report);
    this.measure(cell, report, verdict);
    this.move(cell, { kind: verdict, at: report.at });
    this.write(cell, report.at);
  }

  /** Sets the uptime of the last 30 days, as the store rolled it up. */
  setUptime(offeringId: string, uptime: number | undefined, now: number): void {
    const cell = this.cells.get(offeringId);
    if (!cell) return;
    cell.uptime = uptime;
    this.write(cell, now);
  }

  /** An operator's hand on a breaker; `closed` gives it back to itself. */
  force(offeringId: string, state: "forced_open" | "forced_closed" | "closed", now: number): void {
    const cell = this.cells.get(offeringId);
    if (cell) this.move(cell, { kind: "forced", at: now, state });
  }

  /** Lets figures fade that nobody refreshed, so that an offering that was slow once is tried again. Call it every few seconds. */
  age(now: number): void {
    for (const cell of this.cells.values()) if (cell.latency) this.write(cell, now);
  }

  /** What is known of every offering. */
  *figures(): IterableIterator<OfferingHealth> {
    for (const cell of this.cells.values()) yield figuresOf(cell);
  }

  /** What is known of one offering; undefined when the newest snapshot has none of this id. */
  figureOf(offeringId: string): OfferingHealth | undefined {
    const cell = this.cells.get(offeringId);
    return cell && figuresOf(cell);
  }

  private verdictOf(cell: Cell, report: Report): "succeeded" | "failed" | "released" {
    if (report.outcome === "ok") return "succeeded";
    if (report.outcome === "cancelled" || !blamesProvider(report.outcome)) return "released";
    // The caller's own deadline says nothing of a provider that was not given its usual time.
    const usualMs = this.view_.p95Ms[cell.row]!;
    const wasGivenTime = report.latencyMs >= (Number.isFinite(usualMs) ? usualMs : USUAL_MS);
    if (report.outcome === AttemptFailure.DEADLINE && !wasGivenTime) return "released";
    cell.lastFailure = report.outcome;
    return "failed";
  }

  private measure(cell: Cell, report: Report, verdict: "succeeded" | "failed" | "released"): void {
    if (verdict === "released") {
      // A call that was given up took at least this long. Where that is more than usual it counts: without it, a slow loser
      // of hedges would never look slow. Where it is less it does not, or callers in a hurry would make it look fast.
      if (report.latencyMs > this.view_.p95Ms[cell.row]!) this.addLatency(cell, report);
      return;
    }
    const succeeded = verdict === "succeeded";
    cell.success += ((succeeded ? 1 : 0) - cell.success) * NEWEST_SHARE;
    const ranOutOfTime = report.outcome === AttemptFailure.TIMEOUT || report.outcome === AttemptFailure.DEADLINE;
    if (succeeded || ranOutOfTime) this.addLatency(cell, report);
    if (succeeded && report.units > 0 && report.latencyMs > 0) {
      cell.unitsPerS = average(cell.unitsPerS, (report.units * 1000) / report.latencyMs);
    }
  }

  private addLatency(cell: Cell, report: Report): void {
    if (report.cold) {
      cell.coldMs = average(cell.coldMs, report.latencyMs);
      return;
    }
    cell.latency ??= new Sketch();
    cell.latency.add(report.latencyMs, report.at);
  }

  private move(cell: Cell, event: BreakerEvent): void {
    cell.breaker = reduce(cell.breaker, event, this.random);
    this.view_.restsUntil[cell.row] = restsUntil(cell.breaker);
  }

  private write(cell: Cell, now: number): void {
    const { view_: view } = this;
    const { row, offering } = cell;
    writeAdvertised(view, row, offering);
    if (cell.latency && cell.latency.samples(now) >= ENOUGH_SAMPLES) {
      view.p50Ms[row] = cell.latency.quantile(0.5);
      view.p95Ms[row] = cell.latency.quantile(0.95);
      view.unitsPerS[row] = cell.unitsPerS ?? view.unitsPerS[row]!;
    }
    view.coldMs[row] = cell.coldMs ?? view.coldMs[row]!;
    view.uptime[row] = cell.uptime ?? view.uptime[row]!;
    view.success[row] = cell.success;
    view.usedAt[row] = cell.usedAt;
    view.restsUntil[row] = restsUntil(cell.breaker);
  }
}

function figuresOf({ offering, breaker, success, latency, lastFailure }: Cell): OfferingHealth {
  const quantile = (q: number): number | undefined => latency?.quantile(q);
  const [p50Ms, p95Ms, p99Ms] = [quantile(0.5), quantile(0.95), quantile(0.99)];
  return { offering, breaker, success, p50Ms, p95Ms, p99Ms, lastFailure };
}

const average = (old: number | undefined, newest: number): number =>
  old === undefined ? newest : old + (newest - old) * NEWEST_SHARE;

function newCell(offering: Offering, row: number): Cell {
  return {
    offering,
    row,
    breaker: CLOSED,
    latency: undefined,
    coldMs: undefined,
    unitsPerS: undefined,
    uptime: undefined,
    success: 1,
    usedAt: Number.NEGATIVE_INFINITY,
    lastFailure: undefined,
  };
}

function emptyView(snapshot: Snapshot): HealthView {
  const rows = snapshot.offerings.length;
  const column = (): Float64Array => new Float64Array(rows);
  return {
    snapshot,
    p50Ms: column(),
    p95Ms: column(),
    coldMs: column(),
    unitsPerS: column(),
    uptime: column(),
    success: column().fill(1),
    restsUntil: column(),
    usedAt: column().fill(Number.NEGATIVE_INFINITY),
  };
}

function writeAdvertised(view: HealthView, row: number, { advertised, coldTimeoutMs }: Offering): void {
  view.p50Ms[row] = advertised.p50Ms ?? advertised.p95Ms ?? Number.POSITIVE_INFINITY;
  view.p95Ms[row] = advertised.p95Ms ?? advertised.p50Ms ?? Number.POSITIVE_INFINITY;
  view.coldMs[row] = coldTimeoutMs;
  view.unitsPerS[row] = advertised.unitsPerS ?? 0;
  view.uptime[row] = advertised.uptime30d ?? 0;
}
