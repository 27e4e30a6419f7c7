import { describe, expect, it } from "vitest";
import { CodecError } from "../../../../src/codecs/error.ts";
import { NdArray, readNpy, writeNpy } from "../../../../src/codecs/python/ndarray.ts";

const file = (header: string, data: Buffer, version = 1): Buffer => {
  const size = Buffer.alloc(version === 1 ? 2 : 4);
  if (version === 1) size.writeUInt16LE(header.length);
  else size.writeUInt32LE(header.length);
  return Buffer.concat([
    Buffer.from("934e554d5059", "hex"),
    Buffer.from([version, 0]),
    size,
    Buffer.from(header),
    data,
  ]);
};
const header = (descr: string, order: string, shape: string): string =>
  `{'descr': ${descr}, 'fortran_order': ${order}, 'shape': ${shape}, }`;
const reasonOf = (bytes: Buffer): string => {
  try {
    readNpy(bytes);
    return "read";
  } catch (error) {
    return error instanceof CodecError ? error.reason : String(error);
  }
};
const eight = Buffer.from(Float32Array.of(1, 2).buffer);

const numbersOf = (bytes: Buffer): Float64Array => (readNpy(bytes) as NdArray).toFloat64();

describe("an npy file", () => {
  it("aligns its data at a multiple of 64 bytes, as numpy writes it", () => {
    for (const shape of [[2], [1, 2], [1, 1, 1, 1, 1, 1, 1, 1, 1, 2], []]) {
      const array = new NdArray("<f4", shape, shape.length === 0 ? eight.subarray(4) : eight);
      const bytes = writeNpy(array);
      expect((bytes.length - array.data.length) % 64).toBe(0);
      expect(bytes[bytes.length - array.data.length - 1]).toBe(0x0a);
      expect(readNpy(bytes)).toEqual(new NdArray("<f4", shape, Buffer.from(array.data)));
    }
  });

  it.each([
    ["version 2", file(header("'<f4'", "False", "(2,)"), eight, 2)],
    ["version 3", file(header("'<f4'", "False", "(2,)"), eight, 3)],
    ["a single axis in Fortran's order, which has no effect", file(header("'<f4'", "True", "(1, 2)"), eight)],
  ])("of %s is read", (_, bytes) => {
    expect([...numbersOf(bytes)]).toEqual([1, 2]);
  });

  it.each([
    ["(2, 3)", [0, 2, 4, 1, 3, 5]],
    ["(3, 2)", [0, 3, 1, 4, 2, 5]],
    ["(1, 3, 1, 2)", [0, 3, 1, 4, 2, 5]],
    ["(1, 6)", [0, 1, 2, 3, 4, 5]],
  ])("in Fortran's order of shape %s is read in C order, as np.load reads it", (shape, expected) => {
    const data = Buffer.from(Float32Array.of(0, 1, 2, 3, 4, 5).buffer);
    expect([...numbersOf(file(header("'<f4'", "True", shape), data))]).toEqual(expected);
  });

  it.each([
    ["objects", file(header("'|O'", "False", "(2,)"), eight), "bad_dtype"],
    ["text of length zero", file(header("'<U1'", "False", "(2,)"), eight), "bad_text"],
    ["records", file(header("[('a', '<f4')]", "False", "(2,)"), eight), "malformed"],
    ["an odd size", file(header("'<f3'", "False", "(2,)"), eight), "bad_dtype"],
    ["more than its bytes in Fortran's order", file(header("'<f4'", "True", "(2, 1, 2)"), eight), "bad_shape"],
    [
      "nine axes in Fortran's order",
      file(header("'|u1'", "True", "(2, 2, 2, 2, 2, 2, 2, 2, 2)"), Buffer.alloc(512)),
      "unsupported",
    ],
    ["code in its header", file("__import__('os').system('x')", eight), "malformed"],
    ["more than its bytes", file(header("'<f4'", "False", "(3,)"), eight), "bad_shape"],
    ["less than its bytes", file(header("'<f4'", "False", "(1,)"), eight), "bad_shape"],
    ["a negative size", file(header("'<f4'", "False", "(-2,)"), eight), "malformed"],
    ["a size beyond the number range", file(header("'<f4'", "False", "(99999999999999999999,)"), eight), "bad_shape"],
    ["version 9", file(header("'<f4'", "False", "(2,)"), eight, 9), "unsupported"],
    ["a header of 60 KiB", file("{".padEnd(60_000), eight), "too_large"],
    ["nothing", Buffer.alloc(0), "truncated"],
    ["another magic", Buffer.alloc(64), "malformed"],
    ["half a header", file(header("'<f4'", "False", "(2,)"), eight).subarray(0, 30), "truncated"],
  ])("of %s is refused", (_, bytes, reason) => {
    expect(reasonOf(bytes)).toBe(reason);
  });
});
