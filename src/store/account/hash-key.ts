/** The key of the hashes by which requests are known again whose organisation retains no data: one for all replicas, sealed. */
import type { Sql } from "../database/tx.ts";

/** What it is sealed for. */
export const HASH_KEY_CONTEXT = JSON.stringify(["hash_key"]);

const ID = "requests";

/** The sealed key; `fresh` where there was none. */
export async function keepHashKey(sql: Sql, fresh: Buffer): Promise<Buffer> {
  await sql`insert into hash_key (id, sealed) values (${ID}, ${fresh}) on conflict do nothing`;
  const [row] = await sql<{ sealed: Buffer }[]>`select sealed from hash_key where id = ${ID}`;
  return row?.sealed ?? fresh;
}

/** Forgets a key that begins with none of `heads`: the master key that it was sealed under is lost. */
export async function forgetHashKey(sql: Sql, heads: readonly Buffer[]): Promise<void> {
  const known = heads.map((head) => head.toString("hex"));
  await sql`
    delete from hash_key where not encode(substring(sealed from 1 for ${heads[0]?.length ?? 0}), 'hex') = any(${known}::text[])`;
}
