/** Published evaluations: their documents, digests and signatures, and the replay that verifies them. */
import { createHash, createPublicKey, type KeyObject, sign, verify } from "node:crypto";
import { canonical, sha256Of } from "./canonical.ts";
import { CONTROL_RULES, type Control, controlEpisodes, controlPolicy } from "./controls.ts";
import { Arena, type EpisodePolicy, type EpisodeRecord } from "./episode.ts";
import { builtIn, digestOf, variantFor } from "./index.ts";
import { type Metric, type Outcome, pairOf } from "./paired.ts";
import { ENGINE_FACTS, FAULTS, type Scenario, type ScenarioVariant, type Termination } from "./scenario.ts";
import { scoresOf } from "./scores.ts";
import { type PublishedSuite, suiteFaults, suiteResults } from "./suite-published.ts";

/** A published episode: everything that a replay of its actions gives again. */
export interface PublishedEpisode {
  readonly seed: number;
  readonly success: boolean;
  readonly termination: string;
  readonly return: number;
  readonly progress: number;
  readonly steps: number;
  readonly sim_time_s: number;
  readonly metrics: Readonly<Record<string, number>>;
  readonly initial_state_sha256: string;
  readonly trajectory_sha256: string;
  /** Every applied action, as base64 of little-endian 64-bit floats. */
  readonly actions: string;
}

/** The scenario of a published evaluation. */
interface PublishedScenario {
  readonly id: string;
  readonly version: string;
  readonly digest: string;
  readonly engine: string;
  readonly engine_version: string;
  readonly action_space: string;
  readonly mode: string;
}

/** An evaluation without its digests and scores, which `completed` adds. */
export interface PublishedFacts {
  /** The policy's label in a comparison. */
  readonly label?: string;
  /** Position of the task, in a comparison on a suite. */
  readonly task?: number;
  readonly scenario: PublishedScenario;
  readonly policy: object;
  readonly seed: number;
  readonly requested_episodes: number;
  readonly finished_at: number;
  readonly runtime: string;
  /** Number of evaluations of this policy in this scenario that its publisher had started by then, including this one. */
  readonly attempts: number;
  readonly episodes: readonly PublishedEpisode[];
}

/** A published evaluation. */
export interface PublishedEvaluation extends PublishedFacts {
  readonly scores: object;
  /** The evaluation's `reproducibility.hash`. */
  readonly hash: string;
  readonly digests: Readonly<Record<"scenario" | "policy" | "facts" | "actions" | "episodes" | "scores", string>>;
}

/** How a comparison judged its pairs, and what they show. */
export interface PublishedComparison {
  readonly metric: Metric;
  readonly policies: number;
  readonly stop_when_known: boolean;
  /** Labels of policies whose evaluations failed; on a suite, in any task. */
  readonly failed: readonly string[];
  readonly pairs: readonly object[];
  /** The suite, and each policy's weighted means over its tasks; absent for a scenario. */
  readonly suite?: PublishedSuite;
  readonly overall?: readonly object[];
}

/** How pairs are judged. */
type Judged = Omit<PublishedComparison, "pairs" | "failed" | "overall">;

/** What a comparison's evaluations show: its pairs, and on a suite each policy's weighted means. */
export const comparisonFacts = (
  evaluations: readonly PublishedFacts[],
  { suite, ...judged }: Judged,
): Pick<PublishedComparison, "pairs" | "overall"> =>
  suite ? suiteResults(evaluations, judged, suite) : { pairs: pairsOf(evaluations, judged) };

/** How a control does on an evaluation's seeds. */
interface PublishedControl {
  readonly control: Control;
  /** The reference model. */
  readonly model?: string;
  readonly scores: object;
  /** As an evaluation's hash. */
  readonly hash: string;
  /** The reference's actions, one text per episode. A replay of the other controls computes theirs. */
  readonly actions?: readonly string[];
}

/** How the controls do in a scenario, each on the seeds from `seed` on. */
export interface PublishedControls {
  readonly scenario: Omit<PublishedScenario, "mode">;
  readonly seed: number;
  readonly episodes: number;
  readonly arms: readonly PublishedControl[];
}

/** A document without its digests, which `completedDocument` adds. */
export interface DocumentFacts {
  readonly object: "publication";
  readonly format: 1;
  readonly id: string;
  readonly title: string;
  readonly publisher: string;
  readonly published_at: number;
  readonly gateway: { readonly version: string; readonly url: string };
  readonly evaluations: readonly PublishedEvaluation[];
  readonly comparison?: PublishedComparison;
  /** One entry per scenario and first seed. */
  readonly controls: readonly PublishedControls[];
}

/** A published document. */
export interface PublishedDocument extends DocumentFacts {
  readonly digests: Readonly<Record<"head" | "comparison" | "controls", string>>;
}

/** The signature of a document, over its canonical JSON without the member `signature`. */
interface Signature {
  readonly alg: "EdDSA";
  readonly kid: string;
  readonly value: string;
}

/** A public key as JSON Web Key (RFC 8037). */
export interface PublicJwk {
  readonly kty: string;
  readonly crv: string;
  readonly x: string;
}

/** The id of a key: its SHA-256 thumbprint (RFC 7638). */
export const thumbprintOf = ({ crv, kty, x }: PublicJwk): string =>
  createHash("sha256").update(JSON.stringify({ crv, kty, x })).digest("base64url");

/** Adds scores, hash and digests to an evaluation. */
export function completed(facts: PublishedFacts): PublishedEvaluation {
  const scores = scoresFrom(facts.episodes);
  const bare = facts.episodes.map(({ actions: _, ...rest }) => rest);
  return {
    ...facts,
    scores,
    hash: hashOf(facts.scenario.digest, facts.episodes),
    digests: {
      scenario: sha256Of(canonical(facts.scenario)),
      policy: sha256Of(canonical(facts.policy)),
      facts: sha256Of(canonical(othersOf(facts))),
      actions: sha256Of(Buffer.concat(facts.episodes.map(({ actions }) => Buffer.from(actions, "base64")))),
      episodes: sha256Of(canonical(bare)),
      scores: sha256Of(canonical(scores)),
    },
  };
}

const othersOf = ({
  label,
  task,
  seed,
  requested_episodes,
  finished_at,
  runtime,
  attempts,
}: PublishedFacts): object => ({
  ...{ label, task, seed, requested_episodes, finished_at, runtime, attempts },
});

/** Adds digests to a document. Together with those of the evaluations they cover every member. */
export function completedDocument(facts: DocumentFacts): PublishedDocument {
  const { object, format, id, title, publisher, published_at, gateway, comparison, controls } = facts;
  const head = { object, format, id, title, publisher, published_at, gateway };
  const digests = {
    head: sha256Of(canonical(head)),
    comparison: sha256Of(canonical(comparison ?? null)),
    controls: sha256Of(canonical(controls)),
  };
  return { ...facts, digests };
}

function hashOf(scenario: string, episodes: readonly PlayedEpisode[]): string {
  const hash = createHash("sha256").update(scenario);
  for (const { seed, trajectory_sha256 } of episodes) hash.update(`${seed} ${trajectory_sha256}`);
  return `sha256:${hash.digest("hex")}`;
}

/** The result of a control. */
export const controlOf = (
  scenario: string,
  control: Control,
  records: readonly EpisodeRecord[],
  model: string | undefined,
): PublishedControl => ({
  control,
  ...(model !== undefined && { model }),
  scores: scoresFrom(records.map(playedOf)),
  hash: hashOf(scenario, records.map(playedOf)),
  ...(control === "reference" && { actions: records.map(({ actions }) => base64Of(actions)) }),
});

/** An episode without its actions. */
type PlayedEpisode = Omit<PublishedEpisode, "actions">;

const playedOf = (record: EpisodeRecord): PlayedEpisode => ({
  seed: record.seed,
  success: record.success,
  termination: record.termination,
  return: record.return,
  progress: record.progress,
  steps: record.steps,
  sim_time_s: record.simTimeS,
  metrics: record.metrics,
  initial_state_sha256: record.initialStateSha256,
  trajectory_sha256: record.trajectorySha256,
});

/** The scores that follow from the physics alone: none about the policy's latency. */
function scoresFrom(episodes: readonly PlayedEpisode[]): object {
  const { successRate, progress, steps, medianTimeToSuccessS, terminations, metrics, ...scores } = scoresOf(
    episodes.map((episode) => ({
      seed: episode.seed,
      success: episode.success,
      termination: episode.termination as Termination,
      error: undefined,
      return: episode.return,
      progress: episode.progress,
      steps: episode.steps,
      simTimeS: episode.sim_time_s,
      policyCalls: 0,
      latenciesMs: [],
      metrics: episode.metrics,
      clippedSteps: 0,
      staleSteps: 0,
      meanActionDelta: 0,
      initialStateSha256: episode.initial_state_sha256,
      trajectorySha256: episode.trajectory_sha256,
    })),
  );
  const { value, successes, n, ci95, ci95Exact } = successRate;
  return {
    success_rate: { value, successes, n, ci95, ci95_exact: ci95Exact },
    return: scores.return,
    progress: { mean: progress },
    episode_steps: steps,
    ...(medianTimeToSuccessS !== undefined && { time_to_success_s: { median: medianTimeToSuccessS } }),
    terminations,
    metrics,
  };
}

/** Judges every pair of a comparison's policies on the seeds that both have completed. */
function pairsOf(
  evaluations: readonly Pick<PublishedFacts, "label" | "episodes">[],
  { metric, policies, stop_when_known: mayStop }: Judged,
): object[] {
  const judging = { metric, alpha: 0.05, pairs: (policies * (policies - 1)) / 2, mayStop };
  const outcomes = evaluations.map(({ episodes }): readonly Outcome[] => episodes);
  return evaluations.flatMap(({ label: a = "" }, i) =>
    evaluations.slice(i + 1).map(({ label: b = "" }, j) => {
      const { n, success, progress, mcnemar, better, ...pair } = pairOf(outcomes[i]!, outcomes[i + 1 + j]!, judging);
      const difference = ({ mean, ci95 }: typeof success) => ({ mean, ...(n > 1 && { ci95 }) });
      return {
        ...{ a, b, n },
        success: difference(success),
        progress: difference(progress),
        return: difference(pair.return),
        mcnemar: { only_a: mcnemar.onlyA, only_b: mcnemar.onlyB, p: mcnemar.p },
        ...(better !== undefined && { better: better === "a" ? a : b }),
      };
    }),
  );
}

/** A document with its signature. */
export function signed<T extends object>(document: T, key: KeyObject, kid: string): T & { signature: Signature } {
  const value = sign(null, Buffer.from(canonical(document)), key).toString("base64url");
  return { ...document, signature: { alg: "EdDSA", kid, value } };
}

/** Why a document's signature is invalid; undefined if it is valid. */
export function faultOfSignature(
  document: Readonly<Record<string, unknown>>,
  keys: readonly PublicJwk[],
): string | undefined {
  const { signature, ...unsigned } = document;
  const { alg, kid, value } = (signature ?? {}) as Partial<Record<keyof Signature, unknown>>;
  if (alg !== "EdDSA" || typeof kid !== "string" || typeof value !== "string") return "the document is not signed";
  const jwk = keys.find((each) => each.kty === "OKP" && each.crv === "Ed25519" && thumbprintOf(each) === kid);
  if (!jwk) return `the signing key ${kid} is not published`;
  const key = createPublicKey({ format: "jwk", key: { kty: jwk.kty, crv: jwk.crv, x: jwk.x } });
  const isValid = verify(null, Buffer.from(canonical(unsigned)), key, Buffer.from(value, "base64url"));
  return isValid ? undefined : "the signature does not match the document";
}

/** The result of a verification. */
export interface Verified {
  /** What differs, one sentence each; empty if nothing does. */
  readonly problems: readonly string[];
  /** Number of replayed episodes. */
  readonly replayed: number;
  /** Number of replayed episodes of controls. */
  readonly controls: number;
}

/**
 * Recomputes a document: its digests, its scores, each episode by replaying the recorded actions in the same scenario, and the pairs of a
 * comparison. The signature is checked separately. Never throws because of the document.
 */
export async function recomputed(
  document: Readonly<Record<string, unknown>>,
  scenarios: ReadonlyMap<string, Scenario>,
): Promise<Verified> {
  const problems: string[] = [];
  let [replayed, controls] = [0, 0];
  try {
    const published = document as unknown as PublishedDocument;
    const { object, format, evaluations, comparison, digests } = published;
    if (object !== "publication" || format !== 1 || evaluations.length === 0)
      return { problems: ["the document is not a publication of format 1"], replayed, controls };
    problems.push(...differing(completedDocument(published).digests, digests));
    for (const [i, evaluation] of evaluations.entries()) {
      const name = evaluation.label === undefined ? `evaluations.${i}` : `evaluations.${i} (${evaluation.label})`;
      problems.push(...faultsOf(evaluation).map((fault) => `${name}: ${fault}`));
      const result = await replayOf(evaluation, scenarios);
      problems.push(...result.problems.map((fault) => `${name}: ${fault}`));
      replayed += result.replayed;
    }
    if (comparison) problems.push(...faultsOfComparison(evaluations, comparison));
    for (const [i, stated] of published.controls.entries()) {
      const result = await controlsAgain(stated, scenarios);
      problems.push(...result.problems.map((fault) => `controls.${i}: ${fault}`));
      controls += result.replayed;
    }
  } catch (thrown) {
    problems.push(`the document is malformed: ${thrown instanceof Error ? thrown.message : thrown}`);
  }
  return { problems, replayed, controls };
}

/** What of a comparison does not follow from its evaluations. */
function faultsOfComparison(evaluations: readonly PublishedFacts[], comparison: PublishedComparison): string[] {
  const { suite, pairs, overall } = comparison;
  const faults = suite ? suiteFaults(evaluations, suite).map((fault) => `comparison.suite: ${fault}`) : [];
  if (faults.length > 0) return faults;
  const again = comparisonFacts(evaluations, comparison);
  if (canonical(again.pairs) !== canonical(pairs)) faults.push("comparison.pairs differ from what the episodes give");
  if (canonical(again.overall ?? null) !== canonical(overall ?? null))
    faults.push("comparison.overall differs from what the episodes give");
  return faults;
}

/** What of an evaluation does not follow from its content. */
function faultsOf(evaluation: PublishedEvaluation): string[] {
  const again = completed(evaluation);
  const faults = differing(again.digests, evaluation.digests);
  if (canonical(again.scores) !== canonical(evaluation.scores)) faults.push("the scores differ from the episodes'");
  if (again.hash !== evaluation.hash)
    faults.push(`\`hash\` differs: ${evaluation.hash} stated, ${again.hash} computed`);
  const isInOrder = evaluation.episodes.every(({ seed }, i) => seed === evaluation.seed + i);
  if (!isInOrder) faults.push("the episodes' seeds are not consecutive");
  return faults;
}

/** Names the digests that differ from their content's. */
const differing = (computed: Readonly<Record<string, string>>, stated: Readonly<Record<string, string>>): string[] =>
  Object.entries(computed)
    .filter(([name, value]) => stated[name] !== value)
    .map(
      ([name, value]) => `digest \`${name}\` differs: the document states ${stated[name]}, its content has ${value}`,
    );

/** A scenario's variant, or why it can't be played here. */
type Playable = { readonly scenario: Scenario; readonly variant: ScenarioVariant } | { readonly fault: string };

/** Finds the published scenario: the same version with the same digest. */
export function playable(stated: PublishedControls["scenario"], scenarios: ReadonlyMap<string, Scenario>): Playable {
  const name = `${stated.id}@${stated.version}`;
  const current = scenarios.get(stated.id);
  const scenario = current?.version === stated.version ? current : builtIn(name);
  const variant = scenario && variantFor(scenario, stated.action_space);
  if (!scenario || !variant) return { fault: `scenario ${name} is not available here` };
  if (stated.engine !== ENGINE_FACTS.name || stated.engine_version !== ENGINE_FACTS.version)
    return { fault: `the engine is ${ENGINE_FACTS.name} ${ENGINE_FACTS.version} here` };
  const here = digestOf(scenario, variant);
  if (here === stated.digest) return { scenario, variant };
  return { fault: `the scenario's digest differs: ${stated.digest} stated, ${here} here` };
}

/** A replay of some of a document's episodes. */
type Replay = Omit<Verified, "controls">;

/** Replays the episodes of an evaluation. */
async function replayOf(
  { scenario: stated, episodes }: PublishedEvaluation,
  scenarios: ReadonlyMap<string, Scenario>,
): Promise<Replay> {
  const known = playable(stated, scenarios);
  if ("fault" in known) return { problems: [known.fault], replayed: 0 };
  const { variant } = known;
  const arena = await Arena.of(variant);
  const problems: string[] = [];
  try {
    for (const episode of episodes) {
      const actions = actionsOf(episode.actions);
      if (!fits(actions, variant) || actions.length !== episode.steps * variant.fields.length) {
        problems.push(`seed ${episode.seed}: the recorded actions don't fit its ${episode.steps} steps`);
        continue;
      }
      const again = playedOf(arena.replay(episode.seed, actions));
      // A fault of the policy leaves no trace in the physics.
      const isFault = FAULTS.has(episode.termination as Termination);
      const found = { ...again, ...(isFault && { success: false, termination: episode.termination }) };
      for (const [field, value] of Object.entries(found)) {
        const said = episode[field as keyof typeof found];
        if (canonical(said) === canonical(value)) continue;
        problems.push(`seed ${episode.seed}: \`${field}\` is ${canonical(said)}, the replay gives ${canonical(value)}`);
      }
    }
  } finally {
    arena.close();
  }
  return { problems, replayed: episodes.length };
}

/** Plays the controls again, and replays the reference's actions. */
async function controlsAgain(
  { scenario: stated, seed, episodes, arms }: PublishedControls,
  scenarios: ReadonlyMap<string, Scenario>,
): Promise<Replay> {
  const known = playable(stated, scenarios);
  if ("fault" in known) return { problems: [known.fault], replayed: 0 };
  const { scenario, variant } = known;
  if (episodes !== controlEpisodes(episodes, variant)) return { problems: ["`episodes` is out of range"], replayed: 0 };
  const arena = await Arena.of(variant);
  const problems: string[] = [];
  try {
    for (const { control, model, scores, hash, actions } of arms) {
      const records: EpisodeRecord[] = [];
      for (let i = 0; i < episodes; i++) {
        const recorded = control === "reference" ? actionsOf(actions?.[i] ?? "") : undefined;
        if (recorded && !fits(recorded, variant)) throw new Error(`the actions of control ${control} don't fit`);
        const policy = (): EpisodePolicy => controlPolicy(control, scenario, variant, seed + i);
        records.push(recorded ? arena.replay(seed + i, recorded) : await arena.run(seed + i, policy(), CONTROL_RULES));
      }
      const again = controlOf(stated.digest, control, records, model);
      if (canonical(again.scores) !== canonical(scores)) problems.push(`the scores of control ${control} differ`);
      if (again.hash !== hash)
        problems.push(`the \`hash\` of control ${control} differs: ${hash} stated, ${again.hash} computed`);
    }
  } finally {
    arena.close();
  }
  return { problems, replayed: episodes * arms.length };
}

/** Whether actions are of an episode: complete, finite, and not too many. */
const fits = (actions: Float64Array, { fields, maxSteps }: ScenarioVariant): boolean =>
  actions.length % fields.length === 0 && actions.length <= maxSteps * fields.length && actions.every(Number.isFinite);

/** Numbers as base64 of little-endian 64-bit floats. */
function base64Of(numbers: Float64Array): string {
  const bytes = Buffer.alloc(numbers.length * 8);
  for (const [i, number] of numbers.entries()) bytes.writeDoubleLE(number, i * 8);
  return bytes.toString("base64");
}

function actionsOf(base64: string): Float64Array {
  const bytes = Buffer.from(base64, "base64");
  return Float64Array.from({ length: Math.floor(bytes.length / 8) }, (_, i) => bytes.readDoubleLE(8 * i));
}
