/** The openpi wire in the dialects of the servers that follow it: what each is sent, and what each answers. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import sharp from "sharp";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ServerDialect, WireProfileSchema, WireReset, WireSession } from "../../gen/limber/v1/supply_pb.ts";
import { createUpstream, type Upstream } from "../../src/upstream/index.ts";
import type { UpstreamTarget, Wire } from "../../src/upstream/wire.ts";
import { f4, ndarray, type OpenpiOptions, type OpenpiServer, startOpenpiServer } from "../support/openpi-server.ts";
import { pack, unpack } from "../support/plain-msgpack.ts";
import { actInput, callWith, failureIn, framesOf, nameOf, observed, rowsOf, targetAt } from "../support/wire-calls.ts";

type Tree = Map<string, Tree> & { [index: number]: Tree };
const STEPS = [
  [1, 2],
  [3, 4],
];
const map = (entries: Record<string, unknown>): Map<string, unknown> => new Map(Object.entries(entries));
const small = { width: 8, height: 8 };
const pixels = (level: number): Promise<Buffer> =>
  sharp({ create: { width: 8, height: 8, channels: 3, background: { r: level, g: level, b: level } } })
    .png()
    .toBuffer();

let upstream: Upstream;
let wire: Required<Pick<Wire, "act" | "probes">>;
let server: OpenpiServer;

beforeEach(() => {
  upstream = createUpstream({ allowPrivate: true });
  wire = upstream.wireOf("openpi-ws") as Required<Wire>; // it has all of these
});
afterEach(async () => {
  await upstream.close();
  await server.close();
});

const serve = async (options: OpenpiOptions = {}): Promise<void> => {
  server = await startOpenpiServer(options);
  server.behave({ kind: "steps", steps: STEPS });
};
const told = (init: MessageInitShape<typeof WireProfileSchema>, more: Partial<UpstreamTarget> = {}): UpstreamTarget =>
  targetAt(server.endpoint, { profile: create(WireProfileSchema, init), ...more });
const requests = (): Tree[] => server.requests.map((bytes) => unpack(bytes) as Tree);
const twoCameras = async () =>
  observed({
    frames: [
      { camera: "base", data: await pixels(10) },
      { camera: "left_wrist", data: await pixels(20) },
    ],
    proprio: [1, 2, 3],
  });

const named = (seen: Awaited<ReturnType<typeof twoCameras>>) => ({
  ...seen,
  frames: seen.frames.map((frame, i) => ({ ...frame, camera: i === 0 ? "exterior_1" : "wrist" })),
});

describe("SGLang's dialect", () => {
  const metadata = pack(map({ object: "action.metadata", output: map({ action_horizon: 10, action_dim: 2 }) }));
  const frames = [{ camera: "base", key: "observation.images.base_0_rgb", ...small }];

  it.each([
    ["that the server's metadata declare", metadata, {}],
    ["that the offering declares", pack(map({})), { dialect: ServerDialect.SGLANG }],
  ])("keeps the dots in its keys with %s", async (_, first, more) => {
    await serve({ metadata: first });
    const seen = await twoCameras();
    const init = { frames, proprio: [{ start: 0, end: 3, key: "observation.state" }], instructionKey: "task", ...more };
    await wire.act(told(init), actInput({ observations: [seen] }), framesOf(seen), callWith());
    const [request] = requests();
    expect([...request!.keys()]).toEqual(["observation.images.base_0_rgb", "observation.state", "task"]);
    expect(request?.get("observation.images.base_0_rgb")?.get("data")).toEqual(Buffer.alloc(192, 10));
  });

  it("has a preset with the keys of its pi0.5 server", async () => {
    await serve({ metadata });
    const seen = await twoCameras();
    await wire.act(told({ preset: "sglang/pi05" }), actInput({ observations: [seen] }), framesOf(seen), callWith());
    expect([...requests()[0]!.keys()]).toEqual([
      "observation.images.base_0_rgb",
      "observation.images.left_wrist_0_rgb",
      "observation.state",
      "prompt",
    ]);
  });
});

describe("cosmos-framework's dialect", () => {
  const video = Buffer.from(Uint8Array.from({ length: 2 * 4 * 4 * 3 }, (_, i) => i));
  const answer = () => pack(map({ action: f4(STEPS), video: ndarray("|u1", [2, 4, 4, 3], video) }));
  const init = {
    dialect: ServerDialect.COSMOS_ROBOLAB,
    frames: [{ key: "observation/image", ...small }],
    proprio: [{ start: 0, end: 2, key: "observation/joint_position" }],
  };

  it("adds a time axis to proprioception, and reads `action`", async () => {
    await serve({ answer });
    const seen = await twoCameras();
    const answered = await wire.act(told(init), actInput({ observations: [seen] }), framesOf(seen), callWith());
    expect(rowsOf(answered)).toEqual(STEPS);
    expect(answered.prediction).toEqual([]);
    expect(requests()[0]?.get("observation/joint_position")?.get("shape")).toEqual([1, 2]);
    expect(requests()[0]?.get("observation/image")?.get("shape")).toEqual([8, 8, 3]);
  });

  it("passes on the video beside the action to prediction callers, pixel for pixel", async () => {
    await serve({ answer });
    const seen = await twoCameras();
    const input = actInput({ observations: [seen], returnPrediction: true });
    const { prediction } = await wire.act(told(init), input, framesOf(seen), callWith());
    expect(prediction).toMatchObject([
      { index: 0, tMs: 100, width: 4, height: 4 },
      { index: 1, tMs: 200 },
    ]);
    const second = await sharp(prediction[1]!.data).raw().toBuffer();
    expect(second).toEqual(video.subarray(48));
  });

  it.each([
    ["without colors", [2, 4, 4, 1], 32],
    ["of frames without a size", [2, 0, 4, 3], 0],
    ["of a thousand frames", [1_000, 1, 1, 3], 3_000],
  ])("fails on a video %s", async (_, shape, bytes) => {
    const odd = ndarray("|u1", shape, Buffer.alloc(bytes));
    await serve({ answer: () => pack(map({ action: f4(STEPS), video: odd })) });
    const seen = await twoCameras();
    const input = actInput({ observations: [seen], returnPrediction: true });
    expect(nameOf(await failureIn(wire.act(told(init), input, framesOf(seen), callWith())))).toBe("MALFORMED_ANSWER");
  });
});

describe("starVLA's dialect", () => {
  const metadata = pack(map({ action_chunk_size: 8, available_unnorm_keys: ["franka"] }));
  const enveloped = (id: string, data: unknown) => () =>
    pack(map({ status: "ok", ok: true, type: "inference_result", request_id: id, data }));
  const init = {
    preset: "starvla",
    frames: [
      { key: "image", ...small },
      { key: "image", ...small },
    ],
    proprio: [{ start: 0, end: 3, key: "state" }],
    constants: [{ key: "unnorm_key", text: "franka" }],
  };
  const act = async () => {
    const seen = await twoCameras();
    return wire.act(told(init), actInput({ observations: [seen] }), framesOf(seen), callWith());
  };

  it("wraps one example in an envelope, with its images in order and the constants beside it", async () => {
    await serve({ metadata, answer: enveloped("req_1", map({ actions: f4(STEPS, [1, 2, 2]) })) });
    expect(rowsOf(await act())).toEqual(STEPS);
    const [request] = requests();
    expect([request?.get("type"), request?.get("request_id")]).toEqual(["infer", "req_1"]);
    expect(request?.get("payload")?.get("unnorm_key")).toBe("franka");
    const example = request?.get("payload")?.get("examples")?.[0] as Tree;
    const images = example.get("image") as unknown as Tree[];
    expect(images.map((image) => image.get("data"))).toEqual([Buffer.alloc(192, 10), Buffer.alloc(192, 20)]);
    expect([example.get("lang"), example.get("state")?.get("shape")]).toEqual(["go on", [1, 3]]);
  });

  it("never matches an answer with another request", async () => {
    await serve({ metadata, answer: enveloped("req_0", map({ actions: f4(STEPS, [1, 2, 2]) })) });
    const failure = await failureIn(act());
    expect([nameOf(failure), failure.message]).toEqual(["MALFORMED_ANSWER", "the response is for another request"]);
  });

  it("does not take older servers' normalized actions for actions", async () => {
    await serve({ metadata, answer: enveloped("req_1", map({ normalized_actions: f4(STEPS, [1, 2, 2]) })) });
    expect(nameOf(await failureIn(act()))).toBe("MALFORMED_ANSWER");
  });
});

describe("vLLM-Omni's dialect", () => {
  const metadata = pack(map({ policy_server_config: map({ action_dim: 3, action_horizon: 4 }) }));

  it("concatenates a map of named arrays in the declared order and sizes", async () => {
    const columns = (...rows: number[][]) => f4(rows);
    await serve({
      metadata,
      answer: () => pack(map({ gripper: columns([9], [8]), arm: columns([1, 2], [3, 4]) })),
    });
    const init = { actionKeys: ["arm", "gripper"], actionDims: [2, 1] };
    const rows = rowsOf(await wire.act(told(init), actInput(), framesOf(), callWith()));
    expect(rows).toEqual([
      [1, 2, 9],
      [3, 4, 8],
    ]);
    const wrong = wire.act(told({ ...init, actionDims: [1, 2] }), actInput(), framesOf(), callWith());
    expect(nameOf(await failureIn(wrong))).toBe("ACTION_DIM_MISMATCH");
  });

  const GR00T = map({ image_resolution: [6, 10], needs_session_id: true, action_horizon: 40, action_keys: ["b", "a"] });

  it.each([
    ["in a nested map", map({ policy_server_config: map({ action_dim: 2 }) })],
    ["the metadata themselves, for GR00T", GR00T],
    ["the metadata themselves, without a session field", map({ image_resolution: [6, 10], action_horizon: 4 })],
    [
      "in DreamZero's form",
      map({ ...Object.fromEntries(GR00T), needs_wrist_camera: true, action_space: "joint_position" }),
    ],
  ])("is detected by metadata that are %s: calls without a session share none", async (_, first) => {
    await serve({ metadata: pack(first) });
    for (const requestId of ["req_a", "req_b"])
      await wire.act(told({}), actInput(), framesOf(), { ...callWith(), requestId });
    const said = requests().map((each) => [each.get("endpoint"), each.get("session_id")]);
    expect(said).toEqual([
      ["infer", "req_a"],
      ["infer", "req_b"],
    ]);
  });

  it("uses the image size that the server announces, on the first call and after it", async () => {
    await serve({ metadata: pack(GR00T) });
    const seen = await twoCameras();
    const frames = framesOf(seen);
    for (let call = 0; call < 2; call++)
      await wire.act(
        told({ preset: "roboarena/droid", frames: [], proprio: [{ start: 0, end: 3, key: "s" }] }),
        actInput({ observations: [named(seen)] }),
        frames,
        callWith(),
      );
    for (const request of requests())
      expect(request.get("observation/exterior_image_0_left")?.get("shape")).toEqual([6, 10, 3]);
  });

  it("uses the image size of the offering's own mapping if there is one", async () => {
    await serve({ metadata: pack(GR00T) });
    const seen = await twoCameras();
    const init = { frames: [{ camera: "base", key: "observation/image", ...small }] };
    await wire.act(told(init), actInput({ observations: [seen] }), framesOf(seen), callWith());
    expect(requests()[0]?.get("observation/image")?.get("shape")).toEqual([8, 8, 3]);
  });

  it.each([[[0, 10]], [[6]], [[6, 10, 3]], [[5000, 10]], [["6", "10"]], [6], [null]])(
    "leaves images unchanged if the size is %j",
    async (image_resolution) => {
      await serve({ metadata: pack(map({ image_resolution, needs_session_id: true })) });
      const seen = await twoCameras();
      await wire.act(told({}), actInput({ observations: [seen] }), framesOf(seen), callWith());
      expect(requests()[0]?.get("observation/image")?.get("shape")).toEqual([224, 224, 3]);
    },
  );

  it("reads a map's only array under any name, and never guesses the order of several", async () => {
    let answer = map({ default: f4(STEPS, [1, 2, 2]) });
    await serve({ metadata: pack(GR00T), answer: () => pack(answer) });
    const rows = async (init = {}) => rowsOf(await wire.act(told(init), actInput(), framesOf(), callWith()));
    expect(await rows()).toEqual(STEPS);
    answer = map({ actions: answer });
    expect(await rows()).toEqual(STEPS);
    answer = map({ b: f4([[2], [4]]), a: f4([[1], [3]]) });
    const failure = await failureIn(rows());
    expect([nameOf(failure), failure.message]).toEqual(["MALFORMED_ANSWER", expect.stringContaining("action_keys")]);
    expect(await rows({ actionKeys: ["a", "b"] })).toEqual(STEPS);
  });

  it("is probed for metadata that contradict the declaration", async () => {
    await serve({ metadata });
    const [probe] = wire.probes;
    await expect(probe?.look(told({}, { actionDim: 3 }), callWith())).resolves.toContain("chunks of 4 steps");
    await expect(probe?.look(told({}, { actionDim: 7 }), callWith())).rejects.toThrow("3 numbers per step");
  });
});

describe("a reset over openpi", () => {
  const resetBy = (answer: string | Buffer) => ({ resetAnswer: answer });
  const init = { dialect: ServerDialect.ROBOARENA, reset: WireReset.MESSAGE };
  const act = (sessionId?: string, more = {}) =>
    wire.act(told({ ...init, ...more }), actInput({ sessionId }), framesOf(), callWith());
  const endpoints = () => requests().map((each) => [each.get("endpoint"), each.get("session_id")]);

  it.each([
    ["RoboArena's text", "reset successful"],
    ["vLLM-Omni's map", pack(map({ status: "reset successful" }))],
  ])("starts every session once, and is answered by %s", async (_, answer) => {
    await serve(resetBy(answer));
    expect(rowsOf(await act("a"))).toEqual(STEPS);
    expect(rowsOf(await act("a"))).toEqual(STEPS);
    expect(rowsOf(await act("b"))).toEqual(STEPS);
    expect(endpoints()).toEqual([
      ["reset", "a"],
      ["infer", "a"],
      ["infer", "a"],
      ["reset", "b"],
      ["infer", "b"],
    ]);
  });

  it("starts each episode of a session under its own name on the existing connection", async () => {
    await serve(resetBy("reset successful"));
    const inEpisode = (episode?: string) =>
      wire.act(told(init), actInput({ sessionId: "a", episode }), framesOf(), callWith());
    for (const episode of [undefined, "a-2", "a-2", "a-3"]) await inEpisode(episode);
    expect(endpoints()).toEqual([
      ["reset", "a"],
      ["infer", "a"],
      ["reset", "a-2"],
      ["infer", "a-2"],
      ["infer", "a-2"],
      ["reset", "a-3"],
      ["infer", "a-3"],
    ]);
    expect(server.counts.connections).toBe(1);
  });

  it("is not sent for acts without a session, nor to servers without resets", async () => {
    await serve(resetBy("reset successful"));
    await act();
    await act("a", { session: WireSession.NONE });
    expect(endpoints().map(([endpoint]) => endpoint)).toEqual(["infer", "infer"]);
  });

  it.each([
    ["a traceback", "Traceback\nKeyError: 'endpoint'", "UPSTREAM_ERROR"],
    ["an error in a map", pack(map({ type: "error", message: "no" })), "UPSTREAM_ERROR"],
    ["something else", pack(map({ status: "ok" })), "MALFORMED_ANSWER"],
  ])("that is answered by %s fails the act, and the next one opens a new connection", async (_, answer, name) => {
    await serve(resetBy(answer));
    expect(nameOf(await failureIn(act("a")))).toBe(name);
    expect(nameOf(await failureIn(act("a")))).toBe(name);
    expect(server.counts.connections).toBe(2);
  });

  it("permits no other text answer: after it a text is an error again", async () => {
    await serve(resetBy("reset successful"));
    await act("a");
    server.behave({ kind: "text" });
    expect(nameOf(await failureIn(act("a")))).toBe("UPSTREAM_ERROR");
  });
});
