/** The Model Context Protocol at /mcp: the SDK's own client, and what anyone else may send. */
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import type { App, Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { type Model, startModel } from "../../support/model.ts";
import { ownGateway } from "../../support/world.ts";

let app: App;
let model: Model;
let caller: Caller;
const open: Client[] = [];

beforeAll(async () => {
  [app, model] = await Promise.all([
    ownGateway({ publicUrl: "https://api.example.com", corsOrigins: new Set(["https://pages.example.com"]) }),
    startModel(),
  ]);
  await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  caller = await app.caller(10);
});
afterEach(async () => {
  model.script.act = undefined;
  await Promise.all(open.splice(0).map((client) => client.close()));
});
afterAll(async () => {
  await app.close();
  await model.close();
});

async function agent(key: string): Promise<Client> {
  const client = new Client({ name: "an-agent", version: "1.0.0" });
  const requestInit = { headers: { authorization: `Bearer ${key}` } };
  // The SDK's transport says more of its fields than its interface does.
  await client.connect(new StreamableHTTPClientTransport(new URL(`${app.url}/mcp`), { requestInit }) as never);
  open.push(client);
  return client;
}

interface ToolResult {
  readonly isError: boolean;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape.
  readonly body: any;
}

async function use(client: Client, name: string, input: object = {}): Promise<ToolResult> {
  const result = await client.callTool({ name, arguments: input as Record<string, unknown> });
  const [content] = result.content as { text: string }[];
  return { isError: result.isError === true, body: JSON.parse(content!.text) };
}

const MESSAGE = { "content-type": "application/json", accept: "application/json, text/event-stream" };
const LIST = { jsonrpc: "2.0", id: 1, method: "tools/list" };
const send = (body: unknown, headers: Record<string, string> = {}, key: string | undefined = caller.key) =>
  app.call("/mcp", body, { key, headers: { ...MESSAGE, ...headers } });

const ACT = { model: "acme/base", action_space: "base_twist_2d", horizon: 3, observations: [{ proprio: [0.5] }] };

describe("an agent", () => {
  it("sees the schema's tools with their parameters", async () => {
    const client = await agent(caller.key);
    const { tools } = await client.listTools();
    const names = tools.map(({ name }) => name);
    for (const name of [
      "list_models",
      "get_model",
      "preview_route",
      "act",
      "predict",
      "ground",
      "evaluate",
      "stop_robots",
    ])
      expect(names).toContain(name);
    const act = tools.find(({ name }) => name === "act")!;
    expect(act.inputSchema.required).toEqual(["model", "observations"]);
    expect(JSON.stringify(act.inputSchema)).not.toContain("#/components/");
    expect(act.annotations).toMatchObject({ readOnlyHint: false, destructiveHint: false });
    expect(tools.find(({ name }) => name === "list_models")!.annotations).toMatchObject({ readOnlyHint: true });
  });

  it("finds a model, previews a route, acts, and reads its calls and charges in the log", async () => {
    const client = await agent(caller.key);
    const found = await use(client, "list_models", { q: "base", limit: 3 });
    expect(found.body.data.map(({ id }: { id: string }) => id)).toContain("acme/base");
    const { body: shown } = await use(client, "get_model", { owner: "acme", name: "base" });
    expect(JSON.stringify(shown)).toContain("base_twist_2d");
    const { body: preview } = await use(client, "preview_route", { request: ACT });
    expect(preview.plan).toHaveLength(1);
    const { body: acted, isError } = await use(client, "act", ACT);
    expect([isError, acted.action.steps.length]).toEqual([false, 3]);
    await eventually(async () => {
      const { body: log } = await use(client, "get_log", { log_id: acted.id });
      expect(JSON.stringify(log)).toContain("acme/base");
    });
    const { body: usage } = await app.call("/v1/usage?limit=1", undefined, { key: caller.key });
    expect(usage.data[0]).toMatchObject({ model: "acme/base" });
  });

  it("gets one answer per idempotency key", async () => {
    const client = await agent(caller.key);
    const before = model.acts.length;
    const keyed = { ...ACT, idempotency_key: "the-same" };
    const [first, second] = [await use(client, "act", keyed), await use(client, "act", keyed)];
    expect([second.isError, second.body.id, second.body.replayed]).toEqual([false, first.body.id, true]);
    expect(model.acts.length).toBe(before + 1);
  });

  it("can stop robots but not release them", async () => {
    const client = await agent(caller.key);
    const { body } = await use(client, "stop_robots", { robot_id: "mcp-arm", reason: "a test" });
    expect(body.stop).toMatchObject({ subject: "mcp-arm" });
    expect(await use(client, "act", { ...ACT, robot_id: "mcp-arm" })).toMatchObject({
      isError: true,
      body: { error: { code: "robot_stopped" } },
    });
    const names = (await client.listTools()).tools.map(({ name }) => name);
    expect(names.filter((name) => /release|arm_robot|disarm/.test(name))).toEqual([]);
    await app.call("/v1/robots/release", { stop_id: body.stop.id }, { key: caller.key });
  });
});

describe("a refusal", () => {
  it("is the tool's result, with the same body as over REST", async () => {
    const client = await agent(caller.key);
    expect(await use(client, "act", { ...ACT, horizon: 0 })).toMatchObject({
      isError: true,
      body: { error: { code: "validation_failed", param: "horizon" } },
    });
    expect(await use(client, "act", { ...ACT, stream: true })).toMatchObject({
      isError: true,
      body: { error: { code: "validation_failed", param: "stream" } },
    });
    expect(await use(client, "act", { ...ACT, model: "acme/none" })).toMatchObject({
      isError: true,
      body: { error: { code: "model_not_found" } },
    });
    await expect(client.callTool({ name: "toString", arguments: {} })).rejects.toThrow(/no tool/);
  });

  it("explains how to get a key if none or a wrong one is sent", async () => {
    const metadata =
      'Bearer error="invalid_token", resource_metadata="https://api.example.com/.well-known/oauth-protected-resource/mcp"';
    for (const key of [undefined, "lmb_sk_of_nobody"]) {
      const { status, headers } = await send(LIST, {}, key === undefined ? "" : key);
      expect([status, headers.get("www-authenticate")]).toEqual([401, metadata]);
    }
    const { body } = await app.call("/.well-known/oauth-protected-resource/mcp");
    expect(body).toMatchObject({
      resource: "https://api.example.com/mcp",
      authorization_servers: ["https://api.example.com"],
    });
  });

  it("limits a narrowed key to fewer tools", async () => {
    const viewer = await agent(await app.key(caller.org, { role: "viewer" }));
    const names = (await viewer.listTools()).tools.map(({ name }) => name);
    expect(names).toContain("list_logs");
    expect(names).not.toContain("act");
    expect(names).not.toContain("stop_robots");
    expect(await use(viewer, "act", ACT)).toMatchObject({
      isError: true,
      body: { error: { code: "permission_denied" } },
    });
    const narrow = await agent(await app.key(caller.org, { models: ["other/one"] }));
    expect(await use(narrow, "act", ACT)).toMatchObject({
      isError: true,
      body: { error: { code: "model_not_in_scope" } },
    });
  });

  it("hides another organization's log", async () => {
    const { body: acted } = await use(await agent(caller.key), "act", ACT);
    const stranger = await agent((await app.caller(1)).key);
    await eventually(async () => {
      const own = await use(await agent(caller.key), "get_log", { log_id: acted.id });
      expect(own.isError).toBe(false);
    });
    expect(await use(stranger, "get_log", { log_id: acted.id })).toMatchObject({
      isError: true,
      body: { error: { code: "not_found" } },
    });
  });

  it("counts tool calls and every other message against the key's rate", async () => {
    const slow = await app.key(caller.org, { rate_limit: { requests: 3, window_s: 3600, burst: 3 } });
    const answers = [];
    for (const _ of [1, 2, 3, 4]) answers.push((await send(LIST, {}, slow)).status);
    expect(answers).toEqual([200, 200, 200, 429]);
    const call = { jsonrpc: "2.0", id: 2, method: "tools/call", params: { name: "list_logs", arguments: {} } };
    const { body } = await send(call, {}, slow);
    expect(body.result.isError).toBe(true);
    expect(body.result.content[0].text).toContain("rate_limit_exceeded");
  });
});

describe("what anyone may send", () => {
  it.each([
    ["no JSON", "{", 400],
    ["an empty batch", [], 400],
    ["no object", "7", 400],
    ["no message of JSON-RPC", { hello: "world" }, 400],
    ["an unknown method", { ...LIST, method: "resources/list" }, 200],
    ["arguments that are none", { ...LIST, method: "tools/call", params: { name: "act", arguments: 7 } }, 200],
    ["a name that is no text", { ...LIST, method: "tools/call", params: { name: { a: 1 } } }, 200],
    ["a notification", { jsonrpc: "2.0", method: "notifications/initialized" }, 202],
  ])("%s", async (_, body, status) => {
    const answer = await send(body);
    expect(answer.status, answer.text).toBe(status);
    expect(answer.text).not.toMatch(/ {4}at |node_modules/);
  });

  it("refuses pages of other origins, whatever name the server has", async () => {
    const origins = ["https://evil.example", app.url, "null", "http://127.0.0.1"];
    for (const origin of origins) expect((await send(LIST, { origin })).status, origin).toBe(403);
    for (const origin of ["https://api.example.com", "https://pages.example.com"])
      expect((await send(LIST, { origin })).status, origin).toBe(200);
  });

  it("refuses other methods and content types", async () => {
    for (const method of ["GET", "DELETE", "PUT"]) {
      const { status, headers } = await app.call("/mcp", undefined, { key: caller.key, method });
      expect([status, headers.get("allow")]).toEqual([405, "POST"]);
    }
    expect((await send("x", { "content-type": "text/plain" })).status).toBe(415);
    expect((await send(LIST, { accept: "text/html" })).status).toBe(406);
    expect((await send(LIST, { "mcp-protocol-version": "1999-01-01" })).status).toBe(400);
  });

  it("refuses bodies that are too large or too deep before parsing", async () => {
    const large = { ...LIST, params: { _meta: { text: "x".repeat(33 << 20) } } };
    expect((await send(large)).status).toBe(413);
    const deep = `${'{"a":'.repeat(100)}1${"}".repeat(100)}`;
    expect((await send(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":${deep}}`)).status).toBe(400);
    const many = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"a":[${'"",'.repeat(3_000_000)}""]}}}`;
    expect((await send(many)).status).toBe(422);
  });

  it("cancels the call of a client that leaves", async () => {
    const before = model.cancelled();
    const left = new AbortController();
    model.script.act = () => left.abort();
    const call = { jsonrpc: "2.0", id: 2, method: "tools/call", params: { name: "act", arguments: ACT } };
    const sent = app.call("/mcp", call, { key: caller.key, headers: MESSAGE, signal: left.signal });
    await expect(sent).rejects.toThrow();
    await eventually(() => expect(model.cancelled()).toBe(before + 1));
  });
});
