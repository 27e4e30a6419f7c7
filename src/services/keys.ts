/** API keys of an organization: create, change, rotate and revoke. */

import { create, fromJson, toJson } from "@bufbuild/protobuf";
import {
  AppPolicy,
  BudgetInterval,
  Environment,
  type Key,
  type KeyBudget,
  KeyBudgetSchema,
  KeySchema,
  type RateLimit as RateLimitMessage,
  type Settings,
  SettingsSchema,
} from "../../gen/limber/v1/account_pb.ts";
import type {
  AccountService,
  CreateKeyRequest,
  NewKeyBudget,
  UpdateKeyRequest,
} from "../../gen/limber/v1/account_service_pb.ts";
import { SafetyBoundsSchema } from "../../gen/limber/v1/action_pb.ts";
import { ByokMode } from "../../gen/limber/v1/credential_pb.ts";
import { fromUsd, toUsd } from "../billing/price.ts";
import { type ByokMode as ByokWord, byCall, type Call, type Implementation, keyOf, type OrgSettings } from "../call.ts";
import { now, nowSeconds } from "../clock.ts";
import { assertBounds } from "../contracts/act.ts";
import { enumOf, enumWord, violation } from "../contracts/contract.ts";
import { TRUSTS, trustIn } from "../contracts/trust.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import { emit } from "../events/emit.ts";
import { audit } from "../store/account/audit.ts";
import {
  type BudgetSpent,
  budgetsSpent,
  changeKey,
  createKey,
  DEFAULT_RATE_LIMIT,
  DEFAULT_ROLE,
  findKey,
  type KeyChanges,
  type KeyRecord,
  type KeySpending,
  listKeys,
  lockKey,
  type NewKey,
  type RateLimit,
  type RevokedKey,
  rateLimitOf,
  revokeKeys,
  rotateKey,
  spendingOf,
} from "../store/account/keys.ts";
import { findMember, findWorkspace, type MemberRecord } from "../store/account/members.ts";
import { orgSettings } from "../store/account/settings.ts";
import { endingKeys } from "../store/billing/alerts.ts";
import { type Queryable, type Sql, type Tx, tx } from "../store/database/tx.ts";
import { ownKeySpending } from "../store/history/usage.ts";
import {
  authorityOf,
  authorityOfNew,
  changedAuthority,
  effective,
  exceeding,
  givingAuthorityOf,
  inherited,
  refuseBeyond,
  unwidened,
} from "./authority.ts";
import { DEFAULT_PAGE, readPage } from "./pages.ts";
import { callersReach, isRoleWithin } from "./permissions.ts";
import { assertReachable, confinedTo, giverOf } from "./reach.ts";

/** Dependencies of the key RPCs. */
export interface KeyParts {
  sql: Sql;
  /** The remaining rate limit of a key. */
  leftOf(key: KeyRecord): Promise<{ remaining: number; resetAt: number }>;
  /** Resolves once this replica's charges of an organization are in the ledger. */
  settled(orgId: string): Promise<void>;
  /** Applies a change to a key, or to an organization's keys, on this replica immediately; others are notified. */
  changed(id: string): void;
}

type KeyCalls = "createKey" | "listKeys" | "getOrgKey" | "updateKey" | "deleteKey" | "rotateKey" | "getKey";

/** The RPCs about keys. */
export function keyCalls({
  sql,
  leftOf,
  settled,
  changed,
}: KeyParts): Pick<Implementation<typeof AccountService>, KeyCalls> {
  const shown = async (id: string) => {
    const [key, spending] = await Promise.all([findKey(sql, id), spendingOf(sql, id, now())]);
    if (!key) throw noSuchKey();
    const [left, ownMicro, budgetSpent] = await Promise.all([
      leftOf(key),
      ownKeySpending(sql, key.orgId, id),
      spentOf([key]),
    ]);
    return keyMessage(key, { spending, left, ownMicro, budgetSpent: budgetSpent(key) });
  };
  /** Keys for lists and changes, with the use of their budgets only. */
  const briefly = async (keys: readonly KeyRecord[], extras: { secret?: string } = {}) => {
    const spent = await spentOf(keys);
    return keys.map((key) => keyMessage(key, { ...extras, budgetSpent: spent(key) }));
  };
  /** The use of the budgets that these keys draw on. */
  const spentOf = async (keys: readonly KeyRecord[]): Promise<(key: KeyRecord) => BudgetSpent | undefined> => {
    const holders = new Set(keys.flatMap((key) => budgetHolder(key)?.id ?? []));
    const spent = holders.size > 0 ? await budgetsSpent(sql, [...holders], now()) : undefined;
    return (key) => spent?.get(budgetHolder(key)?.id ?? "");
  };

  return {
    async createKey(request, call) {
      const { orgId } = request;
      await assertReachable(sql, orgId, call);
      // The response does not reveal whether another workspace has this name.
      const near = confinedTo(call);
      if (near !== undefined && (request.workspaceId ?? near) !== near) throw otherWorkspace();
      const user = await userOf(sql, request, call);
      const role = request.role ?? (user && !isRoleWithin(DEFAULT_ROLE, user.role) ? user.role : DEFAULT_ROLE);
      if (user && !isRoleWithin(role, user.role))
        throw refuse(
          Reason.PERMISSION_DENIED,
          `a member with the role ${user.role} cannot have a key with the role ${role}`,
        );
      const { key, secret } = await tx(sql, async (tx) => {
        const maker = await makerOf(tx, call);
        const asked = { ...newKeyOf(request, maker), role, userId: user?.id };
        const wanted = confined(inherited(asked, maker), user);
        if (maker) {
          // A workspace that the caller cannot access looks as if it did not exist.
          const isNear = maker.workspaceId === undefined || maker.workspaceId === wanted.workspaceId;
          const settings = await orgSettings(tx, orgId, isNear ? wanted.workspaceId : undefined);
          refuseBeyond(authorityOfNew(wanted, settings, maker), givingAuthorityOf(maker));
        }
        const unknown = "workspace not found";
        if (wanted.workspaceId !== undefined && !(await findWorkspace(tx, orgId, wanted.workspaceId, now())))
          throw refuse(Reason.NOT_FOUND, unknown, {}, { param: "workspace_id" });
        return makeKey(tx, wanted, call);
      });
      return { key: (await briefly([key], { secret }))[0]! };
    },

    async listKeys({ orgId, limit = DEFAULT_PAGE, cursor: after, workspaceId: asked }, call) {
      await assertReachable(sql, orgId, call);
      const caller = call.principal.kind === "key" ? call.principal : undefined;
      const own = caller?.workspaceId;
      if (own !== undefined && (asked ?? own) !== own) throw otherWorkspace();
      const seesOwn = caller !== undefined && callersReach(caller, "keys.read") === "own";
      // A key without a member can read itself.
      const only = !seesOwn ? {} : caller.userId === undefined ? { id: caller.keyId } : { userId: caller.userId };
      const workspaceId = own ?? asked;
      const { records, ...page } = await readPage(
        limit,
        (most) => listKeys(sql, orgId, { limit: most, after, workspaceId, ...only }),
        ({ id }) => id,
      );
      return { ...page, data: await briefly(records) };
    },

    async getOrgKey({ orgId, keyId }, call) {
      await assertReachable(sql, orgId, call);
      const key = await findKey(sql, keyId);
      if (key?.orgId !== orgId || key.revoked || key.kind !== "api" || !isNear(key, call, "keys.read"))
        throw noSuchKey();
      await settled(orgId);
      return { key: await shown(keyId) };
    },

    async updateKey(request, call) {
      const key = await changing(sql, request, call, async (tx, key) => {
        const giver = await giverOf(tx, call);
        const before = authorityOf(key);
        refuseBeyond(before, giver);
        const changes = unwidened(key, changesOf(request, giver?.rateLimit));
        const after = await changeKey(tx, key.id, changes);
        refuseBeyond(changedAuthority(before, after, changes), giver);
        await record(tx, call, "key.updated", after, { fields: changedFields(request) });
        return after;
      });
      changed(key.id);
      // Return credit leased under the old budget before the new one applies.
      await settled(key.orgId);
      return { key: (await briefly([key]))[0]! };
    },

    async deleteKey(request, call) {
      const key = await changing(sql, request, call, async (tx, key) => {
        // Revoking grants no authority, and must not wait for the lock on the organization's widest key.
        const giver = await giverOf(tx, call);
        if (giver && exceeding(authorityOf(key), giver).includes("permissions"))
          throw refuse(Reason.PERMISSION_DENIED, "this key cannot revoke a key that has permissions beyond its own");
        await recordRevoked(tx, key.orgId, await revokeKeys(tx, { id: key.id }), call);
        return { ...key, disabled: true };
      });
      changed(key.id);
      return { key: (await briefly([key]))[0]! };
    },

    async rotateKey(request, call) {
      const { key, secret } = await changing(sql, request, call, async (tx, key) => {
        // The new secret grants the key's complete authority.
        refuseBeyond(authorityOf(key), await giverOf(tx, call));
        const rotated = await rotateKey(tx, key.id);
        await record(tx, call, "key.rotated", key, {});
        return rotated;
      });
      changed(key.id);
      return { key: (await briefly([key], { secret }))[0]! };
    },

    async getKey(_request, call) {
      const { keyId, orgId } = keyOf(call);
      await settled(orgId);
      return { key: await shown(keyId) };
    },
  };
}

/** Creates a key and emits its event. */
export async function makeKey(tx: Tx, wanted: NewKey, call: Call): Promise<{ key: KeyRecord; secret: string }> {
  const made = await createKey(tx, wanted);
  const { id, name, role, environment, workspaceId, parentId } = made.key;
  await emit(tx, wanted.orgId, { case: "keyCreated", value: { keyId: id } }, workspaceId);
  await record(tx, call, "key.created", made.key, {
    name,
    role,
    environment,
    workspace_id: workspaceId,
    parent_id: parentId,
  });
  return made;
}

/** Records and emits that keys were revoked. */
export async function recordRevoked(tx: Tx, orgId: string, keys: readonly RevokedKey[], call: Call): Promise<void> {
  for (const { id, workspaceId } of keys) {
    await emit(tx, orgId, { case: "keyRevoked", value: { keyId: id } }, workspaceId);
    await record(tx, call, "key.revoked", { id, orgId }, {});
  }
}

const record = (tx: Tx, call: Call, action: string, key: { id: string; orgId: string }, details: object) =>
  audit(tx, { ...byCall(call), orgId: key.orgId, action, subject: key.id, details: { ...details } });

const noSuchKey = (): Refusal => refuse(Reason.NOT_FOUND, "key not found");

/** Changes a key that the caller can access and that is no ancestor of the calling key. */
async function changing<T>(
  sql: Sql,
  { orgId, keyId }: { orgId: string; keyId: string },
  call: Call,
  change: (tx: Tx, key: KeyRecord) => Promise<T>,
): Promise<T> {
  await assertReachable(sql, orgId, call);
  return tx(sql, async (tx) => {
    const key = await lockKey(tx, orgId, keyId);
    if (!key || !isNear(key, call, "keys.write")) throw noSuchKey();
    if (call.principal.kind === "key" && call.principal.ancestors?.includes(key.id))
      throw refuse(Reason.PERMISSION_DENIED, "a key cannot change its own ancestors");
    return change(tx, key);
  });
}

/** The member that the new key belongs to: the one in the request, or the caller. */
async function userOf(sql: Sql, { orgId, userId }: CreateKeyRequest, call: Call): Promise<MemberRecord | undefined> {
  const { principal } = call;
  const own = principal.kind === "key" ? principal.userId : undefined;
  if (principal.kind === "key" && callersReach(principal, "keys.write") === "own" && (userId ?? own) !== own)
    throw refuse(Reason.PERMISSION_DENIED, `the role ${principal.role} can create keys only for its own user`);
  const wanted = userId ?? own;
  if (wanted === undefined) return undefined;
  const member = await findMember(sql, orgId, wanted);
  const near = confinedTo(call);
  // A workspace key cannot see members that are limited to other workspaces.
  const isElsewhere = near !== undefined && member?.workspaceIds.length && !member.workspaceIds.includes(near);
  if (!member || isElsewhere) throw refuse(Reason.NOT_FOUND, "member not found", {}, { param: "user_id" });
  if (member.status !== "active") throw refuse(Reason.MEMBER_NOT_ACTIVE, "this member is not active");
  return member;
}

/** The workspace of a key whose member is limited to workspaces. Defaults to the member's only workspace. */
function confined(wanted: NewKey, member: MemberRecord | undefined): NewKey {
  if (!member || member.workspaceIds.length === 0) return wanted;
  const [first, ...others] = member.workspaceIds;
  const workspaceId = wanted.workspaceId ?? (others.length === 0 ? first : undefined);
  if (workspaceId === undefined || !member.workspaceIds.includes(workspaceId))
    throw refuse(Reason.SCOPE_DENIED, "this member belongs to specific workspaces; choose one of them for the key", {
      needed: member.workspaceIds,
    });
  return { ...wanted, workspaceId };
}

/** A workspace key can access only its own workspace's keys; with a permission for its own keys, only those of its user. */
function isNear(key: KeyRecord, { principal }: Call, permission: "keys.read" | "keys.write"): boolean {
  if (principal.kind !== "key") return true;
  if (principal.workspaceId !== undefined && principal.workspaceId !== key.workspaceId) return false;
  if (callersReach(principal, permission) === "all") return true;
  const isItself = key.id === principal.keyId && permission === "keys.read";
  return isItself || (key.userId !== undefined && key.userId === principal.userId);
}

const otherWorkspace = (): Refusal =>
  refuse(Reason.SCOPE_DENIED, "workspace keys can access only their own workspace's keys");

function newKeyOf(request: CreateKeyRequest, maker: KeyRecord | undefined): NewKey {
  const { orgId, name, role, scopes, models, environment, budget, rateLimit, robotId, workspaceId, bounds, trust } =
    request;
  assertBounds(bounds, undefined, "bounds");
  return {
    orgId,
    name,
    role,
    scopes,
    models,
    environment: environment === undefined ? undefined : environmentOf(environment),
    expiresAt: futureOf(request.expiresAt),
    budget: budget && budgetOf(budget),
    rateLimit: rateLimit && limitsOf(rateLimit, maker && authorityOf(maker).rateLimit),
    workspaceId,
    robotId,
    bounds: bounds && (toJson(SafetyBoundsSchema, bounds) as object), // a message is an object
    trust: trustIn(trust),
    requireSigned: request.requireSigned,
  };
}

/** The parent of a new key; undefined for the operator. */
async function makerOf(sql: Queryable, { principal }: Call): Promise<KeyRecord | undefined> {
  if (principal.kind !== "key") return undefined;
  const maker = await findKey(sql, principal.keyId);
  if (!maker) throw refuse(Reason.INVALID_API_KEY, "invalid API key");
  return maker;
}

function futureOf(expiresAt: number | undefined): number | undefined {
  if (expiresAt !== undefined && expiresAt <= nowSeconds())
    throw violation("expires_at", "must be in the future", "greater_than");
  return expiresAt;
}

function changesOf(request: UpdateKeyRequest, most: RateLimit | undefined): KeyChanges {
  const { name, disabled, environment, budget, rateLimit, robotId, trust, clear } = request;
  for (const field of clear) {
    const { expiresAt, scopes, models } = request;
    const given = { budget, rate_limit: rateLimit, expires_at: expiresAt, robot_id: robotId, trust, scopes, models }[
      field
    ];
    if (given !== undefined)
      throw violation("clear", `must not name ${field}, which the request also sets`, "value_error");
  }
  const cleared = (field: string): null | undefined => (clear.includes(field) ? null : undefined);
  return {
    name,
    disabled,
    scopes: request.scopes?.values.length ? request.scopes.values : clear.includes("scopes") ? [] : undefined,
    models: request.models?.values.length ? request.models.values : clear.includes("models") ? [] : undefined,
    environment: environment === undefined ? undefined : environmentOf(environment),
    expiresAt: futureOf(request.expiresAt) ?? cleared("expires_at"),
    budget: budget ? budgetOf(budget) : cleared("budget"),
    rateLimit: rateLimit ? limitsOf(rateLimit, most) : clear.includes("rate_limit") ? DEFAULT_RATE_LIMIT : undefined,
    robotId: robotId ?? cleared("robot_id"),
    trust: trustIn(trust) ?? cleared("trust"),
    requireSigned: request.requireSigned,
  };
}

/** The names of the changed fields, for the audit record. */
const changedFields = ({ $typeName: _, $unknown: __, orgId: ___, keyId: ____, clear, ...fields }: UpdateKeyRequest) => [
  ...Object.keys(withoutUndefined(fields)),
  ...clear,
];

const withoutUndefined = <T extends object>(fields: T): Partial<T> =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Partial<T>; // fewer fields, none of another type

// Conversions of keys, budgets and settings between the store and the schema.

/** Data of a key message beyond its record. */
interface KeyExtras {
  secret?: string;
  spending?: KeySpending;
  /** The use of the budget that the key draws on. */
  budgetSpent?: BudgetSpent | undefined;
  left?: { remaining: number; resetAt: number };
  /** The charges of calls with the organization's own provider keys. */
  ownMicro?: number;
}

/** The budget that a key draws on: its own, or that of its nearest ancestor with one. */
const budgetHolder = (key: KeyRecord): KeyRecord | undefined => [key, ...key.ancestors].find(({ budget }) => budget);

/** A key as callers see it: its effective values, with the limits of its ancestors applied. */
export function keyMessage(stored: KeyRecord, { secret, spending, budgetSpent, left, ownMicro }: KeyExtras = {}): Key {
  const key = effective(stored);
  const budget = budgetHolder(key)?.budget;
  const spent = budgetSpent ?? spending?.budget;
  return create(KeySchema, {
    ...key,
    scopes: key.scopes.length > 0 ? key.scopes : [...ALL_SCOPES],
    permissions: key.permissions ?? [],
    environment: enumOf(Environment, key.environment),
    rateLimit: { ...key.rateLimit, ...left },
    key: secret,
    trust: key.trust && TRUSTS[key.trust],
    bounds: key.bounds && fromJson(SafetyBoundsSchema, key.bounds as Parameters<typeof fromJson>[1]),
    budget: budget && budgetMessage(budget, spent?.spentMicro ?? 0, spent?.resetsAt),
    byokUsageUsd: ownMicro === undefined ? undefined : toUsd(ownMicro),
    usageUsd: spending && {
      day: toUsd(spending.dayMicro),
      week: toUsd(spending.weekMicro),
      month: toUsd(spending.monthMicro),
      total: toUsd(spending.totalMicro),
    },
  });
}

/** What an unrestricted key may call. */
const ALL_SCOPES: readonly string[] = ["act", "predict", "ground", "evaluate"];

/** A limit in one interval, in micro-dollars. */
export type BudgetMessage = NonNullable<KeyRecord["budget"]>;

/** A budget with what was spent of it. */
export function budgetMessage(
  { limitMicro, interval }: BudgetMessage,
  spentMicro: number,
  resetsAt?: number,
): KeyBudget {
  return create(KeyBudgetSchema, {
    limitUsd: toUsd(limitMicro),
    interval: enumOf(BudgetInterval, interval),
    spentUsd: toUsd(spentMicro),
    remainingUsd: toUsd(Math.max(0, limitMicro - spentMicro)),
    resetsAt,
  });
}

/** The requested budget; without an interval it is never renewed. Refuses invalid amounts. */
export function budgetOf({ limitUsd = 0, interval }: NewKeyBudget): BudgetMessage {
  return {
    limitMicro: fromUsd(limitUsd, "budget.limit_usd"),
    interval: enumWord(BudgetInterval, interval) ?? "lifetime",
  };
}

/** The requested limits. A missing limit gets the default, or the caller's maximum if that is lower. */
function limitsOf({ requests, windowS, burst, concurrency, streams }: RateLimitMessage, most?: RateLimit): RateLimit {
  const usual = rateLimitOf({ requests, windowS });
  const orUsual = (said: number, part: "burst" | "concurrency" | "streams"): number =>
    said > 0 ? said : Math.min(usual[part], most?.[part] ?? usual[part]);
  return {
    requests,
    windowS,
    burst: orUsual(burst, "burst"),
    concurrency: orUsual(concurrency, "concurrency"),
    streams: orUsual(streams, "streams"),
  };
}

/** The store's value of an environment. */
const environmentOf = (environment: Environment): KeyRecord["environment"] =>
  environment === Environment.HARDWARE ? "hardware" : "simulation";

/** The store's value of a mode. */
export const byokWordOf = (mode: ByokMode): ByokWord | undefined => enumWord(ByokMode, mode);

/** Settings as callers see them. */
export const settingsMessage = (settings: OrgSettings): Settings =>
  create(SettingsSchema, {
    ...settings,
    byokMode: enumOf(ByokMode, settings.byokMode),
    allowedRegions: [...(settings.allowedRegions ?? [])],
    trust: TRUSTS[settings.trust],
    selfRegisteredApps: enumOf(AppPolicy, settings.selfRegisteredApps),
  });

/** A policy as it is stored. */
export const appPolicyIn = (policy: AppPolicy): OrgSettings["selfRegisteredApps"] =>
  policy === AppPolicy.DENY ? "deny" : "allow";

// Notices of keys that expire soon.

/** How long before a key's expiry the notice is sent. */
const DAYS = 7;
const AT_ONCE = 200;

/** Emits a notice for every key that expires within seven days, once per expiry. Safe to run on several replicas. */
export async function notifyExpiringKeys(sql: Sql): Promise<void> {
  for (let notified = AT_ONCE; notified === AT_ONCE; )
    notified = await tx(sql, async (tx) => {
      const keys = await endingKeys(tx, now(), DAYS, AT_ONCE);
      for (const { id, orgId, workspaceId, expiresAt } of keys)
        await emit(tx, orgId, { case: "keyExpiring", value: { keyId: id, expiresAt } }, workspaceId ?? undefined);
      return keys.length;
    });
}
