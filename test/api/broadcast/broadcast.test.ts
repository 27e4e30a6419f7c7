/** Broadcast: targets are tried out, saved, and sent the spans of calls. */
import { create, toBinary } from "@bufbuild/protobuf";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { GroundResponseSchema } from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import { redSquare } from "../../../src/upstream/test-picture.ts";
import { type App, type Caller, openApp } from "../../support/app.ts";
import { bearer, inference } from "../../support/clients.ts";
import { eventually } from "../../support/eventually.ts";
import { type Model, startModel } from "../../support/model.ts";
import {
  type OtlpReceiver,
  type ReceivedSpan,
  startOtlpGrpcReceiver,
  startOtlpReceiver,
} from "../../support/otlp-receiver.ts";

let app: App;
let model: Model;
let caller: Caller;
let broken: Model;
let observations: object[];
/** The traces that the model's server was told of. */
const traces: (string | undefined)[] = [];
const receivers: OtlpReceiver[] = [];

beforeAll(async () => {
  [app, model, broken] = await Promise.all([
    openApp({ roles: new Set(["api", "worker"]) }),
    startModel(),
    startModel(),
  ]);
  for (const [provider, { endpoint }] of [
    ["acme", model],
    ["broken", broken],
  ] as const)
    await app.supply({ provider, model: `${provider}/base`, endpoint });
  await app.supply({
    provider: "acme",
    model: "acme/eyes",
    endpoint: model.endpoint,
    contracts: ["ground"],
    action_spaces: [],
    price_per_action_step: undefined,
    price_per_1k_tokens: 0.01,
  });
  model.script.ground = (_call, served) => {
    traces.push(served.headers.traceparent as string | undefined);
    served.send(toBinary(GroundResponseSchema, create(GroundResponseSchema, { points: [{ x: 0.5, y: 0.5 }] })));
    served.end();
  };
  broken.script.act = (_call, _answer, served) => served.end(13, "no");
  caller = await app.caller();
  const picture = (await redSquare(0.3, 0.3)).toString("base64");
  observations = [{ frames: [{ camera: "front", url: `data:image/png;base64,${picture}` }] }];
});
afterEach(async () => {
  const { body } = await app.call("/v1/broadcast", undefined, { key: caller.key });
  for (const { id } of body.data)
    await app.call(`/v1/broadcast/${id}`, undefined, { key: caller.key, method: "DELETE" });
  for (const receiver of receivers.splice(0)) await receiver.close();
  traces.splice(0);
});
afterAll(async () => {
  await app.close();
  await model.close();
  await broken.close();
});

async function receiver(grpc = false): Promise<OtlpReceiver> {
  const started = await (grpc ? startOtlpGrpcReceiver() : startOtlpReceiver());
  receivers.push(started);
  return started;
}

const targets = async () => (await app.call("/v1/broadcast", undefined, { key: caller.key })).body.data;
const register = (body: object, key = caller.key) => app.call("/v1/broadcast", body, { key });
const TWIST = { model: "acme/base", action_space: "base_twist_2d", horizon: 3, observations: [{ proprio: [0.5, 2] }] };
const act = (body: object = {}, headers: Record<string, string> = {}, key = caller.key) =>
  app.call("/v1/act", { ...TWIST, ...body }, { key, headers });
const ground = (headers: Record<string, string> = {}) =>
  app.call("/v1/ground", { model: "acme/eyes", instruction: "the cup", observations }, { key: caller.key, headers });
/** Waits for a fact. */
const real = ({ spans }: OtlpReceiver): ReceivedSpan[] => spans.filter(({ name }) => name !== "limber.test");
const rootsOf = (receiver: OtlpReceiver): ReceivedSpan[] =>
  real(receiver).filter(({ name }) => /^gateway\./.test(name));

describe("a target", () => {
  it("is saved once it took an empty test span, with its headers, which are never shown", async () => {
    const to = await receiver();
    const made = await register({
      name: "ours",
      endpoint: to.url,
      headers: { "x-api-key": "a secret of theirs" },
      resource_attributes: { "deployment.environment": "test" },
    });
    expect(made.status).toBe(201);
    expect(made.body).toEqual({
      id: expect.stringMatching(/^bct_/),
      object: "broadcast_target",
      name: "ours",
      type: "otlp",
      endpoint: to.url,
      protocol: "http/protobuf",
      header_names: ["x-api-key"],
      sampling_rate: 1,
      privacy_mode: false,
      resource_attributes: { "deployment.environment": "test" },
      enabled: true,
      events: false,
      status: "active",
      dropped_spans: 0,
      created_at: expect.any(Number),
    });
    expect(to.requests).toEqual([
      { path: "/v1/traces", headers: expect.objectContaining({ "x-api-key": "a secret of theirs" }) },
    ]);
    expect(to.spans).toEqual([
      expect.objectContaining({
        name: "limber.test",
        attributes: {},
        resource: expect.objectContaining({ "service.name": "limber", "deployment.environment": "test" }),
      }),
    ]);
    const [row] = await app.sql<{ text: string }[]>`select broadcast_target::text as text from broadcast_target`;
    expect(row!.text).not.toContain("a secret of theirs");
    const { body } = await app.call("/v1/broadcast", undefined, { key: caller.key });
    expect(body).toEqual({ object: "list", data: [made.body], has_more: false });
  });

  it.each([
    ["answers 401", 401],
    ["answers 500", 500],
    ["redirects", 302],
  ])("that %s is not saved, and the refusal says why", async (_, status) => {
    const to = await receiver();
    to.answer(status);
    const { status: refused, body } = await register({ endpoint: to.url });
    expect(refused).toBe(422);
    expect(body.error).toMatchObject({
      code: "broadcast_test_failed",
      param: "endpoint",
      message: expect.stringContaining(`HTTP ${status}`),
    });
    expect((await app.call("/v1/broadcast", undefined, { key: caller.key })).body.data).toEqual([]);
  });

  it.each([
    ["http/protobuf", "http://127.0.0.1:1"],
    ["grpc", "http://127.0.0.1:1"],
    ["http/protobuf", "http://169.254.169.254/latest"],
    ["grpc", "http://169.254.169.254"],
    ["http/json", "file:///etc/passwd"],
    ["http/json", "http://user:word@127.0.0.1:4318"],
    ["http/json", "no address"],
  ])("by %s at %s is refused", async (protocol, endpoint) => {
    const { status, body } = await register({ endpoint, protocol });
    expect(status).toBeGreaterThanOrEqual(400);
    expect(status).toBeLessThan(500);
    expect(["address_refused", "broadcast_test_failed"]).toContain(body.error.code);
  });

  it.each([
    ["no endpoint", {}],
    ["a rate of 0", { sampling_rate: 0 }],
    ["a rate of 1.1", { sampling_rate: 1.1 }],
    ["another protocol", { protocol: "udp" }],
    ["a header that frames", { headers: { "Content-Type": "text/html" } }],
    ["a header with a line break", { headers: { "x-a": "b\r\nc: d" } }],
    ["an unknown contract", { filter: { contracts: ["dance"] } }],
    ["an unknown field", { sample_rate: 1 }],
  ])("with %s is refused", async (what, body) => {
    const to = await receiver();
    const { status } = await register(what === "no endpoint" ? body : { endpoint: to.url, ...body });
    expect(status).toBe(422);
    expect(to.requests).toEqual([]);
  });

  it("is of its organisation alone, and may be changed and deleted", async () => {
    const [to, other] = [await receiver(), await receiver()];
    const { id } = (await register({ endpoint: to.url })).body;
    const stranger = await app.caller();
    for (const method of ["GET", "DELETE", "PATCH"])
      expect(
        (await app.call(`/v1/broadcast/${id}`, method === "PATCH" ? {} : undefined, { key: stranger.key, method }))
          .status,
      ).toBe(404);
    const patch = (body: object) => app.call(`/v1/broadcast/${id}`, body, { key: caller.key, method: "PATCH" });
    expect((await patch({ name: "renamed", sampling_rate: 0.5 })).body).toMatchObject({
      name: "renamed",
      sampling_rate: 0.5,
      endpoint: to.url,
    });
    expect(to.requests).toHaveLength(1);
    other.answer(403);
    expect((await patch({ endpoint: other.url })).body.error.code).toBe("broadcast_test_failed");
    expect((await app.call(`/v1/broadcast/${id}`, undefined, { key: caller.key })).body.endpoint).toBe(to.url);
    expect((await patch({ enabled: false })).body.status).toBe("disabled");
    const gone = await app.call(`/v1/broadcast/${id}`, undefined, { key: caller.key, method: "DELETE" });
    expect(gone.body).toEqual({ object: "broadcast_target", id, deleted: true });
    await act();
    expect(real(to)).toEqual([]);
  });

  it("is one of ten at most", async () => {
    const to = await receiver();
    for (let i = 0; i < 10; i++) expect((await register({ endpoint: to.url })).status).toBe(201);
    expect((await register({ endpoint: to.url })).body.error.code).toBe("too_many");
  });
});

describe("the spans of a call", () => {
  it.each(["http/protobuf", "http/json", "grpc"])("come by %s: root, attempt and upstream", async (protocol) => {
    const to = await receiver(protocol === "grpc");
    const made = await register({ endpoint: to.url, protocol, headers: { "X-Key": "k" } });
    expect(made.status).toBe(201);
    const answer = await act({ provider: { session_id: "episode 7" }, metadata: { run: "a" } });
    await eventually(() => expect(real(to)).toHaveLength(3));
    expect(to.requests.at(-1)!.headers["x-key"]).toBe("k");
    const [root, attempt, upstream] = real(to) as [ReceivedSpan, ReceivedSpan, ReceivedSpan];
    expect([root.name, attempt.name, upstream.name]).toEqual(["gateway.act", "attempt", "upstream"]);
    expect(root.parentSpanId).toBe("");
    expect(attempt.parentSpanId).toBe(root.spanId);
    expect(upstream.parentSpanId).toBe(attempt.spanId);
    expect(new Set([root.traceId, attempt.traceId, upstream.traceId]).size).toBe(1);
    expect(root.attributes).toMatchObject({
      "gen_ai.request.model": "acme/base",
      "gen_ai.response.model": "acme/base",
      "gen_ai.provider.name": "acme",
      "session.id": "episode 7",
      "robot.contract": "act",
      "robot.action_space": "base_twist_2d",
      "robot.horizon": 3,
      "robot.dt_ms": 50,
      "robot.simulated": false,
      "robot.observation_age_ms": expect.any(Number),
      "route.fallback_used": false,
      "route.hedged": false,
      "cost.usd": answer.body.usage.cost_usd,
      "limber.request_id": answer.headers.get("x-request-id"),
      "limber.metadata.run": "a",
    });
    expect(root.startNano <= attempt.startNano && attempt.endNano <= root.endNano).toBe(true);
    expect(root.endNano > root.startNano).toBe(true);
  });

  it("go on from the caller's trace, which is handed on even where nobody watches", async () => {
    const to = await receiver();
    const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    expect((await ground({ traceparent })).status).toBe(200);
    expect(traces.splice(0)).toEqual([traceparent]);
    await ground({ traceparent: "00-zz-b7ad6b7169203331-01" });
    expect(traces.splice(0)).toEqual([undefined]);
    await register({ endpoint: to.url });
    await ground({ traceparent });
    await eventually(() => expect(real(to)).toHaveLength(3));
    expect(rootsOf(to)[0]).toMatchObject({
      name: "gateway.ground",
      traceId: "0af7651916cd43dd8448eb211c80319c",
      parentSpanId: "b7ad6b7169203331",
    });
    // The model's server is told of the same trace, as a child of the last span.
    expect(traces).toEqual([`00-0af7651916cd43dd8448eb211c80319c-${real(to)[2]!.spanId}-01`]);
  });

  it("go on from the trace in the metadata of gRPC", async () => {
    const to = await receiver();
    await register({ endpoint: to.url });
    const headers = { traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00" };
    for (const face of ["grpc", "connect"] as const)
      await inference(app, face).act(
        { model: "acme/base", actionSpace: "base_twist_2d", horizon: 2, observations: [{ proprio: [0.5, 2] }] },
        bearer(caller.key, headers),
      );
    await eventually(() => expect(rootsOf(to)).toHaveLength(2));
    for (const { traceId } of rootsOf(to)) expect(traceId).toBe("0af7651916cd43dd8448eb211c80319c");
  });

  it("tell of failures and fallbacks", async () => {
    const to = await receiver();
    await register({ endpoint: to.url });
    const { status } = await act({ model: "broken/base" });
    expect(status).toBe(502);
    await eventually(() => expect(real(to)).toHaveLength(3));
    const [root, attempt] = real(to) as [ReceivedSpan, ReceivedSpan];
    expect(root).toMatchObject({ status: 2, attributes: { "error.type": "all_attempts_failed", "cost.usd": 0 } });
    expect(root.attributes).not.toHaveProperty("gen_ai.response.model");
    expect(attempt).toMatchObject({ status: 2, attributes: { "error.type": expect.any(String) } });
    await act({ model: "broken/base", models: ["acme/base"] });
    await eventually(() => expect(rootsOf(to)).toHaveLength(2));
    expect(rootsOf(to)[1]!.attributes).toMatchObject({
      "route.fallback_used": true,
      "gen_ai.request.model": "broken/base",
      "gen_ai.response.model": "acme/base",
    });
  });

  it("in privacy mode say nothing of who called", async () => {
    const to = await receiver();
    await register({ endpoint: to.url, privacy_mode: true });
    await act({ provider: { session_id: "Ada's kitchen" }, metadata: { who: "Ada" } });
    await eventually(() => expect(rootsOf(to)).toHaveLength(1));
    const { attributes } = rootsOf(to)[0]!;
    expect(JSON.stringify(attributes)).not.toMatch(/Ada|key_/);
    expect(attributes["session.id"]).toMatch(/^[0-9a-f]{32}$/);
  });

  it("are sent for whole sessions or not at all", async () => {
    const [some, all] = [await receiver(), await receiver()];
    await register({ endpoint: some.url, sampling_rate: 0.5 });
    await register({ endpoint: all.url });
    const sessions = Array.from({ length: 16 }, (_, i) => `episode ${i}`);
    for (const session_id of [...sessions, ...sessions]) await act({ provider: { session_id } });
    await eventually(() => expect(rootsOf(all)).toHaveLength(32));
    const counts = new Map<unknown, number>();
    for (const { attributes } of rootsOf(some))
      counts.set(attributes["session.id"], (counts.get(attributes["session.id"]) ?? 0) + 1);
    expect(counts.size).toBeGreaterThan(0);
    expect(counts.size).toBeLessThan(16);
    expect(new Set(counts.values())).toEqual(new Set([2]));
  });

  it("come only of the calls that the filter lets through", async () => {
    const [models, keys, predicts] = [await receiver(), await receiver(), await receiver()];
    const second = await app.key(caller.org, { role: "owner" });
    const inspected = await app.call("/v1/key", undefined, { key: second });
    await register({ endpoint: models.url, filter: { models: ["acme/*"] } });
    await register({ endpoint: keys.url, filter: { key_ids: [inspected.body.id] } });
    await register({ endpoint: predicts.url, filter: { contracts: ["predict"] } });
    await act();
    await act({ model: "broken/base" });
    await act({}, {}, second);
    await eventually(() => expect([rootsOf(models).length, rootsOf(keys).length]).toEqual([2, 1]));
    expect(rootsOf(predicts)).toEqual([]);
  });
});

describe("the events of an organisation", () => {
  const eventsAt = ({ spans }: OtlpReceiver) => spans.filter(({ name }) => name.startsWith("event."));

  it("reach a target that asks for them as spans of no length, and no other, on every protocol", async () => {
    const [binary, json, grpc, silent] = [await receiver(), await receiver(), await receiver(true), await receiver()];
    await register({ endpoint: binary.url, events: true });
    await register({ endpoint: json.url, events: true, protocol: "http/json" });
    await register({ endpoint: grpc.url, events: true, protocol: "grpc", privacy_mode: true });
    expect((await register({ endpoint: silent.url })).body.events).toBe(false);
    const { id } = await app.admin(`/v1/orgs/${caller.org}/keys`, {});
    const [{ event_id: eventId } = { event_id: "" }] = await app.sql<{ event_id: string }[]>`
      select event_id from outbox where org_id = ${caller.org} order by position desc limit 1`;
    for (const to of [binary, json, grpc]) await eventually(() => expect(eventsAt(to)).toHaveLength(1));
    for (const to of [binary, json, grpc]) {
      const [span] = eventsAt(to);
      expect(span).toMatchObject({
        name: "event.key.created",
        parentSpanId: "",
        attributes: { "limber.event.id": eventId, "limber.event.name": "key.created" },
        resource: { "service.name": "limber" },
      });
      expect(span!.startNano).toBe(span!.endNano);
      const data = span!.attributes["limber.event.data"];
      expect(data).toBe(to === grpc ? undefined : JSON.stringify({ key_id: id }));
    }
    expect(eventsAt(silent)).toEqual([]);
    await eventually(async () => expect(await app.sql`select 1 from broadcast_event`).toHaveLength(0));
  });

  it("wait for a receiver that fails for a while, and come under the same names", async () => {
    const to = await receiver();
    await register({ endpoint: to.url, events: true });
    to.answer(503);
    await app.admin(`/v1/orgs/${caller.org}/keys`, {});
    await eventually(async () => expect((await targets())[0].last_error).toBe("bad_status"));
    to.answer(200);
    await eventually(() => expect(eventsAt(to)).toHaveLength(1));
    await eventually(async () => expect((await targets())[0]).toMatchObject({ status: "active", dropped_spans: 0 }));
  });

  it("that a receiver refuses are given up and counted", async () => {
    const to = await receiver();
    await register({ endpoint: to.url, events: true });
    to.answer(400);
    await app.admin(`/v1/orgs/${caller.org}/keys`, {});
    await eventually(async () => expect((await targets())[0]).toMatchObject({ status: "failing", dropped_spans: 1 }));
    expect(await app.sql`select 1 from broadcast_event`).toHaveLength(0);
  });
});

describe("a receiver that fails", () => {
  it("costs its spans, which are counted, and the next success clears the error", async () => {
    const to = await receiver();
    const { id } = (await register({ endpoint: to.url })).body;
    const shown = async () => (await app.call(`/v1/broadcast/${id}`, undefined, { key: caller.key })).body;
    to.answer(400);
    expect((await act()).status).toBe(200);
    await eventually(async () =>
      expect(await shown()).toMatchObject({ status: "failing", last_error: "bad_status", dropped_spans: 3 }),
    );
    to.answer(200);
    await act();
    await eventually(() => expect(rootsOf(to)).toHaveLength(1));
    await eventually(async () => {
      const body = await shown();
      expect(body).toMatchObject({ status: "active", dropped_spans: 3 });
      expect(body).not.toHaveProperty("last_error");
    });
  });

  it("for a while gets them later", async () => {
    const to = await receiver();
    const { id } = (await register({ endpoint: to.url })).body;
    to.answer(503);
    await act();
    await eventually(async () =>
      expect((await app.call(`/v1/broadcast/${id}`, undefined, { key: caller.key })).body.status).toBe("failing"),
    );
    to.answer(200);
    await eventually(() => expect(rootsOf(to)).toHaveLength(1));
    expect((await app.call(`/v1/broadcast/${id}`, undefined, { key: caller.key })).body.dropped_spans).toBe(0);
  });
});
