/**
 * Overload: which calls are worked on now, which wait, and which are refused before they cost anything. What a call spends at its upstream
 * does not count: the limit is on calls that this process works on, and turns of its event loop are what it is judged by. A gateway that
 * is not overloaded pays for a few counters a call, and for one look at the clock in a turn.
 */
import { Priority } from "../../../gen/limber/edge/v1/options_pb.ts";
import { after, cpuMs, steadyNow } from "../../clock.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import { random } from "../../random.ts";
import { FairQueue, type QueuedCall } from "./queue.ts";

/** A call that was let in, from then until its answer is out. */
export interface AdmittedWork {
  /** Milliseconds that it waited for its turn. */
  readonly waitedMs: number;
  /** Its body has still to come, which is the caller's time. */
  reading(): void;
  /** It waits for an upstream, which is no load of this process. */
  away(): void;
  /** It is worked on again. */
  back(): void;
  /** It is over; further calls do nothing. */
  end(): void;
}

/** Why a call was refused: no place in the queue, its place given to another, too long in it, or too late for its deadline. */
type ShedReason = "queue_full" | "evicted" | "queue_timeout" | "deadline";

/** What is shown of the load of one replica. */
export interface LoadFigures {
  readonly limit: number;
  readonly inFlight: number;
  /** Refusals that wait for their turn, because refusing has cost its share. */
  readonly held: number;
  readonly isShedding: boolean;
  readonly classes: readonly { readonly priority: string; readonly queued: number; readonly admitted: number }[];
  readonly shed: readonly { readonly priority: string; readonly reason: ShedReason; readonly count: number }[];
}

/** Windows that the limit is adjusted by, and looks at the queue. */
const WINDOW_MS = 100;
const LOOK_MS = 20;
/** A queue that has not been empty for this long stands. */
const STANDING_MS = 500;
/** A standing queue of so many calls is overload: the gateway sheds. Fewer concurrent callers are never refused. */
const OVERLOAD_QUEUE = 256;
/** The most calls that wait while the gateway does not shed. */
const MOST_QUEUED = 1024;
/** While it sheds, the queue holds what is served in this time, and nothing waits longer than twice that. */
const QUEUE_MS = 200;
const LEAST_QUEUE = 16;
const MOST_WAIT_MS = 400;
/** A queue longer than this that has stood this long is served newest first: its oldest calls are the likeliest to be given up. */
const LIFO_QUEUE = 32;
const LIFO_STANDING_MS = 200;
/** Without a refusal and with an empty queue for this long, the gateway sheds no longer. */
const CALM_MS = 1_000;
/** The share of the processor that refusing may take, and milliseconds of it that each look allows at least. */
const REFUSAL_SHARE = 0.2;
const LEAST_REFUSING_MS = 0.2;
/** What a refusal is taken to cost before one was measured, in milliseconds; what is measured is not what its bytes cost to come and go. */
const REFUSAL_MS = 0.02;
const UNSEEN_SHARE = 0.5;
/** No more refusals are held than this. */
const MOST_HELD = 4_096;
/** A refusal that is built for one call costs as much as this many prepared ones. */
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

/** The class of an RPC by what the schema states. */
export const classOf = (priority: Priority): Priority =>
  priority === Priority.UNSPECIFIED ? Priority.ADMINISTRATION : priority;

/** The load of one replica. */
export class LoadShedder {
  readonly #limit: GradientLimit;
  /** Control loops go before every other class, across organizations. */
  readonly #loops = new FairQueue<AdmissionEntry>();
  readonly #others = new FairQueue<AdmissionEntry>();
  #inFlight = 0;
  /** Calls that were let in in this turn and whose bodies have not come: they may all come at once. */
  #unread = 0;
  /** Calls that began in this turn: most are on their way to an upstream before it ends, and would let the next one in at once. */
  #begun = 0;
  #peak = 0;
  #starts = 0;
  #startsBefore = 0;
  #hasWaited = false;
  #windowSince = 0;
  /** When the turn of the event loop was first seen; undefined between turns. */
  #turnSince: number | undefined;
  #turnsMs = 0;
  #turns = 0;
  #standingSince: number | undefined;
  #isShedding = false;
  #refusedAt = 0;
  /** What a call costs of this process's time, its waits for the database in it; in milliseconds. */
  #ownMs = 0;
  /** Refusals that wait: what answers each, and none of what its caller sent. */
  readonly #held = new FairQueue<AdmissionHold>();
  #refusalMs = REFUSAL_MS;
  /** What refusing may cost until the next look. */
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

  /** Whether more comes than is served, so that work which can wait should. */
  get isBusy(): boolean {
    return this.#isShedding || this.#size > 0;
  }

  /** Takes a call in that there is room for; undefined where it has to wait for its turn. */
  tryEnter(priority: Priority): AdmittedWork | undefined {
    if (priority === Priority.CRITICAL) {
      this.#admitted[priority]!++;
      return UNCOUNTED;
    }
    return this.#size === 0 && this.#hasRoom ? this.#start(priority, 0) : undefined;
  }

  /** Takes a call in, when its turn comes; rejects with `overloaded` where it does not come in time. */
  async enter(priority: Priority, orgOf: () => string, deadline?: number): Promise<AdmittedWork> {
    return this.tryEnter(priority) ?? this.#wait(priority, orgOf(), deadline);
  }

  /**
   * The organization whose share such a call takes, where it would be refused at this moment, and counts it as refused; undefined where it
   * would not be. For answers that are made before the call is.
   */
  refuses(priority: Priority, orgOf: () => string): string | undefined {
    if (!this.#isShedding || priority === Priority.CRITICAL || this.#size < this.#room) return undefined;
    this.#openTurn();
    if (priority === Priority.LOOP && this.#others.size > 0) return undefined;
    const org = orgOf();
    if (this.#queueOf(priority).giver(org, priority) !== undefined) return undefined;
    this.#count(priority, "queue_full");
    return org;
  }

  /** Refuses where a call that has been read turns out to have no time left: what it waited and what it will cost are more than it has. */
  assertInTime(work: AdmittedWork, priority: Priority, deadlineMs: number): void {
    if (work.waitedMs === 0 || work.waitedMs + this.#ownMs < deadlineMs) return;
    this.#count(priority, "deadline");
    throw this.refusal();
  }

  /**
   * Returns a refusal: at once, or later where refusing has cost its share, and then true. So a client that retries immediately waits, and is
   * not read. Organizations take turns. If the maximum is held, the organization with the most gives up its oldest: `drop` ends that
   * call without an answer.
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
      // A pause in the middle of one is no cost of refusing.
      const tookMs = Math.min((steadyNow() - at) / (1 - UNSEEN_SHARE), 4 * this.#refusalMs);
      this.#refusalMs = Math.max(REFUSAL_MS / 4, this.#refusalMs + (tookMs - this.#refusalMs) / 32);
    }
    this.#refusingMs -= cost * this.#refusalMs;
  }

  /** The advice for refused calls. */
  refusal(): Refusal {
    return overloaded(this.advice());
  }

  /** When to come again: jittered, so that not all come at once. One object for each time, for as long as the limit stands. */
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

  get #size(): number {
    return this.#loops.size + this.#others.size;
  }

  get #hasRoom(): boolean {
    const { value } = this.#limit;
    return this.#inFlight + this.#unread < value && this.#begun < value;
  }

  /** How many calls may wait at this moment. */
  get #room(): number {
    if (!this.#isShedding) return MOST_QUEUED;
    const served = (Math.max(this.#starts, this.#startsBefore) * QUEUE_MS) / WINDOW_MS;
    return Math.max(LEAST_QUEUE, Math.min(OVERLOAD_QUEUE, Math.ceil(served)));
  }

  #queueOf(priority: Priority): FairQueue<AdmissionEntry> {
    return priority === Priority.LOOP ? this.#loops : this.#others;
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
      if (this.#size > 0 && this.#hasRoom) this.#committer();
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
    const queue = this.#queueOf(priority);
    if (this.#size >= this.#room) {
      const giver = queue.giver(org, priority);
      const evicted =
        giver !== undefined ? queue.evict(giver) : priority === Priority.LOOP ? this.#others.evict() : undefined;
      if (evicted === undefined) return this.#turnedAway(org, priority, "queue_full");
      this.#dismiss(evicted, "evicted");
    }
    return new Promise((resolve, reject) => {
      queue.push({ org, priority, since: at, deadline, start: resolve, refuse: reject });
      this.#queued[priority]!++;
    });
  }

  #turnedAway(org: string, priority: Priority, reason: ShedReason): Promise<never> {
    this.#count(priority, reason);
    return new Promise((_, reject) => this.pace(org, () => reject(this.refusal()), { cost: PLAIN_COST }));
  }

  /** Refuses a call that has waited. */
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
  #committer(): void {
    const at = steadyNow();
    while (this.#size > 0 && this.#hasRoom) {
      const newestFirst = this.#isNewestFirst(at);
      const entry = this.#loops.next(newestFirst) ?? this.#others.next(newestFirst);
      if (entry === undefined) break;
      if (entry.deadline !== undefined && entry.deadline - at < this.#ownMs) {
        this.#dismiss(entry, "deadline");
        continue;
      }
      this.#queued[entry.priority]!--;
      entry.start(this.#start(entry.priority, at - entry.since));
    }
    if (this.#size === 0) this.#standingSince = undefined;
  }

  #isNewestFirst(at: number): boolean {
    if (this.#isShedding) return true;
    return this.#size > LIFO_QUEUE && at - (this.#standingSince ?? at) >= LIFO_STANDING_MS;
  }

  /** Whether the gateway sheds: it needs a queue that is long and has stood for a while. */
  #decide(at: number): void {
    if (!this.#isShedding) {
      if (this.#size >= OVERLOAD_QUEUE && at - (this.#standingSince ?? at) >= STANDING_MS) this.#isShedding = true;
    } else if (this.#size === 0 && this.#held.size === 0 && at - this.#refusedAt >= CALM_MS) this.#isShedding = false;
  }

  /** From the first call that a turn of the event loop brings to the end of what it brings. */
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
    // What is let in now is work of the next turn.
    if (this.#size > 0) this.#committer();
  };

  #endWindow(at: number): void {
    if (at - this.#windowSince < WINDOW_MS) return;
    if (this.#turns > 0) this.#limit.update(this.#turnsMs / this.#turns, this.#peak, this.#hasWaited);
    this.#windowSince = at;
    this.#turnsMs = 0;
    this.#turns = 0;
    this.#peak = this.#inFlight;
    this.#hasWaited = this.#size > 0;
    this.#startsBefore = this.#starts;
    this.#starts = 0;
  }

  /** Looks after the queue and after refusals that are held, for as long as there are any. */
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
    // Where calls wait for the database alone no turn is seen, and the timer's delay tells as much.
    if (this.#turns === 0) {
      this.#turnsMs = Math.max(0, at - this.#lookDue);
      this.#turns = 1;
    }
    this.#endWindow(at);
    this.#decide(at);
    this.#expire(at);
    if (this.#size > 0) this.#committer();
    this.#payOut();
    this.#isLooking = this.#size > 0 || this.#held.size > 0 || this.#isShedding;
    if (this.#isLooking) this.#lookLater();
  };

  /** Refuses calls that have waited too long, and those beyond what is served soon. */
  #expire(at: number): void {
    const isLate = ({ deadline }: AdmissionEntry): boolean => deadline !== undefined && deadline - at < this.#ownMs;
    const isOld = ({ since }: AdmissionEntry): boolean => this.#isShedding && at - since > MOST_WAIT_MS;
    for (const queue of [this.#loops, this.#others])
      for (const entry of queue.takeOut((each) => isLate(each) || isOld(each)))
        this.#dismiss(entry, isLate(entry) ? "deadline" : "queue_timeout");
    for (let over = this.#size - this.#room; over > 0; over--) {
      const evicted = this.#others.evict() ?? this.#loops.evict();
      if (evicted !== undefined) this.#dismiss(evicted, "evicted");
    }
  }

  /** Returns the refusals that were held, as many as refusing may cost. */
  #payOut(): void {
    const cpu = cpuMs();
    // If no call is queued, refusing takes nothing from other calls.
    const leastMs = this.#size === 0 ? LOOK_MS * REFUSAL_SHARE : LEAST_REFUSING_MS;
    this.#refusingMs = Math.max(leastMs, (cpu - this.#cpuMs) * REFUSAL_SHARE);
    this.#cpuMs = cpu;
    while (this.#refusingMs > 0) {
      const held = this.#held.next(false);
      if (held === undefined) break;
      this.#pay(() => held.refuse(), held.cost);
    }
  }
}

/** When a refused call may come again. */
export interface Advice {
  /** In whole seconds. */
  readonly retryAfter: number;
  /** The fields of the IETF's rate limits, names and values in turn: how many calls are worked on at once, and that none is left. */
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

/** The refusal of a call for overload, made once for each advice: most of what one costs is its stack. */
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

/** What a call tells of itself. */
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

/** What is never refused is not counted either. */
const UNCOUNTED: AdmittedWork = {
  waitedMs: 0,
  reading() {},
  away() {},
  back() {},
  end() {},
};

/** Turns of the event loop up to this long are no overload, in milliseconds. */
const TURN_MS = 20;
/** Turns may be this many times as long as the shortest that this machine has shown of late. */
const TOLERANCE = 2;
/** The floor rises by this share of the difference in a calm window, so that it forgets a faster past. */
const FLOOR_RISE = 0.02;
/** One window halves the limit at most, and raises it by a quarter and its root at most. */
const STEEPEST = 0.5;
const GROWTH = 1.25;

/** The bounds of a limit, in calls. */
interface LimitBounds {
  readonly initial: number;
  readonly least: number;
  readonly most: number;
}

/**
 * Calls of one turn share their reads, their writes and their commit: fewer than 16 at once cost several times as much each, which an
 * overloaded processor has least of all.
 */
const DEFAULT_BOUNDS: LimitBounds = { initial: 32, least: 16, most: 8192 };

/** One limit. */
export class GradientLimit {
  readonly #bounds: LimitBounds;
  #limit: number;
  /** Unknown at first, and so no excuse for a long turn. */
  #floorMs = 0;

  constructor(bounds: LimitBounds = DEFAULT_BOUNDS) {
    this.#bounds = bounds;
    this.#limit = bounds.initial;
  }

  /** In whole calls. */
  get value(): number {
    return Math.floor(this.#limit);
  }

  /** A window is over: how long turns took in the mean, the most calls that were worked on at once, and whether calls waited. */
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
