/** How partners bring models: register, declare, verify; look after them, and withdraw them. */
import { create } from "@bufbuild/protobuf";
import {
  DeclareModelResponseSchema,
  ListHardwareResponseSchema,
  type SupplyService,
  VerifyOfferingResponseSchema,
} from "../../gen/limber/v1/supply_service_pb.ts";
import { HARDWARE } from "../billing/price.ts";
import { byCall, type Call, type Implementation, keyOf } from "../call.ts";
import { steadyNow } from "../clock.ts";
import { Reason, refuse } from "../errors.ts";
import { audit } from "../store/account/audit.ts";
import { tx } from "../store/database/tx.ts";
import { recordJob } from "../store/jobs/jobs.ts";
import {
  addModel,
  createOffering,
  findOffering,
  type OfferingRecord,
  setOfferingStatus,
} from "../store/supply/supply.ts";
import { PROBEABLE, verify } from "../supply/probe/probe.ts";
import type { SupplyDeps } from "../supply/withdraw.ts";
import { assertSigned, checkDeclaration, declarationOf, modelOf, ownProvider, wireFor } from "./supply/declare.ts";
import { earningRpcs } from "./supply/earnings.ts";
import { offeringMessage } from "./supply/messages.ts";
import { offeringRpcs } from "./supply/offerings.ts";
import { providerRpcs } from "./supply/providers.ts";

/** The supply RPCs. */
export function supplyService(deps: SupplyDeps): Implementation<typeof SupplyService> {
  const { sql } = deps;
  /** A probe that its owner waits for is listed as a job of the kind `verification` once it has ended, whatever came of it. */
  const recorded = async (call: Call, { id }: OfferingRecord, run: () => ReturnType<typeof verify>) => {
    const { orgId, keyId, workspaceId } = keyOf(call);
    const job = { kind: "verification", orgId, keyId, workspaceId, request: { offering_id: id } } as const;
    const begun = steadyNow();
    let passed = false;
    try {
      const verified = await run();
      passed = verified?.report.passed ?? false;
      return verified;
    } finally {
      // A failure to list it must not take the place of the report or of its refusal.
      await recordJob(sql, job, { passed, tookMs: steadyNow() - begun }).catch(() => undefined);
    }
  };
  return {
    ...providerRpcs(deps),
    ...offeringRpcs(deps),
    ...earningRpcs(deps),

    async declareModel(request, call) {
      const provider = await ownProvider(sql, request.provider, call);
      const wire = wireFor(deps, request);
      checkDeclaration(deps, wire, request);
      const declaration = declarationOf(deps.vault, provider, request);
      await assertSigned(sql, provider.name, declaration);
      const offering = await tx(sql, async (tx) => {
        await addModel(tx, modelOf(request, declaration));
        const made = await createOffering(tx, declaration);
        const { id: subject, orgId, provider } = made;
        const details = { provider, model: made.model };
        await audit(tx, { ...byCall(call), orgId, action: "offering.declared", subject, details });
        return made;
      });
      // Who declares a model finds it known here, ahead of the notice.
      await deps.refresh();
      return create(DeclareModelResponseSchema, { offering: offeringMessage(offering) });
    },

    async verifyOffering({ offeringId }, call) {
      const known = await findOffering(sql, offeringId);
      if (!known || known.orgId !== keyOf(call).orgId)
        throw refuse(Reason.NOT_FOUND, "there is no offering of this name");
      if (!PROBEABLE.some((status) => status === known.status)) {
        throw refuse(
          Reason.OFFERING_NOT_VERIFIABLE,
          known.status === "paused"
            ? "the offering is paused; resume it first"
            : `the offering is ${known.status}; declare it again and verify the new one`,
        );
      }
      // A live offering stays live while it is looked at again.
      if (known.status === "pending") await setOfferingStatus(sql, offeringId, { from: ["pending"], to: "verifying" });
      const verified = await recorded(call, known, () => verify(deps, known, { ...byCall(call), owner: true }));
      if (!verified) throw refuse(Reason.OFFERING_NOT_VERIFIABLE, "the offering was removed while it was being probed");
      const { offering, report } = verified;
      return create(VerifyOfferingResponseSchema, { offering: offeringMessage(offering), report });
    },

    async listHardware() {
      return create(ListHardwareResponseSchema, { object: "list", data: HARDWARE.map(({ name }) => name) });
    },
  };
}
