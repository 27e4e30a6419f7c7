/**
 * Whatever changes something for an organisation is on record: every RPC of the schema that may change anything is either made here,
 * and leaves exactly one record that names who acted, or stands among those that are on record as something else. A new one fails
 * here until it is looked at.
 */
import { type DescMethod, getOption } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel as Level } from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { http } from "../../../gen/google/api/annotations_pb.ts";
import { SERVICES } from "../../../src/edge/services.ts";
import { ACT_DECLARATION, ADMIN_TOKEN, type Answer, type App, type Caller, openApp } from "../../support/app.ts";
import { person } from "../../support/members.ts";
import { type Model, startModel } from "../../support/model.ts";
import { consent, exchange, honest, pkce, REDIRECT, register } from "../../support/oauth.ts";
import { type OtlpReceiver, startOtlpReceiver } from "../../support/otlp-receiver.ts";
import { StripeServer } from "../../support/stripe.ts";

const METHODS: readonly DescMethod[] = SERVICES.flatMap((service): readonly DescMethod[] => service.methods);

/** Work, not acts: calls stand in the usage list and the logs, jobs in their list, a server's streams in the list of its provider. */
const ON_RECORD_AS_WORK = new Set([
  "Act",
  "ActStream",
  "Predict",
  "PredictStream",
  "Ground",
  "Evaluate",
  "CreateBatch",
  "ClaimEvaluation",
  "RenewClaim",
  "ReportEpisode",
  "FinishEvaluation",
  "Serve",
]);

const mayChange = (method: DescMethod): boolean =>
  method.idempotency !== Level.NO_SIDE_EFFECTS && getOption(method, http).pattern.case !== "get";

let app: App;
let model: Model;
let receiver: OtlpReceiver;
let stripe: StripeServer;
let owner: Caller;
let keyId: string;

beforeAll(async () => {
  stripe = await StripeServer.start();
  [app, model, receiver] = await Promise.all([
    openApp({ stripe: stripe.settings, publicUrl: "https://api.test" }),
    startModel(),
    startOtlpReceiver(),
  ]);
  await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  owner = await app.caller(10);
  keyId = (await send("GET", "/v1/key")).body.id;
}, 60_000);
afterAll(async () => {
  await app.close();
  await Promise.all([model.close(), receiver.close(), stripe.close()]);
});

const send = (method: string, path: string, body?: object): Promise<Answer> =>
  app.call(path, body, { method, key: owner.key });
const asOperator = (method: string, path: string, body: object): Promise<Answer> =>
  app.call(path, body, { method, admin: ADMIN_TOKEN });
async function made(path: string, body: object, method = "POST"): Promise<Answer["body"]> {
  const { status, text, body: answer } = await send(method, path, body);
  if (status >= 300) throw new Error(`${path} answered ${status}: ${text}`);
  return answer;
}

let born = 0;
const fresh = (word: string): string => `${word}-${++born}`;
const orgs = (rest: string): string => `/v1/orgs/${owner.org}${rest}`;
const aKey = () => made(orgs("/keys"), { role: "viewer" });
const aWorkspace = () => made(orgs("/workspaces"), { name: fresh("lab") });
const aHook = () => made("/v1/webhooks", { url: `${app.url}/`, events: ["*"] });
const aTarget = () => made("/v1/broadcast", { name: "t", endpoint: receiver.url, protocol: "http/json" });
const aCredential = () => made("/v1/credentials/acme", { secret: fresh("sk-a-secret-of-theirs") }, "PUT");
const aStop = () => made("/v1/robots/stop", { robot_id: fresh("robot"), reason: "test" });
const aBatch = () =>
  made("/v1/batch", {
    contract: "act",
    requests: [{ model: "acme/base", action_space: "base_twist_2d", observations: [{}] }],
  });
const aPayment = async () => (await made("/v1/billing/topup", { amount_usd: 5 })).payment_id;
const aUser = async () =>
  (await made("/v1/scim/v2/Users", { schemas: [USER], userName: `${fresh("u")}@example.com` })).id;
const aGroup = async () => (await made("/v1/scim/v2/Groups", { displayName: fresh("group") })).id;
const anOffering = async () => {
  const provider = fresh("provider");
  await made("/v1/supply/providers", { name: provider });
  const body = { ...ACT_DECLARATION, model: "acme/base", endpoint: model.endpoint };
  return { provider, id: (await made(`/v1/supply/providers/${provider}/models`, body)).id };
};
const aCode = async () => {
  const client = (await register(app, owner.key)).body.client_id;
  const { verifier, challenge } = pkce();
  const { code } = (await consent(app, owner.key, client, challenge)).body;
  return honest(client, code, verifier);
};

const USER = "urn:ietf:params:scim:schemas:core:2.0:User";
const CHANGE = "urn:ietf:params:scim:api:messages:2.0:PatchOp";
const patchOf = (path: string, value: unknown) => ({
  schemas: [CHANGE],
  Operations: [{ op: "replace", path, value }],
});

/** What was done, by whom, and the call itself, once everything that it needs is there. */
interface Act {
  readonly action: string;
  /** What goes with it. */
  readonly also?: readonly string[];
  /** The calling key when absent. */
  readonly actor?: string | RegExp;
  /** Where it isn't the owner's organisation. */
  readonly orgOf?: (answer: Answer) => string;
  readonly run: () => Promise<Answer | number>;
}

const ACTS: Readonly<Record<string, () => Act | Promise<Act>>> = {
  CreateOrg: () => ({
    action: "org.created",
    actor: "admin",
    orgOf: ({ body }) => body.id,
    run: () => asOperator("POST", "/v1/orgs", { name: "another" }),
  }),
  CreateKey: () => ({ action: "key.created", run: () => send("POST", orgs("/keys"), {}) }),
  UpdateKey: async () => {
    const { id } = await aKey();
    return { action: "key.updated", run: () => send("PATCH", orgs(`/keys/${id}`), { name: "other" }) };
  },
  DeleteKey: async () => {
    const { id } = await aKey();
    return { action: "key.revoked", run: () => send("DELETE", orgs(`/keys/${id}`)) };
  },
  RotateKey: async () => {
    const { id } = await aKey();
    return { action: "key.rotated", run: () => send("POST", orgs(`/keys/${id}/rotate`), {}) };
  },
  AddCredits: () => ({
    action: "credits.added",
    actor: "admin",
    run: () => asOperator("POST", orgs("/credits"), { amount_usd: 1 }),
  }),
  SetCommitment: () => ({
    action: "commitment.set",
    actor: "admin",
    run: () => asOperator("POST", orgs("/commitment"), { min_monthly_usd: 1 }),
  }),
  UpdateSettings: () => ({
    action: "settings.updated",
    run: () => send("PATCH", orgs("/settings"), { retention_days: 7 }),
  }),
  TopUp: () => ({ action: "payment.requested", run: () => send("POST", "/v1/billing/topup", { amount_usd: 5 }) }),
  ReconcilePayment: async () => {
    const id = await aPayment();
    stripe.pay(id);
    return { action: "payment.succeeded", run: () => send("POST", `/v1/billing/payments/${id}/reconcile`, {}) };
  },
  TakeProcessorMessage: async () => {
    const id = await aPayment();
    return { action: "payment.succeeded", actor: /./, run: () => stripe.deliver(app.url, stripe.pay(id)) };
  },
  CreateBroadcast: () => ({
    action: "broadcast.created",
    run: () => send("POST", "/v1/broadcast", { name: "t", endpoint: receiver.url, protocol: "http/json" }),
  }),
  UpdateBroadcast: async () => {
    const { id } = await aTarget();
    return { action: "broadcast.changed", run: () => send("PATCH", `/v1/broadcast/${id}`, { name: "other" }) };
  },
  DeleteBroadcast: async () => {
    const { id } = await aTarget();
    return { action: "broadcast.deleted", run: () => send("DELETE", `/v1/broadcast/${id}`) };
  },
  PutCredential: () => ({
    action: "credential.stored",
    run: () => send("PUT", "/v1/credentials/acme", { secret: "sk-a-secret-of-theirs" }),
  }),
  DeleteCredential: async () => {
    await aCredential();
    return { action: "credential.deleted", run: () => send("DELETE", "/v1/credentials/acme") };
  },
  VerifyCredential: async () => {
    await aCredential();
    return { action: "credential.verified", run: () => send("POST", "/v1/credentials/acme/verify", {}) };
  },
  CancelEvaluation: async () => {
    const asked = { policy_endpoint: "acme/base", scenario: "base-nav", action_space: "base_twist_2d", episodes: 1 };
    const { id } = await made("/v1/evaluate", asked);
    return { action: "evaluation.cancelled", run: () => send("DELETE", `/v1/evaluate/${id}`) };
  },
  CancelBatch: async () => {
    const { id } = await aBatch();
    return { action: "batch.cancelled", run: () => send("DELETE", `/v1/batch/${id}`) };
  },
  InviteMember: () => ({
    action: "member.invited",
    run: () => send("POST", orgs("/members"), { email: `${fresh("m")}@example.com`, role: "viewer" }),
  }),
  AcceptInvite: async () => {
    const { invite } = await made(orgs("/members"), { email: `${fresh("m")}@example.com`, role: "viewer" });
    return { action: "member.joined", actor: /^usr_/, run: () => app.call("/v1/members/accept", { invite }) };
  },
  UpdateMember: async () => {
    const { userId } = await person(app, owner.org, "viewer");
    return { action: "member.changed", run: () => send("PATCH", orgs(`/members/${userId}`), { role: "developer" }) };
  },
  RemoveMember: async () => {
    const { userId } = await person(app, owner.org, "viewer");
    return {
      action: "member.removed",
      also: ["key.revoked"],
      run: () => send("DELETE", orgs(`/members/${userId}`)),
    };
  },
  TransferOwnership: async () => {
    const { userId } = await person(app, owner.org, "admin");
    return {
      action: "org.transferred",
      actor: "admin",
      run: () => asOperator("POST", orgs("/transfer"), { user_id: userId }),
    };
  },
  CreateOauthClient: () => ({
    action: "oauth_client.created",
    run: () => send("POST", "/v1/oauth/clients", { name: "app", redirect_uris: [REDIRECT] }),
  }),
  DeleteOauthClient: async () => {
    const { client_id } = (await register(app, owner.key)).body;
    return { action: "oauth_client.deleted", run: () => send("DELETE", `/v1/oauth/clients/${client_id}`) };
  },
  Authorize: async () => {
    const { client_id } = (await register(app, owner.key)).body;
    return { action: "oauth.consented", run: () => consent(app, owner.key, client_id, pkce().challenge) };
  },
  ExchangeToken: async () => {
    const fields = await aCode();
    return { action: "key.created", run: () => exchange(app, fields) };
  },
  RevokeToken: async () => {
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
  DeprecateModel: async () => {
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
  ForceCircuit: async () => {
    const { id } = await anOffering();
    return {
      action: "offering.circuit_forced",
      actor: "admin",
      run: () =>
        asOperator("POST", `/v1/status/offerings/${id}/circuit`, { state: "forced_open", reason: "maintenance" }),
    };
  },
  PutPreset: () => ({
    action: "preset.saved",
    run: () => send("PUT", `/v1/presets/${fresh("preset")}`, { horizon: 2 }),
  }),
  DeletePreset: async () => {
    const name = fresh("preset");
    await made(`/v1/presets/${name}`, { horizon: 2 }, "PUT");
    return { action: "preset.deleted", run: () => send("DELETE", `/v1/presets/${name}`) };
  },
  StopRobots: () => ({
    action: "robot.stopped",
    run: () => send("POST", "/v1/robots/stop", { robot_id: fresh("robot"), reason: "test" }),
  }),
  ReleaseRobots: async () => {
    const { id } = await aStop();
    return { action: "robot.released", run: () => send("POST", "/v1/robots/release", { stop_id: id }) };
  },
  RegisterProvider: () => ({
    action: "provider.registered",
    run: () => send("POST", "/v1/supply/providers", { name: fresh("provider") }),
  }),
  UpdateProvider: async () => {
    const { provider } = await anOffering();
    return {
      action: "provider.changed",
      run: () => send("PATCH", `/v1/supply/providers/${provider}`, { display_name: "Other" }),
    };
  },
  DeclareModel: async () => {
    const { provider } = await anOffering();
    const body = { ...ACT_DECLARATION, model: "acme/base", endpoint: model.endpoint };
    return { action: "offering.declared", run: () => send("POST", `/v1/supply/providers/${provider}/models`, body) };
  },
  VerifyOffering: async () => {
    const { id } = await anOffering();
    return { action: "offering.verified", run: () => send("POST", `/v1/supply/offerings/${id}/verify`, {}) };
  },
  UpdateOffering: async () => {
    const { id } = await anOffering();
    return { action: "offering.changed", run: () => send("PATCH", `/v1/supply/offerings/${id}`, { scaledown_s: 5 }) };
  },
  DeleteOffering: async () => {
    const { id } = await anOffering();
    return { action: "offering.removed", run: () => send("DELETE", `/v1/supply/offerings/${id}?force=true`) };
  },
  CreateWebhook: () => ({
    action: "webhook.created",
    run: () => send("POST", "/v1/webhooks", { url: `${app.url}/`, events: ["*"] }),
  }),
  UpdateWebhook: async () => {
    const { id } = await aHook();
    return { action: "webhook.changed", run: () => send("PATCH", `/v1/webhooks/${id}`, { description: "other" }) };
  },
  RotateWebhookSecret: async () => {
    const { id } = await aHook();
    return { action: "webhook.secret_rotated", run: () => send("POST", `/v1/webhooks/${id}/rotate`, {}) };
  },
  DeleteWebhook: async () => {
    const { id } = await aHook();
    return { action: "webhook.deleted", run: () => send("DELETE", `/v1/webhooks/${id}`) };
  },
  TestWebhook: async () => {
    const { id } = await aHook();
    return { action: "webhook.tested", run: () => send("POST", `/v1/webhooks/${id}/test`, {}) };
  },
  RedeliverWebhook: async () => {
    const { id } = await aHook();
    const [delivery] = (await send("GET", `/v1/webhooks/${id}/deliveries`)).body.data;
    return {
      action: "webhook.redelivered",
      run: () => send("POST", `/v1/webhooks/${id}/deliveries/${delivery.id}/redeliver`, {}),
    };
  },
  CreateWorkspace: () => ({
    action: "workspace.created",
    run: () => send("POST", orgs("/workspaces"), { name: fresh("lab") }),
  }),
  UpdateWorkspace: async () => {
    const { id } = await aWorkspace();
    return { action: "workspace.updated", run: () => send("PATCH", orgs(`/workspaces/${id}`), { name: "other" }) };
  },
  DeleteWorkspace: async () => {
    const { id } = await aWorkspace();
    return { action: "workspace.deleted", run: () => send("DELETE", orgs(`/workspaces/${id}`)) };
  },
  CreateUser: () => ({
    action: "member.provisioned",
    run: () => send("POST", "/v1/scim/v2/Users", { schemas: [USER], userName: `${fresh("u")}@example.com` }),
  }),
  ReplaceUser: async () => {
    const id = await aUser();
    const body = { schemas: [USER], userName: `${fresh("u")}@example.com` };
    return { action: "member.updated", run: () => send("PUT", `/v1/scim/v2/Users/${id}`, body) };
  },
  PatchUser: async () => {
    const id = await aUser();
    return {
      action: "member.updated",
      run: () => send("PATCH", `/v1/scim/v2/Users/${id}`, patchOf("displayName", "Ada")),
    };
  },
  DeleteUser: async () => {
    const id = await aUser();
    return { action: "member.removed", run: () => send("DELETE", `/v1/scim/v2/Users/${id}`) };
  },
  CreateGroup: () => ({
    action: "group.created",
    run: () => send("POST", "/v1/scim/v2/Groups", { displayName: fresh("group") }),
  }),
  ReplaceGroup: async () => {
    const id = await aGroup();
    return {
      action: "group.pushed",
      run: () => send("PUT", `/v1/scim/v2/Groups/${id}`, { displayName: fresh("group") }),
    };
  },
  PatchGroup: async () => {
    const id = await aGroup();
    return {
      action: "group.changed",
      run: () => send("PATCH", `/v1/scim/v2/Groups/${id}`, patchOf("displayName", fresh("group"))),
    };
  },
  DeleteGroup: async () => {
    const id = await aGroup();
    return { action: "group.removed", run: () => send("DELETE", `/v1/scim/v2/Groups/${id}`) };
  },
  MapGroup: async () => {
    const id = await aGroup();
    return { action: "group.mapped", run: () => send("POST", `/v1/scim/v2/Groups/${id}/map`, { role: "viewer" }) };
  },
};

interface Row {
  readonly action: string;
  readonly actor: string;
  readonly seq: number;
}

const recordsOf = async (org: string): Promise<Row[]> =>
  (await app.call(`/v1/audit?org_id=${org}&limit=500`, undefined, { admin: ADMIN_TOKEN })).body.data;

describe("every RPC that may change something", () => {
  it("is known here", () => {
    const changing = METHODS.filter(mayChange).map(({ name }) => name);
    expect(changing.filter((name) => !ON_RECORD_AS_WORK.has(name)).sort()).toEqual(Object.keys(ACTS).sort());
  });

  it.each(Object.entries(ACTS))("%s leaves exactly one record, which names who acted", async (_name, prepare) => {
    const { action, also = [], actor = keyId, orgOf, run } = await prepare();
    const before = (await recordsOf(owner.org))[0]?.seq ?? 0;
    const answer = await run();
    const status = typeof answer === "number" ? answer : answer.status;
    expect(status, typeof answer === "number" ? "" : answer.text).toBeLessThan(300);
    const other = orgOf && typeof answer !== "number" ? orgOf(answer) : undefined;
    const all = other === undefined ? await recordsOf(owner.org) : await recordsOf(other);
    const left = all.filter(({ seq }) => other !== undefined || seq > before);
    expect(left.map((row) => row.action)).toEqual([action, ...also]);
    if (actor instanceof RegExp) expect(left[0]?.actor).toMatch(actor);
    else expect(left[0]?.actor).toBe(actor);
  });

  it("leaves a chain that holds", async () => {
    const { body } = await app.call(`/v1/audit/verify?org_id=${owner.org}`, undefined, { admin: ADMIN_TOKEN });
    expect(body).toEqual({ org_id: owner.org, intact: true, faults: [] });
  });
});
