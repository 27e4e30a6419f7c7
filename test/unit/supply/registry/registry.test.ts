/** What the registry's listings are made from decides whether they are made again. */
import { expect, test } from "vitest";
import { atOnce } from "../../../../src/slices.ts";
import { NO_CATALOG } from "../../../../src/store/supply/catalog.ts";
import type { ModelRecord, ProviderRecord } from "../../../../src/store/supply/supply.ts";
import { LiveSupply } from "../../../../src/supply/live-supply.ts";
import { Registry } from "../../../../src/supply/registry/registry.ts";
import { createUpstream } from "../../../../src/upstream/index.ts";

const model = (slug: string): ModelRecord => ({
  slug,
  name: slug,
  summary: "",
  limits: "",
  kind: "policy",
  domain: "embodied",
  family: "vla",
  tier: "catalog",
  era: "current",
  contracts: ["act"],
  actionSpaces: ["joint_pos_7"],
  embodiments: [],
  featured: false,
});
const provider: ProviderRecord = {
  id: "prov_1",
  orgId: "org_1",
  name: "acme",
  displayName: "Acme",
  contactEmail: null,
  homepage: null,
  regions: ["eu"],
  retainsFrames: false,
  standing: "community",
  standingNote: "",
  reviewedAt: null,
  created: 1,
};
const scenario = {
  slug: "lift",
  name: "Lift",
  owner: "acme",
  year: 2025,
  target: "arm",
  topic: "manipulation",
  runnable: false,
  license: null,
  arxiv: null,
  repo: null,
  sources: [],
};

test("listings are rebuilt only if their inputs changed", async () => {
  const registry = new Registry(new LiveSupply(createUpstream({ allowPrivate: false })));
  const models = [model("acme/arm"), model("acme/leg")];
  const catalog = { ...NO_CATALOG, version: "1", scenarios: [scenario] };
  const listings = async (known: { models: ModelRecord[]; providers: ProviderRecord[] }, from = catalog) => {
    atOnce(registry.adopting({ ...known, offerings: [] }, from));
    const { routes, facets, providers, scenarios, literature } = registry.view;
    const made = [await routes(undefined), await facets(), await providers(), await scenarios(), await literature()];
    return [...made, await routes(undefined)];
  };
  const first = await listings({ models, providers: [provider] });
  expect(first[0]).toBe(first[5]);
  const changedSince = (now: readonly unknown[]) => now.slice(0, 5).map((list, i) => list !== first[i]);
  const again = { models: models.toReversed(), providers: [provider] };
  expect(changedSince(await listings(again, { ...catalog, version: "2", scenarios: [scenario] }))).toEqual([
    ...[false, false, false, false, false],
  ]);
  expect(changedSince(await listings({ models: [models[0]!, model("acme/leg")], providers: [provider] }))).toEqual([
    ...[true, true, false, false, false],
  ]);
  expect(changedSince(await listings({ models, providers: [{ ...provider, regions: [] }] }))[2]).toBe(true);
  expect(changedSince(await listings(again, { ...catalog, scenarios: [] }))[3]).toBe(true);
});
