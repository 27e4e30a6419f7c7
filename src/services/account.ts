/** Organisations, their keys, their credit and what they used. */
import { create } from "@bufbuild/protobuf";
import { OrgSchema, OrgStatus } from "../../gen/limber/v1/account_pb.ts";
import {
  type AccountService,
  AddCreditsResponseSchema,
  CreateOrgResponseSchema,
} from "../../gen/limber/v1/account_service_pb.ts";
import { fromUsd, toUsd } from "../billing/price.ts";
import { byCall, type Implementation } from "../call.ts";
import { audit } from "../store/account/audit.ts";
import { addMember } from "../store/account/members.ts";
import { addOrg, grantCredits } from "../store/account/orgs.ts";
import { tx } from "../store/database/tx.ts";
import { commitmentCalls } from "./account/commitment.ts";
import { type KeyParts, keyCalls, makeKey } from "./account/keys.ts";
import { leavingCalls } from "./account/leaving.ts";
import { keyMessage } from "./account/messages.ts";
import { assertReachable } from "./account/reach.ts";
import { settingsCalls } from "./account/settings.ts";
import { usageCalls } from "./account/usage.ts";

/** What accounts depend on. */
export type AccountDeps = KeyParts;

/** The account RPCs. */
export function accountService(deps: AccountDeps): Implementation<typeof AccountService> {
  const { sql } = deps;
  return {
    ...keyCalls(deps),
    ...settingsCalls(deps),
    ...commitmentCalls(deps),
    ...usageCalls(deps),
    ...leavingCalls(deps),

    async createOrg({ name, email }, call) {
      const { id, created, signedUp } = await tx(sql, async (tx) => {
        const made = await addOrg(tx, { name, email });
        const owner = email === undefined ? undefined : await addMember(tx, { orgId: made.id, email, role: "owner" });
        await audit(tx, {
          ...byCall(call),
          orgId: made.id,
          action: "org.created",
          subject: made.id,
          details: { name },
        });
        // A new account has no other member that could make its first key.
        const signedUp =
          call.principal.kind === "public"
            ? // Nothing narrows the first key: what it does not have, nobody of the organisation could ever give.
              await makeKey(tx, { orgId: made.id, role: "owner", userId: owner?.id, environment: "hardware" }, call)
            : undefined;
        return { ...made, signedUp };
      });
      const org = create(OrgSchema, {
        id,
        name,
        created,
        status: OrgStatus.ACTIVE,
        ...(signedUp && { key: keyMessage(signedUp.key, { secret: signedUp.secret }) }),
      });
      return create(CreateOrgResponseSchema, { org });
    },

    async addCredits({ orgId, amountUsd, reason, idempotencyKey }, call) {
      const amountMicro = fromUsd(amountUsd);
      await assertReachable(sql, orgId, call);
      const { entryId, balanceMicro } = await tx(sql, async (tx) => {
        const granted = await grantCredits(tx, { orgId, amountMicro, reason, idempotencyKey });
        const details = { amount_usd: amountUsd, reason, idempotency_key: idempotencyKey };
        if (granted.isNew)
          await audit(tx, { ...byCall(call), orgId, action: "credits.added", subject: granted.entryId, details });
        else call.replayed?.();
        return granted;
      });
      return create(AddCreditsResponseSchema, { orgId, entryId, balanceUsd: toUsd(balanceMicro) });
    },
  };
}
