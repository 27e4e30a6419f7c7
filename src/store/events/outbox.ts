/** The outbox: events leave the gateway only after the transaction of their cause has committed, and none is lost. */
import { Lock } from "../database/locks.ts";
import { inBatches, type Queryable, type Sql, type Tx, tx } from "../database/tx.ts";
import { type JobKind, type QueuedJob, queueJobs } from "../jobs/jobs.ts";
import { type QueuedDeliveries, queueDeliveries } from "./webhooks.ts";

/** An event to publish. */
export interface EventRecord {
  /** `evt_…`; the same for every delivery. */
  id: string;
  /** Such as `payment.succeeded`. */
  name: string;
  /** The organization; null for the operator's events. */
  orgId: string | null;
  /** The event message, binary. */
  payload: Uint8Array;
}

/** An event in the outbox. */
export interface OutboxEvent extends EventRecord {
  /** The order of events; later events of one cause have higher positions. */
  position: number;
}

/** Stores events. Call it in the transaction of their cause. */
export async function appendEvents(tx: Queryable, events: readonly EventRecord[]): Promise<void> {
  for (const { id, name, orgId, payload } of events) {
    await tx`insert into outbox (event_id, name, org_id, payload) values (${id}, ${name}, ${orgId}, ${Buffer.from(payload)})`;
  }
}

/** The oldest unsent events, in order. */
export async function unsentEvents(sql: Queryable, limit: number): Promise<OutboxEvent[]> {
  return sql<OutboxEvent[]>`
    select event_id as id, name, org_id, payload, position from outbox where sent_at is null order by position limit ${limit}`;
}

/** Marks events as sent. Idempotent. */
export async function markSent(sql: Queryable, positions: readonly number[]): Promise<void> {
  await sql`update outbox set sent_at = now() where position = any (${[...positions]}::bigint[]) and sent_at is null`;
}

/** The number of relayed events, and whether to poll again soon: an open transaction holds back events, or another relay is running. */
interface Carried {
  readonly count: number;
  readonly heldBack: boolean;
  /** Whether another relay is running. */
  readonly elsewhere: boolean;
}

/**
 * Passes the oldest unsent events to `carry`, each organization's in order, and marks them as sent when it resolves. If it rejects, they stay
 * unsent and are passed again, although some may have been delivered (at least once). An event waits for open transactions that may have an
 * earlier event of its organization. Only one relay runs per database.
 */
export function carryEvents(
  sql: Sql,
  limit: number,
  carry: (events: readonly OutboxEvent[]) => Promise<void>,
): Promise<Carried> {
  return tx(sql, async (tx) => {
    const [lock] = await tx<{ held: boolean }[]>`select pg_try_advisory_xact_lock(${Lock.EVENT_RELAY}) as held`;
    if (!lock?.held) return { count: 0, heldBack: true, elsewhere: true };
    const events = await tx<OutboxEvent[]>`
      select event_id as id, name, org_id, payload, position from outbox_next(${limit})`;
    if (events.length > 0) {
      await carry(events);
      await markSent(
        tx,
        events.map(({ position }) => position),
      );
    }
    const heldBack = events.length < limit && (await unsentEvents(tx, 1)).length > 0;
    return { count: events.length, heldBack, elsewhere: false };
  });
}

/** The retention of sent events, and of all events without a relay. */
export const EVENT_DAYS = 7;

/** An organization's events after a position, in order. `heldBack` if an open transaction that may have an earlier one holds some back. */
export async function eventsAfter(
  sql: Sql,
  orgId: string,
  { after, limit }: { after: number; limit: number },
): Promise<{ events: OutboxEvent[]; heldBack: boolean }> {
  const events = await sql<OutboxEvent[]>`
    select event_id as id, name, org_id, payload, position from outbox_after(${orgId}, ${after}, ${limit})`;
  if (events.length > 0) return { events, heldBack: events.length === limit };
  const [more] = await sql<{ position: number }[]>`
    select position from outbox where org_id = ${orgId} and position > ${after} limit 1`;
  return { events, heldBack: more !== undefined };
}

/** The position after which an organization's next event will be; undefined while an open transaction may have an earlier one. */
export async function outboxEnd(sql: Sql, orgId: string): Promise<number | undefined> {
  const [row] = await sql<{ last: number | null }[]>`select outbox_end(${orgId}) as last`;
  return row?.last ?? undefined;
}

/** The position before an organization's events since a time in unix seconds, as far as they are kept. */
export async function positionBefore(sql: Sql, orgId: string, since: number): Promise<number> {
  const [row] = await sql<{ position: number }[]>`
    select coalesce(max(position), 0) as position from outbox where org_id = ${orgId} and created < ${new Date(since * 1000)}`;
  return row?.position ?? 0;
}

/** Deletes events that were sent more than `days` days ago; returns their number. */
export const pruneEvents = (sql: Sql, days: number): Promise<number> =>
  inBatches(
    (most) => sql`
      delete from outbox where position in (
        select position from outbox where sent_at < now() - make_interval(days => ${days}) order by position limit ${most})`,
  );

/** For a gateway without a relay: deletes unsent events older than `days` days; returns their number. */
export const pruneUnsent = (sql: Sql, days: number): Promise<number> =>
  inBatches(
    (most) => sql`
      delete from outbox where position in (
        select position from outbox where sent_at is null and created < now() - make_interval(days => ${days})
        order by position limit ${most})`,
  );

// Work queued through NATS. The rows are authoritative: a message only reports that one waits, and grants no claim.

/** The work to send now. */
export interface WaitingWork {
  readonly jobs: readonly QueuedJob[];
  readonly deliveries: QueuedDeliveries;
}

/** Which work to look for. */
interface WorkRound {
  /** When the stream was created. Messages of an earlier stream are lost. */
  readonly born: string;
  readonly kinds: readonly JobKind[];
  /** The most jobs and the most deliveries per round. */
  readonly limit: number;
  /** Seconds for which a job and a delivery count as sent. */
  readonly jobS: number;
  readonly deliveryS: number;
  readonly atOneHook: number;
  /** The last visited webhook. */
  readonly after: string;
}

/**
 * Marks waiting work without a message as sent, and returns it to be sent now. A crash before that only delays it. One caller at a time per
 * database: undefined while another one is running.
 */
export function beginSending(sql: Sql, round: WorkRound): Promise<WaitingWork | undefined> {
  return tx(sql, async (tx) => {
    const [row] = await tx<{ held: boolean; born: string | null }[]>`
      select pg_try_advisory_xact_lock(${Lock.WORK_RELAY}) as held, (select born from work_stream) as born`;
    if (!row?.held) return undefined;
    if (row.born !== round.born) await forgetMessages(tx, round.born);
    const { kinds, limit, jobS, deliveryS, atOneHook, after } = round;
    const jobs = await queueJobs(tx, { kinds, limit, forS: jobS });
    const deliveries = await queueDeliveries(tx, { limit, forS: deliveryS, atOneHook, after });
    return { jobs, deliveries };
  });
}

/** Unmarks work that could not be sent. If NATS has it after all, its message id prevents a duplicate. */
export async function noteUnsent(sql: Sql, { jobs, deliveries }: WaitingWork): Promise<void> {
  await sql`
    with back as (
      update webhook_delivery set queued_until = null where id = any (${deliveries.queued.map(({ id }) => id)}::text[]) and state = 'pending')
    update job set queued_until = null where id = any (${jobs.map(({ id }) => id)}::text[]) and rank < 9`;
}

/** The stream was replaced: it has no message of any waiting work. */
async function forgetMessages(tx: Tx, born: string): Promise<void> {
  await tx`
    update webhook_delivery set queued_until = null where id in (
      select id from webhook_delivery where state = 'pending' and queued_until is not null for update skip locked)`;
  await tx`
    update job set queued_until = null where id in (
      select id from job where rank < 9 and queued_until is not null for update skip locked)`;
  await tx`insert into work_stream (born) values (${born}) on conflict (is_one) do update set born = excluded.born`;
}
