/** Refusals as robots' own clients print them: in the client's own keys, with the decisive cause first. */
import { once } from "node:events";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { WebSocket } from "ws";
import { Request } from "zeromq";
import { decodeGr00t, encodeGr00t } from "../../src/codecs/python/gr00t.ts";
import type { Packable } from "../../src/codecs/python/msgpack.ts";
import { encodeNumpy, NdArray } from "../../src/codecs/python/ndarray.ts";
import type { App, Caller } from "../support/app.ts";
import type { Model } from "../support/model.ts";
import { openModel, ownGateway } from "../support/world.ts";

let app: App;
let model: Model;
let caller: Caller;

const READS = { cameras: [{ name: "agentview", required: true }], proprio: [{ dimension: 8 }] };

beforeAll(async () => {
  [app, model] = await Promise.all([ownGateway({ gr00tPort: 0 }), openModel()]);
  const supply = { endpoint: model.endpoint, action_spaces: ["joint_pos_7"] };
  await app.supply({ ...supply, provider: "one", model: "acme/arm", input: READS });
  caller = await app.caller(10);
});

const picture = (shape: readonly number[]): NdArray =>
  NdArray.uint8(new Uint8Array(shape.reduce((product, size) => product * size)), shape);

/** What a GR00T client raises for its data. */
async function gr00t(data: Packable<NdArray>): Promise<string> {
  const socket = new Request({ receiveTimeout: 60_000, linger: 0 });
  socket.connect(`tcp://127.0.0.1:${app.gateway.gr00tPort}`);
  try {
    await socket.send(encodeGr00t({ endpoint: "get_action", api_token: caller.key, data }));
    const [answer] = await socket.receive();
    return String((decodeGr00t(answer as Buffer) as Map<string, string>).get("error"));
  } finally {
    socket.close();
  }
}

/** What an openpi client raises for its observation. */
async function openpi(observation: Packable<NdArray>): Promise<string> {
  const socket = new WebSocket(`${app.url.replace("http", "ws")}/v1/openpi/acme/arm?action_space=joint_pos_7`, {
    headers: { authorization: `Api-Key ${caller.key}` },
  });
  onTestFinished(() => socket.terminate());
  await once(socket, "message");
  socket.send(encodeNumpy(observation));
  const [text] = await once(socket, "message");
  return String(text);
}

const OPTIONS = { model: "acme/arm", action_space: "joint_pos_7" };

describe("a refusal of an Isaac-GR00T client", () => {
  it("names the key of an unread image, flat and nested, and its camera", async () => {
    const [front, state] = [picture([1, 4, 4, 3]), NdArray.float32([1, 2, 3, 4, 5, 6, 7, 8], [1, 8])];
    const flat = await gr00t({ "video.front": front, "state.arm": state, options: OPTIONS });
    const inside = {
      video: { front: picture([1, 1, 4, 4, 3]) },
      state: { arm: NdArray.float32([1, 2, 3, 4, 5, 6, 7, 8], [1, 1, 8]) },
    };
    const nested = await gr00t({ observation: inside, options: OPTIONS });
    for (const text of [flat, nested]) {
      expect(text).toContain('video.front as camera "front" is not read; the model reads agentview');
      expect(text).not.toMatch(/observations\.|frames/);
    }
  });

  it("names `state` if the model reads another number of values", async () => {
    const text = await gr00t({
      "video.agentview": picture([1, 4, 4, 3]),
      "state.arm": NdArray.float32([1, 2], [1, 2]),
      options: OPTIONS,
    });
    expect(text).toContain("state has 2 values, and the model reads 8 values");
    expect(text).not.toMatch(/observations\.|proprio/);
  });
});

describe("a refusal of an openpi client", () => {
  it("names its own key of an image, and its camera", async () => {
    const text = await openpi({
      "observation/wrist_image_left": picture([4, 4, 3]),
      "observation/joint_position": NdArray.float32([1, 2, 3, 4, 5, 6, 7], [7]),
      "observation/gripper_position": NdArray.float32([1], [1]),
    });
    expect(text).toContain('observation/wrist_image_left as camera "wrist" is not read; the model reads agentview');
    expect(text).not.toMatch(/observations\.|frames/);
  });
});

describe("a refusal for service/auto", () => {
  it("names the decisive `trust` first, however many offerings could not serve at all", async () => {
    const unable = Array.from({ length: 6 }, (_, i) => ({ provider: "one", model: `acme/other-${i}` }));
    const declared = unable.map((each) => app.supply({ ...each, endpoint: model.endpoint }));
    await Promise.all(declared);
    await app.supply({
      provider: "stranger",
      model: "stranger/legs",
      standing: "community",
      endpoint: model.endpoint,
      action_spaces: ["waypoint_se2"],
    });
    const body = { model: "service/auto", action_space: "waypoint_se2", horizon: 2, observations: [{ proprio: [0] }] };
    const { status, text, body: refused } = await app.call("/v1/act", body, { key: caller.key });
    expect(status, text).toBe(409);
    const { message, details } = refused.error;
    expect(message).toContain("`trust` alone drops 1 of them (stranger: ");
    expect(details.dropped[0]).toMatchObject({ provider: "stranger", reason: "trust" });
    expect(details.excluded_by[0]).toBe("trust");
    const told = await gr00t({
      "state.arm": NdArray.float32([0], [1, 1]),
      options: { ...OPTIONS, model: "service/auto", action_space: "waypoint_se2" },
    });
    expect(told.indexOf("trust")).toBeGreaterThan(0);
    expect(told.length).toBeLessThan(600);
  });
});
