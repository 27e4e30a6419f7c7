/** World models over HTTP: what each of the three kinds is asked, what its files come to, and what happens when nobody waits any more. */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import sharp from "sharp";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import { countMp4Frames } from "../../src/codecs/pictures/mp4.ts";
import type { PredictInput } from "../../src/contracts/contract.ts";
import { createUpstream, type Upstream } from "../../src/upstream/index.ts";
import type { Wire } from "../../src/upstream/wire.ts";
import { setAmbient } from "../support/clocks.ts";
import { eventually } from "../support/eventually.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { runs } from "../support/runs.ts";
import {
  type Asked,
  box,
  fragmentedMp4,
  mp4,
  type Said,
  startWorldServer,
  type WorldServer,
} from "../support/servers/world-models.ts";
import { callWith, failureIn, framesOf, nameOf, observed, predictInput, targetAt } from "../support/wire-calls.ts";
import { mutations } from "../unit/codecs/fuzz.ts";

const picture = (level: number): Promise<Buffer> =>
  sharp({ create: { width: 8, height: 4, channels: 3, background: { r: level, g: 0, b: 0 } } })
    .png()
    .toBuffer();
const base64 = (bytes: Buffer): string => bytes.toString("base64");

let upstream: Upstream;
let server: WorldServer;
let folder: string;
const path = process.env.PATH;

/** A decoder beyond our walls: prints as many pictures as it's asked for, each of its own red. */
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "decoder-"));
  const pictures = await Promise.all(Array.from({ length: 8 }, (_, i) => picture(10 * i)));
  for (const [i, each] of pictures.entries()) await writeFile(join(folder, `${i}.png`), each);
  const script = `#!/bin/sh
for word; do
  [ "$last" = -frames:v ] && count=$word
  last=$word
done
i=0
while [ $i -lt $count ]; do cat ${folder}/$i.png; i=$((i + 1)); done
`;
  await writeFile(join(folder, "ffmpeg"), script);
  await chmod(join(folder, "ffmpeg"), 0o755);
});
afterAll(() => rm(folder, { recursive: true }));
beforeEach(() => {
  process.env.PATH = `${folder}:${path}`;
  upstream = createUpstream({ allowPrivate: true });
});
afterEach(async () => {
  process.env.PATH = path;
  await upstream.close();
  await server?.close();
  server = undefined as never; // the next test's is its own
});

const wireOf = (id: string) => upstream.wireOf(id) as Required<Wire>; // each has what is asked of it here
async function predict(
  id: string,
  answer: (asked: Asked) => Said,
  more: Partial<PredictInput> = {},
  init: MessageInitShape<typeof WireProfileSchema> = {},
  signal?: AbortSignal,
) {
  server = await startWorldServer(answer);
  const observation = observed({ frames: [{ camera: "front", data: await picture(200) }] });
  const target = targetAt(server.endpoint, { profile: create(WireProfileSchema, init) });
  const input = predictInput({ observations: [observation], instruction: "go on", ...more });
  const frames = [];
  for await (const part of wireOf(id).predict(target, input, framesOf(observation), callWith(signal)))
    if (part.kind === "frame") frames.push(part.frame);
  return frames;
}
const reds = async (frames: readonly { data: Uint8Array }[]): Promise<number[]> =>
  Promise.all(frames.map(async ({ data }) => (await sharp(data).raw().toBuffer())[0]!));
const json = (index: number) => JSON.parse(server.asked[index]!.body.toString());

describe("vllm-omni-videos", () => {
  const jobs = (states: readonly object[], file = mp4(3)) => {
    let at = 0;
    return ({ method, path: asked }: Asked): Said => {
      if (asked.endsWith("/content")) return { bytes: file };
      if (method === "DELETE") return {};
      return { json: { id: "video-1", ...states[Math.min(at++, states.length - 1)] } };
    };
  };
  const queued = { status: "queued" };
  const working = { status: "in_progress", progress: 40 };
  const completed = { status: "completed" };

  it("creates a job, polls it at growing intervals, fetches it, and leaves out the given image", async () => {
    const clock = new ManualClock();
    const restore = setAmbient({ clock });
    const predicted = predict("vllm-omni-videos", jobs([queued, working, working, completed]), { seed: 7, fps: 20 });
    const polls = () => server?.asked.filter(({ method }) => method === "GET").length ?? 0;
    for (const [wait, seen] of [
      [500, 1],
      [750, 2],
      [1_125, 4],
    ] as const) {
      await eventually(() => expect(clock.pending).toBeGreaterThan(0));
      await clock.advance(wait);
      await eventually(() => expect(polls()).toBeGreaterThanOrEqual(Math.min(seen, 3)));
    }
    const frames = await predicted;
    restore();
    expect(await reds(frames)).toEqual([10, 20]);
    expect(frames.map(({ index, tMs, width, height }) => [index, tMs, width, height])).toEqual([
      [0, 50, 8, 4],
      [1, 100, 8, 4],
    ]);
    const [made] = server.asked;
    const form = made!.body.toString("latin1");
    for (const field of [
      ["prompt", "go on"],
      ["num_frames", "3"],
      ["seed", "7"],
      ["fps", "20"],
    ])
      expect(form).toContain(`name="${field[0]}"\r\n\r\n${field[1]}\r\n`);
    expect(form).toContain('name="input_reference"; filename="frame.png"\r\ncontent-type: image/png\r\n\r\n\x89PNG');
    expect(made!.headers["content-type"]).toMatch(/^multipart\/form-data; boundary=part-/);
  });

  it("conditions on actions in the offering's domain", async () => {
    const actions = [{ $typeName: "limber.v1.ActionStep" as const, values: [1, 2] }];
    await predict(
      "vllm-omni-videos",
      jobs([completed]),
      { actions },
      { constants: [{ key: "domain_name", text: "droid_lerobot" }] },
    );
    const form = server.asked[0]!.body.toString("latin1");
    expect(form).toContain(
      '{"action_mode":"forward_dynamics","domain_name":"droid_lerobot","action_chunk_size":1,"action":[[1,2]]}',
    );
  });

  it("deletes the job when no caller waits", async () => {
    const caller = new AbortController();
    const call = failureIn(predict("vllm-omni-videos", jobs([queued]), {}, {}, caller.signal));
    await eventually(() => expect(server?.asked.length).toBeGreaterThan(0));
    await eventually(() => expect(server.asked.some(({ method }) => method === "GET")).toBe(true));
    caller.abort();
    expect(nameOf(await call)).toBe("TIMEOUT");
    await eventually(() => expect(server.asked.at(-1)).toMatchObject({ method: "DELETE", path: "/v1/videos/video-1" }));
  });

  it.each<[string, string, readonly object[]]>([
    ["failed", "UPSTREAM_ERROR", [{ status: "failed", error: { message: "trace\nout of memory" } }]],
    ["was canceled", "UPSTREAM_ERROR", [{ status: "cancelled" }]],
    ["has an unknown state", "UPSTREAM_ERROR", [{ status: "dreaming" }]],
    ["has a path for an id", "MALFORMED_ANSWER", [{ id: "../admin", status: "queued" }]],
    ["has no id", "MALFORMED_ANSWER", [{ id: null, status: "queued" }]],
  ])("fails on a job that %s with %s", async (_, name, states) => {
    const failure = await failureIn(predict("vllm-omni-videos", jobs(states)));
    expect(nameOf(failure)).toBe(name);
    expect(failure.message).not.toContain("trace");
    expect(server.asked).toHaveLength(1);
  });
});

describe("cosmos-nim", () => {
  it("calls the earlier generations by their fields, and reads the video", async () => {
    const frames = await predict("cosmos-nim", () => ({ json: { b64_video: base64(mp4(3)), seed: 7 } }), { seed: 7 });
    expect(await reds(frames)).toEqual([10, 20]);
    expect(server.asked[0]?.path).toBe("/v1/infer");
    const { image, ...rest } = json(0);
    expect(rest).toEqual({ prompt: "go on", num_output_frames: 3, seed: 7 });
    expect(image).toMatch(/^data:image\/png;base64,/);
  });

  it("calls the third generation in the offering's mode, and sends it actions instead of a length", async () => {
    const actions = [1, 2].map((value) => ({ $typeName: "limber.v1.ActionStep" as const, values: [value] }));
    const init = { constants: [{ key: "model_mode", text: "forward_dynamics" }] };
    await predict("cosmos-nim", () => ({ json: { b64_video: base64(mp4(3)) } }), { actions, resolution: "480" }, init);
    const { input_reference, ...rest } = json(0);
    expect(rest).toEqual({ prompt: "go on", action: [[1], [2]], model_mode: "forward_dynamics" });
    expect(input_reference).toMatch(/^data:/);
  });

  it("accepts a single image for a horizon of one", async () => {
    const file = await picture(60);
    expect(
      await reds(await predict("cosmos-nim", () => ({ json: { b64_image: base64(file) } }), { horizon: 1 })),
    ).toEqual([60]);
  });

  it.each<[string, string, Said]>([
    ["no video", "MALFORMED_ANSWER", { json: {} }],
    ["a video that is not base64", "MALFORMED_ANSWER", { json: { b64_video: "***" } }],
    ["an address", "MALFORMED_ANSWER", { json: { b64_video: "http://169.254.169.254/video" } }],
    ["a video with too few images", "WRONG_STEP_COUNT", { json: { b64_video: base64(mp4(1)) } }],
    ["a file of an unknown type", "WRONG_STEP_COUNT", { json: { b64_image: base64(Buffer.from("hello")) } }],
    ["a refusal of unknown fields", "INPUT_REJECTED", { status: 422, json: { detail: "unknown field" } }],
    ["a server at work", "UPSTREAM_BUSY", { status: 503 }],
    ["a broken container", "MALFORMED_ANSWER", { json: { b64_video: base64(mp4(3).subarray(0, 130)) } }],
  ])("fails on %s with %s", async (_, name, said) => {
    expect(nameOf(await failureIn(predict("cosmos-nim", () => said)))).toBe(name);
  });

  it("reports that a video cannot be decoded without a decoder, after counting its images", async () => {
    process.env.PATH = folder.concat("-nowhere");
    const said = (): Said => ({ json: { b64_video: base64(mp4(3)) } });
    const failure = await failureIn(predict("cosmos-nim", said));
    expect([nameOf(failure), failure.message]).toEqual([
      "UNREADABLE_FRAME",
      "cannot decode a video: ffmpeg is not installed on the gateway",
    ]);
  });
});

describe("cog", () => {
  const schema = {
    components: { schemas: { Input: { properties: { image: {}, prompt: {}, num_frames: {}, seed: {} } } } },
  };
  const container =
    (prediction: (asked: Asked) => Said) =>
    (asked: Asked): Said =>
      asked.path === "/openapi.json" ? { json: schema } : prediction(asked);
  const succeeded = (output: unknown) => container(() => ({ json: { id: "req_1", status: "succeeded", output } }));

  it("sends the container the inputs of its schema under the call's own id, and accepts images as they arrive", async () => {
    const files = await Promise.all(
      [1, 2].map(async (level) => `data:image/png;base64,${base64(await picture(level))}`),
    );
    const frames = await predict("cog", succeeded(files), { seed: 7, fps: 10 });
    expect(await reds(frames)).toEqual([1, 2]);
    expect(server.asked.map(({ method, path: to }) => `${method} ${to}`)).toEqual([
      "GET /openapi.json",
      "PUT /predictions/req_1",
    ]);
    const { input } = json(1);
    expect({ ...input, image: "" }).toEqual({ image: "", prompt: "go on", num_frames: 3, seed: 7 });
  });

  it("accepts one video for all images", async () => {
    expect(await reds(await predict("cog", succeeded(`data:video/mp4;base64,${base64(mp4(2))}`)))).toEqual([0, 10]);
  });

  it("cancels the prediction when no caller waits", async () => {
    const caller = new AbortController();
    const silent = container(({ path: to }) => (to.endsWith("/cancel") ? {} : "silence"));
    const call = failureIn(predict("cog", silent, {}, {}, caller.signal));
    await eventually(() => expect(server?.asked).toHaveLength(2));
    caller.abort();
    expect(nameOf(await call)).toBe("TIMEOUT");
    await eventually(() =>
      expect(server.asked.at(-1)).toMatchObject({ method: "POST", path: "/predictions/req_1/cancel" }),
    );
  });

  it.each<[string, string, object]>([
    ["a prediction that failed", "UPSTREAM_ERROR", { status: "failed", error: "trace\nout of memory" }],
    ["a prediction that is still starting", "UPSTREAM_ERROR", { status: "starting" }],
    ["another prediction", "MALFORMED_ANSWER", { id: "req_0", status: "succeeded", output: [] }],
    ["files elsewhere", "MALFORMED_ANSWER", { status: "succeeded", output: "https://example.com/video.mp4" }],
    ["no output", "MALFORMED_ANSWER", { status: "succeeded", output: null }],
    ["too few images", "WRONG_STEP_COUNT", { status: "succeeded", output: ["data:image/png;base64,"] }],
  ])("fails on %s with %s", async (_, name, prediction) => {
    const failure = await failureIn(
      predict(
        "cog",
        container(() => ({ json: prediction })),
      ),
    );
    expect(nameOf(failure)).toBe(name);
    expect(failure.message).not.toContain("trace");
  });

  it("is healthy if its body reports so, whatever the status, and is probed for its inputs", async () => {
    let status = "READY";
    server = await startWorldServer(({ path: to }) =>
      to === "/openapi.json" ? { json: schema } : { json: { status } },
    );
    const target = targetAt(server.endpoint);
    await wireOf("cog").health(target, callWith());
    status = "SETUP_FAILED";
    expect(nameOf(await failureIn(wireOf("cog").health(target, callWith())))).toBe("MALFORMED_ANSWER");
    const [probe] = wireOf("cog").probes;
    await expect(probe?.look(target, callWith())).resolves.toContain("image, prompt");
    const other = targetAt(server.endpoint, { profile: create(WireProfileSchema, { instructionKey: "text" }) });
    await expect(probe?.look(other, callWith())).rejects.toThrow("no inputs named text");
    expect(server.asked.map(({ path: to }) => to)).not.toContain("/shutdown");
  });
});

describe("a video container", () => {
  it("has its images counted by its tables or its fragments, without its sound", () => {
    expect([countMp4Frames(mp4(0)), countMp4Frames(mp4(121)), countMp4Frames(fragmentedMp4(10, 15))]).toEqual([
      0, 121, 25,
    ]);
  });

  it("that is nested, endless or damaged is refused, and thousands of damaged ones do no more", () => {
    let nest = box("trak");
    for (let i = 0; i < 20; i++) nest = box("trak", nest);
    expect(() => countMp4Frames(nest)).toThrow("too_deep");
    expect(() => countMp4Frames(Buffer.alloc(8 * 200_000, "\0\0\0\x08free", "latin1"))).toThrow("too_many_values");
    expect(() => countMp4Frames(Buffer.from("\0\0\0\x04moov", "latin1"))).toThrow("malformed");
    let refused = 0;
    for (const bytes of mutations([mp4(4), fragmentedMp4(2)], runs(2_000), 7)) {
      try {
        countMp4Frames(bytes);
      } catch (error) {
        refused++;
        expect((error as Error).name).toBe("CodecError");
      }
    }
    expect(refused).toBeGreaterThan(100);
  });
});

const REAL = spawnSync("ffmpeg", ["-version"], { stdio: "ignore" }).status === 0;

describe.runIf(REAL)("a video from ffmpeg, decoded by ffmpeg", () => {
  const LEVELS = [0, 60, 120, 180, 240];
  let made: string;
  beforeAll(async () => {
    made = await mkdtemp(join(tmpdir(), "video-"));
    for (const [i, level] of LEVELS.entries()) await writeFile(join(made, `${i}.png`), await shown(level));
  });
  afterAll(() => rm(made, { recursive: true }));
  beforeEach(() => {
    process.env.PATH = path; // the machine's own decoder, not the stand-in
  });

  /** Large enough that its codec keeps the colour. */
  const shown = (level: number): Promise<Buffer> =>
    sharp({ create: { width: 64, height: 32, channels: 3, background: { r: level, g: level, b: level } } })
      .png()
      .toBuffer();
  const video = (name: string, ...how: string[]): Buffer => {
    const file = join(made, name);
    const args = ["-loglevel", "error", "-y", "-framerate", "10", "-i", join(made, "%d.png"), ...how, file];
    const { status, stderr } = spawnSync("ffmpeg", args);
    if (status !== 0) throw new Error(String(stderr));
    return readFileSync(file);
  };

  it.each([
    ["with its tables at the end", []],
    ["with its tables at the start", ["-movflags", "+faststart"]],
    ["in fragments", ["-movflags", "+frag_keyframe+empty_moov", "-g", "2"]],
  ])("%s is counted by its container and gives the images after the first, in order", async (_, how) => {
    const file = video("plain.mp4", "-c:v", "mpeg4", "-q:v", "1", ...how);
    expect(countMp4Frames(file)).toBe(LEVELS.length);
    const said = (): Said => ({ json: { b64_video: base64(file) } });
    const frames = await predict("cosmos-nim", said, { horizon: 4 });
    expect(frames.map(({ width, height }) => [width, height])).toEqual(LEVELS.slice(1).map(() => [64, 32]));
    for (const [i, red] of (await reds(frames)).entries()) expect(Math.abs(red - LEVELS[i + 1]!)).toBeLessThan(8);
  });

  it("that is cut or damaged fails with the gateway's own text", async () => {
    const file = video("cut.mp4", "-c:v", "mpeg4", "-movflags", "+faststart");
    const broken = Buffer.from(file);
    broken.fill(0x5a, file.indexOf("mdat") + 4);
    for (const bytes of [file.subarray(0, file.length / 2), broken]) {
      const failure = await failureIn(
        predict("cosmos-nim", () => ({ json: { b64_video: base64(bytes) } }), { horizon: 4 }),
      );
      expect(["MALFORMED_ANSWER", "UNREADABLE_FRAME", "WRONG_STEP_COUNT"]).toContain(nameOf(failure));
      await server.close();
    }
  });
});
