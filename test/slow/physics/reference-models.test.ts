import { existsSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { CONTROLLERS } from "../../../src/reference/act/plan.ts";
import { REFERENCE_MODELS } from "../../../src/reference/models.ts";

describe("the reference models", () => {
  it("serve every action space of the specification once, continuous_nd with one and with two numbers, and predict and ground", () => {
    const spaces = REFERENCE_MODELS.flatMap(({ actions }) => actions.map(({ space, dim }) => `${space} ${dim}`));
    const common = Object.values(CONTROLLERS).map(({ declaration: { space, dim } }) => `${space} ${dim}`);
    expect([...spaces].sort()).toEqual([...common, "continuous_nd 2"].sort());
    expect(new Set(REFERENCE_MODELS.flatMap(({ contracts }) => contracts))).toEqual(
      new Set(["act", "predict", "ground"]),
    );
    for (const { contracts, actions } of REFERENCE_MODELS) expect(actions.length > 0).toBe(contracts.includes("act"));
  });

  it("have unique names, a summary and stated limits", () => {
    expect(new Set(REFERENCE_MODELS.map(({ slug }) => slug)).size).toBe(REFERENCE_MODELS.length);
    for (const { slug, summary, limits } of REFERENCE_MODELS) {
      expect(slug).toMatch(/^reference\/[a-z-]+$/);
      for (const sentence of [summary, ...limits]) expect(sentence).toMatch(/^[A-Z].*\.$/);
      expect(limits.length).toBeGreaterThan(0);
    }
  });

  it("survive JSON, as the catalog carries them", () => {
    expect(JSON.parse(JSON.stringify(REFERENCE_MODELS))).toEqual(REFERENCE_MODELS);
  });

  const taxonomyFile = new URL("../../../../shared/catalog/taxonomy.json", import.meta.url);

  it("use the taxonomy's terms and its order of each action space's numbers", () => {
    const families = ["manipulation", "navigation", "humanoid-control", "video-generation", "embodied-reasoning"];
    if (!existsSync(taxonomyFile)) {
      for (const { family } of REFERENCE_MODELS) expect(families).toContain(family);
      return;
    }
    type Entry = { id: string; kind?: string; dims?: number | null; fields?: { name: string }[] };
    const taxonomy: Record<"families" | "embodiments" | "action_spaces", Entry[]> = JSON.parse(
      readFileSync(taxonomyFile, "utf8"),
    );
    for (const model of REFERENCE_MODELS) {
      expect(taxonomy.families.find(({ id }) => id === model.family)?.kind).toBe(model.kind);
      for (const embodiment of model.embodiments)
        expect(taxonomy.embodiments.map(({ id }) => id)).toContain(embodiment);
      for (const { space, dim, fields } of model.actions) {
        const known = taxonomy.action_spaces.find(({ id }) => id === space)!;
        if (known.dims === null) continue;
        expect(dim).toBe(known.dims);
        expect(fields).toEqual(known.fields!.map(({ name }) => name));
      }
    }
  });
});
