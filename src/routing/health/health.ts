/** The health of every offering: its breaker, and measured figures where there are enough samples. */
import { AttemptFailure, Contract } from "../../contracts/contract.ts";
import { atOnce, type Sliced } from "../../slices.ts";
import type { Offering } from "../offering.ts";
import type { Snapshot } from "../snapshot/snapshot.ts";
import { type Breaker, type BreakerEvent, CLOSED, reduce, restsUntil } from "./breaker.ts";
import {
  type CallWatcher,
  Cell,
  type Hearsay,
  type Report,
  SuspectedFailures,
  type Uptime,
  type Verdict,
} from "./cell.ts";

/** The status of one offering, for `GET /v1/status`. */
export interface OfferingHealth {
  readonly offering: Offering;
  readonly breaker: Breaker;
  /** Share of failed calls in the last five minutes; undefined if there were none. */
  readonly failureRate: number | undefined;
  readonly p50Ms: number | undefined;
  readonly p95Ms: number | undefined;
  readonly p99Ms: number | undefined;
  /** The last failure that counted against it. */
  readonly lastFailure: AttemptFailure | undefined;
  /** Rolled up from all replicas; undefined before the first roll-up. */
  readonly uptime: Uptime | undefined;
}

/** Called when an offering's breaker opens or closes because of its calls. */
type CircuitListener = (offering: Offering, state: "opened" | "closed") => void;

/** Called when the only offerings for a request have open breakers: a health check before the cooldown ends is worthwhile. */
type WantedListener = (offering: Offering) => void;

/** Called when an offering fails calls of one organization that the input may have caused: a health check with known-good input decides. */
type DoubtListener = (offering: Offering) => void;

/** Whether the caller's input can cause a failure of this kind at an offering. */
type MayBeInput = (offeringId: string, failure: AttemptFailure) => boolean;

/**
 * Receives an offering's problems, for its owner: a failed attempt or a robot's hold (`count` is 1), or the text about a failure that is
 * counted separately (`count` is 0).
 */
export type TroubleListener = (
  offeringId: string,
  trouble: { kind: AttemptFailure | "hold"; count: 0 | 1; said?: string },
) => void;

/** An operator's control of a breaker; `closed` returns it to automatic operation. */
export type ForcedState = "forced_open" | "forced_closed" | "closed";

/** Number of calls that wait at a silent offering; further ones use another offering. */
const MOST_SILENT = 4;
/** An offering is silent after `SILENT_MS` and `SILENT_TIMES` its usual latency, which is `USUAL_MS` if it was not measured. */
const SILENT_MS = 250;
const SILENT_TIMES = 4;
const USUAL_MS = 250;
/** Milliseconds between two health checks of an offering with an open breaker, and after one that gave no verdict. */
const PROBE_MS = 1_000;
const UNSURE_MS = 10_000;
/**
 * Milliseconds between two times that waiting calls leave a silent offering, and the number of calls that do so in one turn of the event
 * loop.
 */
const ABANDON_MS = 100;
const ABANDONED_PER_TURN = 32;

/** Maximum number of queued reports; one more causes all of them to be processed. */
const MOST_WAITING = 128;

/** The health of all offerings as one replica knows it. It outlives snapshots: figures are kept by offering id. */
export class HealthTracker {
  /** Called for every breaker that opens or closes. */
  onCircuit: CircuitListener = () => {};
  /** Called for offerings passed to `want`, once a second each. */
  onWanted: WantedListener = () => {};
  /**
   * Called for offerings that need a health check, because failures count only with its result. A call of `endDoubt` follows each
   * `beginDoubt`.
   */
  onDoubted: DoubtListener = () => {};
  /** Decides about failures whose caller is known. */
  mayBeInput: MayBeInput = () => false;
  /** Called for every problem, except those of placeholders. */
  onTrouble: TroubleListener = () => {};
  private readonly random: () => number;
  /** Offerings with figures beyond the advertised ones. */
  private readonly cells = new Map<string, Cell>();
  private readonly watchers = new Set<Set<string>>();
  /** Offerings whose breakers are open after failures. */
  private readonly rested = new Set<string>();
  private readonly kept = new Set<string>();
  /** Changes that happen while a new view is built. */
  private changed: Set<string> | undefined;
  /** Successful calls that are not processed yet: batches cost less, and no reader sees the difference. */
  private waiting: { readonly cells: Cell[]; readonly reports: Report[] } = { cells: [], reports: [] };
  private view_: HealthView;

  /** `random` returns numbers in [0, 1) for the jitter of cooldowns. */
  constructor(snapshot: Snapshot, random: () => number) {
    this.random = random;
    this.view_ = atOnce(advertisedView(snapshot));
  }

  /** The figures, indexed like the newest snapshot. Queued reports are processed before they are read. */
  get view(): HealthView {
    this.catchUp();
    return this.view_;
  }

  /** The view that plans are made from. */
  get snapshot(): Snapshot {
    return this.view_.snapshot;
  }

  /** Switches to a new snapshot: figures of existing offerings stay, those of removed ones are dropped. */
  adopt(snapshot: Snapshot, now: number): HealthView {
    return atOnce(this.adopting(snapshot, now));
  }

  /** The same as sliced work; the view changes in its last slice. */
  *adopting(snapshot: Snapshot, now: number): Sliced<HealthView> {
    this.catchUp();
    const before = this.view_;
    if (snapshot === before.snapshot) return before;
    // Changes during the work are written again at the end.
    const changed = new Set<string>();
    this.changed = changed;
    const view = yield* snapshot.ground === before.snapshot.ground
      ? this.following(before, snapshot, now)
      : this.beginning(snapshot, now);
    let count = 0;
    for (const id of changed) {
      const cell = this.cells.get(id);
      if (cell) writeCell(view, id, cell, now);
    }
    this.view_ = view;
    this.changed = undefined;
    yield;
    for (const id of this.cells.keys()) {
      if (this.view_.snapshot.rowOf(id) < 0) {
        this.cells.delete(id);
        this.rested.delete(id);
        this.kept.delete(id);
      }
      if (++count % 64 === 0) yield;
    }
    return view;
  }

  /** The view of a snapshot with its own rows. */
  private *beginning(snapshot: Snapshot, now: number): Sliced<HealthView> {
    const view = yield* advertisedView(snapshot);
    let count = 0;
    for (const [id, cell] of this.cells) {
      writeCell(view, id, cell, now);
      if (++count % 16 === 0) yield;
    }
    return view;
  }

  /** The view of a patched snapshot: rows whose offering or declarations changed are written again. */
  private *following(before: HealthView, snapshot: Snapshot, now: number): Sliced<HealthView> {
    const view = { ...before, snapshot };
    const { offerings, order } = snapshot;
    for (let place = 0; place < order.length; place++) {
      const row = order[place]!;
      const offering = offerings[row]!;
      if (offering !== before.snapshot.offerings[row]) {
        const cell = this.cells.get(offering.id);
        writeAdvertised(view, row);
        if (cell) writeCell(view, offering.id, cell, now);
        yield;
      } else if (place % 1024 === 0) yield;
    }
    return view;
  }

  /**
   * Requests permission to send one call. Returns false if the breaker is open, or if its one probe is running; `force` passes an open
   * breaker. On true, counts the use, and the probe if this is one.
   */
  admit(offeringId: string, now: number, budgetMs: number, force = false): boolean {
    const cell = this.cellOf(offeringId);
    if (!cell) return true;
    if (!force && restsUntil(cell.breaker) > now) return false;
    if (cell.breaker.state !== "closed") this.move(offeringId, cell, { kind: "probing", at: now, budgetMs });
    const row = this.rowOf(offeringId);
    cell.awake = this.isWarm(cell, row, now);
    if (cell.awake) cell.usedAt = now;
    cell.underWay += 1;
    if (cell.awake && Number.isFinite(this.view_.snapshot.columns.warmMs[row]!)) this.kept.add(offeringId);
    this.view_.usedAt[row] = cell.idleSince;
    this.changed?.add(offeringId);
    return true;
  }

  /**
   * Whether the call that was just admitted starts the offering from zero: it is scaled to zero, and no other call of this replica starts
   * it. True for one call, until `sleepsOn` or a response.
   */
  wakes(offeringId: string, now: number): boolean {
    const cell = this.cells.get(offeringId);
    if (!cell || cell.waking || this.isWarm(cell, this.rowOf(offeringId), now)) return false;
    cell.waking = true;
    return true;
  }

  /** Offerings that this replica's calls keep warm now, of those that scale to zero when idle. */
  get keptAwake(): ReadonlySet<string> {
    return this.kept;
  }

  /** The call that would have started it ended without a response: the next one starts it. */
  sleepsOn(offeringId: string): void {
    const cell = this.cells.get(offeringId);
    if (cell) cell.waking = false;
  }

  /** Responses that are not processed yet may have kept it warm. */
  private isWarm(cell: Cell, row: number, now: number): boolean {
    const warmMs = this.view_.snapshot.columns.warmMs[row] ?? Number.POSITIVE_INFINITY;
    if (cell.isWarm(now, warmMs)) return true;
    this.catchUp();
    return cell.isWarm(now, warmMs);
  }

  /** Whether its breaker keeps calls away. */
  rests(offeringId: string, now: number): boolean {
    const cell = this.cells.get(offeringId);
    return cell !== undefined && restsUntil(cell.breaker) > now;
  }

  /** A call waits for a complete response. */
  begun(offeringId: string, at: number, waiter: CallWatcher): void {
    const cell = this.cellOf(offeringId);
    if (!cell) return;
    if (cell.waiting.length === 0) cell.heardAt = at;
    waiter.place = cell.waiting.push(waiter) - 1;
  }

  /** The call no longer waits; `heard` if the offering sent any response. */
  ended(offeringId: string, at: number, heard: boolean, waiter: CallWatcher): void {
    const cell = this.cells.get(offeringId);
    if (!cell) return;
    if (heard) cell.heardAt = at;
    const { waiting } = cell;
    // The cell of an offering that was removed for a while does not know earlier waiting calls.
    if (waiting[waiter.place] !== waiter) return;
    const last = waiting.pop()!;
    if (last === waiter) return;
    waiting[waiter.place] = last;
    last.place = waiter.place;
  }

  /**
   * Whether calls wait at an offering that has been silent for far longer than usual. Its breaker opens only when the first of them times
   * out, which may take seconds; until then, other calls skip it if another offering can serve.
   */
  isSilent(offeringId: string, now: number): boolean {
    const cell = this.cells.get(offeringId);
    if (!cell || cell.waiting.length < MOST_SILENT) return false;
    const usualMs = this.view_.p95Ms[this.rowOf(offeringId)]!;
    return now - cell.heardAt > Math.max(SILENT_MS, SILENT_TIMES * (Number.isFinite(usualMs) ? usualMs : USUAL_MS));
  }

  /** Moves calls that wait at a silent offering to the next one: a few at a time, because each starts another attempt. */
  abandon(offeringId: string, now: number): void {
    const cell = this.cells.get(offeringId);
    if (!cell || now - cell.abandonedAt < ABANDON_MS) return;
    cell.abandonedAt = now;
    const { heardAt } = cell;
    const waiting = cell.waiting.slice();
    const ask = (): void => {
      if (cell.heardAt !== heardAt) return;
      for (const waiter of waiting.splice(0, ABANDONED_PER_TURN)) waiter.abandon();
      if (waiting.length > 0) setImmediate(ask);
    };
    setImmediate(ask);
  }

  /**
   * Records how a call of an organization ended. Reports on removed offerings are dropped. Without an organization, failures that the input
   * may have caused count like all others.
   */
  report(offeringId: string, report: Report, orgId?: string): void {
    const cell = this.cellOf(offeringId);
    if (!cell) return;
    // The cell of an offering that was removed for a while does not know earlier running calls.
    if (cell.underWay > 0) cell.underWay -= 1;
    if (cell.underWay === 0) this.kept.delete(offeringId);
    if (report.outcome === "ok" && cell.breaker.state === "closed") {
      const { cells, reports } = this.waiting;
      cells.push(cell);
      if (reports.push(report) >= MOST_WAITING) this.catchUp();
      return;
    }
    this.catchUp();
    if (typeof report.outcome === "number") this.trouble(offeringId, report.outcome, 1);
    const { outcome, at } = report;
    const mayBeInput = orgId !== undefined && typeof outcome === "number" && this.isDoubtful(offeringId, outcome);
    const verdict = cell.note(report, this.view_.p95Ms[this.rowOf(offeringId)]!, mayBeInput);
    // Before the breaker changes: the waiting calls may be the only evidence at that time.
    if ((verdict === "failed" || verdict === "doubted") && this.isSilent(offeringId, at)) this.abandon(offeringId, at);
    if (verdict === "doubted") this.doubt(offeringId, cell, report, orgId ?? "");
    else this.move(offeringId, cell, { kind: verdict, at });
    this.written(offeringId, cell, at);
  }

  private isDoubtful(offeringId: string, failure: AttemptFailure): boolean {
    return failure === AttemptFailure.DEADLINE || this.mayBeInput(offeringId, failure);
  }

  /** A failure that the caller's input may have caused. */
  private doubt(offeringId: string, cell: Cell, { outcome, at }: Report, orgId: string): void {
    const { state } = cell.breaker;
    cell.doubts ??= new SuspectedFailures();
    const failure = outcome as AttemptFailure; // others are not doubted
    if (state === "closed") {
      const count = cell.doubts.add(orgId, cell.breaker, at, this.random);
      if (count > 0) cell.failed(failure, count, at);
      for (let i = 0; i < count; i++) this.move(offeringId, cell, { kind: "failed", at }, false);
    } else this.move(offeringId, cell, { kind: "released", at });
    const isDue = state === "closed" ? cell.doubts.isAskDue(at) : state === "half_open" && cell.doubts.mayAsk(at);
    const offering = isDue ? this.view_.snapshot.offerings[this.rowOf(offeringId)] : undefined;
    if (offering) this.onDoubted(offering);
  }

  /** Starts the health check that `onDoubted` requested; returns false if it cannot. */
  beginDoubt(offeringId: string, now: number): boolean {
    const doubts = this.cells.get(offeringId)?.doubts;
    if (!doubts?.mayAsk(now)) return false;
    doubts.ask();
    return true;
  }

  /** Ends the health check: if known-good input fails too, the pending failures count and the breaker opens. */
  endDoubt(offeringId: string, verdict: Verdict, failure: AttemptFailure | undefined, now: number): void {
    this.catchUp();
    const cell = this.cells.get(offeringId);
    if (!cell?.doubts) return;
    const count = cell.doubts.answered(verdict, now);
    const isHalfOpen = cell.breaker.state === "half_open" && verdict === "failed";
    if (count === undefined && !isHalfOpen) return;
    if (count !== undefined) cell.failed(failure, count, now);
    this.move(offeringId, cell, { kind: "condemned", at: now });
    this.written(offeringId, cell, now);
  }

  /** A robot held because this offering's chunk was missing or late. */
  held(offeringId: string): void {
    this.trouble(offeringId, "hold", 1);
  }

  /** The text about a failure, by the offering's server or by the gateway. */
  said(offeringId: string, failure: AttemptFailure, said: string): void {
    this.trouble(offeringId, failure, 0, said);
  }

  private trouble(offeringId: string, kind: AttemptFailure | "hold", count: 0 | 1, said?: string): void {
    const offering = this.view_.snapshot.offerings[this.rowOf(offeringId)];
    if (offering?.simulated === false) this.onTrouble(offeringId, { kind, count, ...(said !== undefined && { said }) });
  }

  /** Merges another replica's report. Its failures never open a breaker here, but reduce the number of own failures that do. */
  hear(replica: string, offeringId: string, told: Hearsay, now: number): void {
    this.catchUp();
    const cell = this.cellOf(offeringId);
    if (!cell) return;
    const { calls, failures } = cell.hear(replica, told, now);
    this.move(offeringId, cell, { kind: "heard", at: now, calls, failures, consecutive: told.consecutive });
    if (told.doubted?.length) {
      cell.doubts ??= new SuspectedFailures();
      cell.doubts.hear(told.doubted, now);
    }
    this.write(offeringId, cell, now);
  }

  /** The report of this replica on an offering; undefined if it has no measurements. */
  tell(offeringId: string, now: number): Hearsay | undefined {
    this.catchUp();
    const cell = this.cells.get(offeringId);
    if (!cell) return undefined;
    const { tally, breaker, idleSince, coldMs, unitsPerS } = cell;
    const idleMs = Math.max(0, now - idleSince);
    const doubted = cell.doubts?.tell(now) ?? [];
    return { tally, consecutive: breaker.consecutive, idleMs, coldMs, unitsPerS, doubted };
  }

  /** Merges measurements from before this replica started: latencies by bucket, and the time of the last call. */
  recall(offeringId: string, latency: ArrayLike<number>, usedAt: number, now: number): void {
    const cell = this.cellOf(offeringId);
    if (!cell) return;
    cell.recall(latency, usedAt);
    this.write(offeringId, cell, now);
  }

  /** Sets an offering's uptime as rolled up by the store. */
  setUptime(offeringId: string, uptime: Uptime | undefined, now: number): void {
    const cell = this.cellOf(offeringId);
    if (!cell) return;
    cell.uptime = uptime;
    this.write(offeringId, cell, now);
  }

  /** An operator's control of a breaker; repeating it changes nothing. */
  force(offeringId: string, state: ForcedState, now: number): void {
    this.catchUp();
    const cell = this.cellOf(offeringId);
    const isForced = cell?.breaker.state === "forced_open" || cell?.breaker.state === "forced_closed";
    if (!cell || cell.breaker.state === state || (state === "closed" && !isForced)) return;
    this.move(offeringId, cell, { kind: "forced", at: now, state });
  }

  /** Lets figures without new calls fade, so that an offering that was slow once is tried again. Call it every few seconds. */
  *age(now: number): Sliced<void> {
    this.catchUp();
    let count = 0;
    for (const [id, cell] of this.cells) {
      if (cell.latency) this.write(id, cell, now);
      if (++count % 16 === 0) yield;
    }
  }

  /** Tracks the offerings with reported calls: each call returns those since the last one, except placeholders. */
  watch(): () => ReadonlySet<string> {
    let changed = new Set<string>();
    this.watchers.add(changed);
    return () => {
      this.catchUp();
      const seen = changed;
      this.watchers.delete(changed);
      changed = new Set();
      this.watchers.add(changed);
      return seen;
    };
  }

  /** Offerings whose breakers are open after failures. */
  resting(): IterableIterator<string> {
    return this.rested.values();
  }

  /**
   * Only this offering, whose breaker is open, could serve callers. An offering for act gets an early health check; others wait for their
   * cooldown.
   */
  want(offeringId: string, now: number): void {
    const cell = this.rested.has(offeringId) ? this.cells.get(offeringId) : undefined;
    if (!cell || cell.probing || now - cell.probedAt < PROBE_MS) return;
    const offering = this.view_.snapshot.offerings[this.rowOf(offeringId)];
    if (offering?.contracts.includes(Contract.ACT)) this.onWanted(offering);
  }

  /** The same for all offerings of a model. */
  wantModel(model: string, now: number): void {
    const { offerings } = this.view_.snapshot;
    for (const id of this.rested) if (offerings[this.rowOf(id)]?.model === model) this.want(id, now);
  }

  /** Offerings whose cooldown has ended and that have had no call since. */
  *due(now: number): IterableIterator<Offering> {
    for (const id of this.rested) {
      const cell = this.cells.get(id);
      const offering = this.view_.snapshot.offerings[this.rowOf(id)];
      if (!cell || !offering || cell.probing || restsUntil(cell.breaker) > now) continue;
      if (now - cell.probedAt >= (cell.breaker.state === "open" ? PROBE_MS : UNSURE_MS)) yield offering;
    }
  }

  /** Starts a health check, possibly before the cooldown ends; returns false if it cannot. A call of `endProbe` follows. */
  beginProbe(offeringId: string, now: number, budgetMs: number): boolean {
    const cell = this.rested.has(offeringId) ? this.cells.get(offeringId) : undefined;
    if (!cell || cell.probing) return false;
    if (cell.breaker.state === "half_open" && restsUntil(cell.breaker) > now) return false;
    cell.probing = true;
    cell.probedAt = now;
    this.move(offeringId, cell, { kind: "probing", at: now, budgetMs });
    return true;
  }

  /** Ends the health check. It counts for the breaker, and for no figure. */
  endProbe(offeringId: string, verdict: Verdict, now: number): void {
    const cell = this.cells.get(offeringId);
    if (!cell?.probing) return;
    cell.probing = false;
    const kind = cell.disproved && verdict === "succeeded" ? "released" : verdict;
    if (verdict === "failed") cell.disproved = false;
    this.move(offeringId, cell, { kind, at: now, own: true });
  }

  /** The status of every offering. */
  *figures(now: number): IterableIterator<OfferingHealth> {
    this.catchUp();
    const { offerings, order } = this.view_.snapshot;
    for (const row of order) yield figuresOf(offerings[row]!, this.cells.get(offerings[row]!.id), now);
  }

  /** The status of one offering; undefined if the newest snapshot does not contain it. */
  figureOf(offeringId: string, now: number): OfferingHealth | undefined {
    this.catchUp();
    const row = this.rowOf(offeringId);
    return row < 0 ? undefined : figuresOf(this.view_.snapshot.offerings[row]!, this.cells.get(offeringId), now);
  }

  private rowOf(offeringId: string): number {
    return this.view_.snapshot.rowOf(offeringId);
  }

  private cellOf(offeringId: string): Cell | undefined {
    const known = this.cells.get(offeringId);
    if (known) return known;
    if (this.rowOf(offeringId) < 0) return undefined;
    const cell = new Cell(offeringId);
    this.cells.set(offeringId, cell);
    return cell;
  }

  /** `follows`: waiting calls are notified too. */
  private move(offeringId: string, cell: Cell, event: BreakerEvent, follows = true): void {
    const { state: before, trialUntil } = cell.breaker;
    cell.breaker = reduce(cell.breaker, event, this.random);
    if (follows) cell.doubts?.follow(event, cell.breaker, this.random);
    if (before === "closed")
      cell.disproved = cell.breaker.state === "open" && event.kind === "failed" && event.at < trialUntil;
    const row = this.rowOf(offeringId);
    if (row < 0) return;
    this.view_.restsUntil[row] = restsUntil(cell.breaker);
    const after = cell.breaker.state;
    if (after === "open" || after === "half_open") this.rested.add(offeringId);
    else this.rested.delete(offeringId);
    this.changed?.add(offeringId);
    if (before === "closed" && after === "open") this.onCircuit(this.view_.snapshot.offerings[row]!, "opened");
    else if ((before === "open" || before === "half_open") && after === "closed" && event.kind !== "forced")
      this.onCircuit(this.view_.snapshot.offerings[row]!, "closed");
  }

  /** Processes the queued reports in order; breakers are updated, and figures are written once per offering. */
  private catchUp(): void {
    const { cells, reports } = this.waiting;
    if (cells.length === 0) return;
    this.waiting = { cells: [], reports: [] };
    for (let i = 0; i < cells.length; i++) {
      const cell = cells[i]!;
      const report = reports[i]!;
      cell.succeeded(report);
      cell.unjudged += 1;
      cell.unjudgedAt = report.at;
    }
    for (const cell of cells) {
      const { offeringId, unjudged, unjudgedAt } = cell;
      if (unjudged === 0) continue;
      cell.unjudged = 0;
      this.move(offeringId, cell, { kind: "succeeded", at: unjudgedAt, calls: unjudged });
      this.written(offeringId, cell, unjudgedAt);
    }
  }

  /** Calls of an offering were processed. */
  private written(offeringId: string, cell: Cell, now: number): void {
    this.write(offeringId, cell, now);
    if (this.view_.snapshot.offerings[this.rowOf(offeringId)]?.simulated === false)
      for (const changed of this.watchers) changed.add(offeringId);
  }

  private write(offeringId: string, cell: Cell, now: number): void {
    writeCell(this.view_, offeringId, cell, now);
    this.changed?.add(offeringId);
  }
}

function figuresOf(offering: Offering, cell: Cell | undefined, now: number): OfferingHealth {
  const quantile = (q: number): number | undefined => {
    const value = cell?.latency?.quantile(q);
    return value !== undefined && Number.isFinite(value) ? value : undefined;
  };
  return {
    offering,
    breaker: cell?.breaker ?? CLOSED,
    failureRate: cell?.recent.failureRate(now),
    p50Ms: quantile(0.5),
    p95Ms: quantile(0.95),
    p99Ms: quantile(0.99),
    lastFailure: cell?.lastFailure,
    uptime: cell?.uptime,
  };
}

/** One value per snapshot row and figure; the planner reads these. Measured if there are enough samples, else advertised. */
export interface HealthView {
  /** The snapshot that the rows belong to. */
  readonly snapshot: Snapshot;
  /** Median and 95th percentile in milliseconds; Infinity if neither measured nor advertised. */
  readonly p50Ms: Float64Array;
  readonly p95Ms: Float64Array;
  /** Milliseconds of a call that includes a cold start. */
  readonly coldMs: Float64Array;
  /** Units per second; 0 if unknown. */
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
function writeCell(view: HealthView, id: string, cell: Cell, now: number): void {
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
function writeAdvertised(view: HealthView, row: number): void {
  const { advertised } = view.snapshot.columns;
  for (const name of Object.keys(advertised) as (keyof typeof advertised)[]) view[name][row] = advertised[name][row]!;
  view.success[row] = 1;
  view.pace[row] = 1;
  view.usedAt[row] = Number.NEGATIVE_INFINITY;
  view.restsUntil[row] = 0;
}

/** As if nothing had been measured yet. A column is made in one go, and the next one after a breath. */
function* advertisedView(snapshot: Snapshot): Sliced<HealthView> {
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
