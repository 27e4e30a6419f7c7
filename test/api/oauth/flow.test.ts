/** The whole OAuth flow by a client library that knows nothing of this gateway. */
import * as oauth from "oauth4webapi";
import { beforeAll, describe, expect, it } from "vitest";
import type { App, Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { type Market, openMarket } from "../../support/market.ts";
import { person } from "../../support/members.ts";
import { uniqueNames } from "../../support/names.ts";

const named = uniqueNames("acme");

let market: Market;
let app: App;
let caller: Caller;

beforeAll(async () => {
  market = await openMarket([{ provider: named.acme, model: `${named.acme}/base` }]);
  ({ app, caller } = market);
});

const insecure = { [oauth.allowInsecureRequests]: true };
const REDIRECT = "http://127.0.0.1:4567/callback?tenant=7";
const ACT = {
  model: `${named.acme}/base`,
  action_space: "base_twist_2d",
  horizon: 2,
  observations: [{ proprio: [0] }],
};

/** What the library does on behalf of an application, up to the key. */
async function flow(method: string | undefined, authOf: (secret: string) => oauth.ClientAuth) {
  const member = await person(app, caller.org, "developer");
  const registered = await app.call(
    "/v1/oauth/clients",
    { name: "rover", redirect_uris: [REDIRECT], scopes: ["act", "usage.read"], token_endpoint_auth_method: method },
    { key: caller.key },
  );
  expect(registered.status).toBe(201);
  const issuer = new URL(app.url);
  const discovered = await oauth.discoveryRequest(issuer, { algorithm: "oauth2", ...insecure });
  const server = await oauth.processDiscoveryResponse(issuer, discovered);
  const client: oauth.Client = { client_id: registered.body.client_id };
  const verifier = oauth.generateRandomCodeVerifier();
  const state = oauth.generateRandomState();

  const consent = {
    client_id: client.client_id,
    redirect_uri: REDIRECT,
    response_type: "code",
    scope: "act usage.read",
    state,
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
    code_challenge_method: "S256",
    budget_usd: 0.5,
    expires_in: 3600,
  };
  // The page of consent is a browser's; it makes this call.
  expect(server.authorization_endpoint).toBe(`${app.url}/oauth/authorize`);
  const authorized = await app.call("/v1/oauth/authorize", consent, { key: member.key });
  expect(authorized.status).toBe(200);
  expect(authorized.body).toMatchObject({ expires_in: 600, state, scope: "act usage.read" });

  const callback = oauth.validateAuthResponse(server, client, new URL(authorized.body.redirect_url), state);
  const auth = authOf(registered.body.client_secret);
  const exchange = await oauth.authorizationCodeGrantRequest(
    server,
    client,
    auth,
    callback,
    REDIRECT,
    verifier,
    insecure,
  );
  const token = await oauth.processAuthorizationCodeResponse(server, client, exchange);
  return { server, client, auth, token, member, exchange };
}

describe("a public client library", () => {
  for (const [method, authOf] of [
    [undefined, () => oauth.None()],
    ["client_secret_basic", (secret: string) => oauth.ClientSecretBasic(secret)],
    ["client_secret_post", (secret: string) => oauth.ClientSecretPost(secret)],
  ] as const) {
    it(`gets a member's key that calls models, and revokes it (${method ?? "no secret"})`, async () => {
      const { server, client, auth, token, member, exchange } = await flow(method, authOf);
      expect(exchange.headers.get("cache-control")).toBe("no-store");
      expect(token).toMatchObject({ token_type: "bearer", user_id: member.userId, scope: "act usage.read" });
      const key = token.access_token;
      const shown = await app.call("/v1/key", undefined, { key });
      expect(shown.body).toMatchObject({
        id: token.key_id,
        user_id: member.userId,
        role: "developer",
        scopes: ["act"],
        permissions: ["usage.read", "inference.run"],
        budget: { limit_usd: 0.5, interval: "lifetime" },
        expires_at: token.expires_at,
      });
      expect((await app.call("/v1/act", ACT, { key })).status).toBe(200);
      expect((await app.call("/v1/usage", undefined, { key })).status).toBe(200);

      const revoked = await oauth.revocationRequest(server, client, auth, key, insecure);
      expect(await oauth.processRevocationResponse(revoked)).toBeUndefined();
      await eventually(async () => expect((await app.call("/v1/act", ACT, { key })).status).toBe(401));
    });
  }

  it("finds every endpoint by RFC 8414", async () => {
    const { status, headers, body } = await app.call("/.well-known/oauth-authorization-server");
    expect(status).toBe(200);
    expect(headers.get("content-type")).toBe("application/json");
    expect(body).toMatchObject({
      issuer: app.url,
      token_endpoint: `${app.url}/v1/oauth/token`,
      code_challenge_methods_supported: ["S256"],
      grant_types_supported: ["authorization_code"],
    });
    const forwarded = { headers: { "x-forwarded-proto": "https" } };
    const behind = await app.call("/.well-known/oauth-authorization-server", undefined, forwarded);
    expect(behind.body.issuer).toBe(app.url.replace("http:", "https:"));
    const forged = await app.call("/.well-known/oauth-authorization-server?issuer=https://evil.example");
    expect(forged.body.issuer).toBe(app.url);
  });
});
