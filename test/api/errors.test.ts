/** What refusals tell the person who reads them: where to read more, what was meant, which part of an address is wrong. */
import { beforeAll, expect, it } from "vitest";
import type { App, Caller } from "../support/app.ts";
import { ownGateway } from "../support/world.ts";

let app: App;
let caller: Caller;

beforeAll(async () => {
  app = await ownGateway({ publicUrl: "https://api.example.com/base", allowPrivateAddresses: false });
  caller = await app.caller(1);
});

const refused = async (path: string, body?: object) => {
  const { body: answer } = await app.call(path, body, { key: caller.key });
  return { ...answer.error, detail: answer.detail };
};

it("errors link their documentation page, and OpenAPI names the server", async () => {
  expect((await refused("/v1/models/a/b")).docs_url).toBe("https://api.example.com/docs/errors#model_not_found");
  const { body } = await app.call("/openapi.json");
  expect(body.servers).toEqual([{ url: "https://api.example.com/base", description: "public" }]);
});

it("errors suggest the intended path and redirect to no other host", async () => {
  expect((await refused("/v1/act/", {})).message).toBe("path not found; did you mean /v1/act?");
  expect((await refused("/v1/usages")).message).toContain("/v1/usage");
  const docs = await fetch(`${app.url}/docs/`, { redirect: "manual" });
  expect([docs.status, docs.headers.get("location")]).toEqual([308, "/docs"]);
  const outside = await fetch(`${app.url}//example.com/docs/`, { redirect: "manual" });
  expect(outside.status).toBe(404);
});

it("errors distinguish blocked ports from invalid addresses", async () => {
  const { key } = caller;
  await app.call("/v1/supply/providers", { name: "walls" }, { key });
  const model = { model: "walls/one", runtime: "limber-policy", hardware: "cpu", contracts: ["act"] };
  const declared = (more: object) => refused("/v1/supply/providers/walls/models", { ...model, ...more });
  const spaces = { action_spaces: ["base_twist_2d"] };
  expect((await declared({ ...spaces, endpoint: "grpcs://example.com:25" })).message).toMatch(
    /^endpoint must name the port/,
  );
  expect((await declared({ ...spaces, endpoint: "grpcs://127.0.0.1:9000" })).message).toContain("public address");
  expect((await refused("/v1/webhooks", { url: "https://example.com:6667/" })).message).toMatch(
    /^url must name the port/,
  );
  expect((await refused("/v1/webhooks", { url: "https://me:pw@example.com/" })).message).toContain("password");
  expect((await refused("/v1/broadcast", { endpoint: "https://example.com:25" })).message).toMatch(
    /^endpoint must name the port/,
  );
  expect((await declared({ endpoint: "grpcs://example.com", action_spaces: ["base_twist_2d", "foo"] })).param).toBe(
    "action_spaces.1",
  );
});

it("errors list the known events", async () => {
  const { message, param, details } = await refused("/v1/webhooks", {
    url: "https://example.com/",
    events: ["batch.complete"],
  });
  expect(param).toBe("events.0");
  expect(message).toContain('"batch.complete" is not an event');
  expect(message).toContain("offering.rejected");
  expect(details.near).toContain("batch.completed");
});
