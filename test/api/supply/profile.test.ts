/** Wire profiles at the door: what is taken, what is refused and by which field's name. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ACT_DECLARATION, type App, type Caller } from "../../support/app.ts";
import { uniqueNames } from "../../support/names.ts";
import { type OpenpiServer, startOpenpiServer } from "../../support/openpi-server.ts";
import { openWorld } from "../../support/world.ts";

const named = uniqueNames("profiles");

let app: App;
let supplier: Caller;
let server: OpenpiServer;
let provider: string;
let next = 0;

beforeAll(async () => {
  [app, server] = await Promise.all([openWorld(), startOpenpiServer()]);
  supplier = await app.caller(0, { role: "supplier" });
  provider = (await app.call("/v1/supply/providers", { name: named.profiles }, { key: supplier.key })).body.name;
});
afterAll(async () => {
  await server.close();
});

const declare = (profile: unknown, more: object = {}) =>
  app.call(
    `/v1/supply/providers/${provider}/models`,
    {
      ...ACT_DECLARATION,
      runtime: "openpi-ws",
      model: `${named.profiles}/m${next++}`,
      endpoint: server.endpoint,
      profile,
      ...more,
    },
    { key: supplier.key },
  );
const frame = { key: "image", width: 224, height: 224 };

describe("201", () => {
  it("accepts every preset of its wire and stores the declaration", async () => {
    const presets = [
      "openpi/droid",
      "openpi/libero",
      "openpi/aloha",
      "roboarena/droid",
      "sglang/pi05",
      "cosmos/robolab",
    ];
    for (const preset of [...presets, "starvla"]) expect((await declare({ preset })).status).toBe(201);
    const profile = {
      dialect: "starvla",
      frames: [{ camera: "front", key: "image", layout: "chw", width: 8, height: 4, fit: "stretch", form: "f4" }],
      proprio: [{ start: 0, end: 3, key: "state", dtype: "f4" }],
      instruction_key: "lang",
      action_keys: ["arm", "grip"],
      action_dims: [1, 1],
      constants: [
        { key: "unnorm_key", text: "franka" },
        { key: "steps", number: 10 },
      ],
      server_model: "base",
      session: "session_id",
      reset: "message",
    };
    const { status, body } = await declare(profile);
    expect(status).toBe(201);
    const [row] = await app.sql`select profile from offering where id = ${body.id}`;
    expect(row?.profile).toMatchObject({ dialect: "SERVER_DIALECT_STARVLA", actionDims: [1, 1], serverModel: "base" });
  });
});

describe("422", () => {
  it.each([
    ["a preset of another wire", { preset: "gr00t/libero" }, "profile.preset"],
    ["a dialect of another wire", { dialect: "gr00t_n1_6" }, "profile.dialect"],
    ["a dialect that is none", { dialect: "esperanto" }, "profile.dialect"],
    ["a picture of no width", { frames: [{ ...frame, width: 0 }] }, "profile.frames.0.width"],
    ["a picture of a mile", { frames: [{ ...frame, height: 5_000 }] }, "profile.frames.0.height"],
    ["a picture without a key", { frames: [{ width: 8, height: 8 }] }, "profile.frames.0.key"],
    ["more pictures than cameras exist", { frames: Array(17).fill(frame) }, "profile.frames"],
    [
      "proprioception that ends before it starts",
      { proprio: [{ start: 3, end: 3, key: "s" }] },
      "profile.proprio.0.end",
    ],
    [
      "proprioception beyond its end",
      { proprio: [{ start: 0, end: 9, key: "s" }], proprio_dim: 8 },
      "profile.proprio.0.end",
    ],
    ["sizes for other keys", { action_keys: ["a"], action_dims: [1, 1] }, "profile.action_dims"],
    ["sizes that don't come to the space's", { action_keys: ["a", "b"], action_dims: [1, 2] }, "profile.action_dims"],
    ["a size of nothing", { action_keys: ["a"], action_dims: [0] }, "profile.action_dims.0"],
    ["a constant of no value", { constants: [{ key: "k" }] }, "profile.constants.0"],
    ["a constant of two values", { constants: [{ key: "k", text: "a", number: 1 }] }, "profile.constants.0"],
    ["a reset of no kind", { reset: "please" }, "profile.reset"],
    ["a field that is none", { cameras: [] }, "profile.cameras"],
    ["a list", [], "profile"],
  ])("refuses %s, naming the field", async (_, profile, path) => {
    const { status, body } = await declare(profile);
    expect([status, body.error.details.violations?.[0]?.path]).toEqual([422, path]);
  });
});
