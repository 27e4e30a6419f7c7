/** API keys: their permissions, limits and spending. Amounts are micro-dollars. */

import type { OrgSettings, SupplyTrust } from "../../call.ts";
import { newId } from "../../ids.ts";
import { allRecords, type Queryable, type Sql, type Tx } from "../database/tx.ts";
import { hashSecret, newSecret } from "./secret.ts";
import { type StoredSettings, settingsFrom } from "./settings.ts";

/** When a budget resets, in UTC. */
export type BudgetInterval = "daily" | "weekly" | "monthly" | "lifetime";

/** A key with the fields that the gate needs. */
export interface KeyRecord {
  id: string;
  orgId: string;
  workspaceId: string | undefined;
  /** `member` marks the key of a signed-in member; it is never listed and cannot be changed. */
  kind: "api" | "member";
  name: string;
  /** The first characters of the secret. */
  prefix: string;
  role: string;
  /** The member who owns the key; undefined for a key of the organization. */
  userId: string | undefined;
  /** Whether its member was deactivated or removed. */
  userInactive: boolean;
  /** Its permissions within its role; undefined means all of the role's. */
  permissions: string[] | undefined;
  /** Contracts that it can call; empty means all. */
  scopes: string[];
  /** Models that it can use, `owner/*` for all of an owner; empty means all. */
  models: string[];
  environment: "hardware" | "simulation";
  disabled: boolean;
  /** Whether it was revoked. */
  revoked: boolean;
  /** Whether its organization is suspended. */
  orgSuspended: boolean;
  /** Unix seconds. */
  expiresAt: number | undefined;
  budget: { limitMicro: number; interval: BudgetInterval } | undefined;
  rateLimit: RateLimit;
  /** The robot that it is bound to. */
  robotId: string | undefined;
  /** The settings of its organization and workspace. */
  settings: OrgSettings;
  /** Unix seconds. */
  createdAt: number;
  /** Upper bounds on every returned action, as ProtoJSON of `SafetyBounds`. */
  bounds: object | undefined;
  /** The lowest trust level of offerings that it can use; undefined uses its settings and environment. */
  trust: SupplyTrust | undefined;
  /** Whether it can use only checkpoints signed by their makers. */
  requireSigned: boolean;
  /** The parent key. */
  parentId: string | undefined;
  /** The browser session that it was found by. */
  session?: SessionOfKey | undefined;
  /** Its ancestors, nearest first, each without inherited limits. The other fields of this record are not inherited either. */
  ancestors: readonly KeyRecord[];
}

/** A browser session with the fields that the gate needs. */
interface SessionOfKey {
  id: string;
  /** The id that all sessions of one browser share. */
  browser: string;
  /** The last use, to the minute, in unix milliseconds. */
  seenMs: number;
}

/** The most ancestors of a key: each call counts against the limits of all of them. */
export const MOST_ANCESTORS = 8;

/** The rate limits of a key. */
export interface RateLimit {
  requests: number;
  windowS: number;
  burst: number;
  concurrency: number;
  /** Concurrently open streams. */
  streams: number;
}

/** The default limits: 100 calls a second, which covers two 50 Hz loops. */
export const DEFAULT_RATE_LIMIT: RateLimit = { requests: 6_000, windowS: 60, burst: 600, concurrency: 64, streams: 16 };

/** Completes partial limits. The default burst is a tenth of the window's requests, and at least 10. */
export function rateLimitOf(said: Partial<RateLimit> = {}): RateLimit {
  const whole = { ...DEFAULT_RATE_LIMIT, ...said };
  const { requests } = whole;
  return { ...whole, burst: said.burst ?? Math.min(requests, Math.max(10, Math.ceil(requests / 10))) };
}

/** The default role of a key. */
export const DEFAULT_ROLE = "developer";

/** The fields of a new key. */
export interface NewKey {
  orgId: string;
  name?: string | undefined;
  role?: string | undefined;
  userId?: string | undefined;
  permissions?: readonly string[] | undefined;
  scopes?: readonly string[] | undefined;
  models?: readonly string[] | undefined;
  environment?: KeyRecord["environment"] | undefined;
  /** Unix seconds. */
  expiresAt?: number | undefined;
  budget?: KeyRecord["budget"];
  rateLimit?: Partial<RateLimit> | undefined;
  workspaceId?: string | undefined;
  robotId?: string | undefined;
  /** ProtoJSON of `SafetyBounds`. */
  bounds?: object | undefined;
  trust?: SupplyTrust | undefined;
  requireSigned?: boolean | undefined;
  /** The parent key. */
  parentId?: string | undefined;
  kind?: KeyRecord["kind"];
}

/** A row of `key`. */
interface KeyRow extends Omit<KeyRecord, "budget" | "rateLimit" | "settings" | "createdAt" | "ancestors"> {
  budgetMicro: number | undefined;
  budgetInterval: BudgetInterval | undefined;
  rateRequests: number;
  rateWindowS: number;
  rateBurst: number;
  rateConcurrency: number;
  rateStreams: number;
  orgSettings: StoredSettings | undefined;
  workspaceSettings: StoredSettings | undefined;
  created: number;
}

function keyOf(row: KeyRow): KeyRecord {
  const { budgetMicro, budgetInterval, orgSettings, workspaceSettings, created, ...rates } = row;
  const { rateRequests, rateWindowS, rateBurst, rateConcurrency, rateStreams, ...key } = rates;
  return {
    ...key,
    budget:
      budgetMicro === undefined || budgetInterval === undefined
        ? undefined
        : { limitMicro: budgetMicro, interval: budgetInterval },
    rateLimit: {
      requests: rateRequests,
      windowS: rateWindowS,
      burst: rateBurst,
      concurrency: rateConcurrency,
      streams: rateStreams,
    },
    settings: settingsFrom(orgSettings ?? null, workspaceSettings ?? null),
    createdAt: created,
    ancestors: [],
  };
}

/** Keys with their ancestors; a key without a parent costs no extra lookup. */
async function withAncestors(sql: Queryable, rows: readonly KeyRow[]): Promise<KeyRecord[]> {
  const keys = rows.map(keyOf);
  const born = keys.filter(({ parentId }) => parentId !== undefined).map(({ id }) => id);
  if (born.length === 0) return keys;
  const found = await allRecords<KeyRow & { descendant: string }>(sql`
    select line.descendant, ${keyColumns(sql)}
    from (select descendant, a.id as ancestor, a.depth from unnest(${born}::text[]) as descendant, key_ancestors(descendant) as a) as line
      join key on key.id = line.ancestor
    order by line.descendant, line.depth`);
  const lines = Map.groupBy(found, ({ descendant }) => descendant);
  return keys.map((key) => ({
    ...key,
    ancestors: (lines.get(key.id) ?? []).map(({ descendant: _, ...row }) => keyOf(row)),
  }));
}

const oneOf = async (sql: Queryable, rows: readonly KeyRow[]): Promise<KeyRecord | undefined> =>
  (await withAncestors(sql, rows))[0];

const keyColumns = (sql: Queryable) => sql`
  id, org_id, kind, name, prefix, role, user_id, permissions, scopes, models, environment, disabled, expires_at, budget_micro, budget_interval,
  rate_requests, rate_window_s, rate_burst, rate_concurrency, rate_streams, workspace_id, robot_id, bounds, trust, require_signed, created, parent_id,
  revoked_at is not null as revoked,
  (select to_json(s) from org_settings as s where s.org_id = key.org_id) as org_settings,
  (select settings from workspace where workspace.id = key.workspace_id) as workspace_settings,
  (select status <> 'active' from org where org.id = key.org_id) as org_suspended,
  user_id is not null and not exists (
    select from member where member.id = key.user_id and status = 'active') as user_inactive`;

/** Creates a key of an existing organization. Only the return value contains the secret. */
export async function createKey(sql: Queryable, key: NewKey): Promise<{ key: KeyRecord; secret: string }> {
  const { secret, prefix } = newSecret();
  const rate = rateLimitOf(key.rateLimit);
  const row = {
    id: newId("key"),
    orgId: key.orgId,
    kind: key.kind ?? "api",
    name: key.name ?? "",
    prefix,
    hash: hashSecret(secret),
    role: key.role ?? DEFAULT_ROLE,
    userId: key.userId ?? null,
    permissions: key.permissions === undefined ? null : [...key.permissions],
    scopes: [...(key.scopes ?? [])],
    models: [...(key.models ?? [])],
    environment: key.environment ?? "simulation",
    expiresAt: key.expiresAt === undefined ? null : new Date(key.expiresAt * 1000),
    budgetMicro: key.budget?.limitMicro ?? null,
    budgetInterval: key.budget?.interval ?? null,
    rateRequests: rate.requests,
    rateWindowS: rate.windowS,
    rateBurst: rate.burst,
    rateConcurrency: rate.concurrency,
    rateStreams: rate.streams,
    workspaceId: key.workspaceId ?? null,
    robotId: key.robotId ?? null,
    bounds: key.bounds === undefined ? null : sql.json(JSON.parse(JSON.stringify(key.bounds))),
    trust: key.trust ?? null,
    requireSigned: key.requireSigned ?? false,
    parentId: key.parentId ?? null,
  };
  const made = await oneOf(
    sql,
    await allRecords<KeyRow>(sql`insert into key ${sql(row)} returning ${keyColumns(sql)}`),
  );
  return { key: made!, secret };
}

/** Finds a key by the hash of its secret. */
export async function findKeyByHash(sql: Sql, hash: Uint8Array): Promise<KeyRecord | undefined> {
  return oneOf(
    sql,
    await allRecords<KeyRow>(sql`select ${keyColumns(sql)} from key where hash = ${Buffer.from(hash)}`),
  );
}

/** Finds a key by id. */
export async function findKey(sql: Queryable, id: string): Promise<KeyRecord | undefined> {
  return oneOf(sql, await allRecords<KeyRow>(sql`select ${keyColumns(sql)} from key where id = ${id}`));
}

/** A page of an organization's keys. */
interface KeyQuery {
  limit: number;
  /** Only keys after this id. */
  after?: string | undefined;
  workspaceId?: string | undefined;
  /** Only keys of this member. */
  userId?: string | undefined;
  /** Only this key. */
  id?: string | undefined;
}

/** The keys of an organization that are not revoked, oldest first. */
export async function listKeys(
  sql: Queryable,
  orgId: string,
  { limit, after, workspaceId, userId, id }: KeyQuery,
): Promise<KeyRecord[]> {
  const rows = await allRecords<KeyRow>(sql`
    select ${keyColumns(sql)} from key where org_id = ${orgId} and revoked_at is null and kind = 'api'
      ${after === undefined ? sql`` : sql`and id > ${after}`}
      ${workspaceId === undefined ? sql`` : sql`and workspace_id = ${workspaceId}`}
      ${userId === undefined ? sql`` : sql`and user_id = ${userId}`}
      ${id === undefined ? sql`` : sql`and id = ${id}`}
    order by id limit ${limit}`);
  return withAncestors(sql, rows);
}

/** A key of an organization that is not revoked; its row is locked until the transaction ends. */
export async function lockKey(tx: Tx, orgId: string, id: string): Promise<KeyRecord | undefined> {
  const rows = await allRecords<KeyRow>(tx`
    select ${keyColumns(tx)} from key where org_id = ${orgId} and id = ${id} and revoked_at is null and kind = 'api'
    for update of key`);
  return oneOf(tx, rows);
}

/** The fields of a key to change; absent fields stay, null removes one. */
export interface KeyChanges {
  name?: string | undefined;
  disabled?: boolean | undefined;
  role?: string | undefined;
  scopes?: readonly string[] | undefined;
  models?: readonly string[] | undefined;
  environment?: KeyRecord["environment"] | undefined;
  /** Unix seconds. */
  expiresAt?: number | null | undefined;
  budget?: KeyRecord["budget"] | null;
  rateLimit?: RateLimit | undefined;
  robotId?: string | null | undefined;
  trust?: SupplyTrust | null | undefined;
  requireSigned?: boolean | undefined;
}

/** Changes a key. Every replica applies it at the commit, or shortly after. */
export async function changeKey(tx: Tx, id: string, changes: KeyChanges): Promise<KeyRecord> {
  const { expiresAt, budget, rateLimit, robotId, scopes, models, ...plain } = changes;
  const row = {
    ...Object.fromEntries(Object.entries(plain).filter(([, value]) => value !== undefined)),
    ...(scopes && { scopes: [...scopes] }),
    ...(models && { models: [...models] }),
    ...(expiresAt !== undefined && { expiresAt: expiresAt === null ? null : new Date(expiresAt * 1000) }),
    ...(budget !== undefined && {
      budgetMicro: budget?.limitMicro ?? null,
      budgetInterval: budget?.interval ?? null,
    }),
    ...(robotId !== undefined && { robotId }),
    ...(rateLimit && {
      rateRequests: rateLimit.requests,
      rateWindowS: rateLimit.windowS,
      rateBurst: rateLimit.burst,
      rateConcurrency: rateLimit.concurrency,
      rateStreams: rateLimit.streams,
    }),
  };
  if (Object.keys(row).length > 0) await tx`update key set ${tx(row)} where id = ${id}`;
  return (await findKey(tx, id))!;
}

/** Replaces the secret of a key; the old one stops working. Only the return value contains the new one. */
export async function rotateKey(tx: Tx, id: string): Promise<{ key: KeyRecord; secret: string }> {
  const { secret, prefix } = newSecret();
  await tx`update key set ${tx({ prefix, hash: hashSecret(secret) })} where id = ${id}`;
  return { key: (await findKey(tx, id))!, secret };
}

/** The keys to revoke. With `outside`, only a member's keys outside these workspaces. */
type WhichKeys =
  | { id: string }
  | { workspaceId: string }
  | { clientId: string }
  | { userId: string; outside?: readonly string[] };

function theseKeys(tx: Tx, which: WhichKeys) {
  if ("id" in which) return tx`id = ${which.id}`;
  if ("workspaceId" in which) return tx`workspace_id = ${which.workspaceId}`;
  if ("clientId" in which) return tx`client_id = ${which.clientId}`;
  if (which.outside === undefined) return tx`user_id = ${which.userId}`;
  return tx`user_id = ${which.userId} and not coalesce(workspace_id = any(${[...which.outside]}), false)`;
}

/** A revoked key. */
export type RevokedKey = Pick<KeyRecord, "id" | "workspaceId">;

/** Revokes keys and all their descendants permanently. Returns the revoked keys. */
export async function revokeKeys(tx: Tx, which: WhichKeys): Promise<RevokedKey[]> {
  const these = theseKeys(tx, which);
  const rows = await tx<{ id: string; workspaceId: string | null }[]>`
    with recursive line as (
      select id from key where ${these}
      union select key.id from line join key on key.parent_id = line.id
    )
    update key set disabled = true, revoked_at = now() from line where key.id = line.id and revoked_at is null
    returning key.id, workspace_id`;
  return rows.map(({ id, workspaceId }) => ({ id, workspaceId: workspaceId ?? undefined }));
}

/** Disables or enables a key. Every replica applies it when this resolves, or shortly after. Returns false if there is no such key. */
export async function setKeyDisabled(sql: Sql, id: string, disabled: boolean): Promise<boolean> {
  const { count } = await sql`update key set disabled = ${disabled} where id = ${id}`;
  return count > 0;
}

// The spending of keys, in their budget intervals and in total. Amounts are micro-dollars.

/** The spending of a key, by UTC intervals that began at or before `atMs` (unix milliseconds). */
export interface KeySpending {
  dayMicro: number;
  weekMicro: number;
  monthMicro: number;
  totalMicro: number;
  /** Credit in the key's leases: it counts against the budget, but is not spent. */
  heldMicro: number;
  budget:
    | { limitMicro: number; interval: BudgetInterval; spentMicro: number; resetsAt: number | undefined }
    | undefined;
}

interface SpendingRow {
  day: number;
  week: number;
  month: number;
  total: number;
  held: number;
  limit: number | null;
  interval: BudgetInterval | null;
}

/** The spending of a key. A call counts on the day its credit was leased. */
export async function spendingOf(sql: Sql, keyId: string, atMs: number): Promise<KeySpending> {
  const day = new Date(atMs).toISOString().slice(0, 10);
  const [row] = await sql<SpendingRow[]>`
    with spent as (
      select key_day.day, taken_micro - coalesce(sum(amount_micro - spent_micro), 0) as micro
      from key_day left join lease on lease.key_id = key_day.key_id and lease.day = key_day.day and lease.org_id = key_day.org_id
      where key_day.key_id = ${keyId} group by key_day.key_id, key_day.day
    )
    select
      coalesce(sum(micro) filter (where day >= ${day}::date), 0) as day,
      coalesce(sum(micro) filter (where day >= budget_start('weekly', ${day}::date)), 0) as week,
      coalesce(sum(micro) filter (where day >= budget_start('monthly', ${day}::date)), 0) as month,
      coalesce(sum(micro), 0) as total,
      (select coalesce(sum(amount_micro - spent_micro), 0) from lease join key on lease.key_id = key.id
        where lease.org_id = key.org_id and key.id = ${keyId}) as held,
      (select budget_micro from key where id = ${keyId}) as "limit",
      (select budget_interval from key where id = ${keyId}) as "interval"
    from spent`;
  const {
    day: dayMicro,
    week: weekMicro,
    month: monthMicro,
    total: totalMicro,
    held: heldMicro,
    limit,
    interval,
  } = row!;
  const spent = limit === null ? undefined : (await budgetsSpent(sql, [keyId], atMs)).get(keyId);
  const budget =
    limit === null || interval === null || spent === undefined ? undefined : { limitMicro: limit, interval, ...spent };
  return { dayMicro, weekMicro, monthMicro, totalMicro, heldMicro, budget };
}

/** The spending in a budget's current interval, and its end in unix seconds; undefined if the budget never resets. */
export interface BudgetSpent {
  spentMicro: number;
  resetsAt: number | undefined;
}

/**
 * The spending of these keys and their descendants in their budget intervals at `atMs` (unix milliseconds), by key. Keys without a budget are
 * omitted.
 */
export async function budgetsSpent(
  sql: Queryable,
  keyIds: readonly string[],
  atMs: number,
): Promise<Map<string, BudgetSpent>> {
  const day = new Date(atMs).toISOString().slice(0, 10);
  const rows = await sql<{ id: string; spent: number; resetsAt: number | null }[]>`
    select key.id, (key_tree_taken(key.id, since) - key_tree_held(key.id, key.org_id, since))::bigint as spent,
      extract(epoch from budget_reset(budget_interval, ${day}::date)) as resets_at
    from key, lateral budget_start(budget_interval, ${day}::date) as since
    where key.id = any(${[...keyIds]}) and budget_micro is not null`;
  return new Map(rows.map(({ id, spent, resetsAt }) => [id, { spentMicro: spent, resetsAt: resetsAt ?? undefined }]));
}
