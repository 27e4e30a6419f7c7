/** The names of the master keys that this database's secrets are sealed under, so that a process with another one is noticed at its start. */
import { type Sql, tx } from "../database/tx.ts";

/** Any number, as long as it is the same for every replica and used for nothing else. */
const LOCK = 5_417_116_324;

/**
 * Names the current key, the first of `loaded`, as one that secrets are sealed under, unless none of those that were named before is
 * loaded: then nothing is written. Answers how many of the keys that were named before are loaded, and how many are not.
 */
export async function nameMasterKey(
  sql: Sql,
  loaded: readonly [Buffer, ...Buffer[]],
): Promise<{ known: number; missing: number }> {
  return tx(sql, async (tx) => {
    await tx`select pg_advisory_xact_lock(${LOCK})`;
    const rows = await tx<{ name: Buffer }[]>`select name from master_key`;
    const missing = rows.filter(({ name }) => !loaded.some((each) => each.equals(name))).length;
    const known = rows.length - missing;
    if (known > 0 || missing === 0)
      await tx`insert into master_key (name) values (${loaded[0]}) on conflict do nothing`;
    return { known, missing };
  });
}

/** Forgets every master key but those of these names: nothing is sealed under the others, or they are lost. */
export async function forgetMasterKeys(sql: Sql, but: readonly Buffer[]): Promise<void> {
  const names = but.map((name) => name.toString("hex"));
  await sql`delete from master_key where not encode(name, 'hex') = any(${names}::text[])`;
}
