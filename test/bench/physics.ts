/**
 * The cost of a control step of an evaluation beside MuJoCo's own loop: the same model, engine, controls and substeps. The policy repeats a
 * recorded episode, so that it costs nothing. Printed are medians over interleaved rounds, of wall time per control step and of ratios to the
 * bare loop of the same round.
 * `node test/bench/physics.ts [rounds] [folder of a pack]…`
 */
import { Worker } from "node:worker_threads";
import { seeded } from "../../src/scenarios/chance.ts";
import { Arena, type EpisodePolicy } from "../../src/scenarios/episode.ts";
import { builtIn } from "../../src/scenarios/index.ts";
import { loadPack, scenarioOfPack } from "../../src/scenarios/pack.ts";
import type { Scenario } from "../../src/scenarios/scenario.ts";
import { runTrial, type TrialListener } from "../../src/scenarios/trial.ts";
import { median } from "./support/processes.ts";

const rounds = Number(process.argv[2] ?? 15);
const folders = process.argv.slice(3);
const SEED = 7;
/** Control steps of a measured stretch. */
const STEPS = 3000;
/** Rounds before the measured ones, in which V8 and the engine are compiled. */
const WARM = 4;
const CHUNKS = [1, 16] as const;

/** An episode, recorded step by step. */
interface Recording {
  readonly actions: number[][];
  readonly controls: Float64Array[];
  readonly qpos: Float64Array;
  readonly qvel: Float64Array;
  readonly last: Float64Array;
}

/** Balances the pole of cartpole-balance; other scenarios get small random actions. */
function livelyPolicy(id: string, { variants: [{ bounds }] }: Scenario): EpisodePolicy {
  const random = seeded(SEED);
  return async ({ proprio }) => {
    const [x, v, angle, spin] = proprio;
    const row =
      id === "cartpole-balance"
        ? [x! + 2 * v! + 30 * angle! + 6 * spin!]
        : bounds.low.map((low, i) => 0.3 * (low + (bounds.high[i]! - low) * random()));
    return { rows: [row], latencyMs: 0 };
  };
}

async function recorded(arena: Arena, policy: EpisodePolicy): Promise<Recording> {
  const { world } = arena;
  const rules = { mode: "sync", replanSteps: 1 } as const;
  const { actions: flat, steps } = await arena.run(SEED, policy, rules);
  const dim = flat.length / steps;
  const controls: Float64Array[] = [];
  let [qpos, qvel] = [new Float64Array(), new Float64Array()];
  for (const { steps: executed } of arena.replaying(SEED, flat)) {
    if (executed === 0) [qpos, qvel] = [world.qpos.slice(), world.qvel.slice()];
    else controls.push(world.ctrl.slice());
  }
  const actions = Array.from({ length: steps }, (_, i) => Array.from(flat.subarray(i * dim, (i + 1) * dim)));
  return { actions, controls, qpos, qvel, last: world.qpos.slice() };
}

/** The bare loop: microseconds per control step. */
function bare({ world }: Arena, { controls, qpos, qvel, last }: Recording, substeps: number): number {
  const { mj, model, data } = world;
  let steps = 0;
  const from = performance.now();
  while (steps < STEPS) {
    mj.mj_resetData(model, data);
    world.qpos.set(qpos);
    world.qvel.set(qvel);
    for (const control of controls) {
      world.ctrl.set(control);
      for (let i = 0; i < substeps; i++) mj.mj_step(model, data);
    }
    steps += controls.length;
  }
  const micros = ((performance.now() - from) * 1000) / steps;
  if (world.qpos.some((value, i) => value !== last[i])) throw new Error("the bare loop took another path");
  return micros;
}

/** Episodes in this thread: microseconds per control step. */
async function inThread(arena: Arena, recording: Recording, chunk: number): Promise<number> {
  let steps = 0;
  const from = performance.now();
  while (steps < STEPS) steps += (await arena.run(SEED, repeated(recording, chunk), rulesOf(chunk))).steps;
  return ((performance.now() - from) * 1000) / steps;
}

const rulesOf = (replanSteps: number) => ({ mode: "sync", replanSteps }) as const;

const rowsOf = ({ actions }: Recording, at: number, chunk: number): readonly number[][] =>
  actions.slice(at, at + chunk);

function repeated(recording: Recording, chunk: number): EpisodePolicy {
  let at = 0;
  return async () => {
    const rows = rowsOf(recording, at, chunk);
    at += chunk;
    return { rows, latencyMs: 0 };
  };
}

/** A trial in its own thread, as evaluations run, which pauses between stretches. */
function openTrial(scenario: Scenario, recording: Recording, chunk: number) {
  const [{ actionSpace }] = scenario.variants;
  let at = 0;
  let begin = Promise.withResolvers<"stretch" | "end">();
  let done = Promise.withResolvers<number>();
  let steps = STEPS;
  let from = 0;
  const plan = {
    scenario: scenario.id,
    actionSpace,
    seed: SEED,
    rules: rulesOf(chunk),
    pictures: false,
    media: "none",
    pack: scenario.pack,
  } as const;
  const listener: TrialListener = {
    async next() {
      if (steps >= STEPS) {
        done.resolve(((performance.now() - from) * 1000) / steps);
        if ((await begin.promise) === "end") return { index: undefined, rendered: [] };
        begin = Promise.withResolvers();
        steps = 0;
        from = performance.now();
      }
      at = 0;
      // Always the recorded seed.
      return { index: 0 };
    },
    async act() {
      const rows = rowsOf(recording, at, chunk);
      at += chunk;
      return { rows, latencyMs: 0 };
    },
    async finished(finished) {
      steps += finished.steps;
      if (finished.steps !== recording.actions.length) throw new Error("the trial took another path");
    },
    core: async () => () => {},
  };
  const end = runTrial(plan, listener, new AbortController().signal);
  return {
    /** Microseconds per control step of a stretch. */
    async stretch(): Promise<number> {
      await done.promise;
      done = Promise.withResolvers();
      begin.resolve("stretch");
      return Promise.race([done.promise, end.then(() => Number.NaN)]);
    },
    async close(): Promise<void> {
      begin.resolve("end");
      await end;
    },
  };
}

/** A call to another thread and back with these messages and nothing else: microseconds. */
async function roundTrip(recording: Recording, chunk: number, proprio: number): Promise<number> {
  const code = `const { parentPort, workerData: n } = require("node:worker_threads");
    const shown = { kind: "act", shown: { proprio: new Array(n).fill(0.5), pictures: [], timeMs: 0, episode: 0, first: false } };
    parentPort.on("message", () => parentPort.postMessage(shown));`;
  const thread = new Worker(code, { eval: true, workerData: proprio });
  const message = { kind: "chunk", rows: rowsOf(recording, 0, chunk), latencyMs: 0 };
  const there = (): Promise<unknown> => new Promise((resolve) => thread.once("message", resolve));
  const once = async (): Promise<void> => {
    const back = there();
    thread.postMessage(message);
    await back;
  };
  for (let i = 0; i < 500; i++) await once();
  const from = performance.now();
  for (let i = 0; i < 2000; i++) await once();
  const micros = ((performance.now() - from) * 1000) / 2000;
  await thread.terminate();
  return micros;
}

async function measure(scenario: Scenario, substeps: number): Promise<void> {
  const [variant] = scenario.variants;
  const arena = await Arena.of(variant);
  const recording = await recorded(arena, livelyPolicy(scenario.id, scenario));
  const times = new Map<string, number[]>();
  const ratios = new Map<string, number[]>();
  const trials = new Map(CHUNKS.map((chunk) => [chunk, openTrial(scenario, recording, chunk)]));
  for (let round = -WARM; round < rounds; round++) {
    const base = bare(arena, recording, substeps);
    const note = (name: string, micros: number): void => {
      if (round < 0) return;
      times.set(name, [...(times.get(name) ?? []), micros]);
      ratios.set(name, [...(ratios.get(name) ?? []), micros / base]);
    };
    note("MuJoCo's own loop", base);
    for (const chunk of CHUNKS) {
      note(`chunk ${chunk}: the step alone`, await inThread(arena, recording, chunk));
      note(`chunk ${chunk}: the step and the call`, await trials.get(chunk)!.stretch());
      const trip = await roundTrip(recording, chunk, variant.proprioNames.length);
      note(`chunk ${chunk}: a bare call to the thread and back, per step`, trip / chunk);
    }
  }
  for (const open of trials.values()) await open.close();
  arena.close();
  console.log(`${scenario.id}: ${recording.actions.length} control steps of ${substeps} substeps`);
  for (const [name, list] of times)
    console.log(
      `  ${name.padEnd(56)}${median(list).toFixed(1).padStart(8)} µs${median(ratios.get(name)!).toFixed(2).padStart(8)}`,
    );
}

await measure(builtIn("cartpole-balance")!, 1);
const reach = builtIn("humanoid-reach")!;
await measure(reach, 10);
for (const folder of folders) {
  const pack = await loadPack(folder, new Set());
  if (!("facts" in pack)) throw new Error(pack.join("\n"));
  await measure(scenarioOfPack(pack), pack.rules.substeps);
}
