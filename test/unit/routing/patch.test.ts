/** A snapshot that takes over from another shares what did not change, and says what one says that was built from nothing. */
import fc from "fast-check";
import { expect, test } from "vitest";
import { atOnce } from "../../../src/ambient.ts";
import { Contract } from "../../../src/contracts/contract.ts";
import { ALIASES } from "../../../src/routing/aliases.ts";
import { buildingSnapshot, buildSnapshot } from "../../../src/routing/build.ts";
import { HealthBoard } from "../../../src/routing/health.ts";
import { type Snapshot, type Supply, servesBits } from "../../../src/routing/snapshot.ts";
import { catalogued, offering, supplyOf } from "../../support/supply.ts";

const advertised = { p50Ms: 50, p95Ms: 80, unitsPerS: undefined, uptime30d: 0.99 };
const ghost = { ...catalogued(offering("ghost", { model: "ghost/arm" })), slug: "ghost/arm" };
const next = (supply: Supply, before: Snapshot): Snapshot => atOnce(buildingSnapshot(supply, before));

/** Everything that a snapshot says. */
const told = ({ offerings, columns, registered, models, providers, regions, catalogued, ...rest }: Snapshot) => ({
  ...{ offerings, columns, registered, catalogued },
  names: [models.names, providers.names, regions.names],
  models: models.names.map((slug) => [rest.catalogModel(slug), rest.rowsOfModel(slug)]),
  rows: offerings.map(({ id }) => rest.rowOf(id)),
  aliases: ALIASES.map((alias) => rest.rowsOfAlias(alias)),
  serving: ALIASES.map((alias) => rest.serving(alias, servesBits(Contract.ACT, "joint_pos_7"), true)),
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
];

test("whatever changed, it says what one says that is built from nothing", () => {
  const facts = fc.array(fc.record({ id: fc.integer({ min: 0, max: 9 }), is: fc.constantFrom(...CHANGES) }));
  const more = fc.record({ ghost: fc.boolean(), provider: fc.boolean() });
  const state = fc.record({ facts, more });
  const supplyIn = ({
    facts,
    more,
  }: {
    facts: { id: number; is: object }[];
    more: Record<string, boolean>;
  }): Supply => {
    const all = new Map(facts.map(({ id, is }) => [`off_${id}`, offering(`off_${id}`, is)]));
    const supply = supplyOf([...all.values()]);
    return {
      ...supply,
      catalog: more.ghost ? [...supply.catalog, ghost] : supply.catalog,
      providers: more.provider ? [...supply.providers, "idle"] : supply.providers,
    };
  };
  fc.assert(
    fc.property(fc.array(state, { minLength: 2, maxLength: 4 }), (states) => {
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
    { numRuns: 300 },
  );
});

test("where nothing changed it is the very snapshot, in whatever order supply comes", () => {
  const supply = supplyOf([offering("a"), offering("b"), offering("c", { model: "other/arm" })]);
  const first = buildSnapshot(supply);
  expect(next({ ...supply, offerings: supply.offerings.toReversed() }, first)).toBe(first);
});

test("where a number changed its column alone is another one, and the one before keeps what it said", () => {
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

test("what was measured of an offering stands beside what was changed of it", () => {
  const supply = supplyOf([offering("a", { advertised }), offering("b", { advertised })]);
  const board = new HealthBoard(buildSnapshot(supply), () => 0);
  const report = { outcome: "ok", latencyMs: 500, units: 16, cold: false, at: 1000 } as const;
  for (let i = 0; i < 5; i++) board.report("a", report);
  for (const is of [{ maxHorizon: 3 }, { advertised: { ...advertised, uptime30d: 0.5 } }]) {
    const { snapshot } = board;
    const supplied = supply.offerings.map((each) => ({ ...each, advertised, ...is }));
    const view = board.adopt(next({ ...supply, offerings: supplied }, snapshot), 1000);
    expect(view.snapshot.offerings.map(({ maxHorizon }) => maxHorizon)).toEqual(supplied.map((s) => s.maxHorizon));
    expect([view, board.view]).toEqual([board.view, expect.objectContaining({ snapshot: view.snapshot })]);
    const [a, b] = [view.snapshot.rowOf("a"), view.snapshot.rowOf("b")];
    expect(view.p50Ms[a]).toBeGreaterThan(450);
    expect([view.p50Ms[b], view.uptime[b]]).toEqual([50, supplied[1]!.advertised.uptime30d]);
  }
});
