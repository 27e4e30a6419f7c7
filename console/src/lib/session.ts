/** Who is signed in: what the gateway says of the caller, and what the caller may. */
import { useQuery } from "@connectrpc/connect-query";
import { type Session, SessionService } from "#messages/limber/v1/session_service_pb.ts";

/** The person, or the key, that the page speaks for. */
export interface Who
  extends Pick<
    Session,
    "orgId" | "orgName" | "role" | "workspaceId" | "workspaces" | "organisations" | "reachesOrganisation"
  > {
  /** Where a person can be reached; what an organization is called where a key calls. */
  readonly name: string;
  /** Signed in as a person, with a session that can be ended. */
  readonly isPerson: boolean;
  readonly permissions: ReadonlySet<string>;
}

/** Asks the gateway who is signed in. */
export function useSession() {
  const { data, error, isPending } = useQuery(SessionService.method.getSession, {}, { staleTime: 60_000 });
  const session = data?.session;
  const who: Who | undefined = session && {
    ...session,
    name: session.email ?? session.orgName,
    isPerson: session.id !== undefined,
    permissions: new Set([...session.permissions, ...session.ownPermissions]),
  };
  return { who, error, isPending };
}

/** Who is signed in; pages are drawn only where somebody is. */
export function useWho(): Who {
  const { who } = useSession();
  if (who === undefined) throw new Error("a page was drawn without a session");
  return who;
}

/** Whether the reader may do what needs a permission. */
export const useMay = (permission: string): boolean => useWho().permissions.has(permission);
