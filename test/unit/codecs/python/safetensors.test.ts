/** safetensors, as the format's own library wrote them and as nobody should: values, headers that lie, and damage at random. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { CodecError } from "../../../../src/codecs/error.ts";
import { readLerobotMessage, writeLerobotMessage } from "../../../../src/codecs/python/lerobot.ts";
import { NdArray } from "../../../../src/codecs/python/ndarray.ts";
import { readSafetensors, writeSafetensors } from "../../../../src/codecs/python/safetensors.ts";
import { runs } from "../../../support/runs.ts";
import { mutations } from "../fuzz.ts";

const sample = (name: string): Buffer => readFileSync(new URL(`../../../golden/wire-samples/${name}`, import.meta.url));

/** A file with this header in front of these bytes. */
function file(header: unknown, data: Buffer = Buffer.alloc(0), length?: bigint): Buffer {
  const text = Buffer.from(typeof header === "string" ? header : JSON.stringify(header));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(length ?? BigInt(text.length));
  return Buffer.concat([size, text, data]);
}

function reasonOf(read: () => unknown): string {
  try {
    read();
    return "read";
  } catch (error) {
    return error instanceof CodecError ? error.reason : String(error);
  }
}

const PIXELS = Array.from({ length: 6 * 8 * 3 }, (_, i) => (37 * i) % 256);

describe("a safetensors file from LeRobot", () => {
  it("is read to its values and types", () => {
    const { told, arrays } = readLerobotMessage(sample("lerobot_observation_safe.bin"));
    expect([told.get("timestep"), told.get("timestamp"), told.get("must_go")]).toEqual([3, 1795208610.5, true]);
    expect([...arrays].map(([name, { dtype, shape }]) => [name, dtype, shape]).sort()).toEqual([
      ["depth", "<u2", [6, 8, 1]],
      ["front", "|u1", [6, 8, 3]],
      ["motor_3.pos", "<f8", [1]],
      ["wrist", "<f4", [6, 8, 3]],
    ]);
    expect([...(arrays.get("front")?.data ?? [])]).toEqual(PIXELS);
    expect([...(arrays.get("wrist")?.toFloat64() ?? [])]).toEqual(PIXELS);
    expect([...(arrays.get("motor_3.pos")?.toFloat64() ?? [])]).toEqual([-34.75]);
  });

  it("can have no arrays", () => {
    const { told, arrays } = readLerobotMessage(sample("lerobot_policy_setup_safe.bin"));
    expect([told.get("actions_per_chunk"), arrays.size]).toEqual([20, 0]);
  });
});

it("a safetensors file is written so that it reads back to the same arrays, each aligned", () => {
  const arrays = new Map([
    ["odd", NdArray.uint8(Uint8Array.of(1, 2, 3))],
    ["none", NdArray.float32([])],
    ["__proto__", NdArray.float64([1.5, -2], [1, 2])],
    ["half", new NdArray("<f2", [1], Buffer.from("003c", "hex"))],
  ]);
  const bytes = writeSafetensors(arrays);
  const read = readSafetensors(bytes);
  expect([...read.keys()].sort()).toEqual([...arrays.keys()].sort());
  for (const [name, { dtype, shape, data }] of arrays)
    expect(read.get(name)).toMatchObject({ dtype, shape, data: Buffer.from(data) });
  expect(Number(bytes.readBigUInt64LE()) % 8).toBe(0);
  const big = new Map([["big", new NdArray(">f4", [1], Buffer.alloc(4))]]);
  expect(reasonOf(() => writeSafetensors(big))).toBe("unsupported");
});

describe("a safetensors file with false lengths is refused:", () => {
  const array = (more: object = {}): object => ({ dtype: "F32", shape: [1], data_offsets: [0, 4], ...more });
  const four = Buffer.alloc(4);
  it.each<[string, Buffer, string]>([
    ["nothing", Buffer.alloc(0), "truncated"],
    ["a header beyond the end", file("{}", four, 100n), "truncated"],
    ["a header larger than memory", file("{}", four, 2n ** 64n - 1n), "too_large"],
    ["a header that is not JSON", file("{a"), "malformed"],
    ["a header that is a list", file([]), "malformed"],
    ["an array that is a number", file({ a: 1 }), "malformed"],
    ["an unknown type", file({ a: array({ dtype: "F8_E4M3" }) }, four), "bad_dtype"],
    ["a type named like an object's member", file({ a: array({ dtype: "constructor" }) }, four), "bad_dtype"],
    ["a shape of texts", file({ a: array({ shape: ["1"] }) }, four), "bad_shape"],
    ["a negative dimension", file({ a: array({ shape: [-1] }) }, four), "bad_shape"],
    ["a dimension of a billion", file({ a: array({ shape: [1e9, 1e9] }) }, four), "bad_shape"],
    ["a shape for another number of bytes", file({ a: array({ shape: [2] }) }, four), "bad_shape"],
    ["three offsets", file({ a: array({ data_offsets: [0, 4, 4] }) }, four), "malformed"],
    ["a fractional offset", file({ a: array({ data_offsets: [0, 3.5] }) }, four), "malformed"],
    ["a negative offset", file({ a: array({ data_offsets: [-4, 0] }) }, four), "malformed"],
    ["offsets in reverse", file({ a: array({ shape: [0], data_offsets: [0, -4] }) }, four), "malformed"],
    ["a gap", file({ a: array({ data_offsets: [4, 8] }) }, Buffer.alloc(8)), "malformed"],
    ["two arrays in one place", file({ a: array(), b: array() }, four), "malformed"],
    ["bytes beyond the end", file({ a: array({ shape: [2], data_offsets: [0, 8] }) }, four), "truncated"],
    ["bytes of no array", file({ a: array() }, Buffer.alloc(8)), "trailing_bytes"],
    [
      "five thousand arrays",
      file(
        Object.fromEntries(Array.from({ length: 5_000 }, (_, i) => [i, array({ shape: [0], data_offsets: [0, 0] })])),
      ),
      "too_many_values",
    ],
  ])("%s", (_, bytes, reason) => {
    expect(reasonOf(() => readSafetensors(bytes))).toBe(reason);
  });

  it("is accepted if only the metadata are false", () => {
    expect(readSafetensors(file({ __metadata__: { format: "pt" }, a: array() }, four)).size).toBe(1);
  });
});

it("a damaged safetensors file causes an error with a reason", () => {
  const good = ["lerobot_observation_safe.bin", "lerobot_actions_safe.bin", "lerobot_policy_setup_safe.bin"].map(
    sample,
  );
  const written = writeLerobotMessage({ a: 1 }, new Map([["x", NdArray.float32([1, 2])]]));
  for (const bytes of mutations([...good, written], runs(600), 7))
    expect(["read", ...REASONS]).toContain(reasonOf(() => readLerobotMessage(bytes)));
});

const REASONS = ["bad_dtype", "bad_shape", "malformed", "too_large", "too_many_values", "trailing_bytes", "truncated"];
