/** API keys: what each may do, and what it has spent. Amounts are micro-dollars. */

import type { OrgSettings, SupplyTrust } from "../../call.ts";
import { newId } from "../../ids.ts";
import { type Queryable, type Sql, type Tx, unixSeconds } from "../database/tx.ts";
import { hashSecret, newSecret } from "./secret.ts";
import { type StoredSettings, settingsFrom } from "./settings.ts";

/** When a budget is renewed, in UTC. */
export type BudgetInterval = "daily" | "weekly" | "monthly" | "lifetime";

/** A key as the gate needs it. */
export interface KeyRecord {
  id: string;
  orgId: string;
  workspaceId: string | undefined;
  /** `member`: what a member does while signed in; it is in no list, and nobody changes it. */
  kind: "api" | "member";
  name: string;
  /** The first letters of the secret. */
  prefix: string;
  role: string;
  /** The member whose key it is; undefined for a key of the organization itself. */
  userId: string | undefined;
  /** Its member was deactivated or removed. */
  userInactive: boolean;
  /** All that it may do within its role, by permission; undefined: all that the role may. */
  permissions: string[] | undefined;
  /** Contracts that it may call; all when empty. */
  scopes: string[];
  /** Models that it may use, `owner/*` for all of an owner; every model when empty. */
  models: string[];
  environment: "hardware" | "simulation";
  disabled: boolean;
  /** It was ended for ever. */
  revoked: boolean;
  /** Its organization's calls are refused. */
  orgSuspended: boolean;
  /** Unix seconds. */
  expiresAt: number | undefined;
  budget: { limitMicro: number; interval: BudgetInterval } | undefined;
  rateLimit: RateLimit;
  /** The robot that it was made for. */
  robotId: string | undefined;
  /** What its organization and workspace settled. */
  settings: OrgSettings;
  /** Unix seconds. */
  createdAt: number;
  /** What no action that it is given may exceed, as ProtoJSON of `SafetyBounds`. */
  bounds: object | undefined;
  /** Whose supply may serve it at most; undefined: what its settings and its environment say. */
  trust: SupplyTrust | undefined;
  /** Only checkpoints that their makers signed may serve it. */
  requireSigned: boolean;
  /** The key that made it. */
  parentId: string | undefined;
  /** The sign-in that it was found by. */
  session?: SessionOfKey | undefined;
  /** The keys that it descends from, the nearest first, each as it is by itself. All of this record's other fields are the key's own, too. */
  ancestors: readonly KeyRecord[];
}

/** A sign-in at a browser, as the gate needs it. */
interface SessionOfKey {
  id: string;
  /** What the sign-ins of one browser share. */
  browser: string;
  /** When it was used last, to the minute, in unix milliseconds. */
  seenMs: number;
}

/** The most keys that one may descend from: every call of a key counts against the limits of all of them. */
export const MOST_ANCESTORS = 8;

/** How often a key may call. */
export interface RateLimit {
  requests: number;
  windowS: number;
  burst: number;
  concurrency: number;
  /** Streams that may be open at once. */
  streams: number;
}

/** What a key may do when nobody said otherwise: 100 calls a second, two 50 Hz loops' worth of them at once. */
export const DEFAULT_RATE_LIMIT: RateLimit = { requests: 6_000, windowS: 60, burst: 600, concurrency: 64, streams: 16 };

/** The whole limits of what was said of them; without a burst a tenth of the window's requests may come at once, and ten at least. */
export function rateLimitOf(said: Partial<RateLimit> = {}): RateLimit {
  const whole = { ...DEFAULT_RATE_LIMIT, ...said };
  const { requests } = whole;
  return { ...whole, burst: said.burst ?? Math.min(requests, Math.max(10, Math.ceil(requests / 10))) };
}

/** The role of a key when nobody said otherwise. */
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
  /** The key that makes it. */
  parentId?: string | undefined;
  kind?: KeyRecord["kind"];
}

interface KeyRow {
  id: string;
  orgId: string;
  kind: KeyRecord["kind"];
  name: string;
  prefix: string;
  role: string;
  userId: string | null;
  userInactive: boolean;
  permissions: string[] | null;
  scopes: string[];
  models: string[];
  environment: KeyRecord["environment"];
  disabled: boolean;
  revoked: boolean;
  orgSuspended: boolean;
  expiresAt: Date | null;
  budgetMicro: number | null;
  budgetInterval: BudgetInterval | null;
  rateRequests: number;
  rateWindowS: number;
  rateBurst: number;
  rateConcurrency: number;
  rateStreams: number;
  workspaceId: string | null;
  robotId: string | null;
  bounds: object | null;
  trust: SupplyTrust | null;
  requireSigned: boolean;
  parentId: string | null;
  orgSettings: StoredSettings | null;
  workspaceSettings: StoredSettings | null;
  created: Date;
}

const keyOf = (row: KeyRow): KeyRecord => ({
  id: row.id,
  orgId: row.orgId,
  kind: row.kind,
  name: row.name,
  prefix: row.prefix,
  role: row.role,
  userId: row.userId ?? undefined,
  userInactive: row.userInactive,
  permissions: row.permissions ?? undefined,
  scopes: row.scopes,
  models: row.models,
  environment: row.environment,
  disabled: row.disabled,
  revoked: row.revoked,
  orgSuspended: row.orgSuspended,
  expiresAt: row.expiresAt === null ? undefined : unixSeconds(row.expiresAt),
  budget:
    row.budgetMicro === null || row.budgetInterval === null
      ? undefined
      : { limitMicro: row.budgetMicro, interval: row.budgetInterval },
  rateLimit: {
    requests: row.rateRequests,
    windowS: row.rateWindowS,
    burst: row.rateBurst,
    concurrency: row.rateConcurrency,
    streams: row.rateStreams,
  },
  workspaceId: row.workspaceId ?? undefined,
  robotId: row.robotId ?? undefined,
  bounds: row.bounds ?? undefined,
  trust: row.trust ?? undefined,
  requireSigned: row.requireSigned,
  settings: settingsFrom(row.orgSettings, row.workspaceSettings),
  createdAt: unixSeconds(row.created),
  parentId: row.parentId ?? undefined,
  ancestors: [],
});

/** Keys with those that they descend from; a key without a parent costs no look. */
async function withAncestors(sql: Queryable, rows: readonly KeyRow[]): Promise<KeyRecord[]> {
  const keys = rows.map(keyOf);
  const born = keys.filter(({ parentId }) => parentId !== undefined).map(({ id }) => id);
  if (born.length === 0) return keys;
  const found = await sql<(KeyRow & { descendant: string })[]>`
    select line.descendant, ${keyColumns(sql)}
    from (select descendant, a.id as ancestor, a.depth from unnest(${born}::text[]) as descendant, key_ancestors(descendant) as a) as line
      join key on key.id = line.ancestor
    order by line.descendant, line.depth`;
  const lines = Map.groupBy(found, ({ descendant }) => descendant);
  return keys.map((key) => ({ ...key, ancestors: (lines.get(key.id) ?? []).map(keyOf) }));
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

/** Creates a key of an organization that exists. The secret is in the answer and nowhere else. */
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
  const made = await oneOf(sql, await sql<KeyRow[]>`insert into key ${sql(row)} returning ${keyColumns(sql)}`);
  return { key: made!, secret };
}

/** Finds a key by the hash of its secret. */
export async function findKeyByHash(sql: Sql, hash: Uint8Array): Promise<KeyRecord | undefined> {
  return oneOf(sql, await sql<KeyRow[]>`select ${keyColumns(sql)} from key where hash = ${Buffer.from(hash)}`);
}

/** Finds a key by its name. */
export async function findKey(sql: Queryable, id: string): Promise<KeyRecord | undefined> {
  return oneOf(sql, await sql<KeyRow[]>`select ${keyColumns(sql)} from key where id = ${id}`);
}

/** Which keys of an organization to list. */
interface KeyQuery {
  limit: number;
  /** Only keys after this one. */
  after?: string | undefined;
  workspaceId?: string | undefined;
  /** Only keys of this member. */
  userId?: string | undefined;
  /** Only this key. */
  id?: string | undefined;
}

/** The keys of an organization that were not revoked, oldest first. */
export async function listKeys(
  sql: Queryable,
  orgId: string,
  { limit, after, workspaceId, userId, id }: KeyQuery,
): Promise<KeyRecord[]> {
  const rows = await sql<KeyRow[]>`
    select ${keyColumns(sql)} from key where org_id = ${orgId} and revoked_at is null and kind = 'api'
      ${after === undefined ? sql`` : sql`and id > ${after}`}
      ${workspaceId === undefined ? sql`` : sql`and workspace_id = ${workspaceId}`}
      ${userId === undefined ? sql`` : sql`and user_id = ${userId}`}
      ${id === undefined ? sql`` : sql`and id = ${id}`}
    order by id limit ${limit}`;
  return withAncestors(sql, rows);
}

/** A key of an organization that was not revoked; its row is locked until the transaction ends. */
export async function lockKey(tx: Tx, orgId: string, id: string): Promise<KeyRecord | undefined> {
  const rows = await tx<KeyRow[]>`
    select ${keyColumns(tx)} from key where org_id = ${orgId} and id = ${id} and revoked_at is null and kind = 'api'
    for update of key`;
  return oneOf(tx, rows);
}

/** What may change of a key; absent fields stay, null takes one away. */
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

/** Changes a key; every replica knows when this is committed, or shortly after. */
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

/** Gives a key a new secret; the old one opens nothing any more. The secret is in the answer and nowhere else. */
export async function rotateKey(tx: Tx, id: string): Promise<{ key: KeyRecord; secret: string }> {
  const { secret, prefix } = newSecret();
  await tx`update key set ${tx({ prefix, hash: hashSecret(secret) })} where id = ${id}`;
  return { key: (await findKey(tx, id))!, secret };
}

/** Whose keys to end; those of a member outside of some workspaces where `outside` names these. */
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

/** A key that was revoked. */
export type RevokedKey = Pick<KeyRecord, "id" | "workspaceId">;

/** Ends keys for ever, and all that descend from them. Returns which these were. */
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

/** Switches a key off or on; every replica knows as soon as this resolves or shortly after. Reports whether there is such a key. */
export async function setKeyDisabled(sql: Sql, id: string, disabled: boolean): Promise<boolean> {
  const { count } = await sql`update key set disabled = ${disabled} where id = ${id}`;
  return count > 0;
}

// What keys have spent, of their budgets and in all. Amounts are micro-dollars.

/** What a key has spent, by intervals in UTC that began at or before `atMs` (unix milliseconds). */
export interface KeySpending {
  dayMicro: number;
  weekMicro: number;
  monthMicro: number;
  totalMicro: number;
  /** What the key's leases hold: it counts against the budget, and is not spent. */
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

/** The spending of a key. A call counts on the day on which its credit was leased. */
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

/** What was spent of a budget in its running interval, and when that is over in unix seconds; undefined for one that is never renewed. */
export interface BudgetSpent {
  spentMicro: number;
  resetsAt: number | undefined;
}

/**
 * What was spent of the budgets of these keys at `atMs` (unix milliseconds), by them and by their descendants, by key; those without a
 * budget are left out.
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
