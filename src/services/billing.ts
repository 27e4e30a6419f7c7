/** The prepaid balance. */
import { create } from "@bufbuild/protobuf";
import { BalanceSchema } from "../../gen/limber/v1/account_pb.ts";
import { type BillingService, GetBalanceResponseSchema } from "../../gen/limber/v1/billing_service_pb.ts";
import { toUsd } from "../money/price.ts";
import { balanceOf } from "../store/orgs.ts";
import type { Sql } from "../store/tx.ts";
import { type Implementation, keyOf } from "./call.ts";
import type { HouseTill } from "./inference/bill.ts";

/** What billing needs of the house. */
export interface BillingParts {
  sql: Sql;
  till: HouseTill;
}

/** The billing RPCs. */
export function billingService({ sql, till }: BillingParts): Implementation<typeof BillingService> {
  return {
    async getBalance(_request, call) {
      const { orgId } = keyOf(call);
      // What this replica keeps ready for the next calls is promised to nobody.
      await till.giveBack(orgId);
      const { grantedMicro, spentMicro, balanceMicro, heldMicro, availableMicro } = await balanceOf(sql, orgId);
      const balance = create(BalanceSchema, {
        orgId,
        currency: "usd",
        grantedUsd: toUsd(grantedMicro),
        spentUsd: toUsd(spentMicro),
        balanceUsd: toUsd(balanceMicro),
        heldUsd: toUsd(heldMicro),
        availableUsd: toUsd(availableMicro),
      });
      return create(GetBalanceResponseSchema, { balance });
    },
  };
}
