/** Robots that organisations have written down. */
import { Reason, refuse } from "../../errors.ts";
import type { Queryable, Tx } from "../database/tx.ts";
import { unixSeconds } from "../database/types.ts";

/** A robot. */
export interface RobotRecord {
  id: string;
  /** Undefined: the organisation's own. */
  workspaceId: string | undefined;
  /** ProtoJSON of its configuration. */
  config: object;
  /** Keys that are bound to it. */
  keyIds: string[];
  /** Unix seconds. */
  created: number;
  updated: number;
}

/** Which robot: its name is one's own within its workspace. */
export interface RobotName {
  readonly orgId: string;
  readonly workspaceId: string | undefined;
  readonly id: string;
}

/** Robots that an organisation may have. */
const MOST_ROBOTS = 5_000;
/** Keys that are told of one. */
const MOST_KEYS = 100;

interface RobotRow {
  id: string;
  workspaceId: string;
  config: object;
  keyIds: string[] | null;
  created: Date;
  updated: Date;
}

const robotOf = ({ workspaceId, keyIds, created, updated, ...row }: RobotRow): RobotRecord => ({
  ...row,
  workspaceId: workspaceId === "" ? undefined : workspaceId,
  keyIds: keyIds ?? [],
  created: unixSeconds(created),
  updated: unixSeconds(updated),
});

const shown = (sql: Queryable) => sql`
  id, workspace_id, config, created, updated, array(
    select key.id from key
    where key.org_id = robot.org_id and key.robot_id = robot.id and key.revoked_at is null
      and coalesce(key.workspace_id, '') = robot.workspace_id
    order by key.id limit ${MOST_KEYS}
  ) as key_ids`;

/** Writes a robot down. Refuses with `too_many` beyond 5,000 of an organisation. Answers whether anything changed. */
export async function putRobot(
  tx: Tx,
  { orgId, workspaceId = "", id }: RobotName,
  config: object,
): Promise<{ robot: RobotRecord; changed: boolean }> {
  // One change of an organisation's robots at a time, so that the count holds.
  await tx`select 1 from org where id = ${orgId} for no key update`;
  const json = JSON.stringify(config);
  const put = await tx`
    insert into robot (org_id, workspace_id, id, config) values (${orgId}, ${workspaceId}, ${id}, ${json}::text::jsonb)
    on conflict (org_id, workspace_id, id) do update set config = excluded.config, updated = now()
    where robot.config <> excluded.config`;
  const [row] = await tx<{ count: number }[]>`select count(*)::int as count from robot where org_id = ${orgId}`;
  if ((row?.count ?? 0) > MOST_ROBOTS)
    throw refuse(Reason.TOO_MANY, `an organisation may have ${MOST_ROBOTS} robots; delete one first`);
  const robot = await findRobot(tx, { orgId, workspaceId, id });
  return { robot: robot!, changed: put.count > 0 }; // it was just written
}

/** A robot; undefined where there is none of this name. */
export async function findRobot(
  sql: Queryable,
  { orgId, workspaceId = "", id }: RobotName,
): Promise<RobotRecord | undefined> {
  const [row] = await sql<RobotRow[]>`
    select ${shown(sql)} from robot where org_id = ${orgId} and workspace_id = ${workspaceId} and id = ${id}`;
  return row && robotOf(row);
}

/** Robots by name, of one workspace or of all of the organisation, behind a name and the workspace in which it is. */
export async function listRobots(
  sql: Queryable,
  orgId: string,
  { workspaceId, after, limit }: { workspaceId: string | undefined; after: readonly [string, string]; limit: number },
): Promise<RobotRecord[]> {
  const [id, workspace] = after;
  const rows = await sql<RobotRow[]>`
    select ${shown(sql)} from robot where org_id = ${orgId}
      ${workspaceId === undefined ? sql`` : sql`and workspace_id = ${workspaceId}`}
      and (id collate "C", workspace_id collate "C") > (${id}, ${workspace})
    order by id collate "C", workspace_id collate "C" limit ${limit}`;
  return rows.map(robotOf);
}

/** Forgets a robot; answers whether there was one. */
export async function deleteRobot(tx: Tx, { orgId, workspaceId = "", id }: RobotName): Promise<boolean> {
  const { count } = await tx`
    delete from robot where org_id = ${orgId} and workspace_id = ${workspaceId} and id = ${id}`;
  return count > 0;
}
