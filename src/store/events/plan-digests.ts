/** Digests of plans, which records of the log name. */
import type { Queryable, Sql } from "../database/tx.ts";

/** A digest, as JSON, with its name. */
export interface DigestRecord {
  id: string;
  digest: object;
}

/** Keeps digests; of those that are known, that they are still used. */
export async function keepDigests(sql: Sql, digests: readonly DigestRecord[]): Promise<void> {
  const rows = digests.map(({ id, digest }) => ({ id, digest: JSON.stringify(digest) }));
  // In one order, so that two replicas never wait for each other in a ring.
  rows.sort((a, b) => (a.id < b.id ? -1 : 1));
  await sql`
    insert into plan_digest (id, digest)
    select id, digest::jsonb from jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb) as line (id text, digest text)
    on conflict (id) do update set used = excluded.used where plan_digest.used < excluded.used`;
}

/** A digest; undefined where it was forgotten, or is not written yet. */
export async function findDigest(sql: Queryable, id: string): Promise<object | undefined> {
  const [row] = await sql<{ digest: object }[]>`select digest from plan_digest where id = ${id}`;
  return row?.digest;
}

/** Forgets digests that no log can name any more; answers how many. */
export async function pruneDigests(sql: Queryable): Promise<number> {
  const { count } = await sql`
    delete from plan_digest
    where used < current_date - 1 - (select greatest(coalesce(max(retention_days), 30), 30) from org_settings)`;
  return count;
}
