/** One offering as it was measured: what its calls add up to. */
import { AttemptFailure } from "../../contracts/failure.ts";
import { type Breaker, blamesProvider, CLOSED } from "./breaker.ts";
import type { Doubted, Doubts } from "./doubts.ts";
import { Pace } from "./pace.ts";
import { bucketOf, Sketch } from "./sketch.ts";
import { type AttemptCounts, Counters, copyOf, newest, since } from "./tally.ts";

/** How a call at an offering ended. `cancelled`: its answer was not wanted any longer. */
export interface Report {
  readonly outcome: "ok" | "cancelled" | AttemptFailure;
  readonly latencyMs: number;
  /** Units of the answer; 0 when there was none. */
  readonly units: number;
  /** It had to be woken first. */
  readonly cold: boolean;
  readonly at: number;
  /** It was the gateway that found the input wanting, and not the offering. */
  readonly lacked?: boolean | undefined;
}

/** A call that waits for the answer of an offering. */
export interface CallWatcher {
  /** Where it stands among those that wait; for the cell alone. */
  place: number;
  /** The offering has been silent for long: goes on to another step of the plan where there is one. */
  forsake(): void;
}

/** Shares of calls that succeeded while the breaker let them, over three windows, as all replicas rolled them up. */
export interface Uptime {
  readonly last5m: number | undefined;
  readonly last1d: number | undefined;
  readonly last30d: number;
  /** Calls of the 30 days: below `ENOUGH_CALLS` the advertised figure stands. */
  readonly calls: number;
  /** Hours since the first of these calls; 0 where that is not known. */
  readonly hours?: number;
}

/** The report of another replica on an offering. */
export interface Hearsay {
  readonly tally: AttemptCounts;
  /** Failures in a row that it has seen. */
  readonly consecutive: number;
  /** How long ago it last used the offering, in milliseconds. */
  readonly idleMs: number;
  readonly coldMs: number | undefined;
  readonly unitsPerS: number | undefined;
  /** Failures that wait for one of another organisation. */
  readonly doubted?: readonly Doubted[];
}

/** What a call says of its provider. `released`: nothing. */
export type Verdict = "succeeded" | "failed" | "released";

/** What a failure of a caller's says: `doubted` where its input may have caused it. */
export type CallVerdict = Verdict | "doubted";

/** Below this many samples (five fresh ones, a little faded) the advertised figures stand. */
const ENOUGH_SAMPLES = 4;
/** Below this many calls in 30 days the advertised uptime stands. */
const ENOUGH_CALLS = 20;
/** Before so many hours `min_uptime_30d` goes by the advertised uptime: a bad minute is no measure of a month. */
const ENOUGH_HOURS = 7 * 24;
/** What counts as usual where nothing is known: a caller's tiny deadlines must not open a breaker for everyone. */
const USUAL_MS = 1000;
/** An offering that was given this many times its usual time, and has not answered, is at fault; below that it may be what it was asked. */
const AMPLE = 4;
/** Of replicas that come and go the last so many are remembered. */
const MOST_REPLICAS = 16;
/** How much one call moves a running average. */
const NEWEST_SHARE = 0.1;

/** The figures of one offering. */
export class Cell {
  readonly offeringId: string;
  breaker: Breaker = CLOSED;
  latency: Sketch | undefined;
  coldMs: number | undefined;
  unitsPerS: number | undefined;
  uptime: Uptime | undefined;
  success = 1;
  /** Calls that were taken in and that the breaker does not know of yet, and when the last of them ended. */
  unjudged = 0;
  unjudgedAt = 0;
  /** When it was last known to be awake. */
  usedAt = Number.NEGATIVE_INFINITY;
  /** Attempts under way, and whether it was awake when the first of them began or has answered since. */
  underWay = 0;
  awake = false;
  /** The attempt that pays for waking it is under way. */
  waking = false;
  /** Whole calls of this replica that wait for an answer, and when the offering last gave one, or began to be waited for. */
  readonly waiting: CallWatcher[] = [];
  heardAt = Number.NEGATIVE_INFINITY;
  /** When the gateway last asked it a question of its own, and whether it still waits for the answer. */
  probedAt = Number.NEGATIVE_INFINITY;
  probing = false;
  /** It failed a call right after it had answered the gateway: what it answers the gateway says nothing, until it fails that too. */
  disproved = false;
  /** When waiting calls last went on without it. */
  forsakenAt = Number.NEGATIVE_INFINITY;
  lastFailure: AttemptFailure | undefined;
  /** Failures that callers' input may have caused; undefined before the first. */
  doubts: Doubts | undefined;
  /** Calls of all replicas, as far as they were reported. */
  readonly recent = new Recent();
  readonly tally = new Counters();
  readonly pace = new Pace();
  /** By replica: its newest report. */
  private heard: Map<string, AttemptCounts> | undefined;

  constructor(offeringId: string) {
    this.offeringId = offeringId;
  }

  /**
   * Takes a call in and judges it; `usualMs` is the 95th percentile as it was known, Infinity when it was not. `mayBeInput`: the failure is of a
   * kind that its caller's input can cause.
   */
  note(report: Report, usualMs: number, mayBeInput = false): CallVerdict {
    // An attempt without an answer does not show that it was woken.
    if (this.awake) this.usedAt = Math.max(this.usedAt, report.at);
    const verdict = verdictOf(report, usualMs, mayBeInput);
    if (verdict === "released" || verdict === "doubted") {
      // A call that was given up took at least this long. Where that is more than usual it counts: without it, a slow loser
      // of hedges would never look slow. Where it is less it does not, or callers in a hurry would make it look fast.
      if (report.latencyMs > usualMs) this.addLatency(report);
      return verdict;
    }
    if (verdict === "succeeded") {
      this.succeeded(report);
      return verdict;
    }
    this.failed(report.outcome as AttemptFailure, 1, report.at); // the other outcomes have other verdicts
    if (report.outcome === AttemptFailure.TIMEOUT || report.outcome === AttemptFailure.DEADLINE)
      this.addLatency(report);
    return verdict;
  }

  /** Counts failures. */
  failed(failure: AttemptFailure | undefined, count: number, at: number): void {
    this.tally.calls += count;
    this.tally.failures += count;
    this.lastFailure = failure ?? this.lastFailure;
    this.recent.add(count, count, at);
    this.success *= (1 - NEWEST_SHARE) ** count;
  }

  /** Takes in a call that ended well, as nearly all do. */
  succeeded(report: Omit<Report, "outcome">): void {
    const { at, units, latencyMs } = report;
    this.usedAt = Math.max(this.usedAt, at);
    this.awake = true;
    this.waking = false;
    this.tally.calls++;
    this.recent.add(1, 0, at);
    this.success += (1 - this.success) * NEWEST_SHARE;
    this.addLatency(report);
    if (units > 0 && latencyMs > 0) this.unitsPerS = average(this.unitsPerS, (units * 1000) / latencyMs);
  }

  /** Takes in the report of a replica; returns its calls since its last report, in proportion where they are more than can count. */
  hear(replica: string, told: Hearsay, now: number): Pick<AttemptCounts, "calls" | "failures"> {
    this.heard ??= new Map();
    const before = this.heard.get(replica);
    this.heard.delete(replica);
    this.heard.set(replica, before ? newest(before, told.tally) : copyOf(told.tally));
    for (const silent of this.heard.keys()) if (this.heard.size > MOST_REPLICAS) this.heard.delete(silent);
    const news = since(before, told.tally);
    this.sketch.addCounts(news.latency, now);
    this.usedAt = Math.max(this.usedAt, now - told.idleMs);
    this.coldMs ??= told.coldMs;
    this.unitsPerS ??= told.unitsPerS;
    // A first report may be a history of months, of which no more than a handful counts as of now.
    const share = before ? 1 : Math.min(1, MOST_JUDGED / Math.max(1, news.calls));
    const [calls, failures] = [Math.round(news.calls * share), Math.round(news.failures * share)];
    this.recent.add(calls, failures, now);
    for (let i = 0; i < Math.min(calls, MOST_JUDGED); i++) {
      const failed = i < (failures / calls) * Math.min(calls, MOST_JUDGED);
      this.success += ((failed ? 0 : 1) - this.success) * NEWEST_SHARE;
    }
    return { calls, failures };
  }

  /** Takes in what was rolled up before this replica began. */
  recall(latency: ArrayLike<number>, usedAt: number): void {
    this.sketch.addCounts(latency, usedAt);
    this.usedAt = Math.max(this.usedAt, usedAt);
  }

  /** Whether a call finds it awake that has to wake it after `warmMs` of idleness: what it answers at the moment keeps it awake. */
  isWarm(now: number, warmMs: number): boolean {
    return now - this.usedAt <= warmMs || (this.awake && this.underWay > 0);
  }

  /** Since when it is idle; Infinity while it is not. */
  get idleSince(): number {
    return this.awake && this.underWay > 0 ? Number.POSITIVE_INFINITY : this.usedAt;
  }

  /** Whether there are enough samples for measured figures to stand above advertised ones. */
  isMeasured(now: number): this is { latency: Sketch } {
    return this.latency !== undefined && this.latency.samples(now) >= ENOUGH_SAMPLES;
  }

  /** Whether there ever was a sample. */
  hasMeasured(): this is { latency: Sketch } {
    return this.latency !== undefined && Number.isFinite(this.latency.quantile(0.5));
  }

  /** The uptime of 30 days once there are enough calls. */
  get uptime30d(): number | undefined {
    return this.uptime && this.uptime.calls >= ENOUGH_CALLS ? this.uptime.last30d : undefined;
  }

  /** The same once it was measured for long enough to be judged by. */
  get judgedUptime(): number | undefined {
    return (this.uptime?.hours ?? 0) >= ENOUGH_HOURS ? this.uptime30d : undefined;
  }

  private get sketch(): Sketch {
    this.latency ??= new Sketch();
    return this.latency;
  }

  private addLatency({ cold, latencyMs, at }: Omit<Report, "outcome">): void {
    if (cold) {
      this.coldMs = average(this.coldMs, latencyMs);
      return;
    }
    const bucket = bucketOf(latencyMs);
    this.tally.latency[bucket]!++;
    this.sketch.add(latencyMs, at, bucket);
    this.pace.add(latencyMs, at);
  }
}

/** More calls than this leave nothing of what the share of successes was before. */
const MOST_JUDGED = 50;

function verdictOf({ outcome, latencyMs, lacked }: Report, usualMs: number, mayBeInput: boolean): CallVerdict {
  if (outcome === "ok") return "succeeded";
  if (outcome === "cancelled" || lacked) return "released";
  if (outcome === AttemptFailure.DEADLINE) {
    // The caller's own deadline says nothing of a provider that was not given its usual time.
    const usual = Number.isFinite(usualMs) ? usualMs : USUAL_MS;
    if (latencyMs < usual) return "released";
    return mayBeInput && latencyMs < AMPLE * usual ? "doubted" : "failed";
  }
  if (mayBeInput) return "doubted";
  return blamesProvider(outcome) ? "failed" : "released";
}

const average = (old: number | undefined, newest: number): number =>
  old === undefined ? newest : old + (newest - old) * NEWEST_SHARE;

const MINUTE_MS = 60_000;
const MINUTES = 5;

/** Calls and failures of the last five minutes, minute by minute, in a window that slides with one clock. */
class Recent {
  private readonly minutes = new Float64Array(MINUTES).fill(Number.NEGATIVE_INFINITY);
  private readonly calls = new Uint32Array(MINUTES);
  private readonly failures = new Uint32Array(MINUTES);

  /** Adds calls that ended at `at`, in milliseconds. */
  add(calls: number, failures: number, at: number): void {
    const minute = Math.floor(at / MINUTE_MS);
    const slot = ((minute % MINUTES) + MINUTES) % MINUTES;
    if (this.minutes[slot] !== minute) {
      this.minutes[slot] = minute;
      this.calls[slot] = 0;
      this.failures[slot] = 0;
    }
    this.calls[slot]! += calls;
    this.failures[slot]! += failures;
  }

  /** The share that failed; undefined when there were no calls. */
  failureRate(now: number): number | undefined {
    const oldest = Math.floor(now / MINUTE_MS) - MINUTES;
    let [calls, failures] = [0, 0];
    for (let slot = 0; slot < MINUTES; slot++) {
      if (this.minutes[slot]! <= oldest) continue;
      calls += this.calls[slot]!;
      failures += this.failures[slot]!;
    }
    return calls === 0 ? undefined : failures / calls;
  }
}
