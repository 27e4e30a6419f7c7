/** POST /v1/act and its other transports. */
import { beforeAll, describe, expect, it } from "vitest";
import { ACT_DECLARATION, type App, type Caller } from "../../support/app.ts";
import { bearer, inference, type RpcFace, readEvents, refusalIn } from "../../support/clients.ts";
import type { Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import { openModel, openWorld } from "../../support/world.ts";

const named = uniqueNames("acme", "shelf");

let app: App;
let model: Model;
let caller: Caller;
let offering: string;

beforeAll(async () => {
  [app, model] = await Promise.all([openWorld(), openModel()]);
  const about = { regions: ["eu"] };
  offering = await app.supply({
    provider: named.acme,
    about,
    model: `${named.acme}/base`,
    endpoint: model.endpoint,
    precision: "bf16",
    parameters: ["seed"],
  });
  await app.supply({
    provider: named.acme,
    model: `${named.acme}/arm`,
    endpoint: model.endpoint,
    action_spaces: ["ee_delta_6d_grip"],
  });
  caller = await app.caller();
});

const TWIST = {
  model: `${named.acme}/base`,
  action_space: "base_twist_2d",
  horizon: 3,
  observations: [{ proprio: [0.5, 2] }],
};
const act = (body: object = {}, key = caller.key) => app.call("/v1/act", { ...TWIST, ...body }, { key });

describe("200", () => {
  it("acts in the only action space of a model if the request names none", async () => {
    const { status, body } = await act({ action_space: undefined });
    expect([status, body.action?.space], JSON.stringify(body)).toEqual([200, "base_twist_2d"]);
  });

  it("sends a provider the bytes of a sample image that the request names by its path", async () => {
    const frames = [{ camera: "wrist", url: "/samples/red-square.png" }];
    const { status, body } = await act({ observations: [{ proprio: [0.5, 2], frames }] });
    expect(status, JSON.stringify(body)).toBe(200);
    const shown = await fetch(new URL("/samples/red-square.png", app.url));
    const sent = model.acts.at(-1)!.observations[0]!.frames[0]!;
    expect(Buffer.from(sent.data).equals(Buffer.from(await shown.arrayBuffer()))).toBe(true);
    const missing = await act({
      observations: [{ proprio: [0.5, 2], frames: [{ ...frames[0], url: "/samples/blue.png" }] }],
    });
    expect([missing.status, missing.body.error.code]).toEqual([422, "address_refused"]);
  });

  it("returns every field of the specification and no unknown one", async () => {
    const { status, headers, body } = await act();
    expect(status).toBe(200);
    const tail = headers.get("x-request-id")?.slice("req_".length);
    expect(body).toEqual({
      id: `act_${tail}`,
      object: "world.action",
      created: expect.closeTo(Date.now() / 1000, -2),
      model: `${named.acme}/base`,
      action: {
        space: "base_twist_2d",
        steps: [
          [0.5, 0.501],
          [0.51, 0.511],
          [0.52, 0.521],
        ],
        dt_ms: ACT_DECLARATION.dt_ms,
        note: "",
      },
      route: {
        model: `${named.acme}/base`,
        provider: named.acme,
        offering_id: offering,
        region: "eu",
        precision: "bf16",
        attempts: [
          {
            model: `${named.acme}/base`,
            provider: named.acme,
            offering_id: offering,
            status: "ok",
            latency_ms: expect.any(Number),
          },
        ],
        fallback_used: false,
        simulated: false,
      },
      usage: { action_steps: 3, gpu_seconds: 0.0025, cost_usd: 0.0003 },
      chunk_id: `chunk_${tail}`,
      valid_until_ms: 3 * ACT_DECLARATION.dt_ms,
      observation_age_ms: expect.any(Number),
      prediction: [],
    });
  });

  it("returns version, request id and remaining limits on every response", async () => {
    const { headers } = await act();
    expect(headers.get("content-type")).toBe("application/json");
    expect(headers.get("x-api-version")).toBe("0.1.0");
    expect(headers.get("x-request-id")).toMatch(/^req_[0-9A-Z]{26}$/);
    expect(headers.get("ratelimit-policy")).toBe('"key";q=6000;w=60');
    expect(headers.get("ratelimit")).toMatch(/^"key";r=\d+;t=\d+$/);
    expect(headers.get("x-ratelimit-limit")).toBe("6000");
    expect(Number(headers.get("x-ratelimit-remaining"))).toBeGreaterThan(0);
    expect(Number(headers.get("x-ratelimit-reset"))).toBeGreaterThan(Date.now() / 1000 - 5);
  });

  it("uses ee_delta_6d_grip and 16 steps by default", async () => {
    const { status, body } = await app.call(
      "/v1/act",
      { model: `${named.acme}/arm`, observations: [{ proprio: [0] }] },
      { key: caller.key },
    );
    expect([status, body.action?.space]).toEqual([200, "ee_delta_6d_grip"]);
    expect(body.action.steps.map((step: number[]) => step.length)).toEqual(Array(16).fill(7));
    expect(body.usage).toMatchObject({ action_steps: 16, cost_usd: 0.0016 });
  });

  it("accepts null for every optional field", async () => {
    const { status } = await act({
      models: null,
      preference: null,
      provider: null,
      seed: null,
      preset: null,
      idempotency_key: null,
      instruction: null,
      goal_image: null,
      temperature: null,
      metadata: null,
    });
    expect(status).toBe(200);
  });

  it("forwards the caller's input and nothing about the caller", async () => {
    const before = model.acts.length;
    await act({ instruction: "go to the door", seed: 7, provider: { session_id: "episode-1" } });
    expect(model.acts.slice(before)).toMatchObject([
      { model: `${named.acme}/base`, instruction: "go to the door", seed: 7, horizon: 3, actionSpace: "base_twist_2d" },
    ]);
    expect(JSON.stringify(model.acts.at(-1))).not.toContain(caller.key);
    expect(JSON.stringify(model.acts.at(-1))).not.toContain(caller.org);
  });

  it("reports what happened to the session's pin", async () => {
    const provider = { session_id: "episode-2" };
    expect((await act({ provider })).body.route.pin).toBe("new");
    expect((await act({ provider })).body.route.pin).toBe("kept");
  });

  it("follows a preference, a sort and every suffix", async () => {
    for (const preference of ["balanced", "fastest", "cheapest", "reliable"])
      expect((await act({ preference })).status).toBe(200);
    for (const sort of ["price", "latency", "throughput", "quality"])
      expect((await act({ provider: { sort } })).status).toBe(200);
    for (const suffix of [":nitro", ":turbo", ":floor", ":quality"])
      expect((await act({ model: `${named.acme}/base${suffix}` })).body.model).toBe(`${named.acme}/base`);
  });
});

describe("stream: true", () => {
  it("sends route, one event per step, and done", async () => {
    const events = await readEvents(app, "/v1/act", { ...TWIST, stream: true }, caller.key);
    expect([events.status, events.type]).toEqual([200, "text/event-stream; charset=utf-8"]);
    const read = await events.rest();
    expect(read.map(({ event }) => event)).toEqual(["route", "step", "step", "step", "done"]);
    expect(JSON.stringify(read.slice(1, 4).map(({ data }) => data))).toContain("0.501");
    expect(JSON.stringify(read[0]?.data)).toContain(offering);
    expect(JSON.stringify(read[4]?.data)).toContain('"cost_usd":0.0003');
  });

  it("is refused with a plain error before the first event", async () => {
    const { status, body, headers } = await act({ stream: true, model: `${named.acme}/nothing` });
    expect([status, body.error.code, headers.get("content-type")]).toEqual([
      404,
      "model_not_found",
      "application/json",
    ]);
  });

  it("is refused on transports without event streams", async () => {
    for (const transport of ["connect", "grpc"] as const) {
      const call = inference(app, transport).act(message({ stream: true }), bearer(caller.key));
      expect(await refusalIn(call)).toMatchObject({ code: "InvalidArgument", reason: "stream_unsupported" });
    }
  });
});

const message = (more: object = {}) => ({
  model: `${named.acme}/base`,
  actionSpace: "base_twist_2d",
  horizon: 3,
  observations: [{ proprio: [0.5, 2] }],
  ...more,
});

describe.each<RpcFace>(["connect", "grpc", "grpc-web"])("over %s", (transport) => {
  it("returns the same as REST", async () => {
    const answer = await inference(app, transport).act(message(), bearer(caller.key));
    expect(answer).toMatchObject({
      object: "world.action",
      model: `${named.acme}/base`,
      action: { space: "base_twist_2d", dtMs: ACT_DECLARATION.dt_ms, steps: [{ values: [0.5, 0.501] }, {}, {}] },
      route: { simulated: false, fallbackUsed: false, attempts: [{ provider: named.acme, offeringId: offering }] },
      usage: { actionSteps: 3, costUsd: 0.0003 },
    });
  });

  it("refuses for the same reasons as REST does", async () => {
    const client = inference(app, transport);
    expect(await refusalIn(client.act(message(), bearer("lmb_sk_nobody")))).toMatchObject({
      code: "Unauthenticated",
      reason: "invalid_api_key",
    });
    expect(await refusalIn(client.act(message({ model: `${named.acme}/nothing` }), bearer(caller.key)))).toMatchObject({
      code: "NotFound",
      reason: "model_not_found",
    });
    expect(await refusalIn(client.act(message({ horizon: 257 }), bearer(caller.key)))).toMatchObject({
      code: "InvalidArgument",
      reason: "validation_failed",
      details: { violations: [{ path: "horizon", type: "less_than_equal" }] },
    });
    const nan = message({ observations: [{ proprio: [Number.NaN] }, { proprio: [Number.POSITIVE_INFINITY] }] });
    expect(await refusalIn(client.act(nan, bearer(caller.key)))).toMatchObject({
      code: "InvalidArgument",
      reason: "validation_failed",
      details: { violations: [{ path: "observations.0.proprio.0" }, { path: "observations.1.proprio.0" }] },
    });
    const dropped = message({ provider: { only: ["nobody"] } });
    expect(await refusalIn(client.act(dropped, bearer(caller.key)))).toMatchObject({
      code: "FailedPrecondition",
      reason: "no_route_available",
      details: { dropped: [{ offeringId: offering }] },
    });
  });
});

describe("404", () => {
  it("suggests models near an unknown one", async () => {
    const { status, body } = await act({ model: `${named.acme}/bade` });
    expect([status, body.error.code, body.error.type]).toEqual([404, "model_not_found", "not_found_error"]);
    expect(body.error.param).toBe("model");
    expect(body.error.details.near).toContain(`${named.acme}/base`);
  });

  it("refuses unknown aliases and suffixes", async () => {
    for (const name of ["service/best", `${named.acme}/base:fast`, "service/auto:hand", "base", ":turbo"])
      expect((await act({ model: name })).body.error?.code, name).toBe("model_not_found");
    expect((await act({ models: [`${named.acme}/bade`] })).body.error).toMatchObject({
      code: "model_not_found",
      param: "models.0",
    });
  });

  it("names the missing preset", async () => {
    const { status, body } = await act({ preset: "gentle" });
    expect([status, body.error.code, body.error.param]).toEqual([404, "preset_not_found", "preset"]);
  });
});

describe("409", () => {
  it("distinguishes a known model without supply from an unknown one", async () => {
    await app.catalog(`${named.shelf}/humanoid`);
    const { status, body } = await act({ model: `${named.shelf}/humanoid` });
    expect([status, body.error.type]).toEqual([409, "routing_error"]);
    expect(body.error.message).toContain("allow_simulated");
  });

  it("reports an alias without live supply the same way", async () => {
    const { status, body } = await act({ model: "service/auto:vision-3d" });
    expect([status, body.error.code]).toEqual([409, "no_live_deployment"]);
  });
});

describe("422", () => {
  it("is returned before dispatch if the model does not emit the action space", async () => {
    const before = model.acts.length;
    const { status, body } = await act({ action_space: "joint_pos_7" });
    expect([status, body.error.code]).toEqual([422, "action_space_mismatch"]);
    expect(body.error.details.needed).toEqual(["base_twist_2d"]);
    expect(model.acts.length).toBe(before);
  });

  it("lists every violation with its field, and the same again for the described service", async () => {
    const { status, body } = await act({
      horizon: 300,
      temperature: -1,
      observations: [],
      preference: "fast",
      instuction: "go",
    });
    expect(status).toBe(422);
    expect(body.error).toMatchObject({
      code: "validation_failed",
      type: "validation_error",
      status: 422,
      retryable: false,
      retry_after: null,
      source: "gateway",
      request_id: expect.stringMatching(/^req_/),
      docs_url: expect.stringMatching(/^http:..127.0.0.1:\d+.docs.errors#validation_failed$/),
    });
    const places = body.detail.map(({ loc }: { loc: string[] }) => loc.join("."));
    expect(places.sort()).toEqual(
      ["body.horizon", "body.instuction", "body.observations", "body.preference", "body.temperature"].sort(),
    );
    expect(body.detail.find(({ loc }: { loc: string[] }) => loc[1] === "horizon")).toEqual({
      loc: ["body", "horizon"],
      msg: expect.stringContaining("256"),
      type: "less_than_equal",
      input: 300,
    });
    expect(body.detail.find(({ loc }: { loc: string[] }) => loc[1] === "instuction").msg).toContain("instruction");
    expect(body.error.details.violations.length).toBe(5);
  });

  it("refuses an objective together with a sort", async () => {
    const { status, body } = await act({ provider: { objective: { price: 1 }, sort: "price" } });
    expect([status, body.error.code, body.error.param]).toEqual([422, "conflicting_preferences", "provider.objective"]);
  });

  it("refuses two different fallback chains and accepts two equal ones", async () => {
    const { status, body } = await act({ models: [`${named.acme}/arm`], provider: { models: [`${named.acme}/base`] } });
    expect([status, body.error.code, body.error.param]).toEqual([422, "conflicting_preferences", "provider.models"]);
    expect((await act({ models: [`${named.acme}/base`], provider: { models: [`${named.acme}/base`] } })).status).toBe(
      200,
    );
  });

  it("refuses misspelled constraints and unknown providers in ignore", async () => {
    const misspelt = await act({ provider: { max_latency: 5 } });
    expect([misspelt.status, misspelt.body.detail[0].loc]).toEqual([422, ["body", "provider", "max_latency"]]);
    expect(misspelt.body.detail[0].msg).toContain("max_latency_ms");
    const unknown = await act({ provider: { ignore: [`${named.acme}x`] } });
    expect([unknown.status, unknown.body.error.param]).toEqual([422, "provider.ignore.0"]);
    expect(unknown.body.error.details.near).toContain(named.acme);
  });

  it("limits metadata to 16 keys of 512 characters", async () => {
    const keys = Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`k${i}`, i]));
    expect((await act({ metadata: keys })).status).toBe(422);
    expect((await act({ metadata: { note: "x".repeat(600) } })).body.error.param).toBe("metadata.note");
    expect((await act({ metadata: { note: "x".repeat(500), list: [1, { a: null }] } })).status).toBe(200);
  });
});

describe("a client that leaves", () => {
  it("cancels the model's request and is not charged", async () => {
    const asked = Promise.withResolvers<void>();
    const before = model.cancelled();
    const { org, key } = await app.caller(1);
    model.script.act = () => asked.resolve();
    const leaving = new AbortController();
    const call = app.call("/v1/act", TWIST, { key, signal: leaving.signal });
    await asked.promise;
    leaving.abort();
    await expect(call).rejects.toThrow();
    await expect.poll(model.cancelled).toBe(before + 1);
    model.script.act = undefined;
    // The model's server hears of it before the call gives its credit back.
    await expect
      .poll(async () => (await app.call("/v1/billing/balance", undefined, { key })).body)
      .toMatchObject({ spent_usd: 0, held_usd: 0, available_usd: 1 });
    const [spent] = await app.sql`select count(*)::int as charges from entry where org_id = ${org} and kind = 'charge'`;
    expect(spent?.charges).toBe(0);
  });
});
