/** What was used, what it cost, and what it brought in. */
import { create } from "@bufbuild/protobuf";
import {
  type Margin,
  MarginReconciliationSchema,
  MarginSchema,
  UsageRecordSchema,
  UsageStatus,
} from "../../../gen/limber/v1/account_pb.ts";
import {
  type AccountService,
  GetUsageMarginResponseSchema,
  ListUsageResponseSchema,
} from "../../../gen/limber/v1/account_service_pb.ts";
import { secondOf, toUsd } from "../../billing/price.ts";
import { type Implementation, keyOf } from "../../call.ts";
import { nowSeconds } from "../../clock.ts";
import { type MarginRow, readMargin } from "../../store/billing/margin.ts";
import { listUsage, type UsageRow, usageTotals } from "../../store/billing/usage.ts";
import { ASSUMED_SCALEDOWN_S } from "../../supply/facts.ts";
import { DEFAULT_PAGE, readPage } from "../pages.ts";
import { workspaceFor } from "../workspace-reach.ts";
import type { KeyParts } from "./keys.ts";
import { assertReachable } from "./reach.ts";

const DEFAULT_LINES = 200;
const DEFAULT_SPAN_S = 30 * 86_400;
/** The RPCs about usage. */
export function usageCalls({
  sql,
  settled,
}: Pick<KeyParts, "sql" | "settled">): Pick<Implementation<typeof AccountService>, "listUsage" | "getUsageMargin"> {
  return {
    async listUsage({ limit = DEFAULT_PAGE, cursor, ...asked }, call) {
      const { orgId } = keyOf(call);
      const { keyId, model, provider, contract, requestId, since, until } = asked;
      const workspaceId = workspaceFor(call, asked.workspaceId, "usage");
      const filter = { keyId, workspaceId, model, provider, contract, requestId, since, until };
      await settled(orgId);
      const [{ records, ...page }, totals] = await Promise.all([
        readPage(
          limit,
          (most) => listUsage(sql, orgId, { limit: most, cursor, ...filter }),
          ({ requestId }) => requestId,
        ),
        usageTotals(sql, orgId, filter),
      ]);
      return create(ListUsageResponseSchema, {
        ...page,
        data: records.map(usageMessage),
        totals: { requests: totals.requests, costUsd: toUsd(totals.costMicro) },
      });
    },

    async getUsageMargin({ orgId, limit = DEFAULT_LINES, since = nowSeconds() - DEFAULT_SPAN_S, until }, call) {
      if (orgId !== undefined) await assertReachable(sql, orgId, call);
      const { organisations, models, totals } = await readMargin(sql, {
        orgId,
        limit,
        since: new Date(since * 1000),
        until: until === undefined ? undefined : new Date(until * 1000),
        assumedScaledownS: ASSUMED_SCALEDOWN_S,
        secondOf,
      });
      const sums = {
        assumedScaledownRequests: totals.assumedScaledown,
        unchargedIdleUsd: toUsd(totals.idleMicro),
        unmeteredRequests: totals.unmetered,
      };
      return create(GetUsageMarginResponseSchema, {
        object: "margin_report",
        organisations: organisations.map(marginMessage),
        models: models.map(marginMessage),
        totals: marginMessage(totals),
        reconciliation: create(MarginReconciliationSchema, {
          requestsUsd: toUsd(totals.revenueMicro),
          ledgerUsd: toUsd(totals.ledgerMicro),
          differenceUsd: toUsd(totals.revenueMicro - totals.ledgerMicro),
          modelledInfraUsd: toUsd(totals.infraMicro),
          ...sums,
        }),
        ...sums,
      });
    },
  };
}

const usageMessage = (row: UsageRow) =>
  create(UsageRecordSchema, {
    id: `use${row.requestId.slice(row.requestId.indexOf("_"))}`,
    requestId: row.requestId,
    created: row.created,
    contract: row.contract,
    model: row.model,
    provider: row.provider,
    units: row.units,
    unit: row.unit,
    costUsd: toUsd(row.costMicro),
    wakeUpUsd: toUsd(row.wakeUpMicro),
    ...(row.hedgeCostMicro !== null && { hedgeCostUsd: toUsd(row.hedgeCostMicro) }),
    keyId: row.keyId,
    simulated: row.simulated,
    byok: row.byok,
    status: row.status === "settled" ? UsageStatus.SETTLED : UsageStatus.UNMETERED,
    ...(row.workspaceId !== null && { workspaceId: row.workspaceId }),
  });

const marginMessage = (row: MarginRow): Margin => {
  const marginMicro = row.revenueMicro - row.infraMicro;
  return create(MarginSchema, {
    ...(row.orgId !== null && { orgId: row.orgId }),
    ...(row.model !== null && { model: row.model }),
    requests: row.requests,
    revenueUsd: toUsd(row.revenueMicro),
    modelledInfraUsd: toUsd(row.infraMicro),
    marginUsd: toUsd(marginMicro),
    ...(row.revenueMicro > 0 && { marginRatio: marginMicro / row.revenueMicro }),
    assumedScaledownRequests: row.assumedScaledown,
    unchargedIdleUsd: toUsd(row.idleMicro),
    unmeteredRequests: row.unmetered,
  });
};
