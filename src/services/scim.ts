/** SCIM 2.0: users and groups, provisioned by an identity provider. */
import { create, fromJson, type JsonObject, toJson } from "@bufbuild/protobuf";
import { ValueSchema } from "@bufbuild/protobuf/wkt";
import {
  FoundSchema,
  type Group,
  GroupSchema,
  type PatchOp,
  type User,
  UserSchema,
} from "../../gen/limber/scim/v2/resource_pb.ts";
import type { ScimService, SearchRequest } from "../../gen/limber/scim/v2/scim_service_pb.ts";
import { type Call, type Implementation, keyOf } from "../call.ts";
import { Reason, Refusal, refuse } from "../errors.ts";
import { emit } from "../events/emit.ts";
import { audit } from "../store/account/audit.ts";
import {
  addGroup,
  addUser,
  changeGroup,
  changeUser,
  dropGroup,
  findGroup,
  findGroupRecord,
  findUser,
  type GroupRecord,
  listGroups,
  listUsers,
  membersOf,
  type ScimPage,
  type ScimQuery,
  type ScimResource,
  setMembers,
  strangersAmong,
  type ToldUser,
  touchMembers,
} from "../store/account/issuers.ts";
import { revokeKeys } from "../store/account/keys.ts";
import {
  assertOwnerRemains,
  changeMember,
  dropMember,
  findMember,
  findMembers,
  lockMembers,
  type MemberRecord,
} from "../store/account/members.ts";
import { type Queryable, type Sql, type Tx, tx } from "../store/database/tx.ts";
import type { Authority } from "./authority.ts";
import { recordRevoked } from "./keys.ts";
import { actOn, assertMayChange, assertMayEnd, isEmail, settleRoles } from "./members.ts";
import { giverOf, refuseStandingBeyond } from "./reach.ts";
import {
  assertVersion,
  LIST_SCHEMA,
  PROVIDER_CONFIG,
  type Projection,
  pageOf,
  queryFor,
  RESOURCE_TYPES,
  SCHEMAS,
  type ScimDeps,
  shownOf,
} from "./scim/answers.ts";
import { type Change, KINDS, type Kind, patched } from "./scim/attributes.ts";

/** The SCIM RPCs. */
export function scimService(deps: ScimDeps): Implementation<typeof ScimService> {
  return {
    ...userCalls(deps),
    ...groupCalls(deps),

    search: (request, call) => searchAll(deps.sql, request, call),

    async getServiceProviderConfig() {
      return { config: PROVIDER_CONFIG };
    },

    async listResourceTypes() {
      return { ...wholeList(RESOURCE_TYPES), resources: [...RESOURCE_TYPES] };
    },

    async getResourceType({ name }) {
      const resourceType = RESOURCE_TYPES.find((each) => each.name === name);
      if (!resourceType) throw refuse(Reason.NOT_FOUND, "resource type not found");
      return { resourceType };
    },

    async listSchemas() {
      return { ...wholeList(SCHEMAS), resources: [...SCHEMAS] };
    },

    async getSchema({ id }) {
      const schema = SCHEMAS.find((each) => each.id.toLowerCase() === id.toLowerCase());
      if (!schema) throw refuse(Reason.NOT_FOUND, "schema not found");
      return { schema };
    },
  };
}

const wholeList = ({ length }: readonly unknown[]) => ({
  schemas: [LIST_SCHEMA],
  totalResults: length,
  startIndex: 1,
  itemsPerPage: length,
});

// Users: an identity provider's view of an organization's members.

type UserCalls = "listUsers" | "searchUsers" | "createUser" | "getUser" | "replaceUser" | "patchUser" | "deleteUser";

/** The role of a user without a mapped group: read-only. */
const FIRST_ROLE = "viewer";
const MAX_TEXT = 256;

/** The RPCs about users. */
function userCalls({ sql, changed }: ScimDeps): Pick<Implementation<typeof ScimService>, UserCalls> {
  return {
    async listUsers(request, call) {
      const query = queryFor(KINDS.user, keyOf(call).orgId, request);
      const page = pageOf(query, await listUsers(sql, query), (each) => shownUser(each, request));
      return page;
    },

    async searchUsers(request, call) {
      const query = queryFor(KINDS.user, keyOf(call).orgId, request);
      const page = pageOf(query, await listUsers(sql, query), (each) => shownUser(each, request));
      return page;
    },

    async createUser(request, call) {
      const { orgId } = keyOf(call);
      const sent = sentUserOf(request.user);
      const isActive = request.user?.active ?? true;
      const made = await tx(sql, async (tx) => {
        await lockMembers(tx, orgId);
        await refuseStandingBeyond(tx, orgId, { role: FIRST_ROLE, workspaceIds: [] }, await giverOf(tx, call));
        const standing = { role: FIRST_ROLE, status: isActive ? ("active" as const) : ("deactivated" as const) };
        const id = await addUser(tx, orgId, sent, standing);
        if (isActive) await emit(tx, orgId, { case: "memberAdded", value: { userId: id, role: FIRST_ROLE } });
        await audit(
          tx,
          actOn({ id, orgId }, "member.provisioned", call, { user_name: sent.userName, active: isActive }),
        );
        return known(tx, orgId, id);
      });
      return { user: shownUser(made, request) };
    },

    async getUser(request, call) {
      const user = await known(sql, keyOf(call).orgId, request.userId);
      return { user: shownUser(user, request) };
    },

    async replaceUser(request, call) {
      const { userId, user, ifMatch } = request;
      const replaced = await changing(sql, userId, ifMatch, call, async () => user ?? create(UserSchema));
      changed(userId);
      return { user: shownUser(replaced, request) };
    },

    async patchUser(request, call) {
      const { userId, patch, ifMatch } = request;
      const changes = changesOf(patch);
      const become = async (before: ScimResource): Promise<User> => userOf(await patched(KINDS.user, before, changes));
      const after = await changing(sql, userId, ifMatch, call, become, true);
      changed(userId);
      return { user: shownUser(after, request) };
    },

    async deleteUser({ userId, ifMatch }, call) {
      const { orgId } = keyOf(call);
      await tx(sql, async (tx) => {
        await lockMembers(tx, orgId);
        assertVersion(await known(tx, orgId, userId), ifMatch);
        const member = await memberOf(tx, orgId, userId);
        await assertMayEnd(tx, member, await giverOf(tx, call));
        await assertOwnerRemains(tx, member);
        await recordRevoked(tx, orgId, await revokeKeys(tx, { userId }), call);
        await dropMember(tx, userId);
        if (member.status !== "deactivated") await emit(tx, orgId, { case: "memberRemoved", value: { userId } });
        await audit(tx, actOn(member, "member.removed", call, { user_name: member.userName }));
      });
      changed(userId);
      return {};
    },
  };
}

/** Changes a user by `become`, and activates or deactivates the member accordingly. */
async function changing(
  sql: Sql,
  userId: string,
  ifMatch: string | undefined,
  call: Call,
  become: (before: ScimResource) => Promise<User>,
  isPatch = false,
): Promise<ScimResource> {
  const { orgId } = keyOf(call);
  return tx(sql, async (tx) => {
    await lockMembers(tx, orgId);
    const before = await known(tx, orgId, userId);
    assertVersion(before, ifMatch);
    const user = await become(before);
    const sent = sentUserOf(user);
    // A member always has an address; an empty list only means that it is not shown as the user's.
    const resource = isPatch && user.emails.length === 0 ? { ...sent.resource, emails: [] } : sent.resource;
    await changeUser(tx, orgId, userId, { ...sent, resource });
    const member = await memberOf(tx, orgId, userId);
    const isActive = user.active ?? before.active === true;
    if (isActive !== (member.status !== "deactivated")) await activate(tx, member, isActive, call);
    await audit(tx, actOn(member, "member.updated", call, { user_name: member.userName, active: isActive }));
    return known(tx, orgId, userId);
  });
}

/** Activates a member, or refuses all of the member's keys once committed. */
async function activate(tx: Tx, member: MemberRecord, isActive: boolean, call: Call): Promise<void> {
  const { id: userId, orgId, role, inviteEnds } = member;
  const giver = await giverOf(tx, call);
  if (isActive) {
    await assertMayChange(tx, member, giver);
    // A pending invite stays pending.
    await changeMember(tx, userId, { status: inviteEnds === undefined ? "active" : "invited" });
    if (inviteEnds === undefined) await emit(tx, orgId, { case: "memberAdded", value: { userId, role } });
  } else {
    await assertMayEnd(tx, member, giver);
    await assertOwnerRemains(tx, member);
    await changeMember(tx, userId, { status: "deactivated" });
    await emit(tx, orgId, { case: "memberRemoved", value: { userId } });
  }
}

async function known(sql: Queryable, orgId: string, userId: string): Promise<ScimResource> {
  const user = await findUser(sql, orgId, userId);
  if (!user) throw refuse(Reason.NOT_FOUND, "user not found");
  return user;
}

async function memberOf(tx: Tx, orgId: string, userId: string): Promise<MemberRecord> {
  const member = await findMember(tx, orgId, userId);
  if (!member) throw refuse(Reason.NOT_FOUND, "user not found");
  return member;
}

/** The operations of a request; the short form is a single operation. */
function changesOf(patch: PatchOp | undefined): Change[] {
  const { operations = [], active } = patch ?? {};
  const changes = operations.map(
    ({ op, path, value }): Change => ({
      op,
      path,
      value: value && toJson(ValueSchema, value),
    }),
  );
  return active === undefined ? changes : [...changes, { op: "replace", path: "active", value: active }];
}

/** A changed resource as a message. Refuses values that the schema does not accept with `invalid_value`. */
function userOf(resource: ScimResource): User {
  try {
    return fromJson(UserSchema, resource as JsonObject, { ignoreUnknownFields: true });
  } catch (cause) {
    throw refuse(Reason.INVALID_VALUE, "a changed value has the wrong type for its attribute", {}, { cause });
  }
}

/** Attributes with a column of their own, or that the identity provider cannot set. */
const ELSEWHERE = ["id", "schemas", "meta", "groups", "userName", "externalId", "active"];

function sentUserOf(user: User | undefined): ToldUser {
  const { userName = "", externalId, emails = [] } = user ?? {};
  if (!user || userName.trim() === "")
    throw refuse(Reason.INVALID_VALUE, "`userName` is required", {}, { param: "userName" });
  if (userName.length > MAX_TEXT || (externalId ?? "").length > MAX_TEXT)
    throw refuse(Reason.INVALID_VALUE, `userName and externalId must have at most ${MAX_TEXT} characters`);
  if (emails.filter(({ primary }) => primary).length > 1)
    throw refuse(Reason.INVALID_VALUE, "at most one of `emails` can be primary");
  const json = toJson(UserSchema, user) as JsonObject; // a message with fields is an object
  const resource = Object.fromEntries(Object.entries(json).filter(([name]) => !ELSEWHERE.includes(name)));
  const filled = emails.filter(({ value = "" }) => value.trim() !== "");
  const email = (filled.find(({ primary }) => primary) ?? filled[0])?.value ?? userName;
  // A user name without an `@` is no e-mail address, so no user can sign in with it.
  const invalid = [email, ...emails.map(({ value = "" }) => value)].find(
    (each) => each.includes("@") && !isEmail(each),
  );
  if (invalid !== undefined)
    throw refuse(
      Reason.INVALID_VALUE,
      `${JSON.stringify(invalid)} is not a plain e-mail address such as name@example.com`,
    );
  return { userName, email, externalId, resource };
}

const shownUser = (resource: ScimResource, wish: Projection): User =>
  fromJson(UserSchema, shownOf(KINDS.user, resource, wish) as JsonObject, { ignoreUnknownFields: true });

// Groups of users in the identity provider, and the roles that they grant.

type GroupCalls =
  | "listGroups"
  | "searchGroups"
  | "createGroup"
  | "getGroup"
  | "replaceGroup"
  | "patchGroup"
  | "deleteGroup"
  | "mapGroup";

const MAX_MEMBERS = 100_000;

/** The RPCs about groups. */
function groupCalls({ sql, changed }: ScimDeps): Pick<Implementation<typeof ScimService>, GroupCalls> {
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
      const page = pageOf(query, await listGroups(sql, query), (each) => shownGroup(each, request));
      return page;
    },

    async searchGroups(request, call) {
      const query = queryFor(KINDS.group, keyOf(call).orgId, request);
      const page = pageOf(query, await listGroups(sql, query), (each) => shownGroup(each, request));
      return page;
    },

    async createGroup(request, call) {
      const { orgId } = keyOf(call);
      const sent = request.group ?? create(GroupSchema);
      const made = await locked(orgId, async (tx) => {
        const group = await addGroup(tx, orgId, { displayName: nameOf(sent.displayName), externalId: sent.externalId });
        return become(tx, orgId, group, sent, "group.created", call);
      });
      return { group: shownGroup(made, request) };
    },

    async getGroup(request, call) {
      const { orgId } = keyOf(call);
      const record = await findGroupRecord(sql, orgId, request.group);
      const group = record && (await findGroup(sql, orgId, record.id));
      if (!group) throw noSuchGroup();
      return { group: shownGroup(group, request) };
    },

    async replaceGroup(request, call) {
      const { orgId } = keyOf(call);
      const { group, ifMatch } = request;
      const sent = request.resource ?? create(GroupSchema);
      const after = await locked(orgId, async (tx) => {
        const record = await knownOrMade(tx, orgId, group);
        assertVersion(await resourceOf(tx, orgId, record.id), ifMatch);
        const displayName = sent.displayName === undefined ? record.displayName : nameOf(sent.displayName);
        return become(tx, orgId, record, { ...sent, displayName }, "group.pushed", call);
      });
      return { group: shownGroup(after, request) };
    },

    async patchGroup(request, call) {
      const { orgId } = keyOf(call);
      const { group, patch, ifMatch } = request;
      const changes = changesOf(patch);
      const after = await locked(orgId, async (tx) => {
        const record = await knownGroup(tx, orgId, group);
        const before = await resourceOf(tx, orgId, record.id);
        assertVersion(before, ifMatch);
        const sent = groupOf(await patched(KINDS.group, before, changes));
        // This is the complete remaining group: members that it lacks were removed.
        const bare = { ...record, externalId: undefined };
        return become(tx, orgId, bare, { ...sent, displayName: nameOf(sent.displayName) }, "group.changed", call);
      });
      return { group: shownGroup(after, request) };
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
      return {};
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
      return {
        id: mapped.id,
        displayName: mapped.displayName,
        ...(role !== undefined && { role }),
      };
    },
  };
}

const noSuchGroup = (): Refusal => refuse(Reason.NOT_FOUND, "group not found by id or display name");

async function knownGroup(tx: Tx, orgId: string, name: string): Promise<GroupRecord> {
  const group = await findGroupRecord(tx, orgId, name);
  if (!group) throw noSuchGroup();
  return group;
}

/** Group ids are assigned by the gateway: text that looks like an id cannot be a display name. */
const ID_FORM = /^(grp_[0-9A-Z]+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$/i;

/** Naming an unknown group by its display name creates it. */
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

/** Applies a change to a group, and its effects on members that join or leave. */
async function become(
  tx: Tx,
  orgId: string,
  record: GroupRecord,
  sent: Group,
  action: string,
  call: Call,
): Promise<ScimResource> {
  const { externalId = record.externalId, displayName = record.displayName } = sent;
  const wanted = idsOf(sent);
  if ((externalId ?? "").length > MAX_TEXT)
    throw refuse(Reason.INVALID_VALUE, `externalId must have at most ${MAX_TEXT} characters`);
  const unknownMembers = await strangersAmong(tx, orgId, wanted);
  if (unknownMembers.length > 0)
    throw refuse(
      Reason.INVALID_VALUE,
      `${unknownMembers.length} of the members are unknown users`,
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
  // A caller cannot add a member to a group that grants more than the caller has, whatever else the member has.
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
  if (ids.length > MAX_MEMBERS)
    throw refuse(Reason.INVALID_VALUE, `a group can have at most ${MAX_MEMBERS} members, got ${ids.length}`);
  if (!ids.every((id) => id !== undefined)) throw refuse(Reason.INVALID_VALUE, "every member must have a `value`");
  return [...new Set(ids)];
}

function nameOf(displayName: string | undefined): string {
  if (displayName === undefined || displayName.trim() === "")
    throw refuse(Reason.INVALID_VALUE, "`displayName` is required", {}, { param: "displayName" });
  if (displayName.length > MAX_TEXT)
    throw refuse(
      Reason.INVALID_VALUE,
      `displayName must have at most ${MAX_TEXT} characters`,
      {},
      { param: "displayName" },
    );
  return displayName;
}

function groupOf(resource: ScimResource): Group {
  try {
    return fromJson(GroupSchema, resource as JsonObject, { ignoreUnknownFields: true });
  } catch (cause) {
    throw refuse(Reason.INVALID_VALUE, "a changed value has the wrong type for its attribute", {}, { cause });
  }
}

const shownGroup = (resource: ScimResource, wish: Projection): Group =>
  fromJson(GroupSchema, shownOf(KINDS.group, resource, wish) as JsonObject, { ignoreUnknownFields: true });

// Searches resources of all types (RFC 7644 section 3.4.3): users first, each type in the requested order.

const LISTS: readonly (readonly [Kind, (sql: Sql, query: ScimQuery) => Promise<ScimPage>])[] = [
  [KINDS.user, listUsers],
  [KINDS.group, listGroups],
];

/** One page of all results of a search. Refuses with `invalid_filter` if no resource type supports the filter. */
async function searchAll(sql: Sql, request: SearchRequest, call: Call) {
  const { orgId } = keyOf(call);
  const asked = LISTS.map(([kind, list]) => ({ kind, list, query: queryOf(kind, orgId, request) }));
  const refused = asked.find(({ query }) => query instanceof Refusal);
  const can = asked.filter(({ query }) => !(query instanceof Refusal)) as ((typeof asked)[number] & {
    query: ScimQuery;
  })[];
  if (can.length === 0) throw refused?.query;
  let { offset, limit } = can[0]!.query;
  const start = offset;
  let total = 0;
  const resources: JsonObject[] = [];
  for (const { kind, list, query } of can) {
    const page = await list(sql, { ...query, offset, limit });
    total += page.total;
    offset = Math.max(0, offset - page.total);
    limit -= page.resources.length;
    for (const each of page.resources) resources.push(shownOf(kind, each, request) as JsonObject);
  }
  return {
    schemas: [LIST_SCHEMA],
    totalResults: total,
    startIndex: start + 1,
    itemsPerPage: resources.length,
    resources: resources.map((each) => fromJson(FoundSchema, each, { ignoreUnknownFields: true })),
  };
}

/** A resource type without a filtered or sorted attribute has no results. */
function queryOf(kind: Kind, orgId: string, request: SearchRequest): ScimQuery | Refusal {
  try {
    return queryFor(kind, orgId, request);
  } catch (thrown) {
    if (thrown instanceof Refusal && (thrown.reason === Reason.INVALID_FILTER || thrown.reason === Reason.INVALID_PATH))
      return thrown;
    throw thrown;
  }
}
