/** Live replicas, cold starts, circuits, server leases and outbound streams: state that all replicas share. */
import { type Queryable, type Tx, unixSeconds } from "../database/tx.ts";

/** The number of live replicas: each renews its credit leaser every few seconds. */
export async function countReplicas(sql: Queryable): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(distinct replica)::int as count from leaser where fenced_at is null and alive_until > now()`;
  return row?.count ?? 0;
}

/** The names of live replicas. */
export async function livingReplicas(sql: Queryable): Promise<string[]> {
  const rows = await sql<{ replica: string }[]>`
    select distinct replica from leaser where fenced_at is null and alive_until > now()`;
  return rows.map(({ replica }) => replica);
}

// Cold starts: until when an offering counts as warm for charges. A cold start is charged once among all replicas.

/**
 * Claims a cold start for one attempt, for at most `holdMs`. Returns false if another attempt has it or the offering was just warm: then this
 * attempt is not charged for a cold start.
 */
export async function claimWake(
  sql: Queryable,
  { offeringId, waker, holdMs }: { offeringId: string; waker: string; holdMs: number },
): Promise<boolean> {
  const rows = await sql`
    insert into awake_offering as known (offering_id, waker, until)
    values (${offeringId}, ${waker}, now() + ${holdMs} * interval '1 millisecond')
    on conflict (offering_id) do update set waker = excluded.waker, until = excluded.until
    where known.until <= now()
    returning 1`;
  return rows.length > 0;
}

/** Records that the claiming attempt succeeded: the offering stays warm for `warmMs` from now. */
export async function keepAwake(
  sql: Queryable,
  { offeringId, waker, warmMs }: { offeringId: string; waker: string; warmMs: number },
): Promise<void> {
  await sql`
    update awake_offering set until = now() + ${warmMs} * interval '1 millisecond'
    where offering_id = ${offeringId} and waker = ${waker}`;
}

/** Releases the claim of a failed attempt: the next attempt is charged. */
export async function giveWakeBack(
  sql: Queryable,
  { offeringId, waker }: { offeringId: string; waker: string },
): Promise<void> {
  await sql`delete from awake_offering where offering_id = ${offeringId} and waker = ${waker}`;
}

/** Records that the gateway itself warmed up an offering, which stays warm for `warmMs` from now. */
export async function notedAwake(
  sql: Queryable,
  { offeringId, warmMs }: { offeringId: string; warmMs: number },
): Promise<void> {
  await sql`
    insert into awake_offering as known (offering_id, waker, until)
    values (${offeringId}, '', now() + ${warmMs} * interval '1 millisecond')
    on conflict (offering_id) do update set until = greatest(known.until, excluded.until)`;
}

// Circuit breakers shared by all replicas: opened by failures or by the operator.

/** An offering whose breaker changed. */
interface CircuitRecord {
  /** The organization of the offering. */
  orgId: string;
  model: string;
  provider: string;
}

/** A breaker that stays open this long belongs to a dead replica. */
const LEFT_BEHIND = "1 hour";

/** Records that a replica's breaker opened or closed. Undefined if another replica was first, or the offering was deleted. */
export async function moveCircuit(tx: Tx, offeringId: string, isOpen: boolean): Promise<CircuitRecord | undefined> {
  const moved = isOpen
    ? await tx`
        insert into circuit (offering_id, is_open) select id, true from offering where id = ${offeringId}
        on conflict (offering_id) do update set is_open = true, changed = now()
        where not circuit.is_open or circuit.changed < now() - ${LEFT_BEHIND}::text::interval`
    : await tx`update circuit set is_open = false, changed = now() where offering_id = ${offeringId} and is_open`;
  if (moved.count === 0) return undefined;
  await noteMove(tx, offeringId, isOpen ? "opened" : "closed");
  return offeringOf(tx, offeringId);
}

/** The state changes of a breaker. */
export type CircuitMove = "opened" | "closed" | "forced_open" | "forced_closed" | "freed";

const noteMove = (tx: Tx, offeringId: string, move: CircuitMove) =>
  tx`insert into circuit_change (offering_id, move) select id, ${move} from offering where id = ${offeringId}`;

/** The last changes of an offering's breaker since a time, newest first. */
export async function circuitMoves(
  sql: Queryable,
  offeringId: string,
  { since, limit }: { since: Date; limit: number },
): Promise<{ at: number; move: CircuitMove }[]> {
  const rows = await sql<{ at: Date; move: CircuitMove }[]>`
    select at, move from circuit_change where offering_id = ${offeringId} and at >= ${since} order by id desc limit ${limit}`;
  return rows.map(({ at, move }) => ({ at: unixSeconds(at), move }));
}

async function offeringOf(tx: Tx, offeringId: string): Promise<CircuitRecord | undefined> {
  const [row] = await tx<CircuitRecord[]>`
    select offering.org_id, offering.model, provider.name as provider
    from offering join provider on provider.id = offering.provider_id where offering.id = ${offeringId}`;
  return row;
}

/** Sets or removes the operator's override of a breaker. Undefined if the offering does not exist. */
export async function forceCircuit(
  tx: Tx,
  offeringId: string,
  forced: "open" | "closed" | undefined,
): Promise<CircuitRecord | undefined> {
  await tx`
    insert into circuit (offering_id, forced) select id, ${forced ?? null}::text from offering where id = ${offeringId}
    on conflict (offering_id) do update set forced = excluded.forced, changed = now()`;
  await noteMove(tx, offeringId, forced === undefined ? "freed" : `forced_${forced}`);
  return offeringOf(tx, offeringId);
}

/** The breakers that the operator overrides. */
export async function forcedCircuits(sql: Queryable): Promise<ReadonlyMap<string, "open" | "closed">> {
  const rows = await sql<{ offeringId: string; forced: "open" | "closed" }[]>`
    select offering_id, forced from circuit where forced is not null`;
  return new Map(rows.map(({ offeringId, forced }) => [offeringId, forced]));
}

// Leases, shared by all replicas, of servers that serve one robot at a time.

interface ServerLeaseRow {
  epoch: number | null;
  beforeEpoch: number | null;
  beforeSession: string | null;
  beforeSetup: string | null;
  over: boolean | null;
}

/** A leased server and its known state. */
interface ServerTaken {
  epoch: number;
  session: string | undefined;
  setup: string | undefined;
}

/**
 * Leases a server for one call of a session, for at most `runMs`. `running`: a call of the same session, or of none, has it. `busy`: another
 * session has it.
 */
export async function takeServer(
  sql: Queryable,
  { server, session, runMs, taker }: { server: string; session: string; runMs: number; taker: string },
): Promise<ServerTaken | "running" | "busy"> {
  const end = sql`now() + ${runMs} * interval '1 millisecond'`;
  const [row] = await sql<ServerLeaseRow[]>`
    with before as (
      select epoch, session, setup, until <= now() as over from server_lease where server = ${server}
    ), taken as (
      insert into server_lease as held (server, taker, session, epoch, running_until, until)
      values (${server}, ${taker}, ${session}, 1, ${end}, ${end})
      on conflict (server) do update set taker = excluded.taker, session = excluded.session, epoch = held.epoch + 1,
        setup = null, running_until = excluded.running_until, until = excluded.until
      where held.running_until <= now() and (held.session = excluded.session or held.until <= now())
      returning epoch
    )
    select taken.epoch, before.epoch as before_epoch, before.session as before_session, before.setup as before_setup, before.over
    from (select) as one left join taken on true left join before on true`;
  const { epoch, beforeEpoch, beforeSession, beforeSetup, over } = row!; // the select of nothing has one row
  if (epoch === null) return over || beforeSession === session || !beforeSession ? "running" : "busy";
  // Another session had it in between, so its setup is unknown.
  if (beforeEpoch !== epoch - 1) return { epoch, session: undefined, setup: undefined };
  return { epoch, session: beforeSession ?? undefined, setup: beforeSetup ?? undefined };
}

/** Releases a server, which stays reserved for its session for `keepMs`; does nothing if another session leased it meanwhile. */
export async function releaseServer(
  sql: Queryable,
  { server, epoch, keepMs, setup }: { server: string; epoch: number; keepMs: number; setup: string | undefined },
): Promise<void> {
  await sql`
    update server_lease set running_until = now(), until = now() + ${keepMs} * interval '1 millisecond',
      setup = ${setup ?? null}
    where server = ${server} and epoch = ${epoch}`;
}

/** Deletes servers without a lease for a day. */
export async function pruneServerLeases(sql: Queryable): Promise<void> {
  await sql`delete from server_lease where until < now() - interval '1 day'`;
}

// Outbound provider streams: which replica holds which one, and the messages between replicas about them.

/** How long a silent replica still counts as holding its streams. */
const LIFE_S = 15;

/** A stream held by another replica. */
interface OutboundConnectionRecord {
  readonly provider: string;
  readonly replica: string;
}

/** Records a heartbeat, and the complete list of providers whose streams a replica holds. */
export async function keepConnections(sql: Queryable, replica: string, providers: readonly string[]): Promise<void> {
  const names = JSON.stringify(providers);
  await sql`
    delete from outbound_connection where replica = ${replica} and not (provider = any (select jsonb_array_elements_text(${names}::text::jsonb)))`;
  if (providers.length === 0) return;
  const alive = sql`now() + ${LIFE_S} * interval '1 second'`;
  const { count } = await sql`update outbound_connection set alive_until = ${alive} where replica = ${replica}`;
  if (count === providers.length) return;
  await sql`
    insert into outbound_connection (provider, replica, alive_until)
    select provider, ${replica}, ${alive} from jsonb_array_elements_text(${names}::text::jsonb) as named (provider)
    on conflict (provider, replica) do update set alive_until = excluded.alive_until`;
}

/** The streams that other live replicas hold, newest of each provider first. */
export async function connectionsElsewhere(sql: Queryable, replica: string): Promise<OutboundConnectionRecord[]> {
  return sql<OutboundConnectionRecord[]>`
    select provider, replica from outbound_connection where replica <> ${replica} and alive_until > now() order by since desc, replica`;
}

/** A message from one replica to another about a call. */
export interface RelayMessage {
  readonly toReplica: string;
  readonly fromReplica: string;
  readonly line: string;
  readonly provider: string;
  /** A request to the server, its response, or a notice that there will be none. */
  readonly kind: "ask" | "reply" | "failed";
  /** The timeout of the requested call in milliseconds. */
  readonly budgetMs: number | null;
  readonly body: Buffer;
}

/** Sends messages; those of one sender arrive in order. */
export async function sendRelayMessages(sql: Queryable, messages: readonly RelayMessage[]): Promise<void> {
  const columns = ["toReplica", "fromReplica", "line", "provider", "kind", "budgetMs", "body"] as const;
  await sql`insert into relay_message ${sql(messages, columns)}`;
}

/** Takes the oldest messages for a replica, in order. */
export async function takeRelayMessages(sql: Queryable, replica: string, limit: number): Promise<RelayMessage[]> {
  return sql<RelayMessage[]>`
    with taken as (
      delete from relay_message where id in (select id from relay_message where to_replica = ${replica} order by id limit ${limit}) returning *
    ) select to_replica, from_replica, line, provider, kind, budget_ms, body from taken order by id`;
}

/** Deletes the streams of dead replicas, and messages to them. */
export async function pruneOutboundConnections(sql: Queryable): Promise<void> {
  await sql`delete from outbound_connection where alive_until < now() - interval '1 minute'`;
  await sql`delete from relay_message where sent_at < now() - interval '10 minutes'`;
}
