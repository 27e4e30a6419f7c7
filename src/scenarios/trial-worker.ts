/** The worker thread of `runTrial`: the physics of one trial, which requests every action. */
import { parentPort, workerData } from "node:worker_threads";
import { controlPolicy } from "./controls.ts";
import { Arena, type Chunk, type EpisodeRecord, type Look } from "./episode.ts";
import { PolicyFailure, ScenarioError } from "./failure.ts";
import { builtIn, variantFor } from "./index.ts";
import { scenarioOfPack } from "./pack.ts";
import {
  drawRows,
  enlarged,
  enlargedEven,
  filmOf,
  filmSteps,
  type Picture,
  pngOf,
  spread,
  stripOf,
  takePicture,
} from "./picture.ts";
import type {
  FilmPoint,
  FinishedEpisode,
  FromThread,
  Medium,
  NextEpisode,
  ToThread,
  TrialEnd,
  TrialPlan,
} from "./trial.ts";

const STRIP = 6;
/** Images that are rendered in one go, before the core can be yielded. */
const TURN = 10;
/** Pixels of the longer side, of pictures and of films. */
const SIDE = 320;
const FILM_SIDE = 480;
/**
 * Rows of a film that are rendered before the core is yielded, so the longest wait of another evaluation. 12 rows took 1 to 6 ms, the median of
 * each built-in scenario, and at most 16 ms, on a machine with two busy cores.
 */
const FILM_ROWS = 12;

const port = parentPort;
if (!port) throw new Error("this file must run in a worker thread");
const plan = workerData as TrialPlan;

let deliver: (message: ToThread) => void = () => {};
port.on("message", (message: ToThread) => deliver(message));

/** Sends a message, and waits for the answer. */
function ask(message: FromThread): Promise<ToThread> {
  const { promise, resolve } = Promise.withResolvers<ToThread>();
  deliver = resolve;
  port?.postMessage(message);
  return promise;
}

async function trial(): Promise<TrialEnd> {
  const scenario = plan.pack ? scenarioOfPack(plan.pack) : builtIn(plan.scenario);
  const variant = scenario && variantFor(scenario, plan.actionSpace);
  if (!scenario || !variant) throw new ScenarioError("scenario not found");
  const arena = await Arena.of(variant);
  try {
    for (;;) {
      const next = await nextOf(variant.proprioNames);
      if (next.index === undefined) return await pictured(arena, next.rendered);
      const { index, control } = next;
      const seed = plan.seed + index;
      const policy = control
        ? controlPolicy(control, scenario, variant, seed)
        : (look: Look) => act(arena, index, look);
      const record = await arena.run(seed, policy, plan.rules);
      await ask({ kind: "finished", episode: { ...record, index } });
    }
  } finally {
    arena.close();
  }
}

async function nextOf(proprioNames: readonly string[]): Promise<NextEpisode> {
  const answer = await ask({ kind: "next", proprioNames });
  if (answer.kind !== "next") throw new Error("the answer to a request for an episode must be an episode");
  return answer.next;
}

async function act(arena: Arena, episode: number, look: Look): Promise<Chunk> {
  const { variant, world } = arena;
  const pictures = plan.pictures
    ? await Promise.all(
        variant.cameras.map(async (camera) => ({ camera: camera.name, png: await pngOf(takePicture(world, camera)) })),
      )
    : [];
  const { proprio, time, first } = look;
  const shown = { proprio, pictures, timeMs: time * 1000, episode, first };
  const answer = await ask({ kind: "act", shown });
  if (answer.kind === "failure") throw new PolicyFailure(answer.termination, answer.message);
  if (answer.kind !== "chunk") throw new Error("the answer to an act must be a chunk");
  return answer;
}

/** Replays episodes under a camera. */
async function pictured(arena: Arena, episodes: readonly FinishedEpisode[]): Promise<TrialEnd> {
  const form = plan.media;
  const [only] = episodes;
  if (form === "none" || only === undefined) return { media: [], replayVerified: undefined };
  if (form === "film") return filmed(arena, only);
  const media: Medium[] = [];
  let verified = true;
  for (const episode of episodes) {
    if (!arena.variant.cameras[0]) continue;
    const every = form === "gif" ? filmSteps(episode.steps, arena.variant.dtMs) : spread(episode.steps, STRIP);
    const { pictures, same } = await replayed(arena, episode, every);
    verified &&= same;
    const bytes = form === "gif" ? await filmOf(pictures, every * arena.variant.dtMs, "gif") : await stripOf(pictures);
    media.push({ episode: episode.index, format: form === "gif" ? "gif" : "png", bytes });
  }
  return { media, replayVerified: verified };
}

async function replayed(
  arena: Arena,
  episode: EpisodeRecord,
  every: number,
): Promise<{ pictures: Picture[]; same: boolean }> {
  const camera = enlarged(arena.variant.cameras[0]!, SIDE);
  const pictures: Picture[] = [];
  const steps = arena.replaying(episode.seed, episode.actions);
  for (;;) {
    const step = steps.next();
    if (step.done) return { pictures, same: step.value.trajectorySha256 === episode.trajectorySha256 };
    const { steps: executed } = step.value;
    if (executed % every !== 0 && executed !== episode.steps) continue;
    pictures.push(takePicture(arena.world, camera));
    if (pictures.length % TURN === 0) await ask({ kind: "pause" });
  }
}

/** Replays an episode under its first camera, a few rows of a frame at a time. */
async function filmed(arena: Arena, episode: EpisodeRecord): Promise<TrialEnd> {
  const { cameras, dtMs, fields } = arena.variant;
  if (!cameras[0]) throw new ScenarioError("the scenario has no camera");
  const camera = enlargedEven(cameras[0], FILM_SIDE);
  const { width, height } = camera;
  const size = 3 * width * height;
  const every = filmSteps(episode.steps, dtMs);
  const frames = Math.ceil(episode.steps / every) + 1;
  const rgb = new Uint8Array(size * frames);
  const points: FilmPoint[] = [];
  const steps = arena.replaying(episode.seed, episode.actions);
  for (;;) {
    const step = steps.next();
    if (step.done) {
      const film = { width, height, frames, frameMs: every * dtMs, rgb, points };
      return { media: [], film, replayVerified: step.value.trajectorySha256 === episode.trajectorySha256 };
    }
    const { steps: executed, return: sum } = step.value;
    if (executed % every !== 0 && executed !== episode.steps) continue;
    const frame = rgb.subarray(size * points.length, size * (points.length + 1));
    for (let from = 0; from < height; from += FILM_ROWS) {
      drawRows(arena.world, camera, { from, to: Math.min(height, from + FILM_ROWS) }, frame);
      await ask({ kind: "pause" });
    }
    const at = Math.max(0, executed - 1) * fields.length;
    const action = Array.from(episode.actions.subarray(at, at + fields.length));
    points.push({ step: executed, return: sum, action });
  }
}

trial().then(
  (end) => {
    // The pixels of a film move to the other thread.
    const moved = end.film ? [end.film.rgb.buffer as ArrayBuffer] : [];
    port.postMessage({ kind: "end", end } satisfies FromThread, moved);
  },
  (thrown) => {
    const message = thrown instanceof ScenarioError ? thrown.message : `the physics broke down: ${thrown}`;
    port.postMessage({ kind: "broken", message } satisfies FromThread);
  },
);
