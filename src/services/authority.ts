/**
 * Authority: everything that a key may do, in every dimension, and the one order that compares authorities. Pure: reads no clock and no
 * database. A key can grant, change or take over only what is within its own authority. Only `refuseBeyond` enforces this.
 */
import type { SafetyBounds } from "../../gen/limber/v1/action_pb.ts";
import type { OrgSettings, Reach } from "../call.ts";
import { narrower, reachOfKey, reachOfTier, trustOf, trustSaid } from "../contracts/trust.ts";
import { Reason, refuse } from "../errors.ts";
import {
  DEFAULT_RATE_LIMIT,
  DEFAULT_ROLE,
  type KeyChanges,
  type KeyRecord,
  MOST_ANCESTORS,
  type NewKey,
  type RateLimit,
  rateLimitOf,
} from "../store/account/keys.ts";
import { PERMISSIONS, reachOf } from "./permissions.ts";

/** A set of words; undefined means all words, an empty set none. */
type AuthorityWords = ReadonlySet<string> | undefined;

/** Safety bounds in a canonical form: the values of the first dimensions of an action, and those of every later dimension. */
interface BoundsRange {
  readonly lowest: readonly number[];
  readonly lowestRest: number;
  readonly highest: readonly number[];
  readonly highestRest: number;
  readonly maxChange: number;
  readonly maxStartJump: number;
}

type AuthorityBudget = NonNullable<KeyRecord["budget"]>;

/** The complete authority of a key or a member. */
export interface Authority {
  /** The reach of each permission: `all`, or the id of the one user whose own resources it covers. A missing permission is not held. */
  readonly permissions: ReadonlyMap<string, string>;
  /** Contracts that the key may call. */
  readonly scopes: AuthorityWords;
  /** Models that the key may use: `owner/name`, or `owner/*` for all models of an owner. */
  readonly models: AuthorityWords;
  /** Regions that may serve the calls. */
  readonly regions: AuthorityWords;
  /** Excludes providers that retain frames. */
  readonly zdr: boolean;
  readonly workspaces: AuthorityWords;
  readonly environment: KeyRecord["environment"];
  /** Robots that the key is limited to. */
  readonly robots: AuthorityWords;
  readonly bounds: BoundsRange;
  /** Every budget that limits the key; each one applies. */
  readonly budget: readonly AuthorityBudget[];
  readonly rateLimit: RateLimit;
  /** The trust levels of supply that may serve, by the keys alone. The settings narrow this for all keys. */
  readonly trust: Reach;
  /** Whether only signed checkpoints may serve, by the keys alone. */
  readonly requireSigned: boolean;
  /** Expiry in Unix seconds; Infinity for none. */
  readonly expiresAt: number;
}

/** A dimension of authority. */
export type Dimension = keyof Authority;

/** Comparison of the values of one dimension. `meet` returns what both allow: the largest value within either. */
interface Order<T> {
  within(inner: T, outer: T): boolean;
  meet(one: T, other: T): T;
}

const words: Order<AuthorityWords> = {
  within: (inner, outer) => outer === undefined || inner?.isSubsetOf(outer) === true,
  meet: (one, other) => (one && other ? one.intersection(other) : (one ?? other)),
};

/** Whether `outer` covers every model of `inner`. */
const covers = (outer: string, inner: string): boolean =>
  outer === inner || outer === "*" || (outer.endsWith("/*") && inner.startsWith(outer.slice(0, -1)));

const globs: Order<AuthorityWords> = {
  within: (inner, outer) =>
    outer === undefined ||
    (inner !== undefined && [...inner].every((name) => [...outer].some((glob) => covers(glob, name)))),
  meet(one, other) {
    if (!one || !other) return one ?? other;
    const both = (a: ReadonlySet<string>, b: ReadonlySet<string>) =>
      [...a].filter((name) => [...b].some((glob) => covers(glob, name)));
    return new Set([...both(one, other), ...both(other, one)]);
  },
};

const least: Order<number> = { within: (inner, outer) => inner <= outer, meet: Math.min };

const permissions: Order<Authority["permissions"]> = {
  within: (inner, outer) => inner.entries().every(([id, reach]) => outer.get(id) === "all" || outer.get(id) === reach),
  meet: (one, other) =>
    new Map(
      one.entries().flatMap(([id, reach]): [string, string][] => {
        const second = other.get(id);
        if (second === undefined) return [];
        if (reach === "all" || second === "all") return [[id, reach === "all" ? second : reach]];
        return reach === second ? [[id, reach]] : [];
      }),
    ),
};

const at = (numbers: readonly number[], rest: number, i: number): number => numbers[i] ?? rest;
const lengthOf = (...ranges: readonly BoundsRange[]): number =>
  Math.max(...ranges.flatMap(({ lowest, highest }) => [lowest.length, highest.length]));

const range: Order<BoundsRange> = {
  within(inner, outer) {
    // One more than the longest, for all later dimensions.
    for (let i = 0; i <= lengthOf(inner, outer); i++) {
      if (at(inner.lowest, inner.lowestRest, i) < at(outer.lowest, outer.lowestRest, i)) return false;
      if (at(inner.highest, inner.highestRest, i) > at(outer.highest, outer.highestRest, i)) return false;
    }
    return inner.maxChange <= outer.maxChange && inner.maxStartJump <= outer.maxStartJump;
  },
  meet(one, other) {
    const dimensions = Array.from({ length: lengthOf(one, other) }, (_, i) => i);
    return {
      lowest: dimensions.map((i) => Math.max(at(one.lowest, one.lowestRest, i), at(other.lowest, other.lowestRest, i))),
      lowestRest: Math.max(one.lowestRest, other.lowestRest),
      highest: dimensions.map((i) =>
        Math.min(at(one.highest, one.highestRest, i), at(other.highest, other.highestRest, i)),
      ),
      highestRest: Math.min(one.highestRest, other.highestRest),
      maxChange: Math.min(one.maxChange, other.maxChange),
      maxStartJump: Math.min(one.maxStartJump, other.maxStartJump),
    };
  },
};

const NO_BOUNDS: BoundsRange = {
  lowest: [],
  lowestRest: Number.NEGATIVE_INFINITY,
  highest: [],
  highestRest: Number.POSITIVE_INFINITY,
  maxChange: Number.POSITIVE_INFINITY,
  maxStartJump: Number.POSITIVE_INFINITY,
};

/** How many intervals of one kind an interval of another kind can overlap: a month overlaps at most six weeks. */
const TOUCHED: Readonly<Record<AuthorityBudget["interval"], Readonly<Record<AuthorityBudget["interval"], number>>>> = {
  daily: { daily: 1, weekly: 7, monthly: 31, lifetime: Number.POSITIVE_INFINITY },
  weekly: { daily: 1, weekly: 1, monthly: 6, lifetime: Number.POSITIVE_INFINITY },
  monthly: { daily: 1, weekly: 2, monthly: 1, lifetime: Number.POSITIVE_INFINITY },
  lifetime: { daily: 1, weekly: 1, monthly: 1, lifetime: 1 },
};

/** Whether spending within one budget can never exceed another, in any of its intervals. */
export const allowsNoMore = (inner: AuthorityBudget, outer: AuthorityBudget): boolean =>
  inner.limitMicro === 0 || inner.limitMicro * TOUCHED[inner.interval][outer.interval] <= outer.limitMicro;

const budgets: Order<Authority["budget"]> = {
  within: (inner, outer) => outer.every((limit) => inner.some((each) => allowsNoMore(each, limit))),
  meet: (one, other) => [...one, ...other],
};

const rates: Order<RateLimit> = {
  within: (inner, outer) =>
    inner.requests * outer.windowS <= outer.requests * inner.windowS &&
    inner.burst <= outer.burst &&
    inner.concurrency <= outer.concurrency &&
    inner.streams <= outer.streams,
  meet(one, other) {
    const slower = one.requests * other.windowS <= other.requests * one.windowS ? one : other;
    return {
      requests: slower.requests,
      windowS: slower.windowS,
      burst: Math.min(one.burst, other.burst),
      concurrency: Math.min(one.concurrency, other.concurrency),
      streams: Math.min(one.streams, other.streams),
    };
  },
};

/** The order of every dimension; a dimension without one does not compile. */
export const ORDERS: { readonly [D in Dimension]: Order<Authority[D]> } = {
  permissions,
  scopes: words,
  models: globs,
  regions: words,
  zdr: { within: (inner, outer) => inner || !outer, meet: (one, other) => one || other },
  workspaces: words,
  environment: {
    within: (inner, outer) => inner === "simulation" || outer === "hardware",
    meet: (one, other) => (one === "hardware" ? other : one),
  },
  robots: words,
  bounds: range,
  budget: budgets,
  rateLimit: rates,
  trust: { within: (inner, outer) => inner <= outer, meet: narrower },
  requireSigned: { within: (inner, outer) => inner || !outer, meet: (one, other) => one || other },
  expiresAt: least,
};

/** Every dimension. */
export const DIMENSIONS = Object.keys(ORDERS) as readonly Dimension[]; // the keys of the table

const orderOf = <D extends Dimension>(dimension: D): Order<Authority[D]> => ORDERS[dimension];

/** The dimensions in which one authority exceeds another. */
export const exceeding = (inner: Authority, outer: Authority): readonly Dimension[] =>
  DIMENSIONS.filter((dimension) => !isWithin(dimension, inner, outer));

const isWithin = <D extends Dimension>(dimension: D, inner: Authority, outer: Authority): boolean =>
  orderOf(dimension).within(inner[dimension], outer[dimension]);

/** Whether one authority is within the other. */
export const attenuates = (inner: Authority, outer: Authority): boolean => exceeding(inner, outer).length === 0;

/** The authority that both allow. */
export function meet(one: Authority, other: Authority): Authority {
  const met = <D extends Dimension>(dimension: D): [D, Authority[D]] => [
    dimension,
    orderOf(dimension).meet(one[dimension], other[dimension]),
  ];
  return Object.fromEntries(DIMENSIONS.map(met)) as unknown as Authority; // each dimension keeps its type
}

/**
 * The kind of each field of a key record: a dimension of its authority, `name` for labels and placement, or `standing` for whether the key
 * works at all. A new field does not compile until it is listed here.
 */
export const FIELDS = {
  id: "name",
  orgId: "name",
  name: "name",
  prefix: "name",
  createdAt: "name",
  parentId: "name",
  ancestors: "name",
  kind: "name",
  session: "standing",
  disabled: "standing",
  revoked: "standing",
  orgSuspended: "standing",
  userInactive: "standing",
  role: "permissions",
  permissions: "permissions",
  userId: "permissions",
  scopes: "scopes",
  models: "models",
  settings: "regions",
  workspaceId: "workspaces",
  environment: "environment",
  robotId: "robots",
  bounds: "bounds",
  budget: "budget",
  rateLimit: "rateLimit",
  trust: "trust",
  requireSigned: "requireSigned",
  expiresAt: "expiresAt",
} as const satisfies { readonly [F in keyof KeyRecord]-?: Dimension | "name" | "standing" };

/** The fields of a key that determine its authority. */
export type AuthorityGrant = Pick<
  KeyRecord,
  { [F in keyof KeyRecord]-?: (typeof FIELDS)[F] extends Dimension ? F : never }[keyof KeyRecord]
>;

const listed = (list: readonly string[]): AuthorityWords =>
  list.length === 0 || list.includes("*") ? undefined : new Set(list);
const only = (word: string | undefined): AuthorityWords => (word === undefined ? undefined : new Set([word]));

function permissionsOf({ role, permissions, userId }: Pick<AuthorityGrant, "role" | "permissions" | "userId">) {
  const held = new Map<string, string>();
  for (const { id } of PERMISSIONS) {
    if (permissions !== undefined && !permissions.includes(id)) continue;
    const reach = reachOf(role, id);
    // Without a member, a key has no own resources.
    if (reach === "all") held.set(id, "all");
    else if (reach === "own" && userId !== undefined) held.set(id, userId);
  }
  return held;
}

function rangeOf(bounds: Partial<SafetyBounds> | undefined): BoundsRange {
  if (bounds === undefined) return NO_BOUNDS;
  const { lowest = [], highest = [], maxChange, maxStartJump } = bounds;
  // A single number applies to every dimension.
  const rest = (numbers: readonly number[], none: number): number => (numbers.length === 1 ? numbers[0]! : none);
  return {
    lowest,
    lowestRest: rest(lowest, NO_BOUNDS.lowestRest),
    highest,
    highestRest: rest(highest, NO_BOUNDS.highestRest),
    maxChange: maxChange ?? NO_BOUNDS.maxChange,
    maxStartJump: maxStartJump ?? NO_BOUNDS.maxStartJump,
  };
}

/** The authority of a key's own fields, before its ancestors narrow it. */
export function authorityOfGrant(grant: AuthorityGrant): Authority {
  const { scopes, models, settings, workspaceId, environment, robotId, bounds, budget, rateLimit, trust, expiresAt } =
    grant;
  return {
    permissions: permissionsOf(grant),
    scopes: listed(scopes),
    models: listed(models),
    regions: settings.allowedRegions && new Set(settings.allowedRegions),
    zdr: settings.zdr,
    workspaces: only(workspaceId),
    environment,
    robots: only(robotId),
    bounds: rangeOf(bounds as Partial<SafetyBounds> | undefined), // the ProtoJSON of bounds has the message's field names
    budget: budget ? [budget] : [],
    rateLimit,
    trust: reachOfKey(trust, environment),
    requireSigned: grant.requireSigned,
    expiresAt: expiresAt ?? Number.POSITIVE_INFINITY,
  };
}

/** The authority of a key: its own fields, narrowed by every ancestor's. */
export const authorityOf = (key: KeyRecord): Authority =>
  [key, ...key.ancestors].map(authorityOfGrant).reduce((inner, outer) => meet(inner, outer));

/**
 * The authority that a key can grant: its own. If the operator allows it for the organization, a signed-in user with `keys.write` for all
 * keys can also grant keys that drive hardware, although the session itself drives only simulations.
 */
export function givingAuthorityOf(key: KeyRecord): Authority {
  const own = authorityOf(key);
  const isGranted = key.kind === "member" && key.settings.hardwareKeys && own.permissions.get("keys.write") === "all";
  return isGranted ? { ...own, environment: "hardware" } : own;
}

/** The trust levels of supply that may serve a key's calls: the intersection of its ancestors' and its settings'. */
export const reachOfCalls = (key: KeyRecord): Reach =>
  narrower(authorityOf(key).trust, reachOfTier(key.settings.trust));

/** Whether only signed checkpoints may serve a key's calls, by its ancestors or its settings. */
export const requiresSigned = (key: KeyRecord): boolean => authorityOf(key).requireSigned || key.settings.requireSigned;

/** Fills missing fields of a new key from its parent. The budget is not copied: the new key's spending counts against the parent's. */
export function inherited<K extends NewKey>(asked: K, maker: KeyRecord | undefined): K {
  if (!maker) return asked;
  if (maker.ancestors.length >= MOST_ANCESTORS)
    throw refuse(Reason.KEY_LINE_TOO_LONG, `a key can have at most ${MOST_ANCESTORS} ancestors`);
  const own = effective(maker);
  const { id, permissions, scopes, models, workspaceId, robotId, bounds, expiresAt } = own;
  const { environment = own.environment } = asked;
  return {
    ...asked,
    // A key that a user creates in the console outlives the session, and has its own rate limit.
    parentId: maker.kind === "member" ? undefined : id,
    permissions,
    scopes: asked.scopes?.length ? asked.scopes : scopes,
    models: asked.models?.length ? asked.models : models,
    environment,
    rateLimit: asked.rateLimit ?? authorityOf(maker).rateLimit,
    workspaceId: asked.workspaceId ?? workspaceId,
    robotId: asked.robotId ?? robotId,
    bounds: asked.bounds ?? bounds,
    // Stored explicitly: by default, a simulation key would get more supply than its hardware parent. A hardware key gets at most its default.
    trust: asked.trust ?? trustSaid(reachGiven(environment, maker), environment),
    requireSigned: asked.requireSigned ?? authorityOf(maker).requireSigned,
    expiresAt: asked.expiresAt ?? expiresAt,
  };
}

/** The trust levels of a new key that names none: its parent's, and for another environment also within that one's default. */
function reachGiven(environment: KeyRecord["environment"], maker: KeyRecord): Reach {
  const own = authorityOf(maker);
  return environment === own.environment ? own.trust : narrower(own.trust, reachOfKey(undefined, environment));
}

/** The authority of a new key of `maker` under its workspace's settings. Without a budget of its own, its parent's and ancestors' budgets apply. */
export function authorityOfNew(wanted: NewKey, settings: OrgSettings, maker: KeyRecord): Authority {
  const { role = DEFAULT_ROLE, permissions, scopes = [], models = [], environment = "simulation", rateLimit } = wanted;
  const given = authorityOfGrant({
    role,
    permissions: permissions && [...permissions],
    userId: wanted.userId,
    scopes: [...scopes],
    models: [...models],
    settings,
    workspaceId: wanted.workspaceId,
    environment,
    robotId: wanted.robotId,
    bounds: wanted.bounds,
    budget: wanted.budget,
    rateLimit: rateLimitOf(rateLimit),
    trust: wanted.trust,
    requireSigned: wanted.requireSigned ?? false,
    expiresAt: wanted.expiresAt,
  });
  return wanted.budget ? given : { ...given, budget: authorityOf(maker).budget };
}

/** A change as stored: a hardware key that becomes a simulation key does not gain trust levels by it. */
export const unwidened = (before: KeyRecord, changes: KeyChanges): KeyChanges =>
  changes.environment === "simulation" &&
  before.environment === "hardware" &&
  before.trust === undefined &&
  changes.trust === undefined
    ? { ...changes, trust: trustOf(authorityOfGrant(before).trust) }
    : changes;

/** A key's authority after a change: the changed fields as given, before its ancestors narrow them. */
export function changedAuthority(before: Authority, after: KeyRecord, changes: KeyChanges): Authority {
  const said = authorityOfGrant(after);
  // Without a budget of its own, its ancestors' budgets apply.
  const line = after.ancestors.flatMap(({ budget }) => budget ?? []);
  const own = after.budget ? said : { ...said, budget: line };
  const named = Object.entries(changes).filter(([, value]) => value !== undefined);
  const dimensions = new Set<string>(named.map(([field]) => FIELDS[field as keyof KeyChanges])); // the field names of the type
  // The default trust level depends on the environment.
  if (dimensions.has("environment")) dimensions.add("trust");
  const moved = DIMENSIONS.filter((dimension) => dimensions.has(dimension));
  return { ...before, ...Object.fromEntries(moved.map((dimension) => [dimension, own[dimension]])) };
}

/** The authority of a member who signs in and creates keys: a role, in some or all workspaces. */
export interface StandingAuthority {
  readonly role: string;
  /** Empty means all. */
  readonly workspaceIds: readonly string[];
  readonly userId?: string | undefined;
  /** The held permissions within the role; undefined means all of them. */
  readonly permissions?: readonly string[];
  /** Absent means all. */
  readonly scopes?: readonly string[];
}

/**
 * The authority of a member, or of an application that a member may consent to. These are its only dimensions: models, robots, bounds,
 * budgets and expiry are unrestricted. The keys it creates have the default rate limit and drive simulations.
 */
export const authorityOfStanding = (standing: StandingAuthority, settings: OrgSettings): Authority => ({
  ...authorityOfGrant({
    role: standing.role,
    permissions: standing.permissions && [...standing.permissions],
    userId: standing.userId ?? NEW_USER,
    scopes: [...(standing.scopes ?? [])],
    models: [],
    settings,
    workspaceId: undefined,
    environment: "simulation",
    robotId: undefined,
    bounds: undefined,
    budget: undefined,
    rateLimit: DEFAULT_RATE_LIMIT,
    trust: undefined,
    requireSigned: false,
    expiresAt: undefined,
  }),
  workspaces: standing.workspaceIds.length === 0 ? undefined : new Set(standing.workspaceIds),
});

/** Placeholder for a user without a name. */
const NEW_USER = "new";

/** Matches nothing; used in a list to express that nothing is allowed. */
const NOTHING = "-";

const listOf = (set: AuthorityWords): string[] => (set === undefined ? [] : set.size === 0 ? [NOTHING] : [...set]);

/** The key's effective record, with its ancestors' limits. A key whose robots exclude each other is disabled. */
export function effective(key: KeyRecord): KeyRecord {
  if (key.ancestors.length === 0) return key;
  const known = narrowed.get(key);
  if (known) return known;
  const line = [key, ...key.ancestors];
  const { scopes, models, environment, robots, trust, requireSigned, expiresAt } = authorityOf(key);
  const made: KeyRecord = {
    ...key,
    scopes: listOf(scopes),
    models: listOf(models),
    environment,
    robotId: robots && [...robots][0],
    bounds: line.find(({ bounds }) => bounds)?.bounds,
    trust: line.some(({ trust }) => trust) ? trustOf(trust) : undefined,
    requireSigned,
    expiresAt: expiresAt === Number.POSITIVE_INFINITY ? undefined : expiresAt,
    disabled: robots?.size === 0 || line.some(({ disabled }) => disabled),
    revoked: line.some(({ revoked }) => revoked),
    userInactive: line.some(({ userInactive }) => userInactive),
  };
  narrowed.set(key, made);
  return made;
}

/** Cached by record, because keys in memory are checked repeatedly. */
const narrowed = new WeakMap<KeyRecord, KeyRecord>();

/** The public names of dimensions. */
const wordOf = (dimension: Dimension): string => WORDS[dimension] ?? dimension;

const WORDS: Readonly<Partial<Record<Dimension, string>>> = {
  workspaces: "workspace",
  robots: "robot",
  rateLimit: "rate_limit",
  requireSigned: "require_signed",
  expiresAt: "expires_at",
};

/** Refuses what exceeds the giver's authority in any dimension, and names the dimensions. An undefined giver is the operator, without limits. */
export function refuseBeyond(given: Authority, giver: Authority | undefined): void {
  const beyond = giver ? exceeding(given, giver) : [];
  if (beyond.length === 0) return;
  const exceeds = beyond.map(wordOf);
  const reason = beyond.includes("permissions") ? Reason.PERMISSION_DENIED : Reason.SCOPE_DENIED;
  throw refuse(reason, `this key cannot grant more than its own authority: ${exceeds.join(", ")}`, { exceeds });
}
