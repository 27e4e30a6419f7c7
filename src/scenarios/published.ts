/** Published evaluations: their documents, digests and signatures, and the replay that verifies them. */
import { createHash, createPublicKey, type KeyObject, sign, verify } from "node:crypto";
import { Arena } from "./episode.ts";
import { builtIn, digestOf, variantFor } from "./index.ts";
import { type Metric, type Outcome, pairOf } from "./paired.ts";
import { ENGINE_FACTS, FAULTS, type Scenario, type Termination } from "./scenario.ts";
import { scoresOf } from "./scores.ts";

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
  readonly digests: Readonly<Record<"scenario" | "policy" | "actions" | "episodes" | "scores", string>>;
}

/** How a comparison judged its pairs, and what they show. */
export interface PublishedComparison {
  readonly metric: Metric;
  readonly policies: number;
  readonly stop_when_known: boolean;
  /** Labels of policies whose evaluations failed. */
  readonly failed: readonly string[];
  readonly pairs: readonly object[];
}

/** A published document. */
export interface PublishedDocument {
  readonly object: "publication";
  readonly format: 1;
  readonly id: string;
  readonly title: string;
  readonly publisher: string;
  readonly published_at: number;
  readonly gateway: { readonly version: string; readonly url: string };
  readonly evaluations: readonly PublishedEvaluation[];
  readonly comparison?: PublishedComparison;
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

/** The canonical JSON of a value (RFC 8785): members in order of their UTF-16 code units, numbers as ECMAScript writes them. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const members = Object.entries(value).filter(([, each]) => each !== undefined);
  members.sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([name, each]) => `${JSON.stringify(name)}:${canonical(each)}`).join(",")}}`;
}

const digest = (bytes: string | Uint8Array): string => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;

/** The id of a key: its SHA-256 thumbprint (RFC 7638). */
export const thumbprintOf = ({ crv, kty, x }: PublicJwk): string =>
  createHash("sha256").update(JSON.stringify({ crv, kty, x })).digest("base64url");

/** Adds scores, hash and digests to an evaluation. */
export function completed(facts: PublishedFacts): PublishedEvaluation {
  const scores = scoresFrom(facts.episodes);
  const hash = createHash("sha256").update(facts.scenario.digest);
  for (const { seed, trajectory_sha256 } of facts.episodes) hash.update(`${seed} ${trajectory_sha256}`);
  const bare = facts.episodes.map(({ actions: _, ...rest }) => rest);
  return {
    ...facts,
    scores,
    hash: `sha256:${hash.digest("hex")}`,
    digests: {
      scenario: digest(canonical(facts.scenario)),
      policy: digest(canonical(facts.policy)),
      actions: digest(Buffer.concat(facts.episodes.map(({ actions }) => Buffer.from(actions, "base64")))),
      episodes: digest(canonical(bare)),
      scores: digest(canonical(scores)),
    },
  };
}

/** The scores that follow from the physics alone: none about the policy's latency. */
function scoresFrom(episodes: readonly PublishedEpisode[]): object {
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
export function pairsOf(
  evaluations: readonly Pick<PublishedFacts, "label" | "episodes">[],
  { metric, policies, stop_when_known: mayStop }: Omit<PublishedComparison, "pairs" | "failed">,
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
  let replayed = 0;
  try {
    const { object, format, evaluations, comparison } = document as unknown as PublishedDocument;
    if (object !== "publication" || format !== 1 || evaluations.length === 0)
      return { problems: ["the document is not a publication of format 1"], replayed };
    for (const [i, evaluation] of evaluations.entries()) {
      const name = evaluation.label === undefined ? `evaluations.${i}` : `evaluations.${i} (${evaluation.label})`;
      problems.push(...faultsOf(evaluation).map((fault) => `${name}: ${fault}`));
      const result = await replayOf(evaluation, scenarios);
      problems.push(...result.problems.map((fault) => `${name}: ${fault}`));
      replayed += result.replayed;
    }
    if (comparison && canonical(pairsOf(evaluations, comparison)) !== canonical(comparison.pairs))
      problems.push("comparison.pairs differ from what the episodes give");
  } catch (thrown) {
    problems.push(`the document is malformed: ${thrown instanceof Error ? thrown.message : thrown}`);
  }
  return { problems, replayed };
}

/** What of an evaluation does not follow from its content. */
function faultsOf(evaluation: PublishedEvaluation): string[] {
  const again = completed(evaluation);
  const differing = Object.entries(again.digests)
    .filter(([name, value]) => evaluation.digests[name as keyof typeof again.digests] !== value)
    .map(([name, value]) => {
      const stated = evaluation.digests[name as keyof typeof again.digests];
      return `digest \`${name}\` differs: the document states ${stated}, its content has ${value}`;
    });
  if (canonical(again.scores) !== canonical(evaluation.scores)) differing.push("the scores differ from the episodes'");
  if (again.hash !== evaluation.hash)
    differing.push(`\`hash\` differs: ${evaluation.hash} stated, ${again.hash} computed`);
  const isInOrder = evaluation.episodes.every(({ seed }, i) => seed === evaluation.seed + i);
  if (!isInOrder) differing.push("the episodes' seeds are not consecutive");
  return differing;
}

/** Replays the episodes of an evaluation. */
async function replayOf(
  { scenario: stated, episodes }: PublishedEvaluation,
  scenarios: ReadonlyMap<string, Scenario>,
): Promise<Verified> {
  const name = `${stated.id}@${stated.version}`;
  const current = scenarios.get(stated.id);
  const scenario = current?.version === stated.version ? current : builtIn(name);
  const variant = scenario && variantFor(scenario, stated.action_space);
  if (!scenario || !variant) return { problems: [`scenario ${name} is not available here`], replayed: 0 };
  if (stated.engine !== ENGINE_FACTS.name || stated.engine_version !== ENGINE_FACTS.version)
    return { problems: [`the engine is ${ENGINE_FACTS.name} ${ENGINE_FACTS.version} here`], replayed: 0 };
  const here = digestOf(scenario, variant);
  if (here !== stated.digest)
    return { problems: [`the scenario's digest differs: ${stated.digest} stated, ${here} here`], replayed: 0 };
  const arena = await Arena.of(variant);
  const problems: string[] = [];
  try {
    for (const episode of episodes) {
      const actions = actionsOf(episode.actions);
      const isWhole = actions.length === episode.steps * variant.fields.length && episode.steps <= variant.maxSteps;
      if (!isWhole || !actions.every(Number.isFinite)) {
        problems.push(`seed ${episode.seed}: the recorded actions don't fit its ${episode.steps} steps`);
        continue;
      }
      const again = arena.replay(episode.seed, actions);
      const { success, termination } = again;
      // A fault of the policy leaves no trace in the physics.
      const isFault = FAULTS.has(episode.termination as Termination);
      const found: Omit<PublishedEpisode, "actions"> = {
        seed: episode.seed,
        success: isFault ? false : success,
        termination: isFault ? episode.termination : termination,
        return: again.return,
        progress: again.progress,
        steps: again.steps,
        sim_time_s: again.simTimeS,
        metrics: again.metrics,
        initial_state_sha256: again.initialStateSha256,
        trajectory_sha256: again.trajectorySha256,
      };
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

function actionsOf(base64: string): Float64Array {
  const bytes = Buffer.from(base64, "base64");
  return Float64Array.from({ length: Math.floor(bytes.length / 8) }, (_, i) => bytes.readDoubleLE(8 * i));
}
