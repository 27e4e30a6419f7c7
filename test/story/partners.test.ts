/** A lab's model server joins as it is: registered, declared, verified, called; what the caller gets is what the lab's own client gets. */
import sharp from "sharp";
import { expect, it } from "vitest";
import { Request } from "zeromq";
import type { Answer } from "../support/app.ts";
import { ndarray } from "../support/openpi-server.ts";
import {
  failedChecks,
  libero,
  modalities,
  ownOpenpiClient,
  redOf,
  SIDE,
  scene,
  type Tree,
  turned,
  useLab,
} from "../support/partners.ts";
import { pack, unpack } from "../support/plain-msgpack.ts";
import { startChatServer } from "../support/servers/chat.ts";
import { npy, startGr00tServer } from "../support/servers/gr00t.ts";
import { startWorldServer } from "../support/servers/world-models.ts";

const { app, robot, open, join, openpi } = useLab();

it("serves an openpi server's exact numbers after registration by address and preset", async () => {
  const server = await openpi(libero);
  const { model, body } = await join({
    runtime: "openpi-ws",
    endpoint: server.endpoint,
    profile: { preset: "openpi/libero" },
  });
  expect([body.offering.status, failedChecks(body)]).toEqual(["live", []]);

  const [agent, wrist] = await Promise.all([scene(1), scene(2)]);
  const proprio = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8];
  const instruction = "put the bowl on the plate";
  const answer = await app.call(
    "/v1/act",
    {
      model,
      instruction,
      horizon: 10,
      observations: [
        {
          frames: [
            { camera: "agentview", url: `data:image/png;base64,${agent.png.toString("base64")}` },
            { camera: "wrist", url: `data:image/png;base64,${wrist.png.toString("base64")}` },
          ],
          proprio,
        },
      ],
    },
    { key: robot.key },
  );
  expect([answer.status, answer.body.route.simulated]).toEqual([200, false]);
  const image = (pixels: Buffer) => ndarray("|u1", [SIDE, SIDE, 3], turned(pixels));
  const own = await ownOpenpiClient(
    server.endpoint,
    new Map<string, unknown>([
      ["observation/image", image(agent.pixels)],
      ["observation/wrist_image", image(wrist.pixels)],
      ["observation/state", ndarray("<f8", [8], Buffer.from(Float64Array.from(proprio).buffer))],
      ["prompt", instruction],
    ]),
  );
  expect(answer.body.action.steps).toEqual(own);
  expect(own[9]).toHaveLength(7);
});

it("serves an Isaac-GR00T server's exact numbers, compared with libzmq's client", async () => {
  const arrayIn = (file: unknown): Buffer => (file as Buffer).subarray(10 + (file as Buffer).readUInt16LE(8));
  const policy = (message: Map<string, unknown>): number[][] => {
    const observation = (message as Tree).get("data")?.get("observation");
    const pixels = arrayIn(observation?.get("video")?.get("image")?.get("as_npy"));
    const x = new Float32Array(new Uint8Array(arrayIn(observation?.get("state")?.get("x")?.get("as_npy"))).buffer)[0]!;
    const seen = pixels.reduce((sum, byte, i) => (sum + byte * (1 + (i % 251))) % 100_003, 0) / 100_003;
    return Array.from({ length: 16 }, (_, t) => [x + seen + t]);
  };
  const server = await startGr00tServer({ policy, config: modalities(["image", "wrist_image"], ["x"], ["base"]) });
  open.push(server);
  const profile = {
    frames: [
      { camera: "agentview", key: "video.image", width: SIDE, height: SIDE },
      { camera: "wrist", key: "video.wrist_image", width: SIDE, height: SIDE },
    ],
    proprio: [{ start: 0, end: 1, key: "state.x" }],
    instruction_key: "annotation.human.action.task_description",
    action_keys: ["base"],
    action_dims: [1],
  };
  const space = { action_spaces: ["continuous_nd"], action_dim: 1, max_horizon: 16 };
  const { model, body } = await join({ runtime: "gr00t-zmq", endpoint: server.endpoint, profile, ...space });
  expect([body.offering.status, failedChecks(body)]).toEqual(["live", []]);

  const { pixels, png } = await scene(3);
  const url = `data:image/png;base64,${png.toString("base64")}`;
  const frames = ["agentview", "wrist"].map((camera) => ({ camera, url }));
  const request = {
    model,
    action_space: "continuous_nd",
    instruction: "go",
    horizon: 16,
    observations: [{ frames, proprio: [0.25] }],
  };
  const answer = await app.call("/v1/act", request, { key: robot.key });
  const array = (file: Buffer) =>
    new Map<string, unknown>([
      ["__ndarray_class__", true],
      ["as_npy", file],
    ]);
  const video = array(npy("|u1", [1, 1, SIDE, SIDE, 3], pixels));
  const state = array(npy("<f4", [1, 1, 1], Buffer.from(Float32Array.of(0.25).buffer)));
  const own = new Request({ linger: 0 });
  own.connect(server.endpoint);
  open.push(own);
  const observation = new Map<string, unknown>([
    [
      "video",
      new Map([
        ["image", video],
        ["wrist_image", video],
      ]),
    ],
    ["state", new Map([["x", state]])],
    ["language", new Map([["annotation.human.action.task_description", [["go"]]]])],
  ]);
  const data = new Map<string, unknown>([
    ["observation", observation],
    ["options", null],
  ]);
  await own.send(
    pack(
      new Map<string, unknown>([
        ["endpoint", "get_action"],
        ["data", data],
      ]),
    ),
  );
  const [reply] = await own.receive();
  const file = (unpack(reply!) as unknown as Tree[])[0]?.get("base")?.get("as_npy");
  const values = [...new Float32Array(new Uint8Array(arrayIn(file)).buffer)];
  expect([answer.status, answer.body.action?.steps.flat()]).toEqual([200, values]);
});

it("serves an OpenAI-compatible server's exact places", async () => {
  const server = await startChatServer(async (chat) => {
    const [x, y] = await redOf(chat);
    return `[{"point_2d": [${x}, ${y}], "label": "square"}]`;
  });
  open.push(server);
  const { model, body } = await join({
    runtime: "openai-chat",
    endpoint: server.endpoint,
    contracts: ["ground"],
    action_spaces: [],
    price_per_1k_tokens: 0.001,
    profile: { coordinates: "xy_1000", server_model: "test/model" },
  });
  expect([body.offering.status, failedChecks(body)]).toEqual(["live", []]);

  const square = { create: { width: 20, height: 20, channels: 3 as const, background: { r: 220, g: 20, b: 20 } } };
  const png = await sharp({ create: { width: 200, height: 100, channels: 3, background: { r: 9, g: 9, b: 9 } } })
    .composite([{ input: square, left: 150, top: 10 }])
    .png()
    .toBuffer();
  const url = `data:image/png;base64,${png.toString("base64")}`;
  const request = { model, instruction: "the red square", observations: [{ frames: [{ camera: "front", url }] }] };
  const answer = await app.call("/v1/ground", request, { key: robot.key });
  const own = await fetch(`${server.endpoint}/chat/completions`, {
    method: "POST",
    body: JSON.stringify({ messages: [{ content: [{ type: "image_url", image_url: { url } }] }] }),
  });
  const said = JSON.parse(((await own.json()) as Answer["body"]).choices[0].message.content)[0].point_2d;
  expect(answer.status).toBe(200);
  expect(answer.body.points).toMatchObject([
    { x: said[0] / 1000, y: said[1] / 1000, label: "square", camera: "front" },
  ]);
  expect(answer.body.usage).toMatchObject({ input_tokens: 300, output_tokens: 20 });
});

it("serves a world model's exact images from its container", async () => {
  const later = (png: Buffer, by: number): Promise<Buffer> =>
    sharp(png)
      .modulate({ brightness: 1 + by / 10 })
      .png()
      .toBuffer();
  const properties = { image: {}, prompt: {}, num_frames: {} };
  const files = new Map<string, string[]>();
  const server = await startWorldServer(({ path, body }) => {
    if (path === "/openapi.json") return { json: { components: { schemas: { Input: { properties } } } } };
    if (path === "/health-check") return { json: { status: "READY" } };
    const { image, num_frames } = JSON.parse(body.toString()).input;
    const output = Array.from({ length: num_frames - 1 }, (_, i) => files.get(image)?.[i] ?? image);
    return { json: { id: path.split("/").at(-1), status: "succeeded", output } };
  });
  open.push(server);
  const { model, body } = await join({
    runtime: "cog",
    endpoint: server.endpoint,
    contracts: ["predict"],
    action_spaces: [],
    price_per_frame: 0.001,
  });
  expect([body.offering.status, failedChecks(body)]).toEqual(["live", []]);

  const { png } = await scene(4);
  const url = `data:image/png;base64,${png.toString("base64")}`;
  const own = await Promise.all([1, 2].map((by) => later(png, by)));
  files.set(
    url,
    own.map((file) => `data:image/png;base64,${file.toString("base64")}`),
  );
  const request = { model, instruction: "go", horizon: 2, observations: [{ frames: [{ camera: "front", url }] }] };
  const answer = await app.call("/v1/predict", request, { key: robot.key });
  expect([answer.status, answer.body.frames?.map(({ data }: { data: string }) => data)]).toEqual([
    200,
    own.map((file) => file.toString("base64")),
  ]);
});
