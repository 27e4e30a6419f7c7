/** Every sealed secret of the database, for a change of the master key. */

import type { Sql } from "../database/tx.ts";
import { broadcastContext } from "../events/broadcast.ts";
import { mailContext } from "../events/mail.ts";
import { webhookContext } from "../events/webhooks.ts";
import { jobKeyContext, jobSecretContext } from "../jobs/jobs.ts";
import { offeringContext } from "../supply/supply.ts";
import { credentialContext } from "./credentials.ts";
import { issuerContext } from "./issuers.ts";

/** One sealed secret. */
export interface SealedSecret {
  id: string;
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
];

/** How many secrets of a column do not begin with `head`. */
export async function countOthers(sql: Sql, { table, column }: SealedColumn, head: Buffer): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*) as count from ${sql(table)} where ${begins(sql, column, head)}`;
  return row?.count ?? 0;
}

/** Up to `limit` secrets of a column that do not begin with `head`, in the order of their names, after the name `after`. */
export async function listOthers(
  sql: Sql,
  place: SealedColumn,
  { head, after, limit }: { head: Buffer; after: string; limit: number },
): Promise<SealedSecret[]> {
  const { table, column, needs } = place;
  const rows = await sql<Record<string, string | number | Buffer>[]>`
    select ${sql(["id", column, ...needs])} from ${sql(table)}
    where ${begins(sql, column, head)} and id > ${after} order by id limit ${limit}`;
  return rows.map((row) => ({
    id: String(row.id),
    sealed: row[column] as Buffer, // bytea
    context: place.contextOf(row as Record<string, string | number>), // all that it looks at is text or a number
  }));
}

const begins = (sql: Sql, column: string, head: Buffer) =>
  sql`${sql(column)} is not null and substring(${sql(column)} from 1 for ${head.length}) <> ${head}`;

/** Puts secrets in the place of others, where those are still there: who stored a new one meanwhile keeps it. Answers how many. */
export async function replaceSealed(
  sql: Sql,
  { table, column }: SealedColumn,
  changes: readonly { id: string; from: Buffer; to: Buffer }[],
): Promise<number> {
  if (changes.length === 0) return 0;
  const { count } = await sql`
    update ${sql(table)} set ${sql(column)} = decode(change."to", 'hex')
    from json_to_recordset(${JSON.stringify(changes.map(({ id, from, to }) => ({ id, from: from.toString("hex"), to: to.toString("hex") })))}::text::json)
      as change (id text, "from" text, "to" text)
    where ${sql(table)}.id = change.id and ${sql(`${table}.${column}`)} = decode(change."from", 'hex')`;
  return count;
}
