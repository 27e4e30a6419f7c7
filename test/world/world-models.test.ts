/** World models whose videos have lengths of their own: what they are asked for, and what comes of it. */
import { create } from "@bufbuild/protobuf";
import sharp from "sharp";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import { UpstreamFailure } from "../../src/contracts/contract.ts";
import { createUpstream, type Upstream } from "../../src/upstream/index.ts";
import type { Wire } from "../../src/upstream/wire.ts";
import { type Asked, mp4, type Said, startWorldServer, type WorldServer } from "../support/servers/world-models.ts";
import { installStandInDecoder } from "../support/stand-in-decoder.ts";
import { callWith, framesOf, nameOf, observed, predictInput, targetAt } from "../support/wire-calls.ts";

const picture = (level: number): Promise<Buffer> =>
  sharp({ create: { width: 8, height: 4, channels: 3, background: { r: level, g: 0, b: 0 } } })
    .png()
    .toBuffer();

let upstream: Upstream;
let uninstall: () => Promise<void>;
let levels: Buffer[];
let server: WorldServer;
beforeAll(async () => {
  uninstall = await installStandInDecoder();
  levels = await Promise.all(Array.from({ length: 32 }, (_, i) => picture(i)));
});
afterEach(async () => {
  await upstream.close();
  await server.close();
});
afterAll(() => uninstall());

/** A video whose pictures count up from `first`. */
const video = (count: number, first = 0): Buffer => mp4(count, Buffer.concat(levels.slice(first, first + count)));

/** How each wire is asked for a length, and answers with a video or a refusal. */
const SERVERS: Readonly<
  Record<string, (made: (length: number) => Buffer | string, asked: number[]) => (question: Asked) => Said>
> = {
  "vllm-omni-videos": (made, asked) => {
    let file: Buffer | string = "";
    return ({ method, path, body }) => {
      if (path.endsWith("/content")) return { bytes: file as Buffer };
      if (method !== "POST") return { json: { id: "v", status: "completed" } };
      asked.push(Number(/name="num_frames"\r\n\r\n(\d+)/.exec(body.toString("latin1"))?.[1]));
      file = made(asked.at(-1)!);
      return typeof file === "string"
        ? { json: { id: "v", status: "failed", error: { message: file } } }
        : { json: { id: "v", status: "completed" } };
    };
  },
  "cosmos-nim":
    (made, asked) =>
    ({ body }) => {
      asked.push(JSON.parse(body.toString()).num_output_frames);
      const file = made(asked.at(-1)!);
      return typeof file === "string"
        ? { status: 422, json: { detail: [{ loc: ["body", "num_frames"], msg: file }] } }
        : { json: { b64_video: file.toString("base64") } };
    },
  cog:
    (made, asked) =>
    ({ path, body }) => {
      if (path === "/openapi.json")
        return {
          json: { components: { schemas: { Input: { properties: { image: {}, prompt: {}, num_frames: {} } } } } },
        };
      asked.push(JSON.parse(body.toString()).input.num_frames);
      const file = made(asked.at(-1)!);
      return typeof file === "string"
        ? { json: { status: "failed", error: file } }
        : { json: { status: "succeeded", output: `data:video/mp4;base64,${file.toString("base64")}` } };
    },
};

/** Predictions of these horizons, one after the other, at one server. */
async function predicted(
  wire: string,
  made: (length: number) => Buffer | string,
  horizons: readonly number[],
  frameMultiple?: number,
) {
  const asked: number[] = [];
  upstream = createUpstream({ allowPrivate: true });
  server = await startWorldServer(SERVERS[wire]!(made, asked));
  const seen = observed({ frames: [{ camera: "front", data: levels[0]! }] });
  const profile = create(WireProfileSchema, frameMultiple === undefined ? {} : { frameMultiple });
  const { predict } = upstream.wireOf(wire) as Required<Wire>; // it predicts
  const all = [];
  for (const horizon of horizons) {
    const input = predictInput({ horizon, observations: [seen], instruction: "go on" });
    const frames: number[] = [];
    let note = "";
    try {
      for await (const part of predict(targetAt(server.endpoint, { profile }), input, framesOf(seen), callWith()))
        if (part.kind === "summary") note = part.note;
        else frames.push((await sharp(part.frame.data).raw().toBuffer())[0]!);
      all.push({ frames, note });
    } catch (thrown) {
      if (!(thrown instanceof UpstreamFailure)) throw thrown;
      all.push({ frames: nameOf(thrown), note });
    }
  }
  return { all, asked };
}
const upTo = (horizon: number): number[] => Array.from({ length: horizon }, (_, i) => i + 1);
const HORIZONS = [2, 5, 6];

describe.each(Object.keys(SERVERS))("a world model over %s", (wire) => {
  it.each([
    ["Wan, which rounds 4k+1 down (diffusers)", 4],
    ["LTX, which rounds 8k+1 down (sglang)", 8],
  ])("%s returns every horizon's frames, and its rule is learned once", async (_, multiple) => {
    const rounds = (length: number): Buffer => video(multiple * Math.floor((length - 1) / multiple) + 1);
    const { all, asked } = await predicted(wire, rounds, [2, 6]);
    expect(all.map(({ frames }) => frames)).toEqual([upTo(2), upTo(6)]);
    expect(all[1]!.note).toBe(`the server makes videos of ${multiple}k+1 images: 9 requested, 6 returned`);
    expect(asked).toEqual(multiple === 4 ? [3, 5, 9] : [3, 5, 9, 9]);
  });
});

describe("a world-model server", () => {
  it("that refuses other lengths in words, as HunyuanVideo's does, is called with a valid one", async () => {
    const strict = (length: number): Buffer | string =>
      length % 4 === 1 ? video(length) : "num_frames - 1 must be divisible by 4";
    const { all, asked } = await predicted("vllm-omni-videos", strict, [2, 6]);
    expect(all.map(({ frames }) => frames)).toEqual([upTo(2), upTo(6)]);
    expect(asked).toEqual([3, 5, 9]);
  });

  it.each<[string, (length: number) => boolean, string, number[]]>([
    ["LTX's", (n) => n % 8 === 1, "num_frames must be divisible by 8 + 1 (e.g. 257)", [3, 9, 9]],
    ["a remainder", (n) => n % 4 === 1, "assert (num_frames - 1) % 4 == 0", [3, 5, 9]],
    ["a factor after its letter", (n) => n % 4 === 1, "num_frames must be n*4+1", [3, 5, 9]],
    ["AnimateDiff's multiples without one more", (n) => n % 8 === 0, "frames must be a multiple of 8", [3, 8, 8]],
    ["pydantic's list", (n) => [5, 13].includes(n), "num_frames: Input should be 5 or 13", [3, 5, 13]],
    ["a list in brackets", (n) => [5, 13].includes(n), "num_frames must be one of [5, 13]", [3, 5, 13]],
  ])("that refuses other lengths in other words is called with a valid one: %s", async (_, isValid, text, calls) => {
    const strict = (length: number): Buffer | string => (isValid(length) ? video(length) : text);
    const { all, asked } = await predicted("cosmos-nim", strict, [2, 6]);
    expect(all.map(({ frames }) => frames)).toEqual([upTo(2), upTo(6)]);
    expect(asked).toEqual(calls);
  });

  it("whose longest video is shorter than the horizon fails with its refusal", async () => {
    const strict = (length: number): Buffer | string =>
      length === 5 ? video(5) : "num_frames: Input should be less than or equal to 5";
    const { all, asked } = await predicted("cosmos-nim", strict, [6]);
    expect([all.map(({ frames }) => frames), asked]).toEqual([["INPUT_REJECTED"], [7]]);
  });

  it("of NVIDIA's Cosmos with a minimum length is called with that, and its video is cut", async () => {
    const least = (length: number): Buffer | string =>
      length >= 25 ? video(length) : "num_frames: Input should be greater than or equal to 25";
    const { all, asked } = await predicted("cosmos-nim", least, [2, 3]);
    expect(all.map(({ frames }) => frames)).toEqual([upTo(2), upTo(3)]);
    expect(asked).toEqual([3, 25, 25]);
  });

  it("with a declared rule is called with a valid length from the first call on", async () => {
    const rounds = (length: number): Buffer => video(4 * Math.floor((length - 1) / 4) + 1);
    const { all, asked } = await predicted("cosmos-nim", rounds, HORIZONS, 4);
    expect(all.map(({ frames }) => frames)).toEqual(HORIZONS.map(upTo));
    expect(asked).toEqual([5, 9, 9]);
  });

  it("without a rule is called for one image more than the horizon, once", async () => {
    const { all, asked } = await predicted("cosmos-nim", video, HORIZONS);
    expect(all).toEqual(HORIZONS.map((horizon) => ({ frames: upTo(horizon), note: "" })));
    expect(asked).toEqual(HORIZONS.map((horizon) => horizon + 1));
  });

  it("that leaves out the given image is distinguished from one that rounds down", async () => {
    const { all } = await predicted("cosmos-nim", (length) => video(length - 1, 1), HORIZONS);
    expect(all.map(({ frames }) => frames)).toEqual(HORIZONS.map(upTo));
  });

  it("with short videos for every length fails, and is called at most once more per call", async () => {
    const { all, asked } = await predicted("cosmos-nim", () => video(1), [2, 2, 2]);
    expect(all.map(({ frames }) => frames)).toEqual(Array(3).fill("WRONG_STEP_COUNT"));
    expect(asked).toEqual([3, 5, 9, 3, 3]);
  });
});
