/** The ledger as a credit leaser sees it: batches in, credit out. The rules stand in the database, in `schema/04_ledger.sql`. */
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
  /** `act`, `predict`, `ground` or `evaluate`; of what is only on record `preview` or `batch` too. */
  contract: string;
  model: string;
  provider: string;
  offeringId: string;
  /** `action_step`, `frame`, `token` or `episode`. */
  unit: string;
}

/** How a request ended: a line of the usage list and of the request log. Amounts are micro-dollars. */
export interface RequestRecord extends IntentRecord {
  /** `failed` and `done`, which is a preview's end, cost nothing. */
  status: "settled" | "failed" | "done";
  units: number;
  costMicro: number;
  wakeUpMicro: number;
  hedgeCostMicro: number | null;
  simulated: boolean;
  httpStatus: number | null;
  errorCode: string | null;
  latencyMs: number | null;
  /** Served with the caller's own key at the provider. */
  byok: boolean;
  /** The batch that it is an item of. */
  batchId?: string | undefined;
  /** How long it waited before it was planned, in milliseconds. */
  queueMs?: number | undefined;
  /** Bytes of its request as they came. */
  inputBytes?: number | undefined;
  /** What the caller calls its session, and the robot. */
  sessionId?: string | undefined;
  robotId?: string | undefined;
  /** Who `hedgeCostMicro` is for; it is nobody's where this is absent. */
  losers?: readonly LoserRecord[];
  /** How long its one attempt took, where that and its success is all there is to say of attempts: the log has none then. */
  attemptMs?: number | undefined;
  /** The rest of the log record, as JSON. Requests that share it share a batch's cost of it. */
  log?: object | undefined;
  /** The call's idempotency key: with a response it is kept for replays, without one the key is free again. */
  claim?: { key: string; claimId: string; response?: Uint8Array };
  /** Events of which this request is the cause. */
  events?: EventRecord[];
}

/** An offering that was asked beside the one that answered, and is paid all the same. */
export interface LoserRecord {
  offeringId: string;
  provider: string;
  model: string;
  /** It was asked with the caller's own key: what it cost is the gateway's alone. */
  byok: boolean;
  simulated: boolean;
  costMicro: number;
}

/** Credit that moves; which fields it has depends on its kind (see `billing/ledger-port.ts`). */
interface LedgerMove {
  kind: "take" | "return" | "end";
  entry: string;
  lease: string;
  org: string;
}

/** What is committed together. */
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

/** What `leaser_commit` answers. */
interface LedgerAnswer {
  fenced?: true;
  takes?: (Granted | FoundShort)[] | null;
  recalled?: string[] | null;
  kinds?: number[] | null;
}

/** How long a credit leaser lives without a sign of life. */
const LIFE_MS = 15_000;
/** Intents alone don't renew a leaser's life: after this part of it they are committed as other batches are, which do. */
const RENEWED_AFTER = 1 / 15;

/** How a ledger is reached, and how it differs from the next. */
interface LedgerOptions {
  sql: Sql;
  /**
   * The one connection by which batches go. A server's process remembers how to write one, and where; the next process of a pool
   * would have to be reminded.
   */
  line: Sql;
  notifications: Notifications;
  /** Names this process among all that use the database, the same after a restart: a start recovers what its former self left. */
  replica: string;
  /** How long a credit leaser lives without a sign of life; 15 seconds when absent. */
  lifeMs?: number;
}

/** One replica's access to the ledger; `CreditLeaser.open` takes it. */
export class Ledger {
  readonly #sql: Sql;
  readonly #line: Sql;
  readonly #notifications: Notifications;
  readonly #replica: string;
  readonly #lifeMs: number;
  readonly #life: string;
  readonly #kinds = new Kinds();
  #leaser = "";
  #renewedAt = Number.NEGATIVE_INFINITY;

  constructor({ sql, line, notifications, replica, lifeMs = LIFE_MS }: LedgerOptions) {
    this.#sql = sql;
    this.#line = line;
    this.#notifications = notifications;
    this.#replica = replica;
    this.#lifeMs = lifeMs;
    this.#life = `${lifeMs} milliseconds`;
  }

  /** Opens a credit leaser for this replica and recovers what its earlier ones left; returns its name. */
  async open(): Promise<string> {
    const earlier = await this.#sql<{ id: string }[]>`
      select id from leaser where replica = ${this.#replica} and fenced_at is null`;
    for (const { id } of earlier) await this.#sql`select leaser_recover(${id}, true)`;
    const [row] = await this.#sql<{ leaser: string }[]>`
      select leaser_open(${this.#replica}, ${this.#life}::text::interval) as leaser`;
    this.#leaser = row!.leaser;
    this.#kinds.forget();
    return this.#leaser;
  }

  /** Commits a batch once, however often it is sent. Rejects when it isn't known whether it was committed. */
  async commit(leaser: string, batch: LedgerBatch): Promise<LedgerOutcome> {
    const promised = promisedOf(batch.intents);
    const at = steadyNow();
    try {
      const isFresh = at - this.#renewedAt < this.#lifeMs * RENEWED_AFTER;
      if (isFresh && promised !== null && batch.settlements.length + batch.over.length + batch.moves.length === 0) {
        const [row] = await this.#line.unsafe<{ isWanted: boolean }[]>(
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
      const [row] = await this.#line.unsafe<{ answer: LedgerAnswer | null }[]>(
        LEDGER_COMMIT,
        [leaser, batch.number, this.#life, promised, over, moreOf(batch), ...parameters],
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

  /** The leases of a credit leaser that others ask for. */
  async #wanted(leaser: string): Promise<string[]> {
    const rows = await this.#sql<{ lease: string }[]>`select lease from recall where leaser_id = ${leaser}`;
    return rows.map(({ lease }) => lease);
  }

  /** Asks the other credit leasers for what is idle in their leases of an organization, or of one key of it and its descendants. */
  async recall(leaser: string, orgId: string, keyId: string | null): Promise<void> {
    await this.recover();
    await this.#sql`select lease_recall(${leaser}, ${orgId}, ${keyId})`;
  }

  /** Recovers what dead credit leasers left, each in a transaction of its own; one that can't be recovered keeps no other from it. */
  async recover(): Promise<void> {
    const dead = await this.#sql<{ id: string }[]>`
      select id from leaser where fenced_at is null and alive_until < clock_timestamp() order by alive_until`;
    const failures: unknown[] = [];
    for (const { id } of dead)
      await this.#sql`select leaser_recover(${id}, false)`.catch((cause: unknown) => failures.push(cause));
    if (failures.length > 0) throw failures[0];
  }

  /** Hears of recalls by other credit leasers and of returned credit, by organization, until the returned function is called. */
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

/** An organization's name has no spaces; a credit leaser's may. */
function split(payload: string): [string, string] {
  const at = payload.indexOf(" ");
  return [payload.slice(0, at), payload.slice(at + 1)];
}

/** What few batches have. */
function moreOf({ moves, settlements }: LedgerBatch): string | null {
  const claims = settlements.flatMap(({ record }) => claimRow(record));
  const events = settlements.flatMap(({ record }) => (record.events ?? []).map(eventRow));
  const losers = settlements.flatMap(({ record }) => loserRows(record));
  if (moves.length + claims.length + events.length + losers.length === 0) return null;
  const some = <T>(rows: readonly T[]): readonly T[] | undefined => (rows.length === 0 ? undefined : rows);
  return json({ moves: some(moves), claims: some(claims), events: some(events), losers: some(losers) });
}

/** The types of what `leaser_commit` takes. */
const TYPES =
  "text int8 interval text int8[] json text int8[] int4[] text int8[] int8[] float4[] float4[] float4[] int4[] text text text text[] text[] int8[] int8[]".split(
    " ",
  );
/** All come as text: the driver's own ways to write arrays cost more than the rest of a batch. */
const LEDGER_COMMIT = `select leaser_commit(${TYPES.map((type, i) => `$${i + 1}::text::${type}`).join(", ")}) as answer`;

/**
 * A batch of intents alone, which under load is most of them, as one row. A fence waits for the shared lock of the leaser's row, and a batch that
 * comes after a fence finds no row of the leaser. Returns no row when the leaser was fenced or the batch committed before, which
 * `leaser_commit` distinguishes.
 */
const INTENTS_ALONE = `
  insert into intent (leaser_id, batch, promised)
  select id, $2::text::int8, $3 from leaser where id = $1 and last_batch < $2::text::int8 and fenced_at is null for share
  on conflict do nothing
  returning exists (select from recall where recall.leaser_id = $1) as is_wanted`;

/** Errors for what is in the batch (data, constraints, rules of ours), as against errors of the moment, which a repetition may mend. */
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

// What a batch of the credit leaser says to `leaser_commit`, as text that costs little to write and to read: what its requests share is said once.

/** Rows of promises and ends, columns of which make a batch. */
interface Settlement {
  lease: string | null;
  record: RequestRecord;
}

/** Nothing that PostgreSQL's text can't hold: U+0000; half a surrogate pair becomes a mark by itself when it is encoded. */
const holdable = (text: string): string => (text.includes("\0") ? text.replaceAll("\0", "\ufffd") : text);

/** What JSON can say and PostgreSQL's text can't hold: U+0000 and half a surrogate pair. */
const UNHOLDABLE = /\\u(?:0000|d[89a-f][0-9a-f]{2})/g;

/** A value as JSON that PostgreSQL can hold. */
function json(value: unknown): string {
  const text = JSON.stringify(value);
  return text.includes("\\u") ? text.replace(UNHOLDABLE, "\\ufffd") : text;
}

/** Divides the fields of what a batch says, and is in none: JSON never has it bare, and names lose it. */
const BETWEEN = "\u001f";

/** A field of text; an empty one is null. */
const field = (text: string): string => {
  const held = holdable(text);
  return held.includes(BETWEEN) ? held.replaceAll(BETWEEN, "\ufffd") : held;
};

/** Places of values that are said once, from 0 on. */
class KindPlaces {
  readonly #places = new Map<string, number>();

  /** The place of a value, and whether it is a new one. */
  of(value: string): { place: number; isNew: boolean } {
    const known = this.#places.get(value);
    if (known !== undefined) return { place: known, isNew: false };
    const place = this.#places.size;
    this.#places.set(value, place);
    return { place, isNew: true };
  }
}

/** The most kinds of requests whose names are remembered. */
const MOST_KINDS = 8_192;

/** What the database calls kinds of requests, as far as it has told. */
class Kinds {
  readonly #names = new Map<string, number>();

  /** The name of a kind; undefined when it is not known. */
  get(kind: string): number | undefined {
    return this.#names.get(kind);
  }

  /** Remembers the names of kinds. */
  learn(kinds: readonly string[], names: readonly number[]): void {
    for (const [i, kind] of kinds.entries()) {
      const name = names[i];
      if (name === undefined) continue;
      if (this.#names.size >= MOST_KINDS) this.#names.delete(this.#names.keys().next().value!);
      this.#names.set(kind, name);
    }
  }

  /** Knows nothing any more: the database may be another one. */
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

/** Ends of requests as `leaser_commit` takes them, in its order, and the kinds among them that have no name yet. */
interface Settled {
  unknown: readonly string[];
  parameters: readonly (string | null)[];
}

const NOTHING: Settled = { unknown: [], parameters: Array<null>(17).fill(null) };

/** Who pays in a batch. */
interface Paid {
  place: number;
  orgId: string;
  lease: string | null;
  cost: number;
  count: number;
}

/** Writes the ends of requests. */
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
    // Most are of the kind of the one before, and to see that costs less than to name it.
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
      // What nobody pays is refused: there is no such lease.
      list(all.map(({ lease, cost }) => lease ?? (cost === 0 ? "null" : "nobody"))),
      list(all.map(({ cost }) => cost)),
      list(all.map(({ count }) => count)),
    ],
  };
}

/** Texts of which most batches have none. */
const anyOf = (texts: readonly string[]): string | null =>
  texts.some((text) => text !== "") ? texts.join(BETWEEN) : null;

/** The place of a kind among those without a name, from 1 on. */
function placeOf(unknown: string[], kind: string): number {
  const place = unknown.indexOf(kind);
  return place >= 0 ? place + 1 : unknown.push(kind);
}

/** Who pays in this batch from a lease of an organization, or from none. */
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

/** Writes promises for the journal, which recovery alone reads: what they share once, then pairs of its place and a name. */
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
