/**
 * Overload control: which calls run now, which wait, and which are refused before they cost anything. Time spent at upstreams does not count:
 * the limit applies to calls that this process works on, and adapts to the duration of its event loop turns. Without overload, the cost is a
 * few counters per call, and one clock read per turn.
 */
import { Priority } from "../../../gen/limber/edge/v1/options_pb.ts";
import { after, cpuMs, steadyNow } from "../../clock.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import { random } from "../../random.ts";
import { FairQueue, type QueuedCall } from "./queue.ts";

/** An admitted call, until its response is sent. */
export interface AdmittedWork {
  /** Its queueing time in milliseconds. */
  readonly waitedMs: number;
  /** Pauses it while its body has not arrived: that is the caller's time. */
  reading(): void;
  /** Pauses it while it waits for an upstream, which is no load on this process. */
  away(): void;
  /** Resumes it. */
  back(): void;
  /** Ends it; further calls do nothing. */
  end(): void;
}

/** Why a call was refused: the queue was full, its place went to another call, it waited too long, or its deadline was too close. */
type ShedReason = "queue_full" | "evicted" | "queue_timeout" | "deadline";

/** The load metrics of one replica. */
export interface LoadFigures {
  readonly limit: number;
  readonly inFlight: number;
  /** Refusals that are delayed because refusing used its share of the CPU. */
  readonly held: number;
  readonly isShedding: boolean;
  readonly classes: readonly { readonly priority: string; readonly queued: number; readonly admitted: number }[];
  readonly shed: readonly { readonly priority: string; readonly reason: ShedReason; readonly count: number }[];
}

/** The interval at which the limit is adjusted and the queue is checked. */
const WINDOW_MS = 100;
const LOOK_MS = 20;
/** A queue that has not been empty for this long counts as standing. */
const STANDING_MS = 500;
/** A standing queue with this many calls is overload: the gateway sheds load. With fewer concurrent callers, no call is refused. */
const OVERLOAD_QUEUE = 256;
/** The longest queue while the gateway does not shed load. */
const MOST_QUEUED = 1024;
/** While it sheds load, the queue holds what can be served in this time, and no call waits more than twice as long. */
const QUEUE_MS = 200;
const LEAST_QUEUE = 16;
const MOST_WAIT_MS = 400;
/** A queue that is longer, and has stood longer, is served newest first: callers of its oldest calls are the likeliest to give up. */
const LIFO_QUEUE = 32;
const LIFO_STANDING_MS = 200;
/** The gateway stops shedding load after this long without a refusal and with an empty queue. */
const CALM_MS = 1_000;
/** The share of the CPU for refusals, and the least milliseconds of it per interval. */
const REFUSAL_SHARE = 0.2;
const LEAST_REFUSING_MS = 0.2;
/** The assumed cost of a refusal before any was measured, in milliseconds. Measurements do not include network I/O. */
const REFUSAL_MS = 0.02;
const UNSEEN_SHARE = 0.5;
/** The most delayed refusals. */
const MOST_HELD = 4_096;
/** The cost of a refusal built for one call, in prepared refusals. */
const PLAIN_COST = 6;
/** The longest `Retry-After`, in seconds. */
const MOST_RETRY_S = 4;

const CLASSES = [
  Priority.BATCH,
  Priority.ADMINISTRATION,
  Priority.PREDICT,
  Priority.ACT,
  Priority.LOOP,
  Priority.CRITICAL,
];

interface AdmissionEntry extends QueuedCall {
  start(work: AdmittedWork): void;
  refuse(refusal: Refusal): void;
}

interface AdmissionHold extends QueuedCall {
  refuse(): void;
  drop(): void;
  readonly cost: number;
}

/** The priority class of an RPC, from the schema. */
export const classOf = (priority: Priority): Priority =>
  priority === Priority.UNSPECIFIED ? Priority.ADMINISTRATION : priority;

/** The load of one replica. */
export class LoadShedder {
  readonly #limit: GradientLimit;
  readonly #queue = new FairQueue<AdmissionEntry>();
  #inFlight = 0;
  /** Calls admitted in this turn whose bodies have not arrived: all of them can arrive at once. */
  #unread = 0;
  /** Calls that started in this turn: most wait for an upstream before it ends, and would admit the next one too early. */
  #begun = 0;
  #peak = 0;
  #starts = 0;
  #startsBefore = 0;
  #hasWaited = false;
  #windowSince = 0;
  /** When the current turn of the event loop was first observed; undefined between turns. */
  #turnSince: number | undefined;
  #turnsMs = 0;
  #turns = 0;
  #standingSince: number | undefined;
  #isShedding = false;
  #refusedAt = 0;
  /** The cost of a call in this process's time, including waits for the database, in milliseconds. */
  #ownMs = 0;
  /** Delayed refusals: only their responses, without the callers' requests. */
  readonly #held = new FairQueue<AdmissionHold>();
  #refusalMs = REFUSAL_MS;
  /** The budget for refusals until the next check. */
  #refusingMs = LEAST_REFUSING_MS;
  #cpuMs = 0;
  #advice: { limit: number; all: readonly Advice[] } | undefined;
  #isLooking = false;
  #lookDue = 0;
  /** By class. */
  readonly #queued = new Array<number>(CLASSES.length + 1).fill(0);
  readonly #admitted = new Array<number>(CLASSES.length + 1).fill(0);
  readonly #shed = new Map<string, { priority: Priority; reason: ShedReason; count: number }>();

  constructor(bounds: LimitBounds = DEFAULT_BOUNDS) {
    this.#limit = new GradientLimit(bounds);
  }

  /** Whether more calls arrive than are served, so that low-priority work should wait. */
  get isBusy(): boolean {
    return this.#isShedding || this.#queue.size > 0;
  }

  /** Admits a call if there is capacity; undefined if it has to wait. */
  tryEnter(priority: Priority): AdmittedWork | undefined {
    if (priority === Priority.CRITICAL) {
      this.#admitted[priority]!++;
      return UNCOUNTED;
    }
    return this.#queue.size === 0 && this.#hasRoom ? this.#start(priority, 0) : undefined;
  }

  /** Admits a call, after waiting if needed; rejects with `overloaded` if that takes too long. */
  async enter(priority: Priority, orgOf: () => string, deadline?: number): Promise<AdmittedWork> {
    return this.tryEnter(priority) ?? this.#wait(priority, orgOf(), deadline);
  }

  /**
   * Whether such a call would be refused now, for responses that are prepared before a call exists: returns the organization whose share it
   * takes, and counts the refusal; undefined if it would be admitted.
   */
  refuses(priority: Priority, orgOf: () => string): string | undefined {
    if (!this.#isShedding || priority === Priority.CRITICAL || this.#queue.size < this.#room) return undefined;
    this.#openTurn();
    const org = orgOf();
    if (this.#queue.giver(org, priority) !== undefined) return undefined;
    this.#count(priority, "queue_full");
    return org;
  }

  /** Refuses a call that has been read if its queueing time and its expected cost exceed its deadline. */
  assertInTime(work: AdmittedWork, priority: Priority, deadlineMs: number): void {
    if (work.waitedMs === 0 || work.waitedMs + this.#ownMs < deadlineMs) return;
    this.#count(priority, "deadline");
    throw this.refusal();
  }

  /**
   * Sends a refusal at once, or later if refusals used their share, and then returns true. A client that retries immediately thus waits, and is
   * not read. Organizations take turns. At the maximum of delayed refusals, the organization with the most drops its oldest: `drop` ends that
   * call without a response.
   */
  pace(
    org: string,
    refuse: () => void,
    { cost = 1, drop = refuse }: { cost?: number; drop?: () => void } = {},
  ): boolean {
    if (this.#refusingMs > 0 || !this.#isShedding) {
      this.#pay(refuse, cost);
      return false;
    }
    if (this.#held.size >= MOST_HELD) this.#held.evict()?.drop();
    this.#held.push({ org, priority: Priority.ACT, since: 0, deadline: undefined, refuse, drop, cost });
    this.#keepLooking();
    return true;
  }

  #pay(refuse: () => void, cost: number): void {
    const at = steadyNow();
    refuse();
    if (cost === 1) {
      // A pause in the middle of one is not a cost of refusing.
      const tookMs = Math.min((steadyNow() - at) / (1 - UNSEEN_SHARE), 4 * this.#refusalMs);
      this.#refusalMs = Math.max(REFUSAL_MS / 4, this.#refusalMs + (tookMs - this.#refusalMs) / 32);
    }
    this.#refusingMs -= cost * this.#refusalMs;
  }

  /** The advice for refused calls. */
  refusal(): Refusal {
    return overloaded(this.advice());
  }

  /** When to retry, with jitter, so that callers do not return at once. One object per delay, as long as the limit is unchanged. */
  advice(): Advice {
    const limit = this.#limit.value;
    if (this.#advice?.limit !== limit) this.#advice = { limit, all: adviceOf(limit) };
    return this.#advice.all[Math.floor(random() * MOST_RETRY_S)]!;
  }

  get figures(): LoadFigures {
    return {
      limit: this.#limit.value,
      inFlight: this.#inFlight,
      held: this.#held.size,
      isShedding: this.#isShedding,
      classes: CLASSES.map((priority) => ({
        priority: nameOf(priority),
        queued: this.#queued[priority] ?? 0,
        admitted: this.#admitted[priority] ?? 0,
      })),
      shed: [...this.#shed.values()].map(({ priority, reason, count }) => ({
        priority: nameOf(priority),
        reason,
        count,
      })),
    };
  }

  get #hasRoom(): boolean {
    const { value } = this.#limit;
    return this.#inFlight + this.#unread < value && this.#begun < value;
  }

  /** The current queue limit. */
  get #room(): number {
    if (!this.#isShedding) return MOST_QUEUED;
    const served = (Math.max(this.#starts, this.#startsBefore) * QUEUE_MS) / WINDOW_MS;
    return Math.max(LEAST_QUEUE, Math.min(OVERLOAD_QUEUE, Math.ceil(served)));
  }

  #start(priority: Priority, waitedMs: number): AdmittedWork {
    this.#admitted[priority]!++;
    this.#starts++;
    this.#begun++;
    this.#openTurn();
    return new Counted(this.#counter, waitedMs);
  }

  readonly #counter: Counter = {
    came: () => {
      this.#inFlight++;
      if (this.#inFlight > this.#peak) this.#peak = this.#inFlight;
    },
    left: () => {
      this.#inFlight--;
      if (this.#queue.size > 0 && this.#hasRoom) this.#admitWaiting();
    },
    unread: () => {
      this.#unread++;
      this.#openTurn();
    },
    read: () => {
      if (this.#unread > 0) this.#unread--;
    },
    ended: (ownMs) => {
      this.#ownMs += (ownMs - this.#ownMs) / 32;
    },
  };

  #wait(priority: Priority, org: string, deadline: number | undefined): Promise<AdmittedWork> {
    const at = steadyNow();
    this.#standingSince ??= at;
    this.#hasWaited = true;
    this.#decide(at);
    this.#keepLooking();
    if (deadline !== undefined && deadline - at < this.#ownMs) return this.#turnedAway(org, priority, "deadline");
    if (this.#queue.size >= this.#room) {
      const giver = this.#queue.giver(org, priority);
      const evicted = giver === undefined ? undefined : this.#queue.evict(giver);
      if (evicted === undefined) return this.#turnedAway(org, priority, "queue_full");
      this.#dismiss(evicted, "evicted");
    }
    return new Promise((resolve, reject) => {
      this.#queue.push({ org, priority, since: at, deadline, start: resolve, refuse: reject });
      this.#queued[priority]!++;
    });
  }

  #turnedAway(org: string, priority: Priority, reason: ShedReason): Promise<never> {
    this.#count(priority, reason);
    return new Promise((_, reject) => this.pace(org, () => reject(this.refusal()), { cost: PLAIN_COST }));
  }

  /** Refuses a queued call. */
  #dismiss(entry: AdmissionEntry, reason: ShedReason): void {
    this.#queued[entry.priority]!--;
    this.#count(entry.priority, reason);
    this.pace(entry.org, () => entry.refuse(this.refusal()), { cost: PLAIN_COST });
  }

  #count(priority: Priority, reason: ShedReason): void {
    this.#refusedAt = steadyNow();
    const key = `${priority} ${reason}`;
    const known = this.#shed.get(key);
    if (known !== undefined) known.count++;
    else this.#shed.set(key, { priority, reason, count: 1 });
  }

  /** Admits waiting calls while there is room. */
  #admitWaiting(): void {
    const at = steadyNow();
    while (this.#queue.size > 0 && this.#hasRoom) {
      const entry = this.#queue.next(this.#isNewestFirst(at));
      if (entry === undefined) break;
      if (entry.deadline !== undefined && entry.deadline - at < this.#ownMs) {
        this.#dismiss(entry, "deadline");
        continue;
      }
      this.#queued[entry.priority]!--;
      entry.start(this.#start(entry.priority, at - entry.since));
    }
    if (this.#queue.size === 0) this.#standingSince = undefined;
  }

  #isNewestFirst(at: number): boolean {
    if (this.#isShedding) return true;
    return this.#queue.size > LIFO_QUEUE && at - (this.#standingSince ?? at) >= LIFO_STANDING_MS;
  }

  /** Whether the gateway sheds load: it requires a long queue that has stood for a while. */
  #decide(at: number): void {
    if (!this.#isShedding) {
      if (this.#queue.size >= OVERLOAD_QUEUE && at - (this.#standingSince ?? at) >= STANDING_MS)
        this.#isShedding = true;
    } else if (this.#queue.size === 0 && this.#held.size === 0 && at - this.#refusedAt >= CALM_MS)
      this.#isShedding = false;
  }

  /** Starts with the first call in an event loop turn, and ends with that turn. */
  #openTurn(): void {
    if (this.#turnSince !== undefined) return;
    this.#turnSince = steadyNow();
    setImmediate(this.#endTurn);
  }

  readonly #endTurn = (): void => {
    const at = steadyNow();
    this.#turnsMs += at - (this.#turnSince ?? at);
    this.#turns++;
    this.#turnSince = undefined;
    this.#unread = 0;
    this.#begun = 0;
    this.#endWindow(at);
    // Calls admitted now are work of the next turn.
    if (this.#queue.size > 0) this.#admitWaiting();
  };

  #endWindow(at: number): void {
    if (at - this.#windowSince < WINDOW_MS) return;
    if (this.#turns > 0) this.#limit.update(this.#turnsMs / this.#turns, this.#peak, this.#hasWaited);
    this.#windowSince = at;
    this.#turnsMs = 0;
    this.#turns = 0;
    this.#peak = this.#inFlight;
    this.#hasWaited = this.#queue.size > 0;
    this.#startsBefore = this.#starts;
    this.#starts = 0;
  }

  /** Checks the queue and the delayed refusals, as long as there are any. */
  #keepLooking(): void {
    if (this.#isLooking) return;
    this.#isLooking = true;
    this.#cpuMs = cpuMs();
    this.#lookLater();
  }

  #lookLater(): void {
    this.#lookDue = steadyNow() + LOOK_MS;
    after(LOOK_MS, this.#look);
  }

  readonly #look = (): void => {
    const at = steadyNow();
    const lateMs = Math.max(0, at - this.#lookDue);
    // If calls wait only for the database, no turns are observed; the timer's delay serves as well.
    if (this.#turns === 0) {
      this.#turnsMs = lateMs;
      this.#turns = 1;
    }
    this.#endWindow(at);
    this.#decide(at);
    if (this.#queue.size > 0) this.#admitWaiting();
    this.#expire(at, lateMs);
    this.#payOut();
    this.#isLooking = this.#queue.size > 0 || this.#held.size > 0 || this.#isShedding;
    if (this.#isLooking) this.#lookLater();
  };

  /**
   * Refuses calls that have waited too long, and those that cannot be served soon. A stall of this process counts only from the next check on: every
   * organization gets its turn after it.
   */
  #expire(at: number, stalledMs: number): void {
    const isLate = ({ deadline }: AdmissionEntry): boolean => deadline !== undefined && deadline - at < this.#ownMs;
    const isOld = ({ since }: AdmissionEntry): boolean => this.#isShedding && at - since - stalledMs > MOST_WAIT_MS;
    for (const entry of this.#queue.takeOut((each) => isLate(each) || isOld(each)))
      this.#dismiss(entry, isLate(entry) ? "deadline" : "queue_timeout");
    for (let over = this.#queue.size - this.#room; over > 0; over--) {
      const evicted = this.#queue.evict();
      if (evicted !== undefined) this.#dismiss(evicted, "evicted");
    }
  }

  /** Sends as many delayed refusals as their budget allows. */
  #payOut(): void {
    const cpu = cpuMs();
    // If no call is queued, refusing takes nothing from other calls.
    const leastMs = this.#queue.size === 0 ? LOOK_MS * REFUSAL_SHARE : LEAST_REFUSING_MS;
    this.#refusingMs = Math.max(leastMs, (cpu - this.#cpuMs) * REFUSAL_SHARE);
    this.#cpuMs = cpu;
    while (this.#refusingMs > 0) {
      const held = this.#held.next(false);
      if (held === undefined) break;
      this.#pay(() => held.refuse(), held.cost);
    }
  }
}

/** When a refused call should be retried. */
export interface Advice {
  /** Whole seconds. */
  readonly retryAfter: number;
  /** The IETF rate limit headers, alternating names and values: the limit of concurrent calls, and zero remaining. */
  readonly headers: readonly string[];
}

const adviceOf = (limit: number): Advice[] =>
  Array.from({ length: MOST_RETRY_S }, (_, i) => ({
    retryAfter: i + 1,
    headers: [
      "ratelimit-policy",
      `"gateway";q=${limit};qu="concurrent-requests"`,
      "ratelimit",
      `"gateway";r=0;t=${i + 1}`,
    ],
  }));

/** The refusal of a call for overload, created once per advice: most of its cost is its stack. */
export function overloaded(advice: Advice): Refusal {
  let refusal = refusals.get(advice);
  if (refusal !== undefined) return refusal;
  const { retryAfter, headers } = advice;
  const text = "the gateway is overloaded; nothing was done and nothing was charged; retry later";
  refusal = refuse(Reason.OVERLOADED, text, {}, { retryAfter, headers });
  refusals.set(advice, refusal);
  return refusal;
}

const refusals = new WeakMap<Advice, Refusal>();

/** The names of classes in metrics. */
const nameOf = (priority: Priority): string => NAMES[priority] ?? "";
const NAMES = ["", "batch", "administration", "predict", "act", "loop", "critical"];

/** The properties of a call that determine its admission. */
interface Counter {
  came(): void;
  left(): void;
  unread(): void;
  read(): void;
  ended(ownMs: number): void;
}

class Counted implements AdmittedWork {
  readonly waitedMs: number;
  readonly #counter: Counter;
  #since = steadyNow();
  #ownMs = 0;
  #isUnread = false;
  #state: "here" | "away" | "over" = "here";

  constructor(counter: Counter, waitedMs: number) {
    this.#counter = counter;
    this.waitedMs = waitedMs;
    counter.came();
  }

  reading(): void {
    if (this.#state !== "here") return;
    this.away();
    this.#isUnread = true;
    this.#counter.unread();
  }

  away(): void {
    if (this.#state !== "here") return;
    this.#state = "away";
    this.#ownMs += steadyNow() - this.#since;
    this.#counter.left();
  }

  back(): void {
    if (this.#state !== "away") return;
    this.#state = "here";
    this.#since = steadyNow();
    this.#counter.came();
    this.#wasRead();
  }

  #wasRead(): void {
    if (!this.#isUnread) return;
    this.#isUnread = false;
    this.#counter.read();
  }

  end(): void {
    if (this.#state === "over") return;
    this.away();
    this.#wasRead();
    this.#state = "over";
    this.#counter.ended(this.#ownMs);
  }
}

/** Calls that are never refused are not counted either. */
const UNCOUNTED: AdmittedWork = {
  waitedMs: 0,
  reading() {},
  away() {},
  back() {},
  end() {},
};

/** Event loop turns up to this long are not overload, in milliseconds. */
const TURN_MS = 20;
/** The longest acceptable turn, as a multiple of the recent minimum on this machine. */
const TOLERANCE = 2;
/** In a calm window, the floor rises by this share of the difference, so that a faster past is discounted. */
const FLOOR_RISE = 0.02;
/** The largest decrease of the limit per window (half), and increase (a quarter and its square root). */
const STEEPEST = 0.5;
const GROWTH = 1.25;

/** The range of the limit, in calls. */
interface LimitBounds {
  readonly initial: number;
  readonly least: number;
  readonly most: number;
}

/**
 * Calls of one turn share their reads, writes and commit. Fewer than 16 at once cost several times as much each, which an overloaded CPU can
 * least afford.
 */
const DEFAULT_BOUNDS: LimitBounds = { initial: 32, least: 16, most: 8192 };

/** An adaptive limit. */
export class GradientLimit {
  readonly #bounds: LimitBounds;
  #limit: number;
  /** Unknown at first, so it does not excuse a long turn. */
  #floorMs = 0;

  constructor(bounds: LimitBounds = DEFAULT_BOUNDS) {
    this.#bounds = bounds;
    this.#limit = bounds.initial;
  }

  /** In whole calls. */
  get value(): number {
    return Math.floor(this.#limit);
  }

  /** Ends a window, with the mean duration of turns, the most concurrent calls, and whether calls waited. */
  update(turnMs: number, peak: number, waited: boolean): void {
    if (turnMs < this.#floorMs) this.#floorMs = turnMs;
    else if (!waited) this.#floorMs += (turnMs - this.#floorMs) * FLOOR_RISE;
    const targetMs = Math.max(TURN_MS, TOLERANCE * this.#floorMs);
    const gradient = Math.max(STEEPEST, Math.min(1, targetMs / turnMs));
    const isUsed = waited || peak * 2 >= this.#limit;
    const { least, most } = this.#bounds;
    let next = this.#limit;
    if (gradient < 1) next = this.#limit * gradient + Math.sqrt(this.#limit) * (gradient - STEEPEST);
    else if (isUsed && turnMs * 2 <= targetMs) next = this.#limit * GROWTH + Math.sqrt(this.#limit);
    else if (isUsed) next = this.#limit + Math.sqrt(this.#limit) / 2;
    this.#limit = Math.max(least, Math.min(most, next));
  }
}
