/** The measurements of one offering: counts, latencies, pace, breaker and suspected failures. */
import { AttemptFailure } from "../../contracts/contract.ts";
import { type Breaker, type BreakerEvent, blamesProvider, CLOSED, reduce } from "./breaker.ts";

/** How a call at an offering ended. `cancelled`: its response was no longer needed. */
export interface Report {
  readonly outcome: "ok" | "cancelled" | AttemptFailure;
  readonly latencyMs: number;
  /** Units of the response; 0 if there was none. */
  readonly units: number;
  /** Whether it included a cold start. */
  readonly cold: boolean;
  readonly at: number;
  /** Whether the gateway, not the offering, rejected the input. */
  readonly lacked?: boolean | undefined;
}

/** A call that waits for an offering's response. */
export interface CallWatcher {
  /** Its position among the waiting calls; used only by the cell. */
  place: number;
  /** Called if the offering has been silent for long: continues with another step of the plan if there is one. */
  abandon(): void;
}

/** Shares of successful calls while the breaker admitted calls, over three windows, rolled up from all replicas. */
export interface Uptime {
  readonly last5m: number | undefined;
  readonly last1d: number | undefined;
  readonly last30d: number;
  /** Calls of the 30 days: below `ENOUGH_CALLS` the advertised figure applies. */
  readonly calls: number;
  /** Hours since the first of these calls; 0 if unknown. */
  readonly hours?: number;
}

/** Another replica's report on an offering. */
export interface Hearsay {
  readonly tally: AttemptCounts;
  /** Consecutive failures that it has seen. */
  readonly consecutive: number;
  /** Milliseconds since it last used the offering. */
  readonly idleMs: number;
  readonly coldMs: number | undefined;
  readonly unitsPerS: number | undefined;
  /** Failures that await confirmation by another organization. */
  readonly doubted?: readonly Doubted[];
}

/** The verdict of a call on its provider. `released`: none. */
export type Verdict = "succeeded" | "failed" | "released";

/** The verdict of a caller's failure: `doubted` if its input may have caused it. */
type CallVerdict = Verdict | "doubted";

/** Below this number of samples (five fresh ones, slightly faded) the advertised figures apply. */
const ENOUGH_SAMPLES = 4;
/** Below this number of calls in 30 days the advertised uptime applies. */
const ENOUGH_CALLS = 20;
/** Before this many hours `min_uptime_30d` uses the advertised uptime: a bad minute does not measure a month. */
const ENOUGH_HOURS = 7 * 24;
/** The usual latency if none is known: a caller's tiny deadlines must not open a breaker for all callers. */
const USUAL_MS = 1000;
/** An offering that did not respond within this multiple of its usual latency is at fault; below that, the request may be the cause. */
const AMPLE = 4;
/** Maximum number of replicas whose reports are kept. */
const MOST_REPLICAS = 16;
/** Weight of one call in a moving average. */
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
  /** Calls counted here that the breaker has not processed yet, and the end of the last one. */
  unjudged = 0;
  unjudgedAt = 0;
  /** When it was last known to be warm. */
  usedAt = Number.NEGATIVE_INFINITY;
  /** Running attempts, and whether it was warm when the first of them started or has responded since. */
  underWay = 0;
  awake = false;
  /** The attempt that pays for the cold start is running. */
  waking = false;
  /** Unary calls of this replica that wait for a response, and when the offering last sent one, or the first of them began to wait. */
  readonly waiting: CallWatcher[] = [];
  heardAt = Number.NEGATIVE_INFINITY;
  /** When the gateway last sent it a health check, and whether that is still running. */
  probedAt = Number.NEGATIVE_INFINITY;
  probing = false;
  /** It failed a call right after passing a health check: passing proves nothing until it fails a health check too. */
  disproved = false;
  /** When waiting calls last left it. */
  abandonedAt = Number.NEGATIVE_INFINITY;
  lastFailure: AttemptFailure | undefined;
  /** Suspected failures; undefined before the first. */
  doubts: SuspectedFailures | undefined;
  /** Calls of all replicas, as reported. */
  readonly recent = new Recent();
  readonly tally = new Counters();
  readonly pace = new Pace();
  /** By replica: its newest report. */
  private heard: Map<string, AttemptCounts> | undefined;

  constructor(offeringId: string) {
    this.offeringId = offeringId;
  }

  /**
   * Counts a call and returns its verdict. `usualMs` is the known 95th percentile, Infinity if unknown. `mayBeInput`: the caller's input
   * can cause this kind of failure.
   */
  note(report: Report, usualMs: number, mayBeInput = false): CallVerdict {
    // An attempt without a response does not show that it was started.
    if (this.awake) this.usedAt = Math.max(this.usedAt, report.at);
    const verdict = verdictOf(report, usualMs, mayBeInput);
    if (verdict === "released" || verdict === "doubted") {
      // A canceled call took at least this long. If that is more than usual it counts: otherwise a slow loser of hedges would never look
      // slow. If it is less it does not count: otherwise impatient callers would make it look fast.
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

  /** Counts a successful call, the most frequent case. */
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

  /** Merges a replica's report and returns its calls since the last report, scaled down if they are more than can count. */
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
    // A first report may cover months, of which only a few calls count as of now.
    const share = before ? 1 : Math.min(1, MOST_JUDGED / Math.max(1, news.calls));
    const [calls, failures] = [Math.round(news.calls * share), Math.round(news.failures * share)];
    this.recent.add(calls, failures, now);
    for (let i = 0; i < Math.min(calls, MOST_JUDGED); i++) {
      const failed = i < (failures / calls) * Math.min(calls, MOST_JUDGED);
      this.success += ((failed ? 0 : 1) - this.success) * NEWEST_SHARE;
    }
    return { calls, failures };
  }

  /** Merges what was rolled up before this replica started. */
  recall(latency: ArrayLike<number>, usedAt: number): void {
    this.sketch.addCounts(latency, usedAt);
    this.usedAt = Math.max(this.usedAt, usedAt);
  }

  /** Whether a call finds it warm, if it scales to zero after `warmMs` of idleness. Running responses keep it warm. */
  isWarm(now: number, warmMs: number): boolean {
    return now - this.usedAt <= warmMs || (this.awake && this.underWay > 0);
  }

  /** Since when it is idle; Infinity if it is not. */
  get idleSince(): number {
    return this.awake && this.underWay > 0 ? Number.POSITIVE_INFINITY : this.usedAt;
  }

  /** Whether there are enough samples to use measured figures instead of advertised ones. */
  isMeasured(now: number): this is { latency: Sketch } {
    return this.latency !== undefined && this.latency.samples(now) >= ENOUGH_SAMPLES;
  }

  /** Whether there has been any sample. */
  hasMeasured(): this is { latency: Sketch } {
    return this.latency !== undefined && Number.isFinite(this.latency.quantile(0.5));
  }

  /** The 30-day uptime once there are enough calls. */
  get uptime30d(): number | undefined {
    return this.uptime && this.uptime.calls >= ENOUGH_CALLS ? this.uptime.last30d : undefined;
  }

  /** The same once it was measured for long enough to decide by it. */
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

/** More calls than this replace the former success rate completely. */
const MOST_JUDGED = 50;

function verdictOf({ outcome, latencyMs, lacked }: Report, usualMs: number, mayBeInput: boolean): CallVerdict {
  if (outcome === "ok") return "succeeded";
  if (outcome === "cancelled" || lacked) return "released";
  if (outcome === AttemptFailure.DEADLINE) {
    // The caller's own deadline proves nothing about a provider that did not have its usual time.
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

/** Calls and failures of the last five minutes, by minute, in a sliding window. */
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

  /** The share of failed calls; undefined if there were none. */
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

/** How long a failure awaits confirmation. */
const WAIT_MS = 30_000;
/** Maximum number of organizations with pending failures, and of those at other replicas; the oldest is dropped. */
const MOST_CALLERS = 8;
const MOST_HEARD = 32;
/** Milliseconds between two health checks of one offering, and after one that passed. */
const ASK_MS = 1_000;
const ASK_AGAIN_MS = 5_000;

/** Pending failures of one organization: the hash of its id at other replicas, and their number. */
interface Doubted {
  readonly caller: number;
  readonly count: number;
}

interface Waiting {
  count: number;
  at: number;
}

/** Failures of one offering that await confirmation by another organization. */
export class SuspectedFailures {
  /** By organization; the newest last. */
  readonly #waiting = new Map<string, Waiting>();
  /** Of other replicas, by organization hash; the number of those already counted here. */
  readonly #heard = new Map<number, Waiting & { used: number }>();
  /** The breaker as it would be if all of them counted; undefined if that makes no difference. */
  #supposed: Breaker | undefined;
  #asking = false;
  #askAfter = Number.NEGATIVE_INFINITY;

  /**
   * Adds a failure of an organization and returns how many failures count because of it: two with one pending here, one with one pending at
   * another replica, none if it becomes pending itself.
   */
  add(orgId: string, breaker: Breaker, at: number, random: () => number): 0 | 1 | 2 {
    this.#forget(at);
    this.#supposed = reduce(this.#supposed ?? breaker, { kind: "failed", at }, random);
    for (const [other, waiting] of this.#waiting) {
      if (other === orgId) continue;
      waiting.count -= 1;
      if (waiting.count === 0) this.#waiting.delete(other);
      return 2;
    }
    const own = tagOf(orgId);
    for (const [tag, heard] of this.#heard) {
      if (tag === own || heard.used >= heard.count) continue;
      heard.used += 1;
      return 1;
    }
    const count = (this.#waiting.get(orgId)?.count ?? 0) + 1;
    this.#waiting.delete(orgId);
    this.#waiting.set(orgId, { count, at });
    for (const oldest of this.#waiting.keys()) if (this.#waiting.size > MOST_CALLERS) this.#waiting.delete(oldest);
    return 0;
  }

  /** Other events of the breaker. A successful call proves that the offering works, and clears the pending failures. */
  follow(event: BreakerEvent, after: Breaker, random: () => number): void {
    const supposed = this.#supposed;
    if (!supposed) return;
    const serves = event.kind === "succeeded" && supposed.state !== "closed";
    this.#supposed = after.state !== "closed" || serves ? undefined : reduce(supposed, event, random);
  }

  /** Whether the breaker would be open if all counted, so that a health check is due. */
  isAskDue(now: number): boolean {
    return this.#supposed?.state === "open" && this.mayAsk(now);
  }

  /** Whether the last health check has ended, and long enough ago. */
  mayAsk(now: number): boolean {
    return !this.#asking && now >= this.#askAfter;
  }

  /** A health check starts. */
  ask(): void {
    this.#asking = true;
  }

  /**
   * Ends the health check. Returns the number of failures that count because of it; undefined if it changes nothing: it gave no verdict, or
   * a call has succeeded meanwhile.
   */
  answered(verdict: "succeeded" | "failed" | "released", now: number): number | undefined {
    this.#asking = false;
    this.#askAfter = now + (verdict === "succeeded" ? ASK_AGAIN_MS : ASK_MS);
    const supposed = this.#supposed;
    if (verdict === "released") return undefined;
    this.#supposed = undefined;
    this.#forget(now);
    let count = 0;
    for (const waiting of this.#waiting.values()) count += waiting.count;
    // Failures of one caller's own requests still await another caller's: the health check may have been easier than both.
    if (verdict === "succeeded") return undefined;
    this.#waiting.clear();
    return supposed?.state === "open" ? count : undefined;
  }

  /** Stores another replica's pending failures. */
  hear(told: readonly Doubted[], at: number): void {
    for (const { caller, count } of told) {
      const before = this.#heard.get(caller);
      this.#heard.delete(caller);
      this.#heard.set(caller, { count: Math.max(before?.count ?? 0, count), at, used: before?.used ?? 0 });
    }
    for (const oldest of this.#heard.keys()) if (this.#heard.size > MOST_HEARD) this.#heard.delete(oldest);
  }

  /** The failures pending here. */
  tell(now: number): Doubted[] {
    this.#forget(now);
    return Array.from(this.#waiting, ([orgId, { count }]) => ({ caller: tagOf(orgId), count }));
  }

  #forget(now: number): void {
    for (const [orgId, { at }] of this.#waiting) if (now - at >= WAIT_MS) this.#waiting.delete(orgId);
    for (const [tag, { at }] of this.#heard) if (now - at >= WAIT_MS) this.#heard.delete(tag);
  }
}

/** The hash of an organization at other replicas: FNV-1a, 32 bits. Two organizations with equal hashes count as one. */
function tagOf(orgId: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < orgId.length; i++) hash = Math.imul(hash ^ orgId.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}

/** Weight of one call in the usual latency. */
const USUAL_SHARE = 0.01;
/** Maximum number of usual latencies that a single call counts as; otherwise an offering that turns slow would soon be usual. */
const MOST_USUAL = 1.5;
/** The present latency is the median of this many calls. It is not capped, so that two slow offerings differ by how slow they are. */
const NEWEST = 7;
/** From this ratio on it is slow. */
const SLOW = 2;
/**
 * How steeply the weight falls: an offering that is ten times slower gets one call in 15,000, one that is three times slower one in ten.
 */
const STEEPNESS = 3;
/** Minimum number of calls before there is a usual latency. */
const ENOUGH = 10;
/** Slow offerings receive no calls and thus no measurements: after this time they receive one. */
const FORGIVEN_MS = 10_000;

const sorted = new Float64Array(NEWEST);

/** The pace of one offering. Clocks are in milliseconds. */
export class Pace {
  private calls = 0;
  private usualMs = 0;
  private readonly newest = new Float64Array(NEWEST);
  private heardAt = 0;

  /** Records a warm call. */
  add(latencyMs: number, at: number): void {
    this.forgive(at);
    this.heardAt = at;
    if (this.calls === 0) this.begin(latencyMs);
    this.newest[this.calls % NEWEST] = latencyMs;
    this.calls++;
    const asUsual = Math.min(latencyMs, this.usualMs * MOST_USUAL);
    this.usualMs += (asUsual - this.usualMs) * Math.max(USUAL_SHARE, 1 / this.calls);
  }

  /** The present latency if it is much higher than usual; undefined otherwise. */
  slowMs(now: number): number | undefined {
    this.forgive(now);
    if (this.calls < ENOUGH) return undefined;
    sorted.set(this.newest);
    const nowMs = sorted.sort()[NEWEST >> 1]!;
    return nowMs > this.usualMs * SLOW ? nowMs : undefined;
  }

  /**
   * 1, or less the slower it is than usual. Not one small number for all slow offerings: a pause of the gateway makes all of them slow, and
   * must not make one that is ten times slower equal to the others.
   */
  weight(now: number): number {
    const slowMs = this.slowMs(now);
    return slowMs === undefined ? 1 : ((this.usualMs * SLOW) / slowMs) ** STEEPNESS;
  }

  private forgive(now: number): void {
    if (now - this.heardAt >= FORGIVEN_MS) this.begin(this.usualMs);
  }

  private begin(usualMs: number): void {
    this.usualMs = usualMs;
    this.newest.fill(usualMs);
  }
}

/** Counters of one offering, as gossiped to other replicas and rolled up. */
export interface AttemptCounts {
  /** Calls that ended with a verdict: neither canceled nor failed by their caller. */
  readonly calls: number;
  /** Those that the provider failed. */
  readonly failures: number;
  /** Latencies of warm calls, by bucket of the sketch. */
  readonly latency: Uint32Array;
}

/** A mutable tally. */
class Counters implements AttemptCounts {
  calls = 0;
  failures = 0;
  readonly latency = new Uint32Array(BUCKETS);
}

/** An immutable tally. */
export const copyOf = ({ calls, failures, latency }: AttemptCounts): AttemptCounts => ({
  calls,
  failures,
  latency: latency.slice(),
});

/** The difference of two tallies; zero if the earlier one was ahead, as when two messages arrive out of order. */
export function since(before: AttemptCounts | undefined, tally: AttemptCounts): AttemptCounts {
  if (!before) return copyOf(tally);
  return {
    calls: Math.max(0, tally.calls - before.calls),
    failures: Math.max(0, tally.failures - before.failures),
    latency: tally.latency.map((count, i) => Math.max(0, count - before.latency[i]!)),
  };
}

/** Merges two states of one tally: the greater value of each counter. */
function newest(one: AttemptCounts, other: AttemptCounts): AttemptCounts {
  return {
    calls: Math.max(one.calls, other.calls),
    failures: Math.max(one.failures, other.failures),
    latency: one.latency.map((count, i) => Math.max(count, other.latency[i]!)),
  };
}

/** A mergeable sketch of durations with decay: quantiles within 10 %, over about the last hundred calls. */

const GROWTH = 1.2;
const LN_GROWTH = Math.log(GROWTH);
const SHORTEST_MS = 0.1;
/** Number of buckets: they reach beyond one hour. */
export const BUCKETS = 100;
/** Growth of the weight per sample, so that old samples fade. */
const FADE = 1.02;
/** Time after which the weight doubles, so that idle figures fade too. */
const HALF_LIFE_MS = 60_000;
/** Step of that growth, so that simultaneous calls pay for it once. */
const FADE_STEP_MS = 10;
/** Weights are scaled down before they grow out of a double's range. */
const HEAVIEST = 1e12;

/** More samples at once than this would drown everything that came before. */
const MOST_AT_ONCE = 50;

/** The bucket of a duration. Every replica has the same ones, so that their counts can be added up. */
export function bucketOf(durationMs: number): number {
  const exponent = Math.log(Math.max(durationMs, SHORTEST_MS) / SHORTEST_MS) / LN_GROWTH;
  return Math.min(Math.floor(exponent), BUCKETS - 1);
}

/** The duration below which the share `q` of counted ones lies, in milliseconds; undefined when there is none. */
export function quantileOf(counts: ArrayLike<number>, q: number): number | undefined {
  let total = 0;
  for (let i = 0; i < counts.length; i++) total += counts[i]!;
  let below = 0;
  for (let i = 0; i < counts.length; i++) {
    below += counts[i]!;
    if (below > 0 && below >= total * q) return middleOf(i);
  }
  return undefined;
}

/** The geometric middle of a bucket is at most a tenth off. */
const middleOf = (bucket: number): number => SHORTEST_MS * GROWTH ** (bucket + 0.5);

/** Durations in milliseconds, in buckets that grow by a fifth. */
export class Sketch {
  private readonly buckets = new Float64Array(BUCKETS);
  private total = 0;
  /** What the next sample weighs. */
  private weight = 1;
  private touchedAt = 0;

  /** Adds a duration that was seen at `now`. */
  add(durationMs: number, now: number, bucket = bucketOf(durationMs)): void {
    if (this.touchedAt === 0 || now - this.touchedAt >= FADE_STEP_MS) this.age(now);
    this.take(bucket, 1);
    this.heavier(FADE);
  }

  /** Adds durations that others counted, by bucket, as if they had been seen at `now`. */
  addCounts(counts: ArrayLike<number>, now: number): void {
    let sum = 0;
    for (let i = 0; i < BUCKETS; i++) sum += counts[i] ?? 0;
    if (sum === 0) return;
    this.age(now);
    const share = Math.min(1, MOST_AT_ONCE / sum);
    for (let i = 0; i < BUCKETS; i++) if (counts[i]) this.take(i, counts[i]! * share);
    this.heavier(FADE ** (sum * share));
  }

  /** How many fresh samples the faded ones are worth; at most about fifty. */
  samples(now: number): number {
    return this.total / this.weight / this.fading(now);
  }

  /** The duration below which the share `q` of the weight lies, in milliseconds; NaN when there is none. */
  quantile(q: number): number {
    let below = 0;
    for (let i = 0; i < BUCKETS; i++) {
      below += this.buckets[i]!;
      if (below > 0 && below >= this.total * q) return middleOf(i);
    }
    return Number.NaN;
  }

  private take(bucket: number, samples: number): void {
    this.buckets[bucket]! += this.weight * samples;
    this.total += this.weight * samples;
  }

  private heavier(times: number): void {
    this.weight *= times;
    if (this.weight > HEAVIEST) this.scale(1 / this.weight);
  }

  private fading(now: number): number {
    return this.touchedAt === 0 ? 1 : 2 ** (Math.max(0, now - this.touchedAt) / HALF_LIFE_MS);
  }

  private age(now: number): void {
    const fading = this.fading(now);
    // After days of silence nothing old counts, and the factor itself would overflow.
    if (fading > HEAVIEST) this.buckets.fill(0);
    if (fading > HEAVIEST) this.total = 0;
    else this.weight *= fading;
    this.touchedAt = Math.max(this.touchedAt, now);
  }

  private scale(by: number): void {
    for (let i = 0; i < BUCKETS; i++) this.buckets[i]! *= by;
    this.total *= by;
    this.weight *= by;
  }
}
