/** A credit leaser's access to the ledger: batches in, credit out. The database enforces the rules, in `schema/04_ledger.sql`. */
import postgres from "postgres";
import { steadyNow } from "../../clock.ts";
import type { Notifications } from "../database/notifications.ts";
import type { Sql } from "../database/tx.ts";
import type { EventRecord } from "../events/outbox.ts";

/** What is known of a request when it is dispatched. */
export interface IntentRecord {
  orgId: string;
  requestId: string;
  keyId: string;
  /** `act`, `predict`, `ground` or `evaluate`; for records without a call also `preview` or `batch`. */
  contract: string;
  model: string;
  provider: string;
  offeringId: string;
  /** `action_step`, `frame`, `token` or `episode`. */
  unit: string;
}

/** The end of a request: a line of the usage list and the request log. Amounts are micro-dollars. */
export interface RequestRecord extends IntentRecord {
  /** `failed`, and `done` of a preview, have no cost. */
  status: "settled" | "failed" | "done";
  units: number;
  costMicro: number;
  wakeUpMicro: number;
  hedgeCostMicro: number | null;
  simulated: boolean;
  httpStatus: number | null;
  errorCode: string | null;
  latencyMs: number | null;
  /** Whether it was served with the caller's own provider key. */
  byok: boolean;
  /** The batch of which it is an item. */
  batchId?: string | undefined;
  /** Time in the queue before it was planned, in milliseconds. */
  queueMs?: number | undefined;
  /** The size of the received request in bytes. */
  inputBytes?: number | undefined;
  /** The caller's names of its session and its robot. */
  sessionId?: string | undefined;
  robotId?: string | undefined;
  /** The offering that `hedgeCostMicro` is for; absent if there was no paid hedge. */
  losers?: readonly LoserRecord[];
  /** The duration of its only, successful attempt, if that is all there is to record; the log then has no attempts. */
  attemptMs?: number | undefined;
  /** The other fields of the log record, as JSON. Requests with the same value share a batch's cost of it. */
  log?: object | undefined;
  /** The call's idempotency key. With a response, it is kept for replays; without one, the key is freed. */
  claim?: { key: string; claimId: string; response?: Uint8Array };
  /** Events that this request causes. */
  events?: EventRecord[];
}

/** A paid offering that was called in addition to the one that answered. */
export interface LoserRecord {
  offeringId: string;
  provider: string;
  model: string;
  /** Whether it used the caller's own key: then only the gateway bears its cost. */
  byok: boolean;
  simulated: boolean;
  costMicro: number;
}

/** A movement of credit; its fields depend on its kind (see `billing/ledger-port.ts`). */
interface LedgerMove {
  kind: "take" | "return" | "end";
  entry: string;
  lease: string;
  org: string;
}

/** The parts of one commit. */
interface LedgerBatch {
  number: number;
  intents: IntentRecord[];
  settlements: { lease: string | null; record: RequestRecord }[];
  over: number[];
  moves: LedgerMove[];
}

interface Granted {
  entry: string;
  grantedMicro: number;
}

interface FoundShort {
  entry: string;
  short: "org_credits" | "workspace_budget" | "key_budget";
  holder: string | null;
  roomMicro: number;
  resetsAt: number | null;
  heldElsewhere: boolean;
  recalled: boolean;
}

type LedgerOutcome =
  | { kind: "done"; takes: (Granted | FoundShort)[]; recalled: string[] }
  | { kind: "fenced" }
  | { kind: "refused"; cause: unknown };

/** The result of `leaser_commit`. */
interface LedgerAnswer {
  fenced?: true;
  takes?: (Granted | FoundShort)[] | null;
  recalled?: string[] | null;
  kinds?: number[] | null;
}

/** How long a credit leaser lives without a heartbeat. */
const LIFE_MS = 15_000;
/** Batches of intents do not renew a leaser's lifetime. After this part of it they are committed like other batches, which do. */
const RENEWED_AFTER = 1 / 15;

/** Connections and options of a ledger. */
interface LedgerOptions {
  sql: Sql;
  /**
   * The only connection for batches. A PostgreSQL process caches how to plan and write a batch; another connection of a pool would have to
   * learn it again.
   */
  line: Sql;
  notifications: Notifications;
  /** Identifies this process among all that use the database, also after a restart: a start recovers the leases of its predecessor. */
  replica: string;
  /** How long a credit leaser lives without a heartbeat; 15 s if absent. */
  lifeMs?: number;
}

/** One replica's access to the ledger, for `CreditLeaser.open`. */
export class Ledger {
  readonly #sql: Sql;
  readonly #batches: Sql;
  readonly #notifications: Notifications;
  readonly #replica: string;
  readonly #lifeMs: number;
  readonly #lifetime: string;
  readonly #kinds = new Kinds();
  #leaser = "";
  #renewedAt = Number.NEGATIVE_INFINITY;

  constructor({ sql, line, notifications, replica, lifeMs = LIFE_MS }: LedgerOptions) {
    this.#sql = sql;
    this.#batches = line;
    this.#notifications = notifications;
    this.#replica = replica;
    this.#lifeMs = lifeMs;
    this.#lifetime = `${lifeMs} milliseconds`;
  }

  /** Opens a credit leaser for this replica and recovers its predecessors; returns its name. */
  async open(): Promise<string> {
    const earlier = await this.#sql<{ id: string }[]>`
      select id from leaser where replica = ${this.#replica} and fenced_at is null`;
    for (const { id } of earlier) await this.#sql`select leaser_recover(${id}, true)`;
    const [row] = await this.#sql<{ leaser: string }[]>`
      select leaser_open(${this.#replica}, ${this.#lifetime}::text::interval) as leaser`;
    this.#leaser = row!.leaser;
    this.#kinds.forget();
    return this.#leaser;
  }

  /** Commits a batch once, however often it is sent. Rejects if the outcome is unknown. */
  async commit(leaser: string, batch: LedgerBatch): Promise<LedgerOutcome> {
    const promised = promisedOf(batch.intents);
    const at = steadyNow();
    try {
      const isFresh = at - this.#renewedAt < this.#lifeMs * RENEWED_AFTER;
      if (isFresh && promised !== null && batch.settlements.length + batch.over.length + batch.moves.length === 0) {
        const [row] = await this.#batches.unsafe<{ isWanted: boolean }[]>(
          INTENTS_ALONE,
          [leaser, batch.number, promised],
          {
            prepare: true,
          },
        );
        if (row) return { kind: "done", takes: [], recalled: row.isWanted ? await this.#wanted(leaser) : [] };
      }
      const { unknown, parameters } = settledOf(batch.settlements, this.#kinds);
      const over = batch.over.length === 0 ? null : `{${batch.over.join(",")}}`;
      const [row] = await this.#batches.unsafe<{ answer: LedgerAnswer | null }[]>(
        LEDGER_COMMIT,
        [leaser, batch.number, this.#lifetime, promised, over, moreOf(batch), ...parameters],
        { prepare: true },
      );
      const answer = row?.answer;
      if (answer?.kinds) this.#kinds.learn(unknown, answer.kinds);
      if (answer?.fenced) return { kind: "fenced" };
      this.#renewedAt = at;
      return { kind: "done", takes: answer?.takes ?? [], recalled: answer?.recalled ?? [] };
    } catch (cause) {
      if (refusedByServer(cause)) return { kind: "refused", cause };
      throw cause;
    }
  }

  /** The leases of a credit leaser that others requested. */
  async #wanted(leaser: string): Promise<string[]> {
    const rows = await this.#sql<{ lease: string }[]>`select lease from recall where leaser_id = ${leaser}`;
    return rows.map(({ lease }) => lease);
  }

  /** Requests idle credit from other credit leasers: from leases of an organization, or of one key and its descendants. */
  async recall(leaser: string, orgId: string, keyId: string | null): Promise<void> {
    await this.recover();
    await this.#sql`select lease_recall(${leaser}, ${orgId}, ${keyId})`;
  }

  /** Recovers dead credit leasers, each in its own transaction, so that a failure does not stop the others. */
  async recover(): Promise<void> {
    const dead = await this.#sql<{ id: string }[]>`
      select id from leaser where fenced_at is null and alive_until < clock_timestamp() order by alive_until`;
    const failures: unknown[] = [];
    for (const { id } of dead)
      await this.#sql`select leaser_recover(${id}, false)`.catch((cause: unknown) => failures.push(cause));
    if (failures.length > 0) throw failures[0];
  }

  /** Calls the handler on recalls by other credit leasers and on returned credit, by organization. Returns a function that stops it. */
  listen(heard: { wanted(orgId: string): void; returned(orgId: string): void }): () => void {
    const offs = [
      this.#notifications.on("lease_wanted", (payload) => {
        const [orgId, leaser] = split(payload);
        if (leaser !== this.#leaser) heard.wanted(orgId);
      }),
      this.#notifications.on("lease_returned", heard.returned),
    ];
    return () => {
      for (const off of offs) off();
    };
  }
}

/** An organization's id has no spaces; a credit leaser's name can have some. */
function split(payload: string): [string, string] {
  const at = payload.indexOf(" ");
  return [payload.slice(0, at), payload.slice(at + 1)];
}

/** Parts that few batches have. */
function moreOf({ moves, settlements }: LedgerBatch): string | null {
  const claims = settlements.flatMap(({ record }) => claimRow(record));
  const events = settlements.flatMap(({ record }) => (record.events ?? []).map(eventRow));
  const losers = settlements.flatMap(({ record }) => loserRows(record));
  if (moves.length + claims.length + events.length + losers.length === 0) return null;
  const some = <T>(rows: readonly T[]): readonly T[] | undefined => (rows.length === 0 ? undefined : rows);
  return json({ moves: some(moves), claims: some(claims), events: some(events), losers: some(losers) });
}

/** The parameter types of `leaser_commit`. */
const TYPES =
  "text int8 interval text int8[] json text int8[] int4[] text int8[] int8[] float4[] float4[] float4[] int4[] text text text text[] text[] int8[] int8[]".split(
    " ",
  );
/** All parameters are sent as text: the driver's array serialization costs more than all else in a batch. */
const LEDGER_COMMIT = `select leaser_commit(${TYPES.map((type, i) => `$${i + 1}::text::${type}`).join(", ")}) as answer`;

/**
 * Commits a batch of only intents, the most common kind under load, as one row. A fence waits for the shared lock on the leaser's row; a batch
 * after a fence finds no such row. Returns no row if the leaser was fenced or the batch was committed before, which `leaser_commit`
 * distinguishes.
 */
const INTENTS_ALONE = `
  insert into intent (leaser_id, batch, promised)
  select id, $2::text::int8, $3 from leaser where id = $1 and last_batch < $2::text::int8 and fenced_at is null for share
  on conflict do nothing
  returning exists (select from recall where recall.leaser_id = $1) as is_wanted`;

/** Errors caused by the batch (data, constraints, our rules), as opposed to transient errors, for which a retry can succeed. */
const REFUSED = /^(?:22|23|42|P0)/;

const refusedByServer = (cause: unknown): boolean =>
  cause instanceof postgres.PostgresError && REFUSED.test(cause.code);

function claimRow({ orgId, claim }: RequestRecord): object[] {
  if (!claim) return [];
  const response = claim.response && Buffer.from(claim.response).toString("base64");
  return [{ org: orgId, key: claim.key, claim: claim.claimId, response }];
}

const loserRows = ({ orgId, requestId, losers = [] }: RequestRecord): object[] =>
  losers.map(({ offeringId, provider, model, byok, simulated, costMicro }, place) => ({
    org: orgId,
    request: requestId,
    place,
    offering: offeringId,
    provider,
    model,
    earns: !byok && !simulated,
    cost: costMicro,
  }));

const eventRow = (event: EventRecord): object => ({
  event_id: event.id,
  name: event.name,
  org_id: event.orgId,
  payload: Buffer.from(event.payload).toString("base64"),
});

// The text format of a batch for `leaser_commit`, cheap to write and to parse. Values that requests share appear once.

/** Rows of intents and ends, whose columns form a batch. */
interface Settlement {
  lease: string | null;
  record: RequestRecord;
}

/** Removes U+0000, which PostgreSQL's text cannot hold; an encoded lone surrogate becomes a replacement character anyway. */
const holdable = (text: string): string => (text.includes("\0") ? text.replaceAll("\0", "\ufffd") : text);

/** JSON escapes that PostgreSQL's text cannot hold: U+0000 and lone surrogates. */
const UNHOLDABLE = /\\u(?:0000|d[89a-f][0-9a-f]{2})/g;

/** Encodes a value as JSON that PostgreSQL can hold. */
function json(value: unknown): string {
  const text = JSON.stringify(value);
  return text.includes("\\u") ? text.replace(UNHOLDABLE, "\\ufffd") : text;
}

/** The field separator. It never occurs in fields: JSON escapes it and names drop it. */
const BETWEEN = "\u001f";

/** A text field; an empty one is null. */
const field = (text: string): string => {
  const held = holdable(text);
  return held.includes(BETWEEN) ? held.replaceAll(BETWEEN, "\ufffd") : held;
};

/** The indexes of shared values, from 0. */
class KindPlaces {
  readonly #places = new Map<string, number>();

  /** The index of a value, and whether it is new. */
  of(value: string): { place: number; isNew: boolean } {
    const known = this.#places.get(value);
    if (known !== undefined) return { place: known, isNew: false };
    const place = this.#places.size;
    this.#places.set(value, place);
    return { place, isNew: true };
  }
}

/** The most request kinds whose names are cached. */
const MOST_KINDS = 8_192;

/** The database's names of request kinds, as far as known. */
class Kinds {
  readonly #names = new Map<string, number>();

  /** The name of a kind; undefined if unknown. */
  get(kind: string): number | undefined {
    return this.#names.get(kind);
  }

  /** Caches the names of kinds. */
  learn(kinds: readonly string[], names: readonly number[]): void {
    for (const [i, kind] of kinds.entries()) {
      const name = names[i];
      if (name === undefined) continue;
      if (this.#names.size >= MOST_KINDS) this.#names.delete(this.#names.keys().next().value!);
      this.#names.set(kind, name);
    }
  }

  /** Clears the cache: the database might be another one. */
  forget(): void {
    this.#names.clear();
  }
}

/** The fields of a kind, in the order in which `request_kinds` takes them. */
const kindOf = (record: RequestRecord): string =>
  [
    record.keyId,
    record.status,
    record.contract,
    record.model,
    record.provider,
    record.offeringId,
    record.unit,
    record.wakeUpMicro,
    record.hedgeCostMicro,
    record.simulated,
    record.byok,
    record.httpStatus,
    record.errorCode,
    record.batchId,
  ]
    .map((value) => field(String(value ?? "")))
    .join(BETWEEN);

/** Request ends in the format and order of `leaser_commit`, and the kinds without a name. */
interface Settled {
  unknown: readonly string[];
  parameters: readonly (string | null)[];
}

const NOTHING: Settled = { unknown: [], parameters: Array<null>(17).fill(null) };

/** The payers of a batch. */
interface Paid {
  place: number;
  orgId: string;
  lease: string | null;
  cost: number;
  count: number;
}

/** Writes request ends. */
function settledOf(settlements: readonly Settlement[], kinds: Kinds): Settled {
  if (settlements.length === 0) return NOTHING;
  const unknown: string[] = [];
  const payers = new Map<string, Paid>();
  const kindNames: number[] = [];
  const places: number[] = [];
  const requests: string[] = [];
  const units: number[] = [];
  const costs: number[] = [];
  const latencies: (number | "null")[] = [];
  const attempts: (number | "null")[] = [];
  const queues: (number | "null")[] = [];
  const bytes: (number | "null")[] = [];
  const sessions: string[] = [];
  const robots: string[] = [];
  const logs: string[] = [];
  let last: Settlement | undefined;
  let log: object | undefined;
  let logged = "";
  let kind = 0;
  let paid: Paid | undefined;
  for (const settlement of settlements) {
    const { lease, record } = settlement;
    // Most requests have the kind of the previous one, and comparing costs less than a lookup.
    if (last === undefined || !isSameKind(last.record, record)) {
      const text = kindOf(record);
      kind = kinds.get(text) ?? -placeOf(unknown, text);
    }
    if (paid?.lease !== lease || paid.orgId !== record.orgId) paid = payerOf(payers, record.orgId, lease);
    paid.cost += record.costMicro;
    if (record.status === "settled") paid.count += 1;
    if (record.log !== log) {
      log = record.log;
      logged = log === undefined ? "" : json(log);
    }
    kindNames.push(kind);
    places.push(paid.place);
    requests.push(field(record.requestId));
    units.push(record.units);
    costs.push(record.costMicro);
    latencies.push(record.latencyMs ?? "null");
    attempts.push(record.attemptMs ?? "null");
    queues.push(record.queueMs ?? "null");
    bytes.push(record.inputBytes ?? "null");
    sessions.push(field(record.sessionId ?? ""));
    robots.push(field(record.robotId ?? ""));
    logs.push(logged);
    last = settlement;
  }
  const all = [...payers.values()];
  const list = (values: readonly (string | number)[]): string => `{${values.join(",")}}`;
  return {
    unknown,
    parameters: [
      unknown.length === 0 ? null : unknown.join(BETWEEN),
      list(kindNames),
      list(places),
      requests.join(BETWEEN),
      list(units),
      list(costs),
      list(latencies),
      list(attempts),
      list(queues),
      list(bytes),
      anyOf(sessions),
      anyOf(robots),
      logs.join(BETWEEN),
      list(all.map(({ orgId }) => orgId)),
      // A charge without a payer is refused: its lease does not exist.
      list(all.map(({ lease, cost }) => lease ?? (cost === 0 ? "null" : "nobody"))),
      list(all.map(({ cost }) => cost)),
      list(all.map(({ count }) => count)),
    ],
  };
}

/** Texts that most batches lack. */
const anyOf = (texts: readonly string[]): string | null =>
  texts.some((text) => text !== "") ? texts.join(BETWEEN) : null;

/** The index of a kind among those without a name, from 1. */
function placeOf(unknown: string[], kind: string): number {
  const place = unknown.indexOf(kind);
  return place >= 0 ? place + 1 : unknown.push(kind);
}

/** The payer in this batch: a lease of an organization, or none. */
function payerOf(payers: Map<string, Paid>, orgId: string, lease: string | null): Paid {
  const name = lease ?? orgId;
  const known = payers.get(name);
  if (known) return known;
  const paid = { place: payers.size + 1, orgId, lease, cost: 0, count: 0 };
  payers.set(name, paid);
  return paid;
}

const isSameKind = (a: RequestRecord, b: RequestRecord): boolean =>
  a.keyId === b.keyId &&
  a.status === b.status &&
  a.contract === b.contract &&
  a.unit === b.unit &&
  a.httpStatus === b.httpStatus &&
  a.errorCode === b.errorCode &&
  a.wakeUpMicro === b.wakeUpMicro &&
  a.hedgeCostMicro === b.hedgeCostMicro &&
  a.simulated === b.simulated &&
  a.byok === b.byok &&
  a.offeringId === b.offeringId &&
  a.model === b.model &&
  a.provider === b.provider &&
  a.batchId === b.batchId;

/** Writes intents for the journal, which only recovery reads: shared values once, then pairs of an index and a request id. */
function promisedOf(intents: readonly IntentRecord[]): string | null {
  if (intents.length === 0) return null;
  const kinds: object[] = [];
  const requests: [number, string][] = [];
  const places = new KindPlaces();
  let last: IntentRecord | undefined;
  let at = 0;
  for (const r of intents) {
    if (last === undefined || !isPromisedAlike(last, r)) {
      const text = `${r.orgId} ${r.keyId} ${r.contract} ${r.unit} ${r.offeringId}\n${r.model}\n${r.provider}`;
      const { place, isNew } = places.of(text);
      if (isNew) kinds.push(kindRow(r));
      at = place;
      last = r;
    }
    requests.push([at, r.requestId]);
  }
  return json({ kinds, requests });
}

const isPromisedAlike = (a: IntentRecord, b: IntentRecord): boolean =>
  a.orgId === b.orgId &&
  a.keyId === b.keyId &&
  a.contract === b.contract &&
  a.unit === b.unit &&
  a.offeringId === b.offeringId &&
  a.model === b.model &&
  a.provider === b.provider;

const kindRow = (record: IntentRecord): object => ({
  org_id: record.orgId,
  key_id: record.keyId,
  contract: record.contract,
  model: record.model,
  provider: record.provider,
  offering_id: record.offeringId,
  unit: record.unit,
});
