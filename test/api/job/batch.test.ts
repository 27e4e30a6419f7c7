/** Batches and the list of jobs. */
import { beforeAll, describe, expect, it } from "vitest";
import type { App, Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { honestSteps, type Model } from "../../support/model.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
let model: Model;
let caller: Caller;
/** Lets held answers go. */
let release: () => void = () => {};

beforeAll(async () => {
  model = await openModel();
  app = await ownGateway({ roles: new Set(["api", "worker"]) });
  await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  caller = await app.caller();
});

const TWIST = { model: "acme/base", action_space: "base_twist_2d", horizon: 3, observations: [{ proprio: [0.5, 2] }] };
const batch = (body: object, key = caller.key) => app.call("/v1/batch", body, { key });
const shown = (id: string, key = caller.key) => app.call(`/v1/batch/${id}?items=true`, undefined, { key });

/** Waits until a batch has ended. */
const ended = (id: string) =>
  eventually(async () => {
    const { body } = await shown(id);
    expect(["completed", "failed", "cancelled", "expired"]).toContain(body.status);
    return body;
  });

const linesOf = async (id: string) => {
  const { text, headers, status } = await app.call(`/v1/batch/${id}/results`, undefined, { key: caller.key });
  expect(status).toBe(200);
  expect(headers.get("content-type")).toBe("text/plain; charset=utf-8");
  return text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
};

function hold(): void {
  const waiting: (() => void)[] = [];
  model.script.act = (call, answer) => void waiting.push(() => answer(honestSteps(call, 2)));
  release = () => {
    model.script.act = undefined;
    for (const go of waiting) go();
  };
}

describe("202", () => {
  it("answers every request in order like a single call, and charges each once", async () => {
    const requests = Array.from({ length: 40 }, (_, i) => ({ ...TWIST, custom_id: `step-${i}`, horizon: 1 + (i % 4) }));
    const before = (await app.call("/v1/billing/balance", undefined, { key: caller.key })).body;
    const taken = await batch({ contract: "act", requests, metadata: { run: 7 } });
    expect(taken.status).toBe(202);
    expect(taken.body).toMatchObject({
      id: expect.stringMatching(/^job_/),
      object: "batch",
      contract: "act",
      request_counts: { total: 40 },
      metadata: { run: 7 },
      expires_at: taken.body.created_at + 24 * 3600,
    });
    const body = await ended(taken.body.id);
    const steps = requests.reduce((sum, { horizon }) => sum + horizon, 0);
    expect(body).toMatchObject({
      status: "completed",
      request_counts: { total: 40, queued: 0, running: 0, completed: 40, failed: 0, cancelled: 0 },
      cost_usd: steps / 10_000,
      errors: [],
    });
    expect(body.items).toHaveLength(40);
    expect(body.started_at).toBeLessThanOrEqual(body.finalizing_at);
    expect(body.finalizing_at).toBeLessThanOrEqual(body.completed_at);
    const lines = await linesOf(taken.body.id);
    expect(lines.map(({ index, custom_id }) => [index, custom_id])).toEqual(requests.map((_, i) => [i, `step-${i}`]));
    const direct = (await app.call("/v1/act", { ...TWIST, horizon: 4 }, { key: caller.key })).body;
    expect(lines[3]).toMatchObject({
      id: `${taken.body.id}.3`,
      status: "completed",
      response: { status_code: 200, body: { action: direct.action, usage: direct.usage } },
    });
    const after = (await app.call("/v1/billing/balance", undefined, { key: caller.key })).body;
    expect(after.spent_usd - before.spent_usd).toBeCloseTo((steps + 4) / 10_000, 6);
  });

  it("fails only the invalid request", async () => {
    const bad = { ...TWIST, horizon: 0 };
    const unknown = { ...TWIST, model: "acme/unknown" };
    const { body } = await batch({
      contract: "act",
      requests: [TWIST, bad, unknown, { observations: 3, x: 1 }, TWIST],
    });
    const end = await ended(body.id);
    expect(end).toMatchObject({ status: "completed", request_counts: { completed: 2, failed: 3 } });
    expect(end.errors.map(({ index, code }: { index: number; code: string }) => [index, code])).toEqual([
      [1, "validation_failed"],
      [2, "model_not_found"],
      [3, "validation_failed"],
    ]);
    const lines = await linesOf(body.id);
    expect(lines[1].error).toMatchObject({ error: { code: "validation_failed", status: 422 } });
    expect(lines[3].error.detail.map(({ loc }: { loc: string[] }) => loc.join("."))).toContain("body.x");
    expect(lines[1].response).toBeNull();
  });

  it("applies presets per request: own fields win, an unknown preset fails its line with suggestions", async () => {
    const put = (name: string, config: object) =>
      app.call(`/v1/presets/${name}`, config, { key: caller.key, method: "PUT" });
    await put("two-steps", { horizon: 2 });
    await app.supply({ provider: "acme", model: "other/base", endpoint: model.endpoint });
    await put("wide", { models: ["other/base"] });
    const { horizon: _, ...open } = TWIST;
    const requests = [
      { ...open, preset: "two-steps" },
      { ...open, preset: "two-steps", horizon: 4 },
      { ...open, preset: "two-step" },
      { ...open, preset: "two-steps@9" },
      { ...open, preset: "wide" },
      TWIST,
    ];
    const narrow = await app.key(caller.org, { role: "developer", models: ["acme/*"] });
    const { body } = await batch({ contract: "act", requests }, narrow);
    const end = await eventually(async () => {
      const shownNow = (await shown(body.id, narrow)).body;
      expect(shownNow.status).toBe("completed");
      return shownNow;
    });
    expect(end.request_counts).toMatchObject({ completed: 3, failed: 3 });
    const lines = await linesOf(body.id);
    const stepsOf = (at: number) => lines[at].response.body.action.steps.length;
    expect([stepsOf(0), stepsOf(1), stepsOf(5)]).toEqual([2, 4, 3]);
    const told = (at: number) => [lines[at].error.error.code, lines[at].error.error.details.near];
    expect(told(2)).toEqual(["preset_not_found", ["two-steps"]]);
    expect(told(3)).toEqual(["preset_not_found", expect.arrayContaining(["two-steps@1"])]);
    expect(told(4)[0]).toBe("model_not_in_scope");
  });

  it("ends as failed if nothing could run", async () => {
    const { body } = await batch({ contract: "act", requests: [{ ...TWIST, model: "acme/unknown" }] });
    expect(await ended(body.id)).toMatchObject({ status: "failed", cost_usd: 0 });
  });

  it("runs with the creating key's authority: a model outside its scope fails its line", async () => {
    const key = await app.key(caller.org, { role: "developer", models: ["acme/other"] });
    const { body } = await batch({ contract: "act", requests: [TWIST] }, key);
    expect((await ended(body.id)).errors).toMatchObject([{ index: 0, code: "model_not_in_scope" }]);
  });

  it("returns the same batch for a repeated idempotency key, and 409 for another body", async () => {
    const once = { contract: "act", requests: [TWIST], idempotency_key: "once" };
    const [first, second] = [await batch(once), await batch(once)];
    expect(second.status).toBe(202);
    expect(second.body.id).toBe(first.body.id);
    const other = await batch({ ...once, requests: [TWIST, TWIST] });
    expect([other.status, other.body.error.code]).toEqual([409, "idempotency_conflict"]);
  });
});

describe("DELETE", () => {
  it("cancels requests that have not started, lets running ones finish and be charged, then returns 409", async () => {
    hold();
    const { body } = await batch({ contract: "act", requests: Array.from({ length: 150 }, () => TWIST) });
    await eventually(async () => expect((await shown(body.id)).body.request_counts.running).toBeGreaterThan(0));
    const off = await app.call(`/v1/batch/${body.id}`, undefined, { key: caller.key, method: "DELETE" });
    expect([off.status, off.body.status]).toEqual([200, "cancelling"]);
    release();
    const end = await ended(body.id);
    const { completed, cancelled, total } = end.request_counts;
    expect(end.status).toBe("cancelled");
    expect(completed).toBeGreaterThan(0);
    expect(cancelled).toBeGreaterThan(0);
    expect(completed + cancelled).toBe(total);
    expect(end.cost_usd).toBeCloseTo(completed * 0.0003, 6);
    const again = await app.call(`/v1/batch/${body.id}`, undefined, { key: caller.key, method: "DELETE" });
    expect([again.status, again.body.error.code]).toEqual([409, "job_finished"]);
  });

  it.each([
    ["completed", TWIST],
    ["failed", { ...TWIST, model: "acme/unknown" }],
  ])("returns 409 for a batch that has %s, and leaves it unchanged", async (status, request) => {
    const { body } = await batch({ contract: "act", requests: [request] });
    const end = await ended(body.id);
    expect(end.status).toBe(status);
    const off = await app.call(`/v1/batch/${body.id}`, undefined, { key: caller.key, method: "DELETE" });
    expect([off.status, off.body.error.code]).toEqual([409, "job_finished"]);
    expect((await shown(body.id)).body).toEqual(end);
  });
});

describe("404", () => {
  it("is returned for another organization's and unknown batches", async () => {
    const { body } = await batch({ contract: "act", requests: [TWIST] });
    const stranger = await app.caller();
    for (const id of [body.id, "job_none"]) {
      for (const [path, method] of [
        [`/v1/batch/${id}`, "GET"],
        [`/v1/batch/${id}`, "DELETE"],
        [`/v1/batch/${id}/results`, "GET"],
      ] as const) {
        const { status } = await app.call(path, undefined, { key: stranger.key, method });
        expect(status).toBe(404);
      }
    }
    await ended(body.id);
  });
});

describe("422", () => {
  const many = (count: number) => Array.from({ length: count }, () => ({ model: "m/n" }));

  it.each([
    ["no requests", { contract: "act", requests: [] }, "requests"],
    ["1,001 requests", { contract: "act", requests: many(1001) }, "requests"],
    ["a contract that no batch has", { contract: "ground", requests: many(1) }, "contract"],
    ["no contract", { requests: many(1) }, "contract"],
    ["two requests of one name", { contract: "act", requests: [{ custom_id: "a" }, { custom_id: "a" }] }, "requests.1"],
    ["a name that is no text", { contract: "act", requests: [{ custom_id: 3 }] }, "requests.0"],
    ["a request that is no object", { contract: "act", requests: [3] }, "requests.0"],
    ["a field that is not known", { contract: "act", requests: many(1), retries: 3 }, "retries"],
  ])("refuses %s", async (_, body, place) => {
    const { status, body: refused } = await batch(body);
    expect(status).toBe(422);
    expect(JSON.stringify(refused.detail.map(({ loc }: { loc: unknown[] }) => loc.join(".")))).toContain(place);
  });
});

describe("GET /v1/jobs", () => {
  it("lists the organization's jobs, newest first, by page and kind", async () => {
    const mine = await app.caller();
    const ids: string[] = [];
    for (let i = 0; i < 5; i++) {
      ids.unshift((await batch({ contract: "act", requests: [TWIST] }, mine.key)).body.id);
    }
    const page = async (query: string) => (await app.call(`/v1/jobs?${query}`, undefined, { key: mine.key })).body;
    const first = await page("limit=3&kind=batch");
    expect(first).toMatchObject({ object: "list", has_more: true });
    const second = await page(`limit=3&cursor=${first.next_cursor}`);
    expect([...first.data, ...second.data].map(({ id }: { id: string }) => id)).toEqual(ids);
    expect(second.has_more).toBe(false);
    expect((await page("kind=evaluation")).data).toEqual([]);
    expect(first.data[0]).toMatchObject({ object: "job", kind: "batch", total: 1 });
  });

  it.each(["limit=0", "limit=501", "kind=dance", "limit=x"])("refuses %s with 422", async (query) => {
    expect((await app.call(`/v1/jobs?${query}`, undefined, { key: caller.key })).status).toBe(422);
  });
});

describe("403", () => {
  it("is returned to roles without the permission", async () => {
    const billing = await app.key(caller.org, { role: "billing" });
    expect((await batch({ contract: "act", requests: [TWIST] }, billing)).status).toBe(403);
    expect((await app.call("/v1/jobs", undefined, { key: billing })).status).toBe(403);
  });
});

it("a batch of a throttled key waits, and its requests are answered", async () => {
  const other = await app.caller();
  model.script.act = (call, answer, _served, fail) =>
    call.observations[0]?.proprio[0] === 666 ? fail("KeyError") : answer(honestSteps(call, 2));
  const broken = { ...TWIST, observations: [{ proprio: [666, 2] }] };
  while ((await app.call("/v1/act", broken, { key: other.key })).status !== 429);
  const { id } = (await batch({ contract: "act", requests: [TWIST, TWIST] }, other.key)).body;
  await eventually(async () => {
    const { body } = await shown(id, other.key);
    expect(body).toMatchObject({ status: "completed", request_counts: { completed: 2, failed: 0, total: 2 } });
  });
  model.script.act = undefined;
});
