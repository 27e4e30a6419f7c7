/** Scenario packs: what is right is run as the built-in scenarios are, what is wrong is refused alone and told as a whole. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import sharp from "sharp";
import { describe, expect, it, vi } from "vitest";
import { Arena } from "../../../src/scenarios/episode.ts";
import { PolicyFailure } from "../../../src/scenarios/failure.ts";
import { BUILT_IN, digestOf, loadScenarios } from "../../../src/scenarios/index.ts";
import { faultsOf } from "../../../src/scenarios/pack/schema.ts";
import { loadPack } from "../../../src/scenarios/pack.ts";
import type { Scenario } from "../../../src/scenarios/scenario.ts";
import { scenarioCommand } from "../../../tools/scenario.ts";
import {
  CRAWL_PACK,
  CRAWLER_MJCF,
  HAND_MJCF,
  MJCF,
  PACK,
  type PackFiles,
  packFolder,
  REACH_PACK,
} from "../../support/packs.ts";

const GOOD = { "scenario.json": PACK, "hold.xml": MJCF };
const REACH = { "scenario.json": REACH_PACK, "hand.xml": HAND_MJCF };
const CRAWL = { "scenario.json": CRAWL_PACK, "crawler.xml": CRAWLER_MJCF };
const EVERY_STEP = { mode: "sync", replanSteps: 1 } as const;

async function loaded(files: PackFiles): Promise<Scenario> {
  const { scenarios, refused } = await loadScenarios(packFolder({ pack: files }));
  expect(refused).toEqual([]);
  return scenarios.get((files["scenario.json"] as typeof PACK).id)!;
}

/** Runs `play` with the pack's arena. */
async function inArena<T>(files: PackFiles, play: (arena: Arena) => Promise<T>): Promise<T> {
  const arena = await Arena.of((await loaded(files)).variants[0]);
  try {
    return await play(arena);
  } finally {
    arena.close();
  }
}

const digest = async (files: PackFiles): Promise<string> => {
  const scenario = await loaded(files);
  return digestOf(scenario, scenario.variants[0]);
};

describe("a scenario pack", () => {
  it("from the guide is valid", () => {
    const guide = readFileSync(new URL("../../../docs/guides/scenario-packs.md", import.meta.url), "utf8");
    const packs = [...guide.matchAll(/```json\n([^`]+)```/g)].map(([, text]) => JSON.parse(text!) as unknown);
    expect(packs.map(faultsOf)).toEqual(packs.map(() => []));
    expect(packs).toHaveLength(5);
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

  it("is rewarded by its terms, and fails outside the range of a joint", async () => {
    const { variants } = await loaded({
      ...GOOD,
      "scenario.json": {
        ...PACK,
        obs: [
          ["qpos_from", 1],
          ["qvel_clipped", 0.5],
          ["site", "tip"],
        ],
        reset: {},
        reward: {
          alive: 1,
          speed: { joint: "lift", weight: 2 },
          distance: { site: "tip", place: [0, 0, 1], weight: -3 },
          action: -0.5,
        },
        fail: { joint_outside: [{ joint: "lift", low: -0.1, high: 1 }] },
      },
    });
    const [variant] = variants;
    expect(variant.proprioNames.slice(0, 3)).toEqual(["qpos.1", "qvel.0", "qvel.1"]);
    const arena = await Arena.of(variant);
    const speeds: number[] = [];
    const heights = [0];
    try {
      const record = await arena.run(
        0,
        async ({ proprio }) => {
          speeds.push(proprio[1]!);
          if (speeds.length > 1) heights.push(proprio[5]!);
          return { rows: [[0, 0.25]], latencyMs: 0 };
        },
        { mode: "sync", replanSteps: 1 },
      );
      heights.push(arena.world.site("tip")[2]);
      const rewards = heights.slice(1).map((z, i) => (2 * (z - heights[i]!)) / 0.05 - 3 * (1 - z) - 0.5 * 0.25 ** 2);
      const alive = record.steps - 1; // not in the step that fails
      expect(record).toMatchObject({ termination: "fell", success: false });
      expect(record.return).toBeCloseTo(
        rewards.reduce((sum, each) => sum + each, alive),
        9,
      );
      expect(Math.min(...speeds)).toBe(-0.5);
    } finally {
      arena.close();
    }
  });

  it.each([
    [30, "success"],
    [50, "max_steps"],
  ])("that wants a return of %d ends with %s after 40 steps of reward 1", async (least, ending) => {
    const rules = { ...PACK, fail: {}, success: { return_at_least: least } };
    const [variant] = (await loaded({ ...GOOD, "scenario.json": rules })).variants;
    const arena = await Arena.of(variant);
    const still = async () => ({ rows: [[0, 0]], latencyMs: 0 });
    const record = await arena.run(0, still, { mode: "sync", replanSteps: 1 });
    arena.close();
    expect(record).toMatchObject({ termination: ending, steps: 40, return: 40, progress: Math.min(1, 40 / least) });
  });

  it("draws a target that the policy sees, and succeeds when its site is near", async () => {
    await inArena(REACH, async (arena) => {
      const targets = new Set<string>();
      for (const seed of [1, 2, 3]) {
        const starts: (readonly number[])[] = [];
        const record = await arena.run(
          seed,
          async ({ proprio, first }) => {
            if (first) starts.push(proprio);
            const row = [0, 1, 2].map((axis) => 20 * (proprio[3 + axis]! - proprio[axis]!));
            return { rows: [[...row, 1]], latencyMs: 0 };
          },
          EVERY_STEP,
        );
        const [[x, y, z, ...others] = []] = starts;
        const [target, velocity] = [others.slice(0, 3), others.slice(3)];
        expect([x, y, z, velocity]).toEqual([0.35, 0, 0.5, [0, 0, 0]]);
        for (const [axis, [low, high]] of [
          [-0.1, 0.1],
          [-0.1, 0.1],
          [0, 0.1],
        ].entries()) {
          expect(target[axis]! - [0.35, 0, 0.5][axis]!).toBeGreaterThanOrEqual(low!);
          expect(target[axis]! - [0.35, 0, 0.5][axis]!).toBeLessThanOrEqual(high!);
        }
        expect(arena.world.body("goal")).toEqual(target);
        expect(record).toMatchObject({ termination: "success", progress: 1, return: 1 - record.steps });
        expect(record.metrics.target_distance_m).toBeLessThan(0.02);
        expect(arena.replay(seed, record.actions).trajectorySha256).toBe(record.trajectorySha256);
        targets.add(target.join(" "));
      }
      expect(targets.size).toBe(3);
    });
  });

  it("moves a mocap body from the body that follows it, by at most the scale, and drives its gripper", async () => {
    await inArena(REACH, async (arena) => {
      const before: number[][] = [];
      const record = await arena.run(
        1,
        async () => {
          before.push(arena.world.body("hand"));
          return { rows: [[0.5, 0, -9, 1]], latencyMs: 0 };
        },
        { ...EVERY_STEP },
      );
      const [x, y, z] = before.at(-1)!;
      expect(arena.world.body("lead")).toEqual([x! + 0.02 * 0.5, y, z! - 0.02]);
      expect([...arena.world.ctrl]).toEqual([0.5, 0.5]);
      expect(record.clippedSteps).toBe(record.steps);
    });
  });

  it("draws the target again if the start already succeeds", async () => {
    const near = {
      ...REACH_PACK,
      target: {
        around: "tip",
        box: [
          [-0.02, 0.02],
          [-0.02, 0.02],
          [0, 0.021],
        ],
      },
    };
    await inArena({ ...REACH, "scenario.json": near }, async (arena) => {
      const gaps: number[] = [];
      for (let seed = 0; seed < 20; seed++) {
        const look = async ({ proprio }: { proprio: readonly number[] }) => {
          gaps.push(Math.hypot(...[0, 1, 2].map((axis) => proprio[3 + axis]! - proprio[axis]!)));
          throw new PolicyFailure("policy_error", "enough");
        };
        await arena.run(seed, look, EVERY_STEP);
      }
      expect(Math.min(...gaps)).toBeGreaterThanOrEqual(0.02);
    });
  });

  it("rewards how closely a body follows a command in its own frame, and draws the command again", async () => {
    await inArena(CRAWL, async (arena) => {
      const commands: (readonly number[])[] = [];
      const record = await arena.run(
        4,
        async ({ proprio }) => {
          commands.push(proprio.slice(-3));
          expect(proprio.slice(0, 3).map((speed) => Math.round(1e6 * speed) / 1e6 + 0)).toEqual([0.4, 0, 0]);
          return { rows: [[0, 0, 0, 0]], latencyMs: 0 };
        },
        EVERY_STEP,
      );
      expect(record.steps).toBe(40);
      expect(new Set(commands.map(String)).size).toBe(8);
      expect(commands[4]).toEqual(commands[0]);
      expect(commands[5]).not.toEqual(commands[0]);
      const errors = commands.map(([x, y, turn]) => [Math.hypot(x! - 0.4, y!), Math.abs(turn!)] as const);
      const kernel = (error: number): number => Math.exp((-error * error) / 0.25);
      const sum = (numbers: readonly number[]): number => numbers.reduce((total, each) => total + each, 0);
      expect(record.return).toBeCloseTo(sum(errors.map(([speed, turn]) => kernel(speed) + 0.5 * kernel(turn))), 5);
      expect(record.metrics.velocity_error).toBeCloseTo(sum(errors.map(([speed]) => speed)) / 40, 5);
      expect(record.metrics.turn_error).toBeCloseTo(sum(errors.map(([, turn]) => turn)) / 40, 5);
      expect(arena.replay(4, record.actions)).toMatchObject({ return: record.return, metrics: record.metrics });
    });
  });

  it("begins at a keyframe, and aims its joints around that pose", async () => {
    await inArena(CRAWL, async (arena) => {
      const looks: (readonly number[])[] = [];
      const record = await arena.run(
        0,
        async ({ proprio }) => {
          looks.push(proprio);
          return { rows: [[1, -1, 0, 0.5]], latencyMs: 0 };
        },
        EVERY_STEP,
      );
      expect(looks[0]!.slice(9, 17)).toEqual(new Array(8).fill(0));
      expect(looks[1]!.slice(17, 21)).toEqual([1, -1, 0, 0.5]);
      expect([...arena.world.ctrl]).toEqual([0.3 + 0.5, -0.3 - 0.5, 0.3, -0.3 + 0.25]);
      expect(record.initialStateSha256).toBe(arena.replay(1, new Float64Array()).initialStateSha256);
    });
  });

  it("fails when a body tilts", async () => {
    const tumble = { ...CRAWL_PACK, reset: { keyframe: "tumble" } };
    const still = async () => ({ rows: [[0, 0, 0, 0]], latencyMs: 0 });
    await inArena({ ...CRAWL, "scenario.json": tumble }, async (arena) => {
      const record = await arena.run(0, still, EVERY_STEP);
      expect(record).toMatchObject({ termination: "fell", success: false });
      // A quarter of a turn at 6 rad/s, in steps of 50 ms.
      expect(record.steps).toBe(Math.ceil(Math.PI / 2 / 6 / 0.05));
    });
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
        rules({ reward: { alive: 2 } }),
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
    ["an unknown field", { ...PACK, rewards: "1" }, /^rewards is an unknown field; known fields are id, /],
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
    ["a joint that is not in the model", { ...PACK, reward: { speed: { joint: "x", weight: 1 } } }, /^reward\.speed: /],
    ["more positions than the model has", { ...PACK, obs: [["qpos_from", 2]] }, /^obs\[0\]\[1\] must be below 2/],
    [
      "two conditions of success",
      { ...PACK, success: { return_at_least: 1, site_near: { site: "tip", place: [0, 0, 1], within_m: 0.1 } } },
      /^success must have one condition/,
    ],
    [
      "a reversed range",
      { ...PACK, fail: { joint_outside: [{ joint: "lift", low: 1, high: 0 }] } },
      /^fail\.joint_outside\[0\]\.low must be below high/,
    ],
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

  const { track } = CRAWL_PACK.reward;
  const tracking = (change: object): object => ({ ...CRAWL_PACK, reward: { track: [{ ...track[0], ...change }] } });
  const action = (change: object): object => ({ ...REACH_PACK, action: { ...REACH_PACK.action, ...change } });
  const target = (change: object): object => ({ ...REACH_PACK, target: { ...REACH_PACK.target, ...change } });
  it.each([
    ["a body that is not in the model", action({ body: "x" }), /^action\.body: .*no body named x/],
    ["a mocap body that is none", action({ mocap: "hand" }), /^action\.mocap: the body hand must be a mocap body/],
    ["no mocap body", action({ mocap: undefined }), /^action\.mocap is missing/],
    [
      "actuators that no number drives",
      action({ gripper: { actuators: ["left"], scale: 1 } }),
      /must name all 2 actuators/,
    ],
    [
      "a wrong dimension",
      { ...REACH_PACK, action_dim: 3 },
      /^action_dim must be 4, for mocap_delta with a gripper, got 3/,
    ],
    [
      "a box of two axes",
      target({
        box: [
          [0, 1],
          [0, 1],
        ],
      }),
      /^target\.box must be a list of 3 items/,
    ],
    [
      "a reversed box",
      target({
        box: [
          [0, 1],
          [0, 1],
          [1, 0],
        ],
      }),
      /^target\.box\[2\] must be a minimum and a maximum/,
    ],
    [
      "a box without numbers",
      target({
        box: [
          [0, 1],
          [0, 1],
          [Number.NaN, 1],
        ],
      }),
      /^target\.box\[2\]\[0\] must be a number/,
    ],
    [
      "a marker that can't be placed",
      target({ marker: "hand" }),
      /^target\.marker: the body hand must be a mocap body/,
    ],
    ["a site that is not in the model", target({ around: "x" }), /^target\.around: .*no site named x/],
    [
      "targets that are all reached",
      target({
        box: [
          [0, 0],
          [0, 0],
          [0, 0.01],
        ],
      }),
      /none of 1,000 drawn targets/,
    ],
    [
      "a place that is a word",
      { ...REACH_PACK, success: { site_near: { site: "tip", place: "x", within_m: 1 } } },
      /or "target"/,
    ],
    ["a sensor that is not in the model", tracking({ sensor: "x" }), /^reward\.track\[0\]: .*no sensor named x/],
    ["values beyond the sensor", tracking({ values: [0, 3] }), /^reward\.track\[0\]\.values must be below 3, .* got 3/],
    [
      "numbers beyond the command",
      tracking({ command: [0, 3] }),
      /^reward\.track\[0\]\.command must be below 3, .* got 3/,
    ],
    ["lists of different lengths", tracking({ values: [0] }), /^reward\.track\[0\]\.command must have 1 indexes/],
    ["no width of the kernel", tracking({ sigma: 0 }), /^reward\.track\[0\]\.sigma must be a number above 0/],
    [
      "a sensor that is tracked twice",
      { ...CRAWL_PACK, reward: { track: [track[0], track[0]] } },
      /must be tracked once/,
    ],
    [
      "a sensor with a scale that is no number",
      { ...PACK, obs: [["sensor", "x", "2"]] },
      /^obs\[0\]\[2\] must be a number/,
    ],
    ["a term with two arguments", { ...PACK, obs: [["site", "tip", 2]] }, /^obs\[0\] has a second argument/],
    ["a target that is not drawn", { ...PACK, obs: [["target"]] }, /^obs\[0\] is "target", so `target` must be set/],
    [
      "a second command without a first",
      { ...PACK, command: [], command_every: 5 },
      /^command_every requires a command/,
    ],
    ["a negative period", { ...PACK, command_every: -1 }, /^command_every must be a whole number from 1/],
    [
      "a mocap body of joint targets",
      { ...PACK, action: { ...PACK.action, mocap: "x" } },
      /^action\.mocap requires the kind/,
    ],
    ["more velocities than the model has", { ...PACK, obs: [["qvel_from", 2]] }, /^obs\[0\]\[1\] must be below 2/],
    [
      "a keyframe that is not in the model",
      { ...PACK, reset: { keyframe: "x" } },
      /^reset\.keyframe: .*no keyframe named x/,
    ],
    [
      "a tilt beyond a turn",
      { ...PACK, fail: { tilted: { site: "tip", below: 2 } } },
      /^fail\.tilted\.below must be .* -1 to 1/,
    ],
  ])("for %s in its target, its mocap body or its command", async (_, pack, fault) => {
    const rules = JSON.parse(JSON.stringify(pack)) as unknown;
    const files = { "scenario.json": pack, "hold.xml": MJCF, "hand.xml": HAND_MJCF, "crawler.xml": CRAWLER_MJCF };
    const faults = faultsOf(rules);
    const found = faults.length > 0 ? faults : await loadPack(join(packFolder({ bad: files }), "bad"), new Set());
    expect(found).toEqual([expect.stringMatching(fault)]);
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

describe("limber scenario", () => {
  const lines: string[] = [];
  const command = async (...args: string[]): Promise<number> => {
    lines.length = 0;
    vi.spyOn(console, "log").mockImplementation((line) => void lines.push(line));
    vi.spyOn(console, "error").mockImplementation((line) => void lines.push(line));
    return scenarioCommand(args).finally(() => vi.restoreAllMocks());
  };

  it("validates every pack of a folder, and names all faults", async () => {
    const folder = packFolder({ bad: { ...GOOD, "scenario.json": { ...PACK, id: "push-t" } }, good: GOOD });
    expect(await command("validate", folder)).toBe(1);
    expect(lines.slice(0, 3)).toEqual([
      "bad: invalid",
      "  id is push-t, which is another scenario's id",
      expect.stringMatching(/^good: valid; hold-up 1\.0\.0, sha256:/),
    ]);
    expect(await command("validate", join(folder, "good"))).toBe(0);
  });

  it("runs a pack and a built-in scenario by a policy without a server, the same for the same seed", async () => {
    const folder = packFolder({ good: GOOD });
    expect(await command("run", join(folder, "good"), "--episodes", "2")).toBe(0);
    expect(lines.slice(0, 2)).toEqual([
      expect.stringMatching(/^ {2}seed 0 {2}fell {2}/),
      expect.stringMatching(/^ {2}seed 1/),
    ]);
    const random = ["run", "cartpole-balance", "--policy=random", "--episodes=1", "--seed=7"];
    expect(await command(...random)).toBe(0);
    const before = [...lines];
    await command(...random);
    expect(lines).toEqual(before);
  });

  it.each(["webp", "gif"])("films an episode as %s", async (format) => {
    const folder = packFolder({ good: GOOD });
    const out = join(folder, `film.${format}`);
    expect(await command("film", join(folder, "good"), "--out", out)).toBe(0);
    expect(await sharp(out).metadata()).toMatchObject({ format, width: 480, height: 480 });
    expect((await sharp(out).metadata()).pages).toBeGreaterThan(1);
  });

  it.each([
    ["another word", ["try", "push-t"], 2, /validate, run or film/],
    ["no scenario", ["run"], 2, /name one scenario/],
    ["an unknown scenario", ["run", "no-such"], 2, /no built-in scenario/],
    ["an unknown policy", ["run", "push-t", "--policy=best"], 2, /zero or random/],
    ["too many episodes", ["run", "push-t", "--episodes=1000000"], 2, /at most 100000/],
    ["an unknown option", ["run", "push-t", "--model=x"], 2, /--model/],
    ["a film of another kind", ["film", "push-t", "--out=x.mov"], 2, /\.webp or \.gif/],
    ["a camera that does not exist", ["film", "push-t", "--camera=x"], 1, /no camera named x/],
    ["a folder that does not exist", ["validate", "/no/such"], 2, /does not exist/],
  ])("refuses %s in one sentence", async (_, args, code, sentence) => {
    expect(await command(...args)).toBe(code);
    expect(lines).toEqual([expect.stringMatching(sentence)]);
  });
});
