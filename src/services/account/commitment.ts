/** What an organisation promises to spend each month. */
import { create } from "@bufbuild/protobuf";
import { type Commitment, CommitmentSchema } from "../../../gen/limber/v1/account_pb.ts";
import { type AccountService, SetCommitmentResponseSchema } from "../../../gen/limber/v1/account_service_pb.ts";
import { fromUsd, toUsd } from "../../billing/price.ts";
import { byCall, type Implementation } from "../../call.ts";
import { now } from "../../clock.ts";
import { violation } from "../../contracts/contract.ts";
import { audit } from "../../store/account/audit.ts";
import { type CommitmentRecord, commit } from "../../store/billing/commitments.ts";
import { tx } from "../../store/database/tx.ts";
import type { KeyParts } from "./keys.ts";
import { assertReachable } from "./reach.ts";

/** The RPC about commitments. */
export function commitmentCalls({
  sql,
  settled,
}: Pick<KeyParts, "sql" | "settled">): Pick<Implementation<typeof AccountService>, "setCommitment"> {
  return {
    async setCommitment({ orgId, minMonthlyUsd = 0, startsOn }, call) {
      const minMicro = fromUsd(minMonthlyUsd, "min_monthly_usd");
      if (startsOn !== undefined) refuseBadDay(startsOn);
      await assertReachable(sql, orgId, call);
      await settled(orgId);
      const promised = await tx(sql, async (tx) => {
        const record = await commit(tx, orgId, { minMicro, startsOn, atMs: now() });
        const details = { min_monthly_usd: minMonthlyUsd, starts_on: startsOn };
        await audit(tx, { ...byCall(call), orgId, action: "commitment.set", subject: orgId, details });
        return record;
      });
      return create(SetCommitmentResponseSchema, {
        orgId,
        minMonthlyUsd,
        usedUsd: toUsd(promised?.usedMicro ?? 0),
        periodStart: promised?.periodStart ?? 0,
        periodEnd: promised?.periodEnd ?? 0,
        ...shareOf(promised),
      });
    },
  };
}

/** A month that is over can't be promised any more, and what is far away is a slip. */
function refuseBadDay(day: string): void {
  const at = Date.parse(`${day}T00:00:00Z`);
  const thisMonth = new Date(now()).toISOString().slice(0, 7);
  const isDay = !Number.isNaN(at) && new Date(at).toISOString().slice(0, 10) === day;
  if (!isDay) throw violation("starts_on", "is no day of the calendar", "date");
  if (day.slice(0, 7) < thisMonth) throw violation("starts_on", "lies before the running month", "greater_than_equal");
  if (at > now() + 366 * 86_400_000) throw violation("starts_on", "lies more than a year ahead", "less_than_equal");
}

/** What the running period is promised; a first month counts by its days. */
const shareOf = (promised: CommitmentRecord | undefined) => ({
  dueUsd: toUsd(promised?.dueMicro ?? 0),
  prorated: promised !== undefined && promised.dueMicro < promised.minMicro,
});

/** A promise as the balance shows it. */
export const commitmentMessage = (promised: CommitmentRecord): Commitment =>
  create(CommitmentSchema, {
    minMonthlyUsd: toUsd(promised.minMicro),
    usedUsd: toUsd(promised.usedMicro),
    remainingUsd: toUsd(Math.max(0, promised.dueMicro - promised.usedMicro)),
    periodStart: promised.periodStart,
    periodEnd: promised.periodEnd,
    unpaidFeeUsd: toUsd(promised.unpaidMicro),
    ...shareOf(promised),
  });
