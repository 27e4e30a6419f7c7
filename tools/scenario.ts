/** Scenario packs without a gateway: `limber scenario validate FOLDER`, `limber scenario run …`, `limber scenario film …`. */
import { existsSync, writeFileSync } from "node:fs";
import { basename, extname, join } from "node:path";
import { parseArgs } from "node:util";
import { between, type Random, seeded } from "../src/scenarios/chance.ts";
import { Arena, type EpisodePolicy, type EpisodeRecord } from "../src/scenarios/episode.ts";
import { ScenarioError } from "../src/scenarios/failure.ts";
import { BUILT_IN, builtIn, digestOf } from "../src/scenarios/index.ts";
import { packNames } from "../src/scenarios/pack/source.ts";
import { loadPack, scenarioOfPack } from "../src/scenarios/pack.ts";
import {
  enlarged,
  FILM_FORMATS,
  type FilmFormat,
  filmOf,
  filmSteps,
  type Picture,
  takePicture,
} from "../src/scenarios/picture.ts";
import type { Scenario, ScenarioVariant } from "../src/scenarios/scenario.ts";
import { scoresOf } from "../src/scenarios/scores.ts";

const HELP = `Checks scenario packs and tries them without a gateway.

  limber scenario validate FOLDER    checks a pack, or every pack in a folder
  limber scenario run SCENARIO       runs episodes of a policy that needs no server
  limber scenario film SCENARIO      films one episode

  SCENARIO is the folder of a pack, or the id of a built-in scenario.

  --policy NAME     zero (no action) or random (within the bounds); zero when absent
  --episodes N      of run; 10 when absent
  --seed N          of the first episode; each later one has the next; 0 when absent
  --out FILE        of film; SCENARIO.webp when absent; .gif gives an animated GIF
  --camera NAME     of film; the scenario's first camera when absent; any camera of the model can be named
  --help

Ends with 0 on success, 1 when a pack is invalid or can't run, 2 when the command is wrong.`;

/** The command can't be carried out as it was given. */
class Misuse extends Error {}

const OPTIONS = {
  policy: { type: "string", default: "zero" },
  episodes: { type: "string", default: "10" },
  seed: { type: "string", default: "0" },
  out: { type: "string" },
  camera: { type: "string" },
  help: { type: "boolean" },
} as const;
const MOST_EPISODES = 100_000;
/** Pixels of a film's longer side. */
const SIDE = 480;

function parsed(args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true });
  } catch (thrown) {
    throw new Misuse(thrown instanceof Error ? thrown.message : String(thrown));
  }
}
type Values = ReturnType<typeof parsed>["values"];

const ACTIONS = { validate, run, film };

/** Runs the command; resolves with the exit code. */
export async function scenarioCommand(args: readonly string[]): Promise<number> {
  try {
    const { values, positionals } = parsed(args);
    const [word = "", name, ...more] = positionals;
    if (values.help) {
      console.log(HELP);
      return 0;
    }
    if (!Object.hasOwn(ACTIONS, word)) throw new Misuse(`the first word must be validate, run or film, not "${word}"`);
    if (name === undefined || more.length > 0)
      throw new Misuse(word === "validate" ? "name one folder" : "name one scenario");
    return await ACTIONS[word as keyof typeof ACTIONS](name, values);
  } catch (thrown) {
    if (!(thrown instanceof Misuse || thrown instanceof ScenarioError)) throw thrown;
    console.error(`scenario: ${thrown.message}`);
    return thrown instanceof Misuse ? 2 : 1;
  }
}

async function validate(folder: string): Promise<number> {
  if (!existsSync(folder)) throw new Misuse(`${folder} does not exist`);
  const folders = isPack(folder) ? [folder] : packNames(folder).map((name) => join(folder, name));
  if (folders.length === 0) throw new Misuse(`${folder} contains no pack: a pack is a folder with scenario.json`);
  const taken = new Set(BUILT_IN.map(({ id }) => id));
  let invalid = 0;
  for (const each of folders) {
    const pack = await loadPack(each, taken);
    if ("facts" in pack) {
      const scenario = scenarioOfPack(pack);
      const [variant] = scenario.variants;
      console.log(`${basename(each)}: valid; ${scenario.id} ${scenario.version}, ${digestOf(scenario, variant)}`);
      console.log(`  state   ${variant.proprioNames.length} numbers: ${variant.proprioNames.join(", ")}`);
      console.log(`  action  ${variant.actionSpace}, ${variant.fields.length} numbers, every ${variant.dtMs} ms`);
      console.log(`  success ${scenario.success}`);
    } else {
      invalid += 1;
      console.log(`${basename(each)}: invalid`);
      for (const fault of pack) console.log(`  ${fault}`);
    }
  }
  return invalid === 0 ? 0 : 1;
}

async function run(name: string, values: Values): Promise<number> {
  const [variant] = (await scenarioAt(name)).variants;
  const [episodes, seed] = [whole(values.episodes, "episodes", 1), whole(values.seed, "seed", 0)];
  if (episodes > MOST_EPISODES) throw new Misuse(`--episodes must be at most ${MOST_EPISODES}, not ${episodes}`);
  const arena = await Arena.of(variant);
  const records: EpisodeRecord[] = [];
  try {
    for (let i = 0; i < episodes; i++) {
      const record = await arena.run(seed + i, policyOf(values.policy, variant, seed + i), RULES);
      records.push(record);
      const { termination, steps, return: sum } = record;
      console.log(`  seed ${record.seed}  ${termination}  ${steps} steps  return ${sum.toFixed(3)}`);
    }
  } finally {
    arena.close();
  }
  console.log(JSON.stringify(scoresOf(records), null, 2));
  return 0;
}

async function film(name: string, values: Values): Promise<number> {
  const { id, variants } = await scenarioAt(name);
  const [variant] = variants;
  const camera = values.camera ?? variant.cameras[0]?.name;
  if (camera === undefined) throw new Misuse(`${id} has no camera; name one of its model's by --camera`);
  const out = values.out ?? `${id}.webp`;
  const format = FILM_FORMATS.find((each) => extname(out) === `.${each}`);
  if (format === undefined) throw new Misuse(`--out must end in .${FILM_FORMATS.join(" or .")}, not ${out}`);
  const seed = whole(values.seed, "seed", 0);
  const arena = await Arena.of(variant);
  try {
    const record = await arena.run(seed, policyOf(values.policy, variant, seed), RULES);
    writeFileSync(out, await filmed(arena, record, camera, format));
    console.log(`${out}: seed ${seed}, ${record.termination} after ${record.steps} steps`);
  } finally {
    arena.close();
  }
  return 0;
}

/** An episode again, seen by a camera. */
async function filmed(arena: Arena, record: EpisodeRecord, camera: string, format: FilmFormat): Promise<Buffer> {
  const { variant, world } = arena;
  const known = variant.cameras.find(({ name }) => name === camera) ?? { name: camera, width: 4, height: 3 };
  const every = filmSteps(record.steps, variant.dtMs);
  const pictures: Picture[] = [];
  for (const { steps } of arena.replaying(record.seed, record.actions))
    if (steps % every === 0 || steps === record.steps) pictures.push(takePicture(world, enlarged(known, SIDE)));
  return filmOf(pictures, every * variant.dtMs, format);
}

/** One call for each step. */
const RULES = { mode: "sync", replanSteps: 1 } as const;

/** What the command offers as a policy: what a scenario must not reward. */
function policyOf(name: string, { fields, bounds }: ScenarioVariant, seed: number): EpisodePolicy {
  const draw: Readonly<Record<string, (random: Random) => number[]>> = {
    zero: () => fields.map(() => 0),
    random: (random) => fields.map((_, i) => between(random, bounds.low[i]!, bounds.high[i]!)),
  };
  const action = Object.hasOwn(draw, name) ? draw[name] : undefined;
  if (action === undefined) throw new Misuse(`--policy must be ${Object.keys(draw).join(" or ")}, not ${name}`);
  // Not the numbers that placed the start.
  const random = seeded(seed + 2 ** 32);
  return async () => ({ rows: [action(random)], latencyMs: 0 });
}

const isPack = (folder: string): boolean => existsSync(join(folder, "scenario.json"));

async function scenarioAt(name: string): Promise<Scenario> {
  if (!isPack(name)) {
    const known = builtIn(name);
    if (known !== undefined) return known;
    const ids = BUILT_IN.map(({ id }) => id).join(", ");
    throw new Misuse(`${name} is no folder with scenario.json, and no built-in scenario; those are ${ids}`);
  }
  const pack = await loadPack(name, new Set());
  if (!("facts" in pack)) throw new ScenarioError(`${name} is invalid:\n  ${pack.join("\n  ")}`);
  return scenarioOfPack(pack);
}

function whole(text: string, name: string, least: number): number {
  if (!/^\d{1,10}$/.test(text) || Number(text) < least)
    throw new Misuse(`--${name} must be a whole number from ${least}, not ${text}`);
  return Number(text);
}
