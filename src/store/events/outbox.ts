/** The outbox: events leave the gateway only after the transaction of their cause has been committed, and none is lost. */
import { Lock } from "../database/locks.ts";
import { type Queryable, type Sql, type Tx, tx } from "../database/tx.ts";
import { type JobKind, type QueuedJob, queueJobs } from "../jobs/jobs.ts";
import { type QueuedDeliveries, queueDeliveries } from "./webhooks.ts";

/** An event that is to be told. */
export interface EventRecord {
  /** `evt_…`; the same however often it is told. */
  id: string;
  /** Such as `payment.succeeded`. */
  name: string;
  /** Whose it is; null for the operator's own. */
  orgId: string | null;
  /** The event message, binary. */
  payload: Uint8Array;
}

/** An event that waits in the outbox. */
export interface OutboxEvent extends EventRecord {
  /** Orders events; a later one of the same cause has a higher one. */
  position: number;
}

/** Writes events; give it the transaction of their cause. */
export async function appendEvents(tx: Queryable, events: readonly EventRecord[]): Promise<void> {
  for (const { id, name, orgId, payload } of events) {
    await tx`insert into outbox (event_id, name, org_id, payload) values (${id}, ${name}, ${orgId}, ${Buffer.from(payload)})`;
  }
}

/** The oldest events that were not sent yet, in order. */
export async function unsentEvents(sql: Queryable, limit: number): Promise<OutboxEvent[]> {
  return sql<OutboxEvent[]>`
    select event_id as id, name, org_id, payload, position from outbox where sent_at is null order by position limit ${limit}`;
}

/** Notes that events were sent. Doing it twice is doing it once. */
export async function markSent(sql: Queryable, positions: readonly number[]): Promise<void> {
  await sql`update outbox set sent_at = now() where position = any (${[...positions]}::bigint[]) and sent_at is null`;
}

/** What was carried, and whether to look again soon: something waits for a transaction that is still open, or another is at it. */
interface Carried {
  readonly count: number;
  readonly heldBack: boolean;
  /** Another is at it. */
  readonly elsewhere: boolean;
}

/**
 * Hands the oldest unsent events to `carry`, each organization's in order, and notes them as sent once it resolves; when it rejects
 * they stay as they are, and are handed out again, though some may have been told. An event waits while a transaction is open that may
 * have an earlier one of its organization. One caller at a time among all that use the database: nothing is carried while another is
 * at it.
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

/** How long events are kept after they were told, or where nobody is told. */
export const EVENT_DAYS = 7;

/** The events of an organization behind a position, in order; fewer than there are only where `heldBack`: a transaction is open that may have an earlier one. */
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

/** The position behind which the next event of an organization will be; undefined while a transaction is open that may have an earlier one. */
export async function outboxEnd(sql: Sql, orgId: string): Promise<number | undefined> {
  const [row] = await sql<{ last: number | null }[]>`select outbox_end(${orgId}) as last`;
  return row?.last ?? undefined;
}

/** The position before the events of an organization since a moment in unix seconds, as far as they are kept. */
export async function positionBefore(sql: Sql, orgId: string, since: number): Promise<number> {
  const [row] = await sql<{ position: number }[]>`
    select coalesce(max(position), 0) as position from outbox where org_id = ${orgId} and created < ${new Date(since * 1000)}`;
  return row?.position ?? 0;
}

/** Deletes events that were sent more than `days` days ago; returns how many. */
export async function pruneEvents(sql: Sql, days: number): Promise<number> {
  const { count } = await sql`delete from outbox where sent_at < now() - make_interval(days => ${days})`;
  return count;
}

/** Deletes events that were not relayed in `days` days, for a gateway without a relay; returns how many. */
export async function pruneUnsent(sql: Sql, days: number): Promise<number> {
  const { count } =
    await sql`delete from outbox where sent_at is null and created < now() - make_interval(days => ${days})`;
  return count;
}

// Work that travels as messages of NATS. The rows are the truth: a message says that one waits, and entitles to nothing.

/** What waits and is sent now. */
export interface WaitingWork {
  readonly jobs: readonly QueuedJob[];
  readonly deliveries: QueuedDeliveries;
}

/** What is looked for. */
interface WorkRound {
  /** When the stream was made: of what waits an earlier one had the messages. */
  readonly born: string;
  readonly kinds: readonly JobKind[];
  /** Messages of a round: jobs and deliveries each. */
  readonly limit: number;
  /** For how many seconds a job and a delivery count as sent. */
  readonly jobS: number;
  readonly deliveryS: number;
  readonly atOneHook: number;
  /** The webhook that was visited last. */
  readonly after: string;
}

/**
 * Notes what waits and has no message as sent, and answers it: it is to be sent now. Who dies before that delays it. One caller at a time among
 * all that use the database: undefined while another is at it.
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

/** What could not be sent has no message, unless NATS has it all the same: by its name it has it once. */
export async function noteUnsent(sql: Sql, { jobs, deliveries }: WaitingWork): Promise<void> {
  await sql`
    with back as (
      update webhook_delivery set queued_until = null where id = any (${deliveries.queued.map(({ id }) => id)}::text[]) and state = 'pending')
    update job set queued_until = null where id = any (${jobs.map(({ id }) => id)}::text[]) and rank < 9`;
}

/** The stream is another than before: it has the message of nothing that waits. */
async function forgetMessages(tx: Tx, born: string): Promise<void> {
  await tx`
    update webhook_delivery set queued_until = null where id in (
      select id from webhook_delivery where state = 'pending' and queued_until is not null for update skip locked)`;
  await tx`
    update job set queued_until = null where id in (
      select id from job where rank < 9 and queued_until is not null for update skip locked)`;
  await tx`insert into work_stream (born) values (${born}) on conflict (is_one) do update set born = excluded.born`;
}
