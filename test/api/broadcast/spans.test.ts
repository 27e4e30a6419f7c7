/** Broadcast: the spans of calls, and what becomes of them where a receiver fails. */
import { describe, expect, it } from "vitest";
import { ACT_DECLARATION } from "../../support/app.ts";
import { bearer, inference } from "../../support/clients.ts";
import { eventually } from "../../support/eventually.ts";
import type { ReceivedSpan } from "../../support/otlp-receiver.ts";
import { act, app, caller, ground, real, receiver, register, rootsOf, traces, useScene } from "./scene.ts";

useScene();

describe("the spans of a call", () => {
  it.each(["http/protobuf", "http/json", "grpc"])("arrive by %s: root, attempt and upstream", async (protocol) => {
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
      "robot.dt_ms": ACT_DECLARATION.dt_ms,
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

  it("continue the caller's trace, which is forwarded even without a target", async () => {
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

  it("continue the trace in gRPC metadata", async () => {
    const to = await receiver();
    await register({ endpoint: to.url });
    const headers = { traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00" };
    for (const transport of ["grpc", "connect"] as const)
      await inference(app, transport).act(
        { model: "acme/base", actionSpace: "base_twist_2d", horizon: 2, observations: [{ proprio: [0.5, 2] }] },
        bearer(caller.key, headers),
      );
    await eventually(() => expect(rootsOf(to)).toHaveLength(2));
    for (const { traceId } of rootsOf(to)) expect(traceId).toBe("0af7651916cd43dd8448eb211c80319c");
  });

  it("show failures and fallbacks", async () => {
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

  it("omit the caller in privacy mode", async () => {
    const to = await receiver();
    await register({ endpoint: to.url, privacy_mode: true });
    await act({ provider: { session_id: "Ada's kitchen" }, metadata: { who: "Ada" } });
    await eventually(() => expect(rootsOf(to)).toHaveLength(1));
    const { attributes } = rootsOf(to)[0]!;
    expect(JSON.stringify(attributes)).not.toMatch(/Ada|key_/);
    expect(attributes["session.id"]).toMatch(/^[0-9a-f]{32}$/);
  });

  it("are sampled by session", async () => {
    const [some, all] = [await receiver(), await receiver()];
    await register({ endpoint: some.url, sampling_rate: 0.5 });
    await register({ endpoint: all.url });
    const sessions = Array.from({ length: 16 }, (_, i) => `episode ${i}`);
    for (const session_id of [...sessions, ...sessions]) await act({ provider: { session_id } });
    await eventually(() => expect(rootsOf(all)).toHaveLength(32));
    // Each receiver gets its spans in its own time.
    await eventually(() => {
      const counts = new Map<unknown, number>();
      for (const { attributes } of rootsOf(some))
        counts.set(attributes["session.id"], (counts.get(attributes["session.id"]) ?? 0) + 1);
      expect(counts.size).toBeGreaterThan(0);
      expect(counts.size).toBeLessThan(16);
      expect(new Set(counts.values())).toEqual(new Set([2]));
    });
  });

  it("are limited to calls that match the filter", async () => {
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

describe("a receiver that fails", () => {
  it("loses its spans, which are counted, until the next success clears the error", async () => {
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

  it("gets its spans later after a short outage", async () => {
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
