/** A trial: a policy in many episodes of one scenario, on its own thread. */
import { Worker } from "node:worker_threads";
import type { Signal } from "../cancellation.ts";
import { steadyNow } from "../clock.ts";
import type { Control } from "./controls.ts";
import type { Chunk, EpisodeRecord, Rules } from "./episode.ts";
import { PolicyFailure, ScenarioError } from "./failure.ts";
import type { Pack } from "./pack.ts";
import type { Film } from "./picture.ts";
import { isFault } from "./scores.ts";

/** A trial's settings. Episode i has the seed `seed + i`, so that trials with equal seeds can be compared pairwise. */
export interface TrialPlan {
  readonly scenario: string;
  readonly actionSpace: string;
  readonly seed: number;
  readonly rules: Rules;
  /** Whether the policy receives the scenario's camera images. */
  readonly pictures: boolean;
  /** The form of rendered episodes. Of a film, only the first one is rendered. */
  readonly media: "none" | "gif" | "strip" | "film";
  /** The scenario's pack; undefined for a built-in one. */
  readonly pack: Pack | undefined;
}

/** An episode of a trial. */
export type FinishedEpisode = EpisodeRecord & {
  readonly index: number;
  /** Milliseconds of its physics and its policy; waits for a core are not counted. */
  readonly wallMs: number;
};

/** The policy's observation; images are PNG. */
export interface Shown {
  readonly proprio: readonly number[];
  readonly proprioNames: readonly string[];
  readonly pictures: readonly { readonly camera: string; readonly png: Uint8Array }[];
  /** Simulated milliseconds since the episode began. */
  readonly timeMs: number;
  readonly episode: number;
  /** Whether it is the first observation of an episode. */
  readonly first: boolean;
}

/** Media of an episode, as PNG or GIF. */
export interface Medium {
  readonly episode: number;
  readonly format: "png" | "gif";
  readonly bytes: Uint8Array;
}

/** The next episode of a trial; if none is left, the finished ones to render. */
export type NextEpisode =
  | { readonly index: number /** Acts instead of the policy. */; readonly control?: Control }
  | { readonly index: undefined; readonly rendered: readonly FinishedEpisode[] };

/** The listener of a running trial. */
export interface TrialListener {
  next(): Promise<NextEpisode>;
  /**
   * Requests a chunk. Throws `PolicyFailure`; any other error ends the trial. `signal` is aborted when the trial is canceled; `wallMs` is
   * the duration of the episode so far.
   */
  act(shown: Shown, signal: AbortSignal, wallMs: number): Promise<Chunk>;
  /** Receives a finished episode. */
  finished(episode: FinishedEpisode): Promise<void>;
  /** Waits for a core for the physics; resolves with its release, which takes effect once. */
  core(signal: Signal): Promise<() => void>;
}

/** A point of a film's course: after how many steps, the return so far, and the last executed action. */
export interface FilmPoint {
  readonly step: number;
  readonly return: number;
  readonly action: readonly number[];
}

/** A trial's result. */
export interface TrialEnd {
  readonly media: readonly Medium[];
  /** The film of the rendered episode, with a point for each of its frames. */
  readonly film?: Film & { readonly points: readonly FilmPoint[] };
  /** Whether replays of the rendered episodes gave the same trajectories; undefined if none was replayed. */
  readonly replayVerified: boolean | undefined;
}

/** The worker thread's output. The thread computes from one input to its next output, and then waits. */
export type FromThread =
  | { kind: "next"; proprioNames: readonly string[] }
  | { kind: "pause" }
  | { kind: "act"; shown: Omit<Shown, "proprioNames"> }
  | { kind: "finished"; episode: Omit<FinishedEpisode, "wallMs"> }
  | { kind: "end"; end: TrialEnd }
  | { kind: "broken"; message: string };

/** The worker thread's input. */
export type ToThread =
  | { kind: "chunk"; rows: readonly (readonly number[])[]; latencyMs: number }
  | { kind: "failure"; termination: PolicyFailure["termination"]; message: string }
  | { kind: "received" }
  | { kind: "next"; next: NextEpisode };

/** The episodes to render: the first, and the one with the least progress among those without a fault, otherwise among all. */
export function firstAndWorst(episodes: readonly FinishedEpisode[]): readonly FinishedEpisode[] {
  const first = episodes[0];
  const fair = episodes.filter((episode) => !isFault(episode));
  const worst = (fair.length > 0 ? fair : episodes).toSorted((a, b) => a.progress - b.progress)[0];
  return first && worst ? [...new Set([first, worst])] : [];
}

/** The most films of an evaluation. */
const MOST_FILMS = 32;

/** The episodes to film. */
export function filmedOf(
  episodes: readonly FinishedEpisode[],
  which: "first_and_worst" | "failed" | "all",
): readonly FinishedEpisode[] {
  if (which === "first_and_worst") return firstAndWorst(episodes);
  return episodes.filter(({ success }) => which === "all" || !success).slice(0, MOST_FILMS);
}

/**
 * Runs a trial to its end. Rejects with `ScenarioError` if the scenario cannot run, with the signal's reason if canceled, and with any
 * error of the listener that is not a `PolicyFailure`. The thread ends in each case: a broken engine never outlives its trial.
 */
export async function runTrial(plan: TrialPlan, listener: TrialListener, signal: AbortSignal): Promise<TrialEnd> {
  signal.throwIfAborted();
  let giveBack = await listener.core(signal);
  let since = steadyNow();
  let wallMs = 0;
  let ended = false;
  let proprioNames: readonly string[] = [];
  const thread = new Worker(new URL("./trial-worker.ts", import.meta.url), { workerData: plan });
  const { promise, resolve, reject } = Promise.withResolvers<TrialEnd>();
  const leave = (): void => reject(signal.reason);
  signal.addEventListener("abort", leave, { once: true });
  /** The result of the last step, which lets the worker thread continue. */
  const send = async (message: ToThread): Promise<void> => {
    giveBack = await listener.core(signal);
    // The thread may have exited meanwhile.
    if (ended) return giveBack();
    since = steadyNow();
    thread.postMessage(message);
  };
  const acted = async (shown: Shown): Promise<ToThread> => {
    const askedAt = steadyNow();
    try {
      const { rows, latencyMs } = await listener.act(shown, signal, wallMs);
      wallMs += latencyMs;
      return { kind: "chunk", rows: rows.map((row) => Array.from(row)), latencyMs };
    } catch (thrown) {
      if (!(thrown instanceof PolicyFailure)) throw thrown;
      wallMs += steadyNow() - askedAt;
      return { kind: "failure", termination: thrown.termination, message: thrown.message };
    }
  };
  const answers: { readonly [K in FromThread["kind"]]: (message: Extract<FromThread, { kind: K }>) => Promise<void> } =
    {
      async next({ proprioNames: names }) {
        proprioNames = names;
        const next = await listener.next();
        wallMs = 0;
        await send({ kind: "next", next });
      },
      async act({ shown }) {
        await send(await acted({ ...shown, proprioNames }));
      },
      async finished({ episode }) {
        await listener.finished({ ...episode, wallMs });
        await send({ kind: "received" });
      },
      async pause() {
        await send({ kind: "received" });
      },
      async end({ end }) {
        resolve(end);
      },
      async broken({ message }) {
        throw new ScenarioError(message);
      },
    };
  thread.on("message", (message: FromThread) => {
    giveBack();
    wallMs += steadyNow() - since;
    const answer = answers[message.kind] as (message: FromThread) => Promise<void>;
    answer(message).catch(reject);
  });
  thread.on("error", (cause) => reject(new ScenarioError("the physics engine crashed", { cause })));
  thread.on("exit", () => reject(new ScenarioError("the physics thread exited before the trial ended")));
  try {
    return await promise;
  } finally {
    ended = true;
    signal.removeEventListener("abort", leave);
    await thread.terminate();
    giveBack();
  }
}
