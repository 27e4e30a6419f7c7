/** OAuth and MCP as editors, agents and their SDKs speak them, each test by the public project whose clients behave so. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Answer, App, Caller } from "../support/app.ts";
import { type Browser, signedIn } from "../support/browser.ts";
import { person } from "../support/members.ts";
import { exchange, honest, pkce } from "../support/oauth.ts";
import { ownGateway } from "../support/world.ts";

let app: App;
let caller: Caller;
let browser: Browser;

beforeAll(async () => {
  app = await ownGateway({ publicUrl: "https://api.example.com" });
  caller = await app.caller(5);
  const { userId } = await person(app, caller.org, "developer");
  browser = await signedIn(app, caller.org, userId);
});
afterAll(() => app.close());

const register = (more: object): Promise<Answer> =>
  app.call("/v1/oauth/register", {
    client_name: "an editor",
    token_endpoint_auth_method: "none",
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    ...more,
  });

async function registered(more: object): Promise<string> {
  const { status, text, body } = await register(more);
  expect([status, text]).toEqual([201, text]);
  return body.client_id;
}

const asks = (client_id: string, redirect_uri: string, more: Record<string, string> = {}): Promise<Answer> =>
  browser.call(`/v1/oauth/authorize?${new URLSearchParams({ client_id, redirect_uri, ...more })}`);

const decides = (client_id: string, redirect_uri: string, code_challenge: string, more: object = {}): Promise<Answer> =>
  browser.call("/v1/oauth/authorize", {
    client_id,
    redirect_uri,
    code_challenge,
    code_challenge_method: "S256",
    ...more,
  });

describe("registration", () => {
  it.each([
    [
      "Cursor",
      [
        "cursor://anysphere.cursor-mcp/oauth/callback",
        "https://www.cursor.com/agents/mcp/oauth/callback",
        "http://localhost:8787/callback",
      ],
    ],
    ["Cursor with a server's name", ["cursor://anysphere.cursor-mcp/oauth/user-limber/callback"]],
    [
      "VS Code",
      [
        "https://insiders.vscode.dev/redirect",
        "https://vscode.dev/redirect",
        "http://127.0.0.1/",
        "http://127.0.0.1:33418/",
      ],
    ],
    ["Windsurf", ["windsurf://codeium.windsurf/oauth-callback"]],
    ["Goose and Raycast", ["goose://callback", "raycast:/oauth?package_name=Extension"]],
    ["a loopback address without a port, or with port 0", ["http://127.0.0.1/callback", "http://[::1]:0/callback"]],
    ["AppAuth", ["com.example.app:/oauth2redirect"]],
  ])("accepts the addresses of %s", async (_, redirect_uris) => {
    const { status, text, body } = await register({ redirect_uris });
    expect([status, text]).toEqual([201, text]);
    expect(body.redirect_uris).toEqual(redirect_uris);
  });

  it.each([
    "javascript:alert(1)",
    "data:text/html,x",
    "file:///etc/passwd",
    "vbscript:x",
    "http://example.com/cb",
    "http://127.0.0.1.evil.example/cb",
    "cursor://callback#fragment",
    "urn:ietf:wg:oauth:2.0:oob",
  ])("refuses %s and names it (laravel/mcp)", async (bad) => {
    const { status, body } = await register({ redirect_uris: ["http://127.0.0.1/ok", bad] });
    expect([status, body.error]).toEqual([400, "invalid_redirect_uri"]);
    expect(body.error_description).toContain(bad);
  });

  it("accepts a path with a slash at its end (MCP Inspector)", async () => {
    const { status, text } = await app.call("/v1/oauth/register/", {
      redirect_uris: ["http://localhost:6274/oauth/callback"],
    });
    expect([status, text]).toEqual([201, text]);
    expect((await app.call("/.well-known/oauth-authorization-server/")).status).toBe(200);
    expect((await app.call("/.well-known/oauth-protected-resource/mcp/")).body.resource).toBe(
      "https://api.example.com/mcp",
    );
  });
});

describe("a loopback address", () => {
  it("can have another port than the registered one, and no other difference (sentry-mcp, fastmcp)", async () => {
    const id = await registered({
      redirect_uris: [
        "http://127.0.0.1:4001/cb",
        "http://localhost/cb2",
        "https://app.example.com/cb",
        "http://[::1]:7/",
      ],
    });
    const at = async (uri: string) => [uri, (await asks(id, uri)).status];
    for (const uri of [
      "http://127.0.0.1:4002/cb",
      "http://localhost:9/cb2",
      "http://127.0.0.1/cb",
      "http://[::1]:8",
      "https://app.example.com/cb",
    ])
      expect(await at(uri)).toEqual([uri, 200]);
    for (const uri of [
      "http://127.0.0.1:4002/other",
      "http://127.0.0.1:4002/cb?x=1",
      "http://127.0.0.1:4002/cb/",
      "http://localhost:4001/cb",
      "http://127.0.0.1.evil.example:4001/cb",
      "http://127.0.0.1:4001@evil.example/cb",
      "http://127.0.0.1:99999/cb",
      "https://app.example.com:444/cb",
      "https://127.0.0.1:4001/cb",
    ])
      expect(await at(uri)).toEqual([uri, 422]);
  });

  it("is the consented one when its code is exchanged (coder)", async () => {
    const id = await registered({ redirect_uris: ["http://127.0.0.1:4001/cb"] });
    const { verifier, challenge } = pkce();
    const { text, body } = await decides(id, "http://127.0.0.1:4002/cb", challenge);
    expect(body.redirect_url, text).toMatch(/^http:\/\/127\.0\.0\.1:4002\/cb\?code=/);
    const fields = honest(id, body.code, verifier);
    const other = await exchange(app, { ...fields, redirect_uri: "http://127.0.0.1:4001/cb" });
    expect([other.status, other.body.error]).toEqual([400, "invalid_grant"]);
    const good = await exchange(app, { ...fields, redirect_uri: "http://127.0.0.1:4002/cb" });
    expect([good.status, good.text]).toEqual([200, good.text]);
  });

  it("can belong to a client that sends an empty secret by Basic (oauthlib)", async () => {
    const redirect_uri = "http://localhost:1/";
    const id = await registered({ redirect_uris: [redirect_uri] });
    const { verifier, challenge } = pkce();
    const { body } = await decides(id, redirect_uri, challenge);
    const authorization = `Basic ${Buffer.from(`${id}:`).toString("base64")}`;
    const { client_id: _, ...fields } = { ...honest(id, body.code, verifier), redirect_uri };
    const { status, text } = await exchange(app, fields, { headers: { authorization } });
    expect([status, text]).toEqual([200, text]);
  });
});

describe("scopes", () => {
  const redirect = "http://localhost:1/cb";
  const offered = (answer: Answer): string[] => {
    expect([answer.status, answer.text]).toEqual([200, answer.text]);
    return answer.body.scopes.map(({ scope }: { scope: string }) => scope);
  };

  it("of a client that registered none are any advertised ones (Claude Code, Codex, GitHub Copilot CLI)", async () => {
    const id = await registered({ redirect_uris: [redirect] });
    expect(offered(await asks(id, redirect, { scope: "act usage.read offline_access" }))).toEqual([
      "act",
      "usage.read",
    ]);
    expect(offered(await asks(id, redirect))).toEqual(["act", "predict", "ground", "evaluate"]);
    const beyond = await asks(id, redirect, { scope: "act keys.write" });
    expect([beyond.status, beyond.body.error.code]).toEqual([400, "invalid_scope"]);
  });

  it.each([
    ["mcp-remote", "openid email profile"],
    ["MCP Inspector", "mcp"],
    ["Authelia's clients", "openid profile offline_access"],
  ])("that are unknown request the defaults (%s)", async (_, scope) => {
    const id = await registered({ redirect_uris: [redirect], scope });
    expect(offered(await asks(id, redirect, { scope }))).toEqual(["act", "predict", "ground", "evaluate"]);
    const { verifier, challenge } = pkce();
    const { body } = await decides(id, redirect, challenge, { scope });
    const token = await exchange(app, { ...honest(id, body.code, verifier), redirect_uri: redirect });
    expect(token.body.scope, token.text).toBe("act predict ground evaluate");
  });

  it("that were registered limit the client (RFC 7591)", async () => {
    const id = await registered({ redirect_uris: [redirect], scope: "act offline_access" });
    expect(offered(await asks(id, redirect, { scope: "openid act" }))).toEqual(["act"]);
    expect((await asks(id, redirect, { scope: "act usage.read" })).status).toBe(400);
  });
});

describe("the MCP transport", () => {
  const LIST = { jsonrpc: "2.0", id: 1, method: "tools/list" };
  const send = (headers: Record<string, string>, path = "/mcp", body: object = LIST) =>
    app.call(path, body, { key: caller.key, headers });

  it("accepts every header `accept` that allows JSON, with and without a slash at the end (mcptools, mcp-remote)", async () => {
    for (const accept of [
      "application/json, text/event-stream",
      "application/json",
      "*/*",
      "application/*",
      "text/event-stream, application/json;q=0.9",
      "Application/JSON",
      "",
    ])
      for (const path of ["/mcp", "/mcp/"]) {
        const { status, text, headers, body } = await send({ accept }, path);
        expect([accept, path, status, text]).toEqual([accept, path, 200, text]);
        expect(headers.get("content-type")).toContain("application/json");
        expect(body.result.tools.length).toBeGreaterThan(5);
      }
    for (const accept of ["text/html", "application/json;q=0", "image/*"])
      expect([accept, (await send({ accept })).status]).toEqual([accept, 406]);
  });

  it("sends an event stream to a client that accepts nothing else", async () => {
    const { status, text, headers } = await send({ accept: "text/event-stream" });
    expect([status, headers.get("content-type"), text]).toEqual([200, "text/event-stream", text]);
    expect(text).toMatch(/^event: message\ndata: \{.*"tools"/);
  });

  it("accepts content types with a charset or other parameters, and each protocol version or none (python-sdk)", async () => {
    for (const type of [
      "application/json; charset=utf-8",
      "application/json;charset=UTF-8",
      "application/json; charset=utf8",
      'application/json; profile="x"; charset="utf-8"',
    ])
      expect([type, (await send({ "content-type": type })).status]).toEqual([type, 200]);
    for (const type of [
      "text/plain",
      "application/json; charset=latin1",
      "application/jsonx",
      "application/json; charset",
    ])
      expect([type, (await send({ "content-type": type })).status]).toEqual([type, 415]);
    for (const version of ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
      expect([version, (await send({ "mcp-protocol-version": version })).status]).toEqual([version, 200]);
  });

  it("accepts programs that send their own origin, and no web page (Cursor, VS Code)", async () => {
    expect((await send({ origin: "vscode-file://vscode-app" })).status).toBe(200);
    for (const origin of ["https://evil.example", "http://localhost:6274", "null", "file://"])
      expect([origin, (await send({ origin })).status]).toEqual([origin, 403]);
  });

  it("answers batches, which older versions of the protocol have (LibreChat, Spring AI)", async () => {
    const call = {
      jsonrpc: "2.0",
      id: "b",
      method: "tools/call",
      params: { name: "list_models", arguments: { limit: 1 } },
    };
    const notice = { jsonrpc: "2.0", method: "notifications/initialized" };
    const { status, text, body } = await send({}, "/mcp", [{ jsonrpc: "2.0", id: 1, method: "ping" }, notice, call]);
    expect([status, text]).toEqual([200, text]);
    expect(body.map(({ id }: { id: unknown }) => id)).toEqual([1, "b"]);
    expect(body[1].result.isError).toBeUndefined();
    expect((await send({}, "/mcp", [notice])).status).toBe(202);
    const events = await send({ accept: "text/event-stream" }, "/mcp", [LIST, { ...LIST, id: 2 }]);
    expect(events.text.match(/^event: message$/gm)).toHaveLength(2);
    for (const bad of [[], [1], Array.from({ length: 33 }, () => LIST)]) {
      const refused = await send({}, "/mcp", bad);
      expect([refused.status, refused.body.error.code]).toEqual([400, "malformed_body"]);
    }
  });

  it("keeps the answers of a batch whose later messages exceed the rate", async () => {
    const slow = await app.key(caller.org, { rate_limit: { requests: 2, window_s: 3600, burst: 2 } });
    const ping = (id: number) => ({ jsonrpc: "2.0", id, method: "ping" });
    const { status, text, body } = await app.call("/mcp", [1, 2, 3, 4].map(ping), { key: slow });
    expect([status, text]).toEqual([200, text]);
    expect([body[0].result, body[3].error?.data.code, body[3].id]).toEqual([{}, "rate_limit_exceeded", 4]);
  });

  it("reads nulls as absent, and arguments that an agent wrote as text (go-sdk, LibreChat)", async () => {
    for (const params of [
      { name: "list_models", arguments: null },
      { name: "list_models", arguments: "" },
      { name: "list_models", arguments: '{"limit": 1}' },
      { name: "list_models", arguments: {}, _meta: null, task: { ttl: 60_000 } },
    ]) {
      const { body, text } = await send({}, "/mcp", { jsonrpc: "2.0", id: 1, method: "tools/call", params });
      expect([params, body.result?.isError, body.error, text]).toEqual([params, undefined, undefined, text]);
    }
    for (const params of [null, { cursor: null }, { cursor: "" }]) {
      const { body, text } = await send({}, "/mcp", { ...LIST, params });
      expect([params, body.result?.tools.length > 5, text]).toEqual([params, true, text]);
    }
    const call = (input: unknown) => ({
      ...LIST,
      method: "tools/call",
      params: { name: "list_models", arguments: input },
    });
    expect((await send({}, "/mcp", call("[1]"))).body.error.code).toBeLessThan(-32_000);
    const { body } = await send({}, "/mcp", call({ random_string: "x" }));
    expect(JSON.parse(body.result.content[0].text).error.message).toBe("`random_string` is not a known field");
  });

  it("responds to OPTIONS, and says how a key is sent (MCP Inspector, Claude Code)", async () => {
    for (const path of ["/mcp", "/mcp/"]) {
      const { status, headers } = await app.call(path, undefined, { method: "OPTIONS" });
      expect([status, headers.get("allow")]).toEqual([204, "POST, OPTIONS"]);
    }
    for (const authorization of [caller.key, `Bearer Bearer ${caller.key}`, "Bearer ", `Token ${caller.key}`]) {
      const { status, body, headers } = await app.call("/mcp", LIST, { headers: { authorization } });
      expect([status, body.error.message]).toEqual([401, "the header must be Authorization: Bearer <key>"]);
      expect(headers.get("www-authenticate")).toContain('error="invalid_token"');
    }
    expect((await app.call("/mcp", LIST)).headers.get("www-authenticate")).not.toContain("error=");
  });
});

describe("the token endpoint", () => {
  it("names the content types that it reads", async () => {
    const { status, body } = await app.call("/v1/oauth/token", "x", {
      headers: { "content-type": "multipart/form-data; boundary=x" },
    });
    expect([status, body.error, body.error_description]).toEqual([
      415,
      "invalid_request",
      "the body must be application/x-www-form-urlencoded or application/json in UTF-8",
    ]);
    const form = { "content-type": "application/x-www-form-urlencoded;charset=utf8" };
    const other = await app.call("/v1/oauth/token", "grant_type=refresh_token", { headers: form });
    expect([other.status, other.body.error]).toEqual([400, "unsupported_grant_type"]);
  });
});
