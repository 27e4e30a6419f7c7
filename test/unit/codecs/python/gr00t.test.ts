/** The two ways in which Isaac-GR00T's messages carry arrays, against bytes of its own code. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { encodeGr00t, readGr00t } from "../../../../src/codecs/python/gr00t.ts";
import { NdArray } from "../../../../src/codecs/python/ndarray.ts";

const sample = (name: string): Buffer =>
  readFileSync(new URL(`../../../golden/wire-samples/${name}.msgpack`, import.meta.url));

describe("a GR00T message", () => {
  it.each([
    ["gr00t_n16_response", "npy"],
    ["gr00t_n17_response", "numpy"],
  ] as const)("of %s is recognized by its array format, and written back byte for byte", (name, arrays) => {
    const read = readGr00t(sample(name));
    expect(read.arrays).toBe(arrays);
    expect(encodeGr00t(read.value as never, arrays).equals(sample(name))).toBe(true);
  });

  it("without arrays has no array format", () => {
    expect(readGr00t(sample("gr00t_error")).arrays).toBeUndefined();
  });

  it("preserves every shape in both formats", () => {
    for (const arrays of ["npy", "numpy"] as const)
      for (const array of [NdArray.uint8(new Uint8Array(48), [1, 1, 4, 4, 3]), NdArray.float32([1, 2], [1, 2])]) {
        const { value } = readGr00t(encodeGr00t([array], arrays));
        const [read] = value as NdArray[];
        expect([read!.dtype, read!.shape, read!.toFloat64()]).toEqual([array.dtype, array.shape, array.toFloat64()]);
      }
  });
});
