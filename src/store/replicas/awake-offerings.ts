/** Until when offerings are awake as far as money goes: a cold start is paid once among all replicas. */
import type { Queryable } from "../database/tx.ts";

/**
 * Claims a cold start for one attempt, for `holdMs` at most. False where another attempt has it, or where the offering was awake a
 * moment ago: then this attempt pays for no wake-up.
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

/** Notes that the attempt that claimed the cold start was answered: the offering stays awake for `warmMs` from now on. */
export async function keepAwake(
  sql: Queryable,
  { offeringId, waker, warmMs }: { offeringId: string; waker: string; warmMs: number },
): Promise<void> {
  await sql`
    update awake_offering set until = now() + ${warmMs} * interval '1 millisecond'
    where offering_id = ${offeringId} and waker = ${waker}`;
}

/** Gives a claim back whose attempt was not answered: the next attempt pays. */
export async function giveWakeBack(
  sql: Queryable,
  { offeringId, waker }: { offeringId: string; waker: string },
): Promise<void> {
  await sql`delete from awake_offering where offering_id = ${offeringId} and waker = ${waker}`;
}

/** Notes that the gateway itself has woken an offering, which stays awake for `warmMs` from now on. */
export async function notedAwake(
  sql: Queryable,
  { offeringId, warmMs }: { offeringId: string; warmMs: number },
): Promise<void> {
  await sql`
    insert into awake_offering as known (offering_id, waker, until)
    values (${offeringId}, '', now() + ${warmMs} * interval '1 millisecond')
    on conflict (offering_id) do update set until = greatest(known.until, excluded.until)`;
}
