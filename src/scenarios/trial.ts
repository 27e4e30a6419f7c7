/** A trial: a policy through many episodes of one scenario, on a thread of its own. */
import { Worker } from "node:worker_threads";
import type { Chunk, EpisodeRecord, Rules } from "./episode.ts";
import { PolicyFailure, ScenarioError } from "./failure.ts";

/** What is tried. Episode i has the seed `seed + i`, so that trials with equal seeds can be compared pair by pair. */
export interface TrialPlan {
  readonly scenario: string;
  readonly actionSpace: string;
  readonly seed: number;
  readonly episodes: number;
  readonly rules: Rules;
  /** Whether the policy is shown the scenario's cameras. */
  readonly pictures: boolean;
  /** What is kept of the first and the worst episode. */
  readonly media: "none" | "gif" | "strip";
  /** Where packs are, when there are any. */
  readonly packs: string | undefined;
  /** The first episode that is run; those before it are done. */
  readonly start: number;
  /** Episodes that were done before, as far as pictures may be made of them. */
  readonly done: readonly FinishedEpisode[];
}

/** An episode of a trial. */
export type FinishedEpisode = EpisodeRecord & { readonly index: number };

/** What the policy is shown; pictures are PNG. */
export interface Shown {
  readonly proprio: readonly number[];
  readonly proprioNames: readonly string[];
  readonly pictures: readonly { readonly camera: string; readonly png: Uint8Array }[];
  /** Simulated milliseconds since the episode began. */
  readonly timeMs: number;
  readonly episode: number;
  /** The first look of an episode. */
  readonly first: boolean;
}

/** A picture of an episode, as PNG or GIF. */
export interface Medium {
  readonly episode: number;
  readonly format: "png" | "gif";
  readonly bytes: Uint8Array;
}

/** Hears of a trial as it goes. */
export interface TrialListener {
  /** Acts. Throws `PolicyFailure`; anything else ends the trial. `signal` is aborted when the trial is called off. */
  act(shown: Shown, signal: AbortSignal): Promise<Chunk>;
  /** An episode is over; the next begins when this has resolved. */
  finished(episode: FinishedEpisode): Promise<void>;
}

/** How a trial ended. */
export interface TrialEnd {
  readonly media: readonly Medium[];
  /** Whether replays of the pictured episodes gave the same trajectories; undefined when none was replayed. */
  readonly replayVerified: boolean | undefined;
}

/** What the thread tells. */
export type FromThread =
  | { kind: "act"; shown: Shown }
  | { kind: "finished"; episode: FinishedEpisode }
  | { kind: "end"; end: TrialEnd }
  | { kind: "broken"; message: string };

/** What the thread is told. */
export type ToThread =
  | { kind: "chunk"; rows: readonly (readonly number[])[]; latencyMs: number }
  | { kind: "failure"; termination: PolicyFailure["termination"]; message: string }
  | { kind: "next" };

/**
 * Runs a trial to its end. Rejects with `ScenarioError` when the scenario can't be run, with the signal's reason when called off, and with
 * whatever `act` threw that is no `PolicyFailure`. The thread ends in each case: a broken engine never outlives its trial.
 */
export async function runTrial(plan: TrialPlan, listener: TrialListener, signal: AbortSignal): Promise<TrialEnd> {
  signal.throwIfAborted();
  const thread = new Worker(new URL("./trial-worker.ts", import.meta.url), { workerData: plan });
  const { promise, resolve, reject } = Promise.withResolvers<TrialEnd>();
  const leave = (): void => reject(signal.reason);
  signal.addEventListener("abort", leave, { once: true });
  const tell = (message: ToThread): void => thread.postMessage(message);
  const answers: { readonly [K in FromThread["kind"]]: (message: Extract<FromThread, { kind: K }>) => Promise<void> } =
    {
      async act({ shown }) {
        try {
          const { rows, latencyMs } = await listener.act(shown, signal);
          tell({ kind: "chunk", rows: rows.map((row) => Array.from(row)), latencyMs });
        } catch (thrown) {
          if (!(thrown instanceof PolicyFailure)) throw thrown;
          tell({ kind: "failure", termination: thrown.termination, message: thrown.message });
        }
      },
      async finished({ episode }) {
        await listener.finished(episode);
        tell({ kind: "next" });
      },
      async end({ end }) {
        resolve(end);
      },
      async broken({ message }) {
        throw new ScenarioError(message);
      },
    };
  thread.on("message", (message: FromThread) => {
    const answer = answers[message.kind] as (message: FromThread) => Promise<void>;
    answer(message).catch(reject);
  });
  thread.on("error", (cause) => reject(new ScenarioError("the physics broke down", { cause })));
  thread.on("exit", () => reject(new ScenarioError("the physics ended before the trial did")));
  try {
    return await promise;
  } finally {
    signal.removeEventListener("abort", leave);
    await thread.terminate();
  }
}
