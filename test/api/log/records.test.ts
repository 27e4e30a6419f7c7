/** Records of the log: refused calls, what each says, look-up by any name, filters. */
import { beforeAll, describe, expect, it } from "vitest";
import { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import type { App, Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { robot } from "../../support/loop-client.ts";
import { type Market, openMarket } from "../../support/market.ts";
import { uniqueNames } from "../../support/names.ts";
import { ownGateway } from "../../support/world.ts";

const named = uniqueNames("acme", "busy");

let market: Market;
let app: App;
let caller: Caller;

beforeAll(async () => {
  market = await openMarket([{ provider: named.acme, model: `${named.acme}/base` }]);
  ({ app, caller } = market);
});

const TWIST = {
  model: `${named.acme}/base`,
  action_space: "base_twist_2d",
  horizon: 2,
  observations: [{ proprio: [0.5, 2] }],
};
const act = (more: object = {}, { key } = caller, headers = {}) =>
  app.call("/v1/act", { ...TWIST, ...more }, { key, headers });
const logs = async (query = "", { key } = caller) => (await app.call(`/v1/logs${query}`, undefined, { key })).body.data;
const idOf = (answer: { headers: Headers }): string => answer.headers.get("x-request-id")!;

describe("a refused call", () => {
  it("is recorded with its reason wherever it was refused", async () => {
    const poor = await app.caller(0);
    const narrow = { org: poor.org, key: await app.key(poor.org, { scopes: ["ground"] }) };
    const answers = {
      insufficient_credits: await act({}, poor),
      model_not_found: await act({ model: `${named.acme}/nowhere` }, poor),
      no_route_available: await act({ provider: { region: ["moon"] } }, poor),
      validation_failed: await act({ horizon: 0 }, poor),
      malformed_body: await app.call("/v1/act", "{", { key: poor.key }),
      scope_denied: await act({}, narrow),
      action_space_mismatch: await act({ action_space: "joint_pos_7" }, poor),
    };
    const records = await logs("", poor);
    for (const [code, answer] of Object.entries(answers)) {
      expect(answer.body.error.code).toBe(code);
      const record = records.find(({ id }: { id: string }) => id === idOf(answer));
      expect(record, code).toMatchObject({
        kind: "act",
        status: "failed",
        http_status: answer.status,
        error_code: code,
        error_message: answer.body.error.message,
        cost_usd: 0,
        attempts: [],
        latency_ms: expect.any(Number),
      });
    }
    expect(records).toHaveLength(Object.keys(answers).length);
    const [noRoute] = await logs("?http_status=409", poor);
    expect(noRoute.model_requested).toBe(`${named.acme}/base`);
    const { data, totals } = (await app.call("/v1/usage", undefined, { key: poor.key })).body;
    expect([data, totals.requests]).toEqual([[], 0]);
  });

  it("is recorded without its message under zero data retention", async () => {
    const silent = await app.caller();
    const { status } = await app.call(
      `/v1/orgs/${silent.org}/settings`,
      { zdr: true },
      { key: silent.key, method: "PATCH" },
    );
    expect(status).toBe(200);
    await act({ horizon: 0 }, silent);
    const [record] = await logs("", silent);
    expect(record.error_code).toBe("validation_failed");
    expect(record.error_message).toBeUndefined();
  });

  it("is left out of the calls that clients made themselves if it is an evaluation or a batch", async () => {
    const mine = await app.caller();
    await app.call("/v1/evaluate", {}, { key: mine.key });
    await app.call("/v1/batch", {}, { key: mine.key });
    const { headers } = await act({ horizon: 0 }, mine);
    expect(await logs("", mine)).toHaveLength(3);
    expect((await logs("?direct=true", mine)).map(({ id }: { id: string }) => id)).toEqual([idOf({ headers })]);
  });

  it("is not recorded without a valid key, and cannot fill the log", async () => {
    const mine = await app.caller(0);
    await act({}, { ...mine, key: `${mine.key}x` });
    expect(await logs("", mine)).toEqual([]);
    await Promise.all(Array.from({ length: 160 }, () => act({ horizon: 0 }, mine)));
    const count = (await logs("?limit=1000", mine)).length;
    expect(count).toBeGreaterThanOrEqual(100);
    expect(count).toBeLessThan(160);
    expect((await act({}, mine)).status).toBe(402);
  });

  it("stores no caller text under zero data retention, and bounded text otherwise", async () => {
    const mine = await app.caller(0);
    await act({ metadata: { long: "x".repeat(600) }, preset: "y".repeat(100) }, mine);
    expect((await logs("", mine))[0]).not.toHaveProperty("metadata");
    await app.call(`/v1/orgs/${mine.org}/settings`, { zdr: true }, { key: mine.key, method: "PATCH" });
    await act({ metadata: { robot_id: "secret-bot" }, provider: { session_id: "secret-walk" } }, mine);
    const [record] = await logs("", mine);
    expect([record.status, record.model_requested]).toEqual(["failed", `${named.acme}/base`]);
    expect(JSON.stringify(record)).not.toContain("secret");
  });
});

describe("a record", () => {
  it("has caller, robot, trace, waiting time and offering time", async () => {
    const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const robot = { org: caller.org, key: await app.key(caller.org, { robot_id: "r2", environment: "hardware" }) };
    const body = { ...TWIST, preference: "fastest", provider: { deadline_ms: 20_000, session_id: "walk" } };
    const answer = await app.call("/v1/act", body, { key: robot.key, headers: { traceparent } });
    const [record] = await logs(`?request_id=${idOf(answer)}`);
    expect(record).toMatchObject({
      robot_id: "r2",
      trace_id: "4bf92f3577b34da6a3ce929d0e0e4736",
      preference: "fastest",
      session_id: "walk",
      input_bytes: JSON.stringify(body).length,
      queue_ms: expect.any(Number),
      upstream_ms: expect.any(Number),
      observation_age_ms: expect.any(Number),
      cold_start: false,
      deadline_missed: false,
      preview: false,
    });
    expect(record.upstream_ms).toBeLessThanOrEqual(record.observation_age_ms);
    const plain = await act({}, robot);
    expect((await logs(`?request_id=${idOf(plain)}`))[0]).toMatchObject({
      robot_id: "r2",
      trace_id: expect.stringMatching(/^[0-9a-f]{32}$/),
      input_bytes: JSON.stringify(TWIST).length,
    });
  });

  it("can be found by every id of its call, and only by its organization", async () => {
    const answer = await act();
    const request = idOf(answer);
    const rest = request.slice("req_".length);
    expect([answer.body.id, answer.body.chunk_id]).toEqual([`act_${rest}`, `chunk_${rest}`]);
    const [usage] = (await app.call("/v1/usage?limit=1", undefined, { key: caller.key })).body.data;
    for (const id of [request, answer.body.id, answer.body.chunk_id, `pred_${rest}`, `grnd_${rest}`, usage.id])
      expect((await app.call(`/v1/logs/${id}`, undefined, { key: caller.key })).body.id, id).toBe(request);
    const [done] = await logs("?kind=admin");
    expect((await app.call(`/v1/logs/${done.id}`, undefined, { key: caller.key })).body).toEqual(done);
    const stranger = await app.caller();
    for (const id of [request, answer.body.id, done.id, "nothing", "req_", "_", "%00"]) {
      const { status } = await app.call(`/v1/logs/${id}`, undefined, { key: stranger.key });
      expect([404, 422], id).toContain(status);
    }
  });

  it("can be filtered by status, robot, session, model and provider", async () => {
    const mine = await app.caller();
    const known = { metadata: { robot_id: "r7" }, provider: { session_id: 'a "word"' } };
    const [good, bad, other] = [await act(known, mine), await act({ ...known, horizon: 0 }, mine), await act({}, mine)];
    const ids = async (query: string) => (await logs(query, mine)).map(({ id }: { id: string }) => id);
    const session = encodeURIComponent('a "word"');
    expect(await ids("")).toEqual([other, bad, good].map(idOf));
    expect(await ids("?status=settled")).toEqual([other, good].map(idOf));
    expect(await ids("?status=failed")).toEqual([idOf(bad)]);
    expect(await ids("?robot_id=r7")).toEqual([bad, good].map(idOf));
    expect(await ids(`?session_id=${session}&status=settled`)).toEqual([idOf(good)]);
    expect(await ids(`?model=${named.acme}%2Fbase`)).toEqual([other, bad, good].map(idOf));
    expect(await ids(`?model=${named.acme}%2Felse`)).toEqual([]);
    expect(await ids(`?provider=${named.acme}`)).toEqual([other, good].map(idOf));
    expect(await ids("?robot_id=r8")).toEqual([]);
    expect(await ids(`?kind=admin&provider=${named.acme}`)).toEqual([]);
    expect((await app.call("/v1/logs?status=dancing", undefined, mine)).status).toBe(422);
    const { text } = await app.call("/v1/logs/export?robot_id=r7", undefined, { key: mine.key });
    expect(text.trimEnd().split("\n")).toHaveLength(2);
  });
});

describe("a control loop", () => {
  it("is recorded with robot, attempts and holds by reason, and without a chunk if it was refused", async () => {
    const mine = await app.caller();
    const loop = robot(app, mine.key, {
      model: `${named.acme}/base`,
      actionSpace: "base_twist_2d",
      horizon: 2,
      robotId: "r9",
    });
    await loop.expect("opened");
    for (const step of [1, 2]) {
      loop.observe(step);
      await loop.expect("chunk");
    }
    market.model.script.act = (_call, _answer, served) => served.stream.close();
    loop.observe(3);
    expect((await loop.expect("hold")).reason).toBe(HoldReason.UPSTREAM_FAILED);
    market.model.script.act = undefined;
    loop.halfClose();
    await loop.rest();
    const told = await eventually(async () => {
      const records = await logs("?robot_id=r9", mine);
      const sum = (pick: (record: never) => number): number =>
        records.map(pick).reduce((a: number, b: number) => a + b, 0);
      expect(sum(({ units }: { units: number }) => units)).toBe(4);
      const holds = records.flatMap(({ holds }: { holds: Record<string, number> }) => Object.entries(holds));
      expect(holds).toEqual([["upstream_failed", 1]]);
      return records;
    });
    const attempts = told.flatMap(({ attempts }: { attempts: object[] }) => attempts);
    expect(attempts).toContainEqual(expect.objectContaining({ status: "ok", count: expect.any(Number) }));
    expect(attempts).toContainEqual(expect.objectContaining({ status: "error", reason: expect.any(String), count: 1 }));
    for (const record of told)
      expect(record).toMatchObject({ kind: "act", stream_id: expect.stringMatching(/^req_/), robot_id: "r9" });

    const refused = robot(app, mine.key, { model: `${named.acme}/none`, actionSpace: "base_twist_2d", robotId: "r10" });
    await expect(refused.next()).rejects.toThrow();
    await eventually(async () =>
      expect(await logs("?robot_id=r10", mine)).toMatchObject([{ error_code: "model_not_found", holds: {} }]),
    );
  });
});

describe("kinds", () => {
  it("are batch for items and refused batches, and preview for previews, which are free", async () => {
    const mine = await app.caller();
    const made = await app.call("/v1/routes/preview", TWIST, { key: mine.key });
    const [preview] = await logs("?kind=preview", mine);
    expect(preview).toMatchObject({ id: idOf(made), kind: "preview", preview: true, status: "done", cost_usd: 0 });
    expect(await logs("", mine)).toEqual([]);
    expect((await app.call(`/v1/logs/${preview.id}`, undefined, { key: mine.key })).body).toEqual(preview);
    expect((await app.call("/v1/usage", undefined, { key: mine.key })).body).toMatchObject({
      data: [],
      totals: { requests: 0 },
    });
    const refused = await app.call("/v1/batch", { contract: "act", requests: [] }, { key: mine.key });
    expect((await logs("?kind=batch", mine))[0]).toMatchObject({
      id: idOf(refused),
      kind: "batch",
      error_code: "validation_failed",
    });
  });

  it("name the batch of an item", async () => {
    await using stack = new AsyncDisposableStack();
    const busy = await ownGateway({ roles: new Set(["api", "worker"]) });
    stack.defer(() => busy.close());
    await busy.supply({ provider: named.busy, model: `${named.busy}/base`, endpoint: market.model.endpoint });
    const { key } = await busy.caller();
    const requests = [
      { ...TWIST, model: `${named.busy}/base` },
      { ...TWIST, model: `${named.busy}/nowhere` },
    ];
    const { body } = await busy.call("/v1/batch", { contract: "act", requests }, { key });
    await eventually(async () => {
      const { data } = (await busy.call("/v1/logs?kind=batch", undefined, { key })).body;
      expect(
        data.map((each: Record<string, unknown>) => [each.kind, each.contract, each.batch_id, each.status]).sort(),
      ).toEqual([
        ["batch", "act", body.id, "failed"],
        ["batch", "act", body.id, "settled"],
      ]);
    });
    expect((await busy.call("/v1/logs?kind=act", undefined, { key })).body.data).toEqual([]);
  });
});
