/**
 * How often keys may call, and how much of that at once: token buckets and places that all replicas share. A replica takes
 * tokens ahead, so that a warm call asks nobody; taken once they are nobody else's, so that all replicas together let no more
 * in than one would.
 */
import { after, every, now, steadyNow } from "../../ambient.ts";
import { Refusal } from "../../refusal.ts";
import type { RateAsk, RateGrant } from "../../store/account/rates.ts";
import { Bucket, type Limit, type Pool, type Wanted } from "./limits/bucket.ts";

/** What a call took from its key's limits, and what it left. */
export interface Place {
  /** Header names and values in turn: the IETF pair, and OpenRouter's. */
  readonly headers: readonly string[];
  /** The same as lines of HTTP/1. */
  readonly lines: string;
  /** Ends the call; further calls do nothing. */
  leave(): void;
  /** Takes one request for a step of the control loop that runs here, at once when one is at hand. Rejects with 429 when the key has none left. */
  step(): Promise<void> | undefined;
}

/** Asks the database for what many keys need, at once. */
export type TakeRates = (asks: readonly RateAsk[]) => Promise<readonly RateGrant[]>;

/** What isn't used is returned after this long, and looked for this often. */
const IDLE_MS = 2_000;
const TICK_MS = 1_000;
/** Places are renewed this often; it must be well below the life that the store gives them. */
const RENEW_MS = 5_000;
/** No call waits longer than this for what it needs of other replicas. */
const PATIENCE_MS = 1_000;
/** How many keys one question is about at most. */
const MOST_ASKS = 500;

/** The limits of all keys that this process has seen lately. */
export class Limits {
  readonly #take: TakeRates;
  readonly #buckets = new Map<string, Bucket>();
  /** Those that the next question is about, and whether what they hold is to be given back. */
  readonly #asking = new Map<Bucket, { idle: boolean }>();
  #underway: Promise<void> | undefined;
  #untick: () => void;
  #running = 0;
  #whenIdle = (): void => {};

  constructor(take: TakeRates) {
    this.#take = take;
    this.#untick = every(TICK_MS, () => this.#tick());
  }

  /**
   * Takes one request from a key's bucket, at once when one is at hand; a stream takes a place among the streams instead of
   * among the calls. Refuses with 429 and the time after which it would be let in.
   */
  enter(keyId: string, limit: Limit, pool: Pool = "calls"): Place | Promise<Place> {
    const at = steadyNow();
    const bucket = this.#bucketOf(keyId, limit, at);
    const taken = this.#taken(bucket, pool, at);
    return taken ? taken.then(() => this.#place(bucket, pool, steadyNow())) : this.#place(bucket, pool, at);
  }

  /** What a key may do in time has changed: those who are inside go by it from now on. */
  change(keyId: string, limit: Limit): void {
    const bucket = this.#buckets.get(keyId);
    if (!bucket || bucket.limit === limit) return;
    bucket.limit = limit;
    // What was taken ahead may be more than may come at once now.
    bucket.tokens = Math.min(bucket.tokens, limit.burst);
  }

  /** Takes what is wanted, at once where it is at hand; throws or rejects with the refusal. */
  #taken(bucket: Bucket, wanted: Wanted, at: number): Promise<void> | undefined {
    if (bucket.waiting.length === 0) {
      if (bucket.take(wanted, at)) {
        if (bucket.low && !bucket.asked) this.#ask(bucket, false);
        return undefined;
      }
      const refusal = bucket.refusal(wanted, at);
      if (refusal) throw withHeaders(refusal, bucket, at);
    }
    return this.#wait(bucket, wanted);
  }

  /** Waits for the database's answer. Apart from what is asked first: who waits for nothing makes nothing. */
  #wait(bucket: Bucket, wanted: Wanted): Promise<void> {
    return new Promise((resolve, reject) => {
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

  /** What a key has left, and when it has all of it again in unix seconds; asks the database where this replica doesn't know. */
  async left(keyId: string, limit: Limit): Promise<{ remaining: number; resetAt: number }> {
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

  #place(bucket: Bucket, pool: Pool, at: number): Place {
    this.#running += 1;
    return new Held(bucket, at, {
      left: () => {
        bucket.running[pool] -= 1;
        this.#running -= 1;
        if (this.#running === 0) this.#whenIdle();
      },
      step: () => this.#taken(bucket, "steps", steadyNow()),
    });
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
    const late = Promise.withResolvers<undefined>();
    const forget = after(PATIENCE_MS, () => late.resolve(undefined));
    const grants = await Promise.race([this.#take(asks).catch(() => undefined), late.promise]);
    forget();
    return grants;
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

const withHeaders = (refusal: Refusal, bucket: Bucket, at: number): Refusal =>
  new Refusal(refusal.reason, refusal.message, refusal.details, {
    ...(refusal.retryAfter !== undefined && { retryAfter: refusal.retryAfter }),
    headers: headersOf(bucket.limit, standing(bucket, at)),
  });

/** What a key has left, and how long until it has all of it. */
interface Standing {
  left: number;
  fullInS: number;
  resetAt: number;
}

function standing(bucket: Bucket, at: number): Standing {
  const left = bucket.left(at);
  const fullInS = Math.ceil((bucket.limit.burst - left) / bucket.perMs / 1000);
  return { left: Math.floor(left), fullInS, resetAt: Math.ceil(now() / 1000) + fullInS };
}

/** A place that is held. What the limits left when it was taken is written for the face that asks, in its own form. */
class Held implements Place {
  readonly #limit: Limit;
  readonly #standing: Standing;
  readonly #does: { left(): void; step(): Promise<void> | undefined };
  #inside = true;

  constructor(bucket: Bucket, at: number, does: { left(): void; step(): Promise<void> | undefined }) {
    this.#limit = bucket.limit;
    this.#standing = standing(bucket, at);
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

  step(): Promise<void> | undefined {
    return this.#does.step();
  }
}

/** What is said of a limit whatever is left of it; the last two as lines of HTTP/1, about what is left. */
interface Policy {
  policy: string;
  most: string;
  before: string;
  between: string;
}

const policies = new WeakMap<Limit, Policy>();

function policyOf(limit: Limit): Policy {
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

function headersOf(limit: Limit, { left, fullInS, resetAt }: Standing): readonly string[] {
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
