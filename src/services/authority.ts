/**
 * Authority: all that a key may do, in every dimension, and the one order by which authorities are compared. Nothing here reads a clock or
 * a database. A key gives away, changes or takes over only what is within its own authority; `refuseBeyond` is the only place that says so.
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

/** A set of words; undefined stands for all words, an empty set for none. */
type AuthorityWords = ReadonlySet<string> | undefined;

/** Safety bounds in one form: the numbers of the first dimensions of an action, and what holds for every dimension after them. */
interface BoundsRange {
  readonly lowest: readonly number[];
  readonly lowestRest: number;
  readonly highest: readonly number[];
  readonly highestRest: number;
  readonly maxChange: number;
  readonly maxStartJump: number;
}

type AuthorityBudget = NonNullable<KeyRecord["budget"]>;

/** The whole authority of a key or a member. */
export interface Authority {
  /** How far each permission reaches: `all`, or the user whose own things alone it reaches. A permission that is not held is not there. */
  readonly permissions: ReadonlyMap<string, string>;
  /** Contracts that may be called. */
  readonly scopes: AuthorityWords;
  /** Models that may be used: `owner/name`, or `owner/*` for all of an owner. */
  readonly models: AuthorityWords;
  /** Regions that may serve. */
  readonly regions: AuthorityWords;
  /** Providers that retain frames may not serve. */
  readonly zdr: boolean;
  readonly workspaces: AuthorityWords;
  readonly environment: KeyRecord["environment"];
  /** Robots that it is for. */
  readonly robots: AuthorityWords;
  readonly bounds: BoundsRange;
  /** Every budget that limits it; it spends no more than any of them allows. */
  readonly budget: readonly AuthorityBudget[];
  readonly rateLimit: RateLimit;
  /** Whose supply may serve, by the keys alone: the settings narrow it for all keys alike. */
  readonly trust: Reach;
  /** Only signed checkpoints may serve, by the keys alone. */
  readonly requireSigned: boolean;
  /** In unix seconds; Infinity for no end. */
  readonly expiresAt: number;
}

/** A dimension of authority. */
export type Dimension = keyof Authority;

/** How values of one dimension compare. `meet` is what both allow: the largest value that is within either. */
interface Order<T> {
  within(inner: T, outer: T): boolean;
  meet(one: T, other: T): T;
}

const words: Order<AuthorityWords> = {
  within: (inner, outer) => outer === undefined || inner?.isSubsetOf(outer) === true,
  meet: (one, other) => (one && other ? one.intersection(other) : (one ?? other)),
};

/** Whether every model that `inner` names is one that `outer` names. */
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
    // One more than the longest, for what holds after it.
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

/** How many intervals of one kind a single interval of another kind may touch: a month touches six weeks at most. */
const TOUCHED: Readonly<Record<AuthorityBudget["interval"], Readonly<Record<AuthorityBudget["interval"], number>>>> = {
  daily: { daily: 1, weekly: 7, monthly: 31, lifetime: Number.POSITIVE_INFINITY },
  weekly: { daily: 1, weekly: 1, monthly: 6, lifetime: Number.POSITIVE_INFINITY },
  monthly: { daily: 1, weekly: 2, monthly: 1, lifetime: Number.POSITIVE_INFINITY },
  lifetime: { daily: 1, weekly: 1, monthly: 1, lifetime: 1 },
};

/** Whether spending up to one budget can never exceed another, in any interval of that one. */
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

/** The order of every dimension: one that has none does not compile. */
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
export const DIMENSIONS = Object.keys(ORDERS) as readonly Dimension[]; // the table's own keys

const orderOf = <D extends Dimension>(dimension: D): Order<Authority[D]> => ORDERS[dimension];

/** The dimensions in which one authority exceeds another. */
export const exceeding = (inner: Authority, outer: Authority): readonly Dimension[] =>
  DIMENSIONS.filter((dimension) => !isWithin(dimension, inner, outer));

const isWithin = <D extends Dimension>(dimension: D, inner: Authority, outer: Authority): boolean =>
  orderOf(dimension).within(inner[dimension], outer[dimension]);

/** Whether one authority allows nothing that the other does not. */
export const attenuates = (inner: Authority, outer: Authority): boolean => exceeding(inner, outer).length === 0;

/** What two authorities both allow. */
export function meet(one: Authority, other: Authority): Authority {
  const met = <D extends Dimension>(dimension: D): [D, Authority[D]] => [
    dimension,
    orderOf(dimension).meet(one[dimension], other[dimension]),
  ];
  return Object.fromEntries(DIMENSIONS.map(met)) as unknown as Authority; // every dimension has its own order
}

/**
 * What each field of a key's record is: a dimension of its authority, `name` for what only names the key and its place, `standing` for
 * whether it works at all. A new field does not compile until it has its place here.
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

/** The fields of a key that say what it may do. */
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
    // Who is no member has nothing of its own.
    if (reach === "all") held.set(id, "all");
    else if (reach === "own" && userId !== undefined) held.set(id, userId);
  }
  return held;
}

function rangeOf(bounds: Partial<SafetyBounds> | undefined): BoundsRange {
  if (bounds === undefined) return NO_BOUNDS;
  const { lowest = [], highest = [], maxChange, maxStartJump } = bounds;
  // One number stands for every dimension.
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

/** What these fields of a key allow by themselves, whatever its ancestors do. */
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
    bounds: rangeOf(bounds as Partial<SafetyBounds> | undefined), // ProtoJSON of bounds has the names of the message
    budget: budget ? [budget] : [],
    rateLimit,
    trust: reachOfKey(trust, environment),
    requireSigned: grant.requireSigned,
    expiresAt: expiresAt ?? Number.POSITIVE_INFINITY,
  };
}

/** What a key may do: its own fields, narrowed by every ancestor's. */
export const authorityOf = (key: KeyRecord): Authority =>
  [key, ...key.ancestors].map(authorityOfGrant).reduce((inner, outer) => meet(inner, outer));

/**
 * What a key may give away: what it may do. A person who is signed in and holds `keys.write` over all keys gives keys that drive hardware
 * too, where the operator lets people of the organization make these; the session itself drives simulations.
 */
export function givingAuthorityOf(key: KeyRecord): Authority {
  const own = authorityOf(key);
  const isGranted = key.kind === "member" && key.settings.hardwareKeys && own.permissions.get("keys.write") === "all";
  return isGranted ? { ...own, environment: "hardware" } : own;
}

/** Whose supply may serve the calls of a key: what its line and its settings both leave open. */
export const reachOfCalls = (key: KeyRecord): Reach =>
  narrower(authorityOf(key).trust, reachOfTier(key.settings.trust));

/** Whether only signed checkpoints may serve the calls of a key: by its line, or by its settings. */
export const requiresSigned = (key: KeyRecord): boolean => authorityOf(key).requireSigned || key.settings.requireSigned;

/** What a new key leaves out it has of its maker. Its maker's budget is not copied: what it spends counts in that one. */
export function inherited<K extends NewKey>(asked: K, maker: KeyRecord | undefined): K {
  if (!maker) return asked;
  if (maker.ancestors.length >= MOST_ANCESTORS)
    throw refuse(Reason.KEY_LINE_TOO_LONG, `a key descends from ${MOST_ANCESTORS} keys at most`);
  const own = effective(maker);
  const { id, permissions, scopes, models, workspaceId, robotId, bounds, expiresAt } = own;
  const { environment = own.environment } = asked;
  return {
    ...asked,
    // What a person makes at the console outlives the sign-in, and shares no rate limit with it.
    parentId: maker.kind === "member" ? undefined : id,
    permissions,
    scopes: asked.scopes?.length ? asked.scopes : scopes,
    models: asked.models?.length ? asked.models : models,
    environment,
    rateLimit: asked.rateLimit ?? authorityOf(maker).rateLimit,
    workspaceId: asked.workspaceId ?? workspaceId,
    robotId: asked.robotId ?? robotId,
    bounds: asked.bounds ?? bounds,
    // A key for simulations reaches further than its maker for hardware unless it says how far; one for hardware no further than others of its kind.
    trust: asked.trust ?? trustSaid(reachGiven(environment, maker), environment),
    requireSigned: asked.requireSigned ?? authorityOf(maker).requireSigned,
    expiresAt: asked.expiresAt ?? expiresAt,
  };
}

/** How far a new key reaches that does not say so. */
function reachGiven(environment: KeyRecord["environment"], maker: KeyRecord): Reach {
  const own = authorityOf(maker);
  return environment === own.environment ? own.trust : narrower(own.trust, reachOfKey(undefined, environment));
}

/** What a new key of `maker` may do, under the settings of its workspace. Without a budget of its own it has those of its maker's line. */
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

/** A change as it is kept: a key for hardware that becomes one for simulations reaches no further by that. */
export const unwidened = (before: KeyRecord, changes: KeyChanges): KeyChanges =>
  changes.environment === "simulation" &&
  before.environment === "hardware" &&
  before.trust === undefined &&
  changes.trust === undefined
    ? { ...changes, trust: trustOf(authorityOfGrant(before).trust) }
    : changes;

/** A key's authority as a change makes it: what is changed as it is said, whatever the keys that it descends from leave of it. */
export function changedAuthority(before: Authority, after: KeyRecord, changes: KeyChanges): Authority {
  const said = authorityOfGrant(after);
  // Without a budget of its own it spends from those of its line.
  const line = after.ancestors.flatMap(({ budget }) => budget ?? []);
  const own = after.budget ? said : { ...said, budget: line };
  const named = Object.entries(changes).filter(([, value]) => value !== undefined);
  const dimensions = new Set<string>(named.map(([field]) => FIELDS[field as keyof KeyChanges])); // the fields of its type
  // How far a key reaches that names no tier depends on what it drives.
  if (dimensions.has("environment")) dimensions.add("trust");
  const moved = DIMENSIONS.filter((dimension) => dimensions.has(dimension));
  return { ...before, ...Object.fromEntries(moved.map((dimension) => [dimension, own[dimension]])) };
}

/** The authority of a member that signs in and makes keys: a role, in some workspaces or in all. */
export interface StandingAuthority {
  readonly role: string;
  /** All when empty. */
  readonly workspaceIds: readonly string[];
  readonly userId?: string | undefined;
  /** All that is held within the role; undefined: all of it. */
  readonly permissions?: readonly string[];
  /** All when absent. */
  readonly scopes?: readonly string[];
}

/**
 * The authority of a member, or of an application that a member may consent to. It has no more dimensions than these: nothing narrows its
 * models, robot, bounds, budget or end. What it makes has the usual rate limit and drives simulations.
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

/** Stands for a user without a name. */
const NEW_USER = "new";

/** What nothing matches, where a list has to say that nothing is left. */
const NOTHING = "-";

const listOf = (set: AuthorityWords): string[] => (set === undefined ? [] : set.size === 0 ? [NOTHING] : [...set]);

/** The key as it acts, with its ancestors' limits. One that is left without a robot to be for is disabled. */
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

/** By the record as it was read: keys in memory are asked about again and again. */
const narrowed = new WeakMap<KeyRecord, KeyRecord>();

/** The words of dimensions, as callers know them. */
const wordOf = (dimension: Dimension): string => WORDS[dimension] ?? dimension;

const WORDS: Readonly<Partial<Record<Dimension, string>>> = {
  workspaces: "workspace",
  robots: "robot",
  rateLimit: "rate_limit",
  requireSigned: "require_signed",
  expiresAt: "expires_at",
};

/** Refuses what exceeds the giver's authority in any dimension, and names the dimensions. Nothing exceeds the operator's, which is undefined. */
export function refuseBeyond(given: Authority, giver: Authority | undefined): void {
  const beyond = giver ? exceeding(given, giver) : [];
  if (beyond.length === 0) return;
  const exceeds = beyond.map(wordOf);
  const reason = beyond.includes("permissions") ? Reason.PERMISSION_DENIED : Reason.SCOPE_DENIED;
  throw refuse(reason, `this key may not give away more than it has: ${exceeds.join(", ")}`, { exceeds });
}
