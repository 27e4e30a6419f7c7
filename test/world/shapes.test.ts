/** Shapes and types that numpy clients and servers send: texts as arrays, `[T]` as T steps of one number, scalars, 0-d arrays, axes of one. */

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { afterAll, describe, expect, it } from "vitest";
import { Reply } from "zeromq";
import { ServerDialect, WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import { decodeGr00t } from "../../src/codecs/python/gr00t.ts";
import { decodeJsonNumpy } from "../../src/codecs/python/json-numpy.ts";
import { encodeMsgpack, type Packable } from "../../src/codecs/python/msgpack.ts";
import { decodeNumpy, dtypeOf, NdArray } from "../../src/codecs/python/ndarray.ts";
import { readSafetensors } from "../../src/codecs/python/safetensors.ts";
import { textIn } from "../../src/codecs/python/values.ts";
import { UpstreamFailure } from "../../src/contracts/contract.ts";
import { actionAsked } from "../../src/edge/transports/gr00t/observation.ts";
import { requestOf } from "../../src/edge/transports/openpi/observation.ts";
import { OpenpiProtocol } from "../../src/edge/transports/openpi/protocol.ts";
import { VlaEvalProtocol } from "../../src/edge/transports/openpi/vla-eval.ts";
import { createUpstream } from "../../src/upstream/index.ts";
import { arrayOfTensor } from "../../src/upstream/oip.ts";
import { readInfer } from "../../src/upstream/oip-v2-rest.ts";
import { readAnswer } from "../../src/upstream/openpi-ws/messages.ts";
import { readJsonAction, sideBySide, tableOf } from "../../src/upstream/payload/actions.ts";
import { pack, unpack } from "../support/plain-msgpack.ts";
import { npy } from "../support/servers/gr00t.ts";
import { actInput, callWith, framesOf, nameOf, observed, rowsOf, targetAt } from "../support/wire-calls.ts";

const upstream = createUpstream({ allowPrivate: true });
afterAll(() => upstream.close());

const failing = (read: () => unknown): UpstreamFailure => {
  try {
    read();
  } catch (thrown) {
    if (thrown instanceof UpstreamFailure) return thrown;
  }
  throw new Error("expected an UpstreamFailure");
};

const ASKED = { model: "a/b", sessionId: "s", episode: 1 };
const BY = { asker: { key: "key", robot: "robot" } };
const TEXT = "reach it";
const wide = (text: string, letters = text.length, isBig = false): Buffer => {
  const bytes = Buffer.alloc(4 * letters);
  for (const [i, letter] of [...text].entries())
    isBig ? bytes.writeUInt32BE(letter.codePointAt(0)!, 4 * i) : bytes.writeUInt32LE(letter.codePointAt(0)!, 4 * i);
  return bytes;
};
interface Raw {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data: Buffer;
}
/** The text as numpy keeps it: of letters, of bytes, padded, in the other byte order, with no axis, one, two. */
const TEXTS: Readonly<Record<string, Raw>> = {
  "np.array(text)": { dtype: "<U8", shape: [], data: wide(TEXT) },
  "np.array([text])": { dtype: "<U8", shape: [1], data: wide(TEXT) },
  "np.array([[text]])": { dtype: "<U8", shape: [1, 1], data: wide(TEXT) },
  "a longer type": { dtype: "<U12", shape: [1], data: wide(TEXT, 12) },
  "the other byte order": { dtype: ">U8", shape: [1], data: wide(TEXT, 8, true) },
  "np.array([text.encode()])": { dtype: "|S10", shape: [1], data: Buffer.from(`${TEXT}\0\0`) },
};
/** The same array as each client writes it. */
const openpiArray = ({ dtype, shape, data }: Raw): Packable =>
  new Map<Uint8Array, Packable>([
    [Buffer.from("__ndarray__"), true],
    [Buffer.from("data"), data],
    [Buffer.from("dtype"), dtype],
    [Buffer.from("shape"), shape],
  ]);
const numpyArray = ({ dtype, shape, data }: Raw): Packable =>
  new Map<Uint8Array, Packable>([
    [Buffer.from("nd"), true],
    [Buffer.from("type"), dtype],
    [Buffer.from("kind"), Buffer.alloc(0)],
    [Buffer.from("shape"), shape],
    [Buffer.from("data"), data],
  ]);
const npyArray = ({ dtype, shape, data }: Raw): Packable => ({
  __ndarray_class__: true,
  as_npy: npy(dtype, shape, data),
});

const gr00t = async (data: Packable) =>
  (
    await actionAsked(decodeGr00t(encodeMsgpack(data)), {
      model: "a/b",
      embodiment: undefined,
      session: "s",
      episode: 1,
      by: BY,
    })
  ).request;
const openpi = async (data: Packable) => (await requestOf(decodeNumpy(encodeMsgpack(data)), ASKED, BY)).request;
const LANGUAGE = "annotation.human.task_description";

describe("Isaac Lab, RoboCasa, RLinf: an instruction as a numpy array", () => {
  const plain: Readonly<Record<string, Packable>> = {
    "a text": TEXT,
    "a list of one": [TEXT],
    "lists of one": [[TEXT]],
    bytes: Buffer.from(TEXT),
  };
  const arrays = Object.entries(TEXTS);

  it.each([
    ...Object.entries(plain).map(([name, value]) => [name, value] as const),
    ...arrays.map(([name, raw]) => [`${name} as npy`, npyArray(raw)] as const),
    ...arrays.map(([name, raw]) => [`${name} by msgpack_numpy`, numpyArray(raw)] as const),
  ])("is read on the GR00T port, flat and nested: %s", async (_, text) => {
    expect((await gr00t({ [LANGUAGE]: text })).instruction).toBe(TEXT);
    expect((await gr00t({ observation: { video: {}, language: { [LANGUAGE]: text } } })).instruction).toBe(TEXT);
  });

  it.each([
    ...Object.entries(plain).map(([name, value]) => [name, value] as const),
    ...arrays.map(([name, raw]) => [name, openpiArray(raw)] as const),
    ["a scalar of numpy's", { __npgeneric__: true, data: TEXT, dtype: "<U8" }] as const,
  ])("is read on the openpi port, and by vla-evaluation-harness: %s", async (_, text) => {
    expect((await openpi({ prompt: text })).instruction).toBe(TEXT);
    expect((await openpi({ task: text })).instruction).toBe(TEXT);
    const message = encodeMsgpack({ type: "observation", payload: { task_description: text }, seq: 1 });
    const heard = await new VlaEvalProtocol(ASKED).read(message, true, BY);
    expect(heard.kind === "act" && heard.request.instruction).toBe(TEXT);
  });

  it.each(arrays)("is read if an HTTP server sends it by json_numpy: %s", (_, { dtype, shape, data }) => {
    const text = decodeJsonNumpy(JSON.stringify({ note: { __numpy__: data.toString("base64"), dtype, shape } }));
    expect(textIn((text as Map<string, string>).get("note"))).toBe(TEXT);
  });

  it("is absent if a client sends none, and is independent of other annotations", async () => {
    for (const request of [
      await gr00t({ [LANGUAGE]: null }),
      await gr00t({}),
      await openpi({ prompt: null }),
      await openpi({}),
    ])
      expect(request.instruction).toBeUndefined();
    expect((await gr00t({ "annotation.human.validity": [1], [LANGUAGE]: [TEXT] })).instruction).toBe(TEXT);
    expect(
      (await openpi({ prompt: TEXT, robot_name: openpiArray(TEXTS["np.array([text])"]!) })).observations[0]!.proprio,
    ).toEqual([]);
  });

  it("is refused with its key if it is several texts, or no text", async () => {
    await expect(gr00t({ [LANGUAGE]: ["a", "b"] })).rejects.toThrow(/`human.task_description` must/);
    await expect(openpi({ prompt: 3 })).rejects.toThrow(/`prompt` must/);
    await expect(openpi({ task: ["a", "b"] })).rejects.toThrow(/`task` must/);
  });
});

describe("numpy, torch and jax clients: an array", () => {
  const float32 = Buffer.from(Float32Array.of(0.5, -2).buffer);
  const bfloat16 = Buffer.from("003f00c0", "hex");
  const proprioOf = async (array: Packable) => (await openpi({ "observation/state": array })).observations[0]!.proprio;

  it.each([
    "float32",
    "f",
    "single",
    "|f4",
    "=f4",
    "torch.float32",
    "numpy.float32",
    "<class 'numpy.float32'>",
    "dtype('float32')",
  ])("is read by any name of its type: %s", async (dtype) => {
    expect(await proprioOf(openpiArray({ dtype, shape: [2], data: float32 }))).toEqual([0.5, -2]);
    const json = decodeJsonNumpy(JSON.stringify({ a: { __numpy__: float32.toString("base64"), dtype, shape: [2] } }));
    expect([...((json as Map<string, NdArray>).get("a")!.toFloat64() as Float64Array)]).toEqual([0.5, -2]);
  });

  it.each([
    ["?", "|b1"],
    ["B", "|u1"],
    ["d", "<f8"],
    ["float", "<f8"],
    ["int", "<i8"],
    ["half", "<f2"],
    ["longlong", "<i8"],
    ["g", undefined],
    ["float128", undefined],
    ["object", undefined],
    ["datetime64[ns]", undefined],
    ["complex64", undefined],
    ["<V2", undefined],
    [["f4"], undefined],
  ])("has numpy's meaning of %s", (name, dtype) => {
    expect(dtypeOf(name)).toBe(dtype);
  });

  it("of jax's bfloat16 is widened, from messages and safetensors, and one of two unknown bytes is refused", async () => {
    for (const dtype of ["bfloat16", "torch.bfloat16"])
      expect(await proprioOf(openpiArray({ dtype, shape: [2], data: bfloat16 }))).toEqual([0.5, -2]);
    const header = Buffer.from('{"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}');
    const length = Buffer.alloc(8);
    length.writeUInt32LE(header.length);
    const file = readSafetensors(Buffer.concat([length, header, bfloat16]));
    expect([...file.get("a")!.toFloat64()]).toEqual([0.5, -2]);
    const odd = Promise.try(() => proprioOf(openpiArray({ dtype: "<V2", shape: [2], data: bfloat16 })));
    await expect(odd).rejects.toMatchObject({ reason: "bad_dtype" });
  });

  it("of msgpack_numpy is read on the openpi port, and so is its single number", async () => {
    expect(await proprioOf(numpyArray({ dtype: "<f4", shape: [2], data: float32 }))).toEqual([0.5, -2]);
    const number = { nd: false, type: "<f4", data: float32.subarray(0, 4) };
    expect(await proprioOf(number)).toEqual([0.5]);
  });

  it("of text is read by numpy's long name of its type", async () => {
    expect((await openpi({ prompt: openpiArray({ dtype: "str256", shape: [1], data: wide(TEXT) }) })).instruction).toBe(
      TEXT,
    );
  });

  it.each([
    ["observation/wrist_image_left", openpiArray({ dtype: "|u1", shape: [2, 2], data: Buffer.alloc(4) })],
    ["observation/wrist_image_left", "iVBORw0KGgo="],
    ["images.cam_rgb", openpiArray({ dtype: "|u1", shape: [12], data: Buffer.alloc(12) })],
    ["observation/state", "0.5, -2"],
    ["observation/gripper_position", true],
  ])("that is not what its key names is refused, not taken for something else: %s", async (key, value) => {
    await expect(openpi({ [key]: value as Packable })).rejects.toThrow(new RegExp(`\`${key}\` must`));
  });
});

describe("numpy clients: an unreadable array", () => {
  const bad: Readonly<Record<string, Raw>> = {
    objects: { dtype: "|O", shape: [1], data: Buffer.alloc(8) },
    "complex numbers": { dtype: "<c8", shape: [1], data: Buffer.alloc(8) },
    "fewer bytes than numbers": { dtype: "<f4", shape: [3], data: Buffer.alloc(8) },
    "letters that are none": { dtype: "<U2", shape: [1], data: Buffer.alloc(8, 0xff) },
    "more letters than an instruction has": { dtype: "<U400000", shape: [1], data: Buffer.alloc(1_600_000) },
  };
  it.each(Object.entries(bad).slice(0, 4))("is refused with its key: %s", async (_, raw) => {
    const message = encodeMsgpack({ images: { cam_high: openpiArray(raw) } });
    await expect(new OpenpiProtocol(ASKED).read(message, true, BY)).rejects.toThrow(
      /^`images\.cam_high` must (be|have) /,
    );
    expect(() => decodeGr00t(encodeMsgpack({ data: { state: npyArray(raw) } }))).toThrow(
      expect.objectContaining({ key: "data.state" }),
    );
    const { dtype, shape, data } = raw;
    const json = JSON.stringify({ actions: [{ arm: { __numpy__: data.toString("base64"), dtype, shape } }] });
    expect(() => decodeJsonNumpy(json)).toThrow(expect.objectContaining({ key: "actions.arm" }));
  });

  it.each(Object.entries(bad))("is a CodecError, and costs no more than its bytes: %s", (_, raw) => {
    expect(() => decodeNumpy(encodeMsgpack(openpiArray(raw)))).toThrow(/bad_|too_large/);
  });

  it("is not one of numpy's alternative type names", () => {
    const names = ["float32", "uint8", "bool", "int64", "=f4", "f4", "<u1", ">b1", ">f8"];
    expect(names.map(dtypeOf)).toEqual(["<f4", "|u1", "|b1", "<i8", "<f4", "<f4", "|u1", "|b1", ">f8"]);
    expect(["float8", "object", "constructor", "<f3", 4].map(dtypeOf)).toEqual(Array(5).fill(undefined));
  });
});

describe("Physical-Intelligence/openpi, huggingface/lerobot: numbers in other shapes than arrays", () => {
  const zeroD = openpiArray({ dtype: "<f4", shape: [], data: Buffer.from(Float32Array.of(0.5).buffer) });
  const three = openpiArray({ dtype: "<f4", shape: [1, 3], data: Buffer.from(Float32Array.of(1, 2, 3).buffer) });
  it("are a robot's state on the openpi port, in the order of their keys", async () => {
    const proprioOf = async (data: Packable) => (await openpi(data)).observations[0]!.proprio;
    expect(await proprioOf({ "observation/joint_position": [1, 2], "observation/gripper_position": 0.5 })).toEqual([
      1, 2, 0.5,
    ]);
    expect(await proprioOf({ "observation/joint_position": [[1, 2]], "observation/gripper_position": zeroD })).toEqual([
      1, 2, 0.5,
    ]);
    expect(await proprioOf({ state: [zeroD, zeroD] })).toEqual([0.5, 0.5]);
    await expect(openpi({ state: [[1, 2], [3]] })).rejects.toThrow(/^`state` must/);
  });

  it("are a robot's state on the GR00T port, newest first if there are several moments", async () => {
    const state = async (value: Packable) => (await gr00t({ "state.arm": value })).observations[0]!.proprio;
    const npyOf = (shape: number[], values: number[]) =>
      npyArray({ dtype: "<f8", shape, data: Buffer.from(Float64Array.from(values).buffer) });
    for (const value of [npyOf([], [7]), 7, [7], [[7]], npyOf([1], [7]), npyOf([2, 1], [6, 7])])
      expect(await state(value)).toEqual([7]);
    await expect(gr00t({ observation: {}, "state.arm": "x" })).resolves.toBeDefined();
    await expect(gr00t({ "state.arm": "x" })).rejects.toThrow(/`arm` must/);
  });

  it("are a robot's state for vla-evaluation-harness", async () => {
    const read = async (states: Packable) => {
      const heard = await new VlaEvalProtocol(ASKED).read(
        encodeMsgpack({ type: "observation", payload: { states } }),
        true,
        BY,
      );
      return heard.kind === "act" && heard.request.observations[0]!.proprio;
    };
    for (const states of [three, [1, 2, 3], [[1, 2, 3]]]) expect(await read(states)).toEqual([1, 2, 3]);
    await expect(
      read([
        [1, 2],
        [3, 4],
      ]),
    ).rejects.toThrow(/`states` must/);
  });

  it("are an image if axes of length one come first", async () => {
    const picture = { dtype: "|u1", shape: [1, 1, 2, 2, 3], data: Buffer.alloc(12, 9) };
    const { observations } = await openpi({ "observation/image": openpiArray(picture) });
    expect(observations[0]!.frames).toHaveLength(1);
    await expect(openpi({ "observation/image": openpiArray({ ...picture, shape: [2, 1, 2, 1, 3] }) })).rejects.toThrow(
      /`observation\/image` must/,
    );
  });
});

describe("servers of Python's frameworks: an action", () => {
  const plain = { actionKeys: [], actionDims: [] };
  const rows = [
    [1, 2],
    [3, 4],
  ];
  const array = (shape: number[]) => {
    const data = Buffer.from(Float64Array.of(1, 2, 3, 4).buffer);
    return { __numpy__: data.toString("base64"), dtype: "<f8", shape };
  };
  const read = (answer: unknown) =>
    rowsOf(readJsonAction(Buffer.from(typeof answer === "string" ? answer : JSON.stringify(answer)), plain, 2, 2));
  const openpiRows = (answer: Packable) => {
    const expected = { profile: plain, horizon: 2, requestId: "r", dialect: ServerDialect.OPENPI };
    return rowsOf(readAnswer(encodeMsgpack(answer), expected));
  };

  it.each([
    ["with axes of a batch and an environment", { actions: array([1, 1, 2, 2]) }],
    [
      "beside numbers that are not finite, of json.dumps",
      '{"actions": [[1, 2], [3, 4]], "value": NaN, "logprob": -Infinity}',
    ],
    ["beside an empty error", { actions: rows, error: null, success: false }],
    ["beside the measurement of an error", { actions: rows, error: 0.25 }],
  ])("%s is read over JSON", (_, answer) => {
    expect(read(answer)).toEqual(rows);
  });

  it("that is not finite in JSON is left to the contract, which refuses it", () => {
    expect(read('{"note": "a NaN \\" NaN", "actions": [[NaN, 2]]}')).toEqual([[Number.POSITIVE_INFINITY, 2]]);
  });

  it("is read from Triton beside outputs of other types, and as bfloat16", () => {
    const beside = { name: "tag", datatype: "COMPLEX", shape: [1], data: [1] };
    const count = { name: "count", datatype: "INT64", shape: [1], data: [7] };
    const action = { name: "action", datatype: "FP32", shape: [1, 2], data: [[0.5, -2]] };
    const body = Buffer.from(JSON.stringify({ outputs: [beside, count, action] }));
    const [unread, seven, read] = readInfer(body, "r", undefined);
    expect([...arrayOfTensor(read!).toFloat64(), ...arrayOfTensor(seven!).toFloat64()]).toEqual([0.5, -2, 7]);
    expect(() => arrayOfTensor(unread!)).toThrow(/tag is of type COMPLEX/);
    const huge = JSON.stringify({ outputs: [count] }).replace("7", "1e999");
    expect(nameOf(failing(() => readInfer(Buffer.from(huge), "r", undefined)))).toBe("MALFORMED_ANSWER");
    const raw = { name: "action", datatype: "BF16", shape: [1, 2], data: Buffer.from("003f00c0", "hex") };
    expect([...arrayOfTensor(raw).toFloat64()]).toEqual([0.5, -2]);
  });

  it("as lists is read from an openpi server, too", () => {
    for (const actions of [rows, [rows]]) expect(openpiRows({ actions })).toEqual(rows);
  });

  it.each<[string, { [key: string]: Packable & {} }, string, string]>([
    ["FastAPI's", { error: "CUDA error: out of memory" }, "UPSTREAM_ERROR", "CUDA error: out of memory"],
    ["an error beside old actions", { actions: rows, error: "stale" }, "UPSTREAM_ERROR", "stale"],
    ["a status", { status: "error", message: "no policy" }, "UPSTREAM_ERROR", "no policy"],
    ["a full queue", { error: { message: "queue is full" } }, "UPSTREAM_BUSY", "queue is full"],
  ])("is never taken from a response of 200 that reports an error: %s", (_, answer, failure, message) => {
    for (const reader of [read, openpiRows]) {
      const thrown = failing(() => reader(answer));
      expect([nameOf(thrown), thrown.message]).toEqual([failure, message]);
    }
  });

  it("that is missing fails with the server's explanation, if it has one", () => {
    expect(failing(() => read({ success: false, message: "reset first" })).message).toBe("reset first");
    expect(failing(() => read({ detail: "no such session" })).message).toBe("no such session");
    expect(nameOf(failing(() => read({ other: 1 })))).toBe("MALFORMED_ANSWER");
  });
});

describe("NVIDIA/Isaac-GR00T at N1.5: parts of one number as a list of T numbers", () => {
  const PARTS = ["x", "y", "z", "roll", "pitch", "yaw", "gripper"];
  const T = 16;
  const part = (k: number, shape: number[] = [T]) =>
    npyArray({
      dtype: "<f8",
      shape,
      data: Buffer.from(Float64Array.from({ length: T }, (_, t) => k + t / 100).buffer),
    });
  const row = (t: number) => PARTS.map((_, k) => k + t / 100);

  const declarations: readonly (readonly [string, MessageInitShape<typeof WireProfileSchema>, number[]])[] = [
    ["declared one by one", { actionKeys: PARTS.map((key) => `action.${key}`), actionDims: PARTS.map(() => 1) }, [T]],
    [
      "of the preset for LIBERO",
      {
        preset: "gr00t/libero",
        frames: [{ camera: "x", key: "video.image", width: 1, height: 1 }],
        proprio: [{ start: 0, end: 3, key: "state.base" }],
      },
      [T],
    ],
    ["without declared widths", { actionKeys: PARTS, actionDims: [] }, [T]],
    ["with the batch's axis", { actionKeys: PARTS, actionDims: PARTS.map(() => 1) }, [1, T]],
  ];
  it.each(declarations)("are T steps if they are %s", async (_, declared, shape) => {
    const rep = new Reply({ linger: 0 });
    await rep.bind("tcp://127.0.0.1:*");
    const serving = (async () => {
      for await (const [message] of rep) {
        const isPing = (unpack(message as Buffer) as Map<string, unknown>).get("endpoint") === "ping";
        await rep.send(
          isPing
            ? pack(new Map([["status", "ok"]]))
            : encodeMsgpack(Object.fromEntries(PARTS.map((key, k) => [`action.${key}`, part(k, shape)]))),
        );
      }
    })();
    try {
      const dialect = ServerDialect.GR00T_N1_5;
      const profile = create(WireProfileSchema, { ...declared, dialect } as typeof declared);
      const seen = observed({ proprio: [1, 2, 3], frames: [{ camera: "x", url: DOT }] });
      const target = targetAt(rep.lastEndpoint!, { profile, actionDim: 7 });
      const input = actInput({ observations: [seen], horizon: T, actionSpace: "ee_delta_6d_grip" });
      const rows = rowsOf(await upstream.wireOf("gr00t-zmq")!.act!(target, input, framesOf(seen), callWith()));
      expect(rows).toHaveLength(T);
      expect(rows[3]).toEqual(row(3));
    } finally {
      rep.close();
      await serving;
    }
  });

  it("are T steps over gr00t-http, too, which uses JSON lists", () => {
    const lists = JSON.stringify(
      Object.fromEntries(PARTS.map((key, k) => [`action.${key}`, Array.from({ length: T }, (_, t) => k + t / 100)])),
    );
    const profile = { actionKeys: PARTS, actionDims: PARTS.map(() => 1) };
    expect(rowsOf(readJsonAction(Buffer.from(lists), profile, T, 7))[3]).toEqual(row(3));
  });

  const table = (...shape: number[]) =>
    tableOf(
      NdArray.float64(
        Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => i),
        shape,
      ),
    );
  const sizeOf = (shapes: number[][], dims: number[], dim: number | undefined) => {
    const { rows, columns } = sideBySide(
      shapes.map((shape) => table(...shape)),
      { dims, dim },
    );
    return [rows, columns];
  };
  it.each([
    ["an arm's [T, 3] beside a gripper's [T]", [[16, 3], [16]], [], 4, [16, 4]],
    ["the same, declared", [[16, 3], [16]], [3, 1], 4, [16, 4]],
    ["one step of several numbers each", [[7], [1]], [7, 1], 8, [1, 8]],
    ["one step, not declared", [[3], [4]], [], 7, [1, 7]],
    ["one step of a whole action", [[7]], [], 7, [1, 7]],
    ["steps of an action that is one number", [[20]], [], 1, [20, 1]],
    ["two parts of one number", [[2], [2]], [], 2, [2, 2]],
    ["a single number", [[]], [], 1, [1, 1]],
    ["one step of which the gripper lost its axes", [[7], []], [], 8, [1, 8]],
    ["what nothing is declared of", [[5]], [], undefined, [1, 5]],
  ] as const)("with %s are read", (_, shapes, dims, dim, size) => {
    expect(
      sizeOf(
        shapes.map((shape) => [...shape]),
        [...dims],
        dim,
      ),
    ).toEqual(size);
  });

  it("are refused in any other shape", () => {
    expect(() => sizeOf([[16, 3], [15]], [], 4)).toThrow(/differ in length/);
    expect(() => sizeOf([[16]], [7], 7)).toThrow(/16 columns, and 7 are declared/);
    expect(() => sizeOf([[]], [], 7)).toThrow(/a single number/);
  });
});

/** A picture of one pixel. */
const DOT =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
