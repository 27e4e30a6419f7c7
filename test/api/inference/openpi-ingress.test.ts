/** The openpi transport: a client that speaks the bytes of openpi-client, and knows nothing of the gateway. */
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import sharp from "sharp";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { WebSocket } from "ws";
import type { Packable } from "../../../src/codecs/python/msgpack.ts";
import { decodeNumpy, encodeNumpy, NdArray } from "../../../src/codecs/python/ndarray.ts";
import type { App, Caller } from "../../support/app.ts";
import { setClock } from "../../support/clocks.ts";
import { eventually } from "../../support/eventually.ts";
import { honestSteps, type Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import { SkippingClock } from "../../support/skipping-clock.ts";
import { openModel, openWorld } from "../../support/world.ts";

const named = uniqueNames("acme", "one", "two");

const SAMPLES = join(import.meta.dirname, "../../golden/wire-samples");
const sample = (name: string): Buffer => readFileSync(join(SAMPLES, name));

let app: App;
let one: Model;
let two: Model;
let caller: Caller;

beforeAll(async () => {
  [app, one, two] = await Promise.all([openWorld(), openModel(), openModel()]);
  const offering = { model: `${named.acme}/arm`, action_spaces: ["joint_pos_7"] };
  await app.supply({ provider: named.one, endpoint: one.endpoint, ...offering });
  await app.supply({ provider: named.two, endpoint: two.endpoint, ...offering });
  caller = await app.caller(10);
});

/** What openpi's client does: it connects, waits for the metadata, then sends and receives in turn. */
async function connect(path: string, headers: Record<string, string>) {
  const socket = new WebSocket(app.url.replace("http", "ws") + path, { headers, perMessageDeflate: false });
  const frames: [Buffer, boolean][] = [];
  let wake = (): void => {};
  socket.on("message", (data: Buffer, isBinary) => {
    frames.push([data, isBinary]);
    wake();
  });
  const receive = async (): Promise<[Buffer, boolean]> => {
    while (frames.length === 0) await new Promise<void>((resolve) => (wake = resolve));
    return frames.shift()!;
  };
  await Promise.race([
    once(socket, "open"),
    once(socket, "unexpected-response").then(([, { statusCode }]) => Promise.reject(new Error(`HTTP ${statusCode}`))),
  ]);
  const metadata = decodeNumpy((await receive())[0]) as Map<string, unknown>;
  return {
    socket,
    metadata,
    receive,
    /** As `infer` of the client: an answer, or the server's text as an error. */
    async infer(message: Buffer | string): Promise<Map<string, never>> {
      socket.send(message);
      const [data, isBinary] = await receive();
      if (!isBinary) throw new Error(`Error in inference server:\n${data.toString()}`);
      return decodeNumpy(data) as never;
    },
  };
}

const apiKey = ({ key }: Caller) => ({ authorization: `Api-Key ${key}` });

/** The act that a call made the models hear. */
async function heardBy(call: () => Promise<unknown>) {
  const before = [one.acts.length, two.acts.length];
  await call();
  return [...one.acts.slice(before[0]), ...two.acts.slice(before[1])][0]!;
}

describe("a client with an api key", () => {
  it("is stopped by the robot name in its address, and no other robot is", async () => {
    const mine = await app.caller(1);
    await app.call("/v1/robots/stop", { robot_id: "arm 1" }, mine);
    const infer = async (robot: string) => {
      const client = await connect(
        `/v1/openpi/${named.acme}/arm?horizon=10&robot_id=${encodeURIComponent(robot)}`,
        apiKey(mine),
      );
      return client.infer(sample("openpi_libero_request.msgpack")).finally(() => client.socket.close());
    };
    await expect(infer("arm 1")).rejects.toThrow(/robot_stopped/);
    expect((await infer("arm 2")).has("actions")).toBe(true);
  });

  it("gets metadata first, then actions for a recorded LIBERO observation, and is charged", async () => {
    const mine = await app.caller(1);
    const client = await connect(`/v1/openpi/${named.acme}/arm?horizon=10`, apiKey(mine));
    expect(client.metadata.get("action_space")).toBe("joint_pos_7");
    let answer = new Map<string, never>();
    const asked = await heardBy(async () => {
      answer = await client.infer(sample("openpi_libero_request.msgpack"));
    });
    const actions = answer.get("actions") as unknown as NdArray;
    expect([actions.dtype, actions.shape]).toEqual(["<f4", [10, 7]]);
    const wanted = honestSteps(asked, 7).flat();
    expect([...actions.toFloat64()]).toEqual(wanted.map((value) => expect.closeTo(value, 5)));
    expect(asked.instruction).not.toBe("");
    expect(asked.observations[0]?.proprio).toEqual(
      Array.from({ length: 8 }, (_, i) => expect.closeTo(-1 + (2 * i) / 7, 9)),
    );
    // The environment turns its pictures before it sends them; here they stand upright again.
    const { frames } = asked.observations[0]!;
    expect(frames.map(({ camera }) => camera).sort()).toEqual(["agentview", "wrist"]);
    const image = frames.find(({ camera }) => camera === "agentview")!;
    const upright = await sharp(image.data).raw().toBuffer();
    const sent = Array.from({ length: 8 * 8 * 3 }, (_, i) => (37 * i) % 256);
    const pixel = (i: number): number[] => sent.slice(3 * i, 3 * i + 3);
    expect([...upright]).toEqual(Array.from({ length: 64 }, (_, i) => pixel(63 - i)).flat());
    expect(answer.get("gateway")).toBeInstanceOf(Map);
    await expect.poll(async () => (await app.call("/v1/billing/balance", undefined, mine)).body.spent_usd).toBe(0.001);
    client.socket.close();
  });

  it.each([
    ["openpi_droid_request.msgpack", ["exterior_1", "wrist"], 8],
    ["openpi_aloha_request.msgpack", ["cam_high"], 14],
  ])("accepts %s", async (name, cameras, numbers) => {
    const client = await connect(`/v1/openpi/${named.acme}/arm`, apiKey(caller));
    const asked = await heardBy(() => client.infer(sample(name)));
    const { frames, proprio } = asked.observations[0]!;
    expect(frames.map(({ camera }) => camera)).toEqual(expect.arrayContaining(cameras));
    expect(proprio).toHaveLength(numbers);
    client.socket.close();
  });

  it("gets ages that include the wait behind its earlier message", async () => {
    const clock = setClock(new SkippingClock());
    const client = await connect(`/v1/openpi/${named.acme}/arm?horizon=4`, apiKey(caller));
    onTestFinished(() => client.socket.terminate());
    const held: (() => void)[] = [];
    for (const { script } of [one, two])
      script.act = (call, answer) => void held.push(() => answer(honestSteps(call, 7)));
    const message = encodeNumpy({ "observation/state": [1, 2] });
    const first = client.infer(message);
    client.socket.send(message);
    // Frames are read in order: with the pong, both messages have arrived.
    client.socket.ping();
    await once(client.socket, "pong");
    await eventually(() => expect(held).not.toEqual([]));
    clock.skip(1_000);
    for (const { script } of [one, two]) script.act = undefined;
    for (const release of held) release();
    await first;
    const ageMs = async () => {
      const answer = decodeNumpy((await client.receive())[0]) as Map<string, Map<string, number>>;
      return answer.get("gateway")?.get("observation_age_ms");
    };
    expect(await ageMs()).toBeGreaterThan(1_000);
  });

  it("may send its state as a plain list of numbers", async () => {
    const client = await connect(`/v1/openpi/${named.acme}/arm`, apiKey(caller));
    const asked = await heardBy(() => client.infer(encodeNumpy({ "observation/state": [1, 2.5, -3] })));
    expect(asked.observations[0]?.proprio).toEqual([1, 2.5, -3]);
    client.socket.close();
  });

  it("may name a preset, whose fields apply", async () => {
    const { key } = caller;
    const config = { horizon: 4, action_space: "joint_pos_7" };
    expect((await app.call("/v1/presets/short", config, { key, method: "PUT" })).status).toBe(200);
    const client = await connect(`/v1/openpi/${named.acme}/arm?preset=short`, apiKey(caller));
    const answer = await client.infer(encodeNumpy({ "observation/state": NdArray.float64([1]) }));
    expect((answer.get("actions") as unknown as NdArray).shape).toEqual([4, 7]);
    client.socket.close();
  });

  it("keeps working when its provider dies", async () => {
    const client = await connect(`/v1/openpi/${named.acme}/arm`, apiKey(caller));
    const provider = async () => {
      const answer = await client.infer(encodeNumpy({ "observation/state": NdArray.float64([1, 2]), prompt: "go" }));
      return (answer.get("gateway") as unknown as Map<string, string>).get("provider");
    };
    const first = await provider();
    const dying = first === named.one ? one : two;
    dying.script.act = (_call, _answer, { stream }) => stream.close(2);
    const second = await provider();
    expect(second).toBe(first === named.one ? named.two : named.one);
    dying.script.act = undefined;
    // The connection is a session of its own, and stays where it went.
    expect(await provider()).toBe(second);
    client.socket.close();
  });
});

describe("an address with a user", () => {
  it("carries model and key as user and password, for clients with only a host setting", async () => {
    const basic = Buffer.from(`${named.acme}%2Farm:${caller.key}`).toString("base64");
    const client = await connect("/", { authorization: `Basic ${basic}` });
    expect(client.metadata.get("model")).toBe(`${named.acme}/arm`);
    const answer = await client.infer(encodeNumpy({ "observation/state": NdArray.float64([1]) }));
    expect((answer.get("actions") as unknown as NdArray).shape).toEqual([16, 7]);
    client.socket.close();
  });
});

/** As RoboArena's client of 55aa8a8 sends it: every key of its server's description. */
const roboarena = (more: Record<string, Packable<NdArray>> = {}): Buffer => {
  const picture = (level: number) => NdArray.uint8(new Uint8Array(4 * 6 * 3).fill(level), [4, 6, 3]);
  return encodeNumpy({
    "observation/exterior_image_0_left": picture(1),
    "observation/exterior_image_1_left": picture(2),
    "observation/wrist_image_left": picture(3),
    "observation/joint_position": NdArray.float64([1, 2, 3, 4, 5, 6, 7]),
    "observation/cartesian_position": NdArray.float64([9, 9, 9, 9, 9, 9]),
    "observation/gripper_position": NdArray.float64([8]),
    prompt: "go",
    endpoint: "infer",
    ...more,
  });
};

describe("a client of RoboArena", () => {
  const fields = [
    ...["image_resolution", "needs_wrist_camera", "n_external_cameras"],
    ...["needs_stereo_camera", "needs_session_id", "action_space"],
  ];

  it("gets exactly its configuration as metadata, then actions for its observations", async () => {
    const client = await connect(
      `/v1/roboarena/${named.acme}/arm?roboarena_action_space=joint_velocity`,
      apiKey(caller),
    );
    expect([...client.metadata.keys()]).toEqual(fields);
    expect(client.metadata.get("action_space")).toBe("joint_velocity");
    let answer = new Map<string, never>();
    const asked = await heardBy(async () => {
      answer = await client.infer(roboarena({ session_id: NdArray.float64([0]) }));
    });
    expect((answer.get("actions") as unknown as NdArray).shape[1]).toBe(7);
    const { frames, proprio } = asked.observations[0]!;
    const seen = await Promise.all(
      frames.map(async ({ camera, data }) => [camera, (await sharp(data).raw().toBuffer())[0]]),
    );
    expect(seen.sort()).toEqual([
      ["exterior_1", 1],
      ["exterior_2", 2],
      ["wrist", 3],
    ]);
    expect(proprio).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    client.socket.close();
  });

  it("may carry the model as user of the address, with query parameters", async () => {
    const user = encodeURIComponent(`roboarena/${named.acme}/arm?horizon=3`);
    const basic = Buffer.from(`${user}:${caller.key}`).toString("base64");
    const client = await connect("/", { authorization: `Basic ${basic}` });
    expect([...client.metadata.keys()]).toEqual(fields);
    const answer = await client.infer(roboarena());
    expect((answer.get("actions") as unknown as NdArray).shape).toEqual([3, 7]);
    client.socket.close();
  });

  it("gets an error for an action space that RoboArena lacks, as openpi's client does for any", async () => {
    for (const [path, said] of [
      [`roboarena/${named.acme}/arm?roboarena_action_space=joint`, "must be one of joint_position"],
      [`openpi/${named.acme}/arm?roboarena_action_space=joint_position`, "is not a known parameter"],
    ]) {
      const client = await connect(`/v1/${path}`, apiKey(caller));
      await expect(client.infer(roboarena())).rejects.toThrow(said);
      client.socket.close();
    }
  });
});

describe.each(["openpi", "roboarena"])("a reset, told to /v1/%s", (protocol) => {
  const said = (message: Record<string, Packable<NdArray>>) => encodeNumpy(message);

  it("is confirmed like RoboArena's, is free, and starts an episode, of a session named in the message too", async () => {
    const mine = await app.caller(1);
    const client = await connect(`/v1/${protocol}/${named.acme}/arm?horizon=10`, apiKey(mine));
    const session = async (message = roboarena()) => (await heardBy(() => client.infer(message))).sessionId;
    const other = () => session(roboarena({ session_id: "episode 7" }));
    const [first, own] = [await session(), await other()];
    expect(await session()).toBe(first);
    const before = one.acts.length + two.acts.length;
    await expect(client.infer(said({ endpoint: "reset" }))).rejects.toThrow(/reset successful$/);
    await expect(client.infer(said({ endpoint: "reset", session_id: "x" }))).rejects.toThrow(/reset successful$/);
    expect(one.acts.length + two.acts.length).toBe(before);
    const second = await session();
    expect(second).not.toBe(first);
    expect(new Set([await other(), own, first, second]).size).toBe(4);
    expect(await session()).toBe(second);
    await expect.poll(async () => (await app.call("/v1/billing/balance", undefined, mine)).body.spent_usd).toBe(0.006);
    client.socket.close();
  });

  it("with another name is refused", async () => {
    const client = await connect(`/v1/${protocol}/${named.acme}/arm`, apiKey(caller));
    await expect(client.infer(said({ endpoint: "kill" }))).rejects.toThrow("`endpoint` must be infer or reset");
    await expect(client.infer(said({ endpoint: NdArray.float64([1]) }))).rejects.toThrow(
      "`endpoint` must be infer or reset",
    );
    client.socket.close();
  });
});

describe("a refusal", () => {
  it("of a wrong key is an HTTP 401 at once", async () => {
    await expect(connect(`/v1/openpi/${named.acme}/arm`, { authorization: "Api-Key lmb_sk_no" })).rejects.toThrow(
      "HTTP 401",
    );
    await expect(connect(`/v1/openpi/${named.acme}/arm`, {})).rejects.toThrow("HTTP 401");
  });

  it("of one request is a text, and the next request is answered", async () => {
    const client = await connect(`/v1/openpi/${named.acme}/arm`, apiKey(caller));
    for (const bad of [
      "text",
      Buffer.from([0xc1]),
      encodeNumpy(1),
      encodeNumpy({ prompt: 7 }),
      encodeNumpy({
        "observation/image": NdArray.float64([1, 2, 3], [1, 1, 3]),
        "observation/state": NdArray.float64([Number.NaN]),
      }),
      encodeNumpy({ "observation/image": new NdArray("<i4", [1, 1, 3], new Uint8Array(12)) }),
      // What is sensed and would not be heard: a picture's file, one without colours, and one of several moments.
      encodeNumpy({ "observation/image": Buffer.from("a file") }),
      encodeNumpy({ "observation/image": NdArray.uint8(new Uint8Array(64), [8, 8, 1]) }),
      encodeNumpy({ "observation/image": NdArray.uint8(new Uint8Array(96), [2, 4, 4, 3]) }),
      encodeNumpy({ "observation/state": ["one", "two"] }),
      encodeNumpy({ "observation/state": [1], session_id: "x".repeat(257) }),
    ])
      await expect(client.infer(bad)).rejects.toThrow(/\((400|422)\)/);
    const answer = await client.infer(encodeNumpy({ "observation/state": NdArray.float64([1]) }));
    expect(answer.has("actions")).toBe(true);
    client.socket.close();
  });

  it("of two faults at once is one text and no unhandled rejection", async () => {
    const unheard: unknown[] = [];
    const hear = (reason: unknown): void => void unheard.push(reason);
    process.on("unhandledRejection", hear);
    const client = await connect(`/v1/openpi/${named.acme}/arm`, apiKey(caller));
    const wrong = new NdArray("<i4", [1, 1, 3], new Uint8Array(12));
    await expect(client.infer(encodeNumpy({ one: wrong, two: Buffer.from("a file") }))).rejects.toThrow("(422)");
    await expect(client.infer(encodeNumpy({ one: wrong, prompt: 7 }))).rejects.toThrow("(422)");
    await client.infer(encodeNumpy({ "observation/state": [1] }));
    process.off("unhandledRejection", hear);
    expect(unheard).toEqual([]);
    client.socket.close();
  });

  it("of too many images comes before any is decoded", async () => {
    const client = await connect(`/v1/openpi/${named.acme}/arm`, apiKey(caller));
    const pictures = Object.fromEntries(
      Array.from({ length: 17 }, (_, i) => [`camera${i}`, NdArray.uint8(new Uint8Array(3), [1, 1, 3])]),
    );
    await expect(client.infer(encodeNumpy(pictures))).rejects.toThrow("at most 16 images");
    client.socket.close();
  });

  it.each([
    ["horizn=4", "`horizn` is not a known parameter; did you mean `horizon`?"],
    ["action-space=joint_pos_7", "did you mean `action_space`?"],
    ["horizon=4.7", "`horizon` must be an integer between 1 and 256"],
    ["horizon=soon", "`horizon` must be an integer between 1 and 256"],
  ])("reports %s in an address at each request, and never ignores it", async (query, said) => {
    const client = await connect(`/v1/openpi/${named.acme}/arm?${query}`, apiKey(caller));
    const before = one.acts.length + two.acts.length;
    for (const _ of [1, 2]) await expect(client.infer(encodeNumpy({}))).rejects.toThrow(said);
    expect(one.acts.length + two.acts.length).toBe(before);
    client.socket.close();
  });

  it.each([
    ["nine small messages", 9, 8],
    ["four messages of 20 MB", 4, 20 << 20],
  ])("closes the connection on %s before the first answer", async (_, count, bytes) => {
    one.script.act = two.script.act = () => {};
    onTestFinished(() => {
      one.script.act = two.script.act = undefined;
    });
    const before = one.acts.length + two.acts.length;
    const cancelled = one.cancelled() + two.cancelled();
    const client = await connect(`/v1/openpi/${named.acme}/arm`, apiKey(caller));
    const closed = once(client.socket, "close");
    const state = NdArray.float64([1]);
    const message = encodeNumpy({ "observation/state": state, padding: "x".repeat(bytes) });
    client.socket.send(message);
    const asked = (): number => one.acts.length + two.acts.length - before;
    await expect.poll(asked).toBeGreaterThan(0);
    for (let i = 1; i < count; i++) client.socket.send(message);
    expect((await closed)[0]).toBe(1008);
    await expect.poll(() => one.cancelled() + two.cancelled() - cancelled).toBe(asked());
  });

  it("for lack of credit names it", async () => {
    const poor = await app.caller(0);
    const client = await connect(`/v1/openpi/${named.acme}/arm`, apiKey(poor));
    await expect(client.infer(encodeNumpy({}))).rejects.toThrow("insufficient_credits (402)");
    client.socket.close();
  });

  it("of an unknown model names it at the first request", async () => {
    const client = await connect("/v1/openpi/no/such", apiKey(caller));
    await expect(client.infer(encodeNumpy({}))).rejects.toThrow("model_not_found (404)");
    client.socket.close();
  });
});

describe("the port", () => {
  it("still serves plain requests with an unsupported upgrade", async () => {
    const response = await fetch(`${app.url}/health`, { headers: { "x-test": "1" } });
    expect(response.status).toBe(200);
    const socket = new WebSocket(`${app.url.replace("http", "ws")}/v1/models`);
    const [, { statusCode }] = await once(socket, "unexpected-response");
    expect(statusCode).toBe(200);
    socket.on("error", () => undefined).terminate();
  });
});
