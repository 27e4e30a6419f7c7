/**
 * Rate and concurrency limits of keys: token buckets and slots that all replicas share. A replica takes tokens in advance, so that a warm call
 * needs no query. They come from the shared bucket first, so all replicas together admit no more than one would.
 */
import type { StepLimit } from "../../call.ts";
import type { Signal } from "../../cancellation.ts";
import { every, inTime, ioClock, now, sleep, steadyNow } from "../../clock.ts";
import { Reason, Refusal, refuse } from "../../errors.ts";
import type { RateAsk, RateGrant } from "../../store/account/rates.ts";

/** A call's part of its key's limits, and the remaining limits. Counts the steps of a control loop on this replica. */
export interface ConcurrencySlot extends StepLimit {
  /** Header names and values alternating: the IETF pair, and OpenRouter's. */
  readonly headers: readonly string[];
  /** The same as lines of HTTP/1. */
  readonly lines: string;
  /** Ends the call; further calls do nothing. */
  leave(): void;
  /** For background work: returns all of it, because nothing started. */
  unused(): void;
}

/** A key and its limits. */
export interface KeyLimit {
  readonly id: string;
  readonly limit: Limit;
}

/** A reservation of background work in a key's limits, and the milliseconds until more may be available. */
interface Spared {
  readonly places: ConcurrencySlot[];
  readonly againMs: number;
}

/** Queries the database for the needs of many keys at once. */
type TakeRates = (asks: readonly RateAsk[]) => Promise<readonly RateGrant[]>;

/** Unused tokens are returned after this time, and checked at this interval. */
const IDLE_MS = 2_000;
const TICK_MS = 1_000;
/** The renewal interval of slots; must be well below their lifetime in the store. */
const RENEW_MS = 5_000;
/** The longest wait of a call for limits that other replicas hold. */
const PATIENCE_MS = 1_000;
/** The most keys per query. */
const MOST_ASKS = 500;
/** A limit may be raised meanwhile: waiting calls check again this often. */
const LOOK_MS = 1_000;
/** A waiter that is not the first for its key checks at this interval. */
const QUEUE_MS = 10;

/** The limits of all recently used keys in this process. */
export class RateLimits {
  readonly #takeRates: TakeRates;
  readonly #buckets = new Map<string, Bucket>();
  /** The keys of the next query, and whether to return what they hold. */
  readonly #queried = new Map<Bucket, { idle: boolean }>();
  #underway: Promise<void> | undefined;
  /** Background calls waiting for a key, in order. */
  readonly #turns = new Map<string, object[]>();
  #untick: () => void;
  #running = 0;
  #whenIdle = (): void => {};

  constructor(take: TakeRates) {
    this.#takeRates = take;
    this.#untick = every(TICK_MS, () => this.#tick());
  }

  /**
   * Takes one request from a key's bucket, without a query if one is available. A stream takes a stream slot instead of a call slot. Also takes
   * from the buckets of the key's ancestors. Rejects with 429 and the time after which it would be admitted.
   */
  async enter(
    keyId: string,
    limit: Limit,
    pool: TokenPool = "calls",
    above: readonly KeyLimit[] = ALONE,
  ): Promise<ConcurrencySlot> {
    if (above.length > 0) return this.#enterLine([{ id: keyId, limit }, ...above], pool);
    const at = steadyNow();
    const bucket = this.#bucketOf(keyId, limit, at);
    if (this.#tryTake(bucket, pool, at)) return this.#place(bucket, pool, at);
    await this.#wait(bucket, pool);
    return this.#place(bucket, pool, steadyNow());
  }

  /**
   * Takes up to `most` requests for background work, from a key and all its ancestors, leaving the last quarter of each limit unused. Such work
   * does not count as running.
   */
  async spare(line: readonly KeyLimit[], most: number): Promise<Spared> {
    const places: ConcurrencySlot[] = [];
    while (places.length < most) {
      const at = steadyNow();
      const againMs = Math.max(...line.map(({ id, limit }) => this.#bucketOf(id, limit, at).spareIn(at)));
      if (againMs > 0) return { places, againMs };
      try {
        places.push(await this.#enterLine(line, "calls", false));
      } catch (thrown) {
        if (!(thrown instanceof Refusal)) {
          for (const place of places) place.unused();
          throw thrown;
        }
        return { places, againMs: 1000 * (thrown.retryAfter ?? 1) };
      }
    }
    return { places, againMs: 0 };
  }

  /**
   * Waits until `spare` grants a request; rejects if the signal is aborted. Waiters for one key are served in arrival order.
   */
  async turn(line: readonly KeyLimit[], signal: Signal): Promise<ConcurrencySlot> {
    const id = line[0]?.id ?? "";
    const queue = this.#turns.get(id) ?? [];
    const own = {};
    queue.push(own);
    this.#turns.set(id, queue);
    try {
      for (;;) {
        signal.throwIfAborted();
        let restMs = QUEUE_MS;
        if (queue[0] === own) {
          const { places, againMs } = await this.spare(line, 1);
          if (places[0]) return places[0];
          restMs = Math.min(againMs, LOOK_MS);
        }
        await sleep(restMs, signal);
      }
    } finally {
      queue.splice(queue.indexOf(own), 1);
      if (queue.length === 0) this.#turns.delete(id);
    }
  }

  /** Applies changed limits of a key, also to its running calls. */
  change(keyId: string, limit: Limit): void {
    const bucket = this.#buckets.get(keyId);
    if (!bucket || bucket.limit === limit) return;
    bucket.limit = limit;
    // Tokens taken in advance may exceed the new burst.
    bucket.tokens = Math.min(bucket.tokens, limit.burst);
  }

  /** Takes the request if it is available and no call waits for it. */
  #tryTake(bucket: Bucket, wanted: WantedTokens, at: number): boolean {
    if (bucket.waiting.length > 0 || !bucket.take(wanted, at)) return false;
    if (bucket.low && !bucket.asked) this.#ask(bucket, false);
    return true;
  }

  /** Takes the request, from the database if it is not available here; rejects with the refusal. */
  async #take(bucket: Bucket, wanted: WantedTokens): Promise<void> {
    if (!this.#tryTake(bucket, wanted, steadyNow())) await this.#wait(bucket, wanted);
  }

  async #wait(bucket: Bucket, wanted: WantedTokens): Promise<void> {
    const refusal = refusalOf(bucket, wanted, steadyNow());
    if (refusal) throw refusal;
    await new Promise<void>((resolve, reject) => {
      bucket.waiting.push({
        wanted,
        enter: resolve,
        refuse: (why) => reject(why instanceof Refusal ? withHeaders(why, bucket, steadyNow()) : why),
      });
      this.#ask(bucket, false);
    });
  }

  /** Calls that are running. */
  get running(): number {
    return this.#running;
  }

  /** Resolves as soon as no call is running. */
  idle(): Promise<void> {
    return new Promise((resolve) => {
      this.#whenIdle = resolve;
      if (this.#running === 0) resolve();
    });
  }

  /**
   * The remaining limit of a key, and when it is full again in unix seconds: the smallest among the key and its ancestors. Queries the database
   * if unknown on this replica.
   */
  async left(keyId: string, limit: Limit, above: readonly KeyLimit[] = ALONE): Promise<RateLeft> {
    const all = await Promise.all([this.#leftOf(keyId, limit), ...above.map((key) => this.#leftOf(key.id, key.limit))]);
    return all.reduce((least, each) => (each.remaining < least.remaining ? each : least));
  }

  async #leftOf(keyId: string, limit: Limit): Promise<RateLeft> {
    const known = this.#buckets.get(keyId);
    const bucket = known ?? new Bucket(keyId, limit, steadyNow());
    if (!known) {
      const nothing = { ...bucket.ask(steadyNow(), false), tokens: 0, calls: 0, streams: 0 };
      const grant = (await this.#answer([nothing]))?.[0];
      if (grant) bucket.granted(grant, steadyNow());
    }
    const { left, resetAt } = standing(bucket, steadyNow());
    return { remaining: left, resetAt };
  }

  /** Returns tokens taken in advance. */
  async close(): Promise<void> {
    this.#untick();
    for (const bucket of this.#buckets.values()) this.#ask(bucket, true);
    while (this.#underway) await this.#underway;
  }

  #place(bucket: Bucket, pool: TokenPool, at: number): ConcurrencySlot {
    this.#running += 1;
    return new HeldSlot(bucket, standing(bucket, at), {
      left: () => {
        bucket.running[pool] -= 1;
        this.#ended();
      },
      tryStep: () => this.#tryTake(bucket, "steps", steadyNow()),
      waitStep: () => this.#take(bucket, "steps"),
    });
  }

  #ended(): void {
    this.#running -= 1;
    if (this.#running === 0) this.#whenIdle();
  }

  /** Takes from the buckets of a key and all its ancestors. */
  async #enterLine(line: readonly KeyLimit[], pool: TokenPool, counts = true): Promise<ConcurrencySlot> {
    const at = steadyNow();
    const buckets = line.map(({ id, limit }) => this.#bucketOf(id, limit, at));
    await this.#takeLine(buckets, pool);
    return this.#placeOfLine(buckets, pool, counts);
  }

  #placeOfLine(buckets: readonly Bucket[], pool: TokenPool, counts = true): ConcurrencySlot {
    if (counts) this.#running += 1;
    return new HeldSlot(buckets[0]!, leastStanding(buckets, steadyNow()), {
      left: () => {
        for (const bucket of buckets) bucket.running[pool] -= 1;
        if (counts) this.#ended();
      },
      unused: () => {
        for (const bucket of buckets) bucket.putBack(pool);
        if (counts) this.#ended();
      },
      tryStep: () => this.#tryTakeLine(buckets, "steps"),
      waitStep: () => this.#takeLine(buckets, "steps"),
    });
  }

  /** Takes the request from each bucket if all of them have it available; otherwise from none. */
  #tryTakeLine(buckets: readonly Bucket[], wanted: WantedTokens): boolean {
    const lacking = buckets.findIndex((bucket) => !this.#tryTake(bucket, wanted, steadyNow()));
    if (lacking < 0) return true;
    for (const each of buckets.slice(0, lacking)) each.putBack(wanted);
    return false;
  }

  /** Takes from each bucket in turn. If one refuses, the others take back what they gave. */
  async #takeLine(buckets: readonly Bucket[], wanted: WantedTokens): Promise<void> {
    let taken = 0;
    try {
      for (const bucket of buckets) {
        await this.#take(bucket, wanted);
        taken++;
      }
    } catch (refusal) {
      for (const each of buckets.slice(0, taken)) each.putBack(wanted);
      throw refusal;
    }
  }

  #bucketOf(keyId: string, limit: Limit, at: number): Bucket {
    const known = this.#buckets.get(keyId);
    if (known) {
      known.limit = limit;
      return known;
    }
    const bucket = new Bucket(keyId, limit, at);
    this.#buckets.set(keyId, bucket);
    return bucket;
  }

  #ask(bucket: Bucket, idle: boolean): void {
    bucket.asked = true;
    const before = this.#queried.get(bucket);
    this.#queried.set(bucket, { idle: idle && before?.idle !== false });
    this.#underway ??= this.#run();
  }

  /** One query at a time; later needs share the next one. */
  async #run(): Promise<void> {
    // All needs of this event loop turn share the query.
    await new Promise(setImmediate);
    while (this.#queried.size > 0) {
      const round = [...this.#queried].slice(0, MOST_ASKS);
      const at = steadyNow();
      const asks = round.map(([bucket, { idle }]) => {
        this.#queried.delete(bucket);
        bucket.asked = false;
        return bucket.ask(at, idle && bucket.waiting.length === 0);
      });
      const grants = await this.#answer(asks);
      const granted = new Map(grants?.map((grant) => [grant.id, grant]));
      for (const [bucket] of round) {
        const grant = granted.get(bucket.id);
        if (grant) bucket.granted(grant, steadyNow());
        else bucket.alone(steadyNow());
      }
    }
    this.#underway = undefined;
  }

  /** The database's response; undefined if it fails or is late. */
  async #answer(asks: readonly RateAsk[]): Promise<readonly RateGrant[] | undefined> {
    return inTime(this.#takeRates(asks), { ms: PATIENCE_MS, on: ioClock, late: () => undefined }).catch(
      () => undefined,
    );
  }

  #tick(): void {
    const at = steadyNow();
    for (const [id, bucket] of this.#buckets) {
      const idle = at - bucket.usedAt >= IDLE_MS;
      if (idle && bucket.holds) this.#ask(bucket, true);
      else if (bucket.isBusy && at - bucket.renewedAt >= RENEW_MS) this.#ask(bucket, idle);
      else if (idle && bucket.isIdle) this.#buckets.delete(id);
    }
  }
}

/** Why a bucket without waiting calls is empty: the database's last response still holds. Undefined if it might have tokens. */
function refusalOf(bucket: Bucket, wanted: WantedTokens, at: number): Refusal | undefined {
  const refusal = bucket.waiting.length === 0 ? bucket.refusal(wanted, at) : undefined;
  return refusal && withHeaders(refusal, bucket, at);
}

const withHeaders = (refusal: Refusal, bucket: Bucket, at: number): Refusal =>
  new Refusal(refusal.reason, refusal.message, refusal.details, {
    ...(refusal.retryAfter !== undefined && { retryAfter: refusal.retryAfter }),
    headers: headersOf(bucket.limit, standing(bucket, at)),
  });

/** The remaining limit of a key, and the time until it is full. */
interface RateStanding {
  left: number;
  fullInS: number;
  resetAt: number;
}

/** The remaining limit of a key, and when it is full again in unix seconds. */
interface RateLeft {
  remaining: number;
  resetAt: number;
}

const ALONE: readonly KeyLimit[] = [];

const leastStanding = (buckets: readonly Bucket[], at: number): RateStanding =>
  buckets.map((bucket) => standing(bucket, at)).reduce((least, each) => (each.left < least.left ? each : least));

function standing(bucket: Bucket, at: number): RateStanding {
  const left = bucket.left(at);
  const fullInS = Math.ceil((bucket.limit.burst - left) / bucket.perMs / 1000);
  return { left: Math.floor(left), fullInS, resetAt: Math.ceil(now() / 1000) + fullInS };
}

/** A held slot. The remaining limits at its start are formatted for the requesting transport. */
class HeldSlot implements ConcurrencySlot {
  readonly #limit: Limit;
  readonly #standing: RateStanding;
  readonly #does: Does;
  #inside = true;

  constructor({ limit }: Bucket, standing: RateStanding, does: Does) {
    this.#limit = limit;
    this.#standing = standing;
    this.#does = does;
  }

  get headers(): readonly string[] {
    return headersOf(this.#limit, this.#standing);
  }

  get lines(): string {
    const { left, fullInS, resetAt } = this.#standing;
    const { before, between } = policyOf(this.#limit);
    return `${before}${left};t=${fullInS}${between}${left}\r\nx-ratelimit-reset: ${resetAt}\r\n`;
  }

  leave(): void {
    if (!this.#inside) return;
    this.#inside = false;
    this.#does.left();
  }

  unused(): void {
    if (!this.#inside) return;
    this.#inside = false;
    this.#does.unused?.();
  }

  tryStep(): boolean {
    return this.#does.tryStep();
  }

  waitStep(): Promise<void> {
    return this.#does.waitStep();
  }
}

/** The handlers of a slot in the buckets that it came from. */
interface Does extends StepLimit {
  left(): void;
  /** For background work. */
  unused?(): void;
}

/** The constant headers of a limit; the last two as HTTP/1 lines, with placeholders for the remaining limit. */
interface RatePolicy {
  policy: string;
  most: string;
  before: string;
  between: string;
}

const policies = new WeakMap<Limit, RatePolicy>();

function policyOf(limit: Limit): RatePolicy {
  let said = policies.get(limit);
  if (said === undefined) {
    const policy = `"key";q=${limit.requests};w=${limit.windowS}`;
    const most = String(limit.requests);
    const before = `ratelimit-policy: ${policy}\r\nratelimit: "key";r=`;
    said = { policy, most, before, between: `\r\nx-ratelimit-limit: ${most}\r\nx-ratelimit-remaining: ` };
    policies.set(limit, said);
  }
  return said;
}

function headersOf(limit: Limit, { left, fullInS, resetAt }: RateStanding): readonly string[] {
  const { policy, most } = policyOf(limit);
  return [
    "ratelimit-policy",
    policy,
    "ratelimit",
    `"key";r=${left};t=${fullInS}`,
    "x-ratelimit-limit",
    most,
    "x-ratelimit-remaining",
    String(left),
    "x-ratelimit-reset",
    String(resetAt),
  ];
}

/** The rate limits of one key. */
export interface Limit {
  /** Requests per window; a control-loop step counts as one. */
  requests: number;
  /** The window, in seconds. */
  windowS: number;
  /** The burst of requests. */
  burst: number;
  /** Concurrent requests. */
  concurrency: number;
  /** Concurrent streams. */
  streams: number;
}

/** The kinds of slots: short calls, and streams. */
export type TokenPool = "calls" | "streams";
/** What takes a token: a call or a stream with its slot, or a step of a control loop, whose stream has the slot. */
type WantedTokens = TokenPool | "steps";

/** A call or step that waits for the database's response. */
interface TokenWaiter {
  readonly wanted: WantedTokens;
  enter(): void;
  refuse(why: unknown): void;
}

/** Tokens that a replica takes in advance: about a second's worth, and only a small part of the burst. */
const SHARE_OF_BURST = 1 / 8;
/** The shortest delay of the next query after a refusal for lack of tokens. */
const LEAST_REST_MS = 50;
/** The same after a refusal for lack of slots. */
const FULL_REST_MS = 100;
/** Slots taken in advance: a share of all, so that few are withheld from replicas that need them. */
const SPARE_SHARE = 1 / 16;
/** The most slots taken in advance: other replicas cannot use a dead replica's slots for a while. */
const MOST_SPARE = 64;

/** One key on one replica. Times are on the monotonic clock in milliseconds. */
class Bucket {
  readonly id: string;
  limit: Limit;
  /** Available tokens. */
  tokens = 0;
  readonly running = { calls: 0, streams: 0 };
  /** Slots that this replica can use. */
  readonly places = { calls: 0, streams: 0 };
  waiting: TokenWaiter[] = [];
  /** Whether the next query includes it. */
  asked = false;
  usedAt = 0;
  renewedAt = 0;
  #shared: number;
  #sharedAt: number;
  #emptyUntil = 0;
  /** The number of waiters that the running query covers; later ones are for the next. */
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

  /** The key's remaining tokens, here and in the shared bucket, as far as known here. */
  left(at: number): number {
    const { burst } = this.limit;
    const shared = Math.min(burst, this.#shared + (at - this.#sharedAt) * this.perMs);
    return Math.min(burst, this.tokens + shared);
  }

  /** Takes a token and a slot, if both are available. */
  take(wanted: WantedTokens, at: number): boolean {
    this.usedAt = at;
    if (this.tokens < 1 || this.#isFull(wanted)) return false;
    this.tokens -= 1;
    if (wanted !== "steps") this.running[wanted] += 1;
    return true;
  }

  /** Returns the token and slot of a call that did not start. */
  putBack(wanted: WantedTokens): void {
    this.tokens = Math.min(this.limit.burst, this.tokens + 1);
    if (wanted !== "steps") this.running[wanted] -= 1;
  }

  /**
   * How long background work must leave the key alone, in milliseconds; 0 if it can take a token and a slot. A quarter of both is reserved for
   * calls with a waiting client.
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

  /** Why a call without a token is refused without a query; undefined if the database decides. */
  refusal(wanted: WantedTokens, at: number): Refusal | undefined {
    if (this.tokens < 1 && at < this.#emptyUntil) return this.#tooFast(at);
    if (wanted !== "steps" && this.#isFull(wanted) && at < this.#fullUntil[wanted]) return this.#tooMany(wanted);
    return undefined;
  }

  /** Whether to take tokens in advance now. */
  get low(): boolean {
    return this.tokens < this.#chunk / 2;
  }

  /** The needs for the next query. */
  ask(at: number, idle: boolean): RateAsk {
    const { burst, concurrency, streams } = this.limit;
    const waiting = { calls: 0, streams: 0, steps: 0 };
    for (const { wanted } of this.waiting) waiting[wanted]++;
    const rests = at < this.#emptyUntil;
    const tokens = idle ? -this.tokens : rests ? 0 : this.waiting.length + this.#chunk - this.tokens;
    // Returned at once: later needs are queried again.
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

  /** Applies what the database granted, and resolves the waiters. */
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

  /** The database is unavailable: the key's limits apply only on this replica until it returns. */
  alone(at: number): void {
    const { burst, concurrency, streams } = this.limit;
    const tokens = Math.floor(this.left(at) - this.tokens);
    this.granted({ id: this.id, tokens, remaining: 0, calls: concurrency, streams }, at);
    this.tokens = Math.min(this.tokens, burst);
  }

  /** Whether it holds anything that no call here uses. */
  get holds(): boolean {
    const { calls, streams } = this.places;
    return this.tokens > 0 || calls > this.running.calls || streams > this.running.streams;
  }

  /** Whether it can be dropped. */
  get isIdle(): boolean {
    return !this.holds && !this.isBusy && this.waiting.length === 0 && !this.asked;
  }

  /** Whether any of its calls are running. */
  get isBusy(): boolean {
    return this.running.calls + this.running.streams > 0;
  }

  get #chunk(): number {
    return Math.max(1, Math.ceil(Math.min(this.perMs * 1000, this.limit.burst * SHARE_OF_BURST)));
  }

  #tooFast(at: number): Refusal {
    const { requests, windowS } = this.limit;
    const waitS = Math.max(1, Math.ceil((1 - this.left(at)) / this.perMs / 1000));
    const text = `the limit is ${requests} requests and control-loop steps in ${windowS} s; retry in ${waitS} s`;
    return refuse(Reason.RATE_LIMIT_EXCEEDED, text, {}, { retryAfter: waitS });
  }

  #tooMany(pool: TokenPool): Refusal {
    const { concurrency, streams } = this.limit;
    const text =
      pool === "calls"
        ? `this key is limited to ${concurrency} concurrent requests; wait for one to finish`
        : `this key is limited to ${streams} open streams; close one`;
    return refuse(Reason.CONCURRENCY_LIMIT_EXCEEDED, text, {}, { retryAfter: 1 });
  }
}
