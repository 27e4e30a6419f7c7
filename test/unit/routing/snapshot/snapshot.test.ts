import { describe, expect, test } from "vitest";
import { Contract } from "../../../../src/contracts/contract.ts";
import { aliasOf } from "../../../../src/routing/offering.ts";
import { contractOf } from "../../../../src/routing/plan/intent.ts";
import { buildingSnapshot, buildSnapshot } from "../../../../src/routing/snapshot/build.ts";
import { inScope, servesBits } from "../../../../src/routing/snapshot/snapshot.ts";
import { atOnce } from "../../../../src/slices.ts";
import { catalogued, offering, supplyOf } from "../../../support/supply.ts";

const ghost = { ...catalogued(offering("ghost", { model: "ghost/arm" })), slug: "ghost/arm" };

describe("buildSnapshot", () => {
  test("builds a snapshot from an empty supply", () => {
    const snapshot = buildSnapshot({ offerings: [], catalog: [], providers: [] });
    expect(snapshot.offerings).toEqual([]);
    expect(snapshot.rowsOfAlias(aliasOf("service/auto")!)).toHaveLength(0);
  });

  test("creates a free placeholder for every model without a live offering, and for no other", () => {
    const live = offering("a");
    const onlySimulated = offering("s", { model: "sim/arm", simulated: true });
    const supply = supplyOf([live, onlySimulated]);
    const snapshot = buildSnapshot({ ...supply, catalog: [...supply.catalog, ghost] });
    const placeholders = snapshot.offerings.slice(snapshot.registered);
    expect(placeholders.map((each) => each.model)).toEqual(["ghost/arm", "sim/arm"]);
    expect(placeholders.every((each) => each.simulated && Object.keys(each.priceNano).length === 0)).toBe(true);
  });

  test("lists for an alias what serves the contract in the action space, without placeholders unless requested", () => {
    const supply = supplyOf([
      offering("a"),
      offering("b", { actionSpaces: ["joint_pos_7"] }),
      offering("c", { contracts: [Contract.PREDICT] }),
    ]);
    const snapshot = buildSnapshot({ ...supply, catalog: [...supply.catalog, ghost] });
    const ids = (bits: number, simulated: boolean) =>
      [...snapshot.serving(aliasOf("service/auto")!, bits, simulated).rows].map((row) => snapshot.offerings[row]!.id);
    expect(ids(servesBits(Contract.ACT, "ee_delta_6d_grip"), false)).toEqual(["a"]);
    expect(ids(servesBits(Contract.ACT, "ee_delta_6d_grip"), true)).toEqual(["a", "simulated/ghost/arm"]);
    expect(ids(servesBits(Contract.ACT, "joint_pos_7"), false)).toEqual(["b"]);
    expect(ids(servesBits(Contract.PREDICT, undefined), false)).toEqual(["c"]);
  });

  test("prepares the lists that plans used in the previous snapshot, and no others", () => {
    const supply = supplyOf([offering("a"), offering("b", { contracts: [Contract.PREDICT] })]);
    const auto = aliasOf("service/auto")!;
    const [act, predict] = [servesBits(Contract.ACT, undefined), servesBits(Contract.PREDICT, undefined)];
    const first = buildSnapshot(supply);
    first.serving(auto, act, false);
    first.serving(auto, predict, true);
    const more = supplyOf([...supply.offerings, offering("c")]);
    const second = atOnce(buildingSnapshot(more, first));
    expect([first.lists.size, second.lists.size]).toEqual([2, 2]);
    const { rows } = second.serving(auto, act, false);
    expect(rows).toEqual(buildSnapshot(more).serving(auto, act, false).rows);
    expect(atOnce(buildingSnapshot(supply, second)).lists.size).toBe(1);
  });
});

test("gives rows one kind exactly if provider, region, bodies and all traits are equal", () => {
  const facts = [
    {},
    { id: "again", model: "acme/other" },
    { provider: "zeta" },
    { region: "us" },
    { retainsFrames: true },
    { parameters: [] },
    { actionSpaces: ["ee_delta_6d_grip", "joint_pos_7"] },
    { embodiments: ["arm"] },
  ];
  const all = facts.map((each, i) => offering(`off_${i}`, { provider: "acme", ...each }));
  const { columns, serving, offerings } = buildSnapshot(supplyOf(all));
  const { rows, kinds, samples } = serving(aliasOf("service/auto")!, servesBits(Contract.ACT, undefined), false);
  const { provider, region, traits, bodies } = columns;
  const factsOf = (row: number) => [provider, region, traits, bodies].map((column) => column[row]);
  for (const [place, row] of rows.entries()) expect(factsOf(samples[kinds[place]!]!)).toEqual(factsOf(row));
  expect([rows.length, samples.length, new Set(samples).size]).toEqual([offerings.length, 7, 7]);
});

test.each([
  [[], "acme/arm", true],
  [["acme/arm"], "acme/arm", true],
  [["acme/arm"], "acme/arm-two", false],
  [["acme/*"], "acme/arm", true],
  [["acme/*"], "acme-labs/arm", false],
  [["*"], "acme/arm", true],
])("has a key for %j and %s: %s", (globs, slug, allowed) => {
  expect(inScope(globs, slug)).toBe(allowed);
});

test.each([
  ["acme/arm", Contract.ACT],
  ["acme/dream", Contract.PREDICT],
  ["acme/dream:turbo", Contract.PREDICT],
  ["service/auto", Contract.ACT],
  ["acme/judge", Contract.EVALUATE],
  ["nobody/knows", Contract.ACT],
])("has a preview of %s without a contract for %i", (model, contract) => {
  const snapshot = buildSnapshot(
    supplyOf([
      offering("a", { contracts: [Contract.PREDICT, Contract.ACT] }),
      offering("b", { model: "acme/dream", contracts: [Contract.PREDICT] }),
      offering("c", { model: "acme/judge", contracts: [Contract.EVALUATE] }),
    ]),
  );
  expect(contractOf(model, snapshot)).toBe(contract);
});
