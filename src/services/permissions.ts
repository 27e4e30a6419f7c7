/** Which role holds which permission: the one table that the gate enforces and `GET /v1/permissions` returns. */
import { type DescMethod, getOption } from "@bufbuild/protobuf";
import { type Rpc, rpc, WorkspaceReach } from "../../gen/limber/edge/v1/options_pb.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";

/** The roles, highest first. If several apply to a member, the first one counts. */
export const ROLES = [
  { id: "owner", name: "Owner", description: "Holds every permission, and hands the organization on." },
  { id: "admin", name: "Admin", description: "Runs the organization: members, workspaces, keys, settings." },
  { id: "developer", name: "Developer", description: "Builds on the models, with keys of their own." },
  { id: "operator", name: "Operator", description: "Runs robots, and makes no keys." },
  { id: "billing", name: "Billing", description: "Pays, and sees what was used." },
  { id: "supplier", name: "Supplier", description: "Brings models to the gateway." },
  { id: "viewer", name: "Viewer", description: "Sees what others do." },
] as const;

/** A role of the table. */
export type Role = (typeof ROLES)[number]["id"];

/** The names of the roles, highest first. */
export const ROLE_NAMES: readonly Role[] = ROLES.map(({ id }) => id);

/** The reach of a permission: the complete organization, or the caller's own resources. */
export type Reach = "all" | "own";

/** The columns of the table below, in this order: `+` grants it, `o` grants it for the member's own resources, `-` does not grant it. */
const COLUMNS: readonly Role[] = ["owner", "admin", "developer", "operator", "billing", "viewer", "supplier"];

const TABLE: readonly (readonly [permission: string, holders: string, description: string])[] = [
  ["inference.run", "++++---", "Call models, and preview where calls would go."],
  ["jobs.read", "++++-+-", "See batches and evaluation jobs."],
  ["jobs.write", "++++---", "Start and cancel batches and evaluation jobs."],
  ["publications.write", "++-----", "Publish evaluations and comparisons, and withdraw them."],
  ["keys.read", "++o--+-", "See API keys, without their secrets."],
  ["keys.write", "++o----", "Make, change and revoke API keys."],
  ["presets.read", "++++-+-", "See presets."],
  ["presets.write", "+++----", "Save and delete presets."],
  ["credentials.read", "++++-+-", "See which provider keys are stored, without their secrets."],
  ["credentials.write", "+++----", "Store, verify and delete provider keys."],
  ["logs.read", "++++-+-", "See the log of requests."],
  ["logs.export", "+++----", "Take the log of requests out as a file."],
  ["usage.read", "++++++-", "See what was used and what it cost."],
  ["events.read", "+++--+-", "Hear the events of the organization as they happen."],
  ["webhooks.read", "+++--+-", "See webhooks."],
  ["webhooks.write", "+++----", "Register, test and delete webhooks."],
  ["broadcast.read", "+++--+-", "See targets of spans."],
  ["broadcast.write", "+++----", "Register, test and delete targets of spans."],
  ["workspaces.read", "++++++-", "See workspaces."],
  ["workspaces.write", "++-----", "Make, change and delete workspaces."],
  ["settings.read", "++++++-", "See the organization's settings."],
  ["settings.write", "++-----", "Change the organization's settings."],
  ["members.read", "++-----", "See members."],
  ["members.write", "++-----", "Invite and remove members, and change their roles."],
  ["scim.read", "++-----", "Read users and groups as an identity provider."],
  ["scim.write", "++-----", "Push users and groups as an identity provider."],
  ["issuers.read", "++-----", "See the identity providers that sign people in, and the organization's e-mail domains."],
  ["issuers.write", "+------", "Set up and delete identity providers that sign people in."],
  ["oauth.clients", "++-----", "Make and delete OAuth clients."],
  ["audit.read", "++-----", "See who did what."],
  ["billing.read", "++--+--", "See the balance, payments and invoices."],
  ["billing.write", "+---+--", "Pay, and change how payments are made."],
  ["supply.read", "++---++", "See the organization's own offerings."],
  ["supply.write", "++----+", "Register providers, declare models, verify offerings."],
  ["robots.read", "++++-+-", "See robots, and the control loops that run."],
  ["robots.pictures", "++++---", "See what running robots' cameras see."],
  ["robots.write", "++++---", "Write robots down, and forget them."],
  ["robots.stop", "++++---", "Stop robots at once."],
  ["robots.arm", "++-+---", "Arm robots for agents."],
  ["org.transfer", "+------", "Hand the organization on to another owner."],
  ["org.export", "+------", "Export everything of the organization."],
  ["org.delete", "+------", "Delete the organization."],
];

const REACHES: Readonly<Record<string, Reach | undefined>> = { "+": "all", o: "own" };

const reaches: ReadonlyMap<string, ReadonlyMap<string, Reach | undefined>> = new Map(
  TABLE.map(([permission, holders]) => [
    permission,
    new Map(COLUMNS.map((role, at) => [role as string, REACHES[holders[at] ?? "-"]])),
  ]),
);

/** Every permission of the table with its description. The schema can require no other. */
export const PERMISSIONS: readonly { readonly id: string; readonly description: string }[] = TABLE.map(
  ([id, , description]) => ({ id, description }),
);

/** The reach of a role's permission; undefined if the role lacks it, or the table does. */
export const reachOf = (role: string, permission: string): Reach | undefined => reaches.get(permission)?.get(role);

/** Whether a role has a permission at all. */
export const holds = (role: string, permission: string): boolean => reachOf(role, permission) !== undefined;

/** Whether a role has no more permissions than another. A member cannot assign a role beyond the member's own. */
export function isRoleWithin(inner: string, role: string): boolean {
  if (inner === "owner" && role !== "owner") return false;
  return PERMISSIONS.every(({ id }) => {
    const [wanted, held] = [reachOf(inner, id), reachOf(role, id)];
    return wanted === undefined || held === "all" || held === wanted;
  });
}

/** The highest of several roles; undefined if there is none. */
export const highestRole = (roles: Iterable<string>): Role | undefined => {
  const held = new Set(roles);
  return ROLE_NAMES.find((role) => held.has(role));
};

/**
 * The reach of a caller's permission: that of its role, limited by the key's own list of permissions (OAuth keys) and by all of its
 * ancestors.
 */
export function callersReach(
  caller: {
    role: string;
    userId?: string | undefined;
    permissions?: readonly string[] | undefined;
    held?: ReadonlyMap<string, string> | undefined;
  },
  permission: string,
): Reach | undefined {
  if (caller.held !== undefined) {
    const reach = caller.held.get(permission);
    return reach === "all" ? reach : reach !== undefined && reach === caller.userId ? "own" : undefined;
  }
  if (caller.permissions !== undefined && !caller.permissions.includes(permission)) return undefined;
  return reachOf(caller.role, permission);
}

/** The fields of a caller that determine which calls it may make. */
export interface Caller {
  readonly role: string;
  readonly userId?: string | undefined;
  readonly permissions?: readonly string[] | undefined;
  readonly held?: ReadonlyMap<string, string> | undefined;
  /** Contracts; empty means all. */
  readonly scopes: readonly string[];
  /** The workspace of a workspace key. */
  readonly workspaceId?: string | undefined;
}

/** Why a valid key cannot make a call; undefined if it can. */
export function denialOf(
  key: Caller,
  rule: Pick<Rpc, "permission" | "own" | "scope" | "workspaces">,
): Refusal | undefined {
  const reach = rule.permission === "" ? "all" : callersReach(key, rule.permission);
  // A key without a member has no own resources, but can read itself.
  const hasOwn = key.userId !== undefined || rule.permission === "keys.read";
  if (reach === undefined || (reach === "own" && !(rule.own && hasOwn))) {
    const needed = [rule.permission];
    return refuse(Reason.PERMISSION_DENIED, `this call needs the permission ${rule.permission}`, { needed });
  }
  if (rule.workspaces === WorkspaceReach.ORGANISATION && key.workspaceId !== undefined)
    return refuse(Reason.SCOPE_DENIED, OF_THE_ORGANISATION, { needed: ["organisation"] });
  if (rule.scope === "" || key.scopes.length === 0 || key.scopes.includes(rule.scope)) return undefined;
  return refuse(Reason.SCOPE_DENIED, `this call needs a key with the scope ${rule.scope}`, { needed: [rule.scope] });
}

const OF_THE_ORGANISATION =
  "this call concerns the complete organization; use an organization key instead of a workspace key";

/** Refuses a key that would make another call indirectly that it cannot make itself. */
export function assertMayCall(key: Caller, method: DescMethod): void {
  const denial = denialOf(key, getOption(method, rpc));
  if (denial) throw denial;
}
