/** LeRobot's remote-inference messages: those that its own codec wrote, the cases of its own tests, and damage at random. */
import { readFileSync } from "node:fs";
import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { CodecError } from "../../../../src/codecs/error.ts";
import {
  decodeRemote,
  encodeRemote,
  isSegment,
  peekRemote,
  type RemoteHeader,
  type RemotePicture,
} from "../../../../src/codecs/python/lerobot-remote.ts";
import { NdArray } from "../../../../src/codecs/python/ndarray.ts";
import { pack } from "../../../support/plain-msgpack.ts";
import { runs } from "../../../support/runs.ts";
import { tree } from "../../../support/servers/vla-eval.ts";
import { mutations } from "../fuzz.ts";

const NAMES = [
  "describe",
  "descriptor",
  "control",
  "ack",
  "observation",
  "observation_jpeg",
  "action",
  "error",
  "tensors",
];
const sample = (name: string): Buffer =>
  readFileSync(new URL(`../../../golden/wire-samples/lerobot_remote_${name}.msgpack`, import.meta.url));

const HEADER: RemoteHeader = {
  type: "action",
  instance: "instance",
  session: "session",
  generation: 4,
  request: "request",
};
/** Numbers 0 to 11 in rows of four, turned: what the samples' tensors hold. */
const TURNED = [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11];

function reasonOf(read: () => unknown): string {
  try {
    read();
    return "read";
  } catch (error) {
    return error instanceof CodecError ? error.reason : String(error);
  }
}

/** A message whose body has one value, written apart from our own encoder. */
const holding = (value: unknown, more: object = {}): Buffer =>
  pack(
    tree({
      version: 1,
      message_type: "action",
      instance_id: "instance",
      session_id: "session",
      generation: 4,
      request_id: "request",
      body: { value },
      ...more,
    }),
  );

describe("a message from LeRobot's own codec", () => {
  it("has its header", () => {
    expect(peekRemote(sample("control"))).toEqual({
      type: "control",
      instance: "instance",
      session: "session",
      generation: 7,
      request: "c1",
    });
    expect(peekRemote(sample("describe"))).toMatchObject({
      type: "describe",
      instance: "",
      session: "",
      request: "d1",
    });
  });

  it("has tensors of every type, those in the other byte order and transposed ones among them", () => {
    const { body } = decodeRemote(sample("tensors"));
    const dtypes = "bool uint8 int8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 big".split(" ");
    for (const dtype of dtypes) {
      const tensor = body.get(dtype) as NdArray;
      expect([dtype, tensor.shape]).toEqual([dtype, [4, 3]]);
      const expected = dtype === "bool" ? TURNED.map((value) => Number(value > 0)) : TURNED;
      expect([...tensor.toFloat64()]).toEqual(expected);
    }
    expect(body.get("scalar")).toBe(1.5);
    expect(body.get("nested")).toEqual(new Map([["list", [1, -1, 2 ** 40, true, null, "é"]]]));
  });

  it("has images, raw and as JPEG", async () => {
    const features = decodeRemote(sample("observation")).body.get("features") as Map<string, unknown>;
    const front = features.get("observation.images.front") as RemotePicture;
    expect([front.encoding, front.height, front.width]).toEqual(["raw", 6, 8]);
    expect([...front.data]).toEqual(Array.from({ length: 144 }, (_, i) => (37 * i) % 256));
    expect([...(features.get("observation.state") as NdArray).toFloat64()]).toEqual([-9.25, 91.5, -34.75]);
    const jpeg = (decodeRemote(sample("observation_jpeg")).body.get("features") as Map<string, RemotePicture>).get(
      "front",
    );
    const { data, info } = await sharp(jpeg?.data).raw().toBuffer({ resolveWithObject: true });
    expect([info.width, info.height, jpeg?.encoding]).toEqual([16, 16, "jpeg"]);
    expect([data[0]! > 250, data[1]! < 5, data[2]! < 5]).toEqual([true, true, true]);
  });

  it.each(NAMES)("is reproduced by the gateway's codec in value: %s", (name) => {
    const { body, ...header } = decodeRemote(sample(name));
    expect(decodeRemote(encodeRemote(header, body))).toEqual({ ...header, body });
  });

  it.each(["describe", "control", "ack", "error"])("is reproduced by the gateway's codec byte for byte: %s", (name) => {
    const { body, ...header } = decodeRemote(sample(name));
    expect(encodeRemote(header, body).equals(sample(name))).toBe(true);
  });
});

describe("a message that LeRobot's own tests refuse is refused:", () => {
  const one = Buffer.from(Float32Array.of(1).buffer);
  const record = { __lerobot_type__: "tensor", dtype: "float32", endianness: "little", shape: [1], data: one };
  it.each<[string, object, string]>([
    ["an object", { dtype: "object" }, "bad_dtype"],
    ["a record", { dtype: "V10000000" }, "bad_dtype"],
    ["a type named like an object's member", { dtype: "constructor" }, "bad_dtype"],
    ["a shape of booleans", { shape: [true, 3] }, "bad_shape"],
    ["a negative dimension", { shape: [-1] }, "bad_shape"],
    ["an empty dimension", { shape: [0], data: Buffer.alloc(0) }, "bad_shape"],
    ["nine axes", { shape: Array(9).fill(1) }, "bad_shape"],
    ["a dimension of a million", { shape: [1_000_000] }, "bad_shape"],
    ["another number count than bytes", { shape: [3] }, "bad_shape"],
    ["no shape", { shape: null }, "bad_shape"],
    ["the machine's byte order", { endianness: "native" }, "bad_dtype"],
    ["no bytes", { data: Buffer.alloc(0) }, "bad_shape"],
    ["text in place of bytes", { data: "abcd" }, "bad_ndarray"],
    ["a non-number", { data: Buffer.from(Float32Array.of(Number.NaN).buffer) }, "malformed"],
    ["another record", { __lerobot_type__: "pickle" }, "bad_ndarray"],
  ])("a tensor of %s", (_, changes, reason) => {
    expect(reasonOf(() => decodeRemote(holding({ ...record, ...changes })))).toBe(reason);
    expect(peekRemote(holding({ ...record, ...changes })).request).toBe("request");
  });

  const rgb = {
    __lerobot_type__: "rgb",
    dtype: "uint8",
    encoding: "raw",
    channel_order: "RGB",
    shape: [1, 1, 3],
    data: Buffer.alloc(3),
  };
  it.each<[string, object, string]>([
    ["in another order", { channel_order: "BGR" }, "bad_dtype"],
    ["of floats", { dtype: "float32" }, "bad_dtype"],
    ["of four colors", { shape: [1, 1, 4], data: Buffer.alloc(4) }, "bad_shape"],
    ["with a false length", { shape: [2, 1, 3] }, "bad_shape"],
    ["of a hundred megapixels", { encoding: "jpeg", shape: [10_000, 10_000, 3] }, "bad_shape"],
    ["as a PNG", { encoding: "png" }, "unsupported"],
  ])("an image %s", (_, changes, reason) => {
    expect(reasonOf(() => decodeRemote(holding({ ...rgb, ...changes })))).toBe(reason);
  });

  it.each<[string, object, string]>([
    ["another version", { version: 9_000 }, "unsupported"],
    ["a version that is a text", { version: "1" }, "malformed"],
    ["another type", { message_type: "kill" }, "malformed"],
    ["a parent path in a name", { session_id: "../x" }, "malformed"],
    ["a session name that is a wildcard", { session_id: "*" }, "malformed"],
    ["a name that is too long", { request_id: "r".repeat(129) }, "malformed"],
    ["no session", { session_id: "" }, "malformed"],
    ["a fractional generation", { generation: 0.5 }, "malformed"],
    ["a negative generation", { generation: -1 }, "malformed"],
    ["a body that is a list", { body: [] }, "malformed"],
  ])("an envelope with %s", (_, changes, reason) => {
    expect(reasonOf(() => decodeRemote(holding(1, changes)))).toBe(reason);
  });

  it.each<[string, Buffer, string]>([
    ["a map cut short", Buffer.from("81a178", "hex"), "truncated"],
    ["an invalid byte", Buffer.from("c1", "hex"), "malformed"],
    ["a key twice", Buffer.from("82a178c0a178c0", "hex"), "duplicate_key"],
    ["an extension", Buffer.from("c70101", "hex"), "unsupported"],
    ["nothing", Buffer.alloc(0), "truncated"],
  ])("%s", (_, bytes, reason) => {
    expect(reasonOf(() => decodeRemote(bytes))).toBe(reason);
  });

  it("bodies that are too deep, too long or too wide", () => {
    let deep: unknown = 1;
    for (let i = 0; i < 17; i++) deep = [deep];
    expect(reasonOf(() => decodeRemote(holding(deep)))).toBe("too_deep");
    expect(reasonOf(() => decodeRemote(holding(Array(5_000).fill(1))))).toBe("too_many_values");
    expect(reasonOf(() => decodeRemote(holding("x".repeat(20_000))))).toBe("too_large");
    const four = tensorOf(Buffer.alloc(30 << 20));
    expect(reasonOf(() => decodeRemote(holding(four)))).toBe("bad_shape");
  });

  it("non-finite numbers on write", () => {
    expect(reasonOf(() => encodeRemote(HEADER, { a: NdArray.float32([Number.NaN]) }))).toBe("malformed");
  });

  it.each(["../x", "user/model", "*", "a b", "a?b", "", "a\n"])("%j as the name of a deployment", (name) => {
    expect(isSegment(name)).toBe(false);
  });
});

/** A tensor that says it has one number. */
const tensorOf = (data: Buffer): object => ({
  __lerobot_type__: "tensor",
  dtype: "uint8",
  endianness: "little",
  shape: [1],
  data,
});

it("a generation beyond 2^53 is kept", () => {
  const generation = 2n ** 62n + 1n;
  expect(decodeRemote(encodeRemote({ ...HEADER, generation })).generation).toBe(generation);
  expect(reasonOf(() => decodeRemote(encodeRemote({ ...HEADER, generation: 2n ** 63n })))).toBe("malformed");
});

it("any damaged message causes an error with a reason", () => {
  for (const bytes of mutations(NAMES.map(sample), runs(600), 11))
    expect(reasonOf(() => decodeRemote(bytes))).toMatch(/^[a-z_]+$/);
});
