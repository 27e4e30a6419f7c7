/** Turns completed evaluations into the parts of a published document. */
import { Reason, type Refusal, refuse } from "../errors.ts";
import { completed, type PublishedEpisode, type PublishedEvaluation } from "../scenarios/published.ts";
import type { Sql } from "../store/database/tx.ts";
import { type ItemRecord, type JobRecord, listItems, recordedOf } from "../store/jobs/jobs.ts";
import { type Attempted, attemptsOf } from "../store/jobs/publications.ts";
import { findOffering } from "../store/supply/supply.ts";
import { shownScenario } from "./evaluation.ts";
import { type EpisodeFacts, type EvaluationRequest, type EvaluationResult, isExternal } from "./evaluation-run.ts";

/** Recorded actions of a publication and its controls, in characters of base64. */
export const MOST_RECORDED = 8 * 2 ** 20;

/** An evaluation to publish, and its policy if that is a model of the gateway, which leaderboards rank. */
export interface Draft {
  readonly evaluation: PublishedEvaluation;
  readonly policy?: PublishedModel;
}

/** A published model of the gateway. */
export type PublishedModel = { kind: "model"; model: string; revision?: string; offering: string; provider: string };

type PublishedPolicy = (PublishedModel | { kind: "server"; protocol: string }) & {
  horizon?: number;
  replan_steps?: number;
  pictures: boolean;
  camera_map?: EvaluationRequest["cameraMap"];
  state_map?: EvaluationRequest["stateMap"];
};

/** A refusal to publish. */
export const unpublishable = (text: string): Refusal => refuse(Reason.NOT_PUBLISHABLE, text);

/**
 * Drafts evaluations one after another; `recorded` is the size of their actions in characters of base64. Refuses with `not_publishable` before
 * it loads actions that exceed the limit.
 */
export async function draftsOf(
  sql: Sql,
  jobs: readonly JobRecord[],
): Promise<{ drafts: readonly Draft[]; recorded: number }> {
  const lookups = lookupsIn(sql);
  const drafts: Draft[] = [];
  let recorded = 0;
  for (const job of jobs) {
    assertReplayable(job);
    recorded += await recordedOf(sql, job.id);
    if (recorded > MOST_RECORDED) {
      const text = `the recorded actions take more than ${MOST_RECORDED} bytes; run fewer episodes`;
      throw unpublishable(text);
    }
    drafts.push(await draftOf(job, await listItems(sql, job.id, 0, job.total, { actions: true }), lookups));
  }
  return { drafts, recorded };
}

/** Lookups that the evaluations of a comparison share. */
type Lookups = ReturnType<typeof lookupsIn>;

function lookupsIn(sql: Sql) {
  const offerings = new Map<string, ReturnType<typeof findOffering>>();
  const attempts = new Map<string, Promise<number>>();
  return {
    offering(id: string) {
      const found = offerings.get(id) ?? findOffering(sql, id);
      offerings.set(id, found);
      return found;
    },
    attempts(orgId: string, what: Attempted, model: string) {
      const key = JSON.stringify([orgId, what, model]);
      const found = attempts.get(key) ?? attemptsOf(sql, orgId, what, model);
      attempts.set(key, found);
      return found;
    },
  };
}

function assertReplayable({ sealed, request, result }: JobRecord): void {
  if (sealed)
    throw unpublishable("actions are not kept with zero data retention, so this evaluation cannot be replayed");
  if (isExternal(request as EvaluationRequest))
    throw unpublishable("an external runner ran this evaluation, so its episodes cannot be replayed");
  if ((result as EvaluationResult | undefined)?.simulated)
    throw unpublishable("this evaluation used placeholder actions");
}

async function draftOf(job: JobRecord, items: readonly ItemRecord[], lookups: Lookups): Promise<Draft> {
  const request = job.request as EvaluationRequest;
  const result = (job.result ?? {}) as EvaluationResult;
  const { id, version, digest, engine, engineVersion, actionSpace } = shownScenario(request);
  const policy = await policyOf(lookups, request, result, job.orgId);
  const { label, inSuite } = request.comparison ?? {};
  const attempted = inSuite ? { suite: inSuite.suite.digest } : { scenario: digest };
  const evaluation = completed({
    ...(label !== undefined && { label }),
    ...(inSuite && { task: inSuite.index }),
    scenario: {
      ...{ id, version, digest, engine, engine_version: engineVersion },
      ...{ action_space: actionSpace, mode: request.mode },
    },
    policy,
    seed: request.seed,
    requested_episodes: request.episodes,
    finished_at: job.finished ?? 0,
    runtime: result.runtime ?? "",
    attempts: policy.kind === "model" ? await lookups.attempts(job.orgId, attempted, policy.model) : 1,
    episodes: episodesOf(items),
  });
  return { evaluation, ...(policy.kind === "model" && { policy }) };
}

/** The policy without its address, metadata and credentials. Refuses if it names another organization's private offering. */
async function policyOf(
  lookups: Lookups,
  { protocol, offering, horizon, replanSteps, pictures, cameraMap, stateMap }: EvaluationRequest,
  { model }: EvaluationResult,
  orgId: string,
): Promise<PublishedPolicy> {
  const how = {
    ...(horizon !== undefined && { horizon }),
    ...(replanSteps !== undefined && { replan_steps: replanSteps }),
    pictures,
    ...(cameraMap && { camera_map: cameraMap }),
    ...(stateMap && { state_map: stateMap }),
  };
  if (!offering) return { kind: "server", protocol, ...how };
  const record = await lookups.offering(offering.id);
  const isVisible = record && (record.orgId === orgId || ["live", "degraded"].includes(record.status));
  if (!isVisible || model === undefined)
    throw unpublishable("the model's offering is no longer public, so its name cannot be published");
  const { id, provider, revision } = offering;
  return { kind: "model", model, ...(revision !== undefined && { revision }), offering: id, provider, ...how };
}

function episodesOf(items: readonly ItemRecord[]): PublishedEpisode[] {
  const begun = items.filter(({ state }) => state === "completed" || state === "failed");
  return begun.map(({ response }) => {
    const facts = response as EpisodeFacts | undefined;
    if (facts?.actions === undefined) {
      const text = "the actions of this evaluation were not recorded; run it again with fewer episodes or with `media`";
      throw unpublishable(text);
    }
    return {
      seed: facts.seed,
      success: facts.success,
      termination: facts.termination,
      return: facts.return,
      progress: facts.progress,
      steps: facts.steps,
      sim_time_s: facts.simTimeS,
      metrics: facts.metrics,
      initial_state_sha256: facts.initialStateSha256,
      trajectory_sha256: facts.trajectorySha256,
      actions: facts.actions,
    };
  });
}
