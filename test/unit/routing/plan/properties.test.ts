/** What must hold of every plan over any supply, whatever is asked. The evaluator here shares no code with the router. */
import { protoCamelCase } from "@bufbuild/protobuf/reflect";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Suggestion } from "../../../../gen/limber/v1/plan_pb.ts";
import { DataCollection, type ProviderPreferences } from "../../../../gen/limber/v1/preferences_pb.ts";
import { Embodiment } from "../../../../gen/limber/v1/registry_pb.ts";
import { Contract, type Parameter } from "../../../../src/contracts/contract.ts";
import { Refusal } from "../../../../src/errors.ts";
import { HealthTracker } from "../../../../src/routing/health/health.ts";
import type { Offering } from "../../../../src/routing/offering.ts";
import { explain } from "../../../../src/routing/plan/explain.ts";
import type { PlanArgs } from "../../../../src/routing/plan/intent.ts";
import { type PlanStep, planFor } from "../../../../src/routing/plan/plan.ts";
import { buildSnapshot } from "../../../../src/routing/snapshot/build.ts";
import { runs } from "../../../support/runs.ts";
import { intent, offering, prefer, SCOPE, supplyOf } from "../../../support/supply.ts";

const PROVIDERS = ["alpha", "beta", "gamma", "delta"];
const REGIONS = ["eu", "us", "asia"];
const MODELS = ["acme/arm", "acme/leg", "orbit/base"];
const NOW = 1_000_000;

const anOffering = fc.record({
  model: fc.constantFrom(...MODELS),
  provider: fc.constantFrom(...PROVIDERS),
  region: fc.constantFrom(...REGIONS),
  contracts: fc.constantFrom([Contract.ACT], [Contract.PREDICT], [Contract.ACT, Contract.PREDICT]),
  actionSpaces: fc.constantFrom(["ee_delta_6d_grip"], ["joint_pos_7"], ["joint_pos_7", "ee_delta_6d_grip"], []),
  embodiments: fc.subarray(["arm", "humanoid", "agnostic", "none"]),
  family: fc.constantFrom("vla", "foundation"),
  precision: fc.constantFrom("bf16", "fp32", "int8", "none"),
  simulated: fc.boolean(),
  retainsFrames: fc.boolean(),
  maxHorizon: fc.constantFrom(8, 16, 256),
  chunk: fc.constantFrom(4, 50),
  parameters: fc.subarray(["seed", "temperature"]),
  priceNano: fc.integer({ min: 0, max: 1_000_000 }).map((nano) => ({ [Contract.ACT]: nano })),
  scaledownS: fc.option(fc.constantFrom(0, 60), { nil: undefined }),
  costNanoPerSecond: fc.constantFrom(0, 50_000),
  coldTimeoutMs: fc.constantFrom(60_000, undefined),
  advertised: fc.record({
    p50Ms: fc.option(fc.integer({ min: 1, max: 500 }), { nil: undefined }),
    p95Ms: fc.option(fc.integer({ min: 1, max: 1000 }), { nil: undefined }),
    unitsPerS: fc.option(fc.integer({ min: 1, max: 100 }), { nil: undefined }),
    uptime30d: fc.option(fc.double({ min: 0.5, max: 1, noNaN: true }), { nil: undefined }),
  }),
});

const anAsk = fc.record({
  offerings: fc.array(anOffering, { minLength: 1, maxLength: 24 }),
  rests: fc.array(fc.boolean(), { minLength: 24, maxLength: 24 }),
  idleMs: fc.array(fc.constantFrom(0, 120_000), { minLength: 24, maxLength: 24 }),
  model: fc.constantFrom("service/auto", "service/auto:vla", "service/cheapest", "acme/arm", "acme/arm:turbo"),
  models: fc.constantFrom([], ["acme/leg"], ["service/auto:foundation"]),
  parameters: fc.subarray<Parameter>(["seed", "temperature"]),
  embodiment: fc.constantFrom(undefined, undefined, Embodiment.ARM, Embodiment.HUMANOID, Embodiment.NONE),
  scope: fc.constantFrom<readonly string[]>([], ["acme/*"], ["acme/arm"]),
  hardware: fc.boolean(),
  seed: fc.nat(),
  extent: fc.constantFrom(undefined, "wish", "chunk"),
});
/** As offerings write them. */
const BODIES = { [Embodiment.ARM]: "arm", [Embodiment.HUMANOID]: "humanoid", [Embodiment.NONE]: "none" };
type Asked = typeof anAsk extends fc.Arbitrary<infer T> ? T : never;

/** Each preference that can stand alone, as a value to add to the others. */
const HARD = {
  only: fc.subarray(PROVIDERS, { minLength: 1 }),
  ignore: fc.subarray(PROVIDERS, { minLength: 1 }),
  region: fc.subarray(REGIONS, { minLength: 1 }),
  dataCollection: fc.constant(DataCollection.DENY),
  maxLatencyMs: fc.integer({ min: 1, max: 1000 }),
  minUptime30d: fc.double({ min: 0.5, max: 1, noNaN: true }),
  maxCostUsd: fc.integer({ min: 0, max: 16_000 }).map((micro) => micro / 1e6),
  maxPricePerActionStep: fc.integer({ min: 0, max: 1_000_000 }).map((nano) => nano / 1e9),
  requireParameters: fc.constant(true),
  deadlineMs: fc.integer({ min: 1, max: 500 }),
};
const SOFT = {
  order: fc.shuffledSubarray(PROVIDERS),
  allowFallbacks: fc.boolean(),
  objective: fc.constantFrom<Record<string, number>>(
    {},
    { price: 1 },
    { latency: 2, reliability: 1 },
    { quality: 1, throughput: 3 },
  ),
  allowSimulated: fc.boolean(),
  hedge: fc.constantFrom(undefined, { afterMs: 20 }),
};
type Preferences = Parameters<typeof prefer>[0];
const somePreferences = fc.record({ ...HARD, ...SOFT }, { requiredKeys: [] }) as fc.Arbitrary<NonNullable<Preferences>>;

function argsOf(asked: Asked, preferences: Preferences, pin?: PlanArgs["pin"]): PlanArgs {
  const offerings = asked.offerings.map((facts, i) => offering(`off_${String(i).padStart(2, "0")}`, facts));
  // Every model and provider is known, whether it has offerings or not.
  const known = MODELS.map((model) => offering("", { model }));
  const supply = { ...supplyOf([...offerings, ...known]), offerings, providers: PROVIDERS };
  const snapshot = buildSnapshot(supply);
  const { view } = new HealthTracker(snapshot, () => 0);
  snapshot.offerings.forEach((each, row) => {
    const i = Number(each.id.slice(4));
    if (Number.isNaN(i)) return;
    view.restsUntil[row] = asked.rests[i] ? NOW + 1000 : 0;
    view.usedAt[row] = NOW - asked.idleMs[i]!;
  });
  return {
    intent: intent({
      model: asked.model,
      models: asked.models,
      parameters: asked.parameters,
      embodiment: asked.embodiment,
      extent: asked.extent,
      provider: prefer(preferences ?? {}),
    }),
    snapshot,
    health: view,
    scope: { ...SCOPE, models: asked.scope, environment: asked.hardware ? "hardware" : "simulation" },
    pin,
    seed: asked.seed,
    now: NOW,
    arrivedAt: NOW,
    deadline: undefined,
  };
}

/** The steps of the plan, or none where it is refused. */
function stepsOf(args: PlanArgs): readonly PlanStep[] {
  try {
    return planFor(args).steps;
  } catch (thrown) {
    if (thrown instanceof Refusal) return [];
    throw thrown;
  }
}

/** Every offering that may serve, also past the steps that one request tries. */
function admittedIds(args: PlanArgs): string[] {
  try {
    return explain(args).plan.map((step) => step.offeringId);
  } catch (thrown) {
    if (thrown instanceof Refusal) return [];
    throw thrown;
  }
}

/** What an offering breaks of a request, in the words of the specification. */
function broken(o: Offering, asked: Asked, p: ProviderPreferences): string[] {
  const i = Number(o.id.slice(4));
  const cold = o.scaledownS !== undefined && asked.idleMs[i]! > o.scaledownS * 1000;
  const nano = o.priceNano[Contract.ACT] ?? 0;
  const has = asked.extent === "chunk" ? Math.min(o.maxHorizon, o.chunk ?? 16) : o.maxHorizon;
  const units = asked.extent === undefined ? 16 : Math.min(16, has);
  const cost = (units * nano) / 1000 + (cold ? ((o.coldTimeoutMs ?? 0) / 1000) * (o.costNanoPerSecond / 1000) : 0);
  const owner = o.model.split("/")[0];
  const warmMs = o.advertised.p50Ms ?? o.advertised.p95Ms ?? 0;
  const expected = cold ? (o.coldTimeoutMs ?? warmMs) : warmMs;
  const rules: Record<string, boolean> = {
    contract: o.contracts.includes(Contract.ACT),
    action_space: o.actionSpaces.includes("ee_delta_6d_grip"),
    embodiment:
      asked.embodiment === undefined ||
      o.embodiments.includes(BODIES[asked.embodiment]) ||
      (asked.embodiment !== Embodiment.NONE && o.embodiments.includes("agnostic")),
    simulated: !o.simulated || (p.allowSimulated === true && !asked.hardware),
    key_scope: asked.scope.length === 0 || asked.scope.includes(o.model) || asked.scope.includes(`${owner}/*`),
    only: p.only.length === 0 || p.only.includes(o.provider),
    ignore: !p.ignore.includes(o.provider),
    region: p.region.length === 0 || p.region.includes(o.region),
    data_collection: p.dataCollection !== DataCollection.DENY || !o.retainsFrames,
    horizon: asked.extent !== undefined || o.maxHorizon >= 16,
    max_latency_ms: p.maxLatencyMs === undefined || (o.advertised.p95Ms ?? Number.POSITIVE_INFINITY) <= p.maxLatencyMs,
    min_uptime_30d: p.minUptime30d === undefined || (o.advertised.uptime30d ?? 0) >= p.minUptime30d,
    max_cost_usd: p.maxCostUsd === undefined || Math.round(cost - 1e-9) <= Math.round(p.maxCostUsd * 1e6),
    max_price: p.maxPricePerActionStep === undefined || nano <= Math.round(p.maxPricePerActionStep * 1e9),
    require_parameters: p.requireParameters !== true || asked.parameters.every((name) => o.parameters.includes(name)),
    order: !isStrict(p) || p.order.includes(o.provider),
    circuit: isStrict(p) || !asked.rests[i],
    deadline: p.deadlineMs === undefined || expected <= p.deadlineMs,
  };
  return Object.entries(rules).flatMap(([rule, holds]) => (holds ? [] : [rule]));
}

const isStrict = (p: ProviderPreferences): boolean => p.allowFallbacks === false && p.order.length > 0;

const RUNS = { numRuns: runs(80) };

describe("every plan", () => {
  test("contains no step that violates a constraint of the request or its key", () => {
    fc.assert(
      fc.property(anAsk, somePreferences, (asked, preferences) => {
        const args = argsOf(asked, preferences);
        for (const { offering: served } of stepsOf(args)) {
          if (served.id.startsWith("simulated/")) continue;
          expect([served.id, broken(served, asked, prefer(preferences))]).toEqual([served.id, []]);
        }
      }),
      RUNS,
    );
  });

  test("lists each considered offering once, planned or dropped, and drops none without a violation", () => {
    fc.assert(
      fc.property(anAsk, somePreferences, (asked, preferences) => {
        const args = argsOf(asked, preferences);
        let answer: ReturnType<typeof explain>;
        try {
          answer = explain(args);
        } catch (thrown) {
          if (thrown instanceof Refusal) return;
          throw thrown;
        }
        const dropped = answer.dropped.map((each) => each.offeringId);
        const constrained = answer.dropped.filter(({ stage }) => stage !== "order").map((each) => each.offeringId);
        const all = [...answer.plan.map((each) => each.offeringId), ...dropped];
        expect(new Set(all).size).toBe(answer.considered);
        expect(new Set(all).size).toBe(all.length);
        const byId = new Map(args.snapshot.offerings.map((each) => [each.id, each]));
        for (const id of answer.wouldRefuse ? [] : constrained) {
          if (!id.startsWith("simulated/"))
            expect([id, broken(byId.get(id)!, asked, prefer(preferences))]).not.toEqual([id, []]);
        }
      }),
      RUNS,
    );
  });

  test("with the strong form of order contains only the offerings of its providers, in its order", () => {
    fc.assert(
      fc.property(
        anAsk,
        somePreferences,
        fc.shuffledSubarray(PROVIDERS, { minLength: 1 }),
        (asked, preferences, order) => {
          const args = argsOf(
            asked,
            { ...preferences, order, allowFallbacks: false },
            { model: "acme/arm", provider: "beta" },
          );
          const places = stepsOf(args).map((step) => order.indexOf(step.offering.provider));
          expect(places).not.toContain(-1);
          if (asked.models.length === 0 && !preferences.allowSimulated)
            expect(places).toEqual(places.toSorted((a, b) => a - b));
        },
      ),
      RUNS,
    );
  });

  test("never gains an offering from an additional constraint", () => {
    const added = fc
      .constantFrom(...Object.keys(HARD))
      .chain((field) => HARD[field as keyof typeof HARD].map((value) => ({ [field]: value }))) as fc.Arbitrary<
      NonNullable<Preferences>
    >;
    fc.assert(
      fc.property(anAsk, somePreferences, (asked, preferences) => {
        const before = new Set(admittedIds(argsOf({ ...asked, embodiment: undefined }, preferences)));
        expect(admittedIds(argsOf(asked, preferences)).filter((id) => !before.has(id))).toEqual([]);
      }),
      RUNS,
    );
    fc.assert(
      fc.property(anAsk, somePreferences, added, (asked, preferences, more) => {
        const field = Object.keys(more)[0] as keyof typeof HARD;
        const { [field]: _, ...without } = preferences as Record<string, unknown>;
        const before = new Set(admittedIds(argsOf(asked, without as Preferences)));
        const after = admittedIds(argsOf(asked, { ...without, ...more } as Preferences));
        expect(after.filter((id) => !before.has(id))).toEqual([]);
      }),
      RUNS,
    );
  });

  test("that is refused suggests changes that admit as many offerings as promised", () => {
    let tried = 0;
    const one = fc
      .constantFrom(...Object.keys(HARD))
      .chain((field) => HARD[field as keyof typeof HARD].map((value) => ({ [field]: value })));
    const few = fc.tuple(one, one).map((all) => Object.assign({}, ...all) as NonNullable<Preferences>);
    const refusals = fc.property(anAsk, few, (asked, preferences) => {
      let suggestions: readonly Suggestion[] = [];
      try {
        planFor(argsOf(asked, preferences));
      } catch (thrown) {
        if (!(thrown instanceof Refusal)) throw thrown;
        suggestions = thrown.details.suggestions ?? [];
      }
      for (const { field, value, admits } of suggestions) {
        tried++;
        const [place, name = ""] = field.split(".");
        const args =
          place === "provider"
            ? argsOf(asked, { ...preferences, [protoCamelCase(name)]: value })
            : argsOf({ ...asked, ...(place === "embodiment" && { embodiment: undefined }) }, preferences);
        const { intent } = args;
        const relaxed = place === "horizon" ? { ...args, intent: { ...intent, units: value! } } : args;
        // A longer deadline may let others in too, which are cold: those that the suggestion counts are among them.
        expect([field, admittedIds(relaxed).length >= admits]).toEqual([field, true]);
        expect(planFor(relaxed).steps.length).toBeGreaterThan(0);
      }
    });
    fc.assert(refusals, { numRuns: runs(300) });
    expect(tried).toBeGreaterThan(0);
  });

  test("prefers a pin only among admitted offerings", () => {
    const pins = fc.record({ model: fc.constantFrom(...MODELS), provider: fc.constantFrom(...PROVIDERS) });
    fc.assert(
      fc.property(anAsk, somePreferences, pins, (asked, preferences, pin) => {
        const free = admittedIds(argsOf(asked, preferences));
        const args = argsOf(asked, preferences, pin);
        const pinned = admittedIds(args);
        expect(pinned.toSorted()).toEqual(free.toSorted());
        const isPinned = (id: string): boolean => {
          const { model, provider } = args.snapshot.offerings.find((each) => each.id === id)!;
          return model === pin.model && provider === pin.provider;
        };
        expect(pinned.map(isPinned)).toEqual(pinned.map(isPinned).toSorted((a, b) => Number(b) - Number(a)));
      }),
      RUNS,
    );
  });

  test("is equal for equal arguments, in any order of the supply", () => {
    fc.assert(
      fc.property(anAsk, somePreferences, (asked, preferences) => {
        const ids = (args: PlanArgs) => stepsOf(args).map((step) => [step.offering.id, step.score]);
        const first = ids(argsOf(asked, preferences));
        expect(ids(argsOf(asked, preferences))).toEqual(first);
        const args = argsOf(asked, preferences);
        const turned = buildSnapshot({
          offerings: args.snapshot.offerings.slice(0, args.snapshot.registered).toReversed(),
          catalog: args.snapshot.models.names.flatMap((slug) => args.snapshot.catalogModel(slug) ?? []).toReversed(),
          providers: PROVIDERS.toReversed(),
        });
        const { view } = new HealthTracker(turned, () => 0);
        turned.offerings.forEach((each, row) => {
          const old = args.snapshot.offerings.findIndex((other) => other.id === each.id);
          view.restsUntil[row] = args.health.restsUntil[old]!;
          view.usedAt[row] = args.health.usedAt[old]!;
        });
        expect(ids({ ...args, snapshot: turned, health: view })).toEqual(first);
      }),
      RUNS,
    );
  });

  test("has a cost ceiling that covers every step, and with a hedge stays below max_cost_usd", () => {
    fc.assert(
      fc.property(anAsk, somePreferences, (asked, preferences) => {
        const args = argsOf(asked, preferences);
        if (stepsOf(args).length === 0) return;
        const plan = planFor(args);
        for (const step of plan.steps) expect(step.costMicro).toBeLessThanOrEqual(plan.ceilingMicro);
        if (preferences.maxCostUsd !== undefined)
          expect(plan.ceilingMicro).toBeLessThanOrEqual(preferences.maxCostUsd * 1e6 + 1e-3);
      }),
      RUNS,
    );
  });
});

test("with balanced draws by its weights: inverse to the square of the price", () => {
  const priced = [1, 2, 4].map((times) => offering(`x${times}`, { priceNano: { [Contract.ACT]: times * 1_000_000 } }));
  const snapshot = buildSnapshot(supplyOf(priced));
  const health = new HealthTracker(snapshot, () => 0).view;
  const firsts: Record<string, number> = { x1: 0, x2: 0, x4: 0 };
  for (let seed = 0; seed < 10_000; seed++) {
    const args = {
      snapshot,
      health,
      seed,
      intent: intent(),
      now: NOW,
      arrivedAt: NOW,
      deadline: undefined,
      pin: undefined,
    };
    const first = planFor({ ...args, scope: SCOPE }).steps[0]!.offering.id;
    firsts[first]!++;
  }
  // Weights 16 : 4 : 1.
  expect(firsts.x1! / 10_000).toBeCloseTo(16 / 21, 1);
  expect(firsts.x2! / 10_000).toBeCloseTo(4 / 21, 1);
  expect(firsts.x4! / 10_000).toBeCloseTo(1 / 21, 1);
});
