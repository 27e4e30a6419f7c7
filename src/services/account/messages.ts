/** Keys, budgets and settings between the words of the store and the messages of the schema. */

import { create, fromJson } from "@bufbuild/protobuf";
import {
  AppPolicy,
  BudgetInterval,
  Environment,
  type Key,
  type KeyBudget,
  KeyBudgetSchema,
  KeySchema,
  type RateLimit as RateLimitMessage,
  RateLimitSchema,
  type Settings,
  SettingsSchema,
  SpendingSchema,
} from "../../../gen/limber/v1/account_pb.ts";
import type { NewKeyBudget } from "../../../gen/limber/v1/account_service_pb.ts";
import { SafetyBoundsSchema } from "../../../gen/limber/v1/action_pb.ts";
import { ByokMode } from "../../../gen/limber/v1/credential_pb.ts";
import { fromUsd, toUsd } from "../../billing/price.ts";
import type { ByokMode as ByokWord, OrgSettings } from "../../call.ts";
import { TRUSTS } from "../../contracts/trust.ts";
import type { BudgetSpent, KeySpending } from "../../store/account/key-spending.ts";
import { type KeyRecord, type RateLimit, rateLimitOf } from "../../store/account/keys.ts";
import { effective } from "../authority.ts";

/** What is said of a key beyond its record. */
export interface KeyExtras {
  secret?: string;
  spending?: KeySpending;
  /** What was spent of the budget that it spends from. */
  budgetSpent?: BudgetSpent | undefined;
  left?: { remaining: number; resetAt: number };
  /** What calls with the organisation's own provider keys were charged. */
  ownMicro?: number;
}

/** The budget that a key spends from: its own, or else that of the nearest key that it descends from and that has one. */
export const budgetHolder = (key: KeyRecord): KeyRecord | undefined =>
  [key, ...key.ancestors].find(({ budget }) => budget);

/** A key as callers see it: as it acts, with the limits of the keys that it descends from. */
export function keyMessage(stored: KeyRecord, { secret, spending, budgetSpent, left, ownMicro }: KeyExtras = {}): Key {
  const key = effective(stored);
  const budget = budgetHolder(key)?.budget;
  const spent = budgetSpent ?? spending?.budget;
  const { requests, windowS, burst, concurrency, streams } = key.rateLimit;
  return create(KeySchema, {
    id: key.id,
    name: key.name,
    prefix: key.prefix,
    orgId: key.orgId,
    createdAt: key.createdAt,
    disabled: key.disabled,
    scopes: key.scopes.length > 0 ? key.scopes : [...ALL_SCOPES],
    models: key.models,
    role: key.role,
    permissions: key.permissions ?? [],
    ...(key.userId !== undefined && { userId: key.userId }),
    environment: key.environment === "hardware" ? Environment.HARDWARE : Environment.SIMULATION,
    rateLimit: create(RateLimitSchema, { requests, windowS, burst, concurrency, streams, ...left }),
    ...(secret !== undefined && { key: secret }),
    ...(key.expiresAt !== undefined && { expiresAt: key.expiresAt }),
    ...(key.workspaceId !== undefined && { workspaceId: key.workspaceId }),
    ...(key.robotId !== undefined && { robotId: key.robotId }),
    ...(key.trust && { trust: TRUSTS[key.trust] }),
    requireSigned: key.requireSigned,
    ...(key.bounds && { bounds: fromJson(SafetyBoundsSchema, key.bounds as Parameters<typeof fromJson>[1]) }),
    ...(key.parentId !== undefined && { parentId: key.parentId }),
    ...(budget && { budget: budgetMessage(budget, spent?.spentMicro ?? 0, spent?.resetsAt) }),
    ...(ownMicro !== undefined && { byokUsageUsd: toUsd(ownMicro) }),
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

/** What a key may call that nothing narrows. */
const ALL_SCOPES: readonly string[] = ["act", "predict", "ground", "evaluate"];

const INTERVALS = {
  daily: BudgetInterval.DAILY,
  weekly: BudgetInterval.WEEKLY,
  monthly: BudgetInterval.MONTHLY,
  lifetime: BudgetInterval.LIFETIME,
} as const;

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
    interval: INTERVALS[interval],
    spentUsd: toUsd(spentMicro),
    remainingUsd: toUsd(Math.max(0, limitMicro - spentMicro)),
    ...(resetsAt !== undefined && { resetsAt }),
  });
}

/** The budget that a request asks for; one without an interval is never renewed. Refuses sums that there aren't. */
export function budgetOf({ limitUsd = 0, interval }: NewKeyBudget): BudgetMessage {
  const words: readonly (keyof typeof INTERVALS)[] = ["daily", "weekly", "monthly"];
  return {
    limitMicro: fromUsd(limitUsd, "budget.limit_usd"),
    interval: words.find((word) => INTERVALS[word] === interval) ?? "lifetime",
  };
}

/** The limits that a request asks for; what it leaves out is as usual, or the most that its caller may give where that is less. */
export function limitsOf(
  { requests, windowS, burst, concurrency, streams }: RateLimitMessage,
  most?: RateLimit,
): RateLimit {
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

/** The store's word of an environment. */
export const environmentOf = (environment: Environment): KeyRecord["environment"] =>
  environment === Environment.HARDWARE ? "hardware" : "simulation";

const BYOK_MODES: Readonly<Record<ByokWord, ByokMode>> = {
  off: ByokMode.OFF,
  fallback: ByokMode.FALLBACK,
  prefer: ByokMode.PREFER,
  require: ByokMode.REQUIRE,
};

/** The store's word of a mode. */
export const byokWordOf = (mode: ByokMode): ByokWord | undefined =>
  (Object.keys(BYOK_MODES) as ByokWord[]).find((word) => BYOK_MODES[word] === mode); // the table's own keys

/** Settings as callers see them. */
export const settingsMessage = (settings: OrgSettings): Settings =>
  create(SettingsSchema, {
    retentionDays: settings.retentionDays,
    zdr: settings.zdr,
    cacheSharing: settings.cacheSharing,
    byokMode: BYOK_MODES[settings.byokMode],
    allowedRegions: [...(settings.allowedRegions ?? [])],
    maxHedgeRatio: settings.maxHedgeRatio,
    ...(settings.defaultPreset !== undefined && { defaultPreset: settings.defaultPreset }),
    trust: TRUSTS[settings.trust],
    requireSigned: settings.requireSigned,
    selfRegisteredApps: APP_POLICIES[settings.selfRegisteredApps],
    hardwareKeys: settings.hardwareKeys,
  });

const APP_POLICIES: Readonly<Record<OrgSettings["selfRegisteredApps"], AppPolicy>> = {
  allow: AppPolicy.ALLOW,
  deny: AppPolicy.DENY,
};

/** A policy as it is stored. */
export const appPolicyIn = (policy: AppPolicy): OrgSettings["selfRegisteredApps"] =>
  policy === AppPolicy.DENY ? "deny" : "allow";
