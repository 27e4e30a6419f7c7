/**
 * Scenarios that others bring: a folder each, with `scenario.json`, the MJCF that it names and its assets. What a pack can say is a short
 * list of terms, read here; a pack that says anything else is refused by name. No code of a pack is ever run.
 */
import { readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { between, type Random } from "./chance.ts";
import type { World } from "./engine.ts";
import { ScenarioError } from "./failure.ts";
import { type Camera, distance, type Scenario, type ScenarioVariant, type Task } from "./scenario.ts";

/** `scenario.json`. */
interface PackFile {
  readonly id: string;
  readonly version: string;
  readonly title: string;
  readonly description: string;
  readonly source?: string;
  readonly instruction?: string;
  /** The MJCF's file name, and those of what it includes by name. */
  readonly mjcf: string;
  readonly assets?: readonly string[];
  readonly action_space: string;
  readonly action_dim: number;
  readonly action_fields?: readonly string[];
  readonly units?: string;
  /** Steps of the engine per control step; its own timestep is the MJCF's. */
  readonly substeps: number;
  readonly max_steps: number;
  /** `joint_target`: controls at the first state's joint positions plus scale times the action. `control`: controls at scale times the action. */
  readonly action: {
    readonly kind: "joint_target" | "control";
    readonly scale: number;
    readonly low?: number;
    readonly high?: number;
  };
  readonly obs: readonly (readonly [string, (string | number)?])[];
  readonly reset?: { readonly qpos_noise?: number; readonly qvel_noise?: number };
  /** What the policy is told to do, drawn once per episode. */
  readonly command?: readonly (readonly [number, number])[];
  /** Lasting to `max_steps` is success where nothing else is named. */
  readonly success?: {
    readonly site_near?: { readonly site: string; readonly place: readonly number[]; readonly within_m: number };
  };
  readonly fail?: { readonly body_below?: { readonly body: string; readonly z: number } };
  readonly cameras?: readonly Camera[];
}

const PACK_FIELDS: ReadonlySet<string> = new Set([
  ...["id", "version", "title", "description", "source", "instruction", "mjcf", "assets", "action_space", "action_dim"],
  ...[
    "action_fields",
    "units",
    "substeps",
    "max_steps",
    "action",
    "obs",
    "reset",
    "command",
    "success",
    "fail",
    "cameras",
  ],
]);

/** What an observation can be made of: how many numbers each term has is seen at the first look. */
const TERMS: Readonly<
  Record<string, (world: World, now: Now, argument: string | number | undefined) => readonly number[]>
> = {
  qpos: (world) => Array.from(world.qpos),
  qpos_rel: (world, { home }) => Array.from(world.qpos, (value, i) => value - home[i]!),
  qvel: (world) => Array.from(world.qvel),
  site: (world, _, name) => world.site(`${name}`),
  gravity: (world, _, name) => {
    // Which way is down, as the site sees it.
    const turn = world.siteTurn(`${name}`);
    return [-turn[6]!, -turn[7]!, -turn[8]!];
  },
  sensor: (world, _, name) => {
    const id = world.id("sensor", `${name}`);
    const at = world.model.sensor_adr[id]!;
    return Array.from((world.data.sensordata as Float64Array).slice(at, at + world.model.sensor_dim[id]!));
  },
  command: (_, { command }) => command,
  last_action: (_, { last }, scale) => Array.from(last, (value) => value * Number(scale ?? 1)),
};

/** What an episode knows beside the world. */
interface Now {
  readonly home: Float64Array;
  command: number[];
  last: Float64Array;
}

/** Reads every pack of a folder. Throws `ScenarioError`, naming the pack, for what is none. */
export function loadPacks(folder: string): Scenario[] {
  const names = readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name)
    .sort();
  return names.map((name) => {
    try {
      return readPack(join(folder, name));
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause);
      throw new ScenarioError(`the scenario pack ${name} can't be read: ${why}`, { cause });
    }
  });
}

function readPack(folder: string): Scenario {
  const pack = JSON.parse(readFileSync(join(folder, "scenario.json"), "utf8")) as PackFile;
  const unknown = Object.keys(pack).filter((field) => !PACK_FIELDS.has(field));
  if (unknown.length > 0) throw new ScenarioError(`it has fields that are not known here: ${unknown.join(", ")}`);
  for (const [term] of pack.obs) {
    if (!Object.hasOwn(TERMS, term))
      throw new ScenarioError(`its observation has a term that is not known here: ${term}`);
  }
  if (!/^[a-z0-9][a-z0-9-]{0,63}$/.test(pack.id))
    throw new ScenarioError("its id must be lower-case letters, digits and dashes");
  const mjcf = readFileSync(join(folder, basename(pack.mjcf)), "utf8");
  const assets = new Map(
    (pack.assets ?? []).map((name) => [basename(name), readFileSync(join(folder, basename(name)))]),
  );
  const { id, version, title, description, source = "" } = pack;
  return {
    id,
    version,
    title,
    description,
    topic: "",
    source,
    success: successOf(pack),
    variants: [variantOf(pack, mjcf, assets)],
  };
}

const successOf = ({ success, max_steps }: PackFile): string =>
  success?.site_near
    ? `${success.site_near.site} comes within ${success.site_near.within_m} m of its place.`
    : `The episode lasts all ${max_steps} steps.`;

function variantOf(pack: PackFile, mjcf: string, assets: ReadonlyMap<string, Uint8Array>): ScenarioVariant {
  const { action, action_dim: dim } = pack;
  const timestep = Number(/<option[^>]*\btimestep="([^"]+)"/.exec(mjcf)?.[1] ?? 0.002);
  return {
    actionSpace: pack.action_space,
    fields: pack.action_fields ?? Array.from({ length: dim }, (_, i) => `a${i + 1}`),
    units: pack.units ?? "",
    bounds: {
      low: Array.from({ length: dim }, () => action.low ?? -1),
      high: Array.from({ length: dim }, () => action.high ?? 1),
    },
    proprioNames: [],
    dtMs: timestep * pack.substeps * 1000,
    maxSteps: pack.max_steps,
    cameras: pack.cameras ?? [],
    mjcf,
    assets,
    instruction: pack.instruction ?? pack.title,
    play: (world) => playing(pack, world),
  };
}

function playing(pack: PackFile, world: World): Task {
  const { action, success, fail } = pack;
  const now: Now = { home: world.qpos.slice(), command: [], last: new Float64Array(pack.action_dim) };
  const controlled = Array.from({ length: pack.action_dim }, (_, i) => {
    const joint = world.model.actuator_trnid[2 * i]!;
    return now.home[world.model.jnt_qposadr[joint]!] ?? 0;
  });
  let steps = 0;
  let reached = false;
  let fallen = false;
  const isThere = (): boolean => {
    const near = success?.site_near;
    return near !== undefined && distance(world.site(near.site), near.place) < near.within_m;
  };
  return {
    reset(random) {
      jitter(world.qpos, random, pack.reset?.qpos_noise ?? 0);
      jitter(world.qvel, random, pack.reset?.qvel_noise ?? 0);
      now.command = (pack.command ?? []).map(([low, high]) => between(random, low, high));
      now.last.fill(0);
      steps = 0;
      reached = false;
      fallen = false;
    },
    observe: () => pack.obs.flatMap(([term, argument]) => TERMS[term]!(world, now, argument)),
    step(given) {
      for (const [i, value] of given.entries()) {
        world.ctrl[i] = (action.kind === "joint_target" ? controlled[i]! : 0) + action.scale * value;
      }
      now.last = given.slice();
      world.step(pack.substeps);
      steps += 1;
      const below = fail?.body_below;
      fallen = below !== undefined && world.body(below.body)[2] < below.z;
      if (fallen) return { reward: 0, ending: "fell" };
      reached = success?.site_near ? isThere() : steps >= pack.max_steps;
      return reached ? { reward: 1, ending: "success" } : { reward: 1 };
    },
    measure: () => ({ success: reached, progress: reached ? 1 : steps / pack.max_steps, metrics: { steps } }),
  };
}

function jitter(values: Float64Array, random: Random, most: number): void {
  if (most > 0) for (let i = 0; i < values.length; i++) values[i] = values[i]! + between(random, -most, most);
}
