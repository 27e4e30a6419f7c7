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
  const faults: (string | undefined)[] = [];
  const { action_dim: dim, action, success, fail, cameras = [] } = rules;
  if (model.nu !== dim) faults.push(`action_dim must be ${model.nu}, the number of the model's actuators, got ${dim}`);
  const transmissions = model.actuator_trntype as Int32Array;
  if (action.kind === "joint_target" && transmissions.some((each) => each !== JOINT))
    faults.push("action.kind joint_target requires that every actuator of the model moves a joint");
  for (const [i, [word, argument]] of rules.obs.entries()) {
    const kind = word === "sensor" ? "sensor" : word === "site" || word === "gravity" ? "site" : undefined;
    if (kind)
      faults.push(
        named(
          `obs[${i}]`,
          faultOf(() => world.id(kind, `${argument}`)),
        ),
      );
  }
  const near = success?.site_near;
  if (near)
    faults.push(
      named(
        "success.site_near",
        faultOf(() => world.id("site", near.site)),
      ),
    );
  const below = fail?.body_below;
  if (below)
    faults.push(
      named(
        "fail.body_below",
        faultOf(() => world.id("body", below.body)),
      ),
    );
  for (const [i, camera] of cameras.entries())
    faults.push(
      named(
        `cameras[${i}]`,
        faultOf(() => world.id("camera", camera.name)),
      ),
    );
  const known = faults.filter((fault) => fault !== undefined);
  if (known.length > 0) return { faults: known };
  const { timestep } = world;
  const proprioNames = namesOf(rules, world);
  const task = playing(rules, world);
  world.reset();
  task.reset(seeded(0));
  world.forward();
  const looks = [task.observe()];
  task.step(new Float64Array(dim));
  looks.push(task.observe());
  if (world.unstable || !looks.flat().every(Number.isFinite))
    return { faults: ["its physics is unstable in the first step of an episode"] };
  return { faults: [], facts: { timestep, proprioNames } };
}

/** `mjTRN_JOINT`. */
const JOINT = 0;

const named = (path: string, fault: string | undefined): string | undefined =>
  fault === undefined ? undefined : `${path}: ${fault}`;

check().then(
  (checked) => parentPort?.postMessage(checked),
  (thrown) => parentPort?.postMessage({ faults: [thrown instanceof Error ? thrown.message : String(thrown)] }),
);
