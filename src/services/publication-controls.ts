/** Runs the controls of published evaluations, each once per scenario and seeds. */
import type { Signal } from "../cancellation.ts";
import {
  CONTROL_RULES,
  type Control,
  controlEpisodes,
  MOST_CONTROL_STEPS,
  referenceOf,
} from "../scenarios/controls.ts";
import type { EpisodeRecord } from "../scenarios/episode.ts";
import { ScenarioError } from "../scenarios/failure.ts";
import { controlOf, type PublishedControls, type PublishedEvaluation, playable } from "../scenarios/published.ts";
import type { Scenario, ScenarioVariant } from "../scenarios/scenario.ts";
import { runTrial } from "../scenarios/trial.ts";
import { MOST_RECORDED } from "./publication-drafts.ts";

/** Results in memory; one can have megabytes of the reference's actions. */
const MOST_KEPT = 8;
/** The most steps of each control in a publication, if all of its episodes last as long as they can. */
const MOST_STEPS = 16 * MOST_CONTROL_STEPS;

/** Places in this process; organizations take turns. */
interface Turns {
  enter(orgId: string, signal: Signal): Promise<() => void>;
}

/** Controls to run: one entry per scenario and first seed. */
export type ControlRun = Omit<PublishedControls, "arms"> & {
  readonly played: { readonly scenario: Scenario; readonly variant: ScenarioVariant };
};

/** The controls' results in this process. They are equal in every process, so that nothing is stored. */
export class Controls {
  readonly #scenarios: ReadonlyMap<string, Scenario>;
  readonly #cores: Turns;
  readonly #threads: Turns;
  /** The latest results, oldest first. */
  readonly #results = new Map<string, PublishedControls>();
  readonly #running = new Map<string, Promise<PublishedControls>>();

  constructor(scenarios: ReadonlyMap<string, Scenario>, { cores, threads }: { cores: Turns; threads: Turns }) {
    this.#scenarios = scenarios;
    this.#cores = cores;
    this.#threads = threads;
  }

  /** The controls that evaluations need, or a sentence that says why they can't be run. More runs share the steps of 16. */
  runsOf(evaluations: readonly PublishedEvaluation[]): ControlRun[] | string {
    const longest = new Map<string, PublishedEvaluation>();
    for (const evaluation of evaluations.toSorted((a, b) => b.episodes.length - a.episodes.length)) {
      const key = `${evaluation.scenario.digest} ${evaluation.seed}`;
      if (evaluation.episodes.length > 0 && !longest.has(key)) longest.set(key, evaluation);
    }
    const share = Math.floor(MOST_STEPS / Math.max(1, longest.size));
    const runs: ControlRun[] = [];
    for (const { scenario: stated, seed, episodes: ran } of longest.values()) {
      const played = playable(stated, this.#scenarios);
      if ("fault" in played) return played.fault;
      const { mode: _, ...scenario } = stated;
      runs.push({ scenario, seed, episodes: controlEpisodes(ran.length, played.variant, share), played });
    }
    const steps = runs.reduce((sum, { episodes, played }) => sum + episodes * played.variant.maxSteps, 0);
    if (steps <= MOST_STEPS) return runs;
    return `the controls would take up to ${steps} control steps in ${runs.length} scenarios and seeds, more than ${MOST_STEPS}; compare on fewer tasks`;
  }

  /**
   * Runs controls one after another, or returns a sentence that says why they can't be published: one of them fails, or the reference's
   * actions take more than `room` characters of base64.
   */
  async of(orgId: string, runs: readonly ControlRun[], room: number): Promise<PublishedControls[] | string> {
    const results: PublishedControls[] = [];
    let recorded = 0;
    try {
      for (const run of runs) {
        const result = await this.#resultOf(orgId, run);
        for (const { actions = [] } of result.arms) for (const { length } of actions) recorded += length;
        if (recorded > room)
          return `the recorded actions and those of the reference controller take more than ${MOST_RECORDED} bytes; run fewer episodes or tasks`;
        results.push(result);
      }
      return results;
    } catch (thrown) {
      if (thrown instanceof ScenarioError) return `the controls cannot be run: ${thrown.message}`;
      throw thrown;
    }
  }

  /** A cached result, or that of a run; equal runs at the same time are one. */
  #resultOf(orgId: string, { played, ...asked }: ControlRun): Promise<PublishedControls> {
    const key = `${asked.scenario.digest} ${asked.seed} ${asked.episodes}`;
    const known = this.#results.get(key);
    if (known) return Promise.resolve(known);
    const current = this.#running.get(key);
    if (current) return current;
    const running = this.#run(orgId, played, asked)
      .then((result) => {
        this.#results.set(key, result);
        const [oldest] = this.#results.keys();
        if (this.#results.size > MOST_KEPT && oldest !== undefined) this.#results.delete(oldest);
        return result;
      })
      .finally(() => this.#running.delete(key));
    this.#running.set(key, running);
    return running;
  }

  async #run(
    orgId: string,
    played: { scenario: Scenario; variant: ScenarioVariant },
    asked: Omit<PublishedControls, "arms">,
  ): Promise<PublishedControls> {
    const leave = await this.#threads.enter(orgId, new AbortController().signal);
    try {
      return await run(played, asked, (signal) => this.#cores.enter(orgId, signal));
    } finally {
      leave();
    }
  }
}

async function run(
  { scenario, variant }: { scenario: Scenario; variant: ScenarioVariant },
  asked: Omit<PublishedControls, "arms">,
  core: (signal: Signal) => Promise<() => void>,
): Promise<PublishedControls> {
  const { seed, episodes } = asked;
  const model = referenceOf(scenario, variant);
  const controls: Control[] = ["zero", "random", ...(model === undefined ? [] : (["reference"] as const))];
  const records = new Map(controls.map((control): [Control, EpisodeRecord[]] => [control, []]));
  const turns = controls
    .flatMap((control) => Array.from({ length: episodes }, (_, index) => ({ index, control })))
    .values();
  let now: Control = "zero";
  const plan = {
    scenario: `${scenario.id}@${scenario.version}`,
    actionSpace: variant.actionSpace,
    seed,
    rules: CONTROL_RULES,
    pictures: false,
    media: "none",
    pack: scenario.pack,
  } as const;
  const listener = {
    async next() {
      const turn = turns.next();
      if (turn.done) return { index: undefined, rendered: [] };
      now = turn.value.control;
      return turn.value;
    },
    async act(): Promise<never> {
      throw new Error("a control acts in the thread");
    },
    async finished(episode: EpisodeRecord) {
      records.get(now)?.push(episode);
    },
    core,
  };
  await runTrial(plan, listener, new AbortController().signal);
  const arms = controls.map((control) =>
    controlOf(asked.scenario.digest, control, records.get(control)!, control === "reference" ? model : undefined),
  );
  return { ...asked, arms };
}
