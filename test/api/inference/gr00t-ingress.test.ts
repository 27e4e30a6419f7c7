/** The transport for Isaac-GR00T's clients: libzmq itself, and messages that the protocol's own code recorded. */
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { Request } from "zeromq";
import { decodeGr00t, encodeGr00t } from "../../../src/codecs/python/gr00t.ts";
import type { Packable } from "../../../src/codecs/python/msgpack.ts";
import { NdArray } from "../../../src/codecs/python/ndarray.ts";
import { type App, type Caller, openApp } from "../../support/app.ts";
import { honestSteps, type Model, startModel } from "../../support/model.ts";

const SAMPLES = join(import.meta.dirname, "../../golden/wire-samples");

let app: App;
let model: Model;
let caller: Caller;

beforeAll(async () => {
  [app, model] = await Promise.all([openApp({ gr00tPort: 0 }), startModel()]);
  await app.supply({ provider: "one", model: "acme/arm", endpoint: model.endpoint, action_spaces: ["joint_pos_7"] });
  caller = await app.caller(10);
});
afterAll(async () => {
  await app.close();
  await model.close();
});

/** A client as GR00T's is: one socket, requests and answers in turn. */
async function talk<T>(
  run: (call: (message: Buffer) => Promise<Map<string, never> | never[]>) => Promise<T>,
): Promise<T> {
  const socket = new Request({ receiveTimeout: 5000, linger: 0 });
  socket.connect(`tcp://127.0.0.1:${app.gateway.gr00tPort}`);
  try {
    return await run(async (message) => {
      await socket.send(message);
      const [answer] = await socket.receive();
      return decodeGr00t(answer as Buffer) as never;
    });
  } finally {
    socket.close();
  }
}

const message = (fields: Record<string, Packable<NdArray>>): Buffer => encodeGr00t(fields);
const nested = (more: Record<string, Packable<NdArray>> = {}): Record<string, Packable<NdArray>> => ({
  observation: {
    video: { ego_view: NdArray.uint8(new Uint8Array(2 * 4 * 4 * 3).fill(7), [1, 2, 4, 4, 3]) },
    state: { left_arm: NdArray.float32([1, 2, 3, 0.5], [1, 2, 2]), hand: NdArray.float32([9], [1, 1, 1]) },
    language: { task: [["pick up the cup"]] },
  },
  options: { model: "acme/arm", action_space: "joint_pos_7", horizon: 4, ...more },
});

const seen = (observation: Record<string, Packable<NdArray>>): Record<string, Packable<NdArray>> => ({
  ...nested(),
  observation,
});
const bytes = (shape: readonly number[]): NdArray =>
  NdArray.uint8(new Uint8Array(shape.reduce((product, size) => product * size)), shape);

describe("get_action", () => {
  it("of N1.6 answers [actions, info], each part under its name, and is paid for", async () => {
    const mine = await app.caller(1);
    const data = nested({ action_keys: { arm: 6, gripper: 1 } });
    const [actions] = (await talk((call) =>
      call(message({ endpoint: "get_action", api_token: mine.key, data })),
    )) as unknown as [Map<string, NdArray>];
    const asked = model.acts.at(-1)!;
    const wanted = honestSteps(asked, 7);
    expect(actions.get("arm")?.shape).toEqual([1, 4, 6]);
    expect([...actions.get("gripper")!.toFloat64()]).toEqual(wanted.map((step) => expect.closeTo(step[6]!, 5)));
    expect([...actions.get("arm")!.toFloat64()]).toEqual(
      wanted.flatMap((step) => step.slice(0, 6).map((value) => expect.closeTo(value, 5))),
    );
    expect(asked.instruction).toBe("pick up the cup");
    // Of several moments the newest.
    expect(asked.observations[0]?.proprio).toEqual([3, 0.5, 9]);
    expect(asked.observations[0]?.frames.map(({ camera }) => camera)).toEqual(["ego_view"]);
    await expect.poll(async () => (await app.call("/v1/billing/balance", undefined, mine)).body.spent_usd).toBe(0.0004);
  });

  it("of N1.5 answers a flat map", async () => {
    const data = {
      "video.ego_view": NdArray.uint8(new Uint8Array(48), [1, 4, 4, 3]),
      "state.left_arm": NdArray.float32([1, 2], [1, 2]),
      "annotation.human.action.task_description": ["go"],
      options: { model: "acme/arm", action_space: "joint_pos_7", horizon: 3 },
    };
    const answer = (await talk((call) => call(message({ api_token: caller.key, data })))) as Map<string, NdArray>;
    expect(answer.get("action.action")?.shape).toEqual([3, 7]);
  });

  it("of N1.6 in its flat wrapper hears the pictures and states, and answers under dotted names", async () => {
    const observation = {
      "video.ego_view": NdArray.uint8(new Uint8Array(48), [1, 1, 4, 4, 3]),
      "state.left_arm": NdArray.float32([1, 2], [1, 1, 2]),
      "annotation.human.action.task_description": ["go"],
    };
    const data = { observation, options: { model: "acme/arm", action_space: "joint_pos_7", horizon: 3 } };
    const [actions] = (await talk((call) => call(message({ api_token: caller.key, data })))) as unknown as [
      Map<string, NdArray>,
    ];
    expect(actions.get("action.action")?.shape).toEqual([1, 3, 7]);
    const asked = model.acts.at(-1)!;
    expect(asked.instruction).toBe("go");
    expect(asked.observations[0]?.proprio).toEqual([1, 2]);
    expect(asked.observations[0]?.frames.map(({ camera }) => camera)).toEqual(["ego_view"]);
  });

  it("reads what N1.6's own code writes, and tells what it does not find", async () => {
    const recorded = readFileSync(join(SAMPLES, "gr00t_n16_request.msgpack"));
    const answer = (await talk((call) => call(recorded))) as Map<string, string>;
    expect(answer.get("error")).toContain("Unauthorized: Invalid API token");
  });
});

describe("a client", () => {
  it("without credit is told so, before a model is asked", async () => {
    const poor = await app.caller(0);
    const before = model.acts.length;
    const answer = await talk((call) => call(message({ endpoint: "get_action", api_token: poor.key, data: nested() })));
    expect((answer as Map<string, string>).get("error")).toContain("insufficient_credits (402)");
    expect(model.acts).toHaveLength(before);
  });

  it("does not notice that its provider dies, and stays where it went", async () => {
    const equal = await startModel();
    onTestFinished(() => {
      model.script.act = undefined;
      return equal.close();
    });
    await app.supply({ provider: "two", model: "acme/arm", endpoint: equal.endpoint, action_spaces: ["joint_pos_7"] });
    await talk(async (call) => {
      const provider = async () => {
        const asked = message({ endpoint: "get_action", api_token: caller.key, data: nested() });
        const [, info] = (await call(asked)) as unknown as [unknown, Map<string, string>];
        return info.get("provider");
      };
      const first = await provider();
      const dying = first === "one" ? model : equal;
      dying.script.act = (_call, _answer, { stream }) => stream.close(2);
      const second = await provider();
      expect([first, second].sort()).toEqual(["one", "two"]);
      dying.script.act = undefined;
      expect(await provider()).toBe(second);
    });
  });
});

describe("other endpoints", () => {
  it("ping, reset and get_modality_config are answered, kill is not heard", async () => {
    await talk(async (call) => {
      expect((await call(message({ endpoint: "ping" }))) as Map<string, string>).toEqual(
        new Map([
          ["status", "ok"],
          ["message", "Server is running"],
        ]),
      );
      expect((await call(message({ endpoint: "get_modality_config" }))) as Map<string, unknown>).toBeInstanceOf(Map);
      const killed = (await call(message({ endpoint: "kill" }))) as Map<string, string>;
      expect(killed.get("error")).toBe("Unknown endpoint: kill");
      expect(((await call(message({ endpoint: "ping" }))) as Map<string, string>).get("status")).toBe("ok");
    });
  });
});

describe("bad input", () => {
  it.each([
    ["no msgpack", Buffer.from([0xc1]), "malformed_body"],
    ["no map", encodeGr00t([1]), "malformed_body"],
    ["no data", undefined, "validation_failed"],
    ["a text for a picture", { observation: { video: { a: "x" } } }, "validation_failed"],
    ["parts that do not add up", nested({ action_keys: { arm: 3 } }), "must add up to the 7 numbers"],
    ["half a step", nested({ horizon: 4.5 }), "options.horizon: is a whole number"],
    ["a picture of four channels", seen({ video: { a: bytes([1, 1, 8, 8, 4]) } }), "[height, width, 3]"],
    ["pictures of two robots", seen({ video: { a: bytes([2, 1, 4, 4, 3]) } }), "a batch of 2"],
    ["states of two robots", seen({ state: { a: NdArray.float32([1, 2], [2, 1, 1]) } }), "a batch of 2"],
    ["words of two robots", seen({ language: { task: [["go"], ["stay"]] } }), "one text"],
    ["a number for words", seen({ language: { task: 3 } }), "one text"],
    ["a model that is not there", nested({ model: "no/such" }), "model_not_found"],
  ])("%s is answered with an error, and the next request is served", async (_, bad, reason) => {
    await talk(async (call) => {
      const sent =
        bad instanceof Buffer
          ? bad
          : message({ api_token: caller.key, ...(bad !== undefined && { data: bad as never }) });
      expect(((await call(sent)) as Map<string, string>).get("error")).toContain(reason);
      expect(((await call(message({ endpoint: "ping" }))) as Map<string, string>).get("status")).toBe("ok");
    });
  });

  it("costs nothing, parts that do not add up included", async () => {
    const mine = await app.caller(1);
    const data = nested({ action_keys: { arm: 3 } });
    const before = model.acts.length;
    const answer = await talk((call) => call(message({ api_token: mine.key, data })));
    expect((answer as Map<string, string>).get("error")).toContain("action_keys");
    expect(model.acts).toHaveLength(before);
  });

  it("a peer of another protocol is hung up on", async () => {
    const socket = connect(app.gateway.gr00tPort!, "127.0.0.1");
    const closed = new Promise((resolve) => socket.once("close", resolve));
    socket.on("error", () => undefined).resume();
    socket.write("GET / HTTP/1.1\r\n\r\n");
    await closed;
  });
});
