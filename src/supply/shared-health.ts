/** What replicas share about the health of offerings: gossip, rollups, breakers, failures for owners, cold starts. */
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  type Gossip as GossipMessage,
  GossipSchema,
  type OfferingGossip,
  OfferingGossipSchema,
} from "../../gen/limber/replica/v1/gossip_pb.ts";
import { inTime, now, steadyNow } from "../clock.ts";
import { failureWord } from "../contracts/contract.ts";
import { emit } from "../events/emit.ts";
import { newId } from "../ids.ts";
import {
  type AttemptCounts,
  BUCKETS,
  copyOf,
  type HealthTracker,
  type Hearsay,
  type PlanStep,
  since,
  type TroubleListener,
  type Wake,
} from "../routing/index.ts";
import { inSlices, type Sliced } from "../slices.ts";
import type { Notifications } from "../store/database/notifications.ts";
import { type Queryable, type Sql, tx } from "../store/database/tx.ts";
import type { MinuteRecord, TroubleRecord } from "../store/history/series.ts";
import { claimWake, forcedCircuits, giveWakeBack, keepAwake, moveCircuit } from "../store/replicas/replicas.ts";
import { ownerText } from "../upstream/transport/failures.ts";

/** Sends messages to all replicas; they may be lost. */
interface GossipSender {
  /** Present maximum size of a message. */
  readonly mostBytes: number;
  say(message: Uint8Array): Promise<void>;
}

/** Repetitions of each report, since a message may be lost. Counters make repetition harmless. */
const TIMES = 3;
/** Maximum number of offerings per second; the others wait for the next. */
const MOST_AT_ONCE = 5_000;
/** Maximum idle time that is reported. */
const MOST_IDLE_MS = 2 ** 31;

/** The gossip of one replica. */
export class Gossip {
  readonly #replica: string;
  readonly #health: HealthTracker;
  readonly #changed: () => ReadonlySet<string>;
  /** Remaining repetitions of each report. */
  readonly #untold = new Map<string, number>();
  /** By replica: the newest message. */
  readonly #heard = new Map<string, number>();
  #round = 0;
  #telling = false;

  /** `replica` is a name that no later process uses. */
  constructor(replica: string, health: HealthTracker) {
    this.#replica = replica;
    this.#health = health;
    this.#changed = health.watch();
  }

  /** Sends reports on offerings that were called since the last time; sends nothing if there are none. Due once a second. */
  async tell(sender: GossipSender): Promise<void> {
    for (const id of this.#changed()) this.#untold.set(id, TIMES);
    // A call may take longer than its offering stays warm: other replicas must not see it as idle meanwhile.
    for (const id of this.#health.keptAwake) this.#untold.set(id, this.#untold.get(id) ?? 1);
    if (this.#telling || this.#untold.size === 0) return;
    this.#telling = true;
    const messages = await inSlices(this.#messages(sender.mostBytes));
    for (const message of messages) await sender.say(message);
    this.#telling = false;
  }

  /** Handles a message and returns whether another replica sent it. Ignores messages that it cannot read. */
  hear(message: Uint8Array): boolean {
    const told = read(message);
    if (!told || told.replica === this.#replica || told.replica === "") return false;
    // A late message has no effect: its counters are lower, and its consecutive failures have ended.
    if (told.round > (this.#heard.get(told.replica) ?? 0)) {
      this.#heard.delete(told.replica);
      this.#heard.set(told.replica, told.round);
      for (const gone of this.#heard.keys()) if (this.#heard.size > MOST_REPLICAS) this.#heard.delete(gone);
      void inSlices(this.#take(told));
    }
    return true;
  }

  *#take({ replica, offerings }: GossipMessage): Sliced<void> {
    for (const offering of offerings) {
      this.#health.hear(replica, offering.offeringId, hearsayOf(offering), steadyNow());
      yield;
    }
  }

  *#messages(mostBytes: number): Sliced<Uint8Array[]> {
    const messages: Uint8Array[] = [];
    let offerings: OfferingGossip[] = [];
    let bytes = 0;
    const pack = (): void => {
      const message = create(GossipSchema, { replica: this.#replica, round: ++this.#round, offerings });
      messages.push(toBinary(GossipSchema, message));
      offerings = [];
      bytes = 0;
    };
    for (const [id, times] of [...this.#untold].slice(0, MOST_AT_ONCE)) {
      // Reported ones move to the end of the queue, or leave it.
      this.#untold.delete(id);
      const told = this.#health.tell(id, steadyNow());
      if (!told) continue;
      if (times > 1) this.#untold.set(id, times - 1);
      const offering = gossipOf(id, told);
      const size = toBinary(OfferingGossipSchema, offering).length + FRAMING;
      if (bytes + size > mostBytes - ENVELOPE) pack();
      offerings.push(offering);
      bytes += size;
      yield;
    }
    if (offerings.length > 0) pack();
    return messages;
  }
}

/** Maximum number of replicas whose messages are kept. */
const MOST_REPLICAS = 256;
/** Bytes of framing around one offering, and around a message. */
const FRAMING = 6;
const ENVELOPE = 64;

function read(message: Uint8Array): GossipMessage | undefined {
  try {
    return fromBinary(GossipSchema, message);
  } catch {
    return undefined;
  }
}

function gossipOf(
  offeringId: string,
  { tally, consecutive, idleMs, coldMs, unitsPerS, doubted }: Hearsay,
): OfferingGossip {
  const buckets: number[] = [];
  const counts: number[] = [];
  tally.latency.forEach((count, bucket) => {
    if (count === 0) return;
    buckets.push(bucket);
    counts.push(count);
  });
  return create(OfferingGossipSchema, {
    offeringId,
    calls: tally.calls,
    failures: tally.failures,
    consecutive,
    idleMs: Math.round(Math.min(idleMs, MOST_IDLE_MS)),
    buckets,
    counts,
    ...(coldMs !== undefined && { coldMs }),
    ...(unitsPerS !== undefined && { unitsPerS }),
    ...(doubted !== undefined && { doubted: [...doubted] }),
  });
}

function hearsayOf({
  calls,
  failures,
  consecutive,
  idleMs,
  buckets,
  counts,
  coldMs,
  unitsPerS,
  doubted,
}: OfferingGossip): Hearsay {
  const latency = new Uint32Array(BUCKETS);
  buckets.forEach((bucket, i) => {
    if (bucket < BUCKETS) latency[bucket] = counts[i] ?? 0;
  });
  return { tally: { calls, failures, latency }, consecutive, idleMs, coldMs, unitsPerS, doubted };
}

/** The store of rollups. */
interface RollupStore {
  put(records: readonly MinuteRecord[]): Promise<void>;
  /** Recomputes uptimes up to a minute; returns false if another replica is doing so. */
  rollUp(minute: number): Promise<boolean>;
  uptimes(): Promise<Iterable<{ offeringId: string } & Parameters<HealthTracker["setUptime"]>[1]>>;
  /** Latencies of all replicas since a minute. */
  latencies(minute: number): Promise<Iterable<{ offeringId: string; minute: number; latency: ArrayLike<number> }>>;
}

const MINUTE_MS = 60_000;
/** How far back a starting replica reads. */
const RECALLED_MINUTES = 10;
/** Maximum number of offering-minutes kept while the database is down; the oldest are dropped. */
const MOST_WAITING = 50_000;

/** The rollups of one replica. */
export class Rollup {
  readonly #health: HealthTracker;
  readonly #store: RollupStore;
  readonly #changed: () => ReadonlySet<string>;
  /** The counters at the last pass. */
  readonly #seen = new Map<string, AttemptCounts>();
  /** Unwritten counts, by minute and offering. */
  readonly #waiting = new Map<string, MinuteRecord>();
  #lookedAt = now();
  #rolled = 0;
  #ticking = false;

  constructor(health: HealthTracker, store: RollupStore) {
    this.#health = health;
    this.#store = store;
    this.#changed = health.watch();
  }

  /** Loads measurements from before this replica started. */
  async recall(): Promise<void> {
    const minute = minuteAt(now());
    const aMinuteAgo = steadyNow() - MINUTE_MS;
    for (const { offeringId, minute: last, latency } of await this.#store.latencies(minute - RECALLED_MINUTES)) {
      const usedAt = aMinuteAgo - Math.max(0, minute - last - 1) * MINUTE_MS;
      this.#health.recall(offeringId, latency, usedAt, steadyNow());
    }
    await this.#readUptimes();
  }

  /** Collects and writes new counts, and rolls up once a minute. Due every few seconds. */
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
    // Entries that grew meanwhile are other records by now.
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

/** Dependencies of circuits. */
interface CircuitDeps {
  sql: Sql;
  notifications: Notifications;
  health: HealthTracker;
  warn(text: string): void;
}

/** The circuits of one replica. */
export class Circuits {
  readonly #deps: CircuitDeps;
  readonly #off: () => void;
  /** Circuits that an operator forced, by offering, as known to this replica. */
  #forced: ReadonlyMap<string, "open" | "closed"> = new Map();
  /** Writes changes sequentially, so that the last change is the last one written. */
  #writing: Promise<void> = Promise.resolve();

  constructor(deps: CircuitDeps) {
    this.#deps = deps;
    const look = (): void => void this.refresh();
    this.#off = deps.notifications.on("circuit_forced", look, look);
    deps.health.onCircuit = ({ id, simulated }, state) => {
      if (!simulated) this.#writing = this.#writing.then(() => this.#tell(id, state === "opened"));
    };
  }

  /** Loads the operators' decisions; also due when supply changed. A failed read is repeated with the next change. */
  async refresh(): Promise<void> {
    const { sql, health, warn } = this.#deps;
    const forced = await forcedCircuits(sql).catch(() => undefined);
    if (!forced) return warn("failed to read the operator's circuits; the last ones read stay in use");
    const released = [...this.#forced.keys()].filter((id) => !forced.has(id));
    this.#forced = forced;
    for (const id of released) health.force(id, "closed", steadyNow());
    for (const [id, state] of forced) health.force(id, state === "open" ? "forced_open" : "forced_closed", steadyNow());
  }

  /** Writes pending changes and unsubscribes. */
  async close(): Promise<void> {
    this.#off();
    await this.#writing;
  }

  async #tell(offeringId: string, isOpen: boolean): Promise<void> {
    const { sql, warn } = this.#deps;
    await tx(sql, async (tx) => {
      const moved = await moveCircuit(tx, offeringId, isOpen);
      if (!moved) return;
      const { orgId, model, provider } = moved;
      const value = { offeringId, model, provider };
      if (isOpen) await emit(tx, orgId, { case: "offeringCircuitOpened", value });
      else await emit(tx, orgId, { case: "offeringCircuitClosed", value });
    }).catch(() => warn(`failed to publish that the circuit of ${offeringId} ${isOpen ? "opened" : "closed"}`));
  }
}

/** The counters of one replica. */
export class Troubles {
  readonly #put: (records: readonly TroubleRecord[]) => Promise<void>;
  #waiting = new Map<string, TroubleRecord>();
  #writing: Promise<void> = Promise.resolve();

  /** `put` adds counts to the stored ones. */
  constructor(put: (records: readonly TroubleRecord[]) => Promise<void>) {
    this.#put = put;
  }

  /** Counts one. */
  readonly note: TroubleListener = (offeringId, { kind, count, said }) => {
    const word = kind === "hold" ? kind : (failureWord(kind) ?? "");
    const day = new Date(now()).toISOString().slice(0, 10);
    this.#add({ offeringId, day, kind: word, count, said: said === undefined ? null : ownerText(said) || null });
  };

  /** Writes the counts since the last time; on failure they are kept for the next. */
  write(): Promise<void> {
    this.#writing = this.#writing.catch(() => {}).then(() => this.#write());
    return this.#writing;
  }

  async #write(): Promise<void> {
    const records = [...this.#waiting.values()];
    this.#waiting = new Map();
    await this.#put(records).catch((thrown: unknown) => {
      const since = [...this.#waiting.values()];
      this.#waiting = new Map();
      for (const record of [...records, ...since]) this.#add(record);
      throw thrown;
    });
  }

  #add(record: TroubleRecord): void {
    const key = `${record.day} ${record.offeringId} ${record.kind}`;
    const before = this.#waiting.get(key);
    if (!before && this.#waiting.size >= MOST_WAITING) return;
    const { count = 0, said = null } = before ?? {};
    this.#waiting.set(key, { ...record, count: count + record.count, said: record.said ?? said });
  }
}

/** A claim without a response within this time is not charged: a response does not wait longer for the database. */
const CLAIM_MS = 2_000;

/** Maximum wait of a statement for its turn, and its timeout, so that a hanging one does not block later ones. */
const STATEMENT_MS = 2_000;

/** The cold starts that this replica's calls cause. */
export class Wakes {
  readonly #sql: Queryable;
  readonly #health: HealthTracker;
  /** By offering: the last statement, which the next one waits for. */
  readonly #last = new Map<string, Promise<unknown>>();

  constructor(sql: Queryable, health: HealthTracker) {
    this.#sql = sql;
    this.#health = health;
  }

  /** The cold start of an attempt that was just admitted; undefined if another attempt causes it, or the offering is warm. */
  begin({ offering, wakeUpMicro }: PlanStep, at: number): Wake | undefined {
    const { id: offeringId, scaledownS = 0, timeoutMs, coldTimeoutMs = timeoutMs } = offering;
    if (!this.#health.wakes(offeringId, at)) return undefined;
    const sleepsOn = (): void => this.#health.sleepsOn(offeringId);
    // Nothing is charged, by the price list or because the caller uses its own provider key.
    if (wakeUpMicro === 0) return { pays: Promise.resolve(false), answered: () => {}, failed: sleepsOn };
    const warmMs = scaledownS * 1000;
    const waker = newId("req");
    const claim = this.#inTurn(offeringId, () =>
      claimWake(this.#sql, { offeringId, waker, holdMs: coldTimeoutMs + warmMs }),
    );
    const tell = (statement: () => Promise<void>): void => void this.#inTurn(offeringId, statement).catch(() => {});
    return {
      pays: inTime(claim, { ms: CLAIM_MS, late }).catch(() => false),
      answered: () => tell(() => keepAwake(this.#sql, { offeringId, waker, warmMs })),
      failed: () => {
        sleepsOn();
        tell(() => giveWakeBack(this.#sql, { offeringId, waker }));
      },
    };
  }

  /** Statements about one offering reach the database in order. A statement whose turn does not come in time is not sent, and rejects. */
  #inTurn<T>(offeringId: string, statement: () => Promise<T>): Promise<T> {
    const before = this.#last.get(offeringId) ?? Promise.resolve();
    const said = inTime(before.then(done, done), { ms: STATEMENT_MS, late }).then(() =>
      inTime(statement(), { ms: STATEMENT_MS, late }),
    );
    const forget = (): void => {
      if (this.#last.get(offeringId) === said) this.#last.delete(offeringId);
    };
    this.#last.set(offeringId, said);
    said.then(forget, forget);
    return said;
  }
}

const done = (): void => {};
const late = (): Error => new Error("the database did not respond in time");
