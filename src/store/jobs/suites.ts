/** Suites of an organization. */
import { allRecords, firstRecord, type Queryable, type Tx } from "../database/tx.ts";

/** A stored suite. Times are Unix seconds. */
export interface SuiteRecord {
  readonly id: string;
  readonly title: string;
  readonly digest: string;
  readonly tasks: readonly object[];
  readonly created: number;
  readonly archived: number | undefined;
}

/** Stores a suite. Fails with the cap's error if the organization has too many. */
export async function addSuite(
  tx: Tx,
  orgId: string,
  { id, title, digest, tasks }: Pick<SuiteRecord, "id" | "title" | "digest" | "tasks">,
): Promise<void> {
  await tx`
    insert into suite (id, org_id, title, digest, tasks)
    values (${id}, ${orgId}, ${title}, ${digest}, ${tx.json(tasks as never)})`;
}

const columns = (sql: Queryable) => sql`select id, title, digest, tasks, created, archived from suite`;

/** A suite of an organization, archived or not. */
export const findSuite = (sql: Queryable, orgId: string, id: string): Promise<SuiteRecord | undefined> =>
  firstRecord<SuiteRecord>(sql`${columns(sql)} where org_id = ${orgId} and id = ${id}`);

/** The suites of an organization that are not archived, newest first, after the one with the id `cursor`. */
export const listSuites = (
  sql: Queryable,
  orgId: string,
  { limit, cursor }: { limit: number; cursor: string | undefined },
): Promise<SuiteRecord[]> =>
  allRecords<SuiteRecord>(sql`
    ${columns(sql)} where org_id = ${orgId} and archived is null
      ${cursor === undefined ? sql`` : sql`and (created, id) < (select created, id from suite where id = ${cursor} and org_id = ${orgId})`}
    order by created desc, id desc limit ${limit}`);

/** Archives a suite. Returns false if it is archived already or does not exist. */
export async function archiveSuite(tx: Tx, orgId: string, id: string): Promise<boolean> {
  const { count } = await tx`
    update suite set archived = now() where org_id = ${orgId} and id = ${id} and archived is null`;
  return count > 0;
}
