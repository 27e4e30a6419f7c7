/** What the openpi wire says and understands, byte for byte and in its dialects. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ImageFit, NumberType, PixelLayout, type WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import { eventually } from "../support/eventually.ts";
import { f4, ndarray } from "../support/openpi-server.ts";
import { pack, unpack } from "../support/plain-msgpack.ts";
import { actInput, callWith, failureIn, framesOf, nameOf, observed, rowsOf, targetAt } from "../support/wire-calls.ts";
import {
  act,
  begin,
  end,
  FLIPPED,
  linspace,
  NO_FRAMES,
  PIXELS,
  png,
  profile,
  STEPS,
  sample,
  sent,
  serve,
  server,
  small,
  wire,
} from "./openpi-ws-server.ts";

beforeEach(begin);
afterEach(end);

describe("the bytes of an openpi request", () => {
  beforeEach(() => serve());

  it("equal those of openpi's own client for DROID", async () => {
    const frames = [
      { camera: "wrist", data: await png(FLIPPED) },
      { camera: "exterior_1", data: await png(PIXELS) },
    ];
    const bytes = await sent(
      observed({ frames, proprio: linspace(8) }),
      {
        preset: "openpi/droid",
        frames: [
          { camera: "exterior_1", key: "observation/exterior_image_1_left", ...small },
          { camera: "wrist", key: "observation/wrist_image_left", ...small },
        ],
      },
      "pick up the green cube",
    );
    expect(bytes.equals(sample("openpi_droid_request"))).toBe(true);
  });

  it("equal those of openpi's own client for LIBERO, whose images are turned", async () => {
    const turned = (pixels: Buffer): Buffer =>
      Buffer.concat(Array.from({ length: 64 }, (_, i) => pixels.subarray((63 - i) * 3, (64 - i) * 3)));
    const frames = [
      { camera: "agentview", data: await png(turned(PIXELS)) },
      { camera: "wrist", data: await png(turned(FLIPPED)) },
    ];
    const bytes = await sent(
      observed({ frames, proprio: linspace(8) }),
      {
        preset: "openpi/libero",
        frames: [
          { camera: "agentview", key: "observation/image", rotate180: true, ...small },
          { camera: "wrist", key: "observation/wrist_image", rotate180: true, ...small },
        ],
      },
      "open the drawer",
    );
    expect(bytes.equals(sample("openpi_libero_request"))).toBe(true);
  });

  it("equal those of openpi's own client for ALOHA: channels first, in a nested map", async () => {
    const frames = [
      { camera: "cam_high", data: await png(PIXELS) },
      { camera: "cam_left_wrist", data: await png(FLIPPED) },
    ];
    const layout = PixelLayout.CHW;
    const bytes = await sent(
      observed({ frames, proprio: linspace(14) }),
      {
        preset: "openpi/aloha",
        frames: [
          { camera: "cam_high", key: "images.cam_high", layout, ...small },
          { camera: "cam_left_wrist", key: "images.cam_left_wrist", layout, ...small },
        ],
      },
      "fold",
    );
    expect(unpack(bytes)).toEqual(unpack(sample("openpi_aloha_request")));
  });
});

describe("the profile of an openpi request", () => {
  beforeEach(() => serve());
  type Tree = Map<string, Tree>;
  const fields = (bytes: Buffer) => unpack(bytes) as Tree;

  it("defaults to the first image at 224 by 224, all proprioception as f4, and the prompt", async () => {
    const frames = [{ data: await png(PIXELS) }, { data: await png(FLIPPED) }];
    const seen = fields(await sent(observed({ frames, proprio: [1, 2, 3] })));
    expect([...seen.keys()]).toEqual(["observation/image", "observation/state", "prompt"]);
    expect(seen.get("observation/image")?.get("shape")).toEqual([224, 224, 3]);
    expect(seen.get("observation/state")?.get("dtype")).toBe("<f4");
  });

  it.each([
    [
      "openpi/droid",
      ["exterior_1", "wrist"],
      8,
      [
        "observation/exterior_image_1_left",
        "observation/wrist_image_left",
        "observation/joint_position",
        "observation/gripper_position",
        "prompt",
      ],
    ],
    [
      "openpi/libero",
      ["agentview", "wrist"],
      8,
      ["observation/image", "observation/wrist_image", "observation/state", "prompt"],
    ],
    ["openpi/aloha", ["cam_high"], 14, ["images", "state", "prompt"]],
  ])("%s has openpi's keys at openpi's sizes", async (preset, cameras, dim, keys) => {
    const data = await png(PIXELS);
    const frames = cameras.map((camera) => ({ camera, data }));
    const seen = fields(await sent(observed({ frames, proprio: linspace(dim) }), { preset }));
    expect([...seen.keys()]).toEqual(keys);
    const picture = seen.get(keys[0]!);
    const shape = preset === "openpi/aloha" ? picture?.get("cam_high")?.get("shape") : picture?.get("shape");
    expect(shape).toEqual(preset === "openpi/aloha" ? [3, 224, 224] : [224, 224, 3]);
  });

  it("maps frames by position if the caller names no camera", async () => {
    const frames = [{ data: await png(PIXELS) }, { data: await png(FLIPPED) }];
    const slots = [
      { camera: "a", key: "first", ...small },
      { camera: "b", key: "second", ...small },
    ];
    const seen = fields(await sent(observed({ frames }), { frames: slots }));
    expect(seen.get("first")?.get("data")).toEqual(PIXELS);
    expect(seen.get("second")?.get("data")).toEqual(FLIPPED);
  });

  it("uses the newest observation's frames", async () => {
    const older = observed({ frames: [{ data: await png(FLIPPED) }], depth: [{ data: await png(FLIPPED) }] });
    const newer = observed({ frames: [{ data: await png(PIXELS) }] });
    const target = targetAt(server.endpoint, { profile: profile({ frames: [{ key: "picture", ...small }] }) });
    const frames = framesOf(older, newer);
    await wire.act(target, actInput({ observations: [older, newer] }), frames, callWith());
    expect(fields(server.requests[0]!).get("picture")?.get("data")).toEqual(PIXELS);
  });

  it("pads to keep the ratio, or stretches", async () => {
    const wide = { data: await png(Buffer.alloc(8 * 4 * 3, 200)) };
    const slots = [
      { key: "padded", ...small },
      { key: "stretched", fit: ImageFit.STRETCH, ...small },
    ];
    const seen = fields(await sent(observed({ frames: [wide, wide] }), { frames: slots }));
    const expected = Buffer.concat([Buffer.alloc(48), Buffer.alloc(96, 200), Buffer.alloc(48)]);
    expect(seen.get("padded")?.get("data")).toEqual(expected);
    expect(seen.get("stretched")?.get("data")).toEqual(Buffer.alloc(192, 200));
  });

  it("splits proprioception into parts of the declared types, under nested keys", async () => {
    const proprio = [
      { start: 1, end: 3, key: "robot.arm.joints", dtype: NumberType.F8 },
      { start: 0, end: 1, key: "robot.grip" },
    ];
    const seen = fields(await sent(observed({ proprio: [0.5, 1, 2] }), { proprio, instructionKey: "task" }, "fold"));
    const joints = seen.get("robot")?.get("arm")?.get("joints");
    expect(joints?.get("dtype")).toBe("<f8");
    expect(joints?.get("data")).toEqual(Buffer.from(Float64Array.of(1, 2).buffer));
    expect(seen.get("robot")?.get("grip")?.get("data")).toEqual(Buffer.from(Float32Array.of(0.5).buffer));
    expect(seen.get("task")).toBe("fold");
  });

  it.each([
    ["a camera that the caller doesn't have", { frames: [{ camera: "top", key: "x", ...small }] }],
    [
      "more images than the caller sends",
      {
        frames: [
          { key: "x", ...small },
          { key: "y", ...small },
          { key: "z", ...small },
        ],
      },
    ],
    ["another length of proprioception", { proprioDim: 4 }],
    ["proprioception beyond its end", { proprio: [{ start: 2, end: 9, key: "x" }] }],
    ["a preset's inputs", { preset: "openpi/droid" }],
  ])("that requires %s refuses the input and sends nothing", async (_, init) => {
    const data = await png(PIXELS);
    const observation = observed({
      frames: [
        { camera: "front", data },
        { camera: "side", data },
      ],
      proprio: [1, 2, 3],
    });
    expect(nameOf(await failureIn(sent(observation, init)))).toBe("INPUT_REJECTED");
    expect(server.counts.connections).toBe(0);
  });
});

describe("an openpi answer", () => {
  const answer = async (value: unknown, init: MessageInitShape<typeof WireProfileSchema> = {}, horizon = 2) => {
    await serve({ answer: () => (Buffer.isBuffer(value) ? value : pack(value)) });
    return wire.act(
      targetAt(server.endpoint, { profile: profile(init) }),
      actInput({ horizon }),
      NO_FRAMES,
      callWith(),
    );
  };
  const map = (entries: Record<string, unknown>): Map<string, unknown> => new Map(Object.entries(entries));
  const f8 = ndarray("<f8", [2, 2], Buffer.from(Float64Array.of(1, 2, 3, 4).buffer));
  const columns = (values: number[]) =>
    ndarray("<f8", [2, values.length / 2], Buffer.from(Float64Array.from(values).buffer));

  it.each<[string, unknown]>([
    ["openpi's", map({ actions: f4(STEPS), server_timing: map({ infer_ms: 1 }) })],
    ["in double precision", map({ actions: f8 })],
    ["of one batch", map({ actions: f4(STEPS, [1, 2, 2]) })],
    ["of more rows than requested", map({ actions: f4([...STEPS, [5, 6], [7, 8]]) })],
    ["cosmos-framework's", map({ action: f4(STEPS), video: null })],
    ["DreamZero's, a bare array", f4(STEPS)],
    [
      "starVLA's",
      map({ status: "ok", ok: true, type: "inference_result", data: map({ actions: f4(STEPS, [1, 2, 2]) }) }),
    ],
  ])("%s is parsed", async (_, value) => {
    expect(rowsOf(await answer(value))).toEqual(STEPS);
  });

  it("recorded from openpi's own server is parsed to its values", async () => {
    const answered = await answer(sample("openpi_response"), {}, 10);
    const expected = Array.from({ length: 10 }, (_, t) =>
      Array.from({ length: 8 }, (_, d) => Math.fround(1 + (8 * t + d) / 1000)),
    );
    expect(rowsOf(answered)).toEqual(expected);
    expect(answered.gpuSeconds).toBe(0.00125);
  });

  it("of one action is one step", async () => {
    expect(rowsOf(await answer(map({ actions: f4([[1, 2]], [2]) }), {}, 1))).toEqual([[1, 2]]);
  });

  it("of named parts is concatenated in the declared order", async () => {
    const parts = map({ grip: columns([9, 8]), arm: columns([1, 2, 3, 4]), other: columns([0, 0]) });
    const rows = rowsOf(await answer(parts, { actionKeys: ["arm", "grip"] }));
    expect(rows).toEqual([
      [1, 2, 9],
      [3, 4, 8],
    ]);
  });

  it("of fewer rows than requested is returned unchanged, with its number of rows", async () => {
    expect(await answer(map({ actions: f4([[1, 2]]) }))).toMatchObject({ steps: [{ values: [1, 2] }], chunk: 1 });
  });

  it.each<[string, string, unknown, MessageInitShape<typeof WireProfileSchema>?]>([
    ["no rows", "EMPTY_ANSWER", map({ actions: f4([], [0, 2]) })],
    ["no columns", "EMPTY_ANSWER", map({ actions: f4([], [2, 0]) })],
    ["no action", "MALFORMED_ANSWER", map({ state: f4(STEPS) })],
    ["an action that is not an array", "MALFORMED_ANSWER", map({ actions: "up" })],
    ["a batch of two", "MALFORMED_ANSWER", map({ actions: f4(STEPS, [2, 1, 2]) })],
    ["a single number", "MALFORMED_ANSWER", map({ actions: f4([[1]], []) })],
    ["an array with a false length", "MALFORMED_ANSWER", map({ actions: f4(STEPS, [2, 3]) })],
    ["an array of objects", "MALFORMED_ANSWER", map({ actions: ndarray("|O", [2, 2], Buffer.alloc(32)) })],
    ["only a number", "MALFORMED_ANSWER", 7],
    ["parts of different length", "MALFORMED_ANSWER", map({ a: f4(STEPS), b: f4([[1]]) }), { actionKeys: ["a", "b"] }],
    ["a missing part", "MALFORMED_ANSWER", map({ a: f4(STEPS) }), { actionKeys: ["a", "b"] }],
    ["vLLM-Omni's error", "UPSTREAM_ERROR", map({ type: "error", message: "trace\nlast line" })],
    ["starVLA's error", "UPSTREAM_ERROR", map({ ok: false, error: map({ message: "trace\nlast line" }) })],
  ])("of %s fails with %s, and the connection continues", async (_, name, value, init) => {
    const failure = await failureIn(answer(value, init));
    expect(nameOf(failure)).toBe(name);
    if (name === "UPSTREAM_ERROR") expect(failure.message).toBe("last line");
    const again = wire.act(
      targetAt(server.endpoint, { profile: profile(init ?? {}) }),
      actInput(),
      NO_FRAMES,
      callWith(),
    );
    expect(nameOf(await failureIn(again))).toBe(name);
    expect(server.counts.connections).toBe(1);
  });
});

describe("the openpi dialect", () => {
  const metadata = (entries: Record<string, unknown>): Buffer => pack(new Map(Object.entries(entries)));
  const more = { sessionId: "episode 7", seed: 5 };
  const extras = () => {
    const seen = unpack(server.requests.at(-1)!) as Map<string, unknown>;
    return [seen.get("endpoint"), seen.get("session_id"), seen.get("seed")];
  };

  it.each([
    ["openpi", { reset_pose: [0, 1] }],
    ["cosmos-framework's RoboLab", {}],
  ])("of a server like %s gets nothing but the observation", async (_, entries) => {
    await serve({ metadata: metadata(entries) });
    await act(more);
    expect(extras()).toEqual([undefined, undefined, undefined]);
  });

  it.each([
    ["RoboArena", { image_resolution: null, needs_session_id: true, action_space: "joint_position" }],
    ["vLLM-Omni", { policy_server_config: new Map([["action_dim", 7]]) }],
  ])("of a server like %s gets the method, the session and the seed", async (_, entries) => {
    await serve({ metadata: metadata(entries) });
    await act(more);
    expect(extras()).toEqual(["infer", "episode 7", 5]);
    await act();
    expect(extras()).toEqual(["infer", "req_1", undefined]); // an episode of its own: nobody else's state
  });

  it.each([
    ["a list", Buffer.from([0x90])],
    ["garbage", Buffer.from([0xc1])],
  ])("is unknown for metadata that are %s, so the act fails", async (_, bytes) => {
    await serve({ metadata: bytes });
    expect(nameOf(await failureIn(act()))).toBe("MALFORMED_ANSWER");
  });

  it("is awaited as long as the caller waits", async () => {
    await serve({ metadata: undefined });
    const caller = new AbortController();
    const call = failureIn(act({}, caller.signal));
    await eventually(() => expect(server.counts.connections).toBe(1));
    caller.abort();
    expect(nameOf(await call)).toBe("TIMEOUT");
    expect(server.acts).toHaveLength(0);
  });
});
