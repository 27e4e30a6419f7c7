/** LeRobot's asynchronous inference: its recorded pickles to their values, what we tell it, whom it serves, and pickles that mean harm. */
import { readFileSync } from "node:fs";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import sharp from "sharp";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { NumberType, ServerDialect, WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import { CodecError } from "../../src/codecs/error.ts";
import { type PyObject, type PyValue, readPickle } from "../../src/codecs/python/pickle.ts";
import { createUpstream, type Upstream } from "../../src/upstream/index.ts";
import { readPickledChunk, readTensorChunk } from "../../src/upstream/lerobot-async/messages.ts";
import type { Wire } from "../../src/upstream/wire.ts";
import { setAmbient } from "../support/clocks.ts";
import { ManualClock } from "../support/manual-clock.ts";
import {
  chunk,
  type LerobotServer,
  packed,
  packedChunk,
  saidIn,
  startLerobotServer,
  storage,
  tensor,
  timedActions,
} from "../support/servers/lerobot.ts";
import { actInput, callWith, failureIn, framesOf, nameOf, observed, rowsOf, targetAt } from "../support/wire-calls.ts";

const sample = (name: string): Buffer => readFileSync(new URL(`../golden/wire-samples/${name}`, import.meta.url));
const expected = JSON.parse(sample("lerobot_expected.json").toString());
const STEPS = [
  [1, 2],
  [3, 4],
];

let upstream: Upstream;
let wire: Required<Pick<Wire, "act" | "faultOf" | "health">>;
let server: LerobotServer;

beforeEach(async () => {
  upstream = createUpstream({ allowPrivate: true });
  wire = upstream.wireOf("lerobot-async") as Required<Wire>; // it has all of these
});
afterEach(async () => {
  await upstream.close();
  await server?.close();
});

const PROFILE: MessageInitShape<typeof WireProfileSchema> = {
  proprio: ["a", "b", "c"].map((key, start) => ({ start, end: start + 1, key, dtype: NumberType.F8 })),
  constants: [
    { key: "policy_type", text: "act" },
    { key: "pretrained_name_or_path", text: "acme/act" },
    { key: "actions_per_chunk", number: 20 },
    { key: "device", text: "cpu" },
  ],
};
const serve = async (options = {}) => {
  server = await startLerobotServer(options);
  server.behave({ kind: "steps", steps: STEPS });
};
const act = (
  sessionId?: string,
  more: MessageInitShape<typeof WireProfileSchema> = {},
  observation = observed({ proprio: [1.5, 2, -3] }),
) =>
  wire.act(
    targetAt(server.endpoint, {
      profile: create(WireProfileSchema, { ...PROFILE, ...more } as MessageInitShape<typeof WireProfileSchema>),
    }),
    actInput({ sessionId, observations: [observation] }),
    framesOf(observation),
    callWith(),
  );

/** Everything that a real client and server of LeRobot name. */
const ALL = new Set([
  "lerobot.async_inference.helpers.RemotePolicyConfig",
  "lerobot.async_inference.helpers.TimedObservation",
  "lerobot.async_inference.helpers.TimedAction",
  "numpy._core.multiarray._reconstruct",
  "numpy.ndarray",
  "numpy.dtype",
  "torch._utils._rebuild_tensor_v2",
  "torch.storage._load_from_bytes",
  "collections.OrderedDict",
]);

describe("a pickle recorded from LeRobot", () => {
  it("parses a chunk to the values that LeRobot's own code reads, step by step", () => {
    const answer = readPickledChunk(sample("lerobot_actions.pkl"), 0, expected.actions.length);
    expect(rowsOf(answer)).toEqual(expected.actions.map(({ action }: { action: number[] }) => action));
    const [first, second] = expected.actions;
    expect(answer.dtMs).toBe(Math.round(1_000 * (second.timestamp - first.timestamp)));
    expect(new Set(rowsOf(answer).map(String)).size).toBe(expected.actions.length);
  });

  it("parses setup and observation to inert data", () => {
    const setup = readPickle(sample("lerobot_policy_setup.pkl"), ALL).value as PyObject;
    const fields = setup.state as Map<string, PyValue>;
    expect([setup.name, fields.get("policy_type")]).toEqual([
      "lerobot.async_inference.helpers.RemotePolicyConfig",
      "smolvla",
    ]);
    const seen = readPickle(sample("lerobot_observation.pkl"), ALL).value as PyObject;
    const observation = (seen.state as Map<string, PyValue>).get("observation") as Map<string, PyValue>;
    expect([observation.get("motor_1.pos"), observation.get("task")]).toEqual([-9.006024411152325, "pick up the cube"]);
    expect((observation.get("front") as PyObject).name).toBe("numpy._core.multiarray._reconstruct");
  });
});

describe("LeRobot's server", () => {
  it("receives the offering's policy once, then each observation with a timestep beyond the last chunk", async () => {
    await serve();
    for (let i = 0; i < 3; i++) expect(rowsOf(await act())).toEqual(STEPS);
    expect(server.asked).toEqual([
      "Ready",
      "SendPolicyInstructions",
      ...["SendObservations", "GetActions", "SendObservations", "GetActions", "SendObservations", "GetActions"],
    ]);
    const fields = (readPickle(server.setups[0]!, ALL).value as PyObject).state as Map<string, PyValue>;
    expect([...fields]).toEqual([
      ["policy_type", "act"],
      ["pretrained_name_or_path", "acme/act"],
      [
        "lerobot_features",
        new Map([
          [
            "observation.state",
            new Map<string, PyValue>([
              ["dtype", "float32"],
              ["shape", [3]],
              ["names", ["a", "b", "c"]],
            ]),
          ],
        ]),
      ],
      ["actions_per_chunk", 20],
      ["device", "cpu"],
      ["rename_map", new Map()],
    ]);
    const steps = server.observations.map((pickle) => {
      const state = (readPickle(pickle, ALL).value as PyObject).state as Map<string, PyValue>;
      expect(state.get("must_go")).toBe(true);
      expect(state.get("observation")).toEqual(
        new Map<string, PyValue>([
          ["a", 1.5],
          ["b", 2],
          ["c", -3],
          ["task", "go on"],
        ]),
      );
      return state.get("timestep") as number;
    });
    expect(steps[1]! - steps[0]!).toBeGreaterThan(1_024);
  });

  it("receives images as numpy arrays, in pieces that its stream can carry", async () => {
    await serve();
    const pixels = Buffer.alloc(1_024 * 1_024 * 3, Buffer.from(Array.from({ length: 256 }, (_, i) => (i * 7) & 0xff)));
    const data = await sharp(pixels, { raw: { width: 1_024, height: 1_024, channels: 3 } })
      .png()
      .toBuffer();
    const seen = observed({ frames: [{ camera: "front", data }], proprio: [1, 2, 3] });
    const frames = [{ camera: "front", key: "front", width: 1_024, height: 1_024 }];
    expect(rowsOf(await act(undefined, { frames }, seen))).toEqual(STEPS);
    const state = (readPickle(server.observations[0]!, ALL).value as PyObject).state as Map<string, PyValue>;
    const front = (state.get("observation") as Map<string, PyValue>).get("front") as PyObject;
    expect([front.name, front.args[0], front.args[1]]).toEqual(["numpy.ndarray", [1_024, 1_024, 3], "|u1"]);
    expect((front.args[2] as Buffer).equals(pixels)).toBe(true);
  });

  it("is queried once more if it has nothing; then the call fails, and the next act sets it up again", async () => {
    await serve({ empty: 1 });
    expect(rowsOf(await act())).toEqual(STEPS);
    await server.close();
    await serve({ empty: 2 });
    expect(nameOf(await failureIn(act()))).toBe("EMPTY_ANSWER");
    expect(rowsOf(await act())).toEqual(STEPS);
    expect(server.setups).toHaveLength(2);
  });
});

describe("a LeRobot server without pickles", () => {
  const SAFE = { dialect: ServerDialect.LEROBOT_SAFETENSORS };

  it("receives the policy and each observation in JSON and safetensors, and its chunk is parsed", async () => {
    await serve();
    const pixels = Buffer.from(Uint8Array.from({ length: 6 * 8 * 3 }, (_, i) => (37 * i) % 256));
    const data = await sharp(pixels, { raw: { width: 8, height: 6, channels: 3 } })
      .png()
      .toBuffer();
    const seen = observed({ frames: [{ camera: "front", data }], proprio: [1.5, 2, -3] });
    const frames = [{ camera: "front", key: "front", width: 8, height: 6 }];
    expect(rowsOf(await act(undefined, { ...SAFE, frames }, seen))).toEqual(STEPS);
    const [setup] = server.setups;
    expect(JSON.parse(setup!.toString("utf8", 4))).toEqual({
      type: "RemotePolicyConfig",
      policy_type: "act",
      pretrained_name_or_path: "acme/act",
      lerobot_features: {
        "observation.state": { dtype: "float32", shape: [3], names: ["a", "b", "c"] },
        "observation.images.front": { dtype: "image", shape: [6, 8, 3], names: ["height", "width", "channels"] },
      },
      actions_per_chunk: 20,
      device: "cpu",
      rename_map: {},
    });
    const [observation] = server.observations;
    expect(saidIn(observation!)).toMatchObject({
      type: "TimedObservation",
      must_go: true,
      scalar_data: { a: 1.5, b: 2, c: -3, task: "go on" },
      numpy_keys: ["front"],
    });
    expect(observation!.subarray(-pixels.length).equals(pixels)).toBe(true);
  });

  it("has its chunk parsed to the values that LeRobot's own code wrote", () => {
    const answer = readTensorChunk(sample("lerobot_actions_safe.bin"), 3, 20);
    const linear = Array.from({ length: 60 }, (_, i) => -1 + (2 * i) / 59);
    expect(rowsOf(answer).flat()).toHaveLength(60);
    for (const [i, value] of rowsOf(answer).flat().entries()) expect(value).toBeCloseTo(linear[i]!, 6);
    expect(answer.dtMs).toBe(33);
  });

  const timed = (count: number, from = 7): object => ({
    type: "TimedActions",
    actions: Array.from({ length: count }, (_, i) => ({ timestamp: i, timestep: from + i })),
  });
  it.each<[string, string, Buffer]>([
    ["steps of an earlier observation", "MALFORMED_ANSWER", packedChunk(STEPS, 6)],
    ["rows of different length", "MALFORMED_ANSWER", packed(timed(2), { action_0: [1], action_1: [1, 2] })],
    ["a step has no action", "MALFORMED_ANSWER", packed(timed(2), { action_0: [1] })],
    ["a row of non-numbers", "MALFORMED_ANSWER", packed(timed(1), { action_0: [] })],
    ["a row of too many numbers", "MALFORMED_ANSWER", packed(timed(1), { action_0: Array(1_025).fill(1) })],
    ["too many rows", "MALFORMED_ANSWER", packed(timed(1_025))],
    ["another message", "MALFORMED_ANSWER", packed({ ...timed(1), type: "TimedObservation" }, { action_0: [1] })],
    ["no list", "MALFORMED_ANSWER", packed({ type: "TimedActions", actions: { length: 1 } })],
    ["no rows", "EMPTY_ANSWER", packed(timed(0))],
    ["a pickle", "MALFORMED_ANSWER", chunk(STEPS, 7)],
    ["text beyond its end", "CONNECTION_LOST", packedChunk(STEPS, 7).subarray(0, 20)],
    ["tensors cut short", "CONNECTION_LOST", packedChunk(STEPS, 7).subarray(0, -1)],
  ])("fails with a chunk of %s", (_, name, bytes) => {
    let thrown = "read";
    try {
      readTensorChunk(bytes, 7, 2);
    } catch (error) {
      thrown = nameOf(error as never);
    }
    expect(thrown).toBe(name);
  });
});

describe("a LeRobot server's lease", () => {
  it("belongs to one session, and to the next after thirty seconds of silence", async () => {
    await serve();
    const clock = new ManualClock();
    const restore = setAmbient({ clock });
    await act("a");
    expect(nameOf(await failureIn(act("b")))).toBe("UPSTREAM_BUSY");
    await act("a");
    await clock.advance(30_001);
    expect(rowsOf(await act("b"))).toEqual(STEPS);
    expect(nameOf(await failureIn(act("a")))).toBe("UPSTREAM_BUSY");
    expect(server.asked.filter((method) => method === "Ready")).toHaveLength(2);
    restore();
  });

  it("lasts over all episodes of a session, and the server is set up for each", async () => {
    await serve();
    const input = (episode?: string) => actInput({ sessionId: "a", episode });
    const target = targetAt(server.endpoint, { profile: create(WireProfileSchema, PROFILE) });
    for (const episode of [undefined, "a-2", "a-2", "a-3"])
      await wire.act(target, input(episode), framesOf(), callWith());
    expect(server.asked.map((method) => method.replace(/^(Send|Get)/, ""))).toEqual([
      ...["Ready", "PolicyInstructions", "Observations", "Actions"],
      ...["Ready", "Observations", "Actions", "Observations", "Actions"],
      ...["Ready", "Observations", "Actions"],
    ]);
  });
});

describe("a LeRobot chunk", () => {
  const blob = storage([1, 2, 3, 4]);
  const rows = (pickle: Buffer, timestep = 7) => rowsOf(readPickledChunk(pickle, timestep, 2));
  const nameIn = (run: () => unknown): string => {
    try {
      run();
      return "read";
    } catch (error) {
      return nameOf(error as never);
    }
  };

  it("reads each row from its own place in the shared storage, with any stride", () => {
    expect(rows(chunk(STEPS, 7))).toEqual(STEPS);
    expect(rows(timedActions([tensor(blob, 0, [2], 2), tensor(blob, 1, [2], 2)], 7))).toEqual([
      [1, 3],
      [2, 4],
    ]);
  });

  it.each<[string, string, Buffer]>([
    ["steps of an earlier observation", "MALFORMED_ANSWER", chunk(STEPS, 6)],
    ["a view beyond its storage", "MALFORMED_ANSWER", timedActions([tensor(blob, 3, [2]), tensor(blob, 0, [2])], 7)],
    ["a view before its storage", "MALFORMED_ANSWER", timedActions([tensor(blob, -1, [2]), tensor(blob, 0, [2])], 7)],
    ["a negative stride", "MALFORMED_ANSWER", timedActions([tensor(blob, 3, [2], -1), tensor(blob, 0, [2])], 7)],
    ["a view of non-numbers", "MALFORMED_ANSWER", timedActions([tensor(blob, 0, [0]), tensor(blob, 0, [0])], 7)],
    ["a view of a billion", "MALFORMED_ANSWER", timedActions([tensor(blob, 0, [1e9]), tensor(blob, 0, [1e9])], 7)],
    ["two axes", "MALFORMED_ANSWER", timedActions([tensor(blob, 0, [1, 2]), tensor(blob, 0, [1, 2])], 7)],
    ["rows of different length", "MALFORMED_ANSWER", timedActions([tensor(blob, 0, [2]), tensor(blob, 0, [3])], 7)],
    ["a storage with a false length", "MALFORMED_ANSWER", timedActions([tensor(storage([1], 4), 0, [2])], 7)],
    ["no rows", "EMPTY_ANSWER", timedActions([], 7)],
    ["no list", "MALFORMED_ANSWER", Buffer.from("80044b012e", "hex")],
  ])("of %s fails with %s", (_, name, pickle) => {
    expect(nameIn(() => rows(pickle))).toBe(name);
  });
});

describe("a malicious pickle is refused, and nothing of it runs", () => {
  const reasonOf = (pickle: Buffer): string => {
    try {
      readPickle(pickle, ALL);
      return "read";
    } catch (error) {
      return error instanceof CodecError ? error.reason : String(error);
    }
  };
  it.each<[string, Buffer, string]>([
    ["a system call", Buffer.from("\x80\x04cos\nsystem\n\x8c\x04true\x85R.", "latin1"), "unsupported"],
    ["a builtin", Buffer.from("\x80\x04c__builtin__\neval\n\x8c\x011\x85R.", "latin1"), "unsupported"],
    [
      "a name built from two texts",
      Buffer.from("\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.", "latin1"),
      "unsupported",
    ],
    [
      "a dotted name that leaves an allowed one",
      Buffer.from("\x80\x04\x8c\x05numpy\x8c\x10ndarray.__init__\x93.", "latin1"),
      "unsupported",
    ],
    [
      "a submodule of an allowed one",
      Buffer.from("\x80\x04\x8c\x0enumpy.testing._\x8c\x05dtype\x93.", "latin1"),
      "unsupported",
    ],
    ["a prototype", Buffer.from("\x80\x04c__proto__\nconstructor\n.", "latin1"), "unsupported"],
    ["an instance by an old opcode", Buffer.from("\x80\x02(cos\nsystem\no.", "latin1"), "unsupported"],
    ["an instance by an older opcode", Buffer.from("(ios\nsystem\n.", "latin1"), "unsupported"],
    ["an extension code", Buffer.from("\x80\x02\x82\x01.", "latin1"), "unsupported"],
    ["a system call with keywords", Buffer.from("\x80\x04cos\nsystem\n)}\x92.", "latin1"), "unsupported"],
    ["a call with keywords of None", Buffer.from("\x80\x04)}\x92.", "latin1"), "malformed"],
    ["invalid keywords", Buffer.from("\x80\x04)))\x92.", "latin1"), "malformed"],
    ["an out-of-band buffer", Buffer.from("\x80\x05\x97.", "latin1"), "unsupported"],
    ["bytes beyond all memory", Buffer.from("\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\xffa.", "latin1"), "truncated"],
    ["a call of a non-name", Buffer.from("\x80\x04K\x01)R.", "latin1"), "malformed"],
    ["fields of a non-object", Buffer.from("\x80\x04K\x01}b.", "latin1"), "malformed"],
    ["an empty stack", Buffer.from("\x80\x04.", "latin1"), "malformed"],
    ["an empty memo", Buffer.from("\x80\x04h\x09.", "latin1"), "malformed"],
    ["a mark in place of a value", Buffer.from("\x80\x04(.", "latin1"), "malformed"],
    ["endless marks", Buffer.from(`\x80\x04${"(".repeat(200_000)}.`, "latin1"), "too_many_values"],
    ["a text of four gigabytes", Buffer.from("\x80\x04X\xff\xff\xff\xff.", "latin1"), "truncated"],
    ["bytes beyond its end", Buffer.from("\x80\x04B\x10\x00\x00\x00a.", "latin1"), "truncated"],
    ["no end", Buffer.from("\x80\x04K\x01", "latin1"), "truncated"],
    ["an endless line", Buffer.from(`\x80\x04c${"a".repeat(1_000)}`, "latin1"), "truncated"],
  ])("%s", (_, pickle, reason) => {
    expect(reasonOf(pickle)).toBe(reason);
  });

  it("a list that contains itself is parsed, and traversal of it ends", () => {
    const { value } = readPickle(Buffer.from("\x80\x04]\x94h\x00a.", "latin1"), ALL);
    expect((value as PyValue[])[0]).toBe(value);
    expect(() => readPickledChunk(Buffer.from("\x80\x04]\x94h\x00a.", "latin1"), 0, 1)).toThrow(
      "the steps are for another observation",
    );
  });
});

it("the LeRobot probe detects unrequested actions, which belong to another robot", async () => {
  await serve();
  const [probe] = (wire as Required<Wire>).probes;
  await expect(probe?.look(targetAt(server.endpoint), callWith())).resolves.toContain("no actions");
  await server.close();
  server = await startLerobotServer({ unasked: chunk(STEPS, 3) });
  await expect(probe?.look(targetAt(server.endpoint), callWith())).rejects.toThrow("another robot");
});

it("every LeRobot offering must declare the server's policy and a motor for each number", () => {
  const profile = (init: MessageInitShape<typeof WireProfileSchema>) => create(WireProfileSchema, init);
  expect(wire.faultOf(undefined, [1])?.field).toBe("constants");
  expect(wire.faultOf(profile({ constants: PROFILE.constants! }), [1])?.field).toBe("proprio");
  const wide = [{ start: 0, end: 3, key: "arm" }];
  expect(wire.faultOf(profile({ constants: PROFILE.constants!, proprio: wide }), [1])?.field).toBe("proprio.0.end");
  expect(wire.faultOf(profile(PROFILE), [1])).toBeUndefined();
  expect(wire.faultOf(profile({ preset: "lerobot/so101", constants: PROFILE.constants! }), [1])).toBeUndefined();
});
