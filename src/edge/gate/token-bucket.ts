/** What one replica knows of one key's limits: tokens at hand, calls and streams that run, and who waits for more. */
import { Reason, type Refusal, refuse } from "../../errors.ts";
import type { RateAsk, RateGrant } from "../../store/account/rates.ts";

/** What one key may do in time. */
export interface Limit {
  /** Requests in one window; a step of a control loop counts as one. */
  requests: number;
  /** The window, in seconds. */
  windowS: number;
  /** Requests that may come at once. */
  burst: number;
  /** Requests that may run at once. */
  concurrency: number;
  /** Streams that may be open at once. */
  streams: number;
}

/** What counts apart: calls that end by themselves, and streams that stay. */
export type TokenPool = "calls" | "streams";
/** What takes a token: a call or a stream, with its place, or a step of a control loop, whose stream has one. */
export type WantedTokens = TokenPool | "steps";

/** A call or a step that waits for the database's answer. */
export interface TokenWaiter {
  readonly wanted: WantedTokens;
  enter(): void;
  refuse(why: unknown): void;
}

/** Tokens that a replica takes ahead: about a second's worth, and never much of the burst. */
const SHARE_OF_BURST = 1 / 8;
/** After a refusal for want of tokens the database is left alone this long at least. */
const LEAST_REST_MS = 50;
/** After one for want of a place. */
const FULL_REST_MS = 100;
/** Places that are fetched ahead: a share of all, so that few places are never kept from those who need them. */
const SPARE_SHARE = 1 / 16;
/** And no more than that, since those of a replica that dies are kept from the others for a while. */
const MOST_SPARE = 64;

/** One key in one replica. Times are on the steady clock in milliseconds. */
export class Bucket {
  readonly id: string;
  limit: Limit;
  /** At hand. */
  tokens = 0;
  readonly running = { calls: 0, streams: 0 };
  /** Places that this replica may fill. */
  readonly places = { calls: 0, streams: 0 };
  waiting: TokenWaiter[] = [];
  /** It is among those that the next question to the database is about. */
  asked = false;
  usedAt = 0;
  renewedAt = 0;
  #shared: number;
  #sharedAt: number;
  #emptyUntil = 0;
  /** How many of those who wait the running question is about; those who came after it are for the next. */
  #counted = 0;
  readonly #fullUntil = { calls: 0, streams: 0 };

  constructor(id: string, limit: Limit, at: number) {
    this.id = id;
    this.limit = limit;
    this.#shared = limit.burst;
    this.#sharedAt = at;
  }

  get perMs(): number {
    return this.limit.requests / (this.limit.windowS * 1000);
  }

  /** Tokens that are left to the key, here and for all, as far as is known here. */
  left(at: number): number {
    const { burst } = this.limit;
    const shared = Math.min(burst, this.#shared + (at - this.#sharedAt) * this.perMs);
    return Math.min(burst, this.tokens + shared);
  }

  /** Takes a token and a place, if both are at hand. */
  take(wanted: WantedTokens, at: number): boolean {
    this.usedAt = at;
    if (this.tokens < 1 || this.#isFull(wanted)) return false;
    this.tokens -= 1;
    if (wanted !== "steps") this.running[wanted] += 1;
    return true;
  }

  /** Gives back a token and a place that were taken for a call that did not begin. */
  putBack(wanted: WantedTokens): void {
    this.tokens = Math.min(this.limit.burst, this.tokens + 1);
    if (wanted !== "steps") this.running[wanted] -= 1;
  }

  /**
   * How long work that waits has to leave the key alone, in milliseconds; 0 where it may take a token and a place. A quarter of both is for
   * calls that somebody waits for.
   */
  spareIn(at: number): number {
    const { burst, concurrency } = this.limit;
    if (this.running.calls >= Math.max(1, concurrency - Math.ceil(concurrency / 4))) return FULL_REST_MS;
    const lacking = Math.floor(burst / 4) + 1 - this.left(at);
    return lacking <= 0 ? 0 : Math.max(1, lacking / this.perMs);
  }

  #isFull(wanted: WantedTokens): boolean {
    return wanted !== "steps" && this.running[wanted] >= this.places[wanted];
  }

  /** Why a call that found nothing at hand is refused without a question; undefined: the database has to be asked. */
  refusal(wanted: WantedTokens, at: number): Refusal | undefined {
    if (this.tokens < 1 && at < this.#emptyUntil) return this.#tooFast(at);
    if (wanted !== "steps" && this.#isFull(wanted) && at < this.#fullUntil[wanted]) return this.#tooMany(wanted);
    return undefined;
  }

  /** Whether it is time to fetch ahead. */
  get low(): boolean {
    return this.tokens < this.#chunk / 2;
  }

  /** What to ask the database for now. */
  ask(at: number, idle: boolean): RateAsk {
    const { burst, concurrency, streams } = this.limit;
    const waiting = { calls: 0, streams: 0, steps: 0 };
    for (const { wanted } of this.waiting) waiting[wanted]++;
    const rests = at < this.#emptyUntil;
    const tokens = idle ? -this.tokens : rests ? 0 : this.waiting.length + this.#chunk - this.tokens;
    // Given back at once: what comes meanwhile asks again.
    if (idle) this.tokens = 0;
    const places = (pool: TokenPool, most: number): number => {
      const busy = this.running[pool] + waiting[pool];
      const ahead = idle || busy === 0 ? busy : busy + Math.min(MOST_SPARE, Math.floor(most * SPARE_SHARE));
      return Math.max(this.running[pool], Math.min(ahead, most));
    };
    this.renewedAt = at;
    this.#counted = this.waiting.length;
    return {
      id: this.id,
      perS: this.perMs * 1000,
      burst,
      tokens: idle ? tokens : Math.max(0, Math.min(burst, Math.ceil(tokens))),
      calls: places("calls", concurrency),
      mostCalls: concurrency,
      streams: places("streams", streams),
      mostStreams: streams,
    };
  }

  /** Takes over what the database granted, and answers those who waited. */
  granted(grant: RateGrant, at: number): void {
    if (grant.tokens > 0) this.tokens += grant.tokens;
    this.#shared = grant.remaining;
    this.#sharedAt = at;
    this.places.calls = grant.calls;
    this.places.streams = grant.streams;
    if (this.tokens < this.#counted)
      this.#emptyUntil = at + Math.max(LEAST_REST_MS, (1 - Math.min(1, grant.remaining)) / this.perMs);
    for (const waiter of this.waiting.splice(0, this.#counted)) {
      const { wanted } = waiter;
      if (this.take(wanted, at)) waiter.enter();
      else if (this.tokens < 1 || wanted === "steps") waiter.refuse(this.#tooFast(at));
      else {
        this.#fullUntil[wanted] = at + FULL_REST_MS;
        waiter.refuse(this.#tooMany(wanted));
      }
    }
  }

  /** The database is away: the key's limits hold in this replica alone until it is back. */
  alone(at: number): void {
    const { burst, concurrency, streams } = this.limit;
    const tokens = Math.floor(this.left(at) - this.tokens);
    this.granted({ id: this.id, tokens, remaining: 0, calls: concurrency, streams }, at);
    this.tokens = Math.min(this.tokens, burst);
  }

  /** It holds something that nobody here uses. */
  get holds(): boolean {
    const { calls, streams } = this.places;
    return this.tokens > 0 || calls > this.running.calls || streams > this.running.streams;
  }

  /** Nothing of it needs to be remembered. */
  get isIdle(): boolean {
    return !this.holds && !this.isBusy && this.waiting.length === 0 && !this.asked;
  }

  /** Something of it runs. */
  get isBusy(): boolean {
    return this.running.calls + this.running.streams > 0;
  }

  get #chunk(): number {
    return Math.max(1, Math.ceil(Math.min(this.perMs * 1000, this.limit.burst * SHARE_OF_BURST)));
  }

  #tooFast(at: number): Refusal {
    const { requests, windowS } = this.limit;
    const waitS = Math.max(1, Math.ceil((1 - this.left(at)) / this.perMs / 1000));
    const text = `this caller may send ${requests} requests and steps of control loops in ${windowS} s; try again in ${waitS} s`;
    return refuse(Reason.RATE_LIMIT_EXCEEDED, text, {}, { retryAfter: waitS });
  }

  #tooMany(pool: TokenPool): Refusal {
    const { concurrency, streams } = this.limit;
    const text =
      pool === "calls"
        ? `this key may have ${concurrency} requests running at once; wait for one to end`
        : `this key may have ${streams} streams open at once; close one`;
    return refuse(Reason.CONCURRENCY_LIMIT_EXCEEDED, text, {}, { retryAfter: 1 });
  }
}
