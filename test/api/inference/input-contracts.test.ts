/** Input contracts from end to end: declared, described, shown, probed, and held against calls before anybody is asked. */
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { afterEach, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import {
  ActRequestSchema,
  CallErrorCode,
  DescribeResponseSchema,
} from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import { redSquare, redSquareAs } from "../../../src/upstream/pictures/test-picture.ts";
import { ACT_DECLARATION, type App, type Caller } from "../../support/app.ts";
import { robot } from "../../support/loop-client.ts";
import { honestSteps, type Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import { f4, startOpenpiServer } from "../../support/openpi-server.ts";
import { pack } from "../../support/plain-msgpack.ts";
import { response, type Served } from "../../support/policy-server.ts";
import { openModel, openWorld } from "../../support/world.ts";

const named = uniqueNames("acme", "careless", "metres", "plain", "reads", "speeds", "wide");

let app: App;
let caller: Caller;
let supplier: Caller;
let model: Model;
let plain: Model;
let picture: string;

const READS = {
  cameras: [
    { name: "front", role: "scene", width: 64, height: 48, formats: ["jpeg"], required: true },
    { name: "wrist", role: "wrist", width: 32, height: 32, any_size: true },
  ],
  proprio: [{ names: ["x", "y"], units: ["m"], reference_frame: "base" }],
  language: { need: "required", languages: ["en"] },
  goal_image: { need: "none" },
};
const MEANS = [{ units: ["m/s", "rad/s"], reference: "velocity", reference_frame: "base" }];

beforeAll(async () => {
  [app, model, plain] = await Promise.all([openWorld(), openModel(), openModel()]);
  await app.supply({
    provider: named.reads,
    model: `${named.acme}/reads`,
    endpoint: model.endpoint,
    input: READS,
    actions: MEANS,
  });
  await app.supply({ provider: named.plain, model: `${named.acme}/plain`, endpoint: plain.endpoint });
  [caller, supplier] = await Promise.all([app.caller(10), app.caller(0, { role: "supplier" })]);
  await app.call("/v1/supply/providers", { name: named.careless }, { key: supplier.key });
  picture = (await redSquare(0.5, 0.5, 48)).toString("base64");
});
afterEach(() => {
  model.script.act = undefined;
});

const BASE = { action_space: "base_twist_2d", horizon: 2 };
const act = (request: object) => app.call("/v1/act", { ...BASE, ...request }, { key: caller.key });
const GOOD = {
  instruction: "go",
  observations: [
    { frames: [{ camera: "front", url: "https://robot.example/f.jpg", format: "jpeg" }], proprio: [1, 2] },
  ],
};

const declare = (more: object) =>
  app.call(
    `/v1/supply/providers/${named.careless}/models`,
    { ...ACT_DECLARATION, model: `${named.careless}/base`, endpoint: model.endpoint, ...more },
    { key: supplier.key },
  );
const verify = async (id: string) =>
  (await app.call(`/v1/supply/offerings/${id}/verify`, {}, { key: supplier.key })).body;

describe("a contract is shown", () => {
  it("by the model with its source, by its listing, routes and previews", async () => {
    const shown = { input: READS, actions: MEANS };
    const { body } = await app.call(`/v1/models/${named.acme}/reads`);
    expect(body).toMatchObject(shown);
    expect(body.offerings[0]).toMatchObject({ ...shown, input_source: "declared", actions_source: "declared" });
    expect((await app.call("/v1/models?q=reads")).body.data[0]).not.toHaveProperty("input");
    const routes = (await app.call("/v1/routes")).body.data[0].resolves_to;
    expect(routes.find(({ id }: { id: string }) => id === `${named.acme}/reads`)).toMatchObject(shown);
    expect(routes.find(({ id }: { id: string }) => id === `${named.acme}/plain`)).not.toHaveProperty("input");
    const preview = await app.call(
      "/v1/routes/preview?contract=act",
      { ...BASE, model: `${named.acme}/reads` },
      { key: caller.key },
    );
    // The size and the encoding of each camera's pictures, as the chosen offering wants them.
    expect(preview.body.plan[0].input.cameras).toMatchObject(READS.cameras);
    expect(preview.body.plan[0].actions).toMatchObject(MEANS[0]!);
  });

  it("to a robot whose loop is opened", async () => {
    const loop = robot(app, caller.key, {
      model: `${named.acme}/reads`,
      actionSpace: "base_twist_2d",
      horizon: 2,
      instruction: "go",
    });
    const opened = await loop.expect("opened");
    expect(opened.input?.cameras?.cameras[0]).toMatchObject({ name: "front", width: 64, height: 48, required: true });
    expect(opened.actions).toMatchObject({ units: ["m/s", "rad/s"], referenceFrame: "base" });
    loop.leave();
  });
});

describe("a profile's contract", () => {
  it("shows the image sizes that its server announced in previews, listings and loops", async () => {
    let count = 0;
    const server = await startOpenpiServer({
      metadata: pack(new Map<unknown, unknown>([["image_resolution", [180, 320]]])),
      answer: () => pack(new Map([["actions", f4(Array.from({ length: 4 }, () => [0, ++count]))]])),
    });
    onTestFinished(() => server.close());
    server.behave({ kind: "steps", steps: [] });
    const profile = { preset: "openpi/libero" };
    const about = { runtime: "openpi-ws", endpoint: server.endpoint, profile };
    await app.supply({ provider: named.wide, model: `${named.acme}/wide`, ...about });
    const sizes = [
      { name: "agentview", width: 320, height: 180, any_size: true },
      { name: "wrist", width: 320, height: 180 },
    ];
    const [offering] = (await app.call(`/v1/models/${named.acme}/wide`)).body.offerings;
    expect(offering).toMatchObject({ input_source: "profile", input: { cameras: sizes, proprio: [{ dimension: 8 }] } });
    const preview = await app.call(
      "/v1/routes/preview?contract=act",
      { ...BASE, model: `${named.acme}/wide` },
      { key: caller.key },
    );
    expect(preview.body.plan[0].input.cameras).toMatchObject(sizes);
    const loop = robot(app, caller.key, { model: `${named.acme}/wide`, actionSpace: "base_twist_2d" });
    expect((await loop.expect("opened")).input?.cameras?.cameras[1]).toMatchObject({ width: 320, height: 180 });
    loop.leave();
    const { status, body } = await act({ model: `${named.acme}/wide`, observations: [{ proprio: [1, 2, 3] }] });
    expect([status, body.error.details.violations.map(({ path }: { path: string }) => path)]).toEqual([
      422,
      ["observations.0.frames", "observations.0.frames", "observations.0.proprio"],
    ]);
  });
});

describe("a call that is not what is read", () => {
  it("is refused with every field before dispatch, and is not retryable", async () => {
    const asked = model.acts.length;
    const request = {
      model: `${named.acme}/reads`,
      goal_image: { url: "https://robot.example/g.jpg" },
      observations: [{ frames: [{ camera: "frnt", url: "https://robot.example/f.jpg" }], proprio: [1, 2, 3] }],
    };
    const { status, body } = await act(request);
    expect([status, body.error.code, body.error.retryable, body.error.type]).toEqual([
      422,
      "input_contract",
      false,
      "validation_error",
    ]);
    expect(body.detail.map(({ loc, type }: { loc: unknown[]; type: string }) => [loc.join("."), type])).toEqual([
      ["body.observations.0.frames", "missing"],
      ["body.observations.0.frames.0.camera", "extra_forbidden"],
      ["body.observations.0.proprio", "length"],
      ["body.instruction", "missing"],
      ["body.goal_image", "extra_forbidden"],
    ]);
    expect(body.error.param).toBe("observations.0.frames");
    expect(body.error.details.needed).toEqual([
      `${named.acme}/reads at ${named.reads} reads pictures of front (64 by 48), wrist (32 by 32) if there is one; 2 values in m (x, y) of proprioception; an instruction`,
    ]);
    expect(body.error.details.dropped).toMatchObject([{ model: `${named.acme}/reads`, reason: "input" }]);
    expect(model.acts.length).toBe(asked);
    expect((await app.call("/v1/key", undefined, { key: caller.key })).body.usage_usd.total).toBe(0);
  });

  it("is checked by the bytes of its images, not by the stated sizes", async () => {
    const frames = [{ camera: "front", data: picture, width: 64, height: 48, format: "jpeg" }];
    const { status, body } = await act({
      ...GOOD,
      model: `${named.acme}/reads`,
      observations: [{ frames, proprio: [1, 2] }],
    });
    expect(status).toBe(422);
    expect(body.error.details.violations.map(({ path }: { path: string }) => path)).toEqual([
      "observations.0.frames.0.width",
      "observations.0.frames.0.format",
    ]);
  });

  it("is routed to another model that reads it, or to one that declares nothing", async () => {
    const { status, body } = await act({ model: "service/auto", observations: [{ proprio: [1] }] });
    expect([status, body.model, body.route.attempts.length]).toEqual([200, `${named.acme}/plain`, 1]);
  });

  it("is refused as a constraint, with the smallest change, if other offerings are out for other reasons", async () => {
    const { status, body } = await act({
      model: "service/auto",
      provider: { ignore: [named.plain] },
      instruction: "go",
      observations: [{ frames: [{ camera: "front", url: "https://robot.example/f.jpg" }], proprio: [1] }],
    });
    expect([status, body.error.code]).toEqual([409, "no_route_available"]);
    expect(body.error.details.excluded_by).toEqual(["in_ignore", "input"]);
    // The smallest ones first.
    expect(body.error.details.suggestions.slice(0, 2)).toEqual([
      { field: "provider.ignore", admits: 1 },
      { field: "observations.0.proprio", value: 2, admits: 1, change: "send 2 values in m (x, y) in proprio" },
    ]);
  });

  it("is reported by a preview", async () => {
    const request = { ...BASE, model: `${named.acme}/reads`, observations: [{ proprio: [1] }] };
    const { body } = await app.call("/v1/routes/preview?contract=act", request, { key: caller.key });
    expect([body.plan, body.would_refuse.code, body.dropped[0].reason]).toEqual([[], "input_contract", "input"]);
  });

  it("becomes a hold that names the missing fields, and the next observation can succeed", async () => {
    const loop = robot(app, caller.key, {
      model: `${named.acme}/reads`,
      actionSpace: "base_twist_2d",
      horizon: 2,
      instruction: "go",
    });
    await loop.expect("opened");
    loop.observe(1, { observations: [{ proprio: [1] }] });
    expect(await loop.expect("hold")).toMatchObject({
      step: 1,
      reason: HoldReason.INVALID_OBSERVATION,
      detail: expect.stringContaining("observations.0.frames lacks the picture of front"),
    });
    const data = await jpeg();
    loop.observe(2, { observations: [{ proprio: [1, 2], frames: [{ camera: "front", data }] }] });
    expect(await loop.expect("chunk")).toMatchObject({ startStep: 2 });
    loop.leave();
  });
});

const jpeg = () => redSquareAs({ x: 0.5, y: 0.5 }, { width: 64, height: 48, format: "jpeg" });

describe("a call that every asked offering rejects", () => {
  it("returns the model's input contract and is not retryable", async () => {
    model.script.act = (_, __, served) => rejectInput(served);
    const data = (await jpeg()).toString("base64");
    const observations = [{ frames: [{ camera: "front", data }], proprio: [1, 2] }];
    const { status, body } = await act({ model: `${named.acme}/reads`, instruction: "go", observations });
    expect([status, body.error.code, body.error.retryable]).toEqual([422, "input_contract", false]);
    expect(body.error.details.needed[0]).toContain("reads pictures of front");
    expect(body.route.attempts).toMatchObject([{ reason: "input_rejected" }]);
  });
});

/** Answers the call that was sent last on the stream as one whose input the model does not take. */
function rejectInput({ send, messages }: Served): void {
  const { callId } = fromBinary(ActRequestSchema, messages.at(-1)!);
  send(response(callId, { case: "error", value: { code: CallErrorCode.INVALID_INPUT, message: "no" } }));
}

describe("a fallback", () => {
  it("never uses a model whose actions mean something else, even with equal dimensions", async () => {
    const twin = { endpoint: plain.endpoint, standing: "verified" } as const;
    await app.supply({ ...twin, provider: named.metres, model: `${named.acme}/metres`, actions: [{ units: ["m"] }] });
    await app.supply({ ...twin, provider: named.speeds, model: `${named.acme}/speeds`, actions: MEANS });
    model.script.act = (_, __, { stream }) => stream.close(2);
    const data = (await jpeg()).toString("base64");
    const request = {
      instruction: "go",
      observations: [{ frames: [{ camera: "front", data }], proprio: [1, 2] }],
      provider: { order: [named.reads] },
    };
    const fallen = await act({
      ...request,
      model: `${named.acme}/reads`,
      models: [`${named.acme}/metres`, `${named.acme}/speeds`],
    });
    expect([fallen.status, fallen.body.model, fallen.body.route.attempts.length]).toEqual([
      200,
      `${named.acme}/speeds`,
      2,
    ]);
    const refused = await act({ ...request, model: `${named.acme}/reads`, models: [`${named.acme}/metres`] });
    expect([refused.status, refused.body.error.code, refused.body.route.attempts.length]).toEqual([
      502,
      "all_attempts_failed",
      1,
    ]);
  });
});

describe("a declaration", () => {
  it.each([
    [{ input: { cameras: [{ name: "a" }, { name: "a" }] } }, "input.cameras.1"],
    [{ input: { proprio: [{ names: ["x"], dimension: 3 }] } }, "input.proprio.0.names"],
    [{ input: { language: {} } }, "input.language.need"],
    [{ input: { cameras: [{ name: "line\nbreak" }] } }, "input.cameras.0.name"],
    [{ input: { rate_hz: 0 } }, "input.rate_hz"],
    [{ actions: [{ units: ["m", "m", "m"] }] }, "actions.0.units"],
    [{ actions: [{ action_space: "joint_pos_7" }] }, "actions.0.action_space"],
    [{ input: { proprio: [{ names: Array.from({ length: 400 }, (_, i) => `${i}`.padEnd(100, "x")) }] } }, "input"],
  ])("that contradicts itself is refused by its field: %j", async (more, param) => {
    const { status, body } = await declare(more);
    expect([status, body.error.param]).toEqual([422, param]);
  });

  it("is stored unchanged and shown to its owner", async () => {
    const { status, body } = await declare({ input: READS, actions: MEANS });
    expect(status).toBe(201);
    expect(body).toMatchObject({ input: READS, input_source: "declared", actions: MEANS, actions_source: "declared" });
  });
});

describe("the probe", () => {
  it("sends what the contract says, varies it, and reports its source", async () => {
    const before = model.acts.length;
    const { body } = await declare({ input: READS, actions: MEANS });
    const { offering, report } = await verify(body.id);
    expect([offering.status, report]).toMatchObject(["live", { input: READS, actions: MEANS }]);
    const check = report.checks.find(({ name }: { name: string }) => name === "input_contract");
    expect(check).toMatchObject({ passed: true, required: true });
    expect(check.detail).toContain("values without names, only the required images, images of another size");
    const acts = model.acts.slice(before);
    for (const { observations, instruction } of acts.filter(({ instruction }) => instruction !== "")) {
      const [seen] = observations;
      if (seen!.proprio.length !== 2) continue;
      expect(instruction).not.toBe("");
      expect(seen!.frames[0]).toMatchObject({ camera: "front", width: 64, height: 48 });
    }
    expect(new Set(acts.map(({ observations }) => observations[0]!.frames.length))).toEqual(new Set([2, 1, 0]));
    await app.call(`/v1/supply/offerings/${body.id}?force=true`, undefined, { key: supplier.key, method: "DELETE" });
  });

  it("rejects a server that rejects its own contract", async () => {
    model.script.act = (call, answer, served) => {
      if (call.observations[0]!.frames.length === 1) rejectInput(served);
      else answer(honestSteps(call, 2));
    };
    const { body } = await declare({ input: READS });
    const { offering, report } = await verify(body.id);
    expect(offering.status).toBe("rejected");
    expect(report.checks.find(({ name }: { name: string }) => name === "input_contract")).toMatchObject({
      passed: false,
      detail: "the server rejects input that it declares to accept: only the required images",
      next_step: "accept all input that the declared contract allows, or declare a narrower one",
    });
  });
});

describe("what a server says of itself", () => {
  const describing = (said: object): void => {
    (model.script as { describe?: unknown }).describe = (served: Served) => {
      const models = [{ slug: `${named.careless}/base`, proprioNames: ["x", "y"], ...said }];
      served.send(toBinary(DescribeResponseSchema, create(DescribeResponseSchema, { models })));
      served.end();
    };
  };
  afterEach(() => {
    (model.script as { describe?: unknown }).describe = undefined;
  });
  const shownOf = async (said: object, more: object = {}) => {
    describing(said);
    const { body } = await declare(more);
    const { offering } = await verify(body.id);
    expect(offering.status).toBe("live");
    const { body: shown } = await app.call(`/v1/models/${named.careless}/base`);
    await app.call(`/v1/supply/offerings/${body.id}?force=true`, undefined, { key: supplier.key, method: "DELETE" });
    return shown.offerings[0];
  };

  it("fills in what its owner left out", async () => {
    const said = { input: { proprio: [{ dimension: 3 }] }, actions: [{ units: ["m/s", "rad/s"] }] };
    expect(await shownOf(said)).toMatchObject({
      input: { proprio: [{ dimension: 3 }] },
      input_source: "server",
      actions: [{ units: ["m/s", "rad/s"] }],
      actions_source: "server",
    });
    expect(await shownOf(said, { input: { proprio: [{ dimension: 2 }] } })).toMatchObject({
      input: { proprio: [{ dimension: 2 }] },
      input_source: "declared",
      actions_source: "server",
    });
  });

  it("is ignored if it is impossible, too long or has control characters", async () => {
    for (const input of [
      { proprio: [{ names: ["x"], dimension: 2 }] },
      { cameras: { cameras: [{ name: "\u001b[31mred" }] } },
      { proprio: [{ names: Array.from({ length: 400 }, (_, i) => `${i}`.padEnd(100, "x")) }] },
      { rateHz: Number.NaN },
    ])
      expect(await shownOf({ input, actions: [{ names: ["one too few"] }] })).not.toHaveProperty("input");
  });
});
