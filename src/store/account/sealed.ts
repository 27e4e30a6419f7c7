/** Access to every sealed secret in the database, to change the master key. */

import { idempotencyContext } from "../billing/idempotency.ts";
import { Lock } from "../database/locks.ts";
import { type Sql, tx } from "../database/tx.ts";
import { broadcastContext } from "../events/broadcast.ts";
import { mailContext } from "../events/mail.ts";
import { webhookContext } from "../events/webhooks.ts";
import { jobKeyContext, jobSecretContext } from "../jobs/jobs.ts";
import { loopSessionContext } from "../replicas/loop-sessions.ts";
import { offeringContext } from "../supply/supply.ts";
import { issuerContext } from "./issuers.ts";
import { credentialContext } from "./settings.ts";
import { signingKeyContext } from "./signing-keys.ts";

/** One sealed secret. */
interface SealedSecret {
  /** The values of the column's `keys` that identify its row. */
  id: readonly string[];
  sealed: Buffer;
  /** Its sealing context. */
  context: string;
}

/** One column that holds sealed secrets. */
interface SealedColumn {
  /** A name for its rows. */
  readonly name: string;
  readonly table: string;
  readonly column: string;
  /** The text columns that identify a row; `id` by default. */
  readonly keys?: readonly string[];
  /** The column that tells whether a row is sealed; if absent, all are. */
  readonly isSealed?: string;
  /** Further columns of the sealing context. */
  readonly needs?: readonly string[];
  /** The sealing context of a row with the columns in `keys` and `needs`. */
  contextOf(row: never): string;
}

const byId =
  (context: (id: string) => string) =>
  ({ id }: { id: string }): string =>
    context(id);

/** Every column that holds sealed secrets. Add new ones here. */
export const SEALED_COLUMNS: readonly SealedColumn[] = [
  {
    ...{ name: "credentials", table: "credential", column: "sealed", contextOf: credentialContext },
    needs: ["orgId", "provider", "version"],
  },
  {
    ...{ name: "offerings", table: "offering", column: "authSecret", contextOf: offeringContext },
    needs: ["providerId", "endpoint"],
  },
  { name: "webhooks", table: "webhook", column: "secret", contextOf: byId(webhookContext) },
  { name: "webhooks' earlier secrets", table: "webhook", column: "oldSecret", contextOf: byId(webhookContext) },
  {
    name: "headers of broadcast targets",
    table: "broadcast_target",
    column: "headers",
    contextOf: byId(broadcastContext),
  },
  { name: "secrets of issuers", table: "issuer", column: "sealed", contextOf: byId(issuerContext) },
  { name: "invites on their way", table: "mail", column: "sealed", contextOf: byId(mailContext) },
  { name: "secrets of jobs", table: "job", column: "secret", contextOf: byId(jobSecretContext) },
  { name: "keys of jobs", table: "job_key", column: "wrapped", contextOf: byId(jobKeyContext) },
  {
    ...{ name: "answers under idempotency keys", table: "idempotency", column: "response", isSealed: "sealed" },
    keys: ["orgId", "key", "workspaceId"],
    contextOf: idempotencyContext,
  },
  {
    ...{ name: "last chunks of loops", table: "loop_session", column: "chunk", isSealed: "sealed" },
    keys: ["session"],
    contextOf: ({ session }: { session: string }) => loopSessionContext(session),
  },
  { name: "signing keys", table: "signing_key", column: "sealed", contextOf: byId(signingKeyContext) },
  { name: "key of request hashes", table: "hash_key", column: "sealed", contextOf: () => HASH_KEY_CONTEXT },
];

/** The number of secrets in a column that do not begin with `head`. */
export async function countOthers(sql: Sql, place: SealedColumn, head: Buffer): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*) as count from ${sql(place.table)} where ${isOther(sql, place, head)}`;
  return row?.count ?? 0;
}

/** Up to `limit` secrets of a column that do not begin with `head`, in the order of their keys, after `after`. */
export async function listOthers(
  sql: Sql,
  place: SealedColumn,
  { head, after, limit }: { head: Buffer; after: readonly string[] | undefined; limit: number },
): Promise<SealedSecret[]> {
  const { table, column, needs = [] } = place;
  const keys = keysOf(place);
  const names = listed(
    sql,
    keys.map((key) => sql`${sql(key)}`),
  );
  const behind =
    after &&
    sql`and (${names}) > (${listed(
      sql,
      after.map((key) => sql`${key}`),
    )})`;
  const rows = await sql<Record<string, unknown>[]>`
    select ${sql([...keys, column, ...needs])} from ${sql(table)}
    where ${isOther(sql, place, head)} ${behind ?? sql``} order by ${names} limit ${limit}`;
  return rows.map((row) => ({
    id: keys.map((key) => String(row[key])),
    sealed: row[column] as Buffer, // bytea
    context: place.contextOf(row as never), // it has the columns that the table lists
  }));
}

const keysOf = ({ keys = ["id"] }: SealedColumn): readonly string[] => keys;

type Fragment = ReturnType<Sql>;

/** Joins SQL fragments with commas. */
const listed = (sql: Sql, parts: readonly Fragment[]): Fragment => parts.reduce((all, part) => sql`${all}, ${part}`);

const isOther = (sql: Sql, { column, isSealed }: SealedColumn, head: Buffer): Fragment =>
  sql`${sql(column)} is not null and substring(${sql(column)} from 1 for ${head.length}) <> ${head}
    ${isSealed === undefined ? sql`` : sql`and ${sql(isSealed)}`}`;

/** Replaces secrets, unless they were changed in the meantime. Returns the number of replaced ones. */
export async function replaceSealed(
  sql: Sql,
  place: SealedColumn,
  changes: readonly { id: readonly string[]; from: Buffer; to: Buffer }[],
): Promise<number> {
  if (changes.length === 0) return 0;
  const { table, column } = place;
  const rows = changes.map(({ id, from, to }) => ({ id, from: from.toString("hex"), to: to.toString("hex") }));
  const isIts = keysOf(place)
    .map((key, i) => sql`${sql(`${table}.${key}`)} = change.id ->> ${i}::int`)
    .reduce((all, each) => sql`${all} and ${each}`);
  const { count } = await sql`
    update ${sql(table)} set ${sql(column)} = decode(change."to", 'hex')
    from json_to_recordset(${JSON.stringify(rows)}::text::json) as change (id json, "from" text, "to" text)
    where ${isIts} and ${sql(`${table}.${column}`)} = decode(change."from", 'hex')`;
  return count;
}

// The key for request hashes of organizations with zero data retention: one for all replicas, sealed.

/** Its sealing context. */
export const HASH_KEY_CONTEXT = JSON.stringify(["hash_key"]);

const ID = "requests";

/** The sealed key; `fresh` if there was none. */
export async function keepHashKey(sql: Sql, fresh: Buffer): Promise<Buffer> {
  await sql`insert into hash_key (id, sealed) values (${ID}, ${fresh}) on conflict do nothing`;
  const [row] = await sql<{ sealed: Buffer }[]>`select sealed from hash_key where id = ${ID}`;
  return row?.sealed ?? fresh;
}

/** Deletes a key that begins with none of `heads`: the master key that sealed it is lost. */
export async function forgetHashKey(sql: Sql, heads: readonly Buffer[]): Promise<void> {
  const known = heads.map((head) => head.toString("hex"));
  await sql`
    delete from hash_key where not encode(substring(sealed from 1 for ${heads[0]?.length ?? 0}), 'hex') = any(${known}::text[])`;
}

// The names of the master keys that sealed this database's secrets, so that a process with other keys fails at its start.

/**
 * Records the current key, the first of `loaded`, as in use. Writes nothing if none of the recorded keys is loaded. Returns how many of the
 * recorded keys are loaded, and how many are missing.
 */
export async function nameMasterKey(
  sql: Sql,
  loaded: readonly [Buffer, ...Buffer[]],
): Promise<{ known: number; missing: number }> {
  return tx(sql, async (tx) => {
    await tx`select pg_advisory_xact_lock(${Lock.MASTER_KEYS})`;
    const rows = await tx<{ name: Buffer }[]>`select name from master_key`;
    const missing = rows.filter(({ name }) => !loaded.some((each) => each.equals(name))).length;
    const known = rows.length - missing;
    if (known > 0 || missing === 0)
      await tx`insert into master_key (name) values (${loaded[0]}) on conflict do nothing`;
    return { known, missing };
  });
}

/** Deletes the names of all other master keys: they seal nothing, or are lost. */
export async function forgetMasterKeys(sql: Sql, but: readonly Buffer[]): Promise<void> {
  const names = but.map((name) => name.toString("hex"));
  await sql`delete from master_key where not encode(name, 'hex') = any(${names}::text[])`;
}
