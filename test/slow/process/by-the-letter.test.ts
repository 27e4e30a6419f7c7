/** Small promises of the API, each to the letter: sizes, lists, nulls, cursors, words that are taken or refused. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { EXAMPLES } from "../../../tools/openapi/examples.ts";
import { type App, type Caller, openApp } from "../../support/app.ts";
import { belongings } from "../../support/belongings.ts";
import { bearer, inference } from "../../support/clients.ts";
import { eventually } from "../../support/eventually.ts";
import { startOtlpReceiver } from "../../support/otlp-receiver.ts";

let app: App;
let caller: Caller;

beforeAll(async () => {
  app = await openApp({ referenceSupply: true, roles: new Set(["api", "worker"]) });
  caller = await app.caller(10);
}, 60_000);
afterAll(() => app.close());

const DRIVE = {
  model: "service/auto",
  action_space: "base_twist_2d",
  horizon: 2,
  observations: [{ proprio: [0, 0, 0, 1, 2, 0] }],
};
const act = (more: object = {}) => app.call("/v1/act", { ...DRIVE, ...more }, { key: caller.key });

it("metadata accepts 512 characters of arbitrary caller text", async () => {
  for (const letter of ["x", "\n", '"', "\\", "é", "🤖"]) {
    expect((await act({ metadata: { note: letter.repeat(512) } })).status, letter).toBe(200);
    const { status, body } = await act({ metadata: { note: letter.repeat(513) } });
    expect([status, body.error.param], letter).toEqual([422, "metadata.note"]);
  }
  expect((await act({ metadata: { list: Array(300).fill(1) } })).status).toBe(422);
});

it("a seed is any integer, and seeds with equal lowest 32 bits are equal", async () => {
  const steps = async (seed: number) => {
    const { status, body } = await act({ seed });
    expect(status, String(seed)).toBe(200);
    return body.action.steps;
  };
  expect(await steps(-1)).toEqual(await steps(2 ** 32 - 1));
  for (const seed of [0, 2 ** 31, 2 ** 40, -(2 ** 53), 1e300]) await steps(seed);
  for (const seed of [0.5, "1", true]) expect((await act({ seed })).body.error.param, String(seed)).toBe("seed");
  const client = inference(app, "grpc");
  const asked = { ...DRIVE, actionSpace: "base_twist_2d", action_space: undefined };
  expect((await client.act({ ...asked, seed: -5 }, bearer(caller.key))).object).toBe("world.action");
  for (const seed of [0.5, Number.NaN, Number.POSITIVE_INFINITY])
    await expect(client.act({ ...asked, seed }, bearer(caller.key))).rejects.toThrow("seed");
  const kept = await app.call("/v1/presets/seeded", { seed: 2 ** 40 }, { key: caller.key, method: "PUT" });
  expect(kept.body.config.seed).toBe(2 ** 40);
  expect((await act({ preset: "seeded" })).status).toBe(200);
});

it("/v1/platform returns the limits that apply", async () => {
  const { limits } = (await app.call("/v1/platform")).body;
  expect([limits.request_bytes, limits.batch_bytes]).toEqual([32 << 20, 64 << 20]);
  const headers = { "content-length": String(limits.request_bytes + 1), "content-type": "application/json" };
  const { status } = await app.call("/v1/ground", Buffer.alloc(limits.request_bytes + 1, 32), {
    key: caller.key,
    headers,
  });
  expect(status).toBe(413);
});

it("an Idempotency-Key works on ground: it replays the first answer, charges once, and returns 409 for another body", async () => {
  const payer = await app.caller(10);
  const ground = (more: object = {}) =>
    app.call(
      "/v1/ground",
      { ...(EXAMPLES.GroundRequest as object), ...more },
      { key: payer.key, headers: { "idempotency-key": "g1" } },
    );
  const first = await ground();
  const second = await ground();
  expect([first.status, second.status]).toEqual([200, 200]);
  expect(second.body).toEqual(first.body);
  expect((await app.call("/v1/usage", undefined, { key: payer.key })).body.totals.requests).toBe(1);
  expect((await ground({ instruction: "the green cube" })).body.error.code).toBe("idempotency_conflict");
});

it("every list returns 422 for an invalid cursor", async () => {
  const own = await belongings(app, caller, "letter");
  const lists = [
    "/v1/usage",
    "/v1/logs",
    "/v1/jobs",
    "/v1/billing/payments",
    "/v1/audit",
    "/v1/oauth/clients",
    "/v1/robots/stops",
    "/v1/supply/offerings",
    "/v1/supply/providers",
    "/v1/presets",
    "/v1/credentials",
    `/v1/webhooks/${own.hook_id}/deliveries`,
    ...["keys", "members", "workspaces"].map((what) => `/v1/orgs/${caller.org}/${what}`),
  ];
  for (const list of lists) {
    const { status, body } = await app.call(`${list}?cursor=garbage`, undefined, { key: caller.key });
    expect([status, body.error.param], list).toEqual([422, "cursor"]);
    const page = (await app.call(`${list}?limit=1`, undefined, { key: caller.key })).body;
    if (page.next_cursor !== undefined)
      expect(
        (await app.call(`${list}?limit=1&cursor=${page.next_cursor}`, undefined, { key: caller.key })).status,
        list,
      ).toBe(200);
  }
});

it("cache sharing can be enabled for the organization and for a workspace", async () => {
  const { key, org } = await app.caller(0);
  const on = { cache_sharing: true };
  const settings = await app.call(`/v1/orgs/${org}/settings`, on, { key, method: "PATCH" });
  expect([settings.status, settings.body.cache_sharing], settings.text).toEqual([200, true]);
  const workspace = await app.call(`/v1/orgs/${org}/workspaces`, { name: "w", settings: on }, { key });
  expect([workspace.status, workspace.body.settings?.cache_sharing], workspace.text).toEqual([201, true]);
});

it("every job kind and every record kind is a valid filter", async () => {
  for (const kind of ["batch", "evaluation", "verification", "export"])
    expect((await app.call(`/v1/jobs?kind=${kind}`, undefined, { key: caller.key })).status, kind).toBe(200);
  for (const kind of ["predict", "act", "ground", "evaluate", "batch", "preview", "supply", "admin", "payment"])
    expect((await app.call(`/v1/logs?kind=${kind}`, undefined, { key: caller.key })).status, kind).toBe(200);
});

it("a 402 names where to add credit and what the balance could pay for", async () => {
  const poor = await app.caller(0.0003);
  const { status, body } = await app.call("/v1/act", { ...DRIVE, horizon: 100 }, { key: poor.key });
  expect(status).toBe(402);
  expect(body.error.details.topup_url).toBe(`${app.url}/v1/billing/topup`);
  expect(body.error.details.max_affordable.horizon).toBeGreaterThan(0);
});

it("a batch reports its counts, and each line has either a response or an error, with null for the other", async () => {
  const requests = [DRIVE, { ...DRIVE, model: "nobody/nothing" }];
  const { body } = await app.call("/v1/batch", { contract: "act", requests }, { key: caller.key });
  expect(body.reserved_usd).toBe(0);
  await eventually(async () =>
    expect((await app.call(`/v1/batch/${body.id}`, undefined, { key: caller.key })).body.status).toBe("completed"),
  );
  const { text } = await app.call(`/v1/batch/${body.id}/results`, undefined, { key: caller.key });
  const [good, bad] = text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  expect([good.error, bad.response]).toEqual([null, null]);
  expect([good.response.status_code, bad.error.error.code]).toEqual([200, "model_not_found"]);
});

it("a span target may name its own type, and no other", async () => {
  const receiver = await startOtlpReceiver();
  const made = (type: string) => app.call("/v1/broadcast", { endpoint: receiver.url, type }, { key: caller.key });
  expect([(await made("otlp")).status, (await made("datadog")).body.error.param]).toEqual([201, "type"]);
  await receiver.close();
});

describe("supply", () => {
  it("name data_collection as immutable, and refuse an episode price beyond any plausible charge", async () => {
    const { key } = caller;
    await app.call("/v1/supply/providers", { name: "lettered" }, { key });
    const model = { ...(EXAMPLES.DeclareModelRequest as object), model: "lettered/one" };
    const declare = (more: object) => app.call("/v1/supply/providers/lettered/models", { ...model, ...more }, { key });
    const { id } = (await declare({})).body;
    const changed = await app.call(`/v1/supply/offerings/${id}`, { data_collection: "deny" }, { key, method: "PATCH" });
    expect([changed.status, changed.body.error.code, changed.body.error.param]).toEqual([
      422,
      "immutable_field",
      "data_collection",
    ]);
    expect((await declare({ price_per_episode: 1 })).body.error.param).toBe("price_per_episode");
  });
});

it("GET /v1/key lists what the key can call, and writes null for absent values", async () => {
  const plain = (await app.call("/v1/key", undefined, { key: caller.key })).body;
  expect(plain).toMatchObject({
    scopes: ["act", "predict", "ground", "evaluate"],
    models: null,
    budget: null,
    expires_at: null,
    workspace_id: null,
    user_id: null,
    robot_id: null,
  });
  const narrow = await app.key(caller.org, { scopes: ["act"], models: ["a/*"], budget: { limit_usd: 1 } });
  expect((await app.call("/v1/key", undefined, { key: narrow })).body).toMatchObject({
    scopes: ["act"],
    models: ["a/*"],
    budget: { limit_usd: 1, interval: "lifetime", resets_at: null },
  });
});
