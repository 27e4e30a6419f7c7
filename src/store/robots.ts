/** Registered robots, emergency stops, and the armings and runs of agents. */
import { Reason, refuse } from "../errors.ts";
import { newId } from "../ids.ts";
import { notify } from "./database/notifications.ts";
import { allRecords, firstRecord, type Queryable, type Sql, type Tx, unixSeconds } from "./database/tx.ts";

/** A robot. */
export interface RobotRecord {
  id: string;
  /** Undefined if it belongs to the organization. */
  workspaceId: string | undefined;
  /** ProtoJSON of its configuration. */
  config: object;
  /** Ids of the keys that are bound to it. */
  keyIds: string[];
  /** Unix seconds. */
  created: number;
  updated: number;
}

/** Identifies a robot: its name is unique in its workspace. */
export interface RobotName {
  readonly orgId: string;
  readonly workspaceId: string | undefined;
  readonly id: string;
}

/** The most robots of an organization. */
const MOST_ROBOTS = 5_000;
/** The most bound keys that a record lists. */
const MOST_KEYS = 100;

const shown = (sql: Queryable) => sql`
  id, nullif(workspace_id, '') as workspace_id, config, created, updated, array(
    select key.id from key
    where key.org_id = robot.org_id and key.robot_id = robot.id and key.revoked_at is null
      and coalesce(key.workspace_id, '') = robot.workspace_id
    order by key.id limit ${MOST_KEYS}
  ) as key_ids`;

/** Creates or replaces a robot. Refuses with `too_many` above 5,000 per organization. Reports whether anything changed. */
export async function putRobot(
  tx: Tx,
  { orgId, workspaceId = "", id }: RobotName,
  config: object,
): Promise<{ robot: RobotRecord; changed: boolean }> {
  // Serialize changes of an organization's robots, so that the count holds.
  await tx`select 1 from org where id = ${orgId} for no key update`;
  const json = JSON.stringify(config);
  const put = await tx`
    insert into robot (org_id, workspace_id, id, config) values (${orgId}, ${workspaceId}, ${id}, ${json}::text::jsonb)
    on conflict (org_id, workspace_id, id) do update set config = excluded.config, updated = now()
    where robot.config <> excluded.config`;
  const [row] = await tx<{ count: number }[]>`select count(*)::int as count from robot where org_id = ${orgId}`;
  if ((row?.count ?? 0) > MOST_ROBOTS)
    throw refuse(Reason.TOO_MANY, `an organization can have at most ${MOST_ROBOTS} robots; delete one first`);
  const robot = await findRobot(tx, { orgId, workspaceId, id });
  return { robot: robot!, changed: put.count > 0 }; // it was just written
}

/** A robot; undefined if it does not exist. */
export async function findRobot(
  sql: Queryable,
  { orgId, workspaceId = "", id }: RobotName,
): Promise<RobotRecord | undefined> {
  return firstRecord<RobotRecord>(sql`
    select ${shown(sql)} from robot where org_id = ${orgId} and workspace_id = ${workspaceId} and id = ${id}`);
}

/** Lists robots by name, of one workspace or of the entire organization, after a name and its workspace. */
export async function listRobots(
  sql: Queryable,
  orgId: string,
  { workspaceId, after, limit }: { workspaceId: string | undefined; after: readonly [string, string]; limit: number },
): Promise<RobotRecord[]> {
  const [id, workspace] = after;
  return allRecords<RobotRecord>(sql`
    select ${shown(sql)} from robot where org_id = ${orgId}
      ${workspaceId === undefined ? sql`` : sql`and workspace_id = ${workspaceId}`}
      and (id collate "C", workspace_id collate "C") > (${id}, ${workspace})
    order by id collate "C", workspace_id collate "C" limit ${limit}`);
}

/** Deletes a robot; reports whether there was one. */
export async function deleteRobot(tx: Tx, { orgId, workspaceId = "", id }: RobotName): Promise<boolean> {
  const { count } = await tx`
    delete from robot where org_id = ${orgId} and workspace_id = ${workspaceId} and id = ${id}`;
  return count > 0;
}

// Emergency stops. A stop is active until it is released.

/** What a stop covers. */
export type StopScope = "robot" | "session" | "key" | "workspace" | "org";

/** A requested stop and its author. */
export interface NewStop {
  orgId: string;
  /** If set, the stop covers only this workspace's keys, which can also release it; null for the organization. */
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
 * Stores a stop once. Returns an equal active stop, or the stop that was stored under this id before in any state, with `fresh` false.
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
  // It was released between the two statements; order it again.
  return standing ? { stop: stopOf(standing), fresh: false } : orderStop(tx, stop);
}

/** Sends a stop to every replica when its transaction commits, so that none has to query before it obeys. */
export const notifyStop = (tx: Tx, stop: StopRecord): Promise<void> =>
  notify(tx, "robots_stopped", JSON.stringify(stop));

/** The stop in a notification; undefined if the notification only reports a change. */
export function stopIn(payload: string): StopRecord | undefined {
  // Only the gateway notifies here. A replica of an earlier version sends no workspace and means the organization.
  return payload.startsWith("{")
    ? { workspaceId: null, ...(JSON.parse(payload) as Omit<StopRecord, "workspaceId">) }
    : undefined;
}

/** Finds a stop. */
export async function findStop(sql: Queryable, id: string): Promise<StopRecord | undefined> {
  const [row] = await sql<StopRow[]>`select * from robot_stop where id = ${id}`;
  return row && stopOf(row);
}

/** Releases an active stop; undefined if it is not active. */
export async function releaseStop(tx: Tx, id: string, by: string): Promise<StopRecord | undefined> {
  const [row] = await tx<StopRow[]>`
    update robot_stop set released = now(), released_by = ${by} where id = ${id} and released is null returning *`;
  return row && stopOf(row);
}

/** Sets the reason of a stop and, as with each change, notifies every replica. Undefined if the reason is the same. */
export async function setStopReason(tx: Tx, id: string, reason: string): Promise<StopRecord | undefined> {
  const [row] = await tx<StopRow[]>`
    update robot_stop set reason = ${reason} where id = ${id} and reason <> ${reason} returning *`;
  return row && stopOf(row);
}

/** The active stops of one organization or of all. */
export async function standingStops(sql: Sql, orgId?: string): Promise<StopRecord[]> {
  const rows = await sql<StopRow[]>`
    select * from robot_stop where released is null ${orgId === undefined ? sql`` : sql`and org_id = ${orgId}`}`;
  return rows.map(stopOf);
}

/** The number of an organization's active stops. */
export async function countStandingStops(sql: Queryable, orgId: string): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int as count from robot_stop where org_id = ${orgId} and released is null`;
  return row!.count; // an aggregate has one row
}

/** A page of an organization's stops. */
export interface StopPage {
  /** Only those of this workspace; undefined means all. */
  readonly workspaceId: string | undefined;
  readonly limit: number;
  readonly before: string | undefined;
  readonly released: boolean;
}

/** Lists the stops of an organization or of one of its workspaces, newest first. `before` is the last id of the previous page. */
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

// Armings of robots for agents, and their runs.

/** A new arming. */
export interface NewArming {
  readonly orgId: string;
  /** The workspace of the arming key; undefined for the organization. */
  readonly workspaceId: string | undefined;
  readonly robotId: string;
  readonly keyId: string | undefined;
  readonly clientId: string | undefined;
  /** The workspace of the agent's key; undefined if it belongs to the organization or to an application. */
  readonly agentWorkspaceId: string | undefined;
  readonly models: readonly string[];
  /** ProtoJSON of `SafetyBounds`. */
  readonly bounds: object | undefined;
  readonly maxSeconds: number;
  readonly createdBy: string;
  /** The session of the arming user, whose end also ends the arming; undefined if a key without a session arms. */
  readonly sessionId: string | undefined;
  readonly createdMs: number;
  readonly endsMs: number;
}

/** An arming. Times are unix seconds. */
export interface ArmingRecord extends Omit<NewArming, "createdMs" | "endsMs"> {
  readonly id: string;
  readonly created: number;
  readonly ends: number;
  readonly ended: number | undefined;
  readonly endedWhy: string | undefined;
  /** Whether it is active: neither ended nor expired. */
  readonly stands: boolean;
}

/** A run. Times are unix seconds. */
export interface RunRecord {
  readonly id: string;
  readonly orgId: string;
  readonly armingId: string;
  readonly robotId: string;
  readonly keyId: string;
  readonly model: string;
  readonly instruction: string;
  readonly maxSeconds: number;
  readonly created: number;
  readonly started: number | undefined;
  readonly ended: number | undefined;
  readonly why: string | undefined;
  readonly chunks: number;
  readonly holds: number;
  readonly costMicro: number;
}

/** The progress of a run. */
export interface RunCounts {
  readonly chunks: number;
  readonly holds: number;
  readonly costMicro: number;
}

/** A run without a heartbeat for this long is lost: the process that carried it is gone. */
const LOST_MS = 10_000;

/** Stores an arming. */
export async function addArming(tx: Tx, arming: NewArming): Promise<ArmingRecord> {
  const { orgId, workspaceId, robotId, keyId, clientId, agentWorkspaceId, models, bounds, maxSeconds } = arming;
  const { createdBy, sessionId, createdMs, endsMs } = arming;
  return (await firstRecord<ArmingRecord>(tx`
    insert into robot_arming (id, org_id, workspace_id, robot_id, key_id, client_id, agent_workspace_id, models, bounds, max_seconds, created,
      created_by, session_id, ends)
    values (${newId("arm")}, ${orgId}, ${workspaceId ?? null}, ${robotId}, ${keyId ?? null}, ${clientId ?? null}, ${agentWorkspaceId ?? null},
      ${[...models]}, ${bounds === undefined ? null : JSON.stringify(bounds)}::text::jsonb, ${maxSeconds}, ${new Date(createdMs)}, ${createdBy},
      ${sessionId ?? null}, ${new Date(endsMs)})
    returning *, ended is null and ends > now() as stands`))!;
}

/** Finds an arming. */
export async function findArming(sql: Queryable, id: string): Promise<ArmingRecord | undefined> {
  return firstRecord<ArmingRecord>(sql`
    select *, ended is null and ends > now() as stands from robot_arming where id = ${id}`);
}

/** The active armings of an agent's key and a robot, newest first. */
export async function standingArmings(
  sql: Queryable,
  { orgId, robotId, keyId }: { orgId: string; robotId: string; keyId: string },
): Promise<ArmingRecord[]> {
  return allRecords<ArmingRecord>(sql`
    select *, true as stands from robot_arming
    where org_id = ${orgId} and robot_id = ${robotId} and ended is null and ends > now()
      and (key_id = ${keyId} or client_id = (select client_id from key where id = ${keyId}))
    order by id desc`);
}

/** A page of an organization's armings. */
export interface ArmingPage {
  /** Only those of this workspace; undefined means all. */
  readonly workspaceId: string | undefined;
  /** Only those for this key; undefined means all. */
  readonly forKey: string | undefined;
  readonly limit: number;
  readonly before: string | undefined;
  /** Also ended armings. */
  readonly ended: boolean;
}

/** Lists armings of an organization, newest first. `before` is the last id of the previous page. */
export async function listArmings(
  sql: Sql,
  orgId: string,
  { workspaceId, forKey, limit, before, ended }: ArmingPage,
): Promise<ArmingRecord[]> {
  return allRecords<ArmingRecord>(sql`
    select *, ended is null and ends > now() as stands from robot_arming
    where org_id = ${orgId} ${before === undefined ? sql`` : sql`and id < ${before}`}
      ${workspaceId === undefined ? sql`` : sql`and workspace_id = ${workspaceId}`}
      ${
        forKey === undefined
          ? sql``
          : sql`and (key_id = ${forKey} or client_id = (select client_id from key where id = ${forKey}))`
      }
      ${ended ? sql`` : sql`and ended is null and ends > now()`}
    order by id desc limit ${limit}`);
}

/** Ends an arming and its run; undefined if it had ended. */
export async function endArming(tx: Tx, id: string, why: string): Promise<ArmingRecord | undefined> {
  const row = await firstRecord<ArmingRecord>(tx`
    update robot_arming set ended = now(), ended_why = ${why} where id = ${id} and ended is null returning *, false as stands`);
  if (!row) return undefined;
  await tx`update robot_run set ended = now(), why = ${why} where arming_id = ${id} and ended is null`;
  return row;
}

/** Ends every arming that an emergency stop covers, and their runs; returns the armings. A released robot must be armed again. */
export async function endArmingsUnder(tx: Tx, stop: StopRecord): Promise<ArmingRecord[]> {
  const { orgId, workspaceId, scope, subject } = stop;
  const rows = await allRecords<ArmingRecord>(tx`
    update robot_arming as a set ended = now(), ended_why = 'stopped'
    where a.org_id = ${orgId} and a.ended is null and a.ends > now()
      and (${workspaceId}::text is null or a.workspace_id = ${workspaceId} or a.agent_workspace_id = ${workspaceId})
      and case ${scope}::text
        when 'robot' then a.robot_id = ${subject}
        when 'key' then a.key_id = ${subject} or a.created_by = ${subject}
          or a.client_id = (select client_id from key where id = ${subject})
        when 'session' then exists (select from robot_run as r where r.arming_id = a.id and r.id = ${subject})
        when 'workspace' then a.workspace_id = ${subject} or a.agent_workspace_id = ${subject}
        else true end
    returning a.*, false as stands`);
  const ids = rows.map(({ id }) => id);
  if (ids.length > 0)
    await tx`update robot_run set ended = now(), why = 'stopped' where arming_id = any(${ids}) and ended is null`;
  return rows;
}

/** Requests a run; undefined if another run moves the robot. */
export async function requestRun(
  tx: Tx,
  {
    arming,
    keyId,
    model,
    instruction,
    maxSeconds,
  }: {
    arming: ArmingRecord;
    keyId: string;
    model: string;
    instruction: string;
    maxSeconds: number;
  },
): Promise<RunRecord | undefined> {
  const { orgId, robotId } = arming;
  await tx`
    update robot_run set ended = now(), why = 'lost'
    where org_id = ${orgId} and robot_id = ${robotId} and ended is null and seen < now() - ${LOST_MS} * interval '1 millisecond'`;
  return firstRecord<RunRecord>(tx`
    insert into robot_run (id, org_id, arming_id, robot_id, key_id, model, instruction, max_seconds, created, seen)
    values (${newId("run")}, ${orgId}, ${arming.id}, ${robotId}, ${keyId}, ${model}, ${instruction}, ${maxSeconds}, now(), now())
    on conflict (org_id, robot_id) where ended is null do nothing
    returning *`);
}

/** Finds a run. A lost one is ended first. */
export async function findRun(sql: Queryable, id: string): Promise<RunRecord | undefined> {
  await sql`
    update robot_run set ended = now(), why = 'lost'
    where id = ${id} and ended is null and seen < now() - ${LOST_MS} * interval '1 millisecond'`;
  return firstRecord<RunRecord>(sql`select * from robot_run where id = ${id}`);
}

/**
 * Takes the run that waits for a robot, if a robot of this workspace can carry it out. An arming of a workspace moves only that workspace's
 * robots.
 */
export async function takeRun(
  sql: Queryable,
  { orgId, robotId, workspaceId }: { orgId: string; robotId: string; workspaceId: string | undefined },
): Promise<{ run: RunRecord; arming: ArmingRecord } | undefined> {
  const row = await firstRecord<RunRecord>(sql`
    update robot_run as r set started = now(), seen = now() from robot_arming as a, key as k
    where r.org_id = ${orgId} and r.robot_id = ${robotId} and r.started is null and r.ended is null and a.id = r.arming_id
      and k.id = r.key_id and a.ended is null and a.ends > now()
      and (a.workspace_id is null or a.workspace_id = ${workspaceId ?? null})
      and (k.workspace_id is null or k.workspace_id = ${workspaceId ?? null} or ${workspaceId ?? null}::text is null)
    returning r.*`);
  if (!row) return undefined;
  const arming = await findArming(sql, row.armingId);
  return arming && { run: row, arming };
}

/** Records a heartbeat and the progress of a run; false if it has ended. */
export async function renewRun(sql: Queryable, id: string, { chunks, holds, costMicro }: RunCounts): Promise<boolean> {
  const { count } = await sql`
    update robot_run set seen = now(), chunks = ${chunks}, holds = ${holds}, cost_micro = ${costMicro}
    where id = ${id} and ended is null`;
  return count > 0;
}

/** Ends a run and returns it. The first end sets the reason. `unstarted` ends it only if the robot has not begun. */
export async function endRun(
  sql: Queryable,
  id: string,
  why: string,
  { counts, unstarted = false }: { counts?: RunCounts | undefined; unstarted?: boolean } = {},
): Promise<RunRecord | undefined> {
  await sql`
    update robot_run set ended = now(), why = ${why}
    where id = ${id} and ended is null ${unstarted ? sql`and started is null` : sql``}`;
  if (counts)
    await sql`
      update robot_run set chunks = ${counts.chunks}, holds = ${counts.holds}, cost_micro = ${counts.costMicro} where id = ${id}`;
  return firstRecord<RunRecord>(sql`select * from robot_run where id = ${id}`);
}
