/** How an evaluation is shown, from what its job keeps. */
import { create, type JsonObject, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type EpisodeRecord,
  EpisodeRecordSchema,
  type Evaluation,
  EvaluationMode,
  EvaluationRunner,
  EvaluationSchema,
  type EvaluationScoresSchema,
} from "../../../gen/limber/v1/evaluation_pb.ts";
import { toUsd } from "../../billing/price.ts";
import { ENGINE_FACTS } from "../../scenarios/scenario.ts";
import { type EpisodeScore, isFault, type Scores, scoresOf } from "../../scenarios/scores.ts";
import type { ItemRecord } from "../../store/jobs/job-items.ts";
import type { JobRecord } from "../../store/jobs/jobs.ts";
import type { JobSeal } from "../job/seal.ts";
import { statusOf } from "../job.ts";
import {
  callsOf,
  type EpisodeFacts,
  type EvaluationRequest,
  type EvaluationResult,
  isExternal,
  type PolicyCalls,
} from "./request.ts";

/** An evaluation with the episodes that have ended; of one whose results are gone, only how many. */
export function shownEvaluation(kept: JobRecord, parts: readonly ItemRecord[], seal: JobSeal): Evaluation {
  const job = seal.job(kept);
  const items = parts.map((part) => seal.item(part));
  const request = job.request as EvaluationRequest;
  const result = (job.result ?? {}) as EvaluationResult;
  const ended = items.filter(({ response }) => response !== undefined);
  const episodes = ended.map(({ response }) => response as EpisodeFacts as EpisodeScore);
  const faults = episodes.filter(isFault).length;
  const gone = { completed: job.counts.completed, errored: job.counts.failed };
  const billed = items.filter(({ costMicro }) => costMicro > 0);
  const scores = result.scores ?? (episodes.length > 0 ? scoresOf(episodes) : undefined);
  return create(EvaluationSchema, {
    id: job.id,
    object: "evaluation.job",
    kind: "evaluate",
    status: statusOf(job),
    createdAt: job.created,
    ...(job.started !== undefined && { startedAt: job.started }),
    ...(job.finished !== undefined && { finishedAt: job.finished }),
    policy: {
      endpoint: request.policyEndpoint ?? "",
      protocol: request.protocol,
      ...(result.model !== undefined && { model: result.model }),
      actionSpace: request.actionSpace,
      ...(request.offering && { offeringId: request.offering.id, provider: request.offering.provider }),
      ...(request.horizon !== undefined && { horizon: request.horizon }),
      ...(request.replanSteps !== undefined && { replanSteps: request.replanSteps }),
    },
    scenario: shownScenario(request),
    progress: {
      completed: seal.gone ? gone.completed + gone.errored : ended.length,
      total: request.episodes,
      ...(scores && { runningSuccessRate: scores.successRate.value }),
    },
    episodes: {
      requested: request.episodes,
      ...(seal.gone ? gone : { completed: ended.length - faults, errored: faults }),
    },
    ...(scores && { scores: shownScores(scores, request.mode === "realtime") }),
    perEpisode: ended.map((item) => shownEpisode(item, result)),
    reproducibility: {
      ...(result.hash !== undefined && { hash: result.hash }),
      runtime: result.runtime ?? (isExternal(request) ? "external" : process.version),
      ...(result.replayVerified !== undefined && { replayVerified: result.replayVerified }),
    },
    usage: usageOf(billed, result.calls ?? callsOf(ended.map(({ response }) => response as EpisodeFacts))),
    route: { simulated: result.simulated ?? false },
    ...(result.error && { error: result.error }),
    ...(request.metadata && { metadata: request.metadata as JsonObject }),
    ...(!isExternal(request) && { wallBudgetS: request.wallBudgetS }),
    runner: isExternal(request) ? EvaluationRunner.EXTERNAL : EvaluationRunner.EMBEDDED,
    ...(result.harness !== undefined && { harness: result.harness }),
  });
}

function usageOf(billed: readonly ItemRecord[], { count, micro }: PolicyCalls) {
  const episodesMicro = billed.reduce((sum, { costMicro }) => sum + costMicro, 0);
  return {
    episodes: billed.length,
    costUsd: toUsd(episodesMicro),
    policyCalls: count,
    policyCostUsd: toUsd(micro),
    totalCostUsd: toUsd(episodesMicro + micro),
  };
}

function shownScenario(request: EvaluationRequest) {
  const { scenario: id, world, actionSpace, mode } = request;
  return {
    id,
    version: world?.version ?? "",
    digest: world?.digest ?? "",
    engine: isExternal(request) ? "external" : ENGINE_FACTS.name,
    engineVersion: isExternal(request) ? "" : ENGINE_FACTS.version,
    actionSpace,
    actionDim: world?.actionDim ?? 0,
    dtMs: world?.dtMs ?? 0,
    maxSteps: world?.maxSteps ?? 0,
    mode: mode === "realtime" ? EvaluationMode.REALTIME : EvaluationMode.SYNC,
  };
}

function shownScores(scores: Scores, realtime: boolean): MessageInitShape<typeof EvaluationScoresSchema> {
  const { successRate: rate, policyLatencyMs, staleActionRatio, effectiveHz } = scores;
  return {
    successRate: {
      ...rate,
      ci95: { method: "wilson", ...rate.ci95 },
      ci95Exact: { method: "clopper-pearson", ...rate.ci95Exact },
    },
    return: { ...scores.return, ci95: { method: "bootstrap", ...scores.return.ci95 } },
    progressScore: { mean: scores.progress },
    episodeSteps: scores.steps,
    ...(scores.medianTimeToSuccessS !== undefined && { timeToSuccessS: { median: scores.medianTimeToSuccessS } }),
    terminations: scores.terminations as Record<string, number>,
    safety: { collisions: scores.terminations.collision ?? 0, clippedActionFraction: scores.clippedStepFraction },
    smoothness: { meanAbsActionDelta: scores.meanActionDelta },
    policyLatencyMs: {
      p50: roundMs(policyLatencyMs.p50),
      p95: roundMs(policyLatencyMs.p95),
      max: roundMs(policyLatencyMs.max),
    },
    policyCalls: scores.policyCalls,
    ...(realtime && { realtime: { staleActionRatio, effectiveHz } }),
    metrics: scores.metrics,
  };
}

const roundMs = (ms: number): number => Math.round(ms * 1000) / 1000;

/** One episode that has ended. */
export function shownEpisode({ index, response }: ItemRecord, { pictures }: EvaluationResult = {}): EpisodeRecord {
  const facts = response as EpisodeFacts as EpisodeScore & EpisodeFacts;
  const { latenciesMs, policyCalls } = facts;
  const picture = pictures?.[String(index)];
  return create(EpisodeRecordSchema, {
    index,
    seed: facts.seed,
    status: facts.success ? "success" : isFault(facts) ? "error" : "failure",
    success: facts.success,
    termination: facts.termination,
    ...(facts.error !== undefined && { error: facts.error }),
    return: facts.return,
    progress: facts.progress,
    steps: facts.steps,
    simTimeS: facts.simTimeS,
    policyCalls,
    wallMs: Math.round(facts.wallMs),
    meanLatencyMs: roundMs(latenciesMs.reduce((sum, each) => sum + each, 0) / Math.max(1, latenciesMs.length)),
    metrics: facts.metrics,
    initialStateSha256: facts.initialStateSha256,
    trajectorySha256: facts.trajectorySha256,
    ...(picture !== undefined && { pictureUrl: picture }),
  });
}
