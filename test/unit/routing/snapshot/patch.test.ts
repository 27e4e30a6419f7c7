/** A snapshot that takes over from another shares what did not change, and says what one says that was built from nothing. */
import { create } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import { ContractSource, InputContractSchema } from "../../../../gen/limber/v1/input_contract_pb.ts";
import { SortAxis } from "../../../../gen/limber/v1/preferences_pb.ts";
import { Contract } from "../../../../src/contracts/contract.ts";
import { declaredInput } from "../../../../src/contracts/inputs.ts";
import type { HealthView } from "../../../../src/routing/health/health.ts";
import { HealthTracker } from "../../../../src/routing/health/health.ts";
import { ALIASES } from "../../../../src/routing/offering.ts";
import { explain } from "../../../../src/routing/plan/explain.ts";
import { buildingSnapshot, buildSnapshot } from "../../../../src/routing/snapshot/build.ts";
import { type RoutingSupply, type Snapshot, servesBits } from "../../../../src/routing/snapshot/snapshot.ts";
import { atOnce } from "../../../../src/slices.ts";
import { runs } from "../../../support/runs.ts";
import { catalogued, intent, offering, prefer, SCOPE, supplyOf } from "../../../support/supply.ts";

const advertised = { p50Ms: 50, p95Ms: 80, unitsPerS: undefined, uptime30d: 0.99 };
const ghost = { ...catalogued(offering("ghost", { model: "ghost/arm" })), slug: "ghost/arm" };
const next = (supply: RoutingSupply, before: Snapshot): Snapshot => atOnce(buildingSnapshot(supply, before));

/** Everything that a snapshot says, whatever rows and codes it says it by. */
const told = ({ offerings, columns, order, place, ...rest }: Snapshot) => {
  const at = <T>(column: ArrayLike<T>): T[] => [...order].map((row) => column[row]!);
  const named = (codes: Uint32Array, { names }: { names: readonly string[] }) => at(codes).map((code) => names[code]);
  const ids = (rows: Iterable<number> = []) => [...rows].map((row) => offerings[row]!.id);
  const { model, provider, region, traits, bodies, declared, kind: _, priceNano, advertised, ...numbers } = columns;
  return {
    offerings: at(offerings),
    places: at(place),
    rows: at(offerings).map(({ id }) => order.indexOf(rest.rowOf(id))),
    names: [named(model, rest.models), named(provider, rest.providers), named(region, rest.regions)],
    columns: [
      at(traits),
      at(bodies),
      at(declared).map((code) => rest.ground.declared[code]?.key),
      priceNano.map(at),
      ...[numbers, advertised].map((all) => Object.values(all).map(at)),
    ],
    counts: [rest.registered, rest.catalogued],
    known: [rest.models.names.toSorted(), rest.providers.names.toSorted()],
    models: rest.models.names.toSorted().map((slug) => [rest.catalogModel(slug), ids(rest.rowsOfModel(slug))]),
    registered: [...order].map(rest.isRegistered),
    aliases: ALIASES.map((alias) => ids(rest.rowsOfAlias(alias))),
    serving: ALIASES.map((alias) => {
      const { rows, kinds, samples } = rest.serving(alias, servesBits(Contract.ACT, "joint_pos_7"), true);
      return [ids(rows), [...kinds], ids(samples)];
    }),
  };
};

const saying = (key: string) =>
  declaredInput({
    key,
    input: create(InputContractSchema),
    inputSource: ContractSource.DECLARED,
    actions: [],
    actionsSource: ContractSource.UNSPECIFIED,
  });

const CHANGES = [
  {},
  { priceNano: { [Contract.ACT]: 5 } },
  { advertised: { ...advertised, p95Ms: 200 } },
  { coldTimeoutMs: 30_000, costNanoPerSecond: 400_000, scaledownS: 60 },
  { maxHorizon: 3, dtMs: 20, timeoutMs: 7 },
  { precision: "int8" },
  { model: "other/arm" },
  { region: "us" },
  { contracts: [Contract.PREDICT] },
  { actionSpaces: ["joint_pos_7"] },
  { parameters: [] },
  { retainsFrames: true },
  { domain: "driving" },
  { family: "another" },
  { embodiments: ["arm"] },
  { embodiments: ["humanoid"] },
  { declared: saying("reads pictures") },
  { declared: saying("reads numbers") },
];

/** Some state of a supply of ten offerings at most, whose names may vanish with them. */
const someState = fc.record({
  facts: fc.array(fc.record({ id: fc.integer({ min: 0, max: 9 }), is: fc.constantFrom(...CHANGES) })),
  more: fc.record({ ghost: fc.boolean(), provider: fc.boolean() }),
});

type State = typeof someState extends fc.Arbitrary<infer S> ? S : never;

function supplyIn({ facts, more }: State): RoutingSupply {
  const all = new Map(facts.map(({ id, is }) => [`off_${id}`, offering(`off_${id}`, is)]));
  const supply = supplyOf([...all.values()]);
  return {
    ...supply,
    catalog: more.ghost ? [...supply.catalog, ghost] : supply.catalog,
    providers: more.provider ? [...supply.providers, "idle"] : supply.providers,
  };
}

/** The same supply as the gateway reads it: what says the same is the same object, and names outlive their offerings. */
function supplyAmong(state: State, before: Snapshot): RoutingSupply {
  const { offerings } = supplyIn(state);
  return {
    offerings: offerings.map((each) => {
      const known = before.offerings[before.rowOf(each.id)];
      return JSON.stringify(known) === JSON.stringify(each) ? known! : each;
    }),
    ...before.source,
  };
}

test("a patched snapshot equals one that is built from scratch, for any change", () => {
  fc.assert(
    fc.property(fc.array(someState, { minLength: 2, maxLength: 4 }), (states) => {
      let snapshot = buildSnapshot(supplyIn(states[0]!));
      for (const state of states.slice(1)) {
        const supply = supplyIn(state);
        const catalog = supply.catalog.map((model) => {
          const before = snapshot.catalogModel(model.slug);
          return JSON.stringify(before) === JSON.stringify(model) ? before! : model;
        });
        snapshot = next({ ...supply, catalog }, snapshot);
        expect(told(snapshot)).toEqual(told(buildSnapshot(supply)));
      }
    }),
    { numRuns: runs(60) },
  );
});

const SLUGS = ["acme/arm", "other/arm", "ghost/arm"];

/** A supply without offerings that knows every name. */
const everyName = {
  offerings: [],
  catalog: SLUGS.map((slug) => ({ ...ghost, slug })),
  providers: Array.from({ length: 10 }, (_, i) => `off_${i}`),
};

test("adding, removing and moving offerings in place equals a rebuild, and earlier snapshots do not change", () => {
  let grounds = 0;
  let patches = 0;
  fc.assert(
    fc.property(fc.array(someState, { minLength: 2, maxLength: 12 }), fc.integer(), (states, seed) => {
      let snapshot = buildSnapshot(everyName);
      const board = new HealthTracker(snapshot, () => 0);
      const before: { snapshot: Snapshot; said: ReturnType<typeof told> }[] = [];
      for (const state of states) {
        for (const act of [servesBits(Contract.ACT, "ee_delta_6d_grip"), servesBits(Contract.ACT, undefined)])
          snapshot.serving(ALIASES[0]!, act, act % 2 === 0);
        before.push({ snapshot, said: told(snapshot) });
        const supply = supplyAmong(state, snapshot);
        const after = next(supply, snapshot);
        const built = buildSnapshot(supply);
        patches++;
        if (after.ground !== snapshot.ground) grounds++;
        expect(told(after)).toEqual(told(built));
        expect(plansOver(after, board.adopt(after, 1000), seed)).toEqual(
          plansOver(built, new HealthTracker(built, () => 0).view, seed),
        );
        snapshot = after;
      }
      for (const { snapshot, said } of before) expect(told(snapshot)).toEqual(said);
    }),
    { numRuns: runs(30) },
  );
  // Only where no row is left to take, or no placeholder is left or was there.
  expect(grounds).toBeLessThan(patches / 2);
});

/** How a balanced request and one by price would be answered: which offerings, in which order, at what score. */
function plansOver(snapshot: Snapshot, health: HealthView, seed: number) {
  return [{}, { allowSimulated: true }, { sort: SortAxis.PRICE }].map((preferences) => {
    const args = {
      intent: intent({ model: "service/auto", provider: prefer(preferences) }),
      snapshot,
      health,
      seed,
      scope: SCOPE,
      pin: undefined,
      now: 1000,
      arrivedAt: 1000,
      deadline: undefined,
    };
    const { plan, dropped } = explain(args);
    return [plan.map(({ offeringId, score }) => [offeringId, score]), dropped];
  });
}

test("an unchanged supply yields the identical snapshot, in any order", () => {
  const supply = supplyOf([offering("a"), offering("b"), offering("c", { model: "other/arm" })]);
  const first = buildSnapshot(supply);
  expect(next({ ...supply, offerings: supply.offerings.toReversed() }, first)).toBe(first);
});

test("a changed number replaces only its column, and the earlier snapshot is unchanged", () => {
  const supply = supplyOf([offering("a", { advertised }), offering("b", { advertised })]);
  const first = buildSnapshot(supply);
  const dearer = { ...supply.offerings[0]!, priceNano: { ...supply.offerings[0]!.priceNano, [Contract.ACT]: 77 } };
  const second = next({ ...supply, offerings: [dearer, supply.offerings[1]!] }, first);
  const changed = Object.values(Contract).indexOf(Contract.ACT);
  for (const [i, column] of second.columns.priceNano.entries()) {
    if (i === changed) expect(column).not.toBe(first.columns.priceNano[i]);
    else expect(column).toBe(first.columns.priceNano[i]);
  }
  expect([second.columns.advertised, second.columns.kind, second.lists]).toEqual([
    first.columns.advertised,
    first.columns.kind,
    first.lists,
  ]);
  expect(first.columns.priceNano[changed]![first.rowOf("a")]).not.toBe(77);
  expect([first.offerings[first.rowOf("a")], second.offerings[second.rowOf("a")]]).toEqual([
    supply.offerings[0],
    dearer,
  ]);
});

test("measurements of an offering are kept beside its changes", () => {
  const supply = supplyOf([offering("a", { advertised }), offering("b", { advertised })]);
  const board = new HealthTracker(buildSnapshot(supply), () => 0);
  const report = { outcome: "ok", latencyMs: 500, units: 16, cold: false, at: 1000 } as const;
  for (let i = 0; i < 5; i++) board.report("a", report);
  for (const is of [{ maxHorizon: 3 }, { advertised: { ...advertised, uptime30d: 0.5 } }, { region: "us" }]) {
    const { snapshot } = board;
    const supplied = supply.offerings.map((each) => ({ ...each, advertised, ...is }));
    const view = board.adopt(next({ ...supply, offerings: supplied }, snapshot), 1000);
    expect([...board.figures(1000)].map((each) => each.offering)).toEqual(supplied);
    expect([view, board.view]).toEqual([board.view, expect.objectContaining({ snapshot: view.snapshot })]);
    const [a, b] = [view.snapshot.rowOf("a"), view.snapshot.rowOf("b")];
    expect(view.p50Ms[a]).toBeGreaterThan(450);
    expect([view.p50Ms[b], view.uptime[b]]).toEqual([50, supplied[1]!.advertised.uptime30d]);
  }
});

test("calls that end while an offering moves count at its new row", () => {
  const supply = supplyOf([offering("a", { advertised }), offering("b", { advertised })]);
  const board = new HealthTracker(buildSnapshot(supply), () => 0);
  const moved = next(
    { ...supply, offerings: [{ ...supply.offerings[0]!, region: "us" }, supply.offerings[1]!] },
    board.snapshot,
  );
  const adopting = board.adopting(moved, 1000);
  const report = { outcome: "ok", latencyMs: 500, units: 16, cold: false, at: 1000 } as const;
  for (let done = false; !done; done = adopting.next().done === true) {
    board.report("a", report);
    expect(board.view.usedAt[board.snapshot.rowOf("a")]).toBe(1000);
  }
  expect(board.snapshot).toBe(moved);
  for (let i = 0; i < 5; i++) board.report("a", report);
  expect(board.view.p50Ms[moved.rowOf("a")]).toBeGreaterThan(450);
  board.adopt(next({ ...supply, offerings: [supply.offerings[1]!] }, moved), 1000);
  board.report("a", report);
  expect([...board.figures(1000)].map((each) => each.offering.id)).toEqual(["b"]);
});
