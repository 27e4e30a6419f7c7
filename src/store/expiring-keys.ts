/** Keys that end soon, and of whose end nobody was told yet. */
import type { Tx } from "./tx.ts";

/** A key that ends soon. */
export interface ExpiringKey {
  readonly id: string;
  readonly orgId: string;
  /** In unix seconds. */
  readonly expiresAt: number;
  /** The event that tells of this end: the outbox remembers it. A key whose end is moved is told of anew. */
  readonly eventId: string;
}

/** Held by whoever tells, so that two workers tell once. */
const LOCK = 5_417_116_325;

/** Keys that end within `days` and were not told of, at most a thousand; none while another worker is at it. */
export async function expiringKeys(tx: Tx, days: number): Promise<ExpiringKey[]> {
  const [lock] = await tx<{ held: boolean }[]>`select pg_try_advisory_xact_lock(${LOCK}) as held`;
  if (!lock?.held) return [];
  return tx<ExpiringKey[]>`
    select id, org_id as "orgId", "expiresAt", "eventId" from key,
      lateral (select extract(epoch from expires_at)::float8 as "expiresAt",
        'evt_' || replace(id, '_', '') || floor(extract(epoch from expires_at)) as "eventId") as told
    where expires_at > now() and expires_at < now() + make_interval(days => ${days}) and revoked_at is null and not disabled
      and not exists (select from outbox where event_id = "eventId")
    order by expires_at limit 1000`;
}
