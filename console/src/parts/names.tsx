/** Names instead of ids: members, keys, offerings, and what a call names as its model. */
import { useQuery } from "@connectrpc/connect-query";
import { AccountService } from "#messages/limber/v1/account_service_pb.ts";
import { IdentityService } from "#messages/limber/v1/identity_service_pb.ts";
import { useMay, useWho } from "../lib/session.ts";
import { Code, None } from "./basics.tsx";

/** Members whose names are looked up at once. */
const MEMBERS = 200;

/** The member, key or operator behind an id: the email address or the key's name, with the id as a tooltip. */
export function Actor({ id }: { id: string | undefined }) {
  const { orgId } = useWho();
  const isMember = id?.startsWith("usr_") ?? false;
  const isKey = id?.startsWith("key_") ?? false;
  const options = { staleTime: 60_000, retry: false };
  const mayMembers = useMay("members.read");
  const mayKeys = useMay("keys.read");
  const members = useQuery(
    IdentityService.method.listMembers,
    { orgId, limit: MEMBERS },
    { ...options, enabled: isMember && mayMembers },
  );
  const keys = useQuery(
    AccountService.method.listKeys,
    { orgId, limit: MEMBERS },
    { ...options, enabled: isKey && mayKeys },
  );
  if (id === undefined || id === "") return <None />;
  const name = isMember
    ? (members.data?.data.find(({ userId }) => userId === id)?.email ?? `member …${tailOf(id)}`)
    : isKey
      ? keys.data?.data.find((key) => key.id === id)?.name
      : id === "admin"
        ? "operator"
        : undefined;
  if (name === undefined || name === "") return <Code>{id}</Code>;
  return (
    <span className="block truncate" title={id}>
      {name}
    </span>
  );
}

/** The last letters of an id, which tell two of them apart. */
export const tailOf = (id: string): string => id.slice(-6);

/** What a call ran: a model's slug, or the scenario of an evaluation, whose ids have no owner. */
export function ModelName({ of }: { of: string | undefined }) {
  if (of === undefined || of === "" || of.includes("/")) return <Code>{of}</Code>;
  return (
    <span className="block truncate" title={of}>
      <span className="text-muted">scenario </span>
      <code>{of}</code>
    </span>
  );
}

/** An offering: its model, its provider, and the end of its id, because one provider can have several of a model. */
export const OfferingName = ({ id, model, provider }: { id: string; model?: string; provider?: string }) => (
  <span title={id}>
    {model === undefined ? <code>{id}</code> : <code>{model}</code>}
    {provider !== undefined && ` at ${provider}`}
    {model !== undefined && <code className="text-muted"> …{tailOf(id)}</code>}
  </span>
);
