/** The transport for Isaac-GR00T's clients: libzmq itself, and messages that the protocol's own code recorded. */
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { Request } from "zeromq";
import { pictureTurns } from "../../../src/codecs/pictures/turns.ts";
import { decodeGr00t, encodeGr00t, readGr00t } from "../../../src/codecs/python/gr00t.ts";
import type { Packable } from "../../../src/codecs/python/msgpack.ts";
import { NdArray } from "../../../src/codecs/python/ndarray.ts";
import { GREETING, READY, requestHead } from "../../../src/codecs/zmtp.ts";
import type { App, Caller } from "../../support/app.ts";
import { setClock } from "../../support/clocks.ts";
import { eventually } from "../../support/eventually.ts";
import { honestSteps, type Model } from "../../support/model.ts";
import { type Gr00tServer, startGr00tServer } from "../../support/servers/gr00t.ts";
import { SkippingClock } from "../../support/skipping-clock.ts";
import { openModel, ownGateway } from "../../support/world.ts";

const SAMPLES = join(import.meta.dirname, "../../golden/wire-samples");

let app: App;
let model: Model;
let caller: Caller;

beforeAll(async () => {
  [app, model] = await Promise.all([ownGateway({ gr00tPort: 0 }), openModel()]);
  await app.supply({ provider: "one", model: "acme/arm", endpoint: model.endpoint, action_spaces: ["joint_pos_7"] });
  caller = await app.caller(10);
});

/** A client as GR00T's is: one socket, requests and answers in turn. */
async function talk<T>(
  run: (call: (message: Buffer) => Promise<Map<string, never> | never[]>) => Promise<T>,
): Promise<T> {
  const socket = new Request({ receiveTimeout: 60_000, linger: 0 });
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

type Tree = Map<string, Tree>;

/** One message, and the bytes of its answer. */
async function talkRaw(sent: Buffer): Promise<Buffer> {
  const socket = new Request({ receiveTimeout: 60_000, linger: 0 });
  socket.connect(`tcp://127.0.0.1:${app.gateway.gr00tPort}`);
  try {
    await socket.send(sent);
    const [answer] = await socket.receive();
    return answer as Buffer;
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
  it("of N1.6 returns [actions, info] with each part under its name, and is charged", async () => {
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
    // Of several moments of a state the newest; each moment of a video is an observation of its own.
    expect(asked.observations.map(({ proprio }) => proprio)).toEqual([[], [3, 0.5, 9]]);
    expect(asked.observations.map(({ frames }) => frames.map(({ camera }) => camera))).toEqual([
      ["ego_view"],
      ["ego_view"],
    ]);
    await expect.poll(async () => (await app.call("/v1/billing/balance", undefined, mine)).body.spent_usd).toBe(0.0004);
  });

  it("is refused for a robot that is stopped, by the name in its options", async () => {
    const mine = await app.caller(1);
    await app.call("/v1/robots/stop", { robot_id: "left" }, mine);
    const ask = (robot_id: string) =>
      talk((call) =>
        call(
          message({ endpoint: "get_action", api_token: mine.key, data: nested({ robot_id, action_keys: { arm: 7 } }) }),
        ),
      );
    expect(JSON.stringify([...((await ask("left")) as unknown as Map<string, string>)])).toMatch(/robot_stopped/);
    const [actions] = (await ask("right")) as unknown as [Map<string, NdArray>];
    expect(actions.has("arm")).toBe(true);
  });

  it("of N1.5 returns a flat map", async () => {
    const data = {
      "video.ego_view": NdArray.uint8(new Uint8Array(48), [1, 4, 4, 3]),
      "state.left_arm": NdArray.float32([1, 2], [1, 2]),
      "annotation.human.action.task_description": ["go"],
      options: { model: "acme/arm", action_space: "joint_pos_7", horizon: 3 },
    };
    const answer = (await talk((call) => call(message({ api_token: caller.key, data })))) as Map<string, NdArray>;
    expect(answer.get("action.action")?.shape).toEqual([3, 7]);
  });

  it("of N1.6 in its flat wrapper accepts images and states, and returns dotted names", async () => {
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

  it("accepts bytes written by N1.6's own code and names missing keys", async () => {
    const recorded = readFileSync(join(SAMPLES, "gr00t_n16_request.msgpack"));
    const answer = (await talk((call) => call(recorded))) as Map<string, string>;
    expect(answer.get("error")).toContain("Unauthorized: Invalid API token");
  });
});

describe("a client", () => {
  it("without credit gets an error before a model is called", async () => {
    const poor = await app.caller(0);
    const before = model.acts.length;
    const answer = await talk((call) => call(message({ endpoint: "get_action", api_token: poor.key, data: nested() })));
    expect((answer as Map<string, string>).get("error")).toContain("insufficient_credits (402)");
    expect(model.acts).toHaveLength(before);
  });

  it("keeps working when its provider dies, and stays with the new one", async () => {
    const equal = await openModel();
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

describe("a client of N1.7, unmodified, whose key is for one model", () => {
  const DROID = {
    provider: "nv",
    model: "nv/droid",
    runtime: "gr00t-zmq",
    action_spaces: ["base_twist_2d"],
    profile: {
      frames: [{ camera: "exterior_1", key: "video.exterior_image_1_left", width: 8, height: 8, rotate_180: true }],
      proprio: [
        { start: 0, end: 2, key: "state.joint_position", dtype: "f4" },
        { start: 2, end: 3, key: "state.gripper_position", dtype: "f4" },
      ],
      proprio_dim: 3,
      instruction_key: "annotation.language.language_instruction",
      action_keys: ["joint_position", "gripper_position"],
      action_dims: [1, 1],
    },
  };
  /** Two parts of an action, 40 steps that never come twice. */
  let answered = 0;
  const nv = () =>
    startGr00tServer({
      generation: "n1_7",
      parts: ["joint_position", "gripper_position"],
      policy: () => Array.from({ length: 40 }, (_, step) => [step, ++answered]),
      config: configOf(),
    });
  const configOf = (): Buffer => {
    const modality = (delta_indices: number[], modality_keys: string[]) => ({
      __ModalityConfig__: true,
      as_json: { delta_indices, modality_keys },
    });
    return encodeGr00t({
      video: modality([-15, 0], ["exterior_image_1_left"]),
      state: modality([0], ["gripper_position", "joint_position"]),
      action: modality([0], ["gripper_position", "joint_position"]),
      language: modality([0], ["annotation.language.language_instruction"]),
    });
  };
  let server: Gr00tServer;
  let key: string;
  beforeAll(async () => {
    server = await nv();
    await app.supply({ ...DROID, endpoint: server.endpoint });
    key = await app.key((await app.caller(1)).org, { models: ["nv/droid"] });
  });
  afterAll(() => server.close());

  const observation = {
    video: {
      exterior_image_1_left: NdArray.uint8(
        Uint8Array.from({ length: 192 }, (_, i) => i),
        [1, 1, 8, 8, 3],
      ),
    },
    // In the order of the client's own dictionary.
    state: {
      gripper_position: NdArray.float32([0.5], [1, 1, 1]),
      joint_position: NdArray.float32([1, 2], [1, 1, 2]),
    },
    language: { "annotation.language.language_instruction": [["pick"]] },
  };
  const send = (fields: Record<string, Packable<NdArray>>, arrays: "npy" | "numpy" = "numpy") =>
    talkRaw(encodeGr00t(fields, arrays));

  it("has its pixels forwarded unchanged to a model of that size", async () => {
    const before = pictureTurns.figures.begun;
    await send({ endpoint: "get_action", api_token: key, data: { observation, options: null } });
    expect(server.raw.at(-1)!.includes(Buffer.from(observation.video.exterior_image_1_left.data))).toBe(true);
    expect(pictureTurns.figures.begun).toBe(before);
  });

  it("calls get_action(obs) alone and gets the complete chunk in its own parts and encoding", async () => {
    for (const arrays of ["numpy", "npy"] as const) {
      const data = { observation, options: null };
      const raw = await send({ endpoint: "get_action", api_token: key, data }, arrays);
      const read = readGr00t(raw);
      expect(read.arrays).toBe(arrays);
      const [actions] = read.value as unknown as [Map<string, NdArray>];
      expect([...actions].map(([name, array]) => [name, array.shape])).toEqual([
        ["joint_position", [1, 40, 1]],
        ["gripper_position", [1, 40, 1]],
      ]);
    }
    const asked = server.messages.at(-1) as Tree;
    const seen = asked.get("data")!.get("observation")!;
    const floats = (value: Tree | undefined) => {
      const data = new Uint8Array(value!.get("data") as unknown as Buffer);
      return [...new Float32Array(data.buffer)];
    };
    expect(floats(seen.get("state")!.get("joint_position"))).toEqual([1, 2]);
    expect(floats(seen.get("state")!.get("gripper_position"))).toEqual([0.5]);
    // Two moments, and under the server's own name a picture is as the server wants it: not turned.
    const video = seen.get("video")!.get("exterior_image_1_left")!;
    expect(video.get("shape")).toEqual([1, 2, 8, 8, 3]);
    expect([...(video.get("data") as unknown as Buffer).subarray(0, 6)]).toEqual([0, 1, 2, 3, 4, 5]);
  });

  it("queries the modality config and gets the model's own", async () => {
    const raw = await send({ endpoint: "get_modality_config", api_token: key });
    const config = readGr00t(raw).value as unknown as Map<string, Map<string, Map<string, unknown>>>;
    const told = [...config].map(([modality, tagged]) => {
      expect([tagged.get("__ModalityConfig__"), tagged.get("__ModalityConfig_class__")]).toEqual([true, true]);
      const json = tagged.get("as_json")!;
      return [modality, json.get("modality_keys"), (json.get("delta_indices") as number[]).length];
    });
    expect(told).toEqual([
      ["video", ["exterior_image_1_left"], 1],
      ["state", ["joint_position", "gripper_position"], 1],
      ["action", ["joint_position", "gripper_position"], 40],
      ["language", ["annotation.language.language_instruction"], 1],
    ]);
  });

  it("may use the preset's camera; a part of the wrong size is refused before dispatch", async () => {
    const turned = { ...observation, video: { exterior_1: observation.video.exterior_image_1_left } };
    await send({ endpoint: "get_action", api_token: key, data: { observation: turned } });
    const seen = (server.messages.at(-1) as Tree).get("data")!.get("observation")!;
    const video = seen.get("video")!.get("exterior_image_1_left")!.get("data") as unknown as Buffer;
    expect([...video.subarray(0, 3)]).toEqual([189, 190, 191]);
    const before = server.messages.length;
    const wrong = { ...observation, state: { ...observation.state, joint_position: NdArray.float32([1], [1, 1, 1]) } };
    const raw = await send({ endpoint: "get_action", api_token: key, data: { observation: wrong } });
    expect((readGr00t(raw).value as Map<string, string>).get("error")).toContain(
      "`joint_position` must have the 2 numbers that the model reads, got 1",
    );
    expect(server.messages).toHaveLength(before);
  });

  it("whose model has no supply gets the reason", async () => {
    const other = await app.key((await app.caller(1)).org, { models: ["nv/none"] });
    const raw = await send({ endpoint: "get_modality_config", api_token: other });
    expect((readGr00t(raw).value as Map<string, string>).get("error")).toContain("no_live_deployment");
  });
});

describe("other endpoints", () => {
  it("ping, reset and get_modality_config are answered, kill is ignored", async () => {
    await talk(async (call) => {
      expect((await call(message({ endpoint: "ping" }))) as Map<string, string>).toEqual(
        new Map([
          ["status", "ok"],
          ["message", "Server is running"],
        ]),
      );
      expect((await call(message({ endpoint: "reset", data: { options: null } }))) as Map<string, unknown>).toEqual(
        new Map(),
      );
      const asked = (await call(message({ endpoint: "get_modality_config" }))) as Map<string, string>;
      expect(asked.get("error")).toContain("Unauthorized: Invalid API token");
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
    ["half a step", nested({ horizon: 4.5 }), "`options.horizon` must be a whole number"],
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

  it("of 30 cameras is refused before any image is encoded", async () => {
    const before = pictureTurns.figures.begun;
    const video = Object.fromEntries(
      Array.from({ length: 30 }, (_, i) => [`camera ${i}`, NdArray.uint8(new Uint8Array(3), [1, 1, 1, 3])]),
    );
    const data = nested({ action_keys: { left_arm: 7 } });
    const answer = await talk((call) =>
      call(
        message({
          endpoint: "get_action",
          api_token: caller.key,
          data: { ...data, observation: { ...(data.observation as object), video } },
        }),
      ),
    );
    expect(String((answer as Map<string, never>).get("error"))).toMatch(/validation_failed.*16 cameras/);
    expect(pictureTurns.figures.begun).toBe(before);
  });

  it("costs nothing, including parts that do not add up", async () => {
    const mine = await app.caller(1);
    const data = nested({ action_keys: { arm: 3 } });
    const before = model.acts.length;
    const answer = await talk((call) => call(message({ api_token: mine.key, data })));
    expect((answer as Map<string, string>).get("error")).toContain("action_keys");
    expect(model.acts).toHaveLength(before);
  });

  it("counts the age of a message from its arrival, behind an earlier one", async () => {
    const clock = setClock(new SkippingClock());
    const mine = await app.caller(1);
    const held: (() => void)[] = [];
    model.script.act = (call, answer) => void held.push(() => answer(honestSteps(call, 7)));
    const socket = connect(app.gateway.gr00tPort!, "127.0.0.1");
    onTestFinished(() => {
      model.script.act = undefined;
      socket.destroy();
    });
    socket.on("error", () => undefined).resume();
    const asked = message({ endpoint: "get_action", api_token: mine.key, data: nested() });
    // Both arrive in one read.
    socket.write(Buffer.concat([GREETING, READY, requestHead(asked.length), asked, requestHead(asked.length), asked]));
    await eventually(() => expect(held).not.toEqual([]));
    clock.skip(1_000);
    model.script.act = undefined;
    for (const release of held) release();
    await eventually(async () => {
      const { body } = await app.call("/v1/logs", undefined, mine);
      expect(body.data.map(({ queue_ms }: { queue_ms: number }) => queue_ms > 1_000)).toEqual([true, false]);
    });
  });

  it("a peer of another protocol is disconnected", async () => {
    const socket = connect(app.gateway.gr00tPort!, "127.0.0.1");
    const closed = new Promise((resolve) => socket.once("close", resolve));
    socket.on("error", () => undefined).resume();
    socket.write("GET / HTTP/1.1\r\n\r\n");
    await closed;
  });
});
