/**
 * Failures of one offering that the callers' input may have caused. Each waits for one of another organisation, and the two count then;
 * failures of one organisation alone count where the offering fails a question of known-good input too.
 */
import { type Breaker, type BreakerEvent, reduce } from "./breaker.ts";

/** How long a failure waits for another. */
const WAIT_MS = 30_000;
/** Organisations whose failures wait, and those of other replicas; with one more the oldest is forgotten. */
const MOST_CALLERS = 8;
const MOST_HEARD = 32;
/** Milliseconds between two questions to one offering, and after one that was answered well. */
const ASK_MS = 1_000;
const ASK_AGAIN_MS = 5_000;

/** Failures of one organisation that wait: what stands for its name at other replicas, and how many. */
export interface Doubted {
  readonly caller: number;
  readonly count: number;
}

interface Waiting {
  count: number;
  at: number;
}

/** What waits at one offering. */
export class Doubts {
  /** By organisation; the newest last. */
  readonly #waiting = new Map<string, Waiting>();
  /** Of other replicas, by what stands for the organisation there; how many of them have counted here. */
  readonly #heard = new Map<number, Waiting & { used: number }>();
  /** The breaker as it would be if all of them counted; undefined while it would be as it is. */
  #supposed: Breaker | undefined;
  #asking = false;
  #askAfter = Number.NEGATIVE_INFINITY;

  /**
   * Takes in a failure of an organisation. Answers how many failures count because of it: two with one that waited here, one with one that
   * waits at another replica, none while it waits itself.
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

  /** What else happens to the breaker. One call that succeeds shows that the offering serves: nothing is supposed of it then. */
  follow(event: BreakerEvent, after: Breaker, random: () => number): void {
    const supposed = this.#supposed;
    if (!supposed) return;
    const serves = event.kind === "succeeded" && supposed.state !== "closed";
    this.#supposed = after.state !== "closed" || serves ? undefined : reduce(supposed, event, random);
  }

  /** Whether the breaker would be open if all counted, so that a question is due. */
  isAskDue(now: number): boolean {
    return this.#supposed?.state === "open" && this.mayAsk(now);
  }

  /** Whether the last question is over, and long enough ago. */
  mayAsk(now: number): boolean {
    return !this.#asking && now >= this.#askAfter;
  }

  /** A question begins. */
  ask(): void {
    this.#asking = true;
  }

  /**
   * What came of the question. Answers how many failures it makes count, undefined where it changes nothing: it was not answered either way, or a
   * call has succeeded meanwhile.
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
    // What is its caller's own still waits for another caller's: the question may have been easier than what both ask.
    if (verdict === "succeeded") return undefined;
    this.#waiting.clear();
    return supposed?.state === "open" ? count : undefined;
  }

  /** What another replica has waiting. */
  hear(told: readonly Doubted[], at: number): void {
    for (const { caller, count } of told) {
      const before = this.#heard.get(caller);
      this.#heard.delete(caller);
      this.#heard.set(caller, { count: Math.max(before?.count ?? 0, count), at, used: before?.used ?? 0 });
    }
    for (const oldest of this.#heard.keys()) if (this.#heard.size > MOST_HEARD) this.#heard.delete(oldest);
  }

  /** What waits here. */
  tell(now: number): Doubted[] {
    this.#forget(now);
    return Array.from(this.#waiting, ([orgId, { count }]) => ({ caller: tagOf(orgId), count }));
  }

  #forget(now: number): void {
    for (const [orgId, { at }] of this.#waiting) if (now - at >= WAIT_MS) this.#waiting.delete(orgId);
    for (const [tag, { at }] of this.#heard) if (now - at >= WAIT_MS) this.#heard.delete(tag);
  }
}

/** What stands for an organisation at other replicas: FNV-1a, 32 bits. Two organisations that share it are taken for one. */
function tagOf(orgId: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < orgId.length; i++) hash = Math.imul(hash ^ orgId.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}
