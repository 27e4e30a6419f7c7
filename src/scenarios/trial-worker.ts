/** The worker thread of `runTrial`: the physics of one trial, which requests every action. */
import { parentPort, workerData } from "node:worker_threads";
import { Arena, type Chunk, type EpisodeRecord, type Look } from "./episode.ts";
import { PolicyFailure, ScenarioError } from "./failure.ts";
import { builtIn, variantFor } from "./index.ts";
import { scenarioOfPack } from "./pack.ts";
import { enlarged, filmOf, filmSteps, type Picture, pngOf, spread, stripOf, takePicture } from "./picture.ts";
import type { FinishedEpisode, FromThread, Medium, NextEpisode, ToThread, TrialEnd, TrialPlan } from "./trial.ts";

const STRIP = 6;
/** Images that are rendered in one go, before the core can be yielded. */
const TURN = 10;
/** Pixels of the longer side. */
const SIDE = 320;

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
  if (!variant) throw new ScenarioError("scenario not found");
  const arena = await Arena.of(variant);
  try {
    for (;;) {
      const next = await nextOf(variant.proprioNames);
      if (next.index === undefined) return await pictured(arena, next.rendered);
      const { index } = next;
      const record = await arena.run(plan.seed + index, (look) => act(arena, index, look), plan.rules);
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
  if (form === "none" || episodes.length === 0) return { media: [], replayVerified: undefined };
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
    if (step.value % every !== 0 && step.value !== episode.steps) continue;
    pictures.push(takePicture(arena.world, camera));
    if (pictures.length % TURN === 0) await ask({ kind: "pause" });
  }
}

trial().then(
  (end) => port.postMessage({ kind: "end", end } satisfies FromThread),
  (thrown) => {
    const message = thrown instanceof ScenarioError ? thrown.message : `the physics broke down: ${thrown}`;
    port.postMessage({ kind: "broken", message } satisfies FromThread);
  },
);
