/**
 * Every example of the OpenAPI document, sent as it stands to a gateway as `npm start` opens it: with the reference provider. Only names that
 * each caller has of its own are put in, and addresses of servers that the caller runs.
 */

import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { SERVICES } from "../../../src/app/services.ts";
import { type RestRoute, routesOf } from "../../../src/edge/transports/rest/routes.ts";
import { UNSUBSCRIBE_CONTEXT } from "../../../src/store/events/mail.ts";
import { importCatalog } from "../../../src/store/supply/catalog.ts";
import { createVault } from "../../../src/vault.ts";
import { ADMIN_TOKEN, type App, type Caller, openApp } from "../../support/app.ts";
import { attend } from "../../support/attending.ts";
import { type Belongings, belongings } from "../../support/belongings.ts";
import { Browser, OWN_PAGE, signedIn } from "../../support/browser.ts";
import { type FreshDatabase, freshDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { EMAIL, type LyingIssuer, startLyingIssuer } from "../../support/identity-provider.ts";
import { person } from "../../support/members.ts";
import { type OtlpReceiver, startOtlpReceiver } from "../../support/otlp-receiver.ts";

let app: App;
let database: FreshDatabase;
let receiver: OtlpReceiver;
let liar: LyingIssuer;
// biome-ignore lint/suspicious/noExplicitAny: the test says what is inside
let document: any;

beforeAll(async () => {
  database = await freshDatabase();
  await importCatalog(database.sql, join(import.meta.dirname, "../../../data"));
  app = await openApp({ database, referenceSupply: true, publicSignup: true, roles: new Set(["api", "worker"]) });
  receiver = await startOtlpReceiver();
  liar = await startLyingIssuer();
  ({ body: document } = await app.call("/openapi.json"));
}, 60_000);
afterAll(async () => {
  await receiver.close();
  await liar.close();
  await app.close();
  await database.close();
});

const BODIES = routesOf(SERVICES).filter(({ body }) => body !== undefined);
const nameOf = ({ method }: RestRoute): string => method.name;
const exampleOf = ({ template, verb, dialect }: RestRoute): object =>
  document.paths[template][verb.toLowerCase()].requestBody.content[dialect.contentType].example;
const routeOf = (name: string): RestRoute => BODIES.find((route) => nameOf(route) === name)!;

/** What a call needs that came before it, in names of paths and bodies. */
type Before = (caller: Caller, own: Belongings) => Promise<Record<string, string>>;

const asked = async (name: string, { key }: Caller, own: Record<string, string> = {}, more: object = {}) => {
  const route = routeOf(name);
  const { status, body, text } = await send(route, key, own, { ...exampleOf(route), ...more });
  if (status >= 300) throw new Error(`${name} answered ${status}: ${text}`);
  return body;
};
const consented: Before = async (caller) => {
  const { client_id } = await asked("CreateOauthClient", caller);
  const { code } = await asked("Authorize", caller, { client_id });
  return { client_id, code };
};
/** The same for a benchmark that needs a harness of its own. */
const EXTERNAL = {
  runner: "external",
  scenario: "1x/1x-world-model-challenge",
  policy_endpoint: "ws://robot.lan:8000",
  action_space: null,
};
const claimed: Before = async (caller) => {
  const { id } = await asked("Evaluate", caller, {}, EXTERNAL);
  await asked("ClaimEvaluation", caller);
  return { job_id: id };
};
const withStatus = async (
  status: "live" | "paused",
  { offering_id: id }: Belongings,
): Promise<Record<string, string>> => {
  await app.sql`update offering set status = ${status} where id = ${id!}`;
  return {};
};
/** The example's e-mail domain is the caller's, and signed in by an issuer. */
const atIssuer: Before = async (caller) => {
  await app.sql`delete from email_domain where domain = ${"acme.example"}`;
  await app.admin(`/v1/orgs/${caller.org}/domains`, { domain: "acme.example" });
  await asked("PutIssuer", caller, { org_id: caller.org, name: "sso", issuer: liar.issuer });
  return {};
};
const BEFORE: Readonly<Record<string, Before>> = {
  Authorize: async (caller) => ({ client_id: (await asked("CreateOauthClient", caller)).client_id }),
  ExchangeToken: consented,
  RevokeToken: async (caller) => {
    const names = await consented(caller, {});
    return { ...names, token: (await asked("ExchangeToken", caller, names)).access_token };
  },
  AcceptInvite: async (caller) => ({ invite: (await asked("InviteMember", caller, { org_id: caller.org })).invite }),
  CreateSession: async ({ org }) => {
    const { userId } = await person(app, org, "viewer");
    const { token } = await app.admin(`/v1/orgs/${org}/members/${userId}/sign-in-link`, {});
    return { link: token, cookie: "none" };
  },
  UpdateSession: async ({ org }) => {
    const { userId } = await person(app, org, "viewer");
    return { cookie: (await signedIn(app, org, userId)).cookie };
  },
  UpdateMailPreferences: async ({ org }) => {
    const { userId } = await person(app, org, "viewer");
    return { cookie: (await signedIn(app, org, userId)).cookie };
  },
  UnsubscribeFromMail: async ({ org }, { user_id: memberId }) => {
    const person = JSON.stringify({ orgId: org, memberId });
    return { token: createVault(Buffer.alloc(32, 7)).seal(person, UNSUBSCRIBE_CONTEXT).toString("base64url") };
  },
  BeginSignIn: async (caller, own) => ({ ...(await atIssuer(caller, own)), cookie: "none" }),
  PutIssuer: async (caller) => {
    await app.sql`delete from email_domain where domain = ${"acme.example"}`;
    await app.admin(`/v1/orgs/${caller.org}/domains`, { domain: "acme.example" });
    return { issuer: liar.issuer };
  },
  FinishSignIn: async (caller, own) => {
    await atIssuer(caller, own);
    const browser = new Browser(app.url);
    const { body } = await browser.call("/v1/session/begin", { email: EMAIL });
    const asked = new URL(body.authorization_url).searchParams;
    liar.says({ nonce: asked.get("nonce") ?? "", client: "limber" });
    const issuer_id = asked.get("redirect_uri")?.split("/").at(-1) ?? "";
    return { issuer_id, query: `code=c&state=${asked.get("state")}`, cookie: browser.cookie };
  },
  VerifyDomain: async () => {
    await app.sql`delete from email_domain where domain = ${"acme.example"}`;
    return {};
  },
  CreatePublication: async ({ key }) => {
    const evaluation = { policy_endpoint: "reference/potential-nav", scenario: "base-nav", episodes: 1 };
    const { body } = await app.call("/v1/evaluate", evaluation, { key });
    await eventually(async () => {
      const now = await app.call(`/v1/evaluate/${body.id}`, undefined, { key });
      expect(now.body.status, now.text).toBe("completed");
    });
    return { job_id: body.id };
  },
  RenewClaim: claimed,
  ReportEpisode: claimed,
  FinishEvaluation: claimed,
  CreateBroadcast: async () => ({ endpoint: receiver.url }),
  PauseOffering: async (_, own) => withStatus("live", own),
  ResumeOffering: async (_, own) => withStatus("paused", own),
  // There is something to pay out.
  RecordPayout: async (_caller, { provider = "" }) => {
    const line = {
      day: "2026-01-01",
      provider,
      offering_id: "off",
      model: "acme/arm",
      unit: "action_step",
      share_bp: 8_000,
    };
    const served = { calls: 1, own_key_calls: 0, hedges: 0, units: 1, gross_micro: 1_000_000_000 };
    await app.sql`insert into served_day ${app.sql({ ...line, ...served })}`;
    return {};
  },
  // The robot attends, and another's key has armed it for the caller's.
  RunPolicy: async (caller) => {
    const { id } = (await app.call("/v1/key", undefined, { key: caller.key })).body;
    const operator = await app.key(caller.org, { role: "operator" });
    const arming = { robot_id: "base-7", key_id: id, models: ["reference/potential-nav"] };
    await app.call("/v1/robots/arm", { ...arming, max_seconds: 60, expires_in: 60 }, { key: operator });
    const robot = attend(app, caller.key, { robotId: "base-7", actionSpace: "base_twist_2d" });
    await eventually(() => expect(robot.heard).toHaveLength(1));
    return {};
  },
  DeprecateModel: async () => ({ owner: "reference", name: "ik-reach" }),
  TransferOwnership: async (caller, own) => {
    await app.call(
      `/v1/orgs/${caller.org}/members/${own.user_id}`,
      { role: "admin" },
      { key: caller.key, method: "PATCH" },
    );
    return {};
  },
};

/** Names in an example that stand for the caller's own, by how they begin. */
const OWN: Readonly<Record<string, string>> = {
  org: "org_id",
  usr: "user_id",
  stop: "stop_id",
  job: "job_id",
  iss: "issuer_id",
  arm: "arming_id",
  oac: "client_id",
  code: "code",
  lmb_inv: "invite",
  lmb_in: "link",
  lmb_sk: "token",
};

function filled(example: unknown, own: Record<string, string>): unknown {
  return JSON.parse(JSON.stringify(example), (key, value) => {
    if (key === "query" && own.query !== undefined) return own.query;
    if (key === "issuer" && own.issuer !== undefined) return own.issuer;
    if (key === "endpoint" && own.endpoint !== undefined) return own.endpoint;
    const [, prefix = ""] = /^([a-z_]+)_01JABC[0-9A-Z]+$/.exec(typeof value === "string" ? value : "") ?? [];
    return own[OWN[prefix] ?? ""] ?? value;
  });
}

function send(route: RestRoute, key: string, own: Record<string, string>, example: object = exampleOf(route)) {
  const path = route.template.replaceAll(/\{(\w+)\}/g, (_, name) => own[name] ?? name);
  const headers = { "content-type": route.dialect.contentType, "x-service-admin-token": ADMIN_TOKEN };
  const { cookie } = own;
  const as =
    cookie === undefined
      ? { key, headers }
      : { headers: { "content-type": headers["content-type"], ...OWN_PAGE, cookie } };
  return app.call(path, filled(example, own) as object, { method: route.verb, ...as });
}

/** What a gateway without a payment processor or a mail server says. */
const WITHOUT_STRIPE = new Set([
  "TopUp",
  "UpdateAutoTopUp",
  "SetUpPaymentMethod",
  "TakeProcessorMessage",
  "SendTestMail",
]);

it.each(BODIES.map((route, i) => [nameOf(route), i, route] as const))(
  "%s returns the documented response",
  async (name, i, route) => {
    const caller = await app.caller(50);
    const own = await belongings(app, caller, `e${i}`);
    const given = { ...own, ...(await BEFORE[name]?.(caller, own)) };
    const { status, text } = await send(route, caller.key, given);
    expect([status, text.slice(0, 600)]).toEqual([WITHOUT_STRIPE.has(name) ? 501 : route.status, expect.any(String)]);
  },
  30_000,
);
