/** Everyone who may knock, for tests of who is let in. */
import { ROLE_NAMES } from "../../src/services/permissions.ts";
import { ADMIN_TOKEN, type App, type Caller, type CallOptions } from "./app.ts";
import { OWN_PAGE, signedIn } from "./browser.ts";
import { eventually } from "./eventually.ts";
import { person } from "./members.ts";
import { consent, exchange, honest, pkce, register } from "./oauth.ts";

/** Who knocks, and what is known of his key. */
export interface KnockingPrincipal {
  readonly name: string;
  readonly send: CallOptions;
  /** The word with which the gate refuses such a key wherever a key is needed; undefined for a good one. */
  readonly broken?: string;
  /** The role of a good key. */
  readonly role?: string;
  /** The key is a member's own. */
  readonly member?: boolean;
  /** All that the key may do within its role; everything when undefined. */
  readonly permissions?: readonly string[];
  /** The contracts that the key is confined to; all when undefined. */
  readonly scopes?: readonly string[];
  /** The key is of a workspace. */
  readonly confined?: boolean;
  /** It knocks by a session. */
  readonly session?: boolean;
  /** What comes in the admin token's header. */
  readonly admin?: "right" | "wrong";
}

/** All of them around one organisation. Their keys are known to be good or broken by now on this replica. */
export async function everyone(app: App, { org, key: ownerKey }: Caller): Promise<KnockingPrincipal[]> {
  const key = (facts: object) => app.key(org, facts);
  const soon = { expires_at: Math.floor(Date.now() / 1000) + 60 };
  const [revoked, expired, suspended, stranger, gone, left, app1] = await Promise.all([
    key({ role: "owner" }),
    key({ role: "owner", ...soon }),
    app.caller(0),
    app.caller(0),
    person(app, org, "admin"),
    person(app, org, "admin"),
    register(app, ownerKey, { scopes: ["act", "usage.read"] }),
  ]);
  await app.sql`update key set disabled = true where hash = sha256(${revoked}::bytea)`;
  await app.sql`update key set expires_at = now() - interval '1 s' where hash = sha256(${expired}::bytea)`;
  await app.sql`update org set status = 'suspended' where id = ${suspended.org}`;
  await app.sql`update member set status = 'deactivated' where id = ${gone.userId}`;
  await app.call(`/v1/orgs/${org}/members/${left.userId}`, undefined, { key: ownerKey, method: "DELETE" });

  const people = await Promise.all(ROLE_NAMES.map(async (role) => ({ role, ...(await person(app, org, role)) })));
  const orgKeys = await Promise.all(ROLE_NAMES.map(async (role) => ({ role, key: await key({ role }) })));
  const admin = people.find(({ role }) => role === "admin");
  const { verifier, challenge } = pkce();
  const { code } = (await consent(app, admin?.key ?? "", app1.body.client_id, challenge)).body;
  const granted = (await exchange(app, honest(app1.body.client_id, code, verifier))).body.access_token;

  const lab = await app.call(`/v1/orgs/${org}/workspaces`, { name: "a lab of its own" }, { key: ownerKey });
  const spent = await key({ role: "developer", budget: { limit_usd: 0.000001, interval: "lifetime" } });
  const confined = await key({ role: "developer", workspace_id: lab.body.id });
  const head = await key({ role: "owner", workspace_id: lab.body.id });

  const bySession = async (userId: string, page: Record<string, string> = OWN_PAGE): Promise<CallOptions> => ({
    headers: { ...page, cookie: (await signedIn(app, org, userId)).cookie },
  });
  const sessions = await Promise.all(
    people.map(async ({ role, userId }) => ({ role, member: true, session: true, send: await bySession(userId) })),
  );
  const inLab = await person(app, org, "owner", { workspace_ids: [lab.body.id] });
  const asleep = await person(app, org, "owner");
  const ended = await bySession(asleep.userId);
  await app.sql`update member set status = 'deactivated' where id = ${asleep.userId}`;
  const own = people.find(({ role }) => role === "owner")?.userId ?? "";

  const all: KnockingPrincipal[] = [
    { name: "nobody", send: {}, broken: "missing_api_key" },
    { name: "text that is no key", send: { key: "hello" }, broken: "invalid_api_key" },
    { name: "a key of a wrong checksum", send: { key: `${ownerKey.slice(0, -1)}~` }, broken: "invalid_api_key" },
    {
      name: "the wrong scheme",
      send: { headers: { authorization: `Basic ${ownerKey}` } },
      broken: "invalid_api_key",
    },
    { name: "a revoked key", send: { key: revoked }, broken: "key_disabled" },
    { name: "an expired key", send: { key: expired }, broken: "key_expired" },
    { name: "a suspended organisation's key", send: { key: suspended.key }, broken: "key_disabled" },
    { name: "a deactivated user's key", send: { key: gone.key }, broken: "key_disabled" },
    { name: "a removed user's key", send: { key: left.key }, broken: "key_disabled" },
    ...people.map(({ role, key }) => ({ name: `a member: ${role}`, send: { key }, role, member: true })),
    ...orgKeys.map(({ role, key }) => ({ name: `the organisation's key: ${role}`, send: { key }, role })),
    { name: "another organisation's owner", send: { key: stranger.key }, role: "owner" },
    // What is spent or confined is judged behind the gate: by the credit leaser, and by whoever looks for the thing.
    { name: "a key whose budget is spent", send: { key: spent }, role: "developer" },
    { name: "a key of another workspace", send: { key: confined }, role: "developer", confined: true },
    { name: "an owner's key of another workspace", send: { key: head }, role: "owner", confined: true },
    {
      name: "a key that only grounds",
      send: { key: await key({ role: "developer", scopes: ["ground"] }) },
      role: "developer",
      scopes: ["ground"],
    },
    {
      name: "an application's key",
      send: { key: granted },
      role: "admin",
      permissions: ["usage.read", "inference.run"],
      scopes: ["act"],
    },
    ...sessions.map((each) => ({ ...each, name: `a person who is signed in: ${each.role}` })),
    {
      name: "a person who is signed in to a workspace",
      send: await bySession(inLab.userId),
      role: "owner",
      member: true,
      session: true,
      confined: true,
    },
    { name: "a session that is over", send: ended, broken: "session_ended", session: true },
    {
      name: "a session by another site's page",
      send: await bySession(own, { "sec-fetch-site": "cross-site", origin: "https://evil.example" }),
      broken: "cross_origin",
      session: true,
    },
    { name: "the operator", send: { admin: ADMIN_TOKEN }, broken: "missing_api_key", admin: "right" },
    { name: "a false operator", send: { admin: "wrong" }, broken: "missing_api_key", admin: "wrong" },
    { name: "operator and owner", send: { admin: ADMIN_TOKEN, key: ownerKey }, role: "owner", admin: "right" },
    { name: "a false operator and an owner", send: { admin: "wrong", key: ownerKey }, role: "owner", admin: "wrong" },
    {
      name: "the operator and a revoked key",
      send: { admin: ADMIN_TOKEN, key: revoked },
      broken: "key_disabled",
      admin: "right",
    },
  ];
  await eventually(async () => {
    for (const { name, send, broken } of all.filter(({ broken = "" }) => /^(key|session)_/.test(broken))) {
      const { body } = await app.call("/v1/key", undefined, send);
      if (body.error?.code !== broken) throw new Error(`${name} is not refused yet`);
    }
  });
  return all;
}
