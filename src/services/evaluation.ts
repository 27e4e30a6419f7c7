/** Evaluations of a policy in a simulated scenario, as jobs. */
import { create, fromJson, type JsonObject, type MessageInitShape, toJson } from "@bufbuild/protobuf";
import { Contract } from "../../gen/limber/v1/contract_pb.ts";
import {
  type EpisodeRecord,
  EpisodeRecordSchema,
  type Evaluation,
  EvaluationMedia,
  EvaluationMediaEpisodes,
  EvaluationMode,
  EvaluationRunner,
  EvaluationSchema,
  type EvaluationScoresSchema,
  FilmSeriesSchema,
} from "../../gen/limber/v1/evaluation_pb.ts";
import {
  CancelEvaluationResponseSchema,
  type EvaluateRequest,
  EvaluateRequestSchema,
  EvaluateResponseSchema,
  type EvaluationService,
  GetEvaluationResponseSchema,
  WatchEvaluationResponseSchema,
} from "../../gen/limber/v1/evaluation_service_pb.ts";
import {
  InferenceService,
  PreviewedRequestSchema,
  PreviewRoutesRequestSchema,
  type PreviewRoutesResponse,
  PreviewRoutesResponseSchema,
} from "../../gen/limber/v1/inference_service_pb.ts";
import type { InputContract } from "../../gen/limber/v1/input_contract_pb.ts";
import { ImageFormat } from "../../gen/limber/v1/observation_pb.ts";
import { type DroppedOffering, DropReason, type PlanStep } from "../../gen/limber/v1/plan_pb.ts";
import { ProviderAuthType, WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import { toUsd } from "../billing/price.ts";
import { byCall, type Call, type Implementation, type KeyPrincipal, keyOf } from "../call.ts";
import { nowSeconds, sleep } from "../clock.ts";
import { DEFAULT_HORIZON, EPISODE_MICRO, violation } from "../contracts/contract.ts";
import { readsOf } from "../contracts/inputs.ts";
import { factsOf, Reason, type Refusal, refuse } from "../errors.ts";
import { emit } from "../events/emit.ts";
import type { Leaser } from "../inference/call-billing.ts";
import { nearNames } from "../routing/index.ts";
import { builtIn, digestOf, variantFor } from "../scenarios/index.ts";
import { ENGINE_FACTS, offersOf, quarterOf, type Scenario, type ScenarioVariant } from "../scenarios/scenario.ts";
import { type EpisodeScore, isFault, type Scores, scoresOf } from "../scenarios/scores.ts";
import { audit } from "../store/account/audit.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import { type FilmRecord, findFilm, findSeries, listFilms } from "../store/jobs/films.ts";
import * as store from "../store/jobs/jobs.ts";
import { type ItemRecord, type JobRecord, listItems, type NewJob } from "../store/jobs/jobs.ts";
import { findOffering } from "../store/supply/supply.ts";
import type { Upstream } from "../upstream/index.ts";
import { AddressRefused, checkUrl, wordsOfRefusal } from "../upstream/transport/guard.ts";
import type { Vault } from "../vault.ts";
import {
  callsOf,
  type EpisodeFacts,
  type EvaluationRequest,
  type EvaluationResult,
  EXTERNAL,
  isExternal,
  mapped,
  mostMicro,
  type PolicyCalls,
} from "./evaluation-run.ts";
import type { inferenceService } from "./inference.ts";
import { type JobSeal, type JobSeals, statusOf } from "./job.ts";
import { assertMayCall } from "./permissions.ts";
import { checkProfile } from "./supply/declare.ts";

/** Dependencies of evaluation requests. */
export interface EvaluationServiceDeps {
  sql: Sql;
  seals: JobSeals;
  vault: Pick<Vault, "seal">;
  leaser: Leaser;
  upstream: Upstream;
  allowPrivate: boolean;
  scenarios: ReadonlyMap<string, Scenario>;
  /** The names of scenarios that are cataloged but cannot run here. */
  catalogued(): Iterable<string>;
  /** The most steps that an offering returns per call. */
  maxHorizonOf(offeringId: string): number | undefined;
  /** An offering's declared inputs. */
  inputOf(offeringId: string): InputContract | undefined;
  /** Previews the route of the policy's calls. The evaluation is refused if the route would be. */
  preview: ReturnType<typeof inferenceService>["previewRoutes"];
}

const LIFE_S = 24 * 3600;
/** The methods of this file; `evaluation-compare.ts` has the others. */
type Evaluations = Omit<
  Implementation<typeof EvaluationService>,
  "compareEvaluations" | "getComparison" | "cancelComparison"
>;
const DEFAULT_TIMEOUT_MS = 5_000;
const DEFAULT_FAULTS = 5;
const LOOK_MS = 250;

/** A job's time limit in seconds: 60 per episode, between 10 minutes and a day. */
const wallBudgetOf = (episodes: number): number => Math.min(LIFE_S, Math.max(600, 60 * episodes));

/** The evaluation RPCs. */
export function evaluationService(deps: EvaluationServiceDeps): Evaluations {
  const { sql, seals } = deps;

  const jobOf = async (call: Call, id: string): Promise<store.JobRecord> => {
    const job = await store.findJob(sql, keyOf(call), "evaluation", id);
    if (!job) throw refuse(Reason.NOT_FOUND, "evaluation not found", {}, { param: "job_id" });
    return job;
  };
  const shown = async (job: store.JobRecord) => {
    const hasFilms = (job.request as EvaluationRequest).media === "film";
    const films = hasFilms ? await listFilms(sql, job.id) : [];
    return shownEvaluation(job, await listItems(sql, job.id, 0, job.total), await seals.of(job), films);
  };

  return {
    async evaluate(asked, call) {
      const request = await requestOf(deps, asked, call);
      if (asked.dryRun)
        return create(EvaluateResponseSchema, { evaluation: await shown(draftOf(request, keyOf(call))) });
      const idempotency = seals.idempotent(keyOf(call), asked.idempotencyKey, saidOf(request));
      if (!idempotency || (await store.jobOfKey(sql, keyOf(call), idempotency)) === undefined)
        await assertAffordable(deps, [request], call);
      const id = await tx(sql, (tx) =>
        store.createJob(tx, {
          ...newEvaluation(deps, request, asked.auth?.secret, call),
          idempotency,
          known: () => call.replayed?.(),
        }),
      );
      return create(EvaluateResponseSchema, { evaluation: await shown(await jobOf(call, id)) });
    },

    async getEvaluation({ jobId }, call) {
      const job = await jobOf(call, jobId);
      const evaluation = await shown(job);
      // With zero data retention, this read was the only one.
      if (store.hasEnded(job.status)) await seals.fetched(job);
      return create(GetEvaluationResponseSchema, { evaluation });
    },

    async getFilm({ jobId, index }, call) {
      const job = await jobOf(call, jobId);
      const film = await findFilm(sql, job.id, index);
      if (!film) throw filmNotFound();
      return { film: film.bytes, type: film.type, etag: `"${film.sha256}"` };
    },

    async getFilmSeries({ jobId, index }, call) {
      const job = await jobOf(call, jobId);
      const series = await findSeries(sql, job.id, index);
      if (!series) throw filmNotFound();
      return { series: fromJson(FilmSeriesSchema, series as JsonObject) }; // written by `toJson`
    },

    async cancelEvaluation({ jobId }, call) {
      const { orgId } = keyOf(call);
      await tx(sql, async (tx) => {
        const how = await store.cancelJob(tx, keyOf(call), "evaluation", jobId);
        if (how === undefined) throw refuse(Reason.NOT_FOUND, "evaluation not found", {}, { param: "job_id" });
        if (how === "ended") throw refuse(Reason.JOB_FINISHED, "this evaluation has already ended");
        if (how === "cancelled") {
          const happening = { case: "evaluationCancelled", value: { jobId } } as const;
          await emit(tx, orgId, happening, await store.workspaceOf(tx, jobId));
        }
        await audit(tx, { ...byCall(call), orgId, action: "evaluation.cancelled", subject: jobId });
      });
      return create(CancelEvaluationResponseSchema, { evaluation: await shown(await jobOf(call, jobId)) });
    },

    async *watchEvaluation({ jobId, lastEventId = "" }, call) {
      let sent = /^\d{1,9}$/.test(lastEventId) ? Number(lastEventId) + 1 : 0;
      for (;;) {
        const job = await jobOf(call, jobId);
        if (lastEventId === "done" && store.hasEnded(job.status)) return;
        const seal = await seals.of(job);
        const items = await listItems(sql, jobId, sent, job.total);
        for (const item of items.map((each) => seal.item(each))) {
          if (!item.response) break;
          yield create(WatchEvaluationResponseSchema, { event: { case: "episode", value: shownEpisode(item) } });
          sent = item.index + 1;
        }
        if (store.hasEnded(job.status)) {
          yield create(WatchEvaluationResponseSchema, { event: { case: "done", value: await shown(job) } });
          await seals.fetched(job);
          return;
        }
        call.begin?.();
        await sleep(LOOK_MS, call.signal);
      }
    },
  };
}

const filmNotFound = (): Refusal =>
  refuse(Reason.NOT_FOUND, "film not found: the episode is not filmed, or not yet", {}, { param: "index" });

/** What makes two requests the same evaluation, even if the route and its price have changed since. */
export const saidOf = ({ offering: _, world: __, calls: ___, ...said }: EvaluationRequest): object => said;

/** Refuses if the payer lacks the complete price; each episode and policy call reserves its own when it runs. A replay costs nothing. */
export async function assertAffordable(
  { leaser }: EvaluationServiceDeps,
  requests: readonly EvaluationRequest[],
  call: Call,
): Promise<void> {
  const { orgId, keyId, workspaceId, ancestors } = keyOf(call);
  const micro = requests.map(mostMicro).reduce((sum, most) => sum + most.episodes + most.calls, 0);
  // Of each policy.
  const units = requests.reduce((sum, { episodes }) => sum + episodes, 0) / (requests[0]?.comparison?.policies ?? 1);
  const estimate = { unit: "episode", units, priceNano: Math.ceil((micro * 1000) / units), wakeUpMicro: 0 };
  await (await leaser.hold({ orgId, keyId, workspaceId, ancestors }, micro, estimate)).release();
}

/** The job of a new evaluation, paid by the caller. */
export function newEvaluation(
  { seals, vault }: EvaluationServiceDeps,
  request: EvaluationRequest,
  secret: string | undefined,
  call: Call,
): NewJob {
  const { orgId, keyId, workspaceId, settings } = keyOf(call);
  const items = Array.from({ length: request.episodes }, () => ({ customId: undefined, request: {} }));
  const { metadata, policyEndpoint, offering, profile, ...open } = request;
  const sealed = { metadata, policyEndpoint, offering, profile };
  return {
    kind: "evaluation",
    orgId,
    keyId,
    workspaceId,
    request,
    items,
    lifeS: LIFE_S,
    seal: settings.zdr ? (id) => seals.fresh(id, { items, request: open }, sealed) : undefined,
    outside: isExternal(request),
    comparison: request.comparison?.id,
    secret: request.authType && ((id) => vault.seal(secret ?? "", store.jobSecretContext(id))),
  };
}

/** The job that a request would start, without an id. */
export const draftOf = (request: EvaluationRequest, { orgId, keyId, workspaceId }: KeyPrincipal): JobRecord => ({
  id: "",
  kind: "evaluation",
  orgId,
  keyId,
  workspaceId,
  sealed: false,
  comparison: undefined,
  parent: undefined,
  status: "queued",
  request,
  secret: undefined,
  result: undefined,
  total: request.episodes,
  counts: { queued: request.episodes, running: 0, completed: 0, failed: 0, cancelled: 0 },
  costMicro: 0,
  cancelled: false,
  created: nowSeconds(),
  started: undefined,
  finalizing: undefined,
  finished: undefined,
  expires: nowSeconds() + LIFE_S,
});

/** The requested variant of the scenario. Otherwise refuses and lists the alternatives. */
export function variantOf(
  { scenarios, catalogued }: Pick<EvaluationServiceDeps, "scenarios" | "catalogued">,
  asked: Pick<EvaluateRequest, "scenario" | "actionSpace">,
): { scenario: Scenario; variant: ScenarioVariant } {
  const { scenario: id, actionSpace } = asked;
  const scenario = scenarios.get(id) ?? builtIn(id);
  if (!scenario) {
    const known = [...catalogued()];
    if (known.includes(id)) {
      const text =
        "this benchmark is cataloged only: it needs its own harness, which does not run here (GET /v1/scenarios names its code); set `runner` to external and claim it with your own runner at POST /v1/evaluate/claims";
      throw refuse(Reason.SCENARIO_NOT_RUNNABLE, text, {}, { param: "scenario" });
    }
    const near = nearNames(id, [...scenarios.keys(), ...known]);
    const text = `scenario not found; available scenarios: ${[...scenarios.keys()].join(", ")}`;
    throw refuse(
      Reason.NOT_FOUND,
      near.length > 0 ? `${text}; did you mean ${near.join(" or ")}?` : text,
      {},
      { param: "scenario" },
    );
  }
  const variant = variantFor(scenario, actionSpace);
  if (variant) return { scenario, variant };
  const spaces = scenario.variants.map((each) => each.actionSpace);
  throw violation("action_space", `must be one of this scenario's: ${spaces.join(", ")}`, "enum", spaces);
}

async function insideOf(deps: EvaluationServiceDeps, asked: EvaluateRequest, call: Call, instruction?: string) {
  const { scenario, variant } = variantOf(deps, asked);
  const { actionSpace, fields, dtMs, maxSteps } = variant;
  const mapping = mappingOf(asked, variant);
  const instructed = instruction === undefined ? variant : { ...variant, instruction };
  return {
    ...(await reachedBy(deps, asked, { variant: instructed, mapping }, call)),
    ...mapping,
    actionSpace,
    ...(instruction !== undefined && { instruction }),
    world: {
      version: scenario.version,
      digest: digestOf(scenario, variant),
      actionDim: fields.length,
      dtMs,
      maxSteps,
    },
  };
}

/** The policy's address and action space for an external runner. The gateway validates neither. */
function outsideOf({ scenarios, catalogued }: EvaluationServiceDeps, asked: EvaluateRequest) {
  const { scenario, actionSpace = "", mode, pictures, media, wallBudgetS, stopAfterFaults } = asked;
  if (scenarios.has(scenario))
    throw violation("runner", "must be absent for a scenario that the gateway runs itself", "runner");
  const known = [...catalogued()];
  if (!known.includes(scenario)) {
    const near = nearNames(scenario, known);
    const text = `benchmark not found in the catalog${near.length > 0 ? `; did you mean ${near.join(" or ")}?` : ""}`;
    throw refuse(Reason.NOT_FOUND, text, {}, { param: "scenario" });
  }
  const limited = wallBudgetS !== undefined || stopAfterFaults !== undefined || asked.parallelEpisodes !== undefined;
  refuseWire(asked, "a policy of an external runner");
  for (const field of ["camera_map", "state_map"] as const)
    if (mappingFields(asked)[field]) throw violation(field, "must be absent for an external runner", "value_error");
  const isRecorded = media > EvaluationMedia.NONE || asked.mediaEpisodes > EvaluationMediaEpisodes.UNSPECIFIED;
  if (mode === EvaluationMode.REALTIME || pictures || isRecorded || limited) {
    const text = "must not be external with a mode, pictures, media or limits, which the external harness sets";
    throw violation("runner", text, "runner");
  }
  return { protocol: EXTERNAL, actionSpace, pictures: false, ...stepsOf(asked, DEFAULT_HORIZON), callMicro: 0 };
}

/** The steps per chunk, and how many of them run. Refuses more than the policy returns. */
function stepsOf({ replanSteps }: EvaluateRequest, horizon: number) {
  const taken = replanSteps ?? quarterOf(horizon);
  if (taken > horizon) throw violation("replan_steps", "must be at most `horizon`", "less_than_equal");
  return { horizon, replanSteps: taken };
}

/** The complete request. `instruction` replaces the scenario's. */
export async function requestOf(
  deps: EvaluationServiceDeps,
  asked: EvaluateRequest,
  call: Call,
  instruction?: string,
): Promise<EvaluationRequest> {
  const { policyEndpoint, scenario, episodes, seed = 0 } = asked;
  if (seed + episodes - 1 > MOST_SEED)
    throw violation("seed", `must be at most ${MOST_SEED - episodes + 1} for ${episodes} episodes`, "less_than_equal");
  const reached: Reached =
    asked.runner === EvaluationRunner.EXTERNAL
      ? outsideOf(deps, asked)
      : await insideOf(deps, asked, call, instruction);
  const { callMicro, ...where } = reached;
  const most = Math.ceil((where.world?.maxSteps ?? 0) / (where.replanSteps ?? 1));
  return {
    policyEndpoint,
    ...where,
    scenario,
    episodes,
    seed,
    mode: asked.mode === EvaluationMode.REALTIME ? ("realtime" as const) : ("sync" as const),
    policyTimeoutMs: asked.policyTimeoutMs ?? DEFAULT_TIMEOUT_MS,
    ...recordingOf(asked, call),
    wallBudgetS: asked.wallBudgetS ?? wallBudgetOf(episodes),
    stopAfterFaults: asked.stopAfterFaults ?? DEFAULT_FAULTS,
    parallelEpisodes: asked.parallelEpisodes,
    metadata: asked.metadata && (toJson(EvaluateRequestSchema, asked) as { metadata: object }).metadata,
    priceMicro: EPISODE_MICRO,
    calls: { most, micro: callMicro },
    callsCapMicro: asked.maxCallsUsd === undefined ? undefined : Math.floor(asked.maxCallsUsd * MICRO_PER_USD),
  };
}

/** How the policy is called, and the most that one call can cost, in micro-dollars. */
type Reached = Pick<
  EvaluationRequest,
  | "protocol"
  | "profile"
  | "authType"
  | "actionSpace"
  | "instruction"
  | "world"
  | "pictures"
  | "cameraMap"
  | "stateMap"
  | "horizon"
  | "replanSteps"
  | "offering"
> & { readonly callMicro: number };

/** The last episode's seed must also fit into records. */
export const MOST_SEED = 2 ** 32 - 1;

const MEDIA: Readonly<Partial<Record<EvaluationMedia, EvaluationRequest["media"]>>> = {
  [EvaluationMedia.GIF]: "gif",
  [EvaluationMedia.STRIP]: "strip",
  [EvaluationMedia.FILM]: "film",
};

const MEDIA_EPISODES: Readonly<Partial<Record<EvaluationMediaEpisodes, EvaluationRequest["mediaEpisodes"]>>> = {
  [EvaluationMediaEpisodes.FAILED]: "failed",
  [EvaluationMediaEpisodes.ALL]: "all",
};

/** How episodes are recorded, and which. Films are stored, which zero data retention excludes. */
function recordingOf({ media, mediaEpisodes }: EvaluateRequest, call: Call) {
  const which = MEDIA_EPISODES[mediaEpisodes];
  if (which !== undefined && media !== EvaluationMedia.FILM)
    throw violation("media_episodes", "must be absent or first_and_worst unless `media` is film", "value_error");
  if (media === EvaluationMedia.FILM && keyOf(call).settings.zdr)
    throw violation("media", "must not be film with zero data retention; use gif or strip", "value_error");
  return { media: MEDIA[media] ?? "none", mediaEpisodes: which };
}

/** The runtimes that serve policies at addresses. */
const RUNTIMES: readonly string[] = [
  "openpi-ws",
  "limber-policy",
  "lerobot-async",
  "gr00t-http",
  "gr00t-zmq",
  "openvla-act",
  "oip-v2-grpc",
  "oip-v2-rest",
  "vla-eval-ws",
  "lerobot-remote",
  "xpolicylab-ws",
  "dexbotic",
  "tether-act",
];

const AUTH_TYPES: Readonly<Partial<Record<ProviderAuthType, "bearer" | "api_key">>> = {
  [ProviderAuthType.BEARER]: "bearer",
  [ProviderAuthType.API_KEY]: "api_key",
};

/** Refuses fields that configure the wire of an address. */
function refuseWire({ runtime, profile, auth }: EvaluateRequest, what: string): void {
  for (const [field, value] of Object.entries({ runtime, profile, auth }))
    if (value !== undefined) throw violation(field, `must be absent for ${what}`, "value_error");
}

/** The default runtime of an address, by its scheme. */
const BY_SCHEME: Readonly<Record<string, string>> = {
  "ws:": "openpi-ws",
  "wss:": "openpi-ws",
  "grpc:": "limber-policy",
  "grpcs:": "limber-policy",
};

const reasonOf = (code: string): Reason =>
  Reason[code.toUpperCase() as keyof typeof Reason] ?? Reason.NO_ROUTE_AVAILABLE;

const isUnpaid = (code: string): boolean => factsOf(reasonOf(code)).status === 402;

/** The refusal that every call of the policy would get, with what the scenario offers and the policy reads side by side. */
function asPreviewed(
  deps: EvaluationServiceDeps,
  code: string,
  variant: ScenarioVariant,
  dropped: readonly DroppedOffering[],
): Refusal {
  const { actionSpace } = variant;
  const because = (reason: DropReason) => dropped.find((each) => each.reason === reason);
  const unread = because(DropReason.INPUT);
  const why = unread ?? because(DropReason.ACTION_SPACE) ?? dropped[0];
  const input = unread && deps.inputOf(unread.offeringId);
  const reads = input && readsOf(input, actionSpace);
  const found = reads === undefined ? why?.detail : `the policy reads ${reads}`;
  const text = [
    `calls of this policy for ${actionSpace} would be refused with ${code}${found === undefined ? "" : `: ${found}`}`,
    ...(unread ? [offersOf(variant)] : []),
  ].join("; ");
  return refuse(reasonOf(code), text, {}, { param: "policy_endpoint" });
}

/** How the scenario's cameras and state are mapped for the policy. */
type Mapping = Pick<EvaluationRequest, "cameraMap" | "stateMap">;

const mappingFields = ({ cameraMap, stateMap }: EvaluateRequest) => ({
  camera_map: Object.keys(cameraMap).length > 0,
  state_map: stateMap.length > 0,
});

/** The requested mapping. Refuses cameras and numbers that the scenario doesn't have, and names that occur twice. */
function mappingOf(asked: EvaluateRequest, { cameras, proprioNames }: ScenarioVariant): Mapping {
  const { cameraMap, pictures } = asked;
  const has = mappingFields(asked);
  const offered = cameras.map(({ name }) => name);
  for (const [camera, from] of Object.entries(cameraMap))
    if (!offered.includes(from))
      throw violation(`camera_map.${camera}`, `must be one of the scenario's cameras: ${offered.join(", ")}`, "enum");
  if (has.camera_map && pictures === false)
    throw violation("camera_map", "must be absent if `pictures` is false", "value_error");
  const stateMap = asked.stateMap.map(({ from, name = from }) => ({ from, name }));
  const names = new Set<string>();
  for (const [index, { from, name }] of stateMap.entries()) {
    if (!proprioNames.includes(from))
      throw violation(`state_map.${index}.from`, `must be one of the scenario's: ${proprioNames.join(", ")}`, "enum");
    if (names.has(name)) throw violation(`state_map.${index}.name`, `must be unique, got ${name} twice`, "value_error");
    names.add(name);
  }
  return { ...(has.camera_map && { cameraMap }), ...(has.state_map && { stateMap }) };
}

/** How the policy is called. Addresses pass the network guard, models the router, so a policy that cannot be called is refused now. */
async function reachedBy(
  deps: EvaluationServiceDeps,
  asked: EvaluateRequest,
  shown: { readonly variant: ScenarioVariant; readonly mapping: Mapping },
  call: Call,
): Promise<Omit<Reached, "actionSpace" | "world">> {
  const scheme = /^[a-z][a-z0-9+.-]*:(?=\/\/)/i.exec(asked.policyEndpoint)?.[0].toLowerCase();
  if (scheme === undefined) return modelOf(deps, asked, shown, call);
  const protocol = addressOf(deps, asked, scheme, shown.variant);
  const { horizon, replanSteps, profile, auth } = asked;
  const about = {
    pictures: asked.pictures ?? (shown.mapping.cameraMap !== undefined || (profile?.frames.length ?? 0) > 0),
    protocol,
    callMicro: 0,
    profile: profile && (toJson(WireProfileSchema, profile) as object),
    authType: auth && AUTH_TYPES[auth.type],
  };
  return { ...about, ...(horizon === undefined ? { replanSteps } : stepsOf(asked, horizon)) };
}

/** A model or an alias: the offering for all calls, and the price of one call. */
async function modelOf(
  deps: EvaluationServiceDeps,
  asked: EvaluateRequest,
  { variant, mapping }: { readonly variant: ScenarioVariant; readonly mapping: Mapping },
  call: Call,
) {
  refuseWire(asked, "a model of the gateway");
  // The episodes call the model with the key's own authority.
  assertMayCall(keyOf(call), InferenceService.method.act);
  const { policyEndpoint: model, horizon } = asked;
  // An episode's observation, without its values.
  const observed = mapped(mapping, {
    proprio: variant.proprioNames.map(() => 0),
    proprioNames: variant.proprioNames,
    pictures: variant.cameras.map(shownBy),
  });
  const previewed = async (units: number, offerings: string[] = []): Promise<PreviewRoutesResponse> => {
    const request = create(PreviewedRequestSchema, {
      model,
      actionSpace: variant.actionSpace,
      instruction: variant.instruction,
      observations: [
        {
          proprio: [...observed.proprio],
          proprioNames: [...observed.proprioNames],
          frames: pictures ? [...observed.pictures] : [],
        },
      ],
      horizon: units,
      provider: { offerings },
    });
    const wanted = create(PreviewRoutesRequestSchema, { contract: Contract.ACT, request });
    return create(PreviewRoutesResponseSchema, await deps.preview(wanted, call));
  };
  let units = horizon ?? DEFAULT_HORIZON;
  let pictures = asked.pictures ?? mapping.cameraMap !== undefined;
  let found = await previewed(units);
  if (asked.pictures === undefined && !pictures && variant.cameras.length > 0 && readsPictures(deps, found, model)) {
    pictures = true;
    found = await previewed(units);
  }
  if (found.wouldRefuse && horizon === undefined) {
    // Offerings that return fewer steps per call.
    const [shorter] = (await previewed(1)).plan;
    const most = shorter && deps.maxHorizonOf(shorter.offeringId);
    if (shorter && most !== undefined) {
      units = Math.min(DEFAULT_HORIZON, most);
      found = await previewed(units, [shorter.offeringId]);
    }
  }
  const chosen = offeringOf(found.plan, model);
  // The hold of a new evaluation checks the credit.
  if (!chosen || (found.wouldRefuse && !isUnpaid(found.wouldRefuse.code)))
    throw asPreviewed(deps, found.wouldRefuse?.code ?? "no_route_available", variant, found.dropped);
  const { offeringId: id, provider, estimatedCostUsd } = chosen;
  const callMicro = Math.ceil(estimatedCostUsd * MICRO_PER_USD);
  const revision = (await findOffering(deps.sql, id))?.checkpoint?.digest;
  return { protocol: "gateway", pictures, offering: { id, provider, revision }, callMicro, ...stepsOf(asked, units) };
}

/** Whether the offering that a preview chose declares cameras; without one, whether one that it dropped for its inputs does. */
function readsPictures(deps: EvaluationServiceDeps, { plan, dropped }: PreviewRoutesResponse, model: string): boolean {
  const chosen = offeringOf(plan, model);
  const read = chosen ? [chosen] : dropped.filter(({ reason }) => reason === DropReason.INPUT);
  return read.some(({ offeringId }) => (deps.inputOf(offeringId)?.cameras?.cameras.length ?? 0) > 0);
}

/** A frame of a scenario's camera, without pixels. */
const shownBy = ({ name, width, height }: ScenarioVariant["cameras"][number]) => ({
  camera: name,
  url: "data:,",
  width,
  height,
  format: ImageFormat.PNG,
});

const MICRO_PER_USD = 1_000_000;

/**
 * The offering for an evaluation. For a model named directly, the offering declared first, so that the next evaluation uses it too; otherwise
 * the first of the plan, which has the requested order.
 */
function offeringOf(plan: readonly PlanStep[], model: string): PlanStep | undefined {
  const own = plan.filter((step) => step.model === model);
  return own.toSorted((a, b) => (a.offeringId < b.offeringId ? -1 : 1))[0] ?? plan[0];
}

/** The runtime for an address. Refuses mismatched runtimes, profiles that it cannot use, and non-public addresses. */
function addressOf(
  deps: EvaluationServiceDeps,
  asked: EvaluateRequest,
  scheme: string,
  { actionSpace, fields }: ScenarioVariant,
): string {
  const { policyEndpoint, profile, runtime = BY_SCHEME[scheme] } = asked;
  const reaching = RUNTIMES.filter((each) => deps.upstream.wireOf(each)?.schemes.includes(scheme));
  if (reaching.length === 0) {
    const known = new Set(RUNTIMES.flatMap((each) => deps.upstream.wireOf(each)?.schemes ?? []));
    const text = `must be a model, an alias, or an address with ${[...known].map((each) => `${each}//`).join(" or ")}`;
    throw violation("policy_endpoint", text, "url_scheme");
  }
  const wire = runtime !== undefined && reaching.includes(runtime) ? deps.upstream.wireOf(runtime) : undefined;
  if (!wire) {
    const text = `must be a runtime for ${scheme}// addresses: ${reaching.join(", ")}`;
    throw violation("runtime", text, runtime === undefined ? "missing" : "enum", reaching);
  }
  checkProfile(wire, { profile, contracts: [Contract.ACT], actionSpaces: [actionSpace], actionDim: fields.length });
  try {
    checkUrl(policyEndpoint, { schemes: wire.schemes, allowPrivate: deps.allowPrivate });
  } catch (thrown) {
    if (!(thrown instanceof AddressRefused)) throw thrown;
    const policy = { schemes: wire.schemes, allowPrivate: deps.allowPrivate };
    const text = `policy_endpoint ${wordsOfRefusal(thrown, policy)}`;
    throw refuse(Reason.ADDRESS_REFUSED, text, {}, { param: "policy_endpoint", cause: thrown });
  }
  return wire.id;
}

// Evaluation messages, from the job's records.

/** An evaluation with its finished episodes; only their number if the results were deleted. */
export function shownEvaluation(
  kept: JobRecord,
  parts: readonly ItemRecord[],
  seal: JobSeal,
  films: readonly FilmRecord[] = [],
): Evaluation {
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
      pictures: request.pictures,
      ...(request.cameraMap && { cameraMap: { ...request.cameraMap } }),
      ...(request.stateMap && { stateMap: [...request.stateMap] }),
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
    perEpisode: ended.map((item) => shownEpisode(item, result)).map((episode) => withFilm(episode, job.id, films)),
    ...(films.length > 0 && { films: progressOf(films) }),
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
    ...(!isExternal(request) && { estimate: estimateOf([request]) }),
    ...(request.comparison && !request.comparison.blind && { comparisonId: request.comparison.id }),
  });
}

const progressOf = (films: readonly FilmRecord[]) => ({
  total: films.length,
  ready: films.filter(({ type }) => type !== undefined).length,
  failed: films.filter(({ error }) => error !== undefined).length,
});

/** Adds the path of its film to an episode, or why it could not be rendered. */
function withFilm(episode: EpisodeRecord, jobId: string, films: readonly FilmRecord[]): EpisodeRecord {
  const { type, error } = films.find(({ index }) => index === episode.index) ?? {};
  if (error !== undefined) return { ...episode, filmError: error };
  if (type === undefined) return episode;
  return { ...episode, filmUrl: `/v1/evaluate/${jobId}/films/${episode.index}`, filmType: type };
}

/** The most that evaluations can cost together. */
export function estimateOf(requests: readonly EvaluationRequest[]) {
  const most = requests.map(mostMicro);
  const episodesMicro = most.reduce((sum, { episodes }) => sum + episodes, 0);
  const callsMicro = most.reduce((sum, { calls }) => sum + calls, 0);
  return {
    episodes: requests.reduce((sum, { episodes }) => sum + episodes, 0),
    episodesUsd: toUsd(episodesMicro),
    policyCalls: requests.reduce((sum, { episodes, calls }) => sum + episodes * calls.most, 0),
    policyCallsUsd: toUsd(callsMicro),
    totalUsd: toUsd(episodesMicro + callsMicro),
  };
}

export function usageOf(billed: readonly ItemRecord[], { count, micro }: PolicyCalls) {
  const episodesMicro = billed.reduce((sum, { costMicro }) => sum + costMicro, 0);
  return {
    episodes: billed.length,
    costUsd: toUsd(episodesMicro),
    policyCalls: count,
    policyCostUsd: toUsd(micro),
    totalCostUsd: toUsd(episodesMicro + micro),
  };
}

export function shownScenario(request: EvaluationRequest) {
  const { scenario, world, actionSpace, mode } = request;
  return {
    id: world ? scenario.replace(/@[^@]*$/, "") : scenario,
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

/** A finished episode. */
function shownEpisode({ index, response }: ItemRecord, { pictures }: EvaluationResult = {}): EpisodeRecord {
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
