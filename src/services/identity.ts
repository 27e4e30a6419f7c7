/** Members of an organization and the permissions of their roles. */

import { create, type DescMethod, type DescService, getOption } from "@bufbuild/protobuf";
import { http } from "../../gen/google/api/annotations_pb.ts";
import { rpc } from "../../gen/limber/edge/v1/options_pb.ts";
import type { IdentityService } from "../../gen/limber/v1/identity_service_pb.ts";
import {
  type Member,
  MemberSchema,
  MemberStatus,
  PermissionSchema,
  RolePermissionsSchema,
  RoleSchema,
} from "../../gen/limber/v1/member_pb.ts";
import { INVITE_PREFIX } from "../brand.ts";
import type { Implementation } from "../call.ts";
import { now } from "../clock.ts";
import { enumOf } from "../contracts/contract.ts";
import { Reason, refuse } from "../errors.ts";
import { emit } from "../events/emit.ts";
import type { InviteMail } from "../events/mail.ts";
import { secretBytes } from "../random.ts";
import { audit } from "../store/account/audit.ts";
import { createKey, revokeKeys } from "../store/account/keys.ts";
import {
  acceptInvite,
  addMember,
  assertOwnerRemains,
  changeMember,
  dropMember,
  findMember,
  findWorkspace,
  listMembers,
  lockMembers,
  type MemberRecord,
} from "../store/account/members.ts";
import { findOrg } from "../store/account/orgs.ts";
import { hashSecret } from "../store/account/secret.ts";
import { type Queryable, type Sql, type Tx, tx } from "../store/database/tx.ts";
import { addInviteMail, mailContext, newMailId } from "../store/events/mail.ts";
import type { Vault } from "../vault.ts";
import { keyMessage, recordRevoked } from "./keys.ts";
import { actOn, assertMayChange, assertMayEnd, settleRole } from "./members.ts";
import { readPage } from "./pages.ts";
import { holds, PERMISSIONS, ROLES, reachOf } from "./permissions.ts";
import { assertReachable, giverOf, refuseStandingBeyond } from "./reach.ts";
import { signInLink } from "./session.ts";

/** Dependencies of the identity RPCs. */
interface IdentityDeps {
  sql: Sql;
  /** All services of the gateway, for the permission matrix. */
  services: readonly DescService[];
  /** Applies a change to a key, or to the keys of a member or an organization, on this replica immediately; others are notified. */
  changed(id: string): void;
  /** The address at which browsers reach the gateway. */
  home: string;
  /** Seals the content of invite mail; undefined if the gateway sends no mail. */
  mail: Pick<Vault, "seal"> | undefined;
}

const INVITE_MS = 7 * 24 * 3600 * 1000;
const DEFAULT_PAGE = 100;

/** The identity RPCs. */
export function identityService({
  sql,
  services,
  changed,
  home,
  mail,
}: IdentityDeps): Implementation<typeof IdentityService> {
  const matrix = matrixOf(services);
  return {
    async inviteMember({ orgId, email, role, workspaceIds }, call) {
      await assertReachable(sql, orgId, call);
      await assertWorkspaces(sql, orgId, workspaceIds);
      const invite = INVITE_PREFIX + secretBytes(32).toString("base64url");
      const asked = { hash: hashSecret(invite), endsMs: now() + INVITE_MS };
      const signInUrl = signInLink(home, invite);
      const { member, isMailed } = await tx(sql, async (tx) => {
        await lockMembers(tx, orgId);
        await refuseStandingBeyond(tx, orgId, { role, workspaceIds }, await giverOf(tx, call));
        const member = await addMember(tx, { orgId, email, role, workspaceIds, invite: asked });
        await audit(tx, actOn(member, "member.invited", call, { email, role, workspace_ids: workspaceIds }));
        return { member, isMailed: mail !== undefined && (await mailInvite(tx, member, signInUrl, mail)) };
      });
      const invited = { ...memberMessage(member), invite, signInUrl, ...(isMailed && { inviteMailed: true }) };
      return { member: invited };
    },

    async acceptInvite({ invite, keyName }, call) {
      const { member, made } = await tx(sql, async (tx) => {
        const member = await acceptInvite(tx, hashSecret(invite));
        if (!member) throw refuse(Reason.INVALID_INVITE, "this invite is invalid or expired; request a new one");
        const { id: userId, orgId, role, workspaceIds } = member;
        const name = keyName ?? "first key";
        const made = await createKey(tx, { orgId, userId, role, name, workspaceId: workspaceIds[0] });
        await emit(tx, orgId, { case: "memberAdded", value: { userId, role } });
        await emit(tx, orgId, { case: "keyCreated", value: { keyId: made.key.id } }, made.key.workspaceId);
        const act = { ...actOn(member, "member.joined", call, { key_id: made.key.id }), actor: userId };
        await audit(tx, act);
        return { member, made };
      });
      return {
        member: memberMessage(member),
        key: keyMessage(made.key, { secret: made.secret }),
      };
    },

    async listMembers({ orgId, limit = DEFAULT_PAGE, cursor: after }, call) {
      await assertReachable(sql, orgId, call);
      const { records, ...page } = await readPage(
        limit,
        (most) => listMembers(sql, orgId, { limit: most, after }),
        ({ id }) => id,
      );
      return { ...page, data: records.map(memberMessage) };
    },

    async getMember({ orgId, userId }, call) {
      await assertReachable(sql, orgId, call);
      return { member: memberMessage(await known(sql, orgId, userId)) };
    },

    async updateMember({ orgId, userId, role, workspaceIds }, call) {
      await assertReachable(sql, orgId, call);
      await assertWorkspaces(sql, orgId, workspaceIds?.ids ?? []);
      const member = await tx(sql, async (tx) => {
        await lockMembers(tx, orgId);
        const giver = await giverOf(tx, call);
        const before = await known(tx, orgId, userId);
        await assertMayChange(tx, before, giver);
        if (role !== undefined) await assertMayChange(tx, { ...before, role }, giver);
        const after = await changeMember(tx, userId, { workspaceIds: workspaceIds?.ids, givenRole: role });
        await assertMayChange(tx, after, giver);
        const { workspaceIds: outside } = after;
        if (outside.length > 0) await recordRevoked(tx, orgId, await revokeKeys(tx, { userId, outside }), call);
        const settled = await settleRole(tx, after, giver);
        const details = { from: memberDetails(before), to: memberDetails(settled) };
        await audit(tx, actOn(settled, "member.changed", call, details));
        return settled;
      });
      changed(userId);
      return { member: memberMessage(member) };
    },

    async removeMember({ orgId, userId }, call) {
      await assertReachable(sql, orgId, call);
      await tx(sql, async (tx) => {
        await lockMembers(tx, orgId);
        const member = await known(tx, orgId, userId);
        await assertMayEnd(tx, member, await giverOf(tx, call));
        await assertOwnerRemains(tx, member);
        await recordRevoked(tx, orgId, await revokeKeys(tx, { userId }), call);
        await dropMember(tx, userId);
        await emit(tx, orgId, { case: "memberRemoved", value: { userId } });
        await audit(tx, actOn(member, "member.removed", call, { email: member.email, role: member.role }));
      });
      changed(userId);
      return { userId, removed: true };
    },

    async transferOwnership({ orgId, userId }, call) {
      await assertReachable(sql, orgId, call);
      const ownId = call.principal.kind === "key" ? call.principal.userId : undefined;
      const { owner, previous } = await tx(sql, async (tx) => {
        await lockMembers(tx, orgId);
        const successor = await known(tx, orgId, userId);
        if (successor.status !== "active")
          throw refuse(Reason.MEMBER_NOT_ACTIVE, "only an active member can become the owner");
        const giver = await giverOf(tx, call);
        await refuseStandingBeyond(tx, orgId, { role: "owner", workspaceIds: [], userId }, giver);
        const heirs = await changeMember(tx, successor.id, { givenRole: "owner", workspaceIds: [] });
        const owner = await settleRole(tx, heirs, giver);
        const former = ownId === undefined || ownId === userId ? undefined : await findMember(tx, orgId, ownId);
        const previous =
          former && (await settleRole(tx, await changeMember(tx, former.id, { givenRole: "admin" }), giver));
        await audit(tx, actOn(owner, "org.transferred", call, { from: former?.id ?? null }));
        return { owner, previous };
      });
      changed(orgId);
      return {
        owner: memberMessage(owner),
        ...(previous && { previous: memberMessage(previous) }),
      };
    },

    async getPermissions() {
      return matrix;
    },
  };
}

/** Queues the mail of an invite. Resolves with whether it was queued. */
async function mailInvite(
  tx: Tx,
  { orgId, email }: MemberRecord,
  url: string,
  vault: Pick<Vault, "seal">,
): Promise<boolean> {
  const org = await findOrg(tx, orgId);
  const id = newMailId();
  const says: InviteMail = { org: org?.name ?? "", url, days: INVITE_MS / (24 * 3600 * 1000) };
  return addInviteMail(tx, { id, orgId, recipient: email, sealed: vault.seal(JSON.stringify(says), mailContext(id)) });
}

const memberDetails = ({ role, workspaceIds }: MemberRecord) => ({ role, workspace_ids: workspaceIds });

async function known(sql: Queryable, orgId: string, userId: string): Promise<MemberRecord> {
  const member = await findMember(sql, orgId, userId);
  if (!member) throw refuse(Reason.NOT_FOUND, "member not found");
  return member;
}

async function assertWorkspaces(sql: Sql, orgId: string, ids: readonly string[]): Promise<void> {
  for (const [at, id] of ids.entries())
    if (!(await findWorkspace(sql, orgId, id, now())))
      throw refuse(Reason.NOT_FOUND, "workspace not found", {}, { param: `workspace_ids.${at}` });
}

const memberMessage = ({ id, inviteEnds, status, ...member }: MemberRecord): Member =>
  create(MemberSchema, {
    ...member,
    userId: id,
    status: enumOf(MemberStatus, status),
    inviteExpiresAt: inviteEnds,
  });

// The matrix of roles and permissions with the calls that need each, derived from the schema and the gate's table.

/** The matrix over the RPCs of `services`. */
function matrixOf(services: readonly DescService[]) {
  // Read each option once: every read decodes it from bytes.
  const byPermission = Map.groupBy(
    services.flatMap((service) => service.methods),
    (method) => getOption(method, rpc).permission,
  );
  const ids = PERMISSIONS.map(({ id }) => id);
  return {
    object: "permission_matrix",
    roles: ROLES.map((role) =>
      create(RoleSchema, {
        ...role,
        permissions: ids.filter((id) => holds(role.id, id)),
        ownPermissions: ids.filter((id) => reachOf(role.id, id) === "own"),
      }),
    ),
    permissions: PERMISSIONS.map(({ id, description }) =>
      create(PermissionSchema, {
        id,
        description,
        endpoints: (byPermission.get(id) ?? []).map(endpointOf),
      }),
    ),
    matrix: Object.fromEntries(
      ROLES.map((role) => {
        const permissions = Object.fromEntries(ids.map((id) => [id, holds(role.id, id)]));
        return [role.id, create(RolePermissionsSchema, { permissions })];
      }),
    ),
  };
}

/** An RPC as REST callers know it; RPCs without a REST form use their own name. */
function endpointOf(method: DescMethod): string {
  const { case: verb, value } = getOption(method, http).pattern;
  return verb === undefined ? `${method.parent.typeName}/${method.name}` : `${verb.toUpperCase()} ${value}`;
}
