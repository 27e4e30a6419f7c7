/** Events on their way to targets of spans: kept from the transaction of their cause until they were taken or given up. */
import type { Queryable } from "../database/tx.ts";

/** An event that is to be sent to a target now. */
export interface ClaimedEvent {
  position: string;
  targetId: string;
  /** The event message, binary. */
  payload: Buffer;
  /** How often it was tried, this time included. */
  tries: number;
}

/** How long a sender has before another may think it dead. */
const CLAIM_S = 60;
const AT_ONCE = 512;

/**
 * Claims the oldest events that are due for one target, none of those in `busy`. What a sender claimed and never told of again is
 * claimed anew.
 */
export async function claimTargetEvents(sql: Queryable, busy: readonly string[]): Promise<ClaimedEvent[]> {
  const rows = await sql<{ position: string; targetId: string; payload: Buffer; tries: number }[]>`
    with target as (
      select target_id as id from broadcast_event join broadcast_target on broadcast_target.id = target_id
      where due <= now() and enabled and target_id <> all (${[...busy]}::text[]) order by due limit 1),
    next as (
      select position from broadcast_event where target_id = (select id from target) and due <= now()
      order by position limit ${AT_ONCE} for update skip locked)
    update broadcast_event set due = now() + make_interval(secs => ${CLAIM_S}), tries = tries + 1
    where position in (select position from next) returning position, target_id, payload, tries`;
  return rows.sort((a, b) => Number(a.position) - Number(b.position));
}

/** Forgets events that a target took, or that are given up. */
export async function dropTargetEvents(sql: Queryable, positions: readonly string[]): Promise<void> {
  await sql`delete from broadcast_event where position = any (${[...positions]}::bigint[])`;
}

/** Puts events off by so many milliseconds. */
export async function delayTargetEvents(sql: Queryable, positions: readonly string[], ms: number): Promise<void> {
  await sql`
    update broadcast_event set due = now() + make_interval(secs => ${ms / 1000}::float8)
    where position = any (${[...positions]}::bigint[])`;
}

/** When the next event is due for an enabled target, in milliseconds from now; undefined when none waits. */
export async function nextTargetEvent(sql: Queryable): Promise<number | undefined> {
  const [row] = await sql<{ ms: number | null }[]>`
    select (extract(epoch from min(due) - now()) * 1000)::float8 as ms
    from broadcast_event join broadcast_target on broadcast_target.id = target_id where enabled`;
  return row?.ms ?? undefined;
}

/** Forgets what waited longer than so many days, for targets that are disabled; answers how many. */
export async function pruneTargetEvents(sql: Queryable, days: number): Promise<number> {
  const { count } = await sql`delete from broadcast_event where due < now() - make_interval(days => ${days})`;
  return count;
}
