/** Ground over chat completions: what models of each convention are asked, and what is read of their words. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import sharp from "sharp";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { CoordinateConvention, WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import { createUpstream, type Upstream } from "../../src/upstream/index.ts";
import { sizeFor } from "../../src/upstream/openai-chat.ts";
import { redSquare } from "../../src/upstream/pictures/test-picture.ts";
import type { UpstreamTarget, Wire } from "../../src/upstream/wire.ts";
import { startBadUpstream } from "../support/bad-upstream.ts";
import { type Chat, completion, startChatServer } from "../support/servers/chat.ts";
import { callWith, failureIn, framesOf, groundInput, nameOf, observed, targetAt } from "../support/wire-calls.ts";

const { XY_100, XY_1000, YX_1000, XY_PX_RESIZED28, XY_UNIT, LOC_YX_1024, MOLMO2_COORDS } = CoordinateConvention;

let upstream: Upstream;
let wire: Required<Pick<Wire, "ground" | "health" | "probes" | "faultOf">>;
let server: Awaited<ReturnType<typeof startChatServer>>;

beforeEach(() => {
  upstream = createUpstream({ allowPrivate: true });
  wire = upstream.wireOf("openai-chat") as Required<Wire>; // it has all of these
});
afterEach(async () => {
  await upstream.close();
  await server?.close();
});

const profile = (coordinates: CoordinateConvention, more: MessageInitShape<typeof WireProfileSchema> = {}) =>
  create(WireProfileSchema, { ...more, coordinates } as MessageInitShape<typeof WireProfileSchema>);
const target = (coordinates: CoordinateConvention, more: Partial<UpstreamTarget> = {}): UpstreamTarget =>
  targetAt(server.endpoint, { profile: profile(coordinates), ...more });
const seen = async (...cameras: string[]) => {
  const data = await redSquare(0.75, 0.25, 224);
  return observed({ frames: (cameras.length > 0 ? cameras : ["front"]).map((camera) => ({ camera, data })) });
};
const ground = async (
  says: string | ((chat: Chat) => string),
  coordinates: CoordinateConvention,
  ...cameras: string[]
) => {
  server = await startChatServer(says);
  const observation = await seen(...cameras);
  return wire.ground(target(coordinates), groundInput(observation, "the red cube"), framesOf(observation), callWith());
};
const places = async (says: string, coordinates: CoordinateConvention) => {
  const { points, boxes } = await ground(says, coordinates);
  const round = (value: number): number => Math.round(value * 10_000) / 10_000;
  return {
    points: points.map(({ x, y, label }) => [round(x), round(y), label]),
    boxes: boxes.map(({ xMin, yMin, xMax, yMax, label }) => [...[xMin, yMin, xMax, yMax].map(round), label]),
  };
};

describe("a grounding answer in the convention of", () => {
  it.each<[string, CoordinateConvention, string, unknown[], unknown[]]>([
    [
      "Molmo, one point",
      XY_100,
      ' <point x="61.5" y="40.6" alt="red cube">red cube</point>',
      [[0.615, 0.406, "red cube"]],
      [],
    ],
    [
      "Molmo, several points",
      XY_100,
      '<points x1="10.0" y1="20.5" x2="99.9" y2="0.1" alt="cubes">cubes</points>',
      [
        [0.1, 0.205, "cubes"],
        [0.999, 0.001, "cubes"],
      ],
      [],
    ],
    ["Molmo, nothing found", XY_100, "There are none.", [], []],
    [
      "Qwen3-VL",
      XY_1000,
      '```json\n[\n\t{"bbox_2d": [700, 200, 800, 300], "label": "cube"},\n\t{"point_2d": [750, 250], "label": "cube"}\n]\n```',
      [[0.75, 0.25, "cube"]],
      [[0.7, 0.2, 0.8, 0.3, "cube"]],
    ],
    [
      "a reasoning model",
      XY_1000,
      '<think>It may be at [{"point_2d": [1, 1]}], or not.</think>\n[{"point_2d": [750, 250], "label": "cube"}]',
      [[0.75, 0.25, "cube"]],
      [],
    ],
    [
      "Qwen3-VL, cut off",
      XY_1000,
      '[{"point_2d": [750, 250], "label": "a"}, {"point_2d": [100, 200], "label": "b"}, {"point_2d": [3',
      [
        [0.75, 0.25, "a"],
        [0.1, 0.2, "b"],
      ],
      [],
    ],
    [
      "Qwen-VL",
      XY_1000,
      "<|object_ref_start|>the cube<|object_ref_end|><|box_start|>(536,509),(588,602)<|box_end|>",
      [],
      [[0.536, 0.509, 0.588, 0.602, "the cube"]],
    ],
    ["Florence-2", XY_1000, "cube<loc_100><loc_200><loc_300><loc_400>", [], [[0.1, 0.2, 0.3, 0.4, "cube"]]],
    ["a model that finds nothing", XY_1000, "[]", [], []],
    ["a model that finds nothing, in a fence", YX_1000, "```json\n[]\n```", [], []],
    [
      "Gemini Robotics-ER",
      YX_1000,
      '[{"point": [250, 750], "label": "cube"}, {"box_2d": [200, 700, 300, 800], "label": "cube"}]',
      [[0.75, 0.25, "cube"]],
      [[0.7, 0.2, 0.8, 0.3, "cube"]],
    ],
    [
      "Qwen2.5-VL, in pixels of the image that it received",
      XY_PX_RESIZED28,
      '[{"bbox_2d": [168, 28, 196, 84], "label": "cube"}]',
      [],
      [[0.75, 0.125, 0.875, 0.375, "cube"]],
    ],
    ["RoboPoint", XY_UNIT, "[(0.75, 0.25), (0.7, 0.2, 0.8, 0.3)]", [[0.75, 0.25, ""]], [[0.7, 0.2, 0.8, 0.3, ""]]],
    [
      "Moondream",
      XY_UNIT,
      '{"objects": [{"x_min": 0.7, "y_min": 0.2, "x_max": 0.8, "y_max": 0.3}], "points": [{"x": 0.75, "y": 0.25}]}',
      [[0.75, 0.25, ""]],
      [[0.7, 0.2, 0.8, 0.3, ""]],
    ],
    ["Moondream, which finds nothing", XY_UNIT, '{"objects": []}', [], []],
    [
      "PaliGemma",
      LOC_YX_1024,
      "<loc0256><loc0768><loc0512><loc1024> cube ; <loc0000><loc0000><loc0512><loc0512> bowl",
      [],
      [
        [0.75, 0.25, 1, 0.5, "cube"],
        [0, 0, 0.5, 0.5, "bowl"],
      ],
    ],
    [
      "Molmo2",
      MOLMO2_COORDS,
      '<points coords="1 1 990 800 2 911 800">cubes</points>',
      [
        [0.99, 0.8, "cubes"],
        [0.911, 0.8, "cubes"],
      ],
      [],
    ],
  ])("%s is parsed to its places", async (_, coordinates, says, points, boxes) => {
    expect(await places(says, coordinates)).toEqual({ points, boxes });
  });

  it("Molmo2 names the camera of each place for several images", async () => {
    const says = '<points coords="1 1 100 200\t2 2 300 400;2 3 500 600">cube</points>';
    const { points } = await ground(says, MOLMO2_COORDS, "front", "wrist");
    expect(points.map(({ x, frame, camera }) => [x, frame, camera])).toEqual([
      [0.1, 0, "front"],
      [0.3, 1, "wrist"],
      [0.5, 1, "wrist"],
    ]);
    expect(server.chats()).toHaveLength(1);
  });

  it("any other model is called once per image, and the tokens are added", async () => {
    const { points, inputTokens, outputTokens } = await ground('[{"point_2d": [750, 250]}]', XY_1000, "front", "wrist");
    expect(points.map(({ frame, camera }) => [frame, camera])).toEqual([
      [0, "front"],
      [1, "wrist"],
    ]);
    expect([inputTokens, outputTokens]).toEqual([600, 40]);
  });

  it("each model has outside places counted, rounding errors clamped, and boxes put the right way round", async () => {
    const says = '[{"point_2d": [1003, -4]}, {"point_2d": [1200, 10]}, {"bbox_2d": [800, 300, 700, 200]}]';
    const { points, boxes, note } = await ground(says, XY_1000);
    expect(points.map(({ x, y }) => [x, y])).toEqual([[1, 0]]);
    expect(boxes).toMatchObject([{ xMin: 0.7, yMin: 0.2, xMax: 0.8, yMax: 0.3 }]);
    expect(note).toBe("1 places that are outside the image or unreadable were left out");
  });
});

describe("a grounding request over chat completions", () => {
  it("contains the image itself, never its address, the instruction, and the offering's declarations", async () => {
    server = await startChatServer("[]");
    const observation = await seen();
    const constants = [{ key: "top_k", number: 1 }];
    const declared = profile(XY_1000, { serverModel: "Qwen/Qwen3-VL-8B", constants });
    const input = { ...groundInput(observation, "the red cube"), seed: 7 };
    const auth = { type: "bearer", secret: "sk-1" } as const;
    const to = targetAt(server.endpoint, { profile: declared, auth });
    await wire.ground(to, input, framesOf(observation), callWith());
    const [chat] = server.chats();
    expect(chat).toMatchObject({ model: "Qwen/Qwen3-VL-8B", seed: 7, temperature: 0, top_k: 1, stream: false });
    const [picture, text] = chat!.messages[0]!.content;
    expect(picture?.image_url?.url).toBe(
      `data:image/png;base64,${Buffer.from(observation.frames[0]!.data).toString("base64")}`,
    );
    expect(text?.text).toContain("the red cube");
    expect(server.acts[0]?.headers).toMatchObject({ authorization: "Bearer sk-1", "x-request-id": "req_1" });
    expect(server.asked).toEqual(["POST /v1/chat/completions"]);
  });

  it("in pixels sends the image in the exact size by which the answer is divided", async () => {
    const { boxes } = await ground((chat) => {
      const url = chat.messages[0]!.content[0]!.image_url!.url;
      const png = Buffer.from(url.slice(url.indexOf(",") + 1), "base64");
      return `[{"bbox_2d": [0, 0, ${png.readUInt32BE(16)}, ${png.readUInt32BE(20)}]}]`;
    }, XY_PX_RESIZED28);
    expect(boxes).toMatchObject([{ xMin: 0, yMin: 0, xMax: 1, yMax: 1 }]);
  });

  it.each([
    [
      { width: 640, height: 480 },
      { width: 644, height: 476 },
    ],
    [
      { width: 1, height: 1 },
      { width: 28, height: 28 },
    ],
    [
      { width: 3_840, height: 2_160 },
      { width: 1_344, height: 756 },
    ],
  ])("resizes %j to %j, multiples of 28 within the budget", (from, to) => {
    expect(sizeFor(from, 28)).toEqual(to);
  });

  it("is refused for an observation without an image and for an offering without a convention", async () => {
    server = await startChatServer("[]");
    const blind = observed({ proprio: [1] });
    const call = wire.ground(target(XY_1000), groundInput(blind, "x"), framesOf(blind), callWith());
    expect(nameOf(await failureIn(call))).toBe("INPUT_REJECTED");
    const observation = await seen();
    const bare = wire.ground(
      targetAt(server.endpoint),
      groundInput(observation, "x"),
      framesOf(observation),
      callWith(),
    );
    expect(nameOf(await failureIn(bare))).toBe("INPUT_REJECTED");
    expect(server.chats()).toEqual([]);
  });
});

describe("a bad chat completion fails with the gateway's own text", () => {
  it.each<[string, CoordinateConvention, string, string]>([
    ["of another convention", XY_1000, '<point x="61.5" y="40.6">cube</point>', "MALFORMED_ANSWER"],
    ["in prose", YX_1000, "The cube is on the left.", "MALFORMED_ANSWER"],
    ["of objects of other types", XY_1000, '{"error": "no"}', "MALFORMED_ANSWER"],
    ["whose reasoning never ends", XY_1000, '<think>[{"point_2d": [1, 2]}]', "MALFORMED_ANSWER"],
    ["all outside the image", XY_UNIT, "[(750, 250)]", "MALFORMED_ANSWER"],
    ["of thousandths where a hundred is declared", XY_100, '<point x="615" y="406">cube</point>', "MALFORMED_ANSWER"],
    ["that is endless", XY_1000, "[".repeat(300_000), "ANSWER_TOO_LARGE"],
    ["without a text", XY_1000, JSON.stringify({ choices: [{ message: { content: null } }] }), "MALFORMED_ANSWER"],
    ["without choices", XY_1000, '{"choices": []}', "MALFORMED_ANSWER"],
    [
      "of negative tokens",
      XY_1000,
      completion("[]", { usage: { prompt_tokens: -5, completion_tokens: 1 } }),
      "MALFORMED_ANSWER",
    ],
  ])("%s", async (_, coordinates, says, name) => {
    expect(nameOf(await failureIn(ground(says, coordinates)))).toBe(name);
  });

  it.each([
    [400, "INPUT_REJECTED"],
    [401, "UPSTREAM_AUTH"],
    [404, "UPSTREAM_ERROR"],
    [429, "UPSTREAM_BUSY"],
    [302, "UPSTREAM_ERROR"],
    [503, "UPSTREAM_BUSY"],
  ])("of status %i is %s", async (status, name) => {
    const http = await startBadUpstream((socket) =>
      socket.once("data", () =>
        socket.end(
          `HTTP/1.1 ${status} No\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 14\r\n\r\nsecret=hunter2`,
        ),
      ),
    );
    server = await startChatServer("[]");
    const observation = await seen();
    const to = { ...target(XY_1000), endpoint: `http://127.0.0.1:${http.port}` };
    const failure = await failureIn(wire.ground(to, groundInput(observation, "x"), framesOf(observation), callWith()));
    expect([nameOf(failure), failure.message]).toEqual([name, `answered HTTP ${status}`]);
    await http.close();
  });

  it("of a compressed body, which could expand beyond every limit", async () => {
    const http = await startBadUpstream((socket) =>
      socket.once("data", () =>
        socket.end("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nzzzz"),
      ),
    );
    server = await startChatServer("[]");
    const to = { ...target(XY_1000), endpoint: `http://127.0.0.1:${http.port}` };
    expect(nameOf(await failureIn(wire.health(to, callWith())))).toBe("MALFORMED_ANSWER");
    await http.close();
  });
});

describe("the chat completions probe", () => {
  it("queries the model by its upstream name", async () => {
    server = await startChatServer("[]", { models: ["Qwen/Qwen3-VL-8B"] });
    const [check] = wire.probes;
    await expect(check?.look(target(XY_1000), callWith())).rejects.toThrow("set profile.server_model");
    const named = target(XY_1000, { profile: profile(XY_1000, { serverModel: "Qwen/Qwen3-VL-8B" }) });
    await expect(check?.look(named, callWith())).resolves.toContain("lists Qwen/Qwen3-VL-8B");
    await wire.health(named, callWith());
  });

  it("requires a convention of every offering that grounds", () => {
    expect(wire.faultOf(undefined, [3])?.field).toBe("coordinates");
    expect(wire.faultOf(profile(XY_UNIT), [3])).toBeUndefined();
  });
});

it("sends images that sharp can read back, for every size", async () => {
  await ground((chat) => {
    expect(chat.messages[0]!.content[0]!.image_url!.url).toMatch(/^data:image\/png;base64,/);
    return "[]";
  }, XY_PX_RESIZED28);
  const url = server.chats()[0]!.messages[0]!.content[0]!.image_url!.url;
  const { width, height } = await sharp(Buffer.from(url.split(",")[1]!, "base64")).metadata();
  expect([width, height]).toEqual([224, 224]);
});
