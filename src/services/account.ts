/** Organisations, their keys, their credit and what they used. */
import { create } from "@bufbuild/protobuf";
import {
  BudgetInterval,
  Environment,
  type Key,
  KeyBudgetSchema,
  KeySchema,
  OrgSchema,
  OrgStatus,
  RateLimitSchema,
  SpendingSchema,
  UsageRecordSchema,
  UsageStatus,
} from "../../gen/limber/v1/account_pb.ts";
import {
  type AccountService,
  AddCreditsResponseSchema,
  type CreateKeyRequest,
  CreateKeyResponseSchema,
  CreateOrgResponseSchema,
  GetKeyResponseSchema,
  ListUsageResponseSchema,
} from "../../gen/limber/v1/account_service_pb.ts";
import { now, nowSeconds } from "../ambient.ts";
import { violation } from "../contracts/conflicts.ts";
import { fromUsd, toUsd } from "../money/price.ts";
import { Reason, refuse } from "../refusal.ts";
import { audit } from "../store/audit.ts";
import {
  createKey,
  DEFAULT_ROLE,
  findKey,
  type KeyRecord,
  type KeySpending,
  type NewKey,
  spendingOf,
} from "../store/keys.ts";
import { addMember, findMember, type MemberRecord } from "../store/members.ts";
import { addOrg, grantCredits } from "../store/orgs.ts";
import { type Sql, type Tx, tx } from "../store/tx.ts";
import { listUsage, type UsageRow, usageTotals } from "../store/usage.ts";
import { assertReachable } from "./account/reach.ts";
import { byCall, type Call, type Implementation, keyOf } from "./call.ts";
import { emit } from "./emit.ts";
import { callersReach, isRoleWithin } from "./permissions.ts";

/** What accounts need of the house. */
export interface AccountParts {
  sql: Sql;
  /** What a key has left of its rate limit at this moment. */
  leftOf(key: KeyRecord): { remaining: number; resetAt: number };
  /** Resolves when the ledger has what this replica knows of an organisation's calls. */
  settled(orgId: string): Promise<void>;
}

const DEFAULT_PAGE = 50;

/** The account RPCs. */
export function accountService({ sql, leftOf, settled }: AccountParts): Implementation<typeof AccountService> {
  return {
    async createOrg({ name, email }, call) {
      const { id, created, signedUp } = await tx(sql, async (tx) => {
        const made = await addOrg(tx, { name, email });
        const owner = email === undefined ? undefined : await addMember(tx, { orgId: made.id, email, role: "owner" });
        await audit(tx, {
          ...byCall(call),
          orgId: made.id,
          action: "org.created",
          subject: made.id,
          details: { name },
        });
        // Whoever signs up by himself has no one to ask for a first key.
        const signedUp =
          call.principal.kind === "public"
            ? await makeKey(tx, { orgId: made.id, role: "owner", userId: owner?.id }, call)
            : undefined;
        return { ...made, signedUp };
      });
      const org = create(OrgSchema, {
        id,
        name,
        created,
        status: OrgStatus.ACTIVE,
        ...(signedUp && { key: keyMessage(signedUp.key, { secret: signedUp.secret }) }),
      });
      return create(CreateOrgResponseSchema, { org });
    },

    async createKey(request, call) {
      await assertReachable(sql, request.orgId, call);
      const user = await userOf(sql, request, call);
      const role = request.role ?? (user && !isRoleWithin(DEFAULT_ROLE, user.role) ? user.role : DEFAULT_ROLE);
      refuseWider(request, role, call);
      if (user && !isRoleWithin(role, user.role))
        throw refuse(Reason.PERMISSION_DENIED, `a member of the role ${user.role} has no key of the role ${role}`);
      const wanted = { ...newKeyOf(request), role, userId: user?.id };
      const { key, secret } = await tx(sql, (tx) => makeKey(tx, wanted, call));
      return create(CreateKeyResponseSchema, { key: keyMessage(key, { secret }) });
    },

    async addCredits({ orgId, amountUsd, reason, idempotencyKey }, call) {
      const amountMicro = fromUsd(amountUsd);
      const { entryId, balanceMicro } = await tx(sql, async (tx) => {
        const granted = await grantCredits(tx, { orgId, amountMicro, reason, idempotencyKey });
        const details = { amount_usd: amountUsd, reason, idempotency_key: idempotencyKey };
        if (granted.isNew)
          await audit(tx, { ...byCall(call), orgId, action: "credits.added", subject: granted.entryId, details });
        return granted;
      });
      return create(AddCreditsResponseSchema, { orgId, entryId, balanceUsd: toUsd(balanceMicro) });
    },

    async getKey(_request, call) {
      const { keyId, orgId } = keyOf(call);
      await settled(orgId);
      const [key, spending] = await Promise.all([findKey(sql, keyId), spendingOf(sql, keyId, now())]);
      if (!key) throw refuse(Reason.NOT_FOUND, "this key was removed");
      return create(GetKeyResponseSchema, { key: keyMessage(key, { spending, left: leftOf(key) }) });
    },

    async listUsage({ limit, cursor }, call) {
      const { orgId } = keyOf(call);
      await settled(orgId);
      const [page, totals] = await Promise.all([
        listUsage(sql, orgId, limit ?? DEFAULT_PAGE, cursor),
        usageTotals(sql, orgId),
      ]);
      return create(ListUsageResponseSchema, {
        object: "list",
        data: page.rows.map(usageMessage),
        hasMore: page.nextCursor !== undefined,
        ...(page.nextCursor !== undefined && { nextCursor: page.nextCursor }),
        totals: { requests: totals.requests, costUsd: toUsd(totals.costMicro) },
      });
    },
  };
}

/** Makes a key, and tells of it. */
async function makeKey(tx: Tx, wanted: NewKey, call: Call): Promise<{ key: KeyRecord; secret: string }> {
  const made = await createKey(tx, wanted);
  const { id, name, role, environment } = made.key;
  await emit(tx, wanted.orgId, { case: "keyCreated", value: { keyId: id } });
  const details = { name, role, environment };
  await audit(tx, { ...byCall(call), orgId: wanted.orgId, action: "key.created", subject: id, details });
  return made;
}

/** The member whose key is to be made: the one that was named, or else the caller's own. */
async function userOf(
  sql: Sql,
  { orgId, userId }: CreateKeyRequest,
  { principal }: Call,
): Promise<MemberRecord | undefined> {
  const own = principal.kind === "key" ? principal.userId : undefined;
  if (principal.kind === "key" && callersReach(principal, "keys.write") === "own") {
    if (own === undefined || (userId ?? own) !== own)
      throw refuse(Reason.PERMISSION_DENIED, `the role ${principal.role} makes keys for its own user alone`);
  }
  const wanted = userId ?? own;
  if (wanted === undefined) return undefined;
  const member = await findMember(sql, orgId, wanted);
  if (!member) throw refuse(Reason.NOT_FOUND, "there is no member of this name", {}, { param: "user_id" });
  if (member.status !== "active") throw refuse(Reason.MEMBER_NOT_ACTIVE, "this member is not active");
  return member;
}

/** A key makes no key that may do more than itself, or every limit on it could be stepped around. */
function refuseWider({ scopes, models }: CreateKeyRequest, role: string, { principal }: Call): void {
  if (principal.kind !== "key") return;
  if (!isRoleWithin(role, principal.role))
    throw refuse(Reason.PERMISSION_DENIED, `a key of the role ${principal.role} makes none of the role ${role}`);
  if (!isWithin(scopes, principal.scopes) || !isWithin(models, principal.models))
    throw refuse(Reason.SCOPE_DENIED, "a key makes none with scopes or models beyond its own");
}

/** Whether a list allows no more than another; an empty one allows everything, and `owner/*` all of an owner. */
const isWithin = (inner: readonly string[], outer: readonly string[]): boolean =>
  outer.length === 0 ||
  (inner.length > 0 &&
    inner.every((name) => outer.some((o) => o === name || (o.endsWith("/*") && name.startsWith(o.slice(0, -1))))));

function newKeyOf(request: CreateKeyRequest): NewKey {
  const { orgId, name, scopes, models, environment, expiresAt, budget, rateLimit } = request;
  if (expiresAt !== undefined && expiresAt <= nowSeconds())
    throw violation("expires_at", "lies in the past", "greater_than");
  return {
    orgId,
    name,
    scopes,
    models,
    environment: environment === Environment.HARDWARE ? "hardware" : "simulation",
    expiresAt,
    budget: budget && {
      limitMicro: fromUsd(budget.limitUsd, "budget.limit_usd"),
      interval: intervalOf(budget.interval),
    },
    ...(rateLimit && {
      rateLimit: {
        requests: rateLimit.requests,
        windowS: rateLimit.windowS,
        ...(rateLimit.burst > 0 && { burst: rateLimit.burst }),
        ...(rateLimit.concurrency > 0 && { concurrency: rateLimit.concurrency }),
      },
    }),
  };
}

interface KeyExtras {
  secret?: string;
  spending?: KeySpending;
  left?: { remaining: number; resetAt: number };
}

/** A key as callers see it; `extras` are what only some calls tell. */
export function keyMessage(key: KeyRecord, { secret, spending, left }: KeyExtras): Key {
  const { requests, windowS, burst, concurrency } = key.rateLimit;
  return create(KeySchema, {
    id: key.id,
    name: key.name,
    prefix: key.prefix,
    orgId: key.orgId,
    createdAt: key.createdAt,
    disabled: key.disabled,
    scopes: key.scopes,
    models: key.models,
    role: key.role,
    permissions: key.permissions ?? [],
    ...(key.userId !== undefined && { userId: key.userId }),
    environment: key.environment === "hardware" ? Environment.HARDWARE : Environment.SIMULATION,
    rateLimit: create(RateLimitSchema, { requests, windowS, burst, concurrency, ...left }),
    ...(secret !== undefined && { key: secret }),
    ...(key.expiresAt !== undefined && { expiresAt: key.expiresAt }),
    ...budgetOf(key, spending),
    ...(spending && {
      usageUsd: create(SpendingSchema, {
        day: toUsd(spending.dayMicro),
        week: toUsd(spending.weekMicro),
        month: toUsd(spending.monthMicro),
        total: toUsd(spending.totalMicro),
      }),
    }),
  });
}

const INTERVALS = {
  daily: BudgetInterval.DAILY,
  weekly: BudgetInterval.WEEKLY,
  monthly: BudgetInterval.MONTHLY,
  lifetime: BudgetInterval.LIFETIME,
} as const;

/** The store's word of an interval; a budget without one is never renewed. */
function intervalOf(interval: BudgetInterval | undefined): keyof typeof INTERVALS {
  const words: readonly (keyof typeof INTERVALS)[] = ["daily", "weekly", "monthly"];
  return words.find((word) => INTERVALS[word] === interval) ?? "lifetime";
}

function budgetOf({ budget }: KeyRecord, spending: KeySpending | undefined): Pick<Key, "budget"> | undefined {
  if (!budget) return undefined;
  const spentMicro = spending?.budget?.spentMicro ?? 0;
  const resetsAt = spending?.budget?.resetsAt;
  return {
    budget: create(KeyBudgetSchema, {
      limitUsd: toUsd(budget.limitMicro),
      interval: INTERVALS[budget.interval],
      spentUsd: toUsd(spentMicro),
      remainingUsd: toUsd(Math.max(0, budget.limitMicro - spentMicro)),
      ...(resetsAt !== undefined && { resetsAt }),
    }),
  };
}

const usageMessage = (row: UsageRow) =>
  create(UsageRecordSchema, {
    id: `use${row.requestId.slice(row.requestId.indexOf("_"))}`,
    requestId: row.requestId,
    created: row.created,
    contract: row.contract,
    model: row.model,
    provider: row.provider,
    units: row.units,
    unit: row.unit,
    costUsd: toUsd(row.costMicro),
    wakeUpUsd: toUsd(row.wakeUpMicro),
    ...(row.hedgeCostMicro !== null && { hedgeCostUsd: toUsd(row.hedgeCostMicro) }),
    keyId: row.keyId,
    simulated: row.simulated,
    byok: row.byok,
    status: row.status === "settled" ? UsageStatus.SETTLED : UsageStatus.UNMETERED,
  });
