/** Action safety: what an offering must not exceed is never passed on, and never clamped. */
import { beforeAll, describe, expect, it } from "vitest";
import { ACT_DECLARATION, type App, type Caller } from "../../support/app.ts";
import type { Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import { openModel, openWorld } from "../../support/world.ts";

const named = uniqueNames("acme", "bolt", "odd");

let app: App;
let model: Model;
let other: Model;
let robot: Caller;
const BOUNDS = { lowest: [-1], highest: [1, 2], max_change: 0.5 };

beforeAll(async () => {
  [app, model, other] = await Promise.all([openWorld(), openModel(), openModel()]);
  await app.supply({ provider: named.acme, model: `${named.acme}/base`, endpoint: model.endpoint, bounds: BOUNDS });
  await app.supply({ provider: named.bolt, model: `${named.acme}/base`, endpoint: other.endpoint });
  await app.supply({
    provider: named.acme,
    model: `${named.acme}/arm`,
    endpoint: model.endpoint,
    action_spaces: ["joint_pos_7"],
    bounds: { max_start_jump: 5 },
  });
  robot = await app.caller(10);
});

const act = (more: object = {}) =>
  app.call(
    "/v1/act",
    {
      model: `${named.acme}/base`,
      action_space: "base_twist_2d",
      horizon: 2,
      observations: [{ proprio: [0.5] }],
      ...more,
    },
    { key: robot.key },
  );
const only = (provider: string) => ({ provider: { only: [provider] } });
const chunk = (steps: number[][]): void => {
  model.script.act = (_, answer) => answer(steps);
};

describe("bounds of an offering", () => {
  it("allow actions exactly at the bounds", async () => {
    chunk([
      [1, 2],
      [0.5, 1.5],
    ]);
    const { status, body } = await act(only(named.acme));
    expect([status, body.action.steps]).toEqual([
      200,
      [
        [1, 2],
        [0.5, 1.5],
      ],
    ]);
  });

  it.each([
    [
      "a value above",
      [
        [0, 0],
        [1.01, 0],
      ],
    ],
    [
      "a value above its own dimension",
      [
        [0, 2.01],
        [0, 2.01],
      ],
    ],
    [
      "a value below",
      [
        [-1.01, 0],
        [-1.01, 0],
      ],
    ],
    [
      "a jump from step to step",
      [
        [0, 0],
        [0.51, 0],
      ],
    ],
  ])("fail the attempt at %s: nothing is forwarded, clamped or charged", async (_, steps) => {
    chunk(steps);
    const { status, body } = await act(only(named.acme));
    expect([status, body.error.code]).toEqual([502, "all_attempts_failed"]);
    expect(body.route.attempts).toMatchObject([{ status: "error", reason: "unsafe_action" }]);
    const fallen = await act({ provider: { order: [named.acme] } });
    expect([fallen.status, fallen.body.route.provider, fallen.body.route.attempts[0].reason]).toEqual([
      200,
      named.bolt,
      "unsafe_action",
    ]);
    expect((await app.call("/v1/usage?limit=1", undefined, { key: robot.key })).body.data[0].provider).toBe(named.bolt);
  });

  it("fail an attempt that starts far from the reported joints", async () => {
    const far = Array.from({ length: 2 }, () => [6, 0, 0, 0, 0, 0, 0]);
    chunk(far);
    const ask = (proprio: number[]) =>
      act({ model: `${named.acme}/arm`, action_space: "joint_pos_7", observations: [{ proprio }] });
    expect((await ask([0, 0, 0, 0, 0, 0, 0])).body.route.attempts[0].reason).toBe("unsafe_action");
    expect((await ask([2, 0, 0, 0, 0, 0, 0])).status).toBe(200);
    expect((await ask([])).status).toBe(200);
  });

  it("are refused if no action can satisfy them or if they do not fit the space", async () => {
    const declare = (bounds: object) =>
      app.call(
        `/v1/supply/providers/${named.acme}/models`,
        { ...ACT_DECLARATION, model: `${named.acme}/odd`, endpoint: model.endpoint, bounds },
        { key: robot.key },
      );
    const { key } = await app.caller(0, { role: "supplier" });
    await app.call("/v1/supply/providers", { name: named.odd }, { key });
    const mine = (bounds: object) =>
      app.call(
        `/v1/supply/providers/${named.odd}/models`,
        { ...ACT_DECLARATION, model: `${named.odd}/odd`, endpoint: model.endpoint, bounds },
        { key },
      );
    expect((await declare({})).status).toBe(404);
    for (const bounds of [
      { lowest: [1], highest: [-1] },
      { lowest: [0, 0, 0] },
      { max_change: -1 },
      { highest: ["NaN"] },
    ])
      expect((await mine(bounds)).status, JSON.stringify(bounds)).toBe(422);
  });
});

describe("bounds of a key", () => {
  const bounds = { lowest: [-0.2], highest: [0.2] };

  it("apply to every offering and to derived keys", async () => {
    const { org } = robot;
    const made = await app.call(`/v1/orgs/${org}/keys`, { role: "owner", bounds }, { key: robot.key });
    expect(made.body.bounds).toMatchObject(bounds);
    const careful = made.body.key;
    const child = await app.call(`/v1/orgs/${org}/keys`, { role: "owner" }, { key: careful });
    expect(child.body.bounds).toMatchObject(bounds);
    const wider = await app.call(`/v1/orgs/${org}/keys`, { role: "owner", bounds: { lowest: [-9] } }, { key: careful });
    expect([wider.status, wider.body.error.details.exceeds]).toEqual([403, ["bounds"]]);
    other.script.act = (_, answer) => answer([[0.3, 0]]);
    const body = {
      model: `${named.acme}/base`,
      action_space: "base_twist_2d",
      horizon: 1,
      observations: [{ proprio: [0.5] }],
      ...only(named.bolt),
    };
    for (const key of [careful, child.body.key]) {
      const { status, body: answer } = await app.call("/v1/act", body, { key });
      expect([status, answer.route.attempts[0].reason]).toEqual([502, "unsafe_action"]);
    }
    expect((await app.call("/v1/act", body, { key: robot.key })).status).toBe(200);
    expect((await app.call("/v1/key", undefined, { key: careful })).body.bounds).toMatchObject(bounds);
  });

  it("are refused when no action could keep them", async () => {
    for (const odd of [{ lowest: [1], highest: [-1] }, { max_change: -1 }])
      expect((await app.call(`/v1/orgs/${robot.org}/keys`, { bounds: odd }, { key: robot.key })).status).toBe(422);
  });
});
