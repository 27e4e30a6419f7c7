/** Members: who belongs to the organization, and in what role. */
import { useMutation, useQuery } from "@connectrpc/connect-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useState } from "react";
import { IdentityService } from "#messages/limber/v1/identity_service_pb.ts";
import { type Member, MemberSchema, MemberStatus, MemberStatusSchema } from "#messages/limber/v1/member_pb.ts";
import { SessionService } from "#messages/limber/v1/session_service_pb.ts";
import { refresh } from "../lib/api.ts";
import { restJson } from "../lib/json.ts";
import { useList } from "../lib/list.ts";
import { useMay, useWho } from "../lib/session.ts";
import { wordOf } from "../lib/words.ts";
import {
  Choice,
  Code,
  Empty,
  Head,
  Json,
  None,
  Pairs,
  Refused,
  Secret,
  Sure,
  TextField,
  Time,
  Word,
} from "../parts/basics.tsx";
import { Sheet } from "../parts/sheet.tsx";
import { type Column, Table } from "../parts/table.tsx";

const COLUMNS: readonly Column<Member>[] = [
  { id: "email", title: "e-mail", width: "3fr", cell: ({ email }) => email, value: ({ email }) => email },
  { id: "role", title: "role", width: "1fr", phone: 72, cell: ({ role }) => role, value: ({ role }) => role },
  {
    id: "status",
    title: "state",
    width: 112,
    phone: 96,
    cell: ({ status }) => <Word>{wordOf(MemberStatusSchema, status)}</Word>,
    value: ({ status }) => status,
  },
  {
    id: "spaces",
    title: "workspaces",
    width: "2fr",
    wide: true,
    cell: ({ workspaceIds }) => (workspaceIds.length === 0 ? <None /> : <Code>{workspaceIds.join(", ")}</Code>),
  },
  {
    id: "created",
    title: "invited",
    width: 112,
    wide: true,
    cell: ({ created }) => <Time at={created} />,
    value: ({ created }) => created,
  },
];

/** The page. */
export function MembersPage() {
  const search = useSearch({ from: "/console/members" });
  const navigate = useNavigate({ from: "/console/members" });
  const { orgId } = useWho();
  const may = useMay("members.write");
  const show = useCallback(
    (member: string | undefined) => void navigate({ search: member === undefined ? {} : { member }, replace: true }),
    [navigate],
  );
  const members = useList(IdentityService.method.listMembers, { orgId, limit: 100 });
  const open = members.rows.find(({ userId }) => userId === search.member);
  return (
    <>
      <Head title="Members">
        {may && (
          <button type="button" className="button button-main" onClick={() => show("new")}>
            Invite
          </button>
        )}
      </Head>
      <Refused error={members.error} again={members.again} />
      <Table
        label="members"
        columns={COLUMNS}
        rows={members.rows}
        keyOf={({ userId }) => userId}
        open={search.member}
        onOpen={({ userId }) => show(userId)}
        loading={members.loading}
        more={members.more}
        empty={<Empty>No members yet. Invite one.</Empty>}
      />
      <Matrix />
      {open !== undefined && <MemberSheet member={open} may={may} onClose={() => show(undefined)} />}
      {search.member === "new" && <Invite onClose={() => show(undefined)} />}
    </>
  );
}

const useRoles = () =>
  useQuery(IdentityService.method.getPermissions, {}, { staleTime: Number.POSITIVE_INFINITY }).data?.roles ?? [];

function MemberSheet({ member, may, onClose }: { member: Member; may: boolean; onClose: () => void }) {
  const named = { orgId: member.orgId, userId: member.userId };
  const roles = useRoles();
  const link = useMutation(SessionService.method.createSignInLink);
  const end = useMutation(SessionService.method.endSessions);
  const update = useMutation(IdentityService.method.updateMember);
  const remove = useMutation(IdentityService.method.removeMember);
  return (
    <Sheet title={member.email} onClose={onClose}>
      <Refused error={link.error ?? end.error ?? update.error ?? remove.error} />
      {link.data !== undefined && (
        <Secret what="Sign-in link. It works once, within 15 minutes." text={link.data.url} />
      )}
      <Pairs
        of={[
          ["state", <Word key="">{wordOf(MemberStatusSchema, member.status)}</Word>],
          ["role", member.role],
          member.givenRole !== member.role && ["assigned role", member.givenRole],
          ["id", <Code key="">{member.userId}</Code>],
          ["workspaces", member.workspaceIds.join(", ") || "entire organization"],
          ["invited", <Time key="" at={member.created} />],
          member.inviteExpiresAt !== undefined && ["invite expires", <Time key="" at={member.inviteExpiresAt} />],
        ]}
      />
      {end.data !== undefined && (
        <p role="status" className="mt-2">
          {end.data.ended} sessions were ended.
        </p>
      )}
      {may && (
        <div className="mt-4 grid gap-3">
          <Choice
            label="Role"
            value={member.givenRole || member.role}
            onChange={(role) => void update.mutateAsync({ ...named, role }).then(refresh, () => undefined)}
            options={roles.map(({ id, name }) => [id, name] as const)}
            help={roles.find(({ id }) => id === member.role)?.description}
          />
          <div className="flex flex-wrap gap-2">
            {member.status === MemberStatus.ACTIVE && (
              <button type="button" className="button" disabled={link.isPending} onClick={() => link.mutate(named)}>
                Create a sign-in link
              </button>
            )}
            <Sure
              label="Sign out everywhere"
              question={`End every session of ${member.email}? Keys of the member work on.`}
              onSure={() => end.mutate(named)}
            />
            <Sure
              label="Remove"
              question={`Remove ${member.email}? Sessions and keys of the member end at once.`}
              onSure={() =>
                void remove.mutateAsync(named).then(
                  () => {
                    onClose();
                    return refresh();
                  },
                  () => undefined,
                )
              }
            />
          </div>
        </div>
      )}
      <Json of={restJson(MemberSchema, member)} />
    </Sheet>
  );
}

function Invite({ onClose }: { onClose: () => void }) {
  const { orgId, workspaces } = useWho();
  const roles = useRoles();
  const [email, setEmail] = useState("");
  const [role, setRole] = useState("operator");
  const [workspace, setWorkspace] = useState("");
  const invite = useMutation(IdentityService.method.inviteMember);
  const made = invite.data?.member;
  return (
    <Sheet title="Invite a member" onClose={onClose}>
      {made !== undefined ? (
        <>
          <Secret
            what={`For ${made.email}: accepts the invite and signs in. It is shown this once.`}
            text={made.signInUrl ?? made.invite ?? ""}
          />
          <button type="button" className="button" onClick={onClose}>
            Done
          </button>
        </>
      ) : (
        <form
          className="grid gap-3"
          onSubmit={(event) => {
            event.preventDefault();
            void invite
              .mutateAsync({ orgId, email, role, workspaceIds: workspace === "" ? [] : [workspace] })
              .then(refresh, () => undefined);
          }}
        >
          <TextField label="E-mail" type="email" value={email} onChange={setEmail} required />
          <Choice
            label="Role"
            value={role}
            onChange={setRole}
            options={roles.map(({ id, name }) => [id, name] as const)}
            help={roles.find(({ id }) => id === role)?.description}
          />
          {workspaces.length > 0 && (
            <Choice
              label="Workspace"
              value={workspace}
              onChange={setWorkspace}
              options={workspaces.map(({ workspaceId, name }) => [workspaceId, name] as const)}
              any="entire organization"
            />
          )}
          <Refused error={invite.error} />
          <button type="submit" className="button button-main justify-center" disabled={invite.isPending}>
            Invite
          </button>
        </form>
      )}
    </Sheet>
  );
}

/** What each role may do. */
function Matrix() {
  const { data } = useQuery(IdentityService.method.getPermissions, {}, { staleTime: Number.POSITIVE_INFINITY });
  if (data === undefined) return null;
  const may = (role: string, permission: string): string => {
    const found = data.roles.find(({ id }) => id === role);
    return found?.permissions.includes(permission) ? "yes" : found?.ownPermissions.includes(permission) ? "own" : "";
  };
  return (
    <details className="mt-6">
      <summary className="text-muted">What each role may do</summary>
      <div className="panel mt-2 overflow-auto" tabIndex={0} role="region" aria-label="roles and permissions">
        <table className="w-full text-sm">
          <thead className="bg-panel text-muted">
            <tr>
              <th scope="col" className="px-3 py-1 text-left font-normal">
                permission
              </th>
              {data.roles.map(({ id, name, description }) => (
                <th key={id} scope="col" className="px-2 text-left font-normal" title={description}>
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {data.permissions.map(({ id, description }) => (
              <tr key={id} className="border-t border-line">
                <th scope="row" className="px-3 py-1 text-left font-normal" title={description}>
                  <code>{id}</code>
                </th>
                {data.roles.map((role) => (
                  <td key={role.id} className="px-2">
                    {may(role.id, id)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}
