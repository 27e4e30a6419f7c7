/** What this replica measured, written down minute by minute, and what all replicas measured, read back. */

import { now, steadyNow } from "../clock.ts";
import { type AttemptCounts, copyOf, type HealthBoard, since } from "../routing/index.ts";
import { inSlices, type Sliced } from "../slices.ts";
import type { MinuteRecord } from "../store/replicas/rollups.ts";

/** Where rollups are kept. */
export interface RollupStore {
  put(records: readonly MinuteRecord[]): Promise<void>;
  /** Makes uptimes anew up to a minute; false while another replica is at it. */
  rollUp(minute: number): Promise<boolean>;
  uptimes(): Promise<Iterable<{ offeringId: string } & Parameters<HealthBoard["setUptime"]>[1]>>;
  /** Latencies since a minute, of all replicas. */
  latencies(minute: number): Promise<Iterable<{ offeringId: string; minute: number; latency: ArrayLike<number> }>>;
}

const MINUTE_MS = 60_000;
/** How far back a replica looks when it begins. */
const RECALLED_MINUTES = 10;
/** While the database is away, so many offering-minutes wait for it; the oldest are lost beyond. */
const MOST_WAITING = 50_000;

/** The rollups of one replica. */
export class Rollup {
  readonly #health: HealthBoard;
  readonly #store: RollupStore;
  readonly #changed: () => ReadonlySet<string>;
  /** What was counted when it was last looked at. */
  readonly #seen = new Map<string, AttemptCounts>();
  /** What isn't written yet, by minute and offering. */
  readonly #waiting = new Map<string, MinuteRecord>();
  #lookedAt = now();
  #rolled = 0;
  #ticking = false;

  constructor(health: HealthBoard, store: RollupStore) {
    this.#health = health;
    this.#store = store;
    this.#changed = health.watch();
  }

  /** Takes over what was measured before this replica began. */
  async recall(): Promise<void> {
    const minute = minuteAt(now());
    const aMinuteAgo = steadyNow() - MINUTE_MS;
    for (const { offeringId, minute: last, latency } of await this.#store.latencies(minute - RECALLED_MINUTES)) {
      const usedAt = aMinuteAgo - Math.max(0, minute - last - 1) * MINUTE_MS;
      this.#health.recall(offeringId, latency, usedAt, steadyNow());
    }
    await this.#readUptimes();
  }

  /** Looks at what was counted since the last look, writes it, and once a minute rolls up. Due every few seconds. */
  async tick(): Promise<void> {
    if (this.#ticking) return;
    this.#ticking = true;
    await this.#write().finally(() => {
      this.#ticking = false;
    });
  }

  async #write(): Promise<void> {
    await inSlices(this.#look());
    const records = [...this.#waiting.values()];
    const minute = minuteAt(now());
    await this.#store.put(records);
    // What was added to meanwhile is another record by now.
    for (const record of records) {
      const key = keyOf(record);
      if (record.minute < minute && this.#waiting.get(key) === record) this.#waiting.delete(key);
    }
    if (minute === this.#rolled) return;
    await this.#store.rollUp(minute);
    this.#rolled = minute;
    await this.#readUptimes();
  }

  *#look(): Sliced<void> {
    const [at, minute] = [now(), minuteAt(now())];
    const passedMs = Math.max(0, Math.min(at - this.#lookedAt, MINUTE_MS));
    this.#lookedAt = at;
    for (const id of this.#changed()) {
      const tally = this.#health.tell(id, steadyNow())?.tally;
      if (tally) {
        this.#count(minute, id, since(this.#seen.get(id), tally), 0);
        this.#seen.set(id, copyOf(tally));
      }
      yield;
    }
    for (const id of this.#health.resting()) {
      this.#count(minute, id, NOTHING, passedMs);
      yield;
    }
    for (const key of this.#waiting.keys()) {
      if (this.#waiting.size <= MOST_WAITING) break;
      this.#waiting.delete(key);
    }
  }

  #count(minute: number, offeringId: string, news: AttemptCounts, restedMs: number): void {
    const key = keyOf({ minute, offeringId });
    const before = this.#waiting.get(key);
    const latency = Array.from(news.latency, (count, i) => count + (before?.latency[i] ?? 0));
    this.#waiting.set(key, {
      minute,
      offeringId,
      calls: news.calls + (before?.calls ?? 0),
      failures: news.failures + (before?.failures ?? 0),
      restedMs: Math.min(MINUTE_MS, restedMs + (before?.restedMs ?? 0)),
      latency: latency.length > 0 ? latency : (before?.latency ?? []),
    });
  }

  async #readUptimes(): Promise<void> {
    for (const uptime of await this.#store.uptimes()) this.#health.setUptime(uptime.offeringId, uptime, steadyNow());
  }
}

const NOTHING: AttemptCounts = { calls: 0, failures: 0, latency: new Uint32Array() };

const minuteAt = (ms: number): number => Math.floor(ms / MINUTE_MS);

const keyOf = ({ minute, offeringId }: Pick<MinuteRecord, "minute" | "offeringId">): string =>
  `${minute} ${offeringId}`;
