/** Every act that is on record: an RPC that may change something, what it needs to be called, and what the record then says. */

import { generateKeyPairSync } from "node:crypto";
import { ACT_DECLARATION, type Answer } from "../../support/app.ts";
import { Browser, signedIn } from "../../support/browser.ts";
import { EMAIL, type LyingIssuer, startLyingIssuer } from "../../support/identity-provider.ts";
import { person } from "../../support/members.ts";
import { consent, exchange, pkce, REDIRECT, register } from "../../support/oauth.ts";
import { closedAtEnd } from "../../support/opened.ts";
import { type Stage, USER } from "./stage.ts";

const PUBLIC_KEY = generateKeyPairSync("ed25519").publicKey.export({ type: "spki", format: "pem" });
const CHANGE = "urn:ietf:params:scim:api:messages:2.0:PatchOp";
const patchOf = (path: string, value: unknown) => ({
  schemas: [CHANGE],
  Operations: [{ op: "replace", path, value }],
});

/** What was done, by whom, and the call itself, once everything that it needs is there. */
export interface Act {
  readonly action: string;
  /** What goes with it. */
  readonly also?: readonly string[];
  /** The calling key when absent. */
  readonly actor?: string | RegExp;
  /** Where it isn't the owner's organisation. */
  readonly orgOf?: (answer: Answer) => string;
  readonly run: () => Promise<Answer | number>;
}

async function lyingIssuer(): Promise<LyingIssuer> {
  const issuer = await startLyingIssuer();
  closedAtEnd(() => issuer.close());
  return issuer;
}

/** A person who comes back from an identity provider. */
async function signingIn({ app, send, orgs, asOperator }: Stage) {
  const liar = await lyingIssuer();
  const domain = EMAIL.split("@")[1] ?? "";
  await asOperator("POST", orgs("/domains"), { domain });
  const facts = { issuer: liar.issuer, client_id: "c", domains: [domain], join_role: "viewer" };
  const { body: issuer } = await send("PUT", orgs("/issuers/sso"), facts);
  const browser = new Browser(app.url);
  const { body } = await browser.call("/v1/session/begin", { email: EMAIL });
  const asked = new URL(body.authorization_url).searchParams;
  liar.says({ nonce: asked.get("nonce") ?? "", client: "c" });
  const id = issuer.redirect_uri.split("/").at(-1);
  return { browser, id, query: `code=c&state=${asked.get("state")}` };
}

/** By the name of the RPC. */
export const ACTS: Readonly<Record<string, (stage: Stage) => Act | Promise<Act>>> = {
  CreateOrg: ({ asOperator }) => ({
    action: "org.created",
    actor: "admin",
    orgOf: ({ body }) => body.id,
    run: () => asOperator("POST", "/v1/orgs", { name: "another" }),
  }),
  ExportOrg: ({ send, orgs }) => ({ action: "org.exported", run: () => send("POST", orgs("/export"), {}) }),
  DeleteOrg: async ({ asOperator }) => {
    const { body } = await asOperator("POST", "/v1/orgs", { name: "short-lived" });
    return {
      action: "org.deleted",
      actor: "admin",
      orgOf: () => body.id,
      run: () => asOperator("DELETE", `/v1/orgs/${body.id}?confirm=${body.id}`),
    };
  },
  CreateKey: ({ send, orgs }) => ({ action: "key.created", run: () => send("POST", orgs("/keys"), {}) }),
  UpdateKey: async ({ send, orgs, aKey }) => {
    const { id } = await aKey();
    return { action: "key.updated", run: () => send("PATCH", orgs(`/keys/${id}`), { name: "other" }) };
  },
  DeleteKey: async ({ send, orgs, aKey }) => {
    const { id } = await aKey();
    return { action: "key.revoked", run: () => send("DELETE", orgs(`/keys/${id}`)) };
  },
  RotateKey: async ({ send, orgs, aKey }) => {
    const { id } = await aKey();
    return { action: "key.rotated", run: () => send("POST", orgs(`/keys/${id}/rotate`), {}) };
  },
  AddCredits: ({ asOperator, orgs }) => ({
    action: "credits.added",
    actor: "admin",
    run: () => asOperator("POST", orgs("/credits"), { amount_usd: 1 }),
  }),
  SetCommitment: ({ asOperator, orgs }) => ({
    action: "commitment.set",
    actor: "admin",
    run: () => asOperator("POST", orgs("/commitment"), { min_monthly_usd: 1 }),
  }),
  SetHardwareKeys: ({ asOperator, orgs }) => ({
    action: "hardware_keys.set",
    actor: "admin",
    run: () => asOperator("PUT", orgs("/hardware-keys"), { allowed: true }),
  }),
  UpdateMailPreferences: async ({ app, owner }) => {
    const { userId } = await person(app, owner.org, "viewer");
    const browser = await signedIn(app, owner.org, userId);
    const run = () => browser.call("/v1/mail/preferences", { muted: ["balance.low"] }, { method: "PATCH" });
    return { action: "mail.preferences_changed", actor: userId, run };
  },
  UpdateSettings: ({ send, orgs }) => ({
    action: "settings.updated",
    run: () => send("PATCH", orgs("/settings"), { retention_days: 7 }),
  }),
  TopUp: ({ send }) => ({
    action: "payment.requested",
    run: () => send("POST", "/v1/billing/topup", { amount_usd: 5 }),
  }),
  UpdateAutoTopUp: ({ send }) => ({
    action: "auto_topup.changed",
    run: () => send("PATCH", "/v1/billing/auto-topup", { threshold_usd: 5 }),
  }),
  SetUpPaymentMethod: ({ send }) => ({
    action: "payment_method.requested",
    run: () => send("POST", "/v1/billing/payment-method", {}),
  }),
  DeletePaymentMethod: async ({ send, made }) => {
    await made("/v1/billing/payment-method", {});
    return { action: "payment_method.deleted", run: () => send("DELETE", "/v1/billing/payment-method") };
  },
  ReconcilePayment: async ({ stripe, send, aPayment }) => {
    const id = await aPayment();
    stripe.pay(id);
    return { action: "payment.succeeded", run: () => send("POST", `/v1/billing/payments/${id}/reconcile`, {}) };
  },
  TakeProcessorMessage: async ({ app, stripe, aPayment }) => {
    const id = await aPayment();
    return { action: "payment.succeeded", actor: /./, run: () => stripe.deliver(app.url, stripe.pay(id)) };
  },
  CreateBroadcast: ({ receiver, send }) => ({
    action: "broadcast.created",
    run: () => send("POST", "/v1/broadcast", { name: "t", endpoint: receiver.url, protocol: "http/json" }),
  }),
  UpdateBroadcast: async ({ send, aTarget }) => {
    const { id } = await aTarget();
    return { action: "broadcast.changed", run: () => send("PATCH", `/v1/broadcast/${id}`, { name: "other" }) };
  },
  DeleteBroadcast: async ({ send, aTarget }) => {
    const { id } = await aTarget();
    return { action: "broadcast.deleted", run: () => send("DELETE", `/v1/broadcast/${id}`) };
  },
  PutCredential: ({ send }) => ({
    action: "credential.stored",
    run: () => send("PUT", "/v1/credentials/acme", { secret: "sk-a-secret-of-theirs" }),
  }),
  DeleteCredential: async ({ send, aCredential }) => {
    await aCredential();
    return { action: "credential.deleted", run: () => send("DELETE", "/v1/credentials/acme") };
  },
  VerifyCredential: async ({ send, aCredential }) => {
    await aCredential();
    return { action: "credential.verified", run: () => send("POST", "/v1/credentials/acme/verify", {}) };
  },
  CancelEvaluation: async ({ send, made }) => {
    const asked = { policy_endpoint: "acme/base", scenario: "base-nav", action_space: "base_twist_2d", episodes: 1 };
    const { id } = await made("/v1/evaluate", asked);
    return { action: "evaluation.cancelled", run: () => send("DELETE", `/v1/evaluate/${id}`) };
  },
  CancelComparison: async ({ send, made }) => {
    const policies = [{ policy_endpoint: "acme/base" }, { policy_endpoint: "acme/base" }];
    const { id } = await made("/v1/evaluate/compare", {
      ...{ policies, scenario: "base-nav", action_space: "base_twist_2d", episodes: 1 },
    });
    return { action: "comparison.cancelled", run: () => send("DELETE", `/v1/evaluate/compare/${id}`) };
  },
  CancelBatch: async ({ send, aBatch }) => {
    const { id } = await aBatch();
    return { action: "batch.cancelled", run: () => send("DELETE", `/v1/batch/${id}`) };
  },
  InviteMember: ({ send, fresh, orgs }) => ({
    action: "member.invited",
    run: () => send("POST", orgs("/members"), { email: `${fresh("m")}@example.com`, role: "viewer" }),
  }),
  AcceptInvite: async ({ app, made, fresh, orgs }) => {
    const { invite } = await made(orgs("/members"), { email: `${fresh("m")}@example.com`, role: "viewer" });
    return { action: "member.joined", actor: /^usr_/, run: () => app.call("/v1/members/accept", { invite }) };
  },
  CreateSession: async ({ app, owner }) => {
    const { userId } = await person(app, owner.org, "viewer");
    const { token } = await app.admin(`/v1/orgs/${owner.org}/members/${userId}/sign-in-link`, {});
    return {
      action: "session.created",
      actor: userId,
      run: () => new Browser(app.url).call("/v1/session", { token }),
    };
  },
  UpdateSession: async ({ app, owner }) => {
    const { userId } = await person(app, owner.org, "viewer");
    const browser = await signedIn(app, owner.org, userId);
    return { action: "session.moved", actor: userId, run: () => browser.call("/v1/session", {}, { method: "PATCH" }) };
  },
  DeleteSession: async ({ app, owner }) => {
    const { userId } = await person(app, owner.org, "viewer");
    const browser = await signedIn(app, owner.org, userId);
    const run = () => browser.call("/v1/session", undefined, { method: "DELETE" });
    return { action: "session.ended", actor: userId, run };
  },
  FinishSignIn: async (stage) => {
    const { browser, query, id } = await signingIn(stage);
    const run = () => browser.call("/v1/session/finish", { issuer_id: id, query });
    return { action: "session.created", also: ["member.joined"], actor: /^usr_/, run };
  },
  PutIssuer: async (stage) => {
    const { issuer } = await lyingIssuer();
    const run = () => stage.send("PUT", stage.orgs("/issuers/put"), { issuer, client_id: "c" });
    return { action: "issuer.put", run };
  },
  TestIssuer: async (stage) => {
    const { issuer } = await lyingIssuer();
    const run = () => stage.send("POST", stage.orgs("/issuers/tested/test"), { issuer, client_id: "c" });
    return { action: "issuer.tested", run };
  },
  DeleteIssuer: async ({ send, orgs }) => {
    const { issuer } = await lyingIssuer();
    await send("PUT", orgs("/issuers/deleted"), { issuer, client_id: "c" });
    return { action: "issuer.deleted", run: () => send("DELETE", orgs("/issuers/deleted")) };
  },
  VerifyDomain: ({ asOperator, orgs, fresh }) => ({
    action: "domain.verified",
    actor: "admin",
    run: () => asOperator("POST", orgs("/domains"), { domain: `${fresh("d")}.example` }),
  }),
  DeleteDomain: async ({ asOperator, orgs, fresh }) => {
    const domain = `${fresh("d")}.example`;
    await asOperator("POST", orgs("/domains"), { domain });
    return { action: "domain.deleted", actor: "admin", run: () => asOperator("DELETE", orgs(`/domains/${domain}`)) };
  },
  SendTestMail: async ({ app, owner }) => {
    const { userId } = await person(app, owner.org, "admin");
    const browser = await signedIn(app, owner.org, userId);
    return { action: "mail.tested", actor: userId, run: () => browser.call("/v1/mail/test", {}) };
  },
  CreateSignInLink: async ({ app, owner, send, orgs }) => {
    const { userId } = await person(app, owner.org, "viewer");
    return {
      action: "sign_in_link.created",
      run: () => send("POST", orgs(`/members/${userId}/sign-in-link`), {}),
    };
  },
  EndSessions: async ({ app, owner, send, orgs }) => {
    const { userId } = await person(app, owner.org, "viewer");
    return { action: "sessions.ended", run: () => send("DELETE", orgs(`/members/${userId}/sessions`)) };
  },
  UpdateMember: async ({ app, owner, send, orgs }) => {
    const { userId } = await person(app, owner.org, "viewer");
    return { action: "member.changed", run: () => send("PATCH", orgs(`/members/${userId}`), { role: "developer" }) };
  },
  RemoveMember: async ({ app, owner, send, orgs }) => {
    const { userId } = await person(app, owner.org, "viewer");
    return {
      action: "member.removed",
      also: ["key.revoked"],
      run: () => send("DELETE", orgs(`/members/${userId}`)),
    };
  },
  TransferOwnership: async ({ app, owner, asOperator, orgs }) => {
    const { userId } = await person(app, owner.org, "admin");
    return {
      action: "org.transferred",
      actor: "admin",
      run: () => asOperator("POST", orgs("/transfer"), { user_id: userId }),
    };
  },
  CreateOauthClient: ({ send }) => ({
    action: "oauth_client.created",
    run: () => send("POST", "/v1/oauth/clients", { name: "app", redirect_uris: [REDIRECT] }),
  }),
  DeleteOauthClient: async ({ app, owner, send }) => {
    const { client_id } = (await register(app, owner.key)).body;
    return { action: "oauth_client.deleted", run: () => send("DELETE", `/v1/oauth/clients/${client_id}`) };
  },
  Authorize: async ({ app, owner }) => {
    const { client_id } = (await register(app, owner.key)).body;
    return { action: "oauth.consented", run: () => consent(app, owner.key, client_id, pkce().challenge) };
  },
  ExchangeToken: async ({ app, aCode }) => {
    const fields = await aCode();
    return { action: "key.created", run: () => exchange(app, fields) };
  },
  RevokeToken: async ({ app, aCode }) => {
    const fields = await aCode();
    const { access_token } = (await exchange(app, fields)).body;
    const form = new URLSearchParams({ token: access_token, client_id: fields.client_id }).toString();
    const headers = { "content-type": "application/x-www-form-urlencoded" };
    return {
      action: "key.revoked",
      actor: fields.client_id,
      run: () => app.call("/v1/oauth/revoke", form, { headers }),
    };
  },
  DeprecateModel: async ({ asOperator, anOffering }) => {
    await anOffering();
    return {
      action: "model.deprecated",
      actor: "admin",
      run: () =>
        asOperator("POST", "/v1/models/acme/base/deprecation", {
          sunset_at: Math.floor(Date.now() / 1000) + 100 * 86_400,
        }),
    };
  },
  ReviewProvider: async ({ asOperator, anOffering }) => {
    const { provider } = await anOffering();
    const judged = { standing: "verified", note: "met them" };
    return {
      action: "provider.reviewed",
      actor: "admin",
      run: () => asOperator("POST", `/v1/supply/providers/${provider}/review`, judged),
    };
  },
  SetModelOwner: ({ asOperator, owner }) => ({
    action: "model_owner.set",
    actor: "admin",
    run: () => asOperator("PUT", "/v1/supply/owners/acme", { org_id: owner.org }),
  }),
  AddMakerKey: async ({ app, owner, send, fresh }) => {
    const name = fresh("owner");
    await app.sql`insert into model_owner ${app.sql({ owner: name, org_id: owner.org })}`;
    return {
      action: "maker_key.added",
      run: () => send("POST", `/v1/supply/owners/${name}/keys`, { public_key: PUBLIC_KEY }),
    };
  },
  DeleteMakerKey: async ({ app, owner, send, fresh }) => {
    const name = fresh("owner");
    await app.sql`insert into model_owner ${app.sql({ owner: name, org_id: owner.org })}`;
    const { id } = (await send("POST", `/v1/supply/owners/${name}/keys`, { public_key: PUBLIC_KEY })).body;
    return {
      action: "maker_key.deleted",
      run: () => send("DELETE", `/v1/supply/owners/${name}/keys/${id}`),
    };
  },
  SetShare: async ({ asOperator, anOffering }) => {
    const { provider } = await anOffering();
    return {
      action: "provider.share_set",
      actor: "admin",
      run: () => asOperator("PUT", "/v1/supply/share", { provider, percent: 80 }),
    };
  },
  RecordPayout: async ({ app, asOperator, anOffering }) => {
    const { provider, id } = await anOffering();
    const day = {
      day: "2026-01-01",
      provider,
      offering_id: id,
      model: "acme/base",
      unit: "action_step",
      share_bp: 8_000,
    };
    const served = { calls: 1, own_key_calls: 0, hedges: 0, units: 1, gross_micro: 100_000_000 };
    await app.sql`insert into served_day ${app.sql({ ...day, ...served })}`;
    return {
      action: "provider.paid",
      actor: "admin",
      run: () =>
        asOperator("POST", `/v1/supply/providers/${provider}/payouts`, { amount_usd: 1, reference: "transfer 1" }),
    };
  },
  ForceCircuit: async ({ asOperator, anOffering }) => {
    const { id } = await anOffering();
    return {
      action: "offering.circuit_forced",
      actor: "admin",
      run: () =>
        asOperator("POST", `/v1/status/offerings/${id}/circuit`, { state: "forced_open", reason: "maintenance" }),
    };
  },
  PutRobot: ({ send, fresh }) => ({
    action: "robot.saved",
    run: () => send("PUT", `/v1/robots/${fresh("robot")}`, { action_space: "base_twist_2d" }),
  }),
  DeleteRobot: async ({ send, fresh, made }) => {
    const id = fresh("robot");
    await made(`/v1/robots/${id}`, { action_space: "base_twist_2d" }, "PUT");
    return { action: "robot.deleted", run: () => send("DELETE", `/v1/robots/${id}`) };
  },
  PutPreset: ({ send, fresh }) => ({
    action: "preset.saved",
    run: () => send("PUT", `/v1/presets/${fresh("preset")}`, { horizon: 2 }),
  }),
  DeletePreset: async ({ send, made, fresh }) => {
    const name = fresh("preset");
    await made(`/v1/presets/${name}`, { horizon: 2 }, "PUT");
    return { action: "preset.deleted", run: () => send("DELETE", `/v1/presets/${name}`) };
  },
  CreateSuite: ({ send }) => ({
    action: "suite.created",
    run: () => send("POST", "/v1/suites", { title: "x", tasks: [{ scenario: "base-nav", episodes: 1 }] }),
  }),
  ArchiveSuite: async ({ send, made }) => {
    const { id } = await made("/v1/suites", { title: "x", tasks: [{ scenario: "base-nav", episodes: 1 }] });
    return { action: "suite.archived", run: () => send("DELETE", `/v1/suites/${id}`) };
  },
  StopRobots: ({ send, fresh }) => ({
    action: "robot.stopped",
    run: () => send("POST", "/v1/robots/stop", { robot_id: fresh("robot"), reason: "test" }),
  }),
  ReleaseRobots: async ({ send, aStop }) => {
    const { id } = await aStop();
    return { action: "robot.released", run: () => send("POST", "/v1/robots/release", { stop_id: id }) };
  },
  UpdateRobotStop: async ({ send, aStop }) => {
    const { id } = await aStop();
    const run = () => send("PATCH", `/v1/robots/stops/${id}`, { reason: "a person is near" });
    return { action: "robot.stop_explained", run };
  },
  ArmRobot: async ({ send, aKey, fresh }) => {
    const { id } = await aKey();
    const arming = { robot_id: fresh("robot"), key_id: id, models: ["acme/base"], max_seconds: 1, expires_in: 60 };
    return { action: "robot.armed", run: () => send("POST", "/v1/robots/arm", arming) };
  },
  DisarmRobot: async ({ send, made, aKey, fresh }) => {
    const agent = { key_id: (await aKey()).id, models: ["acme/base"] };
    const { id } = await made("/v1/robots/arm", { robot_id: fresh("robot"), ...agent, max_seconds: 1, expires_in: 60 });
    return { action: "robot.disarmed", run: () => send("POST", "/v1/robots/disarm", { arming_id: id }) };
  },
  RegisterProvider: ({ send, fresh }) => ({
    action: "provider.registered",
    run: () => send("POST", "/v1/supply/providers", { name: fresh("provider") }),
  }),
  UpdateProvider: async ({ send, anOffering }) => {
    const { provider } = await anOffering();
    return {
      action: "provider.changed",
      run: () => send("PATCH", `/v1/supply/providers/${provider}`, { display_name: "Other" }),
    };
  },
  DeclareModel: async ({ model, send, anOffering }) => {
    const { provider } = await anOffering();
    const body = { ...ACT_DECLARATION, model: "acme/base", endpoint: model.endpoint };
    return { action: "offering.declared", run: () => send("POST", `/v1/supply/providers/${provider}/models`, body) };
  },
  VerifyOffering: async ({ send, anOffering }) => {
    const { id } = await anOffering();
    return { action: "offering.verified", run: () => send("POST", `/v1/supply/offerings/${id}/verify`, {}) };
  },
  UpdateOffering: async ({ send, anOffering }) => {
    const { id } = await anOffering();
    return { action: "offering.changed", run: () => send("PATCH", `/v1/supply/offerings/${id}`, { scaledown_s: 5 }) };
  },
  PauseOffering: async ({ send, anOffering }) => {
    const { id } = await anOffering();
    await send("POST", `/v1/supply/offerings/${id}/verify`, {});
    return { action: "offering.paused", run: () => send("POST", `/v1/supply/offerings/${id}/pause`, {}) };
  },
  ResumeOffering: async ({ send, anOffering }) => {
    const { id } = await anOffering();
    await send("POST", `/v1/supply/offerings/${id}/verify`, {});
    await send("POST", `/v1/supply/offerings/${id}/pause`, {});
    return { action: "offering.resumed", run: () => send("POST", `/v1/supply/offerings/${id}/resume`, {}) };
  },
  DeleteOffering: async ({ send, anOffering }) => {
    const { id } = await anOffering();
    return { action: "offering.removed", run: () => send("DELETE", `/v1/supply/offerings/${id}?force=true`) };
  },
  CreateWebhook: ({ app, send }) => ({
    action: "webhook.created",
    run: () => send("POST", "/v1/webhooks", { url: `${app.url}/`, events: ["*"] }),
  }),
  UpdateWebhook: async ({ send, aHook }) => {
    const { id } = await aHook();
    return { action: "webhook.changed", run: () => send("PATCH", `/v1/webhooks/${id}`, { description: "other" }) };
  },
  RotateWebhookSecret: async ({ send, aHook }) => {
    const { id } = await aHook();
    return { action: "webhook.secret_rotated", run: () => send("POST", `/v1/webhooks/${id}/rotate`, {}) };
  },
  DeleteWebhook: async ({ send, aHook }) => {
    const { id } = await aHook();
    return { action: "webhook.deleted", run: () => send("DELETE", `/v1/webhooks/${id}`) };
  },
  TestWebhook: async ({ send, aHook }) => {
    const { id } = await aHook();
    return { action: "webhook.tested", run: () => send("POST", `/v1/webhooks/${id}/test`, {}) };
  },
  RedeliverWebhook: async ({ send, aHook }) => {
    const { id } = await aHook();
    const [delivery] = (await send("GET", `/v1/webhooks/${id}/deliveries`)).body.data;
    return {
      action: "webhook.redelivered",
      run: () => send("POST", `/v1/webhooks/${id}/deliveries/${delivery.id}/redeliver`, {}),
    };
  },
  CreateWorkspace: ({ send, fresh, orgs }) => ({
    action: "workspace.created",
    run: () => send("POST", orgs("/workspaces"), { name: fresh("lab") }),
  }),
  UpdateWorkspace: async ({ send, orgs, aWorkspace }) => {
    const { id } = await aWorkspace();
    return { action: "workspace.updated", run: () => send("PATCH", orgs(`/workspaces/${id}`), { name: "other" }) };
  },
  DeleteWorkspace: async ({ send, orgs, aWorkspace }) => {
    const { id } = await aWorkspace();
    return { action: "workspace.deleted", run: () => send("DELETE", orgs(`/workspaces/${id}`)) };
  },
  CreateUser: ({ send, fresh }) => ({
    action: "member.provisioned",
    run: () => send("POST", "/v1/scim/v2/Users", { schemas: [USER], userName: `${fresh("u")}@example.com` }),
  }),
  ReplaceUser: async ({ send, fresh, aUser }) => {
    const id = await aUser();
    const body = { schemas: [USER], userName: `${fresh("u")}@example.com` };
    return { action: "member.updated", run: () => send("PUT", `/v1/scim/v2/Users/${id}`, body) };
  },
  PatchUser: async ({ send, aUser }) => {
    const id = await aUser();
    return {
      action: "member.updated",
      run: () => send("PATCH", `/v1/scim/v2/Users/${id}`, patchOf("displayName", "Ada")),
    };
  },
  DeleteUser: async ({ send, aUser }) => {
    const id = await aUser();
    return { action: "member.removed", run: () => send("DELETE", `/v1/scim/v2/Users/${id}`) };
  },
  CreateGroup: ({ send, fresh }) => ({
    action: "group.created",
    run: () => send("POST", "/v1/scim/v2/Groups", { displayName: fresh("group") }),
  }),
  ReplaceGroup: async ({ send, fresh, aGroup }) => {
    const id = await aGroup();
    return {
      action: "group.pushed",
      run: () => send("PUT", `/v1/scim/v2/Groups/${id}`, { displayName: fresh("group") }),
    };
  },
  PatchGroup: async ({ send, fresh, aGroup }) => {
    const id = await aGroup();
    return {
      action: "group.changed",
      run: () => send("PATCH", `/v1/scim/v2/Groups/${id}`, patchOf("displayName", fresh("group"))),
    };
  },
  DeleteGroup: async ({ send, aGroup }) => {
    const id = await aGroup();
    return { action: "group.removed", run: () => send("DELETE", `/v1/scim/v2/Groups/${id}`) };
  },
  MapGroup: async ({ send, aGroup }) => {
    const id = await aGroup();
    return { action: "group.mapped", run: () => send("POST", `/v1/scim/v2/Groups/${id}/map`, { role: "viewer" }) };
  },
};
