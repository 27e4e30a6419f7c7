/** Groups of users by the identity provider, and the roles that groups give. */
import { create, fromJson, type JsonObject } from "@bufbuild/protobuf";
import { type Group, GroupSchema } from "../../../gen/limber/scim/v2/resource_pb.ts";
import {
  CreateGroupResponseSchema,
  DeleteGroupResponseSchema,
  GetGroupResponseSchema,
  ListGroupsResponseSchema,
  MapGroupResponseSchema,
  PatchGroupResponseSchema,
  ReplaceGroupResponseSchema,
  type ScimService,
  SearchGroupsResponseSchema,
} from "../../../gen/limber/scim/v2/scim_service_pb.ts";
import { type Call, type Implementation, keyOf } from "../../call.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import { audit } from "../../store/account/audit.ts";
import { findMembers, lockMembers } from "../../store/account/members.ts";
import {
  addGroup,
  changeGroup,
  dropGroup,
  findGroup,
  findGroupRecord,
  type GroupRecord,
  listGroups,
  membersOf,
  type ScimResource,
  setMembers,
  strangersAmong,
  touchMembers,
} from "../../store/account/scim.ts";
import { type Queryable, type Tx, tx } from "../../store/database/tx.ts";
import { giverOf, refuseStandingBeyond } from "../account/reach.ts";
import type { Authority } from "../authority.ts";
import { actOn } from "../identity/reach.ts";
import { settleRoles } from "../identity/roles.ts";
import { assertVersion, type Projection, pageOf, queryFor, type ScimDeps, shownOf } from "./answers.ts";
import { KINDS } from "./attributes.ts";
import { patched } from "./patch.ts";
import { changesOf } from "./users.ts";

type GroupCalls =
  | "listGroups"
  | "searchGroups"
  | "createGroup"
  | "getGroup"
  | "replaceGroup"
  | "patchGroup"
  | "deleteGroup"
  | "mapGroup";

const MAX_TEXT = 256;
const MAX_MEMBERS = 100_000;

/** The RPCs about groups. */
export function groupCalls({ sql, changed }: ScimDeps): Pick<Implementation<typeof ScimService>, GroupCalls> {
  const locked = async <T>(orgId: string, work: (tx: Tx) => Promise<T>): Promise<T> => {
    const done = await tx(sql, async (tx) => {
      await lockMembers(tx, orgId);
      return work(tx);
    });
    changed(orgId);
    return done;
  };

  return {
    async listGroups(request, call) {
      const query = queryFor(KINDS.group, keyOf(call).orgId, request);
      const page = pageOf(query, await listGroups(sql, query), (each) => shown(each, request));
      return create(ListGroupsResponseSchema, page);
    },

    async searchGroups(request, call) {
      const query = queryFor(KINDS.group, keyOf(call).orgId, request);
      const page = pageOf(query, await listGroups(sql, query), (each) => shown(each, request));
      return create(SearchGroupsResponseSchema, page);
    },

    async createGroup(request, call) {
      const { orgId } = keyOf(call);
      const told = request.group ?? create(GroupSchema);
      const made = await locked(orgId, async (tx) => {
        const group = await addGroup(tx, orgId, { displayName: nameOf(told.displayName), externalId: told.externalId });
        return become(tx, orgId, group, told, "group.created", call);
      });
      return create(CreateGroupResponseSchema, { group: shown(made, request) });
    },

    async getGroup(request, call) {
      const { orgId } = keyOf(call);
      const record = await findGroupRecord(sql, orgId, request.group);
      const group = record && (await findGroup(sql, orgId, record.id));
      if (!group) throw noSuchGroup();
      return create(GetGroupResponseSchema, { group: shown(group, request) });
    },

    async replaceGroup(request, call) {
      const { orgId } = keyOf(call);
      const { group, ifMatch } = request;
      const told = request.resource ?? create(GroupSchema);
      const after = await locked(orgId, async (tx) => {
        const record = await knownOrMade(tx, orgId, group);
        assertVersion(await resourceOf(tx, orgId, record.id), ifMatch);
        const displayName = told.displayName === undefined ? record.displayName : nameOf(told.displayName);
        return become(tx, orgId, record, { ...told, displayName }, "group.pushed", call);
      });
      return create(ReplaceGroupResponseSchema, { group: shown(after, request) });
    },

    async patchGroup(request, call) {
      const { orgId } = keyOf(call);
      const { group, patch, ifMatch } = request;
      const changes = changesOf(patch);
      const after = await locked(orgId, async (tx) => {
        const record = await knownGroup(tx, orgId, group);
        const before = await resourceOf(tx, orgId, record.id);
        assertVersion(before, ifMatch);
        const told = groupOf(await patched(KINDS.group, before, changes));
        // It is all that is left of the group: what it does not have was removed.
        const bare = { ...record, externalId: undefined };
        return become(tx, orgId, bare, { ...told, displayName: nameOf(told.displayName) }, "group.changed", call);
      });
      return create(PatchGroupResponseSchema, { group: shown(after, request) });
    },

    async deleteGroup({ group, ifMatch }, call) {
      const { orgId } = keyOf(call);
      await locked(orgId, async (tx) => {
        const record = await knownGroup(tx, orgId, group);
        assertVersion(await resourceOf(tx, orgId, record.id), ifMatch);
        const members = await membersOf(tx, record.id);
        await dropGroup(tx, record.id);
        await settle(tx, orgId, members, await giverOf(tx, call));
        const details = { display_name: record.displayName, role: record.role };
        await audit(tx, actOn({ id: record.id, orgId }, "group.removed", call, details));
      });
      return create(DeleteGroupResponseSchema, {});
    },

    async mapGroup({ group, role: given }, call) {
      const { orgId } = keyOf(call);
      const role = given || undefined;
      const mapped = await locked(orgId, async (tx) => {
        const giver = await giverOf(tx, call);
        // Members who join the group later get the role too.
        if (role !== undefined) await refuseStandingBeyond(tx, orgId, { role, workspaceIds: [] }, giver);
        const record = { ...(await knownOrMade(tx, orgId, group)), role };
        await changeGroup(tx, orgId, record);
        await settle(tx, orgId, await membersOf(tx, record.id), giver);
        const details = { display_name: record.displayName, role: role ?? null };
        await audit(tx, actOn({ id: record.id, orgId }, "group.mapped", call, details));
        return record;
      });
      return create(MapGroupResponseSchema, {
        id: mapped.id,
        displayName: mapped.displayName,
        ...(role !== undefined && { role }),
      });
    },
  };
}

const noSuchGroup = (): Refusal => refuse(Reason.NOT_FOUND, "there is no group of this id or display name");

async function knownGroup(tx: Tx, orgId: string, name: string): Promise<GroupRecord> {
  const group = await findGroupRecord(tx, orgId, name);
  if (!group) throw noSuchGroup();
  return group;
}

/** Ids are ours to give: what looks like one, or like those of other services, is no display name. */
const ID_FORM = /^(grp_[0-9A-Z]+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$/i;

/** A group that is named by its display name comes to be by being named. */
async function knownOrMade(tx: Tx, orgId: string, name: string): Promise<GroupRecord> {
  const group = await findGroupRecord(tx, orgId, name);
  if (!group && ID_FORM.test(name)) throw noSuchGroup();
  return group ?? addGroup(tx, orgId, { displayName: nameOf(name), externalId: undefined });
}

async function resourceOf(sql: Queryable, orgId: string, id: string): Promise<ScimResource> {
  const group = await findGroup(sql, orgId, id);
  if (!group) throw noSuchGroup();
  return group;
}

/** Applies a change to a group, with all that follows for members that join and leave. */
async function become(
  tx: Tx,
  orgId: string,
  record: GroupRecord,
  told: Group,
  action: string,
  call: Call,
): Promise<ScimResource> {
  const { externalId = record.externalId, displayName = record.displayName } = told;
  const wanted = idsOf(told);
  if ((externalId ?? "").length > MAX_TEXT)
    throw refuse(Reason.INVALID_VALUE, `externalId has at most ${MAX_TEXT} letters`);
  const strangers = await strangersAmong(tx, orgId, wanted);
  if (strangers.length > 0)
    throw refuse(
      Reason.INVALID_VALUE,
      `${strangers.length} of the members are not users here`,
      {},
      { param: "members" },
    );
  const before = new Set(await membersOf(tx, record.id));
  await changeGroup(tx, orgId, { ...record, displayName, externalId });
  await setMembers(tx, record.id, wanted);
  const came = wanted.filter((id) => !before.has(id));
  const stays = new Set(wanted);
  const left = [...before].filter((id) => !stays.has(id));
  const giver = await giverOf(tx, call);
  // Nobody is put into a group that gives more than the caller has, whatever else they have already.
  if (record.role !== undefined && came.length > 0)
    await refuseStandingBeyond(tx, orgId, { role: record.role, workspaceIds: [] }, giver);
  await settle(tx, orgId, [...came, ...left], giver);
  const details = { display_name: displayName, came, left };
  await audit(tx, actOn({ id: record.id, orgId }, action, call, details));
  return resourceOf(tx, orgId, record.id);
}

async function settle(tx: Tx, orgId: string, userIds: readonly string[], giver: Authority | undefined): Promise<void> {
  if (userIds.length === 0) return;
  await settleRoles(tx, await findMembers(tx, orgId, userIds), giver);
  await touchMembers(tx, userIds);
}

function idsOf({ members }: Group): string[] {
  const ids = members.map(({ value }) => value);
  if (ids.length > MAX_MEMBERS) throw refuse(Reason.INVALID_VALUE, `a group has at most ${MAX_MEMBERS} members`);
  if (!ids.every((id) => id !== undefined)) throw refuse(Reason.INVALID_VALUE, "every member needs a value");
  return [...new Set(ids)];
}

function nameOf(displayName: string | undefined): string {
  if (displayName === undefined || displayName.trim() === "")
    throw refuse(Reason.INVALID_VALUE, "displayName is required", {}, { param: "displayName" });
  if (displayName.length > MAX_TEXT)
    throw refuse(Reason.INVALID_VALUE, `displayName has at most ${MAX_TEXT} letters`, {}, { param: "displayName" });
  return displayName;
}

function groupOf(resource: ScimResource): Group {
  try {
    return fromJson(GroupSchema, resource as JsonObject, { ignoreUnknownFields: true });
  } catch (cause) {
    throw refuse(Reason.INVALID_VALUE, "a changed value is not one that its attribute takes", {}, { cause });
  }
}

const shown = (resource: ScimResource, wish: Projection): Group =>
  fromJson(GroupSchema, shownOf(KINDS.group, resource, wish) as JsonObject, { ignoreUnknownFields: true });
