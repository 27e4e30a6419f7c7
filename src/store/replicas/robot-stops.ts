/** Emergency stops: rows that stand until they are released. */
import { notify } from "../database/notifications.ts";
import type { Queryable, Sql, Tx } from "../database/tx.ts";
import { unixSeconds } from "../database/types.ts";

/** What a stop covers. */
export type StopScope = "robot" | "session" | "key" | "workspace" | "org";

/** What is to be stopped, and by whom. */
export interface NewStop {
  orgId: string;
  /** The workspace whose keys alone it covers, and may release it; null: the organisation's. */
  workspaceId: string | null;
  scope: StopScope;
  subject: string;
  reason: string;
  by: string;
}

/** A stop. Times are unix seconds. */
export interface StopRecord extends Omit<NewStop, "by"> {
  id: string;
  created: number;
  createdBy: string;
  released: number | null;
  releasedBy: string | null;
}

interface StopRow extends Omit<StopRecord, "created" | "released"> {
  created: Date;
  released: Date | null;
}

/**
 * Writes a stop that was ordered, once; the same one that stands already is answered as it is, with `fresh` false, and so is one that
 * was written before under this name, whatever became of it.
 */
export async function orderStop(tx: Tx, stop: StopRecord): Promise<{ stop: StopRecord; fresh: boolean }> {
  const { id, orgId, workspaceId, scope, subject, reason, created, createdBy } = stop;
  const before = await findStop(tx, id);
  if (before) return { stop: before, fresh: false };
  const [made] = await tx<StopRow[]>`
    insert into robot_stop (id, org_id, workspace_id, scope, subject, reason, created, created_by)
    values (${id}, ${orgId}, ${workspaceId}, ${scope}, ${subject}, ${reason}, ${new Date(created * 1000)}, ${createdBy})
    on conflict (org_id, scope, subject, coalesce(workspace_id, '')) where released is null do nothing returning *`;
  if (made) return { stop: stopOf(made), fresh: true };
  const [standing] = await tx<StopRow[]>`
    select * from robot_stop where org_id = ${orgId} and scope = ${scope} and subject = ${subject}
      and workspace_id is not distinct from ${workspaceId} and released is null`;
  // Released between the two statements: order it again.
  return standing ? { stop: stopOf(standing), fresh: false } : orderStop(tx, stop);
}

/** Tells every replica of a stop itself when its transaction commits, so that none has to read before it obeys. */
export const tellStop = (tx: Tx, stop: StopRecord): Promise<void> => notify(tx, "robots_stopped", JSON.stringify(stop));

/** The stop that a notification tells of; undefined where it only says that something changed. */
export function stopIn(payload: string): StopRecord | undefined {
  // Ours: nobody else notifies. A replica of an earlier version names no workspace, and means the organisation.
  return payload.startsWith("{")
    ? { workspaceId: null, ...(JSON.parse(payload) as Omit<StopRecord, "workspaceId">) }
    : undefined;
}

/** Finds a stop. */
export async function findStop(sql: Queryable, id: string): Promise<StopRecord | undefined> {
  const [row] = await sql<StopRow[]>`select * from robot_stop where id = ${id}`;
  return row && stopOf(row);
}

/** Releases a stop that stands; undefined where it does not. */
export async function releaseStop(tx: Tx, id: string, by: string): Promise<StopRecord | undefined> {
  const [row] = await tx<StopRow[]>`
    update robot_stop set released = now(), released_by = ${by} where id = ${id} and released is null returning *`;
  return row && stopOf(row);
}

/** Says why a stop was ordered. Every replica hears of it, as of each change of a stop. Undefined where that was said before. */
export async function sayReason(tx: Tx, id: string, reason: string): Promise<StopRecord | undefined> {
  const [row] = await tx<StopRow[]>`
    update robot_stop set reason = ${reason} where id = ${id} and reason <> ${reason} returning *`;
  return row && stopOf(row);
}

/** The stops that stand, of one organisation or of all. */
export async function standingStops(sql: Sql, orgId?: string): Promise<StopRecord[]> {
  const rows = await sql<StopRow[]>`
    select * from robot_stop where released is null ${orgId === undefined ? sql`` : sql`and org_id = ${orgId}`}`;
  return rows.map(stopOf);
}

/** How many stops stand in an organisation. */
export async function countStandingStops(sql: Queryable, orgId: string): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int as count from robot_stop where org_id = ${orgId} and released is null`;
  return row!.count; // an aggregate has one row
}

/** Which stops of an organisation. */
export interface StopPage {
  /** Those of this workspace alone; undefined: all. */
  readonly workspaceId: string | undefined;
  readonly limit: number;
  readonly before: string | undefined;
  readonly released: boolean;
}

/** The stops of an organisation, or those of one of its workspaces, newest first. `before` is the last page's last id. */
export async function listStops(
  sql: Sql,
  orgId: string,
  { workspaceId, limit, before, released }: StopPage,
): Promise<StopRecord[]> {
  const rows = await sql<StopRow[]>`
    select * from robot_stop where org_id = ${orgId} ${before === undefined ? sql`` : sql`and id < ${before}`}
      ${workspaceId === undefined ? sql`` : sql`and workspace_id = ${workspaceId}`}
      ${released ? sql`` : sql`and released is null`}
    order by id desc limit ${limit}`;
  return rows.map(stopOf);
}

const stopOf = (row: StopRow): StopRecord => ({
  ...row,
  created: unixSeconds(row.created),
  released: row.released && unixSeconds(row.released),
});
