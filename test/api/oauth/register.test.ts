/** Applications that register themselves (RFC 7591), the page of consent, and where both are found (RFC 8414, RFC 9728). */
import { createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { beforeAll, describe, expect, it } from "vitest";
import { OauthService } from "../../../gen/limber/v1/oauth_service_pb.ts";
import { pruneCodes } from "../../../src/store/account/sessions.ts";
import type { Answer, App, Caller } from "../../support/app.ts";
import { type Browser, signedIn } from "../../support/browser.ts";
import { bearer, refusalIn } from "../../support/clients.ts";
import { type Person, person } from "../../support/members.ts";
import { exchange, honest, pkce, REDIRECT } from "../../support/oauth.ts";
import { ownGateway } from "../../support/world.ts";

let app: App;
let caller: Caller;
let developer: Person;
let browser: Browser;

beforeAll(async () => {
  app = await ownGateway();
  caller = await app.caller(5);
  developer = await person(app, caller.org, "developer");
  browser = await signedIn(app, caller.org, developer.userId);
}, 60_000);

const register = (more: object = {}): Promise<Answer> =>
  app.call("/v1/oauth/register", {
    client_name: "An agent",
    redirect_uris: [REDIRECT],
    token_endpoint_auth_method: "none",
    logo_uri: "https://app.example.com/logo.png",
    ...more,
  });
const registered = async (more: object = {}): Promise<string> => (await register(more)).body.client_id;
const asks = (client_id: string, more: Record<string, string> = {}) =>
  browser.call(`/v1/oauth/authorize?${new URLSearchParams({ client_id, redirect_uri: REDIRECT, ...more })}`);
const decides = (client_id: string, challenge: string, more: object = {}) =>
  browser.call("/v1/oauth/authorize", {
    client_id,
    redirect_uri: REDIRECT,
    code_challenge: challenge,
    code_challenge_method: "S256",
    ...more,
  });

/** The reason for which a call is refused; undefined where it is answered. */
const reasonOf = (call: Promise<unknown>): Promise<string | undefined> =>
  call.then(
    () => undefined,
    async (thrown: unknown) => (await refusalIn(Promise.reject(thrown))).reason,
  );

describe("an application that registers itself", () => {
  it("gets an RFC 7591 response", async () => {
    const { status, body, headers } = await register({ scope: "act usage.read openid" });
    expect(status).toBe(201);
    expect(headers.get("cache-control")).toBe("no-store");
    expect(body).toMatchObject({
      client_name: "An agent",
      redirect_uris: [REDIRECT],
      token_endpoint_auth_method: "none",
      grant_types: ["authorization_code"],
      response_types: ["code"],
      scope: "act usage.read",
    });
    expect(body.client_id).toMatch(/^oac_/);
    expect(body.client_secret).toBeUndefined();
    const confidential = await register({ token_endpoint_auth_method: undefined });
    expect(confidential.body).toMatchObject({
      token_endpoint_auth_method: "client_secret_basic",
      client_secret: expect.stringMatching(/^lmb_cs_/),
      client_secret_expires_at: 0,
    });
  });

  it("gets an error for unsafe redirect addresses and unsupported metadata", async () => {
    for (const [more, error] of [
      [{ redirect_uris: [] }, "invalid_redirect_uri"],
      [{ redirect_uris: ["http://app.example.com/"] }, "invalid_redirect_uri"],
      [{ redirect_uris: [REDIRECT, "javascript:alert(1)"] }, "invalid_redirect_uri"],
      [{ redirect_uris: ["https://*.example.com/"] }, "invalid_redirect_uri"],
      [{ grant_types: ["client_credentials"] }, "invalid_client_metadata"],
      [{ response_types: ["token"] }, "invalid_client_metadata"],
      [{ token_endpoint_auth_method: "private_key_jwt" }, "invalid_client_metadata"],
      [{ client_name: "An honest \u202egent" }, "invalid_request"],
      [{ client_name: "x".repeat(129) }, "invalid_request"],
    ] as const) {
      const { status, body } = await register(more);
      expect([more, status, body.error]).toEqual([more, 400, error]);
    }
  });

  it("is deleted after a day without consent, and kept while a key of it is valid", async () => {
    const [idle, used] = [await registered(), await registered()];
    const { verifier, challenge } = pkce();
    const { code } = (await decides(used, challenge)).body;
    expect((await exchange(app, honest(used, code, verifier))).status).toBe(200);
    await app.sql`update oauth_client set created = now() - interval '25 h' where id in (${idle}, ${used})`;
    await app.sql`delete from oauth_code`;
    await pruneCodes(app.sql);
    expect([(await asks(idle)).status, (await asks(used)).status]).toEqual([404, 200]);
  });
});

describe("the page of consent", () => {
  it("shows the application, its request, and what the user may grant", async () => {
    const id = await registered({ scope: "act billing.read" });
    const { status, body } = await asks(id);
    expect(status).toBe(200);
    expect(body).toMatchObject({
      client_name: "An agent",
      registered_itself: true,
      redirect_host: "app.example.com",
      org_id: caller.org,
      hardware: false,
      scopes: [
        { scope: "act", description: "Call models by act.", grantable: true },
        { scope: "billing.read", grantable: false },
      ],
    });
  });

  it("shows nothing for a wrong redirect, excessive scopes, or another organization's application", async () => {
    const id = await registered();
    const elsewhere = await asks(id, { redirect_uri: "https://evil.example/" });
    expect(elsewhere.status).toBe(422);
    expect((await asks(id, { scope: "keys.write" })).body.error.code).toBe("invalid_scope");
    const stranger = await app.caller(0);
    const theirs = await app.call("/v1/oauth/clients", { name: "theirs", redirect_uris: [REDIRECT] }, stranger);
    expect((await asks(theirs.body.client_id)).status).toBe(404);
  });

  it("issues a code for the user's choice: one robot, some models, a budget", async () => {
    const id = await registered();
    const { verifier, challenge } = pkce();
    const limits = { scope: "act", robot_id: "arm-7", models: ["acme/*"], budget_usd: 2, expires_in: 3600 };
    const decided = await decides(id, challenge, { ...limits, state: "s", resource: `${app.url}/mcp` });
    if (decided.status !== 200) throw new Error(decided.text);
    const url = new URL(decided.body.redirect_url);
    expect([url.searchParams.get("state"), url.searchParams.get("iss")]).toEqual(["s", app.url]);
    const { body: token } = await exchange(app, honest(id, decided.body.code, verifier));
    expect(token).toMatchObject({ token_type: "bearer", user_id: developer.userId, scope: "act" });
    const { body: key } = await app.call("/v1/key", undefined, { key: token.access_token });
    expect(key).toMatchObject({
      scopes: ["act"],
      robot_id: "arm-7",
      models: ["acme/*"],
      budget: { limit_usd: 2, interval: "lifetime" },
    });
    // Signing out ends nothing that was consented to.
    await browser.call("/v1/session", undefined, { method: "DELETE" });
    expect((await app.call("/v1/key", undefined, { key: token.access_token })).status).toBe(200);
    browser = await signedIn(app, caller.org, developer.userId);
    await app.call(
      `/v1/orgs/${caller.org}/members/${developer.userId}`,
      { role: "viewer" },
      { key: caller.key, method: "PATCH" },
    );
    const act = { model: "acme/base", action_space: "base_twist_2d", observations: [{}] };
    expect((await app.call("/v1/act", act, { key: token.access_token })).status).toBe(403);
    await app.call(
      `/v1/orgs/${caller.org}/members/${developer.userId}`,
      { role: "developer" },
      { key: caller.key, method: "PATCH" },
    );
  });

  it("grants nothing beyond the consenting key, and nothing for another server", async () => {
    const id = await registered();
    const narrow = await app.key(caller.org, { models: ["acme/base"], robot_id: "arm-7", role: "developer" });
    const by = (more: object) =>
      app.call(
        "/v1/oauth/authorize",
        {
          client_id: id,
          redirect_uri: REDIRECT,
          code_challenge: pkce().challenge,
          code_challenge_method: "S256",
          ...more,
        },
        { key: narrow },
      );
    for (const more of [{ models: ["acme/*"] }, { models: ["acme/base", "other/x"] }, { robot_id: "arm-8" }])
      expect([more, (await by(more)).body.error?.code]).toEqual([more, "scope_denied"]);
    const stranger = await app.caller(0);
    const { id: theirs } = await app.admin(`/v1/orgs/${stranger.org}/workspaces`, { name: "theirs" });
    for (const workspace_id of [theirs, "ws_01M80526TGMQ1E57VD2PJ4MK4Q"])
      expect((await by({ workspace_id })).status).toBe(404);
    const target = await decides(id, pkce().challenge, { resource: "https://other.example/mcp" });
    expect(target.body.error.code).toBe("invalid_target");
  });

  it("issues no key for another server, whatever address the caller used", async () => {
    const id = await registered();
    const body = {
      client_id: id,
      redirect_uri: REDIRECT,
      code_challenge: pkce().challenge,
      code_challenge_method: "S256",
    };
    const grpc = createClient(OauthService, createGrpcTransport({ baseUrl: app.url }));
    const connect = createClient(OauthService, createConnectTransport({ baseUrl: app.url, httpVersion: "1.1" }));
    const asked = { clientId: id, redirectUri: REDIRECT, codeChallenge: body.code_challenge };
    const by = [
      (resource: string) => decides(id, body.code_challenge, { resource }).then(({ body }) => body.error?.code),
      (resource: string) =>
        app
          .call("/v1/oauth/authorize", { ...body, resource }, { key: developer.key })
          .then(({ body }) => body.error?.code),
      (resource: string) => asks(id, { resource }).then(({ body }) => body.error?.code),
      ...[grpc, connect].map(
        (client) => (resource: string) =>
          reasonOf(client.authorize({ ...asked, codeChallengeMethod: "S256", resource }, bearer(developer.key))),
      ),
    ];
    const foreign = ["https://other.example/mcp", "mcp", `${app.url}/mcp#here`, "data:text/plain,x", "http://", "null"];
    for (const asking of by) {
      for (const resource of foreign) expect([resource, await asking(resource)]).toEqual([resource, "invalid_target"]);
      expect(await asking(`${app.url}/mcp`)).toBeUndefined();
    }
  });

  it("accepts no decision from another site's page", async () => {
    const id = await registered();
    const body = {
      client_id: id,
      redirect_uri: REDIRECT,
      code_challenge: pkce().challenge,
      code_challenge_method: "S256",
    };
    const headers = { "sec-fetch-site": "cross-site", origin: "https://app.example.com" };
    expect((await browser.call("/v1/oauth/authorize", body, { headers })).body.error.code).toBe("cross_origin");
  });
});

describe("an organisation that denies applications that registered themselves", () => {
  it("shows no consent page, issues no code and accepts no earlier one; its own applications work", async () => {
    const { org, key } = await app.caller(1);
    const member = await person(app, org, "developer");
    const here = await signedIn(app, org, member.userId);
    const client = await registered();
    const { verifier, challenge } = pkce();
    const decide = (client_id: string) =>
      here.call("/v1/oauth/authorize", {
        client_id,
        redirect_uri: REDIRECT,
        code_challenge: challenge,
        code_challenge_method: "S256",
      });
    const settings = `/v1/orgs/${org}/settings`;
    expect((await app.call(settings, undefined, { key })).body.self_registered_apps).toBe("allow");
    const before = (await decide(client)).body.code;
    expect((await here.call(settings, { self_registered_apps: "deny" }, { method: "PATCH" })).status).toBe(403);
    const denied = await app.call(settings, { self_registered_apps: "deny" }, { key, method: "PATCH" });
    expect(denied.body.self_registered_apps).toBe("deny");
    const asked = await here.call(
      `/v1/oauth/authorize?${new URLSearchParams({ client_id: client, redirect_uri: REDIRECT })}`,
    );
    for (const { status, body } of [asked, await decide(client)])
      expect([status, body.error.code]).toEqual([403, "app_not_allowed"]);
    const late = await exchange(app, honest(client, before, verifier));
    expect([late.status, late.body.error]).toEqual([400, "invalid_grant"]);
    const own = await app.call("/v1/oauth/clients", { name: "Ours", redirect_uris: [REDIRECT] }, { key });
    expect((await decide(own.body.client_id)).status).toBe(200);
    // Other organisations decide for themselves.
    expect((await asks(client)).status).toBe(200);
    await app.call(settings, { self_registered_apps: "allow" }, { key, method: "PATCH" });
    expect((await decide(client)).status).toBe(200);
  });
});

describe("metadata", () => {
  it("names pages, registration and servers under the operator's address", async () => {
    const { body } = await app.call("/.well-known/oauth-authorization-server");
    expect(body).toMatchObject({
      authorization_endpoint: `${app.url}/oauth/authorize`,
      registration_endpoint: `${app.url}/v1/oauth/register`,
    });
    const resource = await app.call("/.well-known/oauth-protected-resource");
    expect(resource.body).toMatchObject({
      resource: app.url,
      authorization_servers: [app.url],
      bearer_methods_supported: ["header"],
    });
    expect(resource.body.scopes_supported).toContain("act");
    const outside = await ownGateway({ database: app.database, publicUrl: "https://gateway.example/" });
    try {
      const { body: server } = await outside.call("/.well-known/oauth-authorization-server");
      expect([server.issuer, server.authorization_response_iss_parameter_supported]).toEqual([
        "https://gateway.example",
        true,
      ]);
      const { body: protectedBy } = await outside.call("/.well-known/oauth-protected-resource");
      expect(protectedBy.authorization_servers).toEqual(["https://gateway.example"]);
    } finally {
      await outside.close();
    }
  });
});
