/** Emergency stops: rows that stand until they are released. */
import { newId } from "../../ambient.ts";
import { notify } from "../database/notices.ts";
import type { Queryable, Sql, Tx } from "../database/tx.ts";

/** What a stop covers. */
export type StopScope = "robot" | "session" | "key" | "workspace" | "org";

/** What is to be stopped. */
export interface NewStop {
  orgId: string;
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

interface Row {
  id: string;
  org_id: string;
  scope: StopScope;
  subject: string;
  reason: string;
  created: Date;
  created_by: string;
  released: Date | null;
  released_by: string | null;
}

/** Orders a stop; the same one that stands already is answered as it is, with `fresh` false. */
export async function orderStop(tx: Tx, stop: NewStop): Promise<{ stop: StopRecord; fresh: boolean }> {
  const { orgId, scope, subject, reason, by } = stop;
  const [made] = await tx<Row[]>`
    insert into robot_stop (id, org_id, scope, subject, reason, created_by)
    values (${newId("stop")}, ${orgId}, ${scope}, ${subject}, ${reason}, ${by})
    on conflict (org_id, scope, subject) where released is null do nothing returning *`;
  if (made) return { stop: stopOf(made), fresh: true };
  const [standing] = await tx<Row[]>`
    select * from robot_stop where org_id = ${orgId} and scope = ${scope} and subject = ${subject} and released is null`;
  // Released between the two statements: order it again.
  return standing ? { stop: stopOf(standing), fresh: false } : orderStop(tx, stop);
}

/** Tells every replica of a stop itself when its transaction commits, so that none has to read before it obeys. */
export const tellStop = (tx: Tx, stop: StopRecord): Promise<void> => notify(tx, "robots_stopped", JSON.stringify(stop));

/** The stop that a notification tells of; undefined where it only says that something changed. */
export function stopIn(payload: string): StopRecord | undefined {
  // Ours: nobody else notifies.
  return payload.startsWith("{") ? (JSON.parse(payload) as StopRecord) : undefined;
}

/** Finds a stop. */
export async function findStop(sql: Queryable, id: string): Promise<StopRecord | undefined> {
  const [row] = await sql<Row[]>`select * from robot_stop where id = ${id}`;
  return row && stopOf(row);
}

/** Releases a stop that stands; undefined where it does not. */
export async function releaseStop(tx: Tx, id: string, by: string): Promise<StopRecord | undefined> {
  const [row] = await tx<Row[]>`
    update robot_stop set released = now(), released_by = ${by} where id = ${id} and released is null returning *`;
  return row && stopOf(row);
}

/** The stops that stand, of one organisation or of all. */
export async function standingStops(sql: Sql, orgId?: string): Promise<StopRecord[]> {
  const rows = await sql<Row[]>`
    select * from robot_stop where released is null ${orgId === undefined ? sql`` : sql`and org_id = ${orgId}`}`;
  return rows.map(stopOf);
}

/** The stops of an organisation, newest first, and whether there are older ones. `before` is the last page's last id. */
export async function listStops(
  sql: Sql,
  orgId: string,
  { limit, before, released }: { limit: number; before: string | undefined; released: boolean },
): Promise<{ stops: StopRecord[]; hasMore: boolean }> {
  const rows = await sql<Row[]>`
    select * from robot_stop where org_id = ${orgId} ${before === undefined ? sql`` : sql`and id < ${before}`}
      ${released ? sql`` : sql`and released is null`}
    order by id desc limit ${limit + 1}`;
  return { stops: rows.slice(0, limit).map(stopOf), hasMore: rows.length > limit };
}

const stopOf = ({ org_id, created_by, released_by, created, released, ...row }: Row): StopRecord => ({
  ...row,
  orgId: org_id,
  created: seconds(created),
  createdBy: created_by,
  released: released && seconds(released),
  releasedBy: released_by,
});

const seconds = (date: Date): number => Math.floor(date.getTime() / 1000);
