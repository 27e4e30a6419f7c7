/**
 * How often keys may call, and how much of that at once: token buckets and places that all replicas share. A replica takes
 * tokens ahead, so that a warm call needs no query; they are taken from the shared bucket first, so that all replicas together let no more
 * in than one would.
 */
import type { StepLimit } from "../../call.ts";
import type { Signal } from "../../cancellation.ts";
import { every, inTime, ioClock, now, sleep, steadyNow } from "../../clock.ts";
import { Reason, Refusal, refuse } from "../../errors.ts";
import type { RateAsk, RateGrant } from "../../store/account/rates.ts";

/** What a call took from its key's limits, and what it left. The steps of a control loop that runs here are counted by it. */
export interface ConcurrencySlot extends StepLimit {
  /** Header names and values in turn: the IETF pair, and OpenRouter's. */
  readonly headers: readonly string[];
  /** The same as lines of HTTP/1. */
  readonly lines: string;
  /** Ends the call; further calls do nothing. */
  leave(): void;
  /** Of work that waits: gives all of it back, because nothing began. */
  unused(): void;
}

/** A key and its limits. */
export interface KeyLimit {
  readonly id: string;
  readonly limit: Limit;
}

/** What work that waits was given of a key's limits, and after how many milliseconds there may be more. */
interface Spared {
  readonly places: ConcurrencySlot[];
  readonly againMs: number;
}

/** Asks the database for what many keys need, at once. */
type TakeRates = (asks: readonly RateAsk[]) => Promise<readonly RateGrant[]>;

/** What isn't used is returned after this long, and looked for this often. */
const IDLE_MS = 2_000;
const TICK_MS = 1_000;
/** Places are renewed this often; it must be well below the life that the store gives them. */
const RENEW_MS = 5_000;
/** No call waits longer than this for what it needs of other replicas. */
const PATIENCE_MS = 1_000;
/** How many keys one question is about at most. */
const MOST_ASKS = 500;
/** A limit may be raised meanwhile: waiting calls check again this often. */
const LOOK_MS = 1_000;
/** Who is not the first to wait for a key looks again this often. */
const QUEUE_MS = 10;

/** The limits of all keys that this process has seen lately. */
export class RateLimits {
  readonly #takeRates: TakeRates;
  readonly #buckets = new Map<string, Bucket>();
  /** Those that the next question is about, and whether what they hold is to be given back. */
  readonly #asking = new Map<Bucket, { idle: boolean }>();
  #underway: Promise<void> | undefined;
  /** Calls that wait for a turn of a key, in order. */
  readonly #turns = new Map<string, object[]>();
  #untick: () => void;
  #running = 0;
  #whenIdle = (): void => {};

  constructor(take: TakeRates) {
    this.#takeRates = take;
    this.#untick = every(TICK_MS, () => this.#tick());
  }

  /**
   * Takes one request from a key's bucket, without a query if one is available; a stream takes a place among the streams
   * instead of among the calls. A key that descends from others takes from their buckets too. Rejects with 429 and the time after which it
   * would be let in.
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
   * Takes up to `most` requests for background work, from a key and all that it descends from, and none of the last quarter of any
   * of their limits. Such work does not count as running.
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
   * Waits until `spare` gives a place; rejects when the signal is aborted. Those who wait for one key are served in the order in which they
   * came.
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

  /** What a key may do in time has changed: those who are inside go by it from now on. */
  change(keyId: string, limit: Limit): void {
    const bucket = this.#buckets.get(keyId);
    if (!bucket || bucket.limit === limit) return;
    bucket.limit = limit;
    // What was taken ahead may be more than may come at once now.
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
   * What is left to a key, and when it has all of it again in unix seconds: the least of what it has itself and what those have that it
   * descends from. Asks the database where this replica doesn't know.
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

  /** Returns what was taken ahead. */
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

  /** Enters by a key's bucket and those of all that it descends from. */
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

  /** Takes what is wanted from each bucket in turn. Where one refuses, the others get back what they gave. */
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
    const before = this.#asking.get(bucket);
    this.#asking.set(bucket, { idle: idle && before?.idle !== false });
    this.#underway ??= this.#run();
  }

  /** One question at a time; those that come meanwhile share the next one. */
  async #run(): Promise<void> {
    // Everything that this turn of the event loop brings shares the question.
    await new Promise(setImmediate);
    while (this.#asking.size > 0) {
      const round = [...this.#asking].slice(0, MOST_ASKS);
      const at = steadyNow();
      const asks = round.map(([bucket, { idle }]) => {
        this.#asking.delete(bucket);
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

  /** What the database says; undefined when it doesn't, or too late. */
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

/** Why a bucket without waiting calls is empty: the database's last answer still holds. Undefined if it might have tokens. */
function refusalOf(bucket: Bucket, wanted: WantedTokens, at: number): Refusal | undefined {
  const refusal = bucket.waiting.length === 0 ? bucket.refusal(wanted, at) : undefined;
  return refusal && withHeaders(refusal, bucket, at);
}

const withHeaders = (refusal: Refusal, bucket: Bucket, at: number): Refusal =>
  new Refusal(refusal.reason, refusal.message, refusal.details, {
    ...(refusal.retryAfter !== undefined && { retryAfter: refusal.retryAfter }),
    headers: headersOf(bucket.limit, standing(bucket, at)),
  });

/** What a key has left, and how long until it has all of it. */
interface RateStanding {
  left: number;
  fullInS: number;
  resetAt: number;
}

/** What is left to a key, and when it has all of it again in unix seconds. */
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

/** A place that is held. What the limits left when it was taken is written for the transport that asks, in its own form. */
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

/** What a place does to the buckets that it was taken from. */
interface Does extends StepLimit {
  left(): void;
  /** Of work that waits. */
  unused?(): void;
}

/** What is said of a limit whatever is left of it; the last two as lines of HTTP/1, about what is left. */
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
type WantedTokens = TokenPool | "steps";

/** A call or a step that waits for the database's answer. */
interface TokenWaiter {
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
class Bucket {
  readonly id: string;
  limit: Limit;
  /** Available tokens. */
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

  /** Takes a token and a place, if both are available. */
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

  /** Why a call that found no token is refused without a query; undefined: the database decides. */
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

  /** It holds something that no call here uses. */
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
