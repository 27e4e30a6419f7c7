/** Every sealed secret of the database, for a change of the master key. */

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

/** One sealed secret. */
interface SealedSecret {
  /** What its row is found by: a text for each of the column's `keys`. */
  id: readonly string[];
  sealed: Buffer;
  /** What it was sealed for. */
  context: string;
}

/** One column that holds sealed secrets. */
interface SealedColumn {
  /** What its rows are called. */
  readonly name: string;
  readonly table: string;
  readonly column: string;
  /** The columns that its rows are found by, each a text; `id` where it says nothing. */
  readonly keys?: readonly string[];
  /** The column that says of a row whether it is sealed at all; where it says nothing, all are. */
  readonly isSealed?: string;
  /** What else of a row its context is made of. */
  readonly needs: readonly string[];
  contextOf(row: Readonly<Record<string, string | number>>): string;
}

/** Every column that holds sealed secrets; a new one is added here. */
export const SEALED_COLUMNS: readonly SealedColumn[] = [
  {
    name: "credentials",
    table: "credential",
    column: "sealed",
    needs: ["orgId", "provider", "version"],
    contextOf: ({ id, orgId, provider, version }) =>
      credentialContext({
        id: String(id),
        orgId: String(orgId),
        provider: String(provider),
        version: Number(version),
      }),
  },
  {
    name: "offerings",
    table: "offering",
    column: "authSecret",
    needs: ["providerId", "endpoint"],
    contextOf: ({ providerId, endpoint }) =>
      offeringContext({ providerId: String(providerId), endpoint: String(endpoint) }),
  },
  ...["secret", "oldSecret"].map((column) => ({
    name: column === "secret" ? "webhooks" : "webhooks' earlier secrets",
    table: "webhook",
    column,
    needs: [],
    contextOf: ({ id }: Readonly<Record<string, string | number>>) => webhookContext(String(id)),
  })),
  {
    name: "headers of broadcast targets",
    table: "broadcast_target",
    column: "headers",
    needs: [],
    contextOf: ({ id }) => broadcastContext(String(id)),
  },
  {
    name: "secrets of issuers",
    table: "issuer",
    column: "sealed",
    needs: [],
    contextOf: ({ id }) => issuerContext(String(id)),
  },
  {
    name: "invites on their way",
    table: "mail",
    column: "sealed",
    needs: [],
    contextOf: ({ id }) => mailContext(String(id)),
  },
  {
    name: "secrets of jobs",
    table: "job",
    column: "secret",
    needs: [],
    contextOf: ({ id }) => jobSecretContext(String(id)),
  },
  {
    name: "keys of jobs",
    table: "job_key",
    column: "wrapped",
    needs: [],
    contextOf: ({ id }) => jobKeyContext(String(id)),
  },
  {
    name: "answers under idempotency keys",
    table: "idempotency",
    column: "response",
    keys: ["orgId", "key", "workspaceId"],
    isSealed: "sealed",
    needs: [],
    contextOf: ({ orgId, key, workspaceId }) =>
      idempotencyContext({ orgId: String(orgId), key: String(key), workspaceId: String(workspaceId) }),
  },
  {
    name: "last chunks of loops",
    table: "loop_session",
    column: "chunk",
    keys: ["session"],
    isSealed: "sealed",
    needs: [],
    contextOf: ({ session }) => loopSessionContext(String(session)),
  },
  {
    name: "key of request hashes",
    table: "hash_key",
    column: "sealed",
    needs: [],
    contextOf: () => HASH_KEY_CONTEXT,
  },
];

/** How many secrets of a column do not begin with `head`. */
export async function countOthers(sql: Sql, place: SealedColumn, head: Buffer): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*) as count from ${sql(place.table)} where ${isOther(sql, place, head)}`;
  return row?.count ?? 0;
}

/** Up to `limit` secrets of a column that do not begin with `head`, in the order of their keys, after those of `after`. */
export async function listOthers(
  sql: Sql,
  place: SealedColumn,
  { head, after, limit }: { head: Buffer; after: readonly string[] | undefined; limit: number },
): Promise<SealedSecret[]> {
  const { table, column, needs } = place;
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
  const rows = await sql<Record<string, string | number | Buffer>[]>`
    select ${sql([...keys, column, ...needs])} from ${sql(table)}
    where ${isOther(sql, place, head)} ${behind ?? sql``} order by ${names} limit ${limit}`;
  return rows.map((row) => ({
    id: keys.map((key) => String(row[key])),
    sealed: row[column] as Buffer, // bytea
    context: place.contextOf(row as Record<string, string | number>), // all that it looks at is text or a number
  }));
}

const keysOf = ({ keys = ["id"] }: SealedColumn): readonly string[] => keys;

type Fragment = ReturnType<Sql>;

/** Fragments with commas between them. */
const listed = (sql: Sql, parts: readonly Fragment[]): Fragment => parts.reduce((all, part) => sql`${all}, ${part}`);

const isOther = (sql: Sql, { column, isSealed }: SealedColumn, head: Buffer): Fragment =>
  sql`${sql(column)} is not null and substring(${sql(column)} from 1 for ${head.length}) <> ${head}
    ${isSealed === undefined ? sql`` : sql`and ${sql(isSealed)}`}`;

/** Puts secrets in the place of others, where those are still there: who stored a new one meanwhile keeps it. Returns how many. */
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

// The key of the hashes by which requests are known again whose organization retains no data: one for all replicas, sealed.

/** What it is sealed for. */
export const HASH_KEY_CONTEXT = JSON.stringify(["hash_key"]);

const ID = "requests";

/** The sealed key; `fresh` where there was none. */
export async function keepHashKey(sql: Sql, fresh: Buffer): Promise<Buffer> {
  await sql`insert into hash_key (id, sealed) values (${ID}, ${fresh}) on conflict do nothing`;
  const [row] = await sql<{ sealed: Buffer }[]>`select sealed from hash_key where id = ${ID}`;
  return row?.sealed ?? fresh;
}

/** Deletes a key that begins with none of `heads`: the master key that it was sealed under is lost. */
export async function forgetHashKey(sql: Sql, heads: readonly Buffer[]): Promise<void> {
  const known = heads.map((head) => head.toString("hex"));
  await sql`
    delete from hash_key where not encode(substring(sealed from 1 for ${heads[0]?.length ?? 0}), 'hex') = any(${known}::text[])`;
}

// The names of the master keys that this database's secrets are sealed under, so that a process with another one is noticed at its start.

/**
 * Names the current key, the first of `loaded`, as one that secrets are sealed under, unless none of those that were named before is
 * loaded: then nothing is written. Returns how many of the keys that were named before are loaded, and how many are not.
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

/** Deletes every master key but those of these names: nothing is sealed under the others, or they are lost. */
export async function forgetMasterKeys(sql: Sql, but: readonly Buffer[]): Promise<void> {
  const names = but.map((name) => name.toString("hex"));
  await sql`delete from master_key where not encode(name, 'hex') = any(${names}::text[])`;
}
