/** vla-evaluation-harness's client at the gateway: its messages, its episodes, and one paid step for each observation. */
import { once } from "node:events";
import sharp from "sharp";
import { beforeAll, describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import type { App, Caller } from "../../support/app.ts";
import { honestSteps, type Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import { pack, unpack } from "../../support/plain-msgpack.ts";
import { tree } from "../../support/servers/vla-eval.ts";
import { openModel, openWorld } from "../../support/world.ts";

const named = uniqueNames("acme", "one");

type Tree = Map<string, Tree>;

let app: App;
let model: Model;
let caller: Caller;

beforeAll(async () => {
  [app, model] = await Promise.all([openWorld(), openModel()]);
  await app.supply({
    provider: named.one,
    endpoint: model.endpoint,
    model: `${named.acme}/arm`,
    action_spaces: ["joint_pos_7"],
  });
  caller = await app.caller(10);
});

/** What the harness's `Connection` does: it says hello, begins episodes, and waits for an action after each observation. */
async function connect(path: string, { key }: Caller, user = `${named.acme}%2Farm`) {
  const authorization = `Basic ${Buffer.from(`${user}:${key}`).toString("base64")}`;
  const headers = { authorization };
  const socket = new WebSocket(app.url.replace("http", "ws") + path, { headers, perMessageDeflate: false });
  await once(socket, "open");
  let seq = 0;
  const send = (type: string, payload: unknown): number => {
    seq += 1;
    socket.send(pack(tree({ type, payload, seq, timestamp: 1.5 })));
    return seq;
  };
  const receive = async (): Promise<Tree> => unpack(((await once(socket, "message")) as [Buffer])[0]) as Tree;
  const ask = async (type: string, payload: unknown): Promise<Tree> => {
    const heard = receive();
    const asked = send(type, payload);
    const answer = await heard;
    expect(answer.get("seq")).toBe(asked);
    return answer;
  };
  return { socket, send, receive, ask, act: (payload: unknown) => ask("observation", payload) };
}

const ndarray = (dtype: string, shape: number[], data: Buffer) => ({ __ndarray__: true, data, dtype, shape });
const state = (values: number[]) => ndarray("<f8", [values.length], Buffer.from(Float64Array.from(values).buffer));
/** White above, black below, in the forms that the harness has for a picture. */
const PIXELS = Buffer.concat([Buffer.alloc(96, 255), Buffer.alloc(96)]);
const png = () =>
  sharp(PIXELS, { raw: { width: 8, height: 8, channels: 3 } })
    .png()
    .toBuffer();
const numbersIn = (answer: Tree): number[] => {
  const array = answer.get("payload")!.get("actions") as unknown as Map<string, unknown>;
  expect(array.get("__ndarray__")).toBe(true);
  return [...new Float32Array(new Uint8Array(array.get("data") as Buffer).buffer)];
};
const firstOf = async (data: Uint8Array): Promise<number> => (await sharp(data).raw().toBuffer())[0]!;

describe("the harness's client", () => {
  it.each([
    ["a path", `/v1/vla-eval/${named.acme}/arm`, undefined],
    ["the user of the address", "/", `vla-eval%2F${named.acme}%2Farm`],
  ])("handshakes by %s, and gets and pays one step per observation", async (_, path, user) => {
    const mine = await app.caller(1);
    const client = await connect(path, mine, user);
    const hello = await client.ask("hello", {
      harness_version: "0.8.0",
      protocol_version: 1,
      benchmark: "x:SimplerBenchmark",
    });
    expect([hello.get("type"), hello.get("payload")]).toEqual([
      "hello",
      tree({
        harness_version: "limber",
        protocol_version: 1,
        model_server: `${named.acme}/arm`,
        capabilities: {},
        observation_params: { send_wrist_image: true, send_state: true },
      }),
    ]);
    client.send("episode_start", { task: { name: "pick" }, mode: "sync" });
    const file = await png();
    const images = {
      file: { __image__: true, format: "png", data: file, shape: [8, 8, 3] },
      raw: { __image__: true, format: "raw", data: PIXELS, dtype: "|u1", shape: [8, 8, 3] },
      array: ndarray("|u1", [8, 8, 3], PIXELS),
    };
    const answer = await client.act({
      images,
      states: state([0.5, 2]),
      controller_states: state([9]),
      task_description: "pick",
    });
    const asked = model.acts.at(-1)!;
    expect(answer.get("type")).toBe("action");
    expect(numbersIn(answer)).toEqual(honestSteps(asked, 7)[0]!.map((value) => expect.closeTo(value, 5)));
    expect([asked.horizon, asked.instruction, asked.observations[0]?.proprio]).toEqual([1, "pick", [0.5, 2]]);
    const { frames } = asked.observations[0]!;
    expect(frames.map(({ camera }) => camera)).toEqual(["file", "raw", "array"]);
    expect(Buffer.from(frames[0]!.data).equals(file)).toBe(true);
    expect(await Promise.all(frames.map(({ data }) => firstOf(data)))).toEqual([255, 255, 255]);
    await client.act({ task_description: "pick" });
    client.send("episode_end", { success: true });
    client.socket.close();
    await expect.poll(async () => (await app.call("/v1/billing/balance", undefined, mine)).body.spent_usd).toBe(0.0002);
  });

  it("has LIBERO's images rotated back, in every encoding", async () => {
    const client = await connect(`/v1/vla-eval/${named.acme}/arm`, caller);
    await client.ask("hello", { benchmark: "vla_eval.benchmarks.libero.benchmark:LIBEROBenchmark" });
    const file = { __image__: true, format: "png", data: await png(), shape: [8, 8, 3] };
    await client.act({ images: { agentview: file, wrist: ndarray("|u1", [8, 8, 3], PIXELS) } });
    const { frames } = model.acts.at(-1)!.observations[0]!;
    expect(await Promise.all(frames.map(({ data }) => firstOf(data)))).toEqual([0, 0]);
    client.socket.close();
  });

  it("gets an upstream episode for each of its own", async () => {
    const client = await connect(`/v1/vla-eval/${named.acme}/arm`, caller);
    const sessions: string[] = [];
    for (const task of ["pick", "x".repeat(9_000)]) {
      client.send("episode_start", { task: { name: task } });
      for (let i = 0; i < 2; i++) {
        await client.act({});
        sessions.push(model.acts.at(-1)!.sessionId);
      }
    }
    expect(new Set(sessions).size).toBe(2);
    expect(sessions[0]).toBe(sessions[1]);
    expect(sessions[2]).toBe(sessions[3]);
    client.socket.close();
  });
});

it("the client is stopped by the robot name in its address, and no other is", async () => {
  const mine = await app.caller(1);
  await app.call("/v1/robots/stop", { robot_id: "arm 1" }, mine);
  const answered = async (robot: string): Promise<unknown> => {
    const client = await connect(`/v1/vla-eval/${named.acme}/arm?robot_id=${encodeURIComponent(robot)}`, mine);
    await client.ask("hello", { harness_version: "0.8.0", protocol_version: 1 });
    client.send("episode_start", {});
    const answer = await client.act({ states: state([1]), task_description: "go" });
    client.socket.close();
    return answer.get("type") === ("action" as never) ? "action" : answer.get("payload")!.get("error");
  };
  expect(await answered("arm 1")).toMatch(/robot_stopped/);
  expect(await answered("arm 2")).toBe("action");
});

describe("what the harness's client is refused", () => {
  it.each([
    ["pictures that are none", { images: [1] }],
    ["a picture of text", { images: { front: "x" } }],
    ["a picture without its bytes", { images: { front: { __image__: true, format: "raw", shape: [1, 1, 3] } } }],
    [
      "a picture larger than its bytes",
      { images: { front: { __image__: true, format: "raw", data: Buffer.alloc(3), dtype: "|u1", shape: [9, 9, 3] } } },
    ],
    [
      "a picture of objects",
      { images: { front: { __image__: true, format: "raw", data: Buffer.alloc(3), dtype: "|O", shape: [1, 1, 3] } } },
    ],
    [
      "a file that is no picture",
      { images: { front: { __image__: true, format: "png", data: Buffer.from("no"), shape: [1, 1, 3] } } },
    ],
    ["a state of text", { states: ["x"] }],
    ["a state of two robots", { states: ndarray("<f8", [2, 1], Buffer.alloc(16)) }],
    ["a task of numbers", { task_description: 7 }],
    ["no payload", 7],
  ])("%s, as an error, and the next observation is served", async (_, payload) => {
    for (const benchmark of ["other", "libero"]) {
      const client = await connect(`/v1/vla-eval/${named.acme}/arm`, caller);
      await client.ask("hello", { benchmark });
      const before = model.acts.length;
      const answer = await client.act(payload);
      expect([answer.get("type"), String(answer.get("payload")?.get("error"))]).toEqual([
        "error",
        expect.stringMatching(/\((400|422)\)/),
      ]);
      expect(model.acts.length).toBe(before);
      expect((await client.act({})).get("type")).toBe("action");
      client.socket.close();
    }
  });

  it("a message of another type, an invalid message, and text", async () => {
    const client = await connect(`/v1/vla-eval/${named.acme}/arm`, caller);
    for (const bad of [pack(tree({ type: "kill", payload: {}, seq: 1 })), pack(7), Buffer.of(0xc1), "text"]) {
      const heard = client.receive();
      client.socket.send(bad);
      expect((await heard).get("type")).toBe("error");
    }
    client.socket.close();
  });

  it("a wrong key at once, and unknown query parameters", async () => {
    const wrong = connect(`/v1/vla-eval/${named.acme}/arm`, { ...caller, key: "lmb_sk_no" });
    await expect(wrong).rejects.toThrow("401");
    const client = await connect(`/v1/vla-eval/${named.acme}/arm?horizon=4`, caller);
    expect((await client.ask("hello", {})).get("type")).toBe("hello");
    expect(String((await client.act({})).get("payload")?.get("error"))).toContain("is not a known parameter");
    client.socket.close();
  });

  it("a call without credit", async () => {
    const client = await connect(`/v1/vla-eval/${named.acme}/arm`, await app.caller(0));
    expect(String((await client.act({})).get("payload")?.get("error"))).toContain("insufficient_credits (402)");
    client.socket.close();
  });
});
