/**
 * A lab's model server joins as it is: registered, declared, verified, called; what the caller gets is what the lab's own client gets.
 * And one that isn't what it says is turned away with a report of what to mend.
 */
import sharp from "sharp";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { WebSocket } from "ws";
import { Request } from "zeromq";
import { type Answer, type App, type Caller, openApp } from "../support/app.ts";
import { f4, ndarray, type OpenpiOptions, type OpenpiServer, startOpenpiServer } from "../support/openpi-server.ts";
import { pack, unpack } from "../support/plain-msgpack.ts";
import { type Chat, startChatServer } from "../support/servers/chat.ts";
import { npy, startGr00tServer } from "../support/servers/gr00t.ts";
import { startWorldServer } from "../support/servers/world-models.ts";

let app: App;
let supplier: Caller;
let robot: Caller;
let next = 0;
const open: { close(): unknown }[] = [];

beforeAll(async () => {
  app = await openApp();
  supplier = await app.caller(0, { role: "supplier" });
  robot = await app.caller(10);
});
afterAll(() => app.close());
afterEach(async () => {
  for (const each of open.splice(0)) await each.close();
});

type Tree = Map<string, Tree>;
const SIDE = 224;

/** A picture that is the same from nowhere else, as pixels and as the file that a robot's camera makes of it. */
async function scene(seed: number): Promise<{ pixels: Buffer; png: Buffer }> {
  const pixels = Buffer.alloc(SIDE * SIDE * 3);
  for (let i = 0; i < pixels.length; i++) pixels[i] = (i * 7 + (i >> 8) * 13 + seed * 31) & 0xff;
  const png = await sharp(pixels, { raw: { width: SIDE, height: SIDE, channels: 3 } })
    .png()
    .toBuffer();
  return { pixels, png };
}

/** Registers, declares and verifies; the last answer. */
async function join(declaration: object): Promise<{ model: string; status: number; body: Answer["body"] }> {
  const provider = `lab-${next++}`;
  const model = `${provider}/policy`;
  const { key } = supplier;
  await app.call("/v1/supply/providers", { name: provider }, { key });
  const body = {
    hardware: "RTX 4090",
    region: "eu",
    contracts: ["act"],
    action_spaces: ["ee_delta_6d_grip"],
    max_horizon: 10,
    model,
    ...declaration,
  };
  const declared = await app.call(`/v1/supply/providers/${provider}/models`, body, { key });
  expect([declared.status, declared.text]).toEqual([201, expect.any(String)]);
  const verified = await app.call(`/v1/supply/offerings/${declared.body.id}/verify`, {}, { key });
  return { model, status: verified.status, body: verified.body };
}

const failedChecks = ({ report }: Answer["body"]): [string, string][] =>
  report.checks
    .filter((check: { passed: boolean }) => !check.passed)
    .map(({ name, detail }: { name: string; detail: string }) => [name, detail]);

/** An openpi LIBERO policy of ten steps that depends on every pixel, on the state and on the prompt. */
const libero = (request: Buffer): number[][] => {
  const observation = unpack(request) as Tree;
  const data = observation.get("observation/image")?.get("data") as unknown as Buffer;
  const state = observation.get("observation/state")?.get("data") as unknown as Buffer;
  const values = [...new Float64Array(new Uint8Array(state).buffer)];
  const seen = data.reduce((sum, byte, i) => (sum + byte * (1 + (i % 251))) % 100_003, 0);
  const prompt = String(observation.get("prompt")).length;
  return Array.from({ length: 10 }, (_, t) =>
    values.slice(0, 7).map((value, d) => value + seen / 100_003 + prompt / 100 + t * d),
  );
};

async function openpi(policy: (request: Buffer) => number[][], more: OpenpiOptions = {}): Promise<OpenpiServer> {
  const server: OpenpiServer = await startOpenpiServer({
    ...more,
    // What the policy throws on is answered as openpi does: with its traceback as text.
    answer: () => {
      try {
        return pack(new Map([["actions", f4(policy(server.requests.at(-1)!))]]));
      } catch (error) {
        return `Traceback (most recent call last):\n${error}`;
      }
    },
  });
  server.behave({ kind: "steps", steps: [] });
  open.push(server);
  return server;
}

const turned = (pixels: Buffer): Buffer => {
  const out = Buffer.alloc(pixels.length);
  for (let i = 0; i < pixels.length; i += 3) pixels.copy(out, pixels.length - 3 - i, i, i + 3);
  return out;
};

/** What openpi's own client does: reads the metadata, sends one map, reads one map. */
function ownOpenpiClient(endpoint: string, observation: Map<string, unknown>): Promise<number[][]> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(endpoint, { perMessageDeflate: false });
    socket.once("error", reject);
    socket.once("message", () => {
      socket.send(pack(observation));
      socket.once("message", (data) => {
        const actions = (unpack(data as Buffer) as Tree).get("actions")!;
        const [rows = 0, columns = 0] = actions.get("shape") as unknown as number[];
        const values = new Float32Array(new Uint8Array(actions.get("data") as unknown as Buffer).buffer);
        socket.close();
        resolve(Array.from({ length: rows }, (_, t) => [...values.subarray(t * columns, (t + 1) * columns)]));
      });
    });
  });
}

it("serves an openpi policy server's very own numbers, when it has joined with an address and a preset", async () => {
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

it("serves an Isaac-GR00T server's very own numbers, compared with libzmq's client", async () => {
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

/** What `get_modality_config` answers. */
function modalities(video: string[], state: string[], action: string[]): Buffer {
  const of = (modality_keys: string[]) =>
    new Map<string, unknown>([
      ["__ModalityConfig_class__", true],
      [
        "as_json",
        new Map<string, unknown>([
          ["modality_keys", modality_keys],
          ["delta_indices", [0]],
        ]),
      ],
    ]);
  return pack(
    new Map([
      ["video", of(video)],
      ["state", of(state)],
      ["action", of(action)],
    ]),
  );
}

/** Finds the red of a picture, as a model of the Qwen3-VL kind would say it. */
async function centreOfRed(chat: Chat): Promise<[number, number]> {
  const url = chat.messages[0]!.content[0]!.image_url!.url;
  const { data, info } = await sharp(Buffer.from(url.slice(url.indexOf(",") + 1), "base64"))
    .removeAlpha()
    .raw()
    .toBuffer({ resolveWithObject: true });
  let [count, x, y] = [0, 0, 0];
  for (let i = 0; i < data.length; i += 3) {
    if (data[i]! < 180 || data[i + 1]! > 80) continue;
    count++;
    x += (i / 3) % info.width;
    y += Math.floor(i / 3 / info.width);
  }
  return [Math.round((1_000 * x) / count / info.width), Math.round((1_000 * y) / count / info.height)];
}

it("serves an OpenAI-compatible server's very own places", async () => {
  const server = await startChatServer(async (chat) => {
    const [x, y] = await centreOfRed(chat);
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

it("serves a world model's very own pictures, out of its container", async () => {
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

it("warns of a server that acts without a picture as if it were there, and of one that can't take a large one", async () => {
  const blind = await openpi((request) => {
    const observation = unpack(request) as Tree;
    const state = observation.get("observation/state")?.get("data") as unknown as Buffer;
    const values = [...new Float64Array(new Uint8Array(state).buffer)];
    return Array.from({ length: 10 }, () => values.slice(0, 7));
  });
  const acting = await join({
    ...{ runtime: "openpi-ws", endpoint: blind.endpoint, profile: { preset: "openpi/libero" } },
    ...{ action_spaces: ["ee_delta_6d_grip"], max_horizon: 10, price_per_action_step: 0.001 },
  });
  expect([acting.body.offering.status, failedChecks(acting.body)]).toEqual([
    "live",
    expect.arrayContaining([
      ["missing_camera_refused", expect.stringMatching(/without the picture observation\/image/)],
    ]),
  ]);

  const small = await startChatServer(async (chat) => {
    const url = chat.messages[0]!.content[0]!.image_url!.url;
    if (url.length > 200_000) throw new Error("413");
    const [x, y] = await centreOfRed(chat);
    return `[{"point_2d": [${x}, ${y}], "label": "square"}]`;
  });
  open.push(small);
  const ground = { contracts: ["ground"], action_spaces: [], price_per_1k_tokens: 0.001 };
  const finding = await join({
    ...{ runtime: "openai-chat", endpoint: small.endpoint, ...ground },
    profile: { coordinates: "xy_1000", server_model: "test/model" },
  });
  expect([finding.body.offering.status, failedChecks(finding.body).map(([name]) => name)]).toEqual([
    "live",
    ["large_picture"],
  ]);
});

it.each<[string, () => Promise<object>, [string, RegExp]]>([
  [
    "a policy of another dimension",
    async () => {
      const droid = await openpi(() => Array(10).fill([1, 2, 3, 4, 5, 6, 7, 8]));
      return { runtime: "openpi-ws", endpoint: droid.endpoint };
    },
    ["action_shape", /8 numbers per step; the action space has 7/],
  ],
  [
    "a policy that doesn't look",
    async () => {
      const still = await openpi(() => Array(10).fill([1, 2, 3, 4, 5, 6, 7]));
      return { runtime: "openpi-ws", endpoint: still.endpoint };
    },
    ["answers_differ", /two different observations gave the same actions/],
  ],
  [
    "a policy that loses its numbers",
    async () => {
      const lost = await openpi(() => Array(10).fill([1, 2, 3, 4, 5, 6, Number.NaN]));
      return { runtime: "openpi-ws", endpoint: lost.endpoint };
    },
    ["action_shape", /not finite/],
  ],
  [
    "a server whose metadata say otherwise",
    async () => {
      const metadata = pack(new Map([["policy_server_config", new Map([["action_dim", 8]])]]));
      return { runtime: "openpi-ws", endpoint: (await openpi(() => [[0]], { metadata })).endpoint };
    },
    ["metadata", /8 numbers per step, and 7 are declared/],
  ],
  [
    "another embodiment",
    async () => {
      const server = await startGr00tServer({ config: modalities(["ego_view"], ["left_arm"], ["left_arm"]) });
      open.push(server);
      return { runtime: "gr00t-zmq", endpoint: server.endpoint, profile: { preset: "gr00t/libero" } };
    },
    ["modality_config", /names video image, wrist_image, and the server has ego_view/],
  ],
  [
    "a model of another convention",
    async () => {
      const server = await startChatServer(async (chat) => `[{"point": [${(await centreOfRed(chat)).join(", ")}]}]`);
      open.push(server);
      const ground = { contracts: ["ground"], action_spaces: [], price_per_1k_tokens: 0.001 };
      return { runtime: "openai-chat", endpoint: server.endpoint, ...ground, profile: { coordinates: "yx_1000" } };
    },
    ["square_found", /check the order and unit of coordinates/],
  ],
  [
    "a model that always finds the same place",
    async () => {
      const server = await startChatServer('[{"point_2d": [750, 250], "label": "square"}]');
      open.push(server);
      const ground = { contracts: ["ground"], action_spaces: [], price_per_1k_tokens: 0.001 };
      return { runtime: "openai-chat", endpoint: server.endpoint, ...ground, profile: { coordinates: "xy_1000" } };
    },
    ["answers_differ", /two different observations gave the same places/],
  ],
  [
    "nobody at the address",
    async () => {
      const server = await startGr00tServer();
      await server.close();
      return { runtime: "gr00t-zmq", endpoint: server.endpoint, profile: { preset: "gr00t/libero" } };
    },
    ["reachable", /ECONNREFUSED/],
  ],
])("turns away %s, with a report of what to mend", async (_, declare, [check, detail]) => {
  const { model, status, body } = await join({ timeout_s: 5, ...(await declare()) });
  expect([status, body.offering.status]).toEqual([200, "rejected"]);
  expect(failedChecks(body)).toContainEqual([check, expect.stringMatching(detail)]);
  const request = { model, observations: [{}] };
  expect((await app.call("/v1/act", request, { key: robot.key })).status).toBeGreaterThanOrEqual(400);
});
