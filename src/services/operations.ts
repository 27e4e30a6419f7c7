/** Whether the gateway lives, and whether it should receive traffic. */
import { create } from "@bufbuild/protobuf";
import {
  BreakerState,
  DeprecateModelResponseSchema,
  ForceCircuitResponseSchema,
  GetHealthResponseSchema,
  GetPlatformResponseSchema,
  GetReadinessResponseSchema,
  HealthDetailSchema,
  type OperationsService,
} from "../../gen/limber/v1/operations_service_pb.ts";
import { API_VERSION } from "../brand.ts";
import { byCall, type Implementation } from "../call.ts";
import { inTime, now, nowSeconds, steadyNow } from "../clock.ts";
import { violation } from "../contracts/contract.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import { emit } from "../events/emit.ts";
import { audit } from "../store/account/audit.ts";
import { announceSunset } from "../store/billing/alerts.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import { countJobs } from "../store/jobs/jobs.ts";
import { forceCircuit } from "../store/replicas/circuits.ts";
import { countReplicas } from "../store/replicas/replicas.ts";
import type { LiveSupply } from "../supply/live-supply.ts";
import { statusOf } from "./operations/status.ts";

/** What there is to know about this instance. */
export interface OperationsDeps {
  sql: Sql;
  supply: LiveSupply;
  /** Why the instance should not receive traffic; undefined when it should. */
  unready(): Refusal | undefined;
  /** What the operator should look at. */
  warnings(): readonly string[];
  /** What is kept in memory, and how often it served since the start. */
  cache(): { entries: number; hits: number; misses: number };
  /** What this deployment has. */
  setup: PlatformSetup;
}

/** The least time between the notice of a model's retirement and the retirement. */
const NOTICE_S = 90 * 86_400;
/** Organisations with a call to the model in this time are notified. */
const USED_FOR_DAYS = 30;

/** An operator's override as the store spells it; without one the breaker is free. */
const FORCED: Readonly<Partial<Record<BreakerState, "open" | "closed">>> = {
  [BreakerState.FORCED_OPEN]: "open",
  [BreakerState.FORCED_CLOSED]: "closed",
};

/** Milliseconds after which a database counts as stalled; the status must not stall with it. */
const PATIENCE_MS = 250;

/** What `read` answers, or what it answered last, `first` before that, where it takes long or fails. */
function remembered<T>(read: () => Promise<T>, first: T): () => Promise<T> {
  let last = first;
  let reading: Promise<T> | undefined;
  return () => {
    reading ??= read()
      .then((value) => {
        last = value;
        return value;
      })
      .finally(() => {
        reading = undefined;
      });
    return inTime(reading, { ms: PATIENCE_MS, late: () => undefined }).catch(() => last);
  };
}

/** The operations RPCs. */
export function operationsService({
  sql,
  supply,
  unready,
  warnings,
  cache,
  setup,
}: OperationsDeps): Implementation<typeof OperationsService> {
  const startedAt = steadyNow();
  const jobs = remembered(() => countJobs(sql), { queued: 0, running: 0, failed24h: 0 });
  const replicas = remembered(() => countReplicas(sql), 1);
  return {
    async getHealth(_request, { principal }) {
      const detail = create(HealthDetailSchema, {
        liveOfferings: supply.live.length,
        uptimeS: Math.round(steadyNow() - startedAt) / 1000,
        warnings: [...warnings()],
        upstreams: supply.endpoints(),
      });
      return create(GetHealthResponseSchema, {
        status: "ok",
        // Placeholders are no supply, so whatever is live is real.
        inference: supply.live.length > 0 ? "real" : "simulated",
        version: API_VERSION,
        ...(principal.kind === "admin" && { detail }),
      });
    },

    async getReadiness() {
      const refusal = unready();
      if (refusal !== undefined) throw refusal;
      return create(GetReadinessResponseSchema, { status: "ready" });
    },

    async getStatus() {
      const { entries, hits, misses } = cache();
      const asked = hits + misses;
      return statusOf(supply.health.figures(steadyNow()), {
        jobs: await jobs(),
        cache: { entries, ...(asked > 0 && { hitRate: Math.round((hits / asked) * 1e4) / 1e4 }) },
      });
    },

    async getPlatform() {
      const regions = new Set(supply.live.map(({ region }) => region).filter((region) => region !== ""));
      return create(GetPlatformResponseSchema, {
        replicas: await replicas(),
        uptimeS: Math.round(steadyNow() - startedAt) / 1000,
        features: featuresOf(setup),
        limits: LIMITS,
        regions: [...regions].sort(),
      });
    },

    async deprecateModel({ owner, name, sunsetAt }, call) {
      const model = `${owner}/${name}`;
      if (sunsetAt < nowSeconds() + NOTICE_S)
        throw violation("sunset_at", "must be at least 90 days ahead", "greater_than_equal");
      return tx(sql, async (tx) => {
        const announced = await announceSunset(tx, model, { sunsetAt, atMs: now(), usedForDays: USED_FOR_DAYS });
        if (!announced) throw refuse(Reason.MODEL_NOT_FOUND, `there is no model ${model}`);
        if (announced.sunsetAt > sunsetAt)
          throw violation("sunset_at", "must not be before what was announced", "greater_than_equal");
        const happening = { case: "modelDeprecated", value: { model, sunsetAt } } as const;
        for (const orgId of announced.users) await emit(tx, orgId, happening);
        const { deprecatedAt, users, suppliers } = announced;
        const act = { ...byCall(call), action: "model.deprecated", subject: model, details: { sunset_at: sunsetAt } };
        for (const orgId of [...new Set([...users, ...suppliers])].sort()) await audit(tx, { ...act, orgId });
        return create(DeprecateModelResponseSchema, { model, deprecatedAt, sunsetAt, told: users.length });
      });
    },

    async forceCircuit({ offeringId, state, reason }, call) {
      await tx(sql, async (tx) => {
        const circuit = await forceCircuit(tx, offeringId, FORCED[state]);
        if (!circuit) throw refuse(Reason.NOT_FOUND, `there is no offering ${offeringId}`);
        await audit(tx, {
          ...byCall(call),
          orgId: circuit.orgId,
          action: "offering.circuit_forced",
          subject: offeringId,
          details: { state: FORCED[state] ?? "free", reason },
        });
      });
      return create(ForceCircuitResponseSchema, { offeringId, state });
    },
  };
}

/** What a deployment may have or not. */
interface PlatformSetup {
  readonly nats: boolean;
  readonly payments: boolean;
  readonly publicSignup: boolean;
  readonly scenarioPacks: boolean;
}

/** What can be done here, by name. */
const featuresOf = ({ nats, payments, publicSignup, scenarioPacks }: PlatformSetup): Record<string, boolean> => ({
  act_stream: true,
  batch: true,
  broadcast: true,
  evaluate: true,
  events_nats: nats,
  payments,
  public_signup: publicSignup,
  scenario_packs: scenarioPacks,
  webhooks: true,
});

/** What no call may exceed. */
const LIMITS: Readonly<Record<string, number>> = {
  batch_items: 1_000,
  batch_bytes: 64 << 20,
  evaluation_episodes: 10_000,
  metadata_keys: 16,
  metadata_value_characters: 512,
  request_bytes: 32 << 20,
  message_bytes: 64 << 20,
  session_silence_s: 900,
};
