import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { CodecError } from "../../../../src/codecs/error.ts";
import { encodeMsgpack, type Packable } from "../../../../src/codecs/python/msgpack.ts";
import { type DType, decodeNumpy, encodeNumpy, NdArray } from "../../../../src/codecs/python/ndarray.ts";
import { runs } from "../../../support/runs.ts";
import { mutations } from "../fuzz.ts";

const sample = (name: string): Buffer =>
  readFileSync(new URL(`../../../golden/wire-samples/${name}.msgpack`, import.meta.url));

const linspace = (count: number): number[] => Array.from({ length: count }, (_, i) => -1 + (2 * i) / (count - 1));

/** The samples' images: (37·i) mod 256 in C order over [8, 8, 3], upright, upside down, and each as [3, 8, 8]. */
const upright = Uint8Array.from({ length: 192 }, (_, i) => (37 * i) % 256);
const flipped = Uint8Array.from({ length: 192 }, (_, i) => upright[(7 - Math.floor(i / 24)) * 24 + (i % 24)]!);
const planar = (image: Uint8Array): Uint8Array =>
  Uint8Array.from({ length: 192 }, (_, i) => image[(i % 64) * 3 + Math.floor(i / 64)]!);

const hwc = (image: Uint8Array): NdArray => NdArray.uint8(image, [8, 8, 3]);
const chw = (image: Uint8Array): NdArray => NdArray.uint8(planar(image), [3, 8, 8]);

/** `values` numpy-like: linspace's last bit depends on how it's computed, so near is equal; the rest is compared exactly. */
function expectArray(
  value: unknown,
  dtype: DType,
  shape: readonly number[],
  values: ArrayLike<number>,
  digits = 15,
): void {
  expect(value).toBeInstanceOf(NdArray);
  const array = value as NdArray;
  expect(array.dtype).toBe(dtype);
  expect(array.shape).toEqual(shape);
  const numbers = array.toFloat64();
  expect(numbers.length).toBe(values.length);
  numbers.forEach((number, i) => {
    expect(number).toBeCloseTo(values[i]!, digits);
  });
}

const read = (name: string): Map<string, unknown> => {
  const value = decodeNumpy(sample(name));
  if (!(value instanceof Map)) throw new Error("the sample is not a map");
  return value;
};

describe("decodeNumpy on openpi's own bytes", () => {
  it("reads the server's metadata", () => {
    expect(read("openpi_metadata")).toEqual(new Map([["reset_pose", [0, -1.5, 1.5, 0, 0, 0]]]));
  });

  it("reads a DROID observation to its values", () => {
    const observation = read("openpi_droid_request");
    expectArray(observation.get("observation/exterior_image_1_left"), "|u1", [8, 8, 3], upright);
    expectArray(observation.get("observation/wrist_image_left"), "|u1", [8, 8, 3], flipped);
    expectArray(observation.get("observation/joint_position"), "<f8", [7], linspace(8).slice(0, 7));
    expectArray(observation.get("observation/gripper_position"), "<f8", [1], [1]);
    expect(observation.get("prompt")).toBe("pick up the green cube");
    expect(observation.size).toBe(5);
  });

  it("reads a LIBERO observation to its values", () => {
    const observation = read("openpi_libero_request");
    expectArray(observation.get("observation/image"), "|u1", [8, 8, 3], upright);
    expectArray(observation.get("observation/wrist_image"), "|u1", [8, 8, 3], flipped);
    expectArray(observation.get("observation/state"), "<f8", [8], linspace(8));
    expect(observation.get("prompt")).toBe("open the drawer");
    expect(observation.size).toBe(4);
  });

  it("reads an ALOHA observation to its values, images by channel", () => {
    const observation = read("openpi_aloha_request");
    expectArray(observation.get("state"), "<f8", [14], linspace(14));
    const images = observation.get("images") as Map<string, unknown>;
    expectArray(images.get("cam_high"), "|u1", [3, 8, 8], planar(upright));
    expectArray(images.get("cam_left_wrist"), "|u1", [3, 8, 8], planar(flipped));
    expect(images.size).toBe(2);
    expect(observation.get("prompt")).toBe("fold");
  });

  it("reads an answer to its values", () => {
    const answer = read("openpi_response");
    const actions = Array.from({ length: 80 }, (_, i) => Math.fround(1 + i / 1000));
    expectArray(answer.get("actions"), "<f4", [10, 8], actions);
    expectArray(answer.get("state"), "<f4", [8], linspace(8).map(Math.fround));
    expect(answer.get("policy_timing")).toEqual(new Map([["infer_ms", 1.25]]));
    expect(answer.get("server_timing")).toEqual(
      new Map([
        ["infer_ms", 2.5],
        ["prev_total_ms", 7.5],
      ]),
    );
  });

  it("reads half floats, a numpy scalar, a zero-dimensional array and a big-endian one", () => {
    const answer = read("openpi_response_f16_scalar");
    const actions = Array.from({ length: 80 }, (_, i) => 1 + i / 1000);
    expectArray(answer.get("actions"), "<f2", [10, 8], actions, 3);
    expectArray(answer.get("zero_d"), "<f4", [], [3.5]);
    expectArray(answer.get("big_endian"), ">i2", [3], [0, 1, 2]);
    expect(answer.get("n")).toBe(7);
  });
});

describe("encodeNumpy", () => {
  const numbers = (name: string, key: string): Float64Array => (read(name).get(key) as NdArray).toFloat64();

  it("writes the DROID request byte for byte as openpi does", () => {
    const request = {
      "observation/exterior_image_1_left": hwc(upright),
      "observation/wrist_image_left": hwc(flipped),
      "observation/joint_position": NdArray.float64(numbers("openpi_droid_request", "observation/joint_position")),
      "observation/gripper_position": NdArray.float64([1]),
      prompt: "pick up the green cube",
    };
    expect(encodeNumpy(request).equals(sample("openpi_droid_request"))).toBe(true);
  });

  it("writes the LIBERO request byte for byte as openpi does", () => {
    const request = {
      "observation/image": hwc(upright),
      "observation/wrist_image": hwc(flipped),
      "observation/state": NdArray.float64(numbers("openpi_libero_request", "observation/state")),
      prompt: "open the drawer",
    };
    expect(encodeNumpy(request).equals(sample("openpi_libero_request"))).toBe(true);
  });

  it("writes the ALOHA request byte for byte as openpi does", () => {
    const request = {
      state: NdArray.float64(numbers("openpi_aloha_request", "state")),
      images: { cam_high: chw(upright), cam_left_wrist: chw(flipped) },
      prompt: "fold",
    };
    expect(encodeNumpy(request).equals(sample("openpi_aloha_request"))).toBe(true);
  });

  it("writes the answer byte for byte as openpi does", () => {
    const actions = Float32Array.from({ length: 80 }, (_, i) => 1 + i / 1000);
    const answer: Packable<NdArray> = {
      state: NdArray.float32(numbers("openpi_response", "state")),
      actions: NdArray.float32(actions, [10, 8]),
      policy_timing: { infer_ms: 1.25 },
      server_timing: { infer_ms: 2.5, prev_total_ms: 7.5 },
    };
    expect(encodeNumpy(answer).equals(sample("openpi_response"))).toBe(true);
  });

  it("reproduces the recorded bytes of every array that it read", () => {
    const answer = read("openpi_response_f16_scalar");
    const again = encodeNumpy(new Map([["actions", answer.get("actions") as NdArray]]));
    const recorded = sample("openpi_response_f16_scalar");
    expect(again.subarray(1).equals(recorded.subarray(1, again.length))).toBe(true);
  });
});

describe("NdArray", () => {
  /** dtype, the bytes of two elements, the two numbers: from numpy's array protocol, checked with numpy. */
  const DTYPES: readonly (readonly [DType, string, readonly [number, number]])[] = [
    ["|b1", "0001", [0, 1]],
    ["|u1", "02ff", [2, 255]],
    ["|i1", "02ff", [2, -1]],
    ["<u2", "0201ffff", [258, 65535]],
    [">u2", "0201ffff", [513, 65535]],
    ["<i2", "0201ffff", [258, -1]],
    [">i2", "0201fffe", [513, -2]],
    ["<f2", "003cff7b", [1, 65504]],
    [">f2", "3c000001", [1, 2 ** -24]],
    ["<u4", "01000000ffffffff", [1, 4294967295]],
    [">u4", "00000001fffffffe", [1, 4294967294]],
    ["<i4", "01000000ffffffff", [1, -1]],
    [">i4", "00000001fffffffe", [1, -2]],
    ["<f4", "0000c03f000020c0", [1.5, -2.5]],
    [">f4", "3fc00000c0200000", [1.5, -2.5]],
    ["<u8", "01000000000000000000000000002000", [1, 2 ** 53]],
    [">u8", "00000000000000010020000000000000", [1, 2 ** 53]],
    ["<i8", "0100000000000000ffffffffffffffff", [1, -1]],
    [">i8", "0000000000000001fffffffffffffffe", [1, -2]],
    ["<f8", "000000000000f83f00000000000004c0", [1.5, -2.5]],
    [">f8", "3ff8000000000000c004000000000000", [1.5, -2.5]],
  ];

  it.each(DTYPES)(
    "reads %s in its byte order, at any alignment, without changing its bytes",
    (dtype, bytes, expected) => {
      for (const offset of [0, 1, 3]) {
        const data = Buffer.concat([Buffer.alloc(offset), Buffer.from(bytes, "hex")]).subarray(offset);
        expect([...new NdArray(dtype, [2], data).toFloat64()]).toEqual(expected);
        expect(data.toString("hex")).toBe(bytes);
      }
    },
  );

  it("keeps NaN and the infinities, so that the caller can refuse them", () => {
    const values = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
    expect([...NdArray.float32(values).toFloat64()]).toEqual(values);
    expect([...new NdArray("<f2", [2], Buffer.from("007c007e", "hex")).toFloat64()]).toEqual([
      Number.POSITIVE_INFINITY,
      Number.NaN,
    ]);
  });

  const SHAPES: readonly (readonly [string, readonly number[], number])[] = [
    ["counts more than there is", [3], 8],
    ["counts less than there is", [1], 8],
    ["has a negative side", [-1, -2], 8],
    ["has a broken side", [0.5, 4], 8],
    ["wraps around 32 bits to the right count", [65536, 65536, 1], 0],
    ["wraps around 64 bits to the right count", [2 ** 26, 2 ** 26, 2 ** 12], 0],
    ["has too many sides", Array(65).fill(1), 4],
    ["has an absurd side beside a zero", [0, 2 ** 40], 0],
  ];

  it.each(SHAPES)("refuses a shape that %s", (_what, shape, bytes) => {
    expect(() => new NdArray("<f4", shape, Buffer.alloc(bytes))).toThrow(new CodecError("bad_shape"));
  });

  it("accepts an empty array and a zero-dimensional one", () => {
    expect(new NdArray("<f4", [0, 7], Buffer.alloc(0)).toFloat64()).toHaveLength(0);
    expect([...new NdArray("<f4", [], Buffer.from("0000c03f", "hex")).toFloat64()]).toEqual([1.5]);
  });
});

describe("decodeNumpy on foreign and hostile maps", () => {
  const nd = (fields: { readonly [key: string]: Packable }): Buffer => encodeMsgpack({ __ndarray__: true, ...fields });
  const good = { data: Buffer.from("0000c03f", "hex"), dtype: "<f4", shape: [1] };

  it("reads str keys like bin keys, as some dialects write them", () => {
    expectArray(decodeNumpy(nd(good)), "<f4", [1], [1.5]);
    expect(decodeNumpy(encodeMsgpack({ __npgeneric__: true, data: 2.5, dtype: "<f4" }))).toBe(2.5);
    expect(decodeNumpy(encodeMsgpack({ __npgeneric__: true, data: true, dtype: "|b1" }))).toBe(true);
  });

  it("reads an array as a view of the message", () => {
    const message = nd(good);
    expect((decodeNumpy(message) as NdArray).data.buffer).toBe(message.buffer);
  });

  it.each(["|O", "|V8", "<c8", "<c16", "<M8[ns]", "<f16", "<f3", "", "__proto__"])("refuses dtype %j", (dtype) => {
    expect(() => decodeNumpy(nd({ ...good, dtype }))).toThrow(new CodecError("bad_dtype"));
  });

  it.each([
    ["no data", { dtype: "<f4", shape: [1] }, "bad_ndarray"],
    ["text for data", { ...good, data: "abcd" }, "bad_ndarray"],
    ["no dtype", { data: good.data, shape: [1] }, "bad_dtype"],
    ["a list for dtype", { ...good, dtype: [["x", "<f4"]] }, "bad_dtype"],
    ["no shape", { data: good.data, dtype: "<f4" }, "bad_shape"],
    ["a number for shape", { ...good, shape: 1 }, "bad_shape"],
    ["a bigint side", { ...good, shape: [2n ** 63n] }, "bad_shape"],
    ["a side of text", { ...good, shape: ["1"] }, "bad_shape"],
    ["bytes that don't fill the shape", { ...good, shape: [2] }, "bad_shape"],
  ] as const)("refuses an array with %s", (_what, fields, reason) => {
    expect(() => decodeNumpy(nd(fields as { readonly [key: string]: Packable }))).toThrow(new CodecError(reason));
  });

  it("refuses a scalar that is not a number", () => {
    const scalar = (fields: Packable): Buffer => encodeMsgpack(fields);
    expect(() => decodeNumpy(scalar({ __npgeneric__: true, data: "x", dtype: "<i8" }))).toThrow("bad_ndarray");
    expect(() => decodeNumpy(scalar({ __npgeneric__: true, data: "x", dtype: "|O" }))).toThrow("bad_dtype");
  });

  it("reads damaged observations to a value or a CodecError, and no array larger than its message", () => {
    const names = ["openpi_droid_request", "openpi_aloha_request", "openpi_response", "openpi_response_f16_scalar"];
    let refused = 0;
    for (const bytes of mutations(names.map(sample), runs(4_000), 2)) {
      try {
        const value = decodeNumpy(bytes);
        if (!(value instanceof Map)) continue;
        for (const item of value.values()) {
          if (item instanceof NdArray) expect(item.toFloat64().length).toBeLessThanOrEqual(bytes.length);
        }
      } catch (error) {
        if (!(error instanceof CodecError)) throw error;
        refused++;
      }
    }
    expect(refused).toBeGreaterThan(1_000);
  });
});
