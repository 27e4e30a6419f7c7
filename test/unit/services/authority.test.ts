/** The order of authorities: what a key can reach by making, changing and taking over keys is never more than it has. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  attenuates,
  authorityOf,
  authorityOfNew,
  changedAuthority,
  DIMENSIONS,
  effective,
  exceeding,
  FIELDS,
  inherited,
  meet,
  ORDERS,
  unwidened,
} from "../../../src/services/authority.ts";
import { ROLE_NAMES } from "../../../src/services/permissions.ts";
import type { BudgetInterval, KeyChanges, KeyRecord, NewKey } from "../../../src/store/account/keys.ts";
import { DEFAULT_RATE_LIMIT, rateLimitOf } from "../../../src/store/account/keys.ts";
import { DEFAULT_SETTINGS } from "../../../src/store/account/settings.ts";
import { seeded } from "../../support/chance.ts";
import { runs } from "../../support/runs.ts";

const INTERVALS: readonly BudgetInterval[] = ["daily", "weekly", "monthly", "lifetime"];
const number = fc.integer({ min: -3, max: 3 });
const bounds = fc.record(
  {
    lowest: fc.array(number, { maxLength: 3 }),
    highest: fc.array(number, { maxLength: 3 }),
    maxChange: fc.nat(3),
    maxStartJump: fc.nat(3),
  },
  { requiredKeys: ["lowest", "highest"] },
);
const budget = fc.record({ limitMicro: fc.nat(40), interval: fc.constantFrom(...INTERVALS) });
const settings = fc.record({
  allowedRegions: fc.option(fc.subarray(["eu", "us", "ap"]), { nil: undefined }),
  zdr: fc.boolean(),
});
const facts = fc.record({
  role: fc.constantFrom(...ROLE_NAMES),
  permissions: fc.option(fc.subarray(["inference.run", "keys.write", "usage.read"]), { nil: undefined }),
  userId: fc.constantFrom(undefined, "usr_a", "usr_b"),
  scopes: fc.subarray(["act", "predict", "ground"]),
  models: fc.subarray(["a/*", "a/b", "a/c", "d/e", "*"]),
  settings: settings.map((some) => ({ ...DEFAULT_SETTINGS, ...some })),
  workspaceId: fc.constantFrom(undefined, "ws_a", "ws_b"),
  environment: fc.constantFrom("simulation" as const, "hardware" as const),
  robotId: fc.constantFrom(undefined, "arm", "leg"),
  bounds: fc.option(bounds, { nil: undefined }),
  budget: fc.option(budget, { nil: undefined }),
  rateLimit: fc.record({
    requests: fc.integer({ min: 1, max: 4 }),
    windowS: fc.integer({ min: 1, max: 4 }),
    burst: fc.integer({ min: 1, max: 4 }),
    concurrency: fc.integer({ min: 1, max: 4 }),
    streams: fc.integer({ min: 1, max: 4 }),
  }),
  trust: fc.constantFrom(undefined, "own" as const, "verified" as const, "named" as const, "community" as const),
  requireSigned: fc.boolean(),
  expiresAt: fc.option(fc.nat(5), { nil: undefined }),
});

const key = (more: Partial<KeyRecord>): KeyRecord => ({
  id: "key_1",
  orgId: "org_1",
  workspaceId: undefined,
  kind: "api",
  name: "",
  prefix: "",
  role: "owner",
  userId: undefined,
  userInactive: false,
  permissions: undefined,
  scopes: [],
  models: [],
  environment: "hardware",
  disabled: false,
  revoked: false,
  orgSuspended: false,
  expiresAt: undefined,
  budget: undefined,
  rateLimit: DEFAULT_RATE_LIMIT,
  robotId: undefined,
  settings: DEFAULT_SETTINGS,
  createdAt: 0,
  bounds: undefined,
  trust: undefined,
  requireSigned: false,
  parentId: undefined,
  ancestors: [],
  ...more,
});
const authority = fc
  .array(facts, { minLength: 1, maxLength: 3 })
  .map(([own, ...above]) => authorityOf(key({ ...own, ancestors: above.map(key) })));

describe("attenuates", () => {
  it("is reflexive", () => {
    fc.assert(
      fc.property(authority, (a) => {
        expect(exceeding(a, a)).toEqual([]);
      }),
    );
  });

  it("is transitive", () => {
    fc.assert(
      fc.property(authority, authority, authority, (a, b, c) => {
        // Met, so that neighbours are within one another often.
        const [second, third] = [meet(a, b), meet(meet(a, b), c)];
        expect(attenuates(third, second) && attenuates(second, a) && attenuates(third, a)).toBe(true);
        for (const dimension of DIMENSIONS) {
          const within = ORDERS[dimension].within as (inner: unknown, outer: unknown) => boolean;
          if (within(a[dimension], b[dimension]) && within(b[dimension], c[dimension]))
            expect(within(a[dimension], c[dimension]), dimension).toBe(true);
        }
      }),
    );
  });

  it("has a meet that is within both authorities, and contains everything within both", () => {
    fc.assert(
      fc.property(authority, authority, authority, (a, b, c) => {
        const met = meet(a, b);
        expect([exceeding(met, a), exceeding(met, b)]).toEqual([[], []]);
        for (const dimension of DIMENSIONS) {
          const within = ORDERS[dimension].within as (inner: unknown, outer: unknown) => boolean;
          if (within(c[dimension], a[dimension]) && within(c[dimension], b[dimension]))
            expect(within(c[dimension], met[dimension]), dimension).toBe(true);
        }
      }),
    );
  });

  it.each([
    ["lowest", [-2]],
    ["lowestRest", -2],
    ["highest", [2]],
    ["highestRest", 2],
    ["maxChange", 2],
    ["maxStartJump", 2],
  ] as const)("rejects bounds that are wider in %s alone", (field, wider) => {
    const outer = { lowest: [-1], lowestRest: -1, highest: [1], highestRest: 1, maxChange: 1, maxStartJump: 1 };
    expect(ORDERS.bounds.within({ ...outer, [field]: wider }, outer)).toBe(false);
    expect(ORDERS.bounds.within(outer, { ...outer, [field]: wider })).toBe(true);
  });

  it("compares budgets by the maximum spending in any interval", () => {
    const within = (inner: [number, BudgetInterval], outer: [number, BudgetInterval]): boolean =>
      ORDERS.budget.within(
        [{ limitMicro: inner[0], interval: inner[1] }],
        [{ limitMicro: outer[0], interval: outer[1] }],
      );
    expect(within([10, "daily"], [70, "weekly"])).toBe(true);
    expect(within([10, "daily"], [69, "weekly"])).toBe(false);
    expect(within([10, "weekly"], [59, "monthly"])).toBe(false);
    expect(within([10, "lifetime"], [10, "daily"])).toBe(true);
    expect(within([1, "daily"], [1_000_000, "lifetime"])).toBe(false);
    expect(within([0, "daily"], [0, "lifetime"])).toBe(true);
  });

  it("treats one number as a bound for every dimension, and no number as no bound", () => {
    const within = (inner: object, outer: object): boolean =>
      attenuates(authorityOf(key({ bounds: inner })), authorityOf(key({ bounds: outer })));
    expect(within({ lowest: [0], highest: [1] }, { lowest: [0, -1], highest: [1, 2] })).toBe(true);
    expect(within({ lowest: [0, -1], highest: [1, 2] }, { lowest: [0], highest: [1] })).toBe(false);
    expect(within({ lowest: [0, 0], highest: [1, 1] }, { lowest: [0], highest: [1] })).toBe(false);
    expect(within({ lowest: [], highest: [] }, { lowest: [0], highest: [] })).toBe(false);
    expect(within({ lowest: [0], highest: [], maxChange: 1 }, { lowest: [0], highest: [] })).toBe(true);
  });

  it("reads every dimension from a key's fields", () => {
    const read = new Set<string>(Object.values(FIELDS));
    expect(DIMENSIONS.filter((dimension) => !read.has(dimension) && dimension !== "zdr")).toEqual([]);
  });
});

describe("a key with ancestors", () => {
  it("has no more authority than its own fields and any of theirs", () => {
    fc.assert(
      fc.property(facts, facts, (own, above) => {
        const child = key({ ...own, ancestors: [key(above)] });
        const acts = authorityOf({ ...effective(child), ancestors: [key(above)] });
        expect(attenuates(acts, authorityOf(key(above)))).toBe(true);
        const { disabled } = effective(child);
        expect(disabled).toBe(
          own.robotId !== undefined && above.robotId !== undefined && own.robotId !== above.robotId,
        );
      }),
    );
  });

  it("is disabled, revoked and expired with any of them", () => {
    const made = (above: Partial<KeyRecord>) => effective(key({ ancestors: [key({}), key(above)] }));
    expect(made({ disabled: true }).disabled).toBe(true);
    expect(made({ revoked: true }).revoked).toBe(true);
    expect(made({ userInactive: true }).userInactive).toBe(true);
    expect(made({ expiresAt: 5 }).expiresAt).toBe(5);
    expect(made({ scopes: ["act"] }).scopes).toEqual(["act"]);
    const left = effective(key({ scopes: ["ground"], ancestors: [key({ scopes: ["act"] })] }));
    expect(left.scopes).toEqual(["-"]);
  });
});

describe("an operation of a narrowed key", () => {
  const ROUNDS = runs(200);

  it("reaches no authority outside that of the key at its start", () => {
    const random = seeded(16);
    const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
    const draws = fc.sample(facts, { numRuns: runs(800), seed: 16 });
    const lines = (keys: Map<string, KeyRecord>, of: KeyRecord): readonly KeyRecord[] =>
      of.parentId === undefined ? [] : [keys.get(of.parentId)!, ...lines(keys, keys.get(of.parentId)!)];
    let [done, given, refused] = [0, 0, 0];
    for (let round = 0; round < ROUNDS; round++) {
      // A world: wider keys of the organisation, and one that an attacker holds.
      const keys = new Map<string, KeyRecord>();
      const looked = (id: string): KeyRecord => ({ ...keys.get(id)!, ancestors: lines(keys, keys.get(id)!) });
      for (let i = 0; i < 4; i++) keys.set(`key_${i}`, key({ ...pick(draws), id: `key_${i}`, orgId: "org_1" }));
      const start = authorityOf(looked("key_0"));
      const held = ["key_0"];
      for (let step = 0; step < 100; step++, done++) {
        const actor = looked(pick(held));
        const giver = authorityOf(actor);
        const draw = pick(draws);
        const operation = pick(["make", "change", "rotate"] as const);
        if (operation === "make") {
          if (actor.ancestors.length >= 8) continue;
          const asked: NewKey = Object.fromEntries(
            Object.entries({ ...draw, orgId: "org_1" }).filter(([field]) => field === "orgId" || random() < 0.3),
          ) as unknown as NewKey; // some of its fields
          const wanted = inherited(asked, actor);
          if (!attenuates(authorityOfNew(wanted, actor.settings, actor), giver)) refused++;
          else {
            const id = `key_${keys.size}`;
            const { rateLimit, permissions, scopes = [], models = [], ...rest } = wanted;
            keys.set(
              id,
              key({
                environment: "simulation",
                role: "developer",
                ...rest,
                name: "",
                id,
                rateLimit: rateLimitOf(rateLimit),
                permissions: permissions && [...permissions],
                scopes: [...scopes],
                models: [...models],
                settings: actor.settings,
              } as Partial<KeyRecord>),
            );
            held.push(id);
            given++;
          }
        } else {
          const target = looked(pick([...keys.keys()]));
          if (actor.ancestors.some(({ id }) => id === target.id) || !attenuates(authorityOf(target), giver)) {
            refused++;
            continue;
          }
          if (operation === "rotate") {
            if (!held.includes(target.id)) held.push(target.id);
            given++;
            continue;
          }
          const { scopes, models, environment, robotId, budget, expiresAt, rateLimit, trust, requireSigned } = draw;
          const all: KeyChanges = {
            scopes,
            models,
            environment,
            rateLimit,
            robotId: robotId ?? null,
            budget: budget ?? null,
            expiresAt: expiresAt ?? null,
            trust: trust ?? null,
            requireSigned,
          };
          const drawn = Object.fromEntries(Object.entries(all).filter(() => random() < 0.3)) as KeyChanges;
          const changes = unwidened(target, drawn);
          const fields = Object.fromEntries(Object.entries(changes).map(([name, value]) => [name, value ?? undefined]));
          const after = { ...target, ...fields } as KeyRecord; // a change names fields of a key
          if (!attenuates(changedAuthority(authorityOf(target), after, changes), giver)) refused++;
          else {
            keys.set(target.id, { ...after, ancestors: [] });
            given++;
          }
        }
        const last = held.at(-1)!;
        if (!attenuates(authorityOf(looked(last)), start))
          expect(exceeding(authorityOf(looked(last)), start)).toEqual([]);
      }
      for (const id of held) expect(exceeding(authorityOf(looked(id)), start)).toEqual([]);
    }
    expect([done, given > done / 10, refused > done / 10]).toEqual([ROUNDS * 100, true, true]);
  });
});
