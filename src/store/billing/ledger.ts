/** The ledger as a credit leaser sees it: batches in, credit out. The rules stand in the database, in `schema/04_ledger.sql`. */
import postgres from "postgres";
import { steadyNow } from "../../clock.ts";
import type { Notifications } from "../database/notifications.ts";
import type { Sql } from "../database/tx.ts";
import type { EventRecord } from "../events/outbox.ts";
import { json, Kinds, promisedOf, settledOf } from "./settlements.ts";

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
export interface LedgerOptions {
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

  /** Opens a credit leaser for this replica and recovers what its earlier ones left; answers its name. */
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

  /** Asks the other credit leasers for what is idle in their leases of an organisation, or of one key of it and its descendants. */
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

  /** Hears of recalls by other credit leasers and of returned credit, by organisation, until the returned function is called. */
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

/** An organisation's name has no spaces; a credit leaser's may. */
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
 * comes after a fence finds no row of the leaser. Answers no row when the leaser was fenced or the batch committed before, which
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
