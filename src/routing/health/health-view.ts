/** What plans read of the health of offerings: columns beside those of a snapshot. */
import type { Sliced } from "../../slices.ts";
import type { Snapshot } from "../snapshot/snapshot.ts";
import { restsUntil } from "./breaker.ts";
import type { Cell } from "./cell.ts";

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
  /**
   * What hard constraints judge: the 95th percentile in milliseconds as advertised, else as measured by traffic, else by the probe, Infinity
   * where there is none; and the uptime as measured by traffic for seven days, else as advertised, else by what traffic or the probe there
   * was, 0 where there was none.
   */
  readonly judgedP95Ms: Float64Array;
  readonly judgedUptime: Float64Array;
  /** Share of the last calls that succeeded; 1 when there were none. */
  readonly success: Float64Array;
  /** 1, and the less the slower it is than it usually is. */
  readonly pace: Float64Array;
  /** Until when its breaker lets nothing through; 0 when it does. */
  readonly restsUntil: Float64Array;
  /** When it was last known to be awake; -Infinity when it never was, Infinity while it answers calls. */
  readonly usedAt: Float64Array;
}

/** Writes what was measured of an offering, or what it advertises where that is too little. */
export function writeCell(view: HealthView, id: string, cell: Cell, now: number): void {
  const row = view.snapshot.rowOf(id);
  if (row < 0) return;
  const { advertised } = view.snapshot.columns;
  // Where nothing is advertised, an old measurement is better than none.
  const measured = cell.isMeasured(now) || (cell.hasMeasured() && !Number.isFinite(advertised.p50Ms[row]!));
  const slowMs = cell.pace.slowMs(now);
  view.pace[row] = slowMs === undefined ? 1 : cell.pace.weight(now);
  view.p50Ms[row] = Math.max(slowMs ?? 0, measured ? cell.latency.quantile(0.5) : advertised.p50Ms[row]!);
  view.p95Ms[row] = measured ? cell.latency.quantile(0.95) : advertised.p95Ms[row]!;
  view.unitsPerS[row] = (measured ? cell.unitsPerS : undefined) ?? advertised.unitsPerS[row]!;
  const coldMs = advertised.coldMs[row]!;
  view.coldMs[row] = cell.coldMs ?? (Number.isFinite(coldMs) ? coldMs : view.p50Ms[row]!);
  view.uptime[row] = cell.uptime30d ?? advertised.uptime[row]!;
  const told = view.snapshot.offerings[row]!.advertised;
  const measuredP95Ms = told.p95Ms === undefined && cell.hasMeasured() ? cell.latency.quantile(0.95) : undefined;
  view.judgedP95Ms[row] = measuredP95Ms ?? advertised.judgedP95Ms[row]!;
  const seen = told.uptime30d === undefined ? cell.uptime?.last30d : cell.judgedUptime;
  view.judgedUptime[row] = seen ?? advertised.judgedUptime[row]!;
  view.success[row] = cell.success;
  view.usedAt[row] = cell.idleSince;
  view.restsUntil[row] = restsUntil(cell.breaker);
}

/** As if nothing had been measured of a row. */
export function writeAdvertised(view: HealthView, row: number): void {
  const { advertised } = view.snapshot.columns;
  for (const name of Object.keys(advertised) as (keyof typeof advertised)[]) view[name][row] = advertised[name][row]!;
  view.success[row] = 1;
  view.pace[row] = 1;
  view.usedAt[row] = Number.NEGATIVE_INFINITY;
  view.restsUntil[row] = 0;
}

/** As if nothing had been measured yet. A column is made in one go, and the next one after a breath. */
export function* advertisedView(snapshot: Snapshot): Sliced<HealthView> {
  const { advertised } = snapshot.columns;
  const rows = snapshot.ground.room;
  const p50Ms = advertised.p50Ms.slice();
  yield;
  const p95Ms = advertised.p95Ms.slice();
  yield;
  const coldMs = advertised.coldMs.slice();
  yield;
  const unitsPerS = advertised.unitsPerS.slice();
  yield;
  const uptime = advertised.uptime.slice();
  yield;
  const judgedP95Ms = advertised.judgedP95Ms.slice();
  yield;
  const judgedUptime = advertised.judgedUptime.slice();
  yield;
  const success = new Float64Array(rows).fill(1);
  yield;
  const pace = new Float64Array(rows).fill(1);
  yield;
  const usedAt = new Float64Array(rows).fill(Number.NEGATIVE_INFINITY);
  yield;
  const restsUntil = new Float64Array(rows);
  return {
    snapshot,
    p50Ms,
    p95Ms,
    coldMs,
    unitsPerS,
    uptime,
    judgedP95Ms,
    judgedUptime,
    success,
    pace,
    restsUntil,
    usedAt,
  };
}
