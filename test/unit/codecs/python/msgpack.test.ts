import { readdirSync, readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { CodecError } from "../../../../src/codecs/error.ts";
import { decodeMsgpack, encodeMsgpack, type Packable, UNPACK_LIMITS } from "../../../../src/codecs/python/msgpack.ts";
import { runs } from "../../../support/runs.ts";
import { mutations } from "../fuzz.ts";

const hex = (text: string): Buffer => Buffer.from(text.replaceAll(" ", ""), "hex");

/** Value and bytes, from the specification's format table. */
const FORMS: readonly (readonly [Packable, string])[] = [
  [null, "c0"],
  [false, "c2"],
  [true, "c3"],
  [0, "00"],
  [127, "7f"],
  [128, "cc 80"],
  [255, "cc ff"],
  [256, "cd 0100"],
  [65535, "cd ffff"],
  [65536, "ce 00010000"],
  [2 ** 32 - 1, "ce ffffffff"],
  [2 ** 32, "cf 0000000100000000"],
  [Number.MAX_SAFE_INTEGER, "cf 001fffffffffffff"],
  [2n ** 64n - 1n, "cf ffffffffffffffff"],
  [-1, "ff"],
  [-32, "e0"],
  [-33, "d0 df"],
  [-128, "d0 80"],
  [-129, "d1 ff7f"],
  [-32768, "d1 8000"],
  [-32769, "d2 ffff7fff"],
  [-(2 ** 31), "d2 80000000"],
  [-(2 ** 31) - 1, "d3 ffffffff7fffffff"],
  [Number.MIN_SAFE_INTEGER, "d3 ffe0000000000001"],
  [-(2n ** 63n), "d3 8000000000000000"],
  [1.5, "cb 3ff8000000000000"],
  [-0, "cb 8000000000000000"],
  [Number.POSITIVE_INFINITY, "cb 7ff0000000000000"],
  [1e300, "cb 7e37e43c8800759c"],
  ["", "a0"],
  ["é", "a2 c3a9"],
  ["a".repeat(31), `bf ${"61".repeat(31)}`],
  ["a".repeat(32), `d920 ${"61".repeat(32)}`],
  ["a".repeat(256), `da0100 ${"61".repeat(256)}`],
  ["a".repeat(65536), `db00010000 ${"61".repeat(65536)}`],
  [Buffer.alloc(0), "c400"],
  [Buffer.alloc(256, 1), `c50100 ${"01".repeat(256)}`],
  [Buffer.alloc(65536, 1), `c600010000 ${"01".repeat(65536)}`],
  [[], "90"],
  [Array(15).fill(1), `9f ${"01".repeat(15)}`],
  [Array(16).fill(1), `dc0010 ${"01".repeat(16)}`],
  [Array(65536).fill(1), `dd00010000 ${"01".repeat(65536)}`],
  [new Map(), "80"],
  [new Map([["a", 1]]), "81 a161 01"],
  [new Map(Array.from({ length: 16 }, (_, i) => [`${String.fromCharCode(97 + i)}`, i])), mapOf16()],
];

function mapOf16(): string {
  const entries = Array.from({ length: 16 }, (_, i) => `a1${(97 + i).toString(16)}${i.toString(16).padStart(2, "0")}`);
  return `de0010${entries.join("")}`;
}

/** What a damaged or hostile message is refused with. */
const REFUSED: readonly (readonly [string, string, string])[] = [
  ["nothing", "", "truncated"],
  ["a string longer than the message", "a561", "truncated"],
  ["an array that announces four billion", "ddffffffff", "truncated"],
  ["a map with room for its entries but not their values", "82 a161 a162", "truncated"],
  ["a bin of 4 GiB", "c6ffffffff00", "truncated"],
  ["half a float", "cb 3ff80000", "truncated"],
  ["a second value", "c0 c0", "trailing_bytes"],
  ["the byte without meaning", "c1", "malformed"],
  ["an extension", "d4 01 00", "unsupported"],
  ["a timestamp", "d6 ff 00000000", "unsupported"],
  ["an integer key", "81 01 01", "bad_key"],
  ["a nil key", "81 c0 01", "bad_key"],
  ["a map as key", "81 80 01", "bad_key"],
  ["a key twice", "82 a161 01 a161 02", "duplicate_key"],
  ["a key twice, once as bin", "82 a161 01 c40161 02", "duplicate_key"],
  ["text that isn't UTF-8", "a2 c328", "bad_text"],
  ["a surrogate in text", "a3 eda080", "bad_text"],
];

describe("encodeMsgpack and decodeMsgpack", () => {
  it.each(FORMS.map(([value, bytes]) => ({ value, bytes, name: bytes.slice(0, 24) })))(
    "write the shortest form and read it back: $name",
    ({ value, bytes }) => {
      expect(encodeMsgpack(value).equals(hex(bytes))).toBe(true);
      expect(decodeMsgpack(hex(bytes))).toEqual(value);
    },
  );

  it("read single-precision floats and integers in longer forms than necessary", () => {
    expect(decodeMsgpack(hex("ca 3fc00000"))).toBe(1.5);
    expect(decodeMsgpack(hex("cf 0000000000000007"))).toBe(7);
    expect(decodeMsgpack(hex("d3 0000000000000007"))).toBe(7);
    expect(decodeMsgpack(hex("d1 0007"))).toBe(7);
  });

  it("preserve any value that they can write", () => {
    const { value } = fc.letrec((tie) => ({
      value: fc.oneof(
        { depthSize: "small" },
        fc.constant(null),
        fc.boolean(),
        fc.double(),
        fc.maxSafeInteger(),
        fc.bigInt({ min: 2n ** 53n, max: 2n ** 64n - 1n }),
        fc.bigInt({ min: -(2n ** 63n), max: -(2n ** 53n) }),
        fc.string({ unit: "binary" }),
        fc.uint8Array().map((bytes) => Buffer.from(bytes)),
        fc.array(tie("value")),
        fc.array(fc.tuple(fc.string(), tie("value"))).map((entries) => new Map(entries)),
      ),
    }));
    fc.assert(
      fc.property(value, (any) => {
        expect(decodeMsgpack(encodeMsgpack(any as Packable))).toEqual(any);
      }),
      { numRuns: runs(100), seed: 7 },
    );
  });

  it("write objects as maps, bytes as bin keys, and read either kind of key as text", () => {
    expect(encodeMsgpack({ a: 1 }).equals(hex("81 a161 01"))).toBe(true);
    const binKeyed = encodeMsgpack(new Map([[Buffer.from("a"), 1]]));
    expect(binKeyed.equals(hex("81 c40161 01"))).toBe(true);
    expect(decodeMsgpack(binKeyed)).toEqual(new Map([["a", 1]]));
  });

  it("leave prototypes unchanged, whatever the keys", () => {
    const read = decodeMsgpack(encodeMsgpack(new Map([["__proto__", new Map([["polluted", true]])]])));
    expect(read).toBeInstanceOf(Map);
    expect((read as Map<string, unknown>).get("__proto__")).toEqual(new Map([["polluted", true]]));
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined();
    expect(encodeMsgpack(JSON.parse('{"__proto__":1}')).equals(encodeMsgpack(new Map([["__proto__", 1]])))).toBe(true);
  });

  it("read bin as a view of the message, not a copy", () => {
    const message = encodeMsgpack(Buffer.from("camera"));
    const view = decodeMsgpack(message) as Buffer;
    expect(view.buffer).toBe(message.buffer);
    expect(view.byteOffset).toBe(message.byteOffset + 2);
  });

  it.each(REFUSED)("refuse %s", (_what, bytes, reason) => {
    expect(() => decodeMsgpack(hex(bytes))).toThrow(new CodecError(reason as CodecError["reason"]));
  });

  it("refuse a message above a limit, and accept one exactly at it", () => {
    const nested = (depth: number): Buffer => Buffer.from([...Array(depth - 1).fill(0x91), 0x90]);
    const limits = { maxBytes: 100, maxDepth: 4, maxValues: 5 };
    expect(() => decodeMsgpack(nested(4), undefined, limits)).not.toThrow();
    expect(() => decodeMsgpack(nested(5), undefined, limits)).toThrow("too_deep");
    expect(() => decodeMsgpack(encodeMsgpack([[1, 1, 1], 1]), undefined, limits)).not.toThrow();
    expect(() => decodeMsgpack(encodeMsgpack([[1, 1, 1, 1], 1]), undefined, limits)).toThrow("too_many_values");
    expect(() => decodeMsgpack(encodeMsgpack(Buffer.alloc(98)), undefined, limits)).not.toThrow();
    expect(() => decodeMsgpack(encodeMsgpack(Buffer.alloc(99)), undefined, limits)).toThrow("too_large");
    expect(() => decodeMsgpack(nested(100_000))).toThrow("too_deep");
    expect(() => decodeMsgpack(nested(UNPACK_LIMITS.maxDepth))).not.toThrow();
  });

  it("refuse to write unsupported values: a cycle, a foreign class, undefined, an integer of 65 bits", () => {
    const cycle: Packable[] = [];
    cycle.push(cycle);
    expect(() => encodeMsgpack(cycle)).toThrow("too_deep");
    expect(() => encodeMsgpack(new Date(0) as never)).toThrow("unsupported");
    expect(() => encodeMsgpack([undefined] as never)).toThrow("unsupported");
    expect(() => encodeMsgpack(2n ** 64n)).toThrow("too_large");
    expect(() => encodeMsgpack(-(2n ** 63n) - 1n)).toThrow("too_large");
    expect(() => encodeMsgpack(new Map([[1, 1]]) as never)).toThrow("bad_key");
  });

  it("read damaged messages to a value or a CodecError", () => {
    const folder = new URL("../../../golden/wire-samples/", import.meta.url);
    const samples = readdirSync(folder)
      .filter((name) => name.endsWith(".msgpack"))
      .map((name) => readFileSync(new URL(name, folder)));
    expect(samples.length).toBeGreaterThan(0);
    let refused = 0;
    for (const bytes of mutations(samples, runs(4_000), 1)) {
      try {
        decodeMsgpack(bytes);
      } catch (error) {
        if (!(error instanceof CodecError)) throw error;
        refused++;
      }
    }
    expect(refused).toBeGreaterThan(1_000);
  });
});
