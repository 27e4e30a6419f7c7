/** The worker thread of `checkPack`: compiles a pack's model and tries its rules. */
import { parentPort, workerData } from "node:worker_threads";
import { seeded } from "../chance.ts";
import { World } from "../engine.ts";
import type { Checked } from "./check.ts";
import type { PackSource } from "./source.ts";
import { namesOf, playing } from "./task.ts";

const { rules, mjcf, assets } = workerData as PackSource;

/** The error; undefined without one. */
function faultOf(run: () => unknown): string | undefined {
  try {
    run();
    return undefined;
  } catch (thrown) {
    return thrown instanceof Error ? thrown.message : String(thrown);
  }
}

async function check(): Promise<Checked> {
  const world = await World.of(mjcf, assets);
  const { model } = world;
  const faults: string[] = [];
  /** Whether the model has such an object; otherwise that is a fault. */
  const expectNamed = (path: string, kind: Parameters<World["id"]>[0], name: string): boolean => {
    const fault = faultOf(() => world.id(kind, name));
    if (fault !== undefined) faults.push(`${path}: ${fault}`);
    return fault === undefined;
  };
  const expectSingle = (path: string, joint: string): void => {
    if (
      expectNamed(path, "joint", joint) &&
      !SINGLE.includes((model.jnt_type as Int32Array)[world.id("joint", joint)]!)
    )
      faults.push(`${path}: the joint ${joint} must be a slide or a hinge, which have one position`);
  };
  const expectMocap = (path: string, body: string): void => {
    if (expectNamed(path, "body", body) && (model.body_mocapid as Int32Array)[world.id("body", body)]! < 0)
      faults.push(`${path}: the body ${body} must be a mocap body`);
  };
  /** Values of a sensor that the rules read. */
  const expectSensor = (path: string, sensor: string, values: readonly number[]): void => {
    if (!expectNamed(path, "sensor", sensor)) return;
    const size = (model.sensor_dim as Int32Array)[world.id("sensor", sensor)]!;
    const beyond = values.find((value) => value >= size);
    if (beyond !== undefined) faults.push(`${path}.values must be below ${size}, the size of ${sensor}, got ${beyond}`);
  };
  const { action_dim: dim, action, reward, target, success, fail, cameras = [] } = rules;
  if (action.kind === "mocap_delta") {
    expectMocap("action.mocap", action.mocap!);
    expectNamed("action.body", "body", action.body!);
    const driven = action.gripper?.actuators ?? [];
    const known = driven.filter((name) => expectNamed("action.gripper", "actuator", name));
    if (known.length === driven.length && new Set(driven).size !== model.nu)
      faults.push(`action.gripper must name all ${model.nu} actuators of the model once, got ${driven.length}`);
  } else if (model.nu !== dim)
    faults.push(`action_dim must be ${model.nu}, the number of the model's actuators, got ${dim}`);
  const transmissions = model.actuator_trntype as Int32Array;
  if (action.kind === "joint_target" && transmissions.some((each) => each !== JOINT))
    faults.push("action.kind joint_target requires that every actuator of the model moves a joint");
  for (const [i, [word, argument]] of rules.obs.entries()) {
    const kind = word === "sensor" ? "sensor" : word === "site" || word === "gravity" ? "site" : undefined;
    if (kind) expectNamed(`obs[${i}]`, kind, `${argument}`);
    if ((word === "qpos_from" || word === "qpos_rel_from") && argument >= model.nq)
      faults.push(`obs[${i}][1] must be below ${model.nq}, the number of the model's positions, got ${argument}`);
    if (word === "qvel_from" && argument >= model.nv)
      faults.push(`obs[${i}][1] must be below ${model.nv}, the number of the model's velocities, got ${argument}`);
  }
  if (rules.reset?.keyframe !== undefined) expectNamed("reset.keyframe", "key", rules.reset.keyframe);
  if (target?.around !== undefined) expectNamed("target.around", "site", target.around);
  if (target?.marker !== undefined) expectMocap("target.marker", target.marker);
  if (reward?.far) expectNamed("reward.far", "site", reward.far.site);
  for (const [i, { sensor, values }] of (reward?.track ?? []).entries())
    expectSensor(`reward.track[${i}]`, sensor, values);
  if (fail?.tilted) expectNamed("fail.tilted", "site", fail.tilted.site);
  if (success?.site_near) expectNamed("success.site_near", "site", success.site_near.site);
  if (reward?.distance) expectNamed("reward.distance", "site", reward.distance.site);
  if (reward?.speed) expectSingle("reward.speed", reward.speed.joint);
  if (fail?.body_below) expectNamed("fail.body_below", "body", fail.body_below.body);
  for (const [i, { joint }] of (fail?.joint_outside ?? []).entries()) expectSingle(`fail.joint_outside[${i}]`, joint);
  for (const [i, { name }] of cameras.entries()) expectNamed(`cameras[${i}]`, "camera", name);
  if (faults.length > 0) return { faults };
  const { timestep } = world;
  const proprioNames = namesOf(rules, world);
  const task = playing(rules, world);
  const random = seeded(0);
  for (let draws = 0; ; draws++) {
    if (draws === MOST_DRAWS)
      return { faults: ["success.site_near: none of 1,000 drawn targets is farther from the site than within_m"] };
    world.reset();
    task.reset(random);
    world.forward();
    if (!task.isSolved?.()) break;
  }
  const looks = [task.observe()];
  task.step(new Float64Array(dim));
  looks.push(task.observe());
  if (world.unstable || !looks.flat().every(Number.isFinite))
    return { faults: ["its physics is unstable in the first step of an episode"] };
  return { faults: [], facts: { timestep, proprioNames } };
}

const MOST_DRAWS = 1000;
/** `mjTRN_JOINT`. */
const JOINT = 0;
/** `mjJNT_SLIDE` and `mjJNT_HINGE`. */
const SINGLE: readonly number[] = [2, 3];

check().then(
  (checked) => parentPort?.postMessage(checked),
  (thrown) => parentPort?.postMessage({ faults: [thrown instanceof Error ? thrown.message : String(thrown)] }),
);
