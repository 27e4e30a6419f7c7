/** Which replica holds the stream of which provider's server, and what replicas say to each other about it. */
import type { Queryable } from "../database/tx.ts";

/** How long a replica that is not heard of still counts as holding its streams. */
const LIFE_S = 15;

/** One stream, held elsewhere. */
export interface OutboundConnectionRecord {
  readonly provider: string;
  readonly replica: string;
}

/** Says that a replica holds the streams of these providers and of no others, and that it lives. */
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

/** The streams that living replicas other than this one hold, the newest of each provider first. */
export async function connectionsElsewhere(sql: Queryable, replica: string): Promise<OutboundConnectionRecord[]> {
  return sql<OutboundConnectionRecord[]>`
    select provider, replica from outbound_connection where replica <> ${replica} and alive_until > now() order by since desc, replica`;
}

/** A word from one replica to another about a call. */
export interface RelayMessage {
  readonly toReplica: string;
  readonly fromReplica: string;
  readonly line: string;
  readonly provider: string;
  /** A question to the server, its reply, or that there will be none. */
  readonly kind: "ask" | "reply" | "failed";
  /** How long the call that is asked for may take, in milliseconds. */
  readonly budgetMs: number | null;
  readonly body: Buffer;
}

/** Sends messages; those of one sender arrive in the order in which they were sent. */
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

/** Forgets streams of replicas that are gone, and what was said to them. */
export async function pruneOutboundConnections(sql: Queryable): Promise<void> {
  await sql`delete from outbound_connection where alive_until < now() - interval '1 minute'`;
  await sql`delete from relay_message where sent_at < now() - interval '10 minutes'`;
}
