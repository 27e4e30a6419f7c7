/** Robots that people armed for agents, and the runs that move them. */
import { newId } from "../../ids.ts";
import type { Queryable, Sql, Tx } from "../database/tx.ts";
import { unixSeconds } from "../database/types.ts";
import type { StopRecord } from "./robot-stops.ts";

/** An arming to be written. */
export interface NewArming {
  readonly orgId: string;
  /** The workspace of the key that arms; undefined: the organisation's. */
  readonly workspaceId: string | undefined;
  readonly robotId: string;
  readonly keyId: string | undefined;
  readonly clientId: string | undefined;
  /** The workspace of the agent's key; undefined where it is the organisation's, or an application's. */
  readonly agentWorkspaceId: string | undefined;
  readonly models: readonly string[];
  /** ProtoJSON of `SafetyBounds`. */
  readonly bounds: object | undefined;
  readonly maxSeconds: number;
  readonly createdBy: string;
  /** The session of the person that arms, with which the arming ends; undefined where a key does that is no session's. */
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
  /** It neither ended nor ran out. */
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

/** What a run came to so far. */
export interface RunCounts {
  readonly chunks: number;
  readonly holds: number;
  readonly costMicro: number;
}

/** A run that nobody has heard of for so long is over: who carried it is gone. */
const LOST_MS = 10_000;

interface ArmingRow {
  id: string;
  orgId: string;
  workspaceId: string | null;
  robotId: string;
  keyId: string | null;
  clientId: string | null;
  agentWorkspaceId: string | null;
  models: string[];
  bounds: object | null;
  maxSeconds: number;
  created: Date;
  createdBy: string;
  sessionId: string | null;
  ends: Date;
  ended: Date | null;
  endedWhy: string | null;
  stands: boolean;
}

interface RunRow extends Omit<RunRecord, "created" | "started" | "ended" | "why" | "costMicro"> {
  created: Date;
  started: Date | null;
  ended: Date | null;
  why: string | null;
  costMicro: number | string;
}

/** Writes an arming. */
export async function addArming(tx: Tx, arming: NewArming): Promise<ArmingRecord> {
  const { orgId, workspaceId, robotId, keyId, clientId, agentWorkspaceId, models, bounds, maxSeconds } = arming;
  const { createdBy, sessionId, createdMs, endsMs } = arming;
  const [row] = await tx<ArmingRow[]>`
    insert into robot_arming (id, org_id, workspace_id, robot_id, key_id, client_id, agent_workspace_id, models, bounds, max_seconds, created,
      created_by, session_id, ends)
    values (${newId("arm")}, ${orgId}, ${workspaceId ?? null}, ${robotId}, ${keyId ?? null}, ${clientId ?? null}, ${agentWorkspaceId ?? null},
      ${[...models]}, ${bounds === undefined ? null : JSON.stringify(bounds)}::text::jsonb, ${maxSeconds}, ${new Date(createdMs)}, ${createdBy},
      ${sessionId ?? null}, ${new Date(endsMs)})
    returning *, ended is null and ends > now() as stands`;
  return armingOf(row!);
}

/** Finds an arming. */
export async function findArming(sql: Queryable, id: string): Promise<ArmingRecord | undefined> {
  const [row] = await sql<ArmingRow[]>`
    select *, ended is null and ends > now() as stands from robot_arming where id = ${id}`;
  return row && armingOf(row);
}

/** The armings that stand for an agent's key and a robot, newest first. */
export async function standingArmings(
  sql: Queryable,
  { orgId, robotId, keyId }: { orgId: string; robotId: string; keyId: string },
): Promise<ArmingRecord[]> {
  const rows = await sql<ArmingRow[]>`
    select *, true as stands from robot_arming
    where org_id = ${orgId} and robot_id = ${robotId} and ended is null and ends > now()
      and (key_id = ${keyId} or client_id = (select client_id from key where id = ${keyId}))
    order by id desc`;
  return rows.map(armingOf);
}

/** Which armings of an organisation. */
export interface ArmingPage {
  /** Those given in this workspace alone; undefined: all. */
  readonly workspaceId: string | undefined;
  /** Those for this key alone; undefined: all. */
  readonly forKey: string | undefined;
  readonly limit: number;
  readonly before: string | undefined;
  /** Also those that have ended. */
  readonly ended: boolean;
}

/** Armings of an organisation, newest first. `before` is the last page's last id. */
export async function listArmings(
  sql: Sql,
  orgId: string,
  { workspaceId, forKey, limit, before, ended }: ArmingPage,
): Promise<ArmingRecord[]> {
  const rows = await sql<ArmingRow[]>`
    select *, ended is null and ends > now() as stands from robot_arming
    where org_id = ${orgId} ${before === undefined ? sql`` : sql`and id < ${before}`}
      ${workspaceId === undefined ? sql`` : sql`and workspace_id = ${workspaceId}`}
      ${
        forKey === undefined
          ? sql``
          : sql`and (key_id = ${forKey} or client_id = (select client_id from key where id = ${forKey}))`
      }
      ${ended ? sql`` : sql`and ended is null and ends > now()`}
    order by id desc limit ${limit}`;
  return rows.map(armingOf);
}

/** Ends an arming, and the run that it allows; undefined where it had ended. */
export async function endArming(tx: Tx, id: string, why: string): Promise<ArmingRecord | undefined> {
  const [row] = await tx<ArmingRow[]>`
    update robot_arming set ended = now(), ended_why = ${why} where id = ${id} and ended is null returning *, false as stands`;
  if (!row) return undefined;
  await tx`update robot_run set ended = now(), why = ${why} where arming_id = ${id} and ended is null`;
  return armingOf(row);
}

/** Ends every arming that an emergency stop covers, and their runs; answers the armings. Who is stopped is armed anew, or not at all. */
export async function endArmingsUnder(tx: Tx, stop: StopRecord): Promise<ArmingRecord[]> {
  const { orgId, workspaceId, scope, subject } = stop;
  const rows = await tx<ArmingRow[]>`
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
    returning a.*, false as stands`;
  const ids = rows.map(({ id }) => id);
  if (ids.length > 0)
    await tx`update robot_run set ended = now(), why = 'stopped' where arming_id = any(${ids}) and ended is null`;
  return rows.map(armingOf);
}

/** Asks for a run; undefined where another one moves the robot. */
export async function askRun(
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
  const [row] = await tx<RunRow[]>`
    insert into robot_run (id, org_id, arming_id, robot_id, key_id, model, instruction, max_seconds, created, seen)
    values (${newId("run")}, ${orgId}, ${arming.id}, ${robotId}, ${keyId}, ${model}, ${instruction}, ${maxSeconds}, now(), now())
    on conflict (org_id, robot_id) where ended is null do nothing
    returning *`;
  return row && runOf(row);
}

/** Finds a run. One that nobody carries any more is ended first. */
export async function findRun(sql: Queryable, id: string): Promise<RunRecord | undefined> {
  await sql`
    update robot_run set ended = now(), why = 'lost'
    where id = ${id} and ended is null and seen < now() - ${LOST_MS} * interval '1 millisecond'`;
  const [row] = await sql<RunRow[]>`select * from robot_run where id = ${id}`;
  return row && runOf(row);
}

/**
 * Takes the run that waits for a robot, if there is one that a robot of this workspace may carry out; what was armed in a workspace moves that
 * workspace's robots alone.
 */
export async function takeRun(
  sql: Queryable,
  { orgId, robotId, workspaceId }: { orgId: string; robotId: string; workspaceId: string | undefined },
): Promise<{ run: RunRecord; arming: ArmingRecord } | undefined> {
  const [row] = await sql<RunRow[]>`
    update robot_run as r set started = now(), seen = now() from robot_arming as a, key as k
    where r.org_id = ${orgId} and r.robot_id = ${robotId} and r.started is null and r.ended is null and a.id = r.arming_id
      and k.id = r.key_id and a.ended is null and a.ends > now()
      and (a.workspace_id is null or a.workspace_id = ${workspaceId ?? null})
      and (k.workspace_id is null or k.workspace_id = ${workspaceId ?? null} or ${workspaceId ?? null}::text is null)
    returning r.*`;
  if (!row) return undefined;
  const arming = await findArming(sql, row.armingId);
  return arming && { run: runOf(row), arming };
}

/** Says that a run goes on, and what it came to so far; false where it has ended. */
export async function renewRun(sql: Queryable, id: string, { chunks, holds, costMicro }: RunCounts): Promise<boolean> {
  const { count } = await sql`
    update robot_run set seen = now(), chunks = ${chunks}, holds = ${holds}, cost_micro = ${costMicro}
    where id = ${id} and ended is null`;
  return count > 0;
}

/** Ends a run; answers it as it is then. The first who ends it says why. `unstarted`: only where the robot has not begun. */
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
  const [row] = await sql<RunRow[]>`select * from robot_run where id = ${id}`;
  return row && runOf(row);
}

const armingOf = ({
  workspaceId,
  keyId,
  clientId,
  agentWorkspaceId,
  bounds,
  sessionId,
  created,
  ends,
  ended,
  endedWhy,
  ...rest
}: ArmingRow): ArmingRecord => ({
  ...rest,
  workspaceId: workspaceId ?? undefined,
  keyId: keyId ?? undefined,
  clientId: clientId ?? undefined,
  agentWorkspaceId: agentWorkspaceId ?? undefined,
  bounds: bounds ?? undefined,
  sessionId: sessionId ?? undefined,
  created: unixSeconds(created),
  ends: unixSeconds(ends),
  ended: ended === null ? undefined : unixSeconds(ended),
  endedWhy: endedWhy ?? undefined,
});

const runOf = ({ created, started, ended, why, costMicro, ...rest }: RunRow): RunRecord => ({
  ...rest,
  created: unixSeconds(created),
  started: started === null ? undefined : unixSeconds(started),
  ended: ended === null ? undefined : unixSeconds(ended),
  why: why ?? undefined,
  costMicro: Number(costMicro),
});
