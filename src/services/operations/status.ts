/** How the providers do, as this replica has measured them. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  BreakerState,
  type GetStatusResponse,
  GetStatusResponseSchema,
  HealthTier,
  type OfferingStatusRecord,
  OfferingStatusRecordSchema,
  type ProviderStatus,
  ProviderStatusSchema,
} from "../../../gen/limber/v1/operations_service_pb.ts";
import { now, steadyNow } from "../../clock.ts";
import type { OfferingHealth } from "../../routing/index.ts";

const STATES: Readonly<Record<OfferingHealth["breaker"]["state"], BreakerState>> = {
  closed: BreakerState.CLOSED,
  open: BreakerState.OPEN,
  half_open: BreakerState.HALF_OPEN,
  forced_open: BreakerState.FORCED_OPEN,
  forced_closed: BreakerState.FORCED_CLOSED,
};

/** Shares of calls that have to succeed. Source: decisions, section 9. */
const HEALTHY = 0.95;
const DEGRADED = 0.8;

/** The status of all providers, by name, beside the rest of the answer; placeholders are no supply. */
export function statusOf(
  figures: Iterable<OfferingHealth>,
  rest: MessageInitShape<typeof GetStatusResponseSchema>,
): GetStatusResponse {
  const byProvider = new Map<string, OfferingStatusRecord[]>();
  for (const figure of figures) {
    const { provider, simulated } = figure.offering;
    if (simulated) continue;
    const known = byProvider.get(provider);
    if (known) known.push(recordOf(figure));
    else byProvider.set(provider, [recordOf(figure)]);
  }
  const providers = [...byProvider].map(providerOf).sort((a, b) => (a.provider < b.provider ? -1 : 1));
  return create(GetStatusResponseSchema, { ...rest, status: worst(providers.map(({ status }) => status)), providers });
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
    state: STATES[breaker.state],
    tier: tierOf(breaker.state, 1 - failureRate),
    failureRate5m: roundShare(failureRate),
    // Another replica's failures may have opened it; what opened it failed at least once.
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

/** A moment of the steady clock as the world dates it. */
const unixSeconds = (steadyMs: number): number => Math.round((now() + steadyMs - steadyNow()) / 1000);

const roundShare = (share: number): number => Math.round(share * 1e5) / 1e5;

const roundMs = (ms: number): number => Math.round(ms * 1000) / 1000;
