/** Scenario packs: what is right is run as the built-in scenarios are, what is wrong is refused alone and told as a whole. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { Arena } from "../../../src/scenarios/episode.ts";
import { BUILT_IN, digestOf, loadScenarios } from "../../../src/scenarios/index.ts";
import { faultsOf } from "../../../src/scenarios/pack/schema.ts";
import type { Scenario } from "../../../src/scenarios/scenario.ts";
import { MJCF, PACK, type PackFiles, packFolder } from "../../support/packs.ts";

const GOOD = { "scenario.json": PACK, "hold.xml": MJCF };

async function loaded(files: PackFiles): Promise<Scenario> {
  const { scenarios, refused } = await loadScenarios(packFolder({ "hold-up": files }));
  expect(refused).toEqual([]);
  return scenarios.get("hold-up")!;
}

const digest = async (files: PackFiles): Promise<string> => {
  const scenario = await loaded(files);
  return digestOf(scenario, scenario.variants[0]);
};

describe("a scenario pack", () => {
  it("from the guide is valid", () => {
    const guide = readFileSync(new URL("../../../docs/guides/scenario-packs.md", import.meta.url), "utf8");
    expect(faultsOf(JSON.parse(/```json\n([^`]+)```/.exec(guide)![1]!))).toEqual([]);
  });

  it("runs like the built-in scenarios, with the engine's timestep and a name for every number", async () => {
    const { variants } = await loaded(GOOD);
    expect(variants[0]).toMatchObject({
      dtMs: 50,
      proprioNames: ["qpos.0", "qpos.1", "qvel.0", "qvel.1", "site.tip.0", "site.tip.1", "site.tip.2", "command.0"],
    });
    const arena = await Arena.of(variants[0]);
    try {
      const rules = { mode: "sync", replanSteps: 1 } as const;
      const held = await arena.run(
        0,
        async ({ proprio }) => ({ rows: [[0.4905 - proprio[0]! - proprio[2]!, 0]], latencyMs: 0 }),
        rules,
      );
      const dropped = await arena.run(0, async () => ({ rows: [[0, 0]], latencyMs: 0 }), rules);
      expect([held.termination, held.steps, dropped.termination]).toEqual(["success", 40, "fell"]);
    } finally {
      arena.close();
    }
  });

  it("has a digest of its rules, its model and its files", async () => {
    const asset = "<mujoco/>";
    const rules = (change: object): PackFiles => ({ ...GOOD, "scenario.json": { ...PACK, ...change } });
    const known = await digest(GOOD);
    const others = await Promise.all(
      [
        rules({ fail: { body_below: { body: "weight", z: -0.3 } } }),
        rules({ action: { kind: "control", scale: 21 } }),
        rules({ reset: { qpos_noise: 0.02 } }),
        rules({ command: [[0, 2]] }),
        rules({ obs: [["qpos"], ["qvel"], ["site", "tip"], ["last_action"]] }),
        rules({ success: { site_near: { site: "tip", place: [0, 0, 1], within_m: 0.1 } } }),
        rules({ cameras: [{ name: "front", width: 64, height: 32 }] }),
        rules({ instruction: "Hold it." }),
        { ...GOOD, "hold.xml": MJCF.replace('mass="1"', 'mass="2"') },
        { ...rules({ assets: ["a.xml"] }), "a.xml": asset },
        { ...rules({ assets: ["a.xml"] }), "a.xml": `${asset} ` },
      ].map(digest),
    );
    expect(new Set([known, ...others]).size).toBe(others.length + 1);
    const turned = Object.fromEntries(Object.entries(PACK).toReversed());
    expect(await digest({ ...GOOD, "scenario.json": turned })).toBe(known);
  });
});

const told = async (files: PackFiles): Promise<readonly string[]> => {
  const { scenarios, refused } = await loadScenarios(packFolder({ bad: files, "hold-up": GOOD }));
  expect([...scenarios.keys()]).toEqual([...BUILT_IN.map(({ id }) => id), "hold-up"]);
  expect(refused.map(({ name }) => name)).toEqual(["bad"]);
  return refused[0]!.faults;
};
const without = (field: keyof typeof PACK): object => {
  const { [field]: _, ...rest } = PACK;
  return rest;
};

describe("an invalid scenario pack is refused alone", () => {
  it.each([
    ["an unknown field", { ...PACK, reward: "1" }, /^reward is an unknown field; known fields are id, /],
    ["an unknown nested field", { ...PACK, fail: { body_bellow: {} } }, /^fail\.body_bellow/],
    ["no substeps", without("substeps"), /^substeps is missing; it must be a whole number/],
    ["no observation", without("obs"), /^obs is missing/],
    ["an unknown term", { ...PACK, obs: [["eval", "1"]] }, /^obs\[0\]\[0\] must be one of qpos, .*"eval"/],
    ["a term without its name", { ...PACK, obs: [["site"]] }, /^obs\[0\]\[1\] is missing/],
    ["a term with an extra argument", { ...PACK, obs: [["qpos", 1]] }, /^obs\[0\] has an argument/],
    ["an id that is a path", { ...PACK, id: "../up" }, /^id must be lower-case/],
    ["a built-in's name", { ...PACK, id: "push-t" }, /^id is push-t, which is another scenario's id/],
    ["an unknown kind of action", { ...PACK, action: { kind: "torque", scale: 1 } }, /^action\.kind must be/],
    ["a model in another folder", { ...PACK, mjcf: "../hold.xml" }, /^mjcf must be the plain name/],
    ["a missing file", { ...PACK, assets: ["none.stl"] }, /^none\.stl can't be read: ENOENT/],
    ["reversed bounds", { ...PACK, action: { ...PACK.action, low: 2 } }, /^action\.low must be below/],
    ["more dimensions than actuators", { ...PACK, action_dim: 3 }, /^action_dim must be 2, .*, got 3/],
    ["fewer dimensions than actuators", { ...PACK, action_dim: 1 }, /^action_dim must be 2, .*, got 1/],
    ["names for another number of dimensions", { ...PACK, action_fields: ["up"] }, /^action_fields must have 2 names/],
    ["a site that is not in the model", { ...PACK, obs: [["site", "top"]] }, /^obs\[0\]: .*no site named top/],
    ["a body that is not in the model", { ...PACK, fail: { body_below: { body: "x", z: 0 } } }, /^fail\.body_below: /],
    [
      "a camera that is not in the model",
      { ...PACK, cameras: [{ name: "x", width: 1, height: 1 }] },
      /^cameras\[0\]: /,
    ],
    ["a list where an object belongs", [PACK], /^the file must be an object/],
  ])("for %s", async (_, pack, fault) => {
    const faults = await told({ ...GOOD, "scenario.json": pack });
    expect(faults).toEqual([expect.stringMatching(fault)]);
  });

  it("with every fault at once", async () => {
    const faults = await told({ ...GOOD, "scenario.json": { ...without("obs"), substeps: 0.5, max_steps: "9", x: 1 } });
    expect(faults).toHaveLength(4);
  });

  it.each([
    ["no JSON", { "scenario.json": "{" }, /^scenario\.json can't be read: /],
    ["a missing model file", {}, /^scenario\.json can't be read: ENOENT/],
    ["an unstable world", { ...GOOD, "hold.xml": MJCF.replace("damping", 'stiffness="1e15" damping') }, /unstable/],
    ["a model that does not compile", { ...GOOD, "hold.xml": "<mujoco><nonsense/></mujoco>" }, /'nonsense', line 1$/],
  ])("for %s in its files", async (_, files, fault) => {
    expect(await told(files)).toEqual([expect.stringMatching(fault)]);
  });

  it("if another pack has its id", async () => {
    const { scenarios, refused } = await loadScenarios(packFolder({ one: GOOD, two: GOOD }));
    expect(scenarios.has("hold-up")).toBe(true);
    expect(refused).toEqual([{ name: "two", faults: ["id is hold-up, which is another scenario's id"] }]);
  });
});
