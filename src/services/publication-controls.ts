/** Runs the controls of published evaluations, each once per scenario and seeds. */
import type { Signal } from "../cancellation.ts";
import { CONTROL_RULES, type Control, controlEpisodes, referenceOf } from "../scenarios/controls.ts";
import type { EpisodeRecord } from "../scenarios/episode.ts";
import { ScenarioError } from "../scenarios/failure.ts";
import { controlOf, type PublishedControls, type PublishedEvaluation, playable } from "../scenarios/published.ts";
import type { Scenario, ScenarioVariant } from "../scenarios/scenario.ts";
import { runTrial } from "../scenarios/trial.ts";

/** Results in memory; one can have megabytes of the reference's actions. */
const MOST_KEPT = 8;

/** Places in this process; organizations take turns. */
interface Turns {
  enter(orgId: string, signal: Signal): Promise<() => void>;
}

/** The controls' results in this process. They are equal in every process, so that nothing is stored. */
export class Controls {
  readonly #scenarios: ReadonlyMap<string, Scenario>;
  readonly #cores: Turns;
  readonly #threads: Turns;
  readonly #results = new Map<string, Promise<PublishedControls>>();

  constructor(scenarios: ReadonlyMap<string, Scenario>, { cores, threads }: { cores: Turns; threads: Turns }) {
    this.#scenarios = scenarios;
    this.#cores = cores;
    this.#threads = threads;
  }

  /** The controls of evaluations, one entry per scenario and first seed; or why one can't be run, in a sentence. */
  async of(orgId: string, evaluations: readonly PublishedEvaluation[]): Promise<PublishedControls[] | string> {
    const wanted = new Map<string, () => Promise<PublishedControls>>();
    for (const evaluation of evaluations.toSorted((a, b) => b.episodes.length - a.episodes.length)) {
      const { scenario: stated, seed } = evaluation;
      const known = playable(stated, this.#scenarios);
      if ("fault" in known) return known.fault;
      const episodes = controlEpisodes(evaluation.episodes.length, known.variant);
      const key = `${stated.digest} ${seed}`;
      if (episodes === 0 || wanted.has(key)) continue;
      const { mode: _, ...scenario } = stated;
      wanted.set(key, () =>
        this.#result(`${key} ${episodes}`, () => this.#run(orgId, known, { scenario, seed, episodes })),
      );
    }
    try {
      return await Promise.all([...wanted.values()].map((result) => result()));
    } catch (thrown) {
      if (thrown instanceof ScenarioError) return `the controls cannot be run: ${thrown.message}`;
      throw thrown;
    }
  }

  #result(key: string, run: () => Promise<PublishedControls>): Promise<PublishedControls> {
    const known = this.#results.get(key);
    if (known) return known;
    const result = run();
    this.#results.set(key, result);
    result.catch(() => this.#results.delete(key));
    const [oldest] = this.#results.keys();
    if (this.#results.size > MOST_KEPT && oldest !== undefined) this.#results.delete(oldest);
    return result;
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
