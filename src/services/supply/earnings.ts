/** Performance, earnings and payouts of supply, for the provider's organization. Reveals nothing about callers. */

import { create } from "@bufbuild/protobuf";
import { BreakerMove, type OfferingDay, OfferingDaySchema } from "../../../gen/limber/v1/earning_pb.ts";
import type { SupplyService } from "../../../gen/limber/v1/supply_service_pb.ts";
import { fromUsd, toUsd } from "../../billing/price.ts";
import { byCall, type Call, type Implementation } from "../../call.ts";
import { nowSeconds } from "../../clock.ts";
import { AttemptFailure, enumOf, failureOf, violation } from "../../contracts/contract.ts";
import { Reason, refuse } from "../../errors.ts";
import { emit } from "../../events/emit.ts";
import { quantileOf } from "../../routing/index.ts";
import { audit } from "../../store/account/audit.ts";
import {
  type EarningRecord,
  earnedBy,
  listEarnings,
  listPayouts,
  listStatements,
  type PayoutRecord,
  providersAtDefault,
  recordPayout,
  type ServedRecord,
  type StatementRecord,
  servedBy,
  setShare,
  shareOf,
} from "../../store/billing/earnings.ts";
import { type Queryable, type Tx, tx } from "../../store/database/tx.ts";
import { type AttemptDay, attemptDays, type TroubleRecord, troublesOf } from "../../store/history/series.ts";
import { circuitMoves } from "../../store/replicas/replicas.ts";
import { findOffering, findProvider, namesOfProviders, type ProviderRecord } from "../../store/supply/supply.ts";
import type { SupplyDeps } from "../../supply/withdraw.ts";
import { DEFAULT_PAGE, readPage } from "../pages.ts";

type EarningRpcs = Pick<
  Implementation<typeof SupplyService>,
  | "getOfferingStats"
  | "listEarnings"
  | "listStatements"
  | "getProviderBalance"
  | "listPayouts"
  | "recordPayout"
  | "setShare"
>;

const DEFAULT_DAYS = 30;
const MOST_MOVES = 200;
const DAY_S = 86_400;

/** The RPCs for the performance and earnings of offerings. */
export function earningRpcs({ sql }: SupplyDeps): EarningRpcs {
  return {
    async getOfferingStats({ offeringId, days = DEFAULT_DAYS }, call) {
      const known = await findOffering(sql, offeringId);
      if (!known || !isOwn(known.orgId, call)) throw refuse(Reason.NOT_FOUND, "offering not found");
      const at = nowSeconds();
      const since = dayOf(at - (days - 1) * DAY_S);
      const [served, attempts, troubles, moves] = await Promise.all([
        servedBy(sql, offeringId, since),
        attemptDays(sql, offeringId, since, Math.floor(at / 3600)),
        troublesOf(sql, offeringId, since),
        circuitMoves(sql, offeringId, { since: new Date(`${since}T00:00:00Z`), limit: MOST_MOVES }),
      ]);
      const { model, provider } = known;
      return {
        offeringId,
        model,
        provider,
        days: daysOf(served, attempts, troubles),
        breaker: moves.map(({ at, move }) => ({ at, move: enumOf(BreakerMove, move) })),
      };
    },

    async listEarnings({ provider, limit = DEFAULT_PAGE, cursor, model, offeringId, since, until }, call) {
      const providers = await providersFor(sql, provider, call);
      const { records, ...page } = await readPage(
        limit,
        (most) => listEarnings(sql, { providers, model, offeringId, since, until, limit: most, cursor }),
        ({ place }) => place,
      );
      return { ...page, data: records.map(earningMessage) };
    },

    async listStatements({ provider, limit = DEFAULT_PAGE, cursor }, call) {
      const providers = await providersFor(sql, provider, call);
      const { records, ...page } = await readPage(
        limit,
        (most) => listStatements(sql, { providers, limit: most, cursor }),
        ({ place }) => place,
      );
      return { ...page, data: records.map(statementMessage) };
    },

    async getProviderBalance({ provider: name }, call) {
      const { name: provider } = await reachableProvider(sql, name, call);
      const [{ earnedMicro, paidMicro }, { shareBp, own }] = await Promise.all([
        earnedBy(sql, provider),
        shareOf(sql, provider),
      ]);
      const balance = {
        provider,
        sharePercent: shareBp / 100,
        ownShare: own,
        earnedUsd: toUsd(earnedMicro),
        paidUsd: toUsd(paidMicro),
        owedUsd: toUsd(earnedMicro - paidMicro),
      };
      return { balance };
    },

    async listPayouts({ provider: name, limit = DEFAULT_PAGE, cursor: before }, call) {
      const { name: provider } = await reachableProvider(sql, name, call);
      const { records, ...page } = await readPage(
        limit,
        (most) => listPayouts(sql, provider, { limit: most, before }),
        ({ id }) => id,
      );
      return { ...page, data: records.map(payoutMessage) };
    },

    async recordPayout({ provider: name, amountUsd, reference }, call) {
      const amountMicro = fromUsd(amountUsd);
      const { id: subject, orgId } = await reachableProvider(sql, name, call);
      const recorded = await tx(sql, async (tx) => {
        const recorded = await recordPayout(tx, { provider: name, amountMicro, reference });
        if (!("payout" in recorded)) {
          const text = `must be at most the due amount, $${toUsd(recorded.owedMicro)}`;
          throw violation("amount_usd", text, "less_than_equal");
        }
        if (recorded.isNew) {
          const { id: payoutId } = recorded.payout;
          await emit(tx, orgId, { case: "providerPaid", value: { provider: name, payoutId, amountUsd } });
          const details = { provider: name, payout_id: payoutId, amount_usd: amountUsd, reference };
          await audit(tx, { ...byCall(call), orgId, action: "provider.paid", subject, details });
        }
        return recorded;
      });
      return { payout: payoutMessage(recorded.payout) };
    },

    async setShare({ provider: name, percent }, call) {
      if (name === undefined && percent === undefined)
        throw violation("percent", "is required if no provider is named", "required");
      const shareBp = percent === undefined ? null : basisPointsOf(percent);
      const inForce = await tx(sql, async (tx) => {
        const concerned = name === undefined ? await providersAtDefault(tx) : [await reachableProvider(tx, name, call)];
        await setShare(tx, name, shareBp);
        const inForce = shareBp ?? (await shareOf(tx, name!)).shareBp; // one of the two was given
        await recordShare(tx, concerned, inForce, call);
        return inForce;
      });
      return { provider: name, percent: inForce / 100 };
    },
  };
}

/** Notifies the organizations that have the share, and audits the change. */
async function recordShare(
  tx: Tx,
  concerned: readonly Pick<ProviderRecord, "id" | "name" | "orgId">[],
  shareBp: number,
  call: Call,
): Promise<void> {
  const sharePercent = shareBp / 100;
  for (const { name: provider, orgId } of concerned)
    await emit(tx, orgId, { case: "providerShareChanged", value: { provider, sharePercent } });
  for (const { id: subject, name: provider, orgId } of concerned) {
    const details = { provider, share_percent: sharePercent };
    await audit(tx, { ...byCall(call), orgId, action: "provider.share_set", subject, details });
  }
}

/** Access for the operator and the provider's organization. */
const isOwn = (orgId: string, { principal }: Call): boolean =>
  principal.kind === "admin" || (principal.kind === "key" && principal.orgId === orgId);

async function reachableProvider(sql: Queryable, name: string, call: Call): Promise<ProviderRecord> {
  const provider = await findProvider(sql, name);
  if (provider && isOwn(provider.orgId, call)) return provider;
  throw refuse(Reason.NOT_FOUND, `provider ${JSON.stringify(name)} not found`);
}

/** The providers in a list: those of the caller's organization, or all for the operator. */
async function providersFor(
  sql: Queryable,
  name: string | undefined,
  { principal }: Call,
): Promise<readonly string[] | undefined> {
  if (principal.kind === "admin") return name === undefined ? undefined : [name];
  const own = principal.kind === "key" ? await namesOfProviders(sql, principal.orgId) : [];
  return name === undefined ? own : own.filter((each) => each === name);
}

function basisPointsOf(percent: number): number {
  const whole = Math.round(percent * 100);
  if (whole / 100 !== percent) throw violation("percent", "must have at most two decimals", "decimals");
  return whole;
}

const dayOf = (seconds: number): string => new Date(seconds * 1000).toISOString().slice(0, 10);

/** Merges the facts of each day. */
function daysOf(
  served: readonly ServedRecord[],
  attempts: readonly AttemptDay[],
  troubles: readonly TroubleRecord[],
): OfferingDay[] {
  const days = new Map<string, OfferingDay>();
  const at = (day: string): OfferingDay => {
    const known = days.get(day) ?? create(OfferingDaySchema, { day });
    days.set(day, known);
    return known;
  };
  for (const { day, unit, calls, ownKeyCalls, hedges, units } of served) {
    const of = at(day);
    of.calls += calls;
    of.ownKeyCalls += ownKeyCalls;
    of.hedges += hedges;
    if (units > 0) of.units.push({ $typeName: "limber.v1.UnitCount", unit, count: units });
  }
  for (const { day, calls, failures, restedMs, latency, uptime } of attempts) {
    const of = at(day);
    const [p50Ms, p95Ms, p99Ms] = [0.5, 0.95, 0.99].map((share) => quantileOf(latency, share));
    Object.assign(of, {
      attempts: calls,
      failedAttempts: failures,
      restingS: restedMs / 1000,
      ...(uptime !== null && { uptime }),
      ...(p50Ms !== undefined && { p50Ms, p95Ms, p99Ms }),
    });
  }
  for (const { day, kind, count, said } of troubles) {
    if (kind === "hold") at(day).holds = count;
    else {
      const reason = failureOf(kind) ?? AttemptFailure.UNSPECIFIED;
      at(day).failures.push({
        $typeName: "limber.v1.FailureCount",
        reason,
        count,
        ...(said !== null && { said }),
      });
    }
  }
  return [...days.values()].sort((a, b) => (a.day < b.day ? 1 : -1));
}

const earningMessage = ({ grossMicro, shareBp, earnedMicro, ...earning }: EarningRecord) => ({
  ...earning,
  chargedUsd: toUsd(grossMicro),
  sharePercent: shareBp / 100,
  earnedUsd: toUsd(earnedMicro),
});

const statementMessage = ({ grossMicro, earnedMicro, paidMicro, models, ...statement }: StatementRecord) => ({
  ...statement,
  chargedUsd: toUsd(grossMicro),
  earnedUsd: toUsd(earnedMicro),
  paidUsd: toUsd(paidMicro),
  models: models.map(({ model, calls, gross_micro, earned_micro }) => ({
    model,
    calls,
    chargedUsd: toUsd(gross_micro),
    earnedUsd: toUsd(earned_micro),
  })),
});

const payoutMessage = ({ amountMicro, ...payout }: PayoutRecord) => ({ ...payout, amountUsd: toUsd(amountMicro) });
