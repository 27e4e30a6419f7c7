/** Users: what an identity provider knows of the members of an organisation. */
import { create, fromJson, type JsonObject, toJson } from "@bufbuild/protobuf";
import { ValueSchema } from "@bufbuild/protobuf/wkt";
import { type PatchOp, type User, UserSchema } from "../../../gen/limber/scim/v2/resource_pb.ts";
import {
  CreateUserResponseSchema,
  DeleteUserResponseSchema,
  GetUserResponseSchema,
  ListUsersResponseSchema,
  PatchUserResponseSchema,
  ReplaceUserResponseSchema,
  type ScimService,
  SearchUsersResponseSchema,
} from "../../../gen/limber/scim/v2/scim_service_pb.ts";
import { type Call, type Implementation, keyOf } from "../../call.ts";
import { Reason, refuse } from "../../errors.ts";
import { emit } from "../../events/emit.ts";
import { audit } from "../../store/account/audit.ts";
import { revokeKeys } from "../../store/account/keys.ts";
import {
  assertOwnerRemains,
  changeMember,
  dropMember,
  findMember,
  lockMembers,
  type MemberRecord,
} from "../../store/account/members.ts";
import {
  addUser,
  changeUser,
  findUser,
  listUsers,
  type ScimResource,
  type ToldUser,
} from "../../store/account/scim.ts";
import { type Queryable, type Sql, type Tx, tx } from "../../store/database/tx.ts";
import { toldRevoked } from "../account/keys.ts";
import { giverOf, refuseStandingBeyond } from "../account/reach.ts";
import { isEmail } from "../identity/email.ts";
import { actOn, assertMayChange, assertMayEnd } from "../identity/reach.ts";
import { assertVersion, type Projection, pageOf, queryFor, type ScimDeps, shownOf } from "./answers.ts";
import { KINDS } from "./attributes.ts";
import { type Change, patched } from "./patch.ts";

type UserCalls = "listUsers" | "searchUsers" | "createUser" | "getUser" | "replaceUser" | "patchUser" | "deleteUser";

/** The role of a user without a mapped group: it may read, and change nothing. */
const FIRST_ROLE = "viewer";
const MAX_TEXT = 256;

/** The RPCs about users. */
export function userCalls({ sql, changed }: ScimDeps): Pick<Implementation<typeof ScimService>, UserCalls> {
  return {
    async listUsers(request, call) {
      const query = queryFor(KINDS.user, keyOf(call).orgId, request);
      const page = pageOf(query, await listUsers(sql, query), (each) => shown(each, request));
      return create(ListUsersResponseSchema, page);
    },

    async searchUsers(request, call) {
      const query = queryFor(KINDS.user, keyOf(call).orgId, request);
      const page = pageOf(query, await listUsers(sql, query), (each) => shown(each, request));
      return create(SearchUsersResponseSchema, page);
    },

    async createUser(request, call) {
      const { orgId } = keyOf(call);
      const told = toldBy(request.user);
      const isActive = request.user?.active ?? true;
      const made = await tx(sql, async (tx) => {
        await lockMembers(tx, orgId);
        await refuseStandingBeyond(tx, orgId, { role: FIRST_ROLE, workspaceIds: [] }, await giverOf(tx, call));
        const standing = { role: FIRST_ROLE, status: isActive ? ("active" as const) : ("deactivated" as const) };
        const id = await addUser(tx, orgId, told, standing);
        if (isActive) await emit(tx, orgId, { case: "memberAdded", value: { userId: id, role: FIRST_ROLE } });
        await audit(
          tx,
          actOn({ id, orgId }, "member.provisioned", call, { user_name: told.userName, active: isActive }),
        );
        return known(tx, orgId, id);
      });
      return create(CreateUserResponseSchema, { user: shown(made, request) });
    },

    async getUser(request, call) {
      const user = await known(sql, keyOf(call).orgId, request.userId);
      return create(GetUserResponseSchema, { user: shown(user, request) });
    },

    async replaceUser(request, call) {
      const { userId, user, ifMatch } = request;
      const replaced = await changing(sql, userId, ifMatch, call, async () => user ?? create(UserSchema));
      changed(userId);
      return create(ReplaceUserResponseSchema, { user: shown(replaced, request) });
    },

    async patchUser(request, call) {
      const { userId, patch, ifMatch } = request;
      const changes = changesOf(patch);
      const become = async (before: ScimResource): Promise<User> => userOf(await patched(KINDS.user, before, changes));
      const after = await changing(sql, userId, ifMatch, call, become, true);
      changed(userId);
      return create(PatchUserResponseSchema, { user: shown(after, request) });
    },

    async deleteUser({ userId, ifMatch }, call) {
      const { orgId } = keyOf(call);
      await tx(sql, async (tx) => {
        await lockMembers(tx, orgId);
        assertVersion(await known(tx, orgId, userId), ifMatch);
        const member = await memberOf(tx, orgId, userId);
        await assertMayEnd(tx, member, await giverOf(tx, call));
        await assertOwnerRemains(tx, member);
        await toldRevoked(tx, orgId, await revokeKeys(tx, { userId }), call);
        await dropMember(tx, userId);
        if (member.status !== "deactivated") await emit(tx, orgId, { case: "memberRemoved", value: { userId } });
        await audit(tx, actOn(member, "member.removed", call, { user_name: member.userName }));
      });
      changed(userId);
      return create(DeleteUserResponseSchema, {});
    },
  };
}

/** Changes a user by `become`; whether the user may call follows. */
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
    const told = toldBy(user);
    // A member always has an address: an empty list means that it is not to be shown as the user's.
    const resource = isPatch && user.emails.length === 0 ? { ...told.resource, emails: [] } : told.resource;
    await changeUser(tx, orgId, userId, { ...told, resource });
    const member = await memberOf(tx, orgId, userId);
    const isActive = user.active ?? before.active === true;
    if (isActive !== (member.status !== "deactivated")) await activate(tx, member, isActive, call);
    await audit(tx, actOn(member, "member.updated", call, { user_name: member.userName, active: isActive }));
    return known(tx, orgId, userId);
  });
}

/** Lets a member call again, or refuses all of the member's keys from the commit on. */
async function activate(tx: Tx, member: MemberRecord, isActive: boolean, call: Call): Promise<void> {
  const { id: userId, orgId, role, inviteEnds } = member;
  const giver = await giverOf(tx, call);
  if (isActive) {
    await assertMayChange(tx, member, giver);
    // An invite that was not accepted stays so.
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
  if (!user) throw refuse(Reason.NOT_FOUND, "there is no user of this id");
  return user;
}

async function memberOf(tx: Tx, orgId: string, userId: string): Promise<MemberRecord> {
  const member = await findMember(tx, orgId, userId);
  if (!member) throw refuse(Reason.NOT_FOUND, "there is no user of this id");
  return member;
}

/** The operations of a request; its short form is one of them. */
export function changesOf(patch: PatchOp | undefined): Change[] {
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

/** A changed resource as a message. Refuses with `invalid_value` what the schema does not take. */
function userOf(resource: ScimResource): User {
  try {
    return fromJson(UserSchema, resource as JsonObject, { ignoreUnknownFields: true });
  } catch (cause) {
    throw refuse(Reason.INVALID_VALUE, "a changed value is not one that its attribute takes", {}, { cause });
  }
}

/** Attributes that have a column of their own, or are not the identity provider's to set. */
const ELSEWHERE = ["id", "schemas", "meta", "groups", "userName", "externalId", "active"];

function toldBy(user: User | undefined): ToldUser {
  const { userName = "", externalId, emails = [] } = user ?? {};
  if (!user || userName.trim() === "")
    throw refuse(Reason.INVALID_VALUE, "userName is required", {}, { param: "userName" });
  if (userName.length > MAX_TEXT || (externalId ?? "").length > MAX_TEXT)
    throw refuse(Reason.INVALID_VALUE, `userName and externalId have at most ${MAX_TEXT} letters`);
  if (emails.filter(({ primary }) => primary).length > 1)
    throw refuse(Reason.INVALID_VALUE, "one of the emails is primary at most");
  const json = toJson(UserSchema, user) as JsonObject; // a message with fields is an object
  const resource = Object.fromEntries(Object.entries(json).filter(([name]) => !ELSEWHERE.includes(name)));
  const email = (emails.find(({ primary }) => primary) ?? emails[0])?.value ?? userName;
  // A user name without an `@` is not an e-mail address, so no user can sign in by it.
  const odd = [email, ...emails.map(({ value = "" }) => value)].find((each) => each.includes("@") && !isEmail(each));
  if (odd !== undefined)
    throw refuse(Reason.INVALID_VALUE, `${JSON.stringify(odd)} is not a plain e-mail address such as name@example.com`);
  return { userName, email, externalId, resource };
}

const shown = (resource: ScimResource, wish: Projection): User =>
  fromJson(UserSchema, shownOf(KINDS.user, resource, wish) as JsonObject, { ignoreUnknownFields: true });
