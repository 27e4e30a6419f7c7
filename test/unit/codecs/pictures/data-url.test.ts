import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { CodecError } from "../../../../src/codecs/error.ts";
import { decodeDataUrl, isDataUrl } from "../../../../src/codecs/pictures/data-url.ts";
import { runs } from "../../../support/runs.ts";
import { mutations } from "../fuzz.ts";

const MAX = 100_000;
const base64 = (body: string): string => `data:image/png;base64,${body}`;
const percent = (bytes: Uint8Array): string =>
  [...bytes].map((byte) => `%${byte.toString(16).padStart(2, "0")}`).join("");

describe("decodeDataUrl", () => {
  it("decodes any bytes in every notation", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), (array) => {
        const bytes = Buffer.from(array);
        const text = bytes.toString("base64");
        const spellings = [
          base64(text),
          base64(text.replaceAll("=", "")),
          base64(text.replaceAll("+", "%2B").replaceAll("/", "%2f").replaceAll("=", "%3D")),
          base64(percent(Buffer.from(text))),
          base64(bytes.toString("base64url")),
          `DATA:;BASE64,${text}`,
          `data:text/plain;charset=utf-8; base64,${text}`,
          `data:,${percent(bytes)}`,
        ];
        for (const url of spellings) expect(decodeDataUrl(url, MAX).equals(bytes)).toBe(true);
      }),
      { numRuns: runs(60), seed: 8 },
    );
    expect(decodeDataUrl("data:image/svg+xml,<svg/>%0a", MAX).toString()).toBe("<svg/>\n");
  });

  it.each([
    ["no comma", "data:image/png;base64"],
    ["a comma too late", `data:${"a".repeat(300)};base64,QUJD`],
    ["another scheme", "https://example.com/,QUJD"],
    ["a wrong character", base64("QUJ*QUJD")],
    ["a wide character whose low byte is a digit", base64("QUJDŁQUJ")],
    ["a letter with an accent", base64("QUJDé")],
    ["padding in the middle", base64("QQ==QQ==")],
    ["too much padding", base64("QUI===")],
    ["only padding", base64("====")],
    ["a digit too many", base64("QUJDQ")],
    ["half a percent escape", base64("QUJD%3")],
    ["a percent escape without hex digits", "data:,%zz"],
    ["a raw control character", "data:,\u0001"],
    ["a raw wide character", "data:,ł"],
    ["a fragment", "data:,abc#def"],
  ])("refuses %s", (_what, url) => {
    expect(() => decodeDataUrl(url, MAX)).toThrow(new CodecError("malformed"));
  });

  it("accepts exactly the limit and no byte more, in every notation", () => {
    for (const [length, fits] of [
      [99, true],
      [100, true],
      [101, false],
      [10_000, false],
    ] as const) {
      const bytes = Buffer.alloc(length, 0xfb);
      for (const url of [
        base64(bytes.toString("base64")),
        base64(percent(Buffer.from(bytes.toString("base64")))),
        `data:,${percent(bytes)}`,
      ]) {
        if (fits) expect(decodeDataUrl(url, 100)).toHaveLength(length);
        else expect(() => decodeDataUrl(url, 100)).toThrow(new CodecError("too_large"));
      }
    }
  });

  it("decodes 20,000 damaged URLs to bytes within the limit or a CodecError", () => {
    const samples = [
      base64(Buffer.alloc(60, 0xfb).toString("base64")),
      base64(Buffer.alloc(61, 7).toString("base64")).replaceAll("=", "%3d"),
      `data:image/png,${percent(Buffer.alloc(30, 0x89))}`,
    ].map((url) => Buffer.from(url, "latin1"));
    let refused = 0;
    for (const bytes of mutations(samples, runs(4_000), 9)) {
      try {
        expect(decodeDataUrl(bytes.toString("latin1"), 61).length).toBeLessThanOrEqual(61);
      } catch (error) {
        if (!(error instanceof CodecError)) throw error;
        refused++;
      }
    }
    expect(refused).toBeGreaterThan(1_000);
  });

  it("recognizes a data URL by its scheme in either case", () => {
    expect(["data:,x", "DATA:,x"].map(isDataUrl)).toEqual([true, true]);
    expect(["https://data:80/", "dat", "", " data:,x"].map(isDataUrl)).toEqual([false, false, false, false]);
  });
});
