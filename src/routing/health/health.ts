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

/** What can be said of one offering, for `GET /v1/status`. */
export interface OfferingHealth {
  readonly offering: Offering;
  readonly breaker: Breaker;
  /** Share of the calls of the last five minutes that it failed; undefined when there were none. */
  readonly failureRate: number | undefined;
  readonly p50Ms: number | undefined;
  readonly p95Ms: number | undefined;
  readonly p99Ms: number | undefined;
  /** The last failure that counted against it. */
  readonly lastFailure: AttemptFailure | undefined;
  /** As all replicas rolled it up; undefined before there is anything. */
  readonly uptime: Uptime | undefined;
}

/** Hears that the breaker of an offering opened or closed by what its calls came to. */
type CircuitListener = (offering: Offering, state: "opened" | "closed") => void;

/** Hears that callers find nothing but an offering that rests: it is worth a question before its time. */
type WantedListener = (offering: Offering) => void;

/** Hears that an offering fails calls of one organization that its input may have caused: a question of known-good input is to decide. */
type DoubtListener = (offering: Offering) => void;

/** Whether the input of its caller can cause a failure of this kind at an offering. */
type MayBeInput = (offeringId: string, failure: AttemptFailure) => boolean;

/**
 * Hears what goes wrong at an offering, for its owner: an attempt that failed or a hold of a robot (`count` is 1), or what was said of a
 * failure that is counted by itself (`count` is 0).
 */
export type TroubleListener = (
  offeringId: string,
  trouble: { kind: AttemptFailure | "hold"; count: 0 | 1; said?: string },
) => void;

/** An operator's hand on a breaker; `closed` gives it back to itself. */
export type ForcedState = "forced_open" | "forced_closed" | "closed";

/** Calls that wait at a silent offering; further ones go to another offering. */
const MOST_SILENT = 4;
/** An offering is silent after `SILENT_MS`, and after `SILENT_TIMES` its usual time, which is `USUAL_MS` where it was not measured. */
const SILENT_MS = 250;
const SILENT_TIMES = 4;
const USUAL_MS = 250;
/** Milliseconds between two questions of the gateway to an offering that rests; and where the last one said nothing. */
const PROBE_MS = 1_000;
const UNSURE_MS = 10_000;
/** Milliseconds between two times that waiting calls go on without a silent offering, and calls that do so in one turn of the event loop. */
const FORSAKE_MS = 100;
const FORSAKEN_A_TURN = 32;

/** Reports that wait; one more has all of them taken in. */
const MOST_WAITING = 128;

/** The health of all offerings as one replica knows it. It outlives snapshots: figures follow an offering's id. */
export class HealthTracker {
  /** Told of every breaker that opens or closes. */
  onCircuit: CircuitListener = () => {};
  /** Told of offerings that `want` names, once a second each. */
  onWanted: WantedListener = () => {};
  /** Told of offerings that are to be asked, because failures count by the answer alone. One of `endDoubt` follows a `beginDoubt`. */
  onDoubted: DoubtListener = () => {};
  /** Asked of failures whose caller is known. */
  mayBeInput: MayBeInput = () => false;
  /** Told of what goes wrong, placeholders apart. */
  onTrouble: TroubleListener = () => {};
  private readonly random: () => number;
  /** Of the offerings that anything is known of beyond what they advertise. */
  private readonly cells = new Map<string, Cell>();
  private readonly watchers = new Set<Set<string>>();
  /** Offerings whose breakers keep calls away after failures. */
  private readonly rested = new Set<string>();
  private readonly kept = new Set<string>();
  /** What changed while a new view is made. */
  private changed: Set<string> | undefined;
  /** Calls that ended well and are not taken in yet: many at once cost less, and no reader sees the difference. */
  private waiting: { readonly cells: Cell[]; readonly reports: Report[] } = { cells: [], reports: [] };
  private view_: HealthView;

  /** `random` gives numbers in [0, 1) for the jitter of cooldowns. */
  constructor(snapshot: Snapshot, random: () => number) {
    this.random = random;
    this.view_ = atOnce(advertisedView(snapshot));
  }

  /** The figures, indexed as the newest snapshot is. Reports are taken in before they are read. */
  get view(): HealthView {
    this.catchUp();
    return this.view_;
  }

  /** What plans are made from. */
  get snapshot(): Snapshot {
    return this.view_.snapshot;
  }

  /** Takes over to a new snapshot: what is known of an offering stays, what is gone is forgotten. */
  adopt(snapshot: Snapshot, now: number): HealthView {
    return atOnce(this.adopting(snapshot, now));
  }

  /** The same as sliced work; the view changes in its last slice. */
  *adopting(snapshot: Snapshot, now: number): Sliced<HealthView> {
    this.catchUp();
    const before = this.view_;
    if (snapshot === before.snapshot) return before;
    // What changes while this is put down is written once more at the end.
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

  /** The view of a snapshot with rows of its own. */
  private *beginning(snapshot: Snapshot, now: number): Sliced<HealthView> {
    const view = yield* advertisedView(snapshot);
    let count = 0;
    for (const [id, cell] of this.cells) {
      writeCell(view, id, cell, now);
      if (++count % 16 === 0) yield;
    }
    return view;
  }

  /** The view of a snapshot that was patched: where another offering lies than before, or where it says something else of itself, it is written anew. */
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
   * Asks to send one call. False when the breaker rests, or when its one probe is under way; `force` asks an open
   * breaker all the same. True notes the use, and the probe where this is one.
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
   * Whether the call that was just admitted is the one that wakes an offering: it sleeps, and no other call of this replica wakes it.
   * True for one call, until `sleepsOn` or an answer.
   */
  wakes(offeringId: string, now: number): boolean {
    const cell = this.cells.get(offeringId);
    if (!cell || cell.waking || this.isWarm(cell, this.rowOf(offeringId), now)) return false;
    cell.waking = true;
    return true;
  }

  /** Offerings that calls of this replica keep awake at the moment, of those that are scaled to zero when idle. */
  get keptAwake(): ReadonlySet<string> {
    return this.kept;
  }

  /** The call that would have woken it ended without an answer: the next one wakes it. */
  sleepsOn(offeringId: string): void {
    const cell = this.cells.get(offeringId);
    if (cell) cell.waking = false;
  }

  /** Answers that are not taken in yet may have kept it awake. */
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

  /** A call waits for a whole answer. */
  begun(offeringId: string, at: number, waiter: CallWatcher): void {
    const cell = this.cellOf(offeringId);
    if (!cell) return;
    if (cell.waiting.length === 0) cell.heardAt = at;
    waiter.place = cell.waiting.push(waiter) - 1;
  }

  /** The call waits no longer; `heard` where the offering answered something. */
  ended(offeringId: string, at: number, heard: boolean, waiter: CallWatcher): void {
    const cell = this.cells.get(offeringId);
    if (!cell) return;
    if (heard) cell.heardAt = at;
    const { waiting } = cell;
    // The cell of an offering that was gone for a while does not know the calls that waited before.
    if (waiting[waiter.place] !== waiter) return;
    const last = waiting.pop()!;
    if (last === waiter) return;
    waiting[waiter.place] = last;
    last.place = waiter.place;
  }

  /**
   * Whether calls wait at an offering that has been silent for far longer than usual. Its breaker learns of it when the first of them
   * runs out of time, which may be seconds from now; until then others pass it over, where another offering can serve.
   */
  isSilent(offeringId: string, now: number): boolean {
    const cell = this.cells.get(offeringId);
    if (!cell || cell.waiting.length < MOST_SILENT) return false;
    const usualMs = this.view_.p95Ms[this.rowOf(offeringId)]!;
    return now - cell.heardAt > Math.max(SILENT_MS, SILENT_TIMES * (Number.isFinite(usualMs) ? usualMs : USUAL_MS));
  }

  /** Has calls that wait at a silent offering go on without it: a few at a time, since each begins another attempt. */
  forsake(offeringId: string, now: number): void {
    const cell = this.cells.get(offeringId);
    if (!cell || now - cell.forsakenAt < FORSAKE_MS) return;
    cell.forsakenAt = now;
    const { heardAt } = cell;
    const waiting = cell.waiting.slice();
    const ask = (): void => {
      if (cell.heardAt !== heardAt) return;
      for (const waiter of waiting.splice(0, FORSAKEN_A_TURN)) waiter.forsake();
      if (waiting.length > 0) setImmediate(ask);
    };
    setImmediate(ask);
  }

  /**
   * Notes how a call of an organization ended. Reports on offerings that are gone are dropped. Where nobody says whose call it was, what its
   * input may have caused counts like everything else.
   */
  report(offeringId: string, report: Report, orgId?: string): void {
    const cell = this.cellOf(offeringId);
    if (!cell) return;
    // The cell of an offering that was gone for a while does not know the calls that were under way before.
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
    // Before the breaker moves: the calls that wait may be all that is known then.
    if ((verdict === "failed" || verdict === "doubted") && this.isSilent(offeringId, at)) this.forsake(offeringId, at);
    if (verdict === "doubted") this.doubt(offeringId, cell, report, orgId ?? "");
    else this.move(offeringId, cell, { kind: verdict, at });
    this.written(offeringId, cell, at);
  }

  private isDoubtful(offeringId: string, failure: AttemptFailure): boolean {
    return failure === AttemptFailure.DEADLINE || this.mayBeInput(offeringId, failure);
  }

  /** A failure that its caller's input may have caused. */
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

  /** The question that `onDoubted` asked for begins; false where it may not. */
  beginDoubt(offeringId: string, now: number): boolean {
    const doubts = this.cells.get(offeringId)?.doubts;
    if (!doubts?.mayAsk(now)) return false;
    doubts.ask();
    return true;
  }

  /** What came of it: where known-good input fails too, the failures that wait count, and the breaker opens. */
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

  /** A robot held, because this offering's answer was missing or late. */
  held(offeringId: string): void {
    this.trouble(offeringId, "hold", 1);
  }

  /** What was said of a failure: by its server, or by the gateway of what the server did. */
  said(offeringId: string, failure: AttemptFailure, said: string): void {
    this.trouble(offeringId, failure, 0, said);
  }

  private trouble(offeringId: string, kind: AttemptFailure | "hold", count: 0 | 1, said?: string): void {
    const offering = this.view_.snapshot.offerings[this.rowOf(offeringId)];
    if (offering?.simulated === false) this.onTrouble(offeringId, { kind, count, ...(said !== undefined && { said }) });
  }

  /** Takes in the report of another replica. Its failures never open a breaker here: fewer own failures do then. */
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

  /** The report of this replica on an offering; undefined where it has no measurements. */
  tell(offeringId: string, now: number): Hearsay | undefined {
    this.catchUp();
    const cell = this.cells.get(offeringId);
    if (!cell) return undefined;
    const { tally, breaker, idleSince, coldMs, unitsPerS } = cell;
    const idleMs = Math.max(0, now - idleSince);
    const doubted = cell.doubts?.tell(now) ?? [];
    return { tally, consecutive: breaker.consecutive, idleMs, coldMs, unitsPerS, doubted };
  }

  /** Takes in what was measured before this replica began: latencies by bucket, and when the last call was. */
  recall(offeringId: string, latency: ArrayLike<number>, usedAt: number, now: number): void {
    const cell = this.cellOf(offeringId);
    if (!cell) return;
    cell.recall(latency, usedAt);
    this.write(offeringId, cell, now);
  }

  /** Sets the uptime of an offering, as the store rolled it up. */
  setUptime(offeringId: string, uptime: Uptime | undefined, now: number): void {
    const cell = this.cellOf(offeringId);
    if (!cell) return;
    cell.uptime = uptime;
    this.write(offeringId, cell, now);
  }

  /** An operator's hand on a breaker; one that is there already changes nothing. */
  force(offeringId: string, state: ForcedState, now: number): void {
    this.catchUp();
    const cell = this.cellOf(offeringId);
    const isForced = cell?.breaker.state === "forced_open" || cell?.breaker.state === "forced_closed";
    if (!cell || cell.breaker.state === state || (state === "closed" && !isForced)) return;
    this.move(offeringId, cell, { kind: "forced", at: now, state });
  }

  /** Lets figures without new calls fade, so that an offering that was slow once is tried again. Due every few seconds. */
  *age(now: number): Sliced<void> {
    this.catchUp();
    let count = 0;
    for (const [id, cell] of this.cells) {
      if (cell.latency) this.write(id, cell, now);
      if (++count % 16 === 0) yield;
    }
  }

  /** Gathers the offerings that calls are reported of: each look answers those since the one before, placeholders apart. */
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

  /** Offerings whose breakers keep calls away after failures. */
  resting(): IterableIterator<string> {
    return this.rested.values();
  }

  /** Callers could be served by this offering alone, and it rests. One that acts is asked a question then; others are not asked before their time. */
  want(offeringId: string, now: number): void {
    const cell = this.rested.has(offeringId) ? this.cells.get(offeringId) : undefined;
    if (!cell || cell.probing || now - cell.probedAt < PROBE_MS) return;
    const offering = this.view_.snapshot.offerings[this.rowOf(offeringId)];
    if (offering?.contracts.includes(Contract.ACT)) this.onWanted(offering);
  }

  /** The same of all offerings of a model. */
  wantModel(model: string, now: number): void {
    const { offerings } = this.view_.snapshot;
    for (const id of this.rested) if (offerings[this.rowOf(id)]?.model === model) this.want(id, now);
  }

  /** Offerings whose rest is over, and that nobody has asked since. */
  *due(now: number): IterableIterator<Offering> {
    for (const id of this.rested) {
      const cell = this.cells.get(id);
      const offering = this.view_.snapshot.offerings[this.rowOf(id)];
      if (!cell || !offering || cell.probing || restsUntil(cell.breaker) > now) continue;
      if (now - cell.probedAt >= (cell.breaker.state === "open" ? PROBE_MS : UNSURE_MS)) yield offering;
    }
  }

  /** A question of the gateway itself begins, before the rest is over perhaps; false where it may not. One of `endProbe` follows. */
  beginProbe(offeringId: string, now: number, budgetMs: number): boolean {
    const cell = this.rested.has(offeringId) ? this.cells.get(offeringId) : undefined;
    if (!cell || cell.probing) return false;
    if (cell.breaker.state === "half_open" && restsUntil(cell.breaker) > now) return false;
    cell.probing = true;
    cell.probedAt = now;
    this.move(offeringId, cell, { kind: "probing", at: now, budgetMs });
    return true;
  }

  /** What came of it. It counts for the breaker, and for no figure. */
  endProbe(offeringId: string, verdict: Verdict, now: number): void {
    const cell = this.cells.get(offeringId);
    if (!cell?.probing) return;
    cell.probing = false;
    const kind = cell.disproved && verdict === "succeeded" ? "released" : verdict;
    if (verdict === "failed") cell.disproved = false;
    this.move(offeringId, cell, { kind, at: now, own: true });
  }

  /** What is known of every offering. */
  *figures(now: number): IterableIterator<OfferingHealth> {
    this.catchUp();
    const { offerings, order } = this.view_.snapshot;
    for (const row of order) yield figuresOf(offerings[row]!, this.cells.get(offerings[row]!.id), now);
  }

  /** What is known of one offering; undefined when the newest snapshot has none of this id. */
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

  /** `follows`: what waits hears of it too. */
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

  /** Takes in the reports that wait, in order; breakers are stepped, and figures are written once for each offering. */
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

  /** Calls of an offering were taken in. */
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
