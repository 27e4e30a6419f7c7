import { describe, expect, it } from "vitest";
import { partOf } from "../../../../../src/edge/transports/rest/files.ts";

const FILE = Buffer.from("0123456789");
const ETAG = '"abc"';
const asked = { method: "GET", range: undefined, ifRange: undefined, ifNoneMatch: undefined };
const of = (conditions: Partial<Parameters<typeof partOf>[2]>) => {
  const { status, bytes, headers } = partOf(FILE, ETAG, { ...asked, ...conditions });
  const at = headers.indexOf("content-range");
  return { status, bytes: bytes.toString(), range: at < 0 ? undefined : headers[at + 1] };
};

describe("a file over REST", () => {
  it.each([
    ["bytes=2-4", "234", "bytes 2-4/10"],
    ["bytes=0-0", "0", "bytes 0-0/10"],
    ["bytes=7-", "789", "bytes 7-9/10"],
    ["bytes=-3", "789", "bytes 7-9/10"],
    ["bytes=-99", "0123456789", "bytes 0-9/10"],
    ["bytes=8-99", "89", "bytes 8-9/10"],
    ["bytes=9-9999999999999999999999", "9", "bytes 9-9/10"],
    ["Bytes= 2-4 ", "234", "bytes 2-4/10"],
  ])("answers %s with the part", (range, bytes, said) => {
    expect(of({ range })).toEqual({ status: 206, bytes, range: said });
  });

  it.each(["bytes=10-", "bytes=10-12", "bytes=99999999999999999999-", "bytes=-0"])(
    "refuses %s as unsatisfiable, with the size",
    (range) => {
      expect(of({ range })).toEqual({ status: 416, bytes: "", range: "bytes */10" });
    },
  );

  it.each([
    ["several ranges", "bytes=0-1,4-5"],
    ["another unit", "frames=0-1"],
    ["a range that ends before it begins", "bytes=5-2"],
    ["a range without numbers", "bytes=-"],
    ["a negative number", "bytes=--3"],
    ["a fraction", "bytes=0-1.5"],
    ["no unit", "0-1"],
    ["nothing", ""],
    ["a very long text", `bytes=${"9".repeat(4000)}x`],
  ])("ignores %s and answers with the complete file", (_, range) => {
    expect(of({ range })).toEqual({ status: 200, bytes: "0123456789", range: undefined });
  });

  it.each([
    ["its entity tag", ETAG, 206],
    ["another entity tag", '"xyz"', 200],
    ["a weak entity tag", `W/${ETAG}`, 200],
    ["a date", "Thu, 01 Jan 2026 00:00:00 GMT", 200],
  ])("applies a range under `If-Range` with %s as RFC 9110 says", (_, ifRange, status) => {
    expect(of({ range: "bytes=0-1", ifRange }).status).toBe(status);
  });

  it.each([
    ["its entity tag", ETAG, 304],
    ["a list with its weak entity tag", `"x", W/${ETAG}`, 304],
    ["any", "*", 304],
    ["another entity tag", '"x"', 206],
  ])("answers `If-None-Match` with %s before it looks at the range", (_, ifNoneMatch, status) => {
    expect(of({ range: "bytes=0-1", ifNoneMatch }).status).toBe(status);
  });

  it.each([
    ["the complete file", undefined, 200],
    ["a range", "bytes=2-4", 206],
  ])("sends %s without a copy of its bytes", (_, range, status) => {
    const large = new Uint8Array(64);
    const part = partOf(large.subarray(8, 18), ETAG, { ...asked, range });
    expect(part.status).toBe(status);
    large.fill(7);
    expect(part.bytes.every((byte) => byte === 7)).toBe(true);
    expect(part.bytes.byteOffset).toBe(status === 200 ? 8 : 10);
  });

  it("ignores the range of a HEAD request", () => {
    expect(of({ method: "HEAD", range: "bytes=0-1" }).status).toBe(200);
  });
});
