/** Comparisons: an evaluation of each policy on equal seeds of a scenario, or of every task of a suite. */

import { create } from "@bufbuild/protobuf";
import { ComparisonMetric } from "../../gen/limber/v1/evaluation_pb.ts";
import {
  type CompareEvaluationsRequest,
  EvaluateRequestSchema,
  type EvaluationService,
  type PolicyToCompare,
} from "../../gen/limber/v1/evaluation_service_pb.ts";
import { byCall, type Call, type Implementation, keyOf } from "../call.ts";
import { violation } from "../contracts/contract.ts";
import { atPart, Reason, refuse } from "../errors.ts";
import { emit } from "../events/emit.ts";
import { newId } from "../ids.ts";
import { random } from "../random.ts";
import type { Metric } from "../scenarios/paired.ts";
import { runnableName } from "../scenarios/suite.ts";
import { breathe } from "../slices.ts";
import { audit } from "../store/account/audit.ts";
import { tx } from "../store/database/tx.ts";
import type { JobRecord } from "../store/jobs/jobs.ts";
import * as store from "../store/jobs/jobs.ts";
import {
  assertAffordable,
  draftOf,
  type EvaluationServiceDeps,
  newEvaluation,
  requestOf,
  saidOf,
} from "./evaluation.ts";
import { entriesOf, shownComparison } from "./evaluation-compared.ts";
import type { ComparisonPlace, EvaluationRequest, SuitePlace } from "./evaluation-run.ts";
import { episodesOf, suiteOf } from "./suite.ts";

/** The methods of this file; `evaluation.ts` has the others. */
type Comparisons = Pick<
  Implementation<typeof EvaluationService>,
  "compareEvaluations" | "getComparison" | "cancelComparison"
>;

/** Episodes of all policies. */
const MOST_EPISODES = 10_000;

/** The comparison RPCs. */
export function comparisonService(deps: EvaluationServiceDeps): Comparisons {
  const { sql, seals } = deps;

  const jobsOf = async (call: Call, id: string): Promise<JobRecord[]> => {
    const jobs = await store.jobsOfComparison(sql, keyOf(call), id);
    if (jobs.length === 0) throw refuse(Reason.NOT_FOUND, "comparison not found", {}, { param: "comparison_id" });
    return jobs;
  };
  const shown = async (jobs: readonly JobRecord[]) => shownComparison(await entriesOf(sql, seals, jobs));

  return {
    async compareEvaluations(asked, call) {
      const requests = await requestsOf(deps, asked, call);
      if (asked.dryRun) {
        const comparison = await shown(requests.map((request) => draftOf(request, keyOf(call))));
        return { comparison: { ...comparison, id: "" } };
      }
      const said = requests
        .map(saidOf)
        .map(({ comparison, ...rest }: { comparison?: ComparisonPlace }) => [
          rest,
          { ...comparison, id: "", label: "" },
        ]);
      const idempotency = seals.idempotent(keyOf(call), asked.idempotencyKey, said);
      if (!idempotency || (await store.jobOfKey(sql, keyOf(call), idempotency)) === undefined)
        await assertAffordable(deps, requests, call);
      const id = await tx(sql, async (tx) => {
        let isKnown = false;
        const tasks = requests.length / asked.policies.length;
        const jobs = requests.map((request, i) => {
          const policy = asked.policies[Math.floor(i / tasks)];
          return newEvaluation(deps, request, policy?.auth?.secret, call);
        });
        const first = await store.createJob(tx, {
          ...jobs[0]!,
          idempotency,
          known: () => {
            isKnown = true;
            call.replayed?.();
          },
        });
        if (isKnown) return (await store.findJob(tx, keyOf(call), "evaluation", first))?.comparison;
        await store.addJobs(tx, jobs.slice(1));
        return requests[0]?.comparison?.id;
      });
      return { comparison: await shown(await jobsOf(call, id ?? "")) };
    },

    async getComparison({ comparisonId }, call) {
      const jobs = await jobsOf(call, comparisonId);
      const comparison = await shown(jobs);
      // With zero data retention, this read was the only one.
      if (jobs.every(({ status }) => store.hasEnded(status))) for (const job of jobs) await seals.fetched(job);
      return { comparison };
    },

    async cancelComparison({ comparisonId }, call) {
      const { orgId } = keyOf(call);
      const jobs = await jobsOf(call, comparisonId);
      if (jobs.every(({ status }) => store.hasEnded(status)))
        throw refuse(Reason.JOB_FINISHED, "this comparison has already ended");
      await tx(sql, async (tx) => {
        for (const { id: jobId } of jobs) {
          if ((await store.cancelJob(tx, keyOf(call), "evaluation", jobId)) !== "cancelled") continue;
          const happening = { case: "evaluationCancelled", value: { jobId } } as const;
          await emit(tx, orgId, happening, await store.workspaceOf(tx, jobId));
        }
        await audit(tx, { ...byCall(call), orgId, action: "comparison.cancelled", subject: comparisonId });
      });
      return { comparison: await shown(await jobsOf(call, comparisonId)) };
    },
  };
}

/** What each policy of a comparison runs: a scenario, or a task of a suite. */
interface Task {
  readonly scenario: string;
  readonly episodes: number;
  readonly seed: number | undefined;
  readonly actionSpace: string | undefined;
  readonly maxCallsUsd: number | undefined;
  readonly inSuite?: SuitePlace;
}

/** The tasks of a comparison. Refuses if it has both a suite and a scenario, or neither. */
async function tasksOf(deps: EvaluationServiceDeps, asked: CompareEvaluationsRequest, call: Call): Promise<Task[]> {
  const { scenario, episodes, seed, actionSpace, maxCallsUsd } = asked;
  if (asked.suite !== undefined) return tasksOfSuite(deps, asked, asked.suite, call);
  if (scenario === "") throw violation("scenario", "is required, or `suite` instead", "missing");
  if (episodes === 0) throw violation("episodes", "must be at least 1, or absent with `suite`", "greater_than_equal");
  return [{ scenario, episodes, seed, actionSpace, maxCallsUsd }];
}

async function tasksOfSuite(
  { sql, scenarios }: EvaluationServiceDeps,
  { scenario, episodes, seed, actionSpace, maxCallsUsd }: CompareEvaluationsRequest,
  id: string,
  call: Call,
): Promise<Task[]> {
  const others = { scenario: scenario !== "", episodes: episodes > 0, seed, action_space: actionSpace };
  for (const [field, value] of Object.entries(others))
    if (value !== undefined && value !== false)
      throw violation(field, "must be absent with `suite`, whose tasks have their own", "value_error");
  const { tasks, archived, title, digest } = await suiteOf(sql, keyOf(call).orgId, id, "suite");
  if (archived !== undefined)
    throw violation("suite", "is archived; create a suite with equal tasks to run them", "value_error");
  return tasks.map((task, index) => {
    const name = runnableName(scenarios, task);
    if (name === undefined) {
      const text = `task ${index}: the gateway has no scenario ${task.scenario} ${task.version} with the digest that the suite was created for; create a suite for the current scenarios`;
      throw refuse(Reason.SCENARIO_NOT_RUNNABLE, text, {}, { param: "suite" });
    }
    const share = task.episodes / episodesOf(tasks);
    return {
      ...{ scenario: name, episodes: task.episodes, seed: task.seed, actionSpace: task.actionSpace },
      maxCallsUsd: maxCallsUsd === undefined ? undefined : maxCallsUsd * share,
      inSuite: { suite: { id, title, digest }, index, task },
    };
  });
}

/** The evaluations of a comparison, each with its place, by policy and task. Refusals name the policy. */
async function requestsOf(
  deps: EvaluationServiceDeps,
  asked: CompareEvaluationsRequest,
  call: Call,
): Promise<EvaluationRequest[]> {
  const { policies, blind, stopWhenKnown } = asked;
  const tasks = await tasksOf(deps, asked, call);
  const most = Math.floor(MOST_EPISODES / policies.length);
  const episodes = tasks.reduce((sum, task) => sum + task.episodes, 0);
  if (episodes > most) {
    const [field, limit] =
      asked.suite === undefined ? ["episodes", `be at most ${most}`] : ["suite", `have at most ${most} episodes`];
    const text = `must ${limit} for ${policies.length} policies, got ${episodes}`;
    throw violation(field, text, "less_than_equal");
  }
  const metric: Metric = asked.metric === ComparisonMetric.PROGRESS ? "progress" : "success";
  const id = newId("cmp");
  const labels = labelsOf(policies.length, blind);
  const requests: EvaluationRequest[] = [];
  for (const [i, policy] of policies.entries()) {
    for (const { inSuite, ...task } of tasks) {
      const place = { id, label: labels[i]!, policies: policies.length, metric, blind, stopWhenKnown };
      const instruction = inSuite?.task.instruction;
      const request = await requestOf(deps, evaluationOf(asked, policy, task), call, instruction).catch((thrown) => {
        throw atPolicy(thrown, i, inSuite);
      });
      requests.push({ ...request, comparison: { ...place, ...(inSuite && { inSuite }) } });
      await breathe();
    }
  }
  return requests;
}

/** One label per policy; in a random order if the comparison is blind. */
function labelsOf(count: number, blind: boolean): string[] {
  const labels = Array.from({ length: count }, (_, i) => String.fromCharCode(65 + i));
  if (!blind) return labels;
  const keys = labels.map(() => random());
  return labels.toSorted((a, b) => keys[a.charCodeAt(0) - 65]! - keys[b.charCodeAt(0) - 65]!);
}

/** One policy's evaluation in a task. */
function evaluationOf(asked: CompareEvaluationsRequest, policy: PolicyToCompare, task: Task) {
  const { scenario, episodes, seed, actionSpace, maxCallsUsd } = task;
  const { mode, policyTimeoutMs, media, mediaEpisodes, pictures, wallBudgetS, metadata } = asked;
  const { stopAfterFaults, parallelEpisodes } = asked;
  const { policyEndpoint, horizon, replanSteps, runtime, profile, auth, cameraMap, stateMap } = policy;
  return create(EvaluateRequestSchema, {
    ...{ policyEndpoint, scenario, episodes, mode, media, mediaEpisodes, cameraMap, stateMap },
    ...(pictures !== undefined && { pictures }),
    ...(seed !== undefined && { seed }),
    ...(actionSpace !== undefined && { actionSpace }),
    ...(policyTimeoutMs !== undefined && { policyTimeoutMs }),
    ...(wallBudgetS !== undefined && { wallBudgetS }),
    ...(stopAfterFaults !== undefined && { stopAfterFaults }),
    ...(parallelEpisodes !== undefined && { parallelEpisodes }),
    ...(maxCallsUsd !== undefined && { maxCallsUsd }),
    ...(metadata !== undefined && { metadata }),
    ...(horizon !== undefined && { horizon }),
    ...(replanSteps !== undefined && { replanSteps }),
    ...(runtime !== undefined && { runtime }),
    ...(profile !== undefined && { profile }),
    ...(auth !== undefined && { auth }),
  });
}

/** Fields of a request that each policy has of its own; the router calls the endpoint of a model `model`. */
const OWN = new Set([
  "policy_endpoint",
  "model",
  "horizon",
  "replan_steps",
  "runtime",
  "profile",
  "auth",
  "camera_map",
  "state_map",
]);

/** A refusal of one policy's evaluation, whose fields are named by their place in the comparison. */
const atPolicy = (thrown: unknown, index: number, inSuite: SuitePlace | undefined): unknown =>
  atPart(thrown, inSuite ? `policy ${index} in task ${inSuite.index}` : `policy ${index}`, (path) =>
    OWN.has(path.split(".")[0]!) ? `policies.${index}.${path.replace(/^model$/, "policy_endpoint")}` : undefined,
  );
