/** Health, readiness and status of the gateway, and operator actions on models and offerings. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  BreakerState,
  type GetStatusResponseSchema,
  HealthDetailSchema,
  HealthTier,
  type OfferingStatusRecord,
  OfferingStatusRecordSchema,
  type OperationsService,
  type ProviderStatus,
  ProviderStatusSchema,
} from "../../gen/limber/v1/operations_service_pb.ts";
import { API_VERSION } from "../brand.ts";
import { byCall, type Implementation } from "../call.ts";
import { inTime, now, nowSeconds, steadyNow } from "../clock.ts";
import { enumOf, violation } from "../contracts/contract.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import { emit } from "../events/emit.ts";
import type { OfferingHealth } from "../routing/index.ts";
import { audit } from "../store/account/audit.ts";
import { announceSunset } from "../store/billing/alerts.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import { countJobs } from "../store/jobs/jobs.ts";
import { countReplicas, forceCircuit } from "../store/replicas/replicas.ts";
import type { LiveSupply } from "../supply/live-supply.ts";

/** The state of this replica. */
interface OperationsDeps {
  sql: Sql;
  supply: LiveSupply;
  /** Why this replica should receive no traffic; undefined if it should. */
  unready(): Refusal | undefined;
  /** Conditions that need the operator's attention. */
  warnings(): readonly string[];
  /** Sizes and hits of the caches since the start. */
  cache(): { entries: number; hits: number; misses: number };
  /** The features of this deployment. */
  setup: PlatformSetup;
  /** What encodes films in this process; undefined if it runs no jobs. */
  filmEncoder: string | undefined;
}

/** The minimum time between the notice of a model's retirement and the retirement. */
const NOTICE_S = 90 * 86_400;
/** Organizations that called the model within this time are notified. */
const USED_FOR_DAYS = 30;

/** The store's values of an operator's override; without one the breaker decides. */
const FORCED: Readonly<Partial<Record<BreakerState, "open" | "closed">>> = {
  [BreakerState.FORCED_OPEN]: "open",
  [BreakerState.FORCED_CLOSED]: "closed",
};

/** Milliseconds after which the database counts as stalled; the status must not stall with it. */
const PATIENCE_MS = 250;

/** Returns the result of `read`. If it is slow or fails, returns the previous result, or initially `first`. */
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
  filmEncoder,
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
        ...(filmEncoder !== undefined && { filmEncoder }),
      });
      return {
        status: "ok",
        // Placeholder offerings don't count as supply.
        inference: supply.live.length > 0 ? "real" : "none",
        version: API_VERSION,
        ...(principal.kind === "admin" && { detail }),
      };
    },

    async getReadiness() {
      const refusal = unready();
      if (refusal !== undefined) throw refusal;
      return { status: "ready" };
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
      return {
        replicas: await replicas(),
        uptimeS: Math.round(steadyNow() - startedAt) / 1000,
        features: featuresOf(setup),
        limits: LIMITS,
        regions: [...regions].sort(),
      };
    },

    async deprecateModel({ owner, name, sunsetAt }, call) {
      const model = `${owner}/${name}`;
      if (sunsetAt < nowSeconds() + NOTICE_S)
        throw violation("sunset_at", "must be at least 90 days in the future", "greater_than_equal");
      return tx(sql, async (tx) => {
        const announced = await announceSunset(tx, model, { sunsetAt, atMs: now(), usedForDays: USED_FOR_DAYS });
        if (!announced) throw refuse(Reason.MODEL_NOT_FOUND, `model ${model} not found`);
        if (announced.sunsetAt > sunsetAt)
          throw violation("sunset_at", "must not be before the announced date", "greater_than_equal");
        const happening = { case: "modelDeprecated", value: { model, sunsetAt } } as const;
        for (const orgId of announced.users) await emit(tx, orgId, happening);
        const { deprecatedAt, users, suppliers } = announced;
        const act = { ...byCall(call), action: "model.deprecated", subject: model, details: { sunset_at: sunsetAt } };
        for (const orgId of [...new Set([...users, ...suppliers])].sort()) await audit(tx, { ...act, orgId });
        return { model, deprecatedAt, sunsetAt, told: users.length };
      });
    },

    async forceCircuit({ offeringId, state, reason }, call) {
      await tx(sql, async (tx) => {
        const circuit = await forceCircuit(tx, offeringId, FORCED[state]);
        if (!circuit) throw refuse(Reason.NOT_FOUND, `offering ${offeringId} not found`);
        await audit(tx, {
          ...byCall(call),
          orgId: circuit.orgId,
          action: "offering.circuit_forced",
          subject: offeringId,
          details: { state: FORCED[state] ?? "free", reason },
        });
      });
      return { offeringId, state };
    },
  };
}

/** Optional features of a deployment. */
interface PlatformSetup {
  readonly nats: boolean;
  readonly payments: boolean;
  readonly publicSignup: boolean;
  readonly scenarioPacks: boolean;
}

/** The supported features, by name. */
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

/** The limits of calls. */
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

// Provider status, as measured by this replica.

/** Required success rates of calls. Source: decisions, section 9. */
const HEALTHY = 0.95;
const DEGRADED = 0.8;

/** The status of all providers by name, without placeholders. */
function statusOf(figures: Iterable<OfferingHealth>, rest: MessageInitShape<typeof GetStatusResponseSchema>) {
  const byProvider = new Map<string, OfferingStatusRecord[]>();
  for (const figure of figures) {
    const { provider, simulated } = figure.offering;
    if (simulated) continue;
    const known = byProvider.get(provider);
    if (known) known.push(recordOf(figure));
    else byProvider.set(provider, [recordOf(figure)]);
  }
  const providers = [...byProvider].map(providerOf).sort((a, b) => (a.provider < b.provider ? -1 : 1));
  return { ...rest, status: worst(providers.map(({ status }) => status)), providers };
}

function providerOf([provider, offerings]: [string, OfferingStatusRecord[]]): ProviderStatus {
  return create(ProviderStatusSchema, { provider, status: worst(offerings.map(({ tier }) => tier)), offerings });
}

const WORST_FIRST = [HealthTier.DOWN, HealthTier.DEGRADED] as const;

const worst = (tiers: readonly HealthTier[]): HealthTier =>
  WORST_FIRST.find((tier) => tiers.includes(tier)) ?? HealthTier.HEALTHY;

function recordOf({
  offering,
  breaker,
  failureRate = 0,
  uptime,
  lastFailure,
  p50Ms,
  p95Ms,
  p99Ms,
}: OfferingHealth): OfferingStatusRecord {
  const resting = breaker.state === "open" || breaker.state === "half_open";
  return create(OfferingStatusRecordSchema, {
    offeringId: offering.id,
    model: offering.model,
    state: enumOf(BreakerState, breaker.state),
    tier: tierOf(breaker.state, 1 - failureRate),
    failureRate5m: roundShare(failureRate),
    // Another replica's failures may have opened the breaker; then at least one call failed.
    consecutiveFailures: Math.max(breaker.consecutive, breaker.elsewhere.consecutive, resting ? 1 : 0),
    ...(resting && { openedAt: unixSeconds(breaker.openedAt), retryAt: unixSeconds(breaker.retryAt) }),
    ...(lastFailure !== undefined && { lastErrorCode: lastFailure }),
    ...(p50Ms !== undefined && { p50Ms: roundMs(p50Ms) }),
    ...(p95Ms !== undefined && { p95Ms: roundMs(p95Ms) }),
    ...(p99Ms !== undefined && { p99Ms: roundMs(p99Ms) }),
    ...(uptime?.last5m !== undefined && { uptime5m: roundShare(uptime.last5m) }),
    ...(uptime?.last1d !== undefined && { uptime1d: roundShare(uptime.last1d) }),
    ...(uptime && { uptime30d: roundShare(uptime.last30d) }),
  });
}

function tierOf(state: OfferingHealth["breaker"]["state"], success: number): HealthTier {
  if (state === "open" || state === "forced_open" || success < DEGRADED) return HealthTier.DOWN;
  return success < HEALTHY ? HealthTier.DEGRADED : HealthTier.HEALTHY;
}

/** Converts a monotonic time to wall-clock time. */
const unixSeconds = (steadyMs: number): number => Math.round((now() + steadyMs - steadyNow()) / 1000);

const roundShare = (share: number): number => Math.round(share * 1e5) / 1e5;

const roundMs = (ms: number): number => Math.round(ms * 1000) / 1000;
