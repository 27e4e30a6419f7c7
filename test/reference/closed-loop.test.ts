import { existsSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { type Body, HUMANOID_23, HUMANOID_29, SINGLE_ARM, TWO_ARMS } from "../../src/reference/act/bodies.ts";
import { distance, handAt, type Vec3 } from "../../src/reference/act/chain.ts";
import { decodeLatent } from "../../src/reference/act/latent.ts";
import { CONTROLLERS, plan } from "../../src/reference/act/plan.ts";
import type { ActionSpace, ActOutput } from "../../src/reference/act/types.ts";
import { decodeImage, type RgbFrame } from "../../src/reference/image.ts";
import {
  angleBetween,
  LaggingHand,
  Pendulum,
  type PlanarPose,
  ServoJoints,
  TrackedBase,
  WheeledBase,
} from "../support/plants.ts";
import { between, overheadView, seeded, type TableThing } from "../support/scenes.ts";

const EPISODES = 25;
/** Rows of each chunk that are carried out before the next is asked for. */
const REPLAN = 8;

type Random = () => number;
type Observation = { proprio: number[]; frames?: RgbFrame[]; instruction?: string };
/** Who acts: gives a chunk of at least `REPLAN` rows for what is observed. */
type Actor = (space: ActionSpace, observation: Observation, random: Random) => ActOutput;

const model: Actor = (actionSpace, observation) => plan({ actionSpace, horizon: 16, frames: [], ...observation });

/** A chunk of the right shape that looks at nothing. */
const withNumbers =
  (number: (random: Random) => number): Actor =>
  (space, _, random) => {
    const { dim, dtMs } = CONTROLLERS[space].declaration;
    return { steps: Float64Array.from({ length: REPLAN * dim }, () => number(random)), dim, dtMs, note: "" };
  };
const idle = withNumbers(() => 0);
const erratic = withNumbers((random) => between(random, -1, 1));

/** How many of the seeded episodes succeed. */
function successes(episode: (actor: Actor, random: Random) => boolean, actor: Actor): number {
  return Array.from({ length: EPISODES }, (_, i) => episode(actor, seeded(i + 1))).filter(Boolean).length;
}

function rowsOf({ steps, dim }: ActOutput): Float64Array[] {
  return Array.from({ length: REPLAN }, (_, row) => steps.subarray(row * dim, (row + 1) * dim));
}

/** All succeed with the model; of the episodes that nobody steers, at most two do by luck. */
function expectOnlyTheModelToSucceed(episode: (actor: Actor, random: Random) => boolean): void {
  expect(successes(episode, model)).toBe(EPISODES);
  expect(successes(episode, idle)).toBeLessThanOrEqual(2);
  expect(successes(episode, erratic)).toBeLessThanOrEqual(2);
}

describe("bases", () => {
  interface World {
    start: PlanarPose;
    goal: PlanarPose;
    obstacles: [number, number, number][];
  }

  function world(random: Random, count: number): World {
    const poseAt = (low: number, high: number): PlanarPose => ({
      x: between(random, low, high),
      y: between(random, -2, 2),
      yaw: between(random, -3, 3),
    });
    const obstacles: [number, number, number][] = [];
    while (obstacles.length < count) {
      const next = [between(random, -1.5, 1.5), between(random, -2, 2), between(random, 0.15, 0.4)] as const;
      if (obstacles.every(([x, y, r]) => Math.hypot(x - next[0], y - next[1]) > r + next[2] + 0.8)) {
        obstacles.push([...next]);
      }
    }
    return { start: poseAt(-3, -2), goal: poseAt(2, 3), obstacles };
  }

  const isThere = (pose: PlanarPose, goal: PlanarPose): boolean =>
    Math.hypot(goal.x - pose.x, goal.y - pose.y) < 0.1 && Math.abs(angleBetween(goal.yaw, pose.yaw)) < 0.2;

  /** Drives until there, crashed or out of time; `carryOut` moves the base by one row. */
  function drive(
    { goal, obstacles }: World,
    pose: PlanarPose,
    ask: () => ActOutput,
    carryOut: (row: Float64Array, origin: PlanarPose) => void,
  ): boolean {
    for (let chunk = 0; chunk < 70 && !isThere(pose, goal); chunk++) {
      const origin = { ...pose };
      for (const row of rowsOf(ask())) {
        carryOut(row, origin);
        if (obstacles.some(([x, y, r]) => Math.hypot(x - pose.x, y - pose.y) < r + 0.2)) return false;
      }
    }
    return isThere(pose, goal);
  }

  const proprioOf = ({ goal, obstacles }: World, pose: PlanarPose): number[] => [
    ...[pose.x, pose.y, pose.yaw, goal.x, goal.y, goal.yaw],
    ...obstacles.flat(),
  ];

  it.each([0, 1, 5])(
    "base_twist_2d drives a lagging base to its goal pose past %i obstacles without touching one",
    (count) => {
      expectOnlyTheModelToSucceed((actor, random) => {
        const place = world(random, count);
        const base = new WheeledBase(place.start, 80);
        const ask = (): ActOutput => actor("base_twist_2d", { proprio: proprioOf(place, base.pose) }, random);
        return drive(place, base.pose, ask, ([speed, turn]) => base.drive(speed!, turn!, 100));
      });
    },
  );

  it.each([0, 5])(
    "waypoint_se2 leads a tracked base to its goal pose past %i obstacles without touching one",
    (count) => {
      expectOnlyTheModelToSucceed((actor, random) => {
        const place = world(random, count);
        const base = new TrackedBase(place.start);
        const ask = (): ActOutput => actor("waypoint_se2", { proprio: proprioOf(place, base.pose) }, random);
        return drive(place, base.pose, ask, ([x, y, yaw], origin) => base.follow(origin, [x!, y!, yaw!], 100));
      });
    },
  );

  it("gets round an obstacle that stands exactly between start and goal", () => {
    const pose = { x: -2, y: 0, yaw: 0 };
    const base = new WheeledBase(pose, 80);
    const place: World = { start: pose, goal: { x: 2, y: 0, yaw: 0 }, obstacles: [[0, 0, 0.4]] };
    const ask = (): ActOutput => model("base_twist_2d", { proprio: proprioOf(place, base.pose) }, seeded(1));
    expect(drive(place, base.pose, ask, ([speed, turn]) => base.drive(speed!, turn!, 100))).toBe(true);
  });
});

describe("joints", () => {
  const BODIES = {
    joint_pos_7: SINGLE_ARM,
    joint_pos_14: TWO_ARMS,
    joint_pos_23: HUMANOID_23,
    joint_pos_29: HUMANOID_29,
  };

  /** A posture away from the limits, with small angles for what is held. */
  function posture(body: Body, random: Random): Float64Array {
    const angles = Float64Array.from(body.names, () => between(random, -0.1, 0.1));
    for (const { chain, rows } of body.limbs) {
      chain.joints.forEach(({ lower, upper, held }, i) => {
        if (!held) angles[rows[i]!] = lower + (upper - lower) * between(random, 0.2, 0.8);
      });
    }
    return angles;
  }

  const handsOf = (body: Body, angles: Float64Array): Vec3[] =>
    body.limbs.map(({ chain, rows }) =>
      handAt(
        chain,
        rows.map((row) => angles[row]!),
      ),
    );

  /** A start and goals that some posture with the same held joints reaches. */
  function errand(body: Body, random: Random): { joints: ServoJoints; goals: Vec3[] } {
    const start = posture(body, random);
    const end = posture(body, random);
    for (const { chain, rows } of body.limbs) {
      chain.joints.forEach(({ held }, i) => {
        if (held) end[rows[i]!] = start[rows[i]!]!;
      });
    }
    return { joints: new ServoJoints(start), goals: handsOf(body, end) };
  }

  const areThere = (body: Body, angles: Float64Array, goals: Vec3[]): boolean =>
    handsOf(body, angles).every((hand, i) => distance(hand, goals[i]!) < 0.015);

  it.each(Object.entries(BODIES))("%s brings every hand within 15 mm of its goal", (space, body) => {
    expectOnlyTheModelToSucceed((actor, random) => {
      const { joints, goals } = errand(body, random);
      for (let chunk = 0; chunk < 25; chunk++) {
        const proprio = [...joints.angles, ...goals.flat()];
        for (const row of rowsOf(actor(space as ActionSpace, { proprio }, random))) joints.track(row);
      }
      return areThere(body, joints.angles, goals);
    });
  });

  it("latent_action, decoded, brings the hand within 15 mm of its goal", () => {
    expectOnlyTheModelToSucceed((actor, random) => {
      const { joints, goals } = errand(SINGLE_ARM, random);
      for (let chunk = 0; chunk < 6; chunk++) {
        const proprio = [...joints.angles, ...goals.flat()];
        for (const code of rowsOf(actor("latent_action", { proprio }, random)).slice(0, 4)) {
          const rows = decodeLatent(code);
          for (let at = 0; at < rows.length; at += 7) joints.track(rows.subarray(at, at + 7));
        }
      }
      return areThere(SINGLE_ARM, joints.angles, goals);
    });
  });

  it.each([["joint_pos_23", HUMANOID_23] as const, ["joint_pos_29", HUMANOID_29] as const])(
    "%s keeps the legs and the waist exactly as measured",
    (space, body) => {
      const { joints, goals } = errand(body, seeded(3));
      const held = body.names.flatMap((name, i) => (/^(left|right)_(hip|knee|ankle)|^waist/.test(name) ? [i] : []));
      const { steps, dim } = model(space, { proprio: [...joints.angles, ...goals.flat()] }, seeded(1));
      expect(held).toHaveLength(space === "joint_pos_23" ? 13 : 15);
      for (let row = 0; row < 16; row++) {
        for (const i of held) expect(steps[row * dim + i]).toBe(joints.angles[i]);
      }
    },
  );

  it("joint_pos_14 keeps both grippers as measured", () => {
    const { joints, goals } = errand(TWO_ARMS, seeded(4));
    joints.angles[6] = 0.3;
    joints.angles[13] = 0.9;
    const { steps } = model("joint_pos_14", { proprio: [...joints.angles, ...goals.flat()] }, seeded(1));
    for (let row = 0; row < 16; row++) {
      expect(steps[row * 14 + 6]).toBe(0.3);
      expect(steps[row * 14 + 13]).toBe(0.9);
    }
  });

  it("turns no joint by more than 0.05 rad per step, also when a joint is measured outside its limits", () => {
    for (let seed = 1; seed <= EPISODES; seed++) {
      const { joints, goals } = errand(SINGLE_ARM, seeded(seed));
      joints.angles[seed % 7] = 3.6;
      const { steps } = model("joint_pos_7", { proprio: [...joints.angles, ...goals.flat()] }, seeded(1));
      const path = [...joints.angles, ...steps];
      for (let i = 7; i < path.length; i++) expect(Math.abs(path[i]! - path[i - 7]!)).toBeLessThanOrEqual(0.05 + 1e-9);
    }
  });

  it("goes as near as it can to a goal out of reach, and says how far it ends", () => {
    const proprio = [...posture(SINGLE_ARM, seeded(1)), 3, 0, 0.5];
    const { steps, note } = plan({ actionSpace: "joint_pos_7", horizon: 256, proprio, frames: [] });
    const hand = handAt(SINGLE_ARM.limbs[0]!.chain, steps.slice(-7));
    expect(distance(hand, [3, 0, 0.5])).toBeLessThan(2.15);
    expect(note).toContain(`${Math.round(distance(hand, [3, 0, 0.5]) * 1000)} mm`);
  });

  it("places the hand of the 7-joint arm where its lengths say", () => {
    const { chain } = SINGLE_ARM.limbs[0]!;
    const quarter = Math.PI / 2;
    expectNear(handAt(chain, [0, 0, 0, 0, 0, 0, 0]), [0, 0, 1.3]);
    expectNear(handAt(chain, [0, quarter, 0, 0, 0, 0, 0]), [0.96, 0, 0.34]);
    expectNear(handAt(chain, [quarter, quarter, 0, 0, 0, 0, 0]), [0, 0.96, 0.34]);
    expectNear(handAt(chain, [0, quarter, 0, -quarter, 0, 0, 0]), [0.4, 0, 0.9]);
  });

  function expectNear(place: Vec3, expected: Vec3): void {
    expect(distance(place, expected)).toBeLessThan(1e-9);
  }
});

describe("ee_delta_6d_grip", () => {
  const someHand = (random: Random): LaggingHand =>
    new LaggingHand([between(random, 0.35, 0.65), between(random, -0.25, 0.25), between(random, 0.15, 0.4)]);

  /** A green cube, which is to be reached, a green ball, a red cube, and the last thing on a far corner. */
  function someTable(random: Random): TableThing[] {
    const corners = [-1, 1].flatMap((a) => [-1, 1].map((b) => [0.5 + 0.1 * a, 0.15 * b] as const));
    const turn = Math.floor(random() * 4);
    const kinds = [
      ["green", "square"],
      ["green", "circle"],
      ["red", "square"],
      ["blue", "triangle"],
    ] as const;
    return kinds.map(([paint, shape], i) => {
      const [x, y] = corners[(i + turn) % 4]!;
      return { paint, shape, x: x + between(random, -0.03, 0.03), y: y + between(random, -0.05, 0.05), size: 0.03 };
    });
  }

  const instruction = "reach the green cube";

  it("brings the hand within 15 mm of a goal in proprio", () => {
    expectOnlyTheModelToSucceed((actor, random) => {
      const hand = someHand(random);
      const goal = someHand(random).place;
      for (let chunk = 0; chunk < 8; chunk++) {
        const proprio = [...hand.place, ...goal];
        for (const row of rowsOf(actor("ee_delta_6d_grip", { proprio }, random))) hand.shift(row);
      }
      return distance(hand.place, goal) < 0.015;
    });
  });

  it("brings the hand within 15 mm of the named thing that a fixed overhead camera shows", () => {
    expectOnlyTheModelToSucceed((actor, random) => {
      const hand = someHand(random);
      const things = someTable(random);
      const frames = [overheadView(Math.floor(random() * 99), things, [0.5, 0], 0.64)];
      for (let chunk = 0; chunk < 8; chunk++) {
        const observation = { proprio: [...hand.place], frames, instruction };
        for (const row of rowsOf(actor("ee_delta_6d_grip", observation, random))) hand.shift(row);
      }
      return distance(hand.place, [things[0]!.x, things[0]!.y, 0.03]) < 0.015;
    });
  });

  it.each([0.45, 0.64, 0.9])(
    "centres the hand within 15 mm above the named thing when its own camera's view is %f m wide",
    (width) => {
      expectOnlyTheModelToSucceed((actor, random) => {
        const things = someTable(random);
        const hand = new LaggingHand([
          things[0]!.x + between(random, -0.1, 0.1),
          things[0]!.y + between(random, -0.1, 0.1),
          0.3,
        ]);
        for (let chunk = 0; chunk < 8; chunk++) {
          const observation: Observation = {
            proprio: [],
            instruction,
            // A getter, because only who looks should pay for the picture.
            get frames() {
              return [overheadView(chunk, things, [hand.place[0], hand.place[1]], width)];
            },
          };
          for (const row of rowsOf(actor("ee_delta_6d_grip", observation, random))) hand.shift(row);
        }
        return distance(hand.place, [things[0]!.x, things[0]!.y, 0.3]) < 0.015;
      });
    },
  );

  const see = (things: TableThing[], words: string, proprio: number[] = []): ActOutput =>
    model(
      "ee_delta_6d_grip",
      { proprio, frames: [overheadView(1, things, [0.5, 0], 0.64)], instruction: words },
      seeded(1),
    );

  it("acts by the picture and by the words: another place or another thing gives another chunk", () => {
    const things = someTable(seeded(1));
    const once = see(things, instruction).steps;
    expect(see(things, "reach the red cube").steps).not.toEqual(once);
    expect(
      see(
        things.map((thing) => ({ ...thing, y: -thing.y })),
        instruction,
      ).steps,
    ).not.toEqual(once);
  });

  it("goes left or right by the cube that is named in a real camera frame", async () => {
    const file = new URL("../../../shared/frames/bridge_stack_cubes.png", import.meta.url);
    const drawn: TableThing[] = [
      { paint: "green", shape: "square", x: 0.5, y: 0.15, size: 0.03 },
      { paint: "yellow", shape: "square", x: 0.55, y: -0.15, size: 0.03 },
    ];
    const frame = existsSync(file)
      ? { camera: "front", image: await decodeImage(readFileSync(file)) }
      : overheadView(1, drawn, [0.5, 0], 0.64);
    const aside = (words: string): number =>
      model("ee_delta_6d_grip", { proprio: [], frames: [frame], instruction: words }, seeded(1)).steps[1]!;
    expect(aside("reach the green cube")).toBeGreaterThan(0.005);
    expect(aside("reach the yellow cube")).toBeLessThan(-0.005);
  });

  it("takes a goal in proprio over what it sees", () => {
    const things = someTable(seeded(1));
    const hand = [0.4, 0.1, 0.2];
    const blind = model("ee_delta_6d_grip", { proprio: [...hand, 0.6, 0.1, 0.2] }, seeded(1));
    expect(see(things, instruction, [...hand, 0.6, 0.1, 0.2])).toEqual(blind);
    expect([...blind.steps.subarray(0, 7)]).toEqual([expect.closeTo(0.02, 6), 0, 0, 0, 0, 0, 1]);
  });

  it("refuses when it can't see: no frame, no colour word, no such thing, or no telling which camera looks down", () => {
    const frame = overheadView(1, someTable(seeded(1)), [0.5, 0], 0.64);
    const ask = (frames: RgbFrame[], words?: string) => () =>
      plan({
        actionSpace: "ee_delta_6d_grip",
        horizon: 1,
        proprio: [],
        frames,
        ...(words !== undefined && { instruction: words }),
      });
    expect(ask([], instruction)).toThrow(/camera frame/);
    expect(ask([frame])).toThrow(/names no colour/);
    expect(ask([frame], "reach the cube")).toThrow(/names no colour/);
    expect(ask([frame], "reach the purple cube")).toThrow(/purple cube/);
    const others = [
      { ...frame, camera: "front" },
      { ...frame, camera: "wrist" },
    ];
    expect(ask(others, instruction)).toThrow(/"overhead"/);
    expect(ask([...others, frame], instruction)).not.toThrow();
  });
});

describe("continuous_nd", () => {
  it("swings Pendulum-v1 up and holds it for the last 20 of 200 steps, at a mean return above -200", () => {
    const episode = (actor: Actor, random: Random): { held: boolean; total: number } => {
      const pendulum = new Pendulum(between(random, -Math.PI, Math.PI), between(random, -1, 1));
      let total = 0;
      let upright = 0;
      for (let step = 0; step < 200; step += REPLAN) {
        for (const [torque] of rowsOf(actor("continuous_nd", { proprio: pendulum.observe() }, random))) {
          total += pendulum.push(torque!);
          upright = Math.abs(angleBetween(pendulum.angle, 0)) < 0.2 ? upright + 1 : 0;
        }
      }
      return { held: upright >= 20, total };
    };
    expectOnlyTheModelToSucceed((actor, random) => episode(actor, random).held);
    const totals = Array.from({ length: EPISODES }, (_, i) => episode(model, seeded(i + 1)).total);
    expect(totals.reduce((sum, total) => sum + total, 0) / EPISODES).toBeGreaterThan(-200);
  });

  it("keeps to the torque limit from hanging straight down at rest", () => {
    const { steps } = plan({ actionSpace: "continuous_nd", horizon: 256, proprio: [-1, 0, 0], frames: [] });
    expect(steps[0]).not.toBe(0);
    expect(steps.every((torque) => Math.abs(torque) <= 2)).toBe(true);
  });
});
