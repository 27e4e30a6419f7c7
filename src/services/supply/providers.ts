/** Providers as their own organisation keeps them. */

import { create } from "@bufbuild/protobuf";
import {
  GetOwnProviderResponseSchema,
  ListOwnProvidersResponseSchema,
  RegisterProviderResponseSchema,
  ReviewProviderResponseSchema,
  SetModelOwnerResponseSchema,
  type SupplyService,
  UpdateProviderResponseSchema,
} from "../../../gen/limber/v1/supply_service_pb.ts";
import { byCall, type Implementation, keyOf } from "../../call.ts";
import { Reason, refuse } from "../../errors.ts";
import { emit } from "../../events/emit.ts";
import { audit } from "../../store/account/audit.ts";
import { findOrg } from "../../store/account/orgs.ts";
import { tx } from "../../store/database/tx.ts";
import { listProviders, updateProvider } from "../../store/supply/offering-lifecycle.ts";
import { createProvider, type ProviderStanding, reviewProvider, setOwner } from "../../store/supply/supply.ts";
import type { SupplyDeps } from "../../supply/withdraw.ts";
import { cursorOfName, DEFAULT_PAGE, nameOfCursor, readPage } from "../pages.ts";
import { ownProvider } from "./declare.ts";
import { providerMessage, STANDINGS } from "./messages.ts";

type ProviderRpcs = Pick<
  Implementation<typeof SupplyService>,
  "registerProvider" | "listOwnProviders" | "getOwnProvider" | "updateProvider" | "reviewProvider" | "setModelOwner"
>;

/** The RPCs on providers. */
export function providerRpcs({ sql, refresh }: SupplyDeps): ProviderRpcs {
  return {
    async registerProvider(request, call) {
      const { orgId } = keyOf(call);
      const { name } = request;
      const provider = await tx(sql, async (tx) => {
        const made = await createProvider(tx, {
          orgId,
          name,
          displayName: request.displayName ?? name,
          contactEmail: request.contactEmail ?? null,
          homepage: request.homepage ?? null,
          regions: request.regions,
          retainsFrames: request.dataCollection !== "deny",
        });
        await audit(tx, { ...byCall(call), orgId, action: "provider.registered", subject: made.id, details: { name } });
        return made;
      });
      return create(RegisterProviderResponseSchema, { provider: providerMessage(provider) });
    },

    async listOwnProviders({ limit = DEFAULT_PAGE, cursor }, call) {
      const after = nameOfCursor(cursor);
      const { orgId } = keyOf(call);
      const { records, ...page } = await readPage(
        limit,
        (most) => listProviders(sql, { orgId, after, limit: most }),
        ({ name }) => cursorOfName(name),
      );
      const data = records.map((provider) => providerMessage(provider, true));
      return create(ListOwnProvidersResponseSchema, { ...page, data });
    },

    async getOwnProvider({ provider: name }, call) {
      const provider = await ownProvider(sql, name, call);
      return create(GetOwnProviderResponseSchema, { provider: providerMessage(provider, true) });
    },

    async updateProvider({ provider: name, displayName, contactEmail, regions, dataCollection, homepage }, call) {
      const { orgId } = keyOf(call);
      const changes = {
        ...(displayName !== undefined && { display_name: displayName }),
        ...(contactEmail !== undefined && { contact_email: contactEmail }),
        ...(homepage !== undefined && { homepage }),
        ...(regions.length > 0 && { regions }),
        ...(dataCollection !== undefined && { retains_frames: dataCollection !== "deny" }),
      };
      const provider = await tx(sql, async (tx) => {
        const { id } = await ownProvider(tx, name, call);
        const changed = await updateProvider(tx, id, changes);
        const details = { changed: Object.keys(changes) };
        await audit(tx, { ...byCall(call), orgId, action: "provider.changed", subject: id, details });
        return changed;
      });
      await refresh();
      return create(UpdateProviderResponseSchema, { provider: providerMessage(provider, true) });
    },

    async reviewProvider({ provider: name, standing, note }, call) {
      const word = (Object.keys(STANDINGS) as ProviderStanding[]).find((each) => STANDINGS[each] === standing)!; // the schema admits no other
      const provider = await tx(sql, async (tx) => {
        const reviewed = await reviewProvider(tx, name, { standing: word, note });
        if (!reviewed) throw refuse(Reason.NOT_FOUND, `there is no provider ${name}`);
        const { id, orgId } = reviewed;
        const details = { provider: name, standing: word, note };
        await emit(tx, orgId, { case: "providerReviewed", value: details });
        await audit(tx, { ...byCall(call), orgId, action: "provider.reviewed", subject: id, details });
        return reviewed;
      });
      await refresh();
      return create(ReviewProviderResponseSchema, { provider: providerMessage(provider, true) });
    },

    async setModelOwner({ owner, whose }, call) {
      const orgId = whose.case === "orgId" ? whose.value : undefined;
      await tx(sql, async (tx) => {
        if (orgId !== undefined && !(await findOrg(tx, orgId)))
          throw refuse(Reason.NOT_FOUND, `there is no organisation ${orgId}`);
        const before = await setOwner(tx, owner, orgId);
        for (const concerned of new Set([before, orgId]))
          if (concerned !== undefined)
            await audit(tx, {
              ...byCall(call),
              orgId: concerned,
              action: "model_owner.set",
              subject: owner,
              details: { org_id: orgId },
            });
      });
      await refresh();
      return create(SetModelOwnerResponseSchema, { owner, ...(orgId !== undefined && { orgId }) });
    },
  };
}
