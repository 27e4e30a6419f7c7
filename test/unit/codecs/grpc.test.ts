import { describe, expect, it } from "vitest";
import { CodecError } from "../../../src/codecs/error.ts";
import { frameMessage, MessageReader } from "../../../src/codecs/grpc.ts";
import { runs } from "../../support/runs.ts";
import { mutations, seeded } from "./fuzz.ts";

const MAX = 1024 * 1024;

interface Read {
  readonly bytes: Buffer;
  readonly compressed: boolean;
}

function readAll(chunks: Iterable<Buffer>, maxBytes = MAX): Read[] {
  const read: Read[] = [];
  const reader = new MessageReader(maxBytes, (bytes, compressed) => read.push({ bytes, compressed }));
  for (const chunk of chunks) reader.push(chunk);
  reader.end();
  return read;
}

function* cut(bytes: Buffer, nextLength: () => number): Generator<Buffer> {
  for (let at = 0; at < bytes.length; ) {
    const end = at + nextLength();
    yield bytes.subarray(at, end);
    at = end;
  }
}

describe("frameMessage", () => {
  it("puts flag and length before the message", () => {
    expect(frameMessage(Buffer.from("abc")).toString("hex")).toBe("0000000003616263");
    expect(frameMessage(Buffer.from("abc"), true).toString("hex")).toBe("0100000003616263");
    expect(frameMessage(Buffer.alloc(0)).toString("hex")).toBe("0000000000");
  });
});

describe("MessageReader", () => {
  const random = seeded(3);
  const messages = [0, 1, 5, 300, 70_000, 300_000, 0, 600_000].map((length) =>
    Buffer.from(Uint8Array.from({ length }, () => Math.floor(random() * 256))),
  );
  const body = Buffer.concat(messages.map((message, i) => frameMessage(message, i % 2 === 1)));

  it.each([
    ["at once", () => body.length],
    ["byte by byte", () => 1],
    ["five by five, so that prefixes split", () => 5],
    ["in HTTP/2 frames", () => 16_384],
    ["in pieces of any length", () => 1 + Math.floor(random() * 100_000)],
  ])("returns every message in order when the body arrives %s", (_how, nextLength) => {
    const read = readAll(cut(body, nextLength));
    expect(read.map(({ compressed }) => compressed)).toEqual(messages.map((_, i) => i % 2 === 1));
    read.forEach(({ bytes }, i) => {
      expect(bytes.equals(messages[i]!)).toBe(true);
    });
  });

  it("passes on a message that is complete in a chunk without copying it", () => {
    const chunk = Buffer.concat([frameMessage(Buffer.from("abc")), frameMessage(Buffer.from("defg"))]);
    const read = readAll([chunk]);
    expect(read.map(({ bytes }) => bytes.buffer === chunk.buffer)).toEqual([true, true]);
    expect(read.map(({ bytes }) => bytes.byteOffset - chunk.byteOffset)).toEqual([5, 13]);
  });

  it("passes on a message without copying it if its prefix arrived alone before", () => {
    const chunk = Buffer.from("abc");
    const [read] = readAll([Buffer.from("0000000003", "hex"), chunk]);
    expect(read?.bytes.buffer).toBe(chunk.buffer);
    expect(read?.bytes.byteOffset).toBe(chunk.byteOffset);
  });

  it("reports whether it passed on a view of a chunk, which must not be overwritten", () => {
    const reader = new MessageReader(MAX, () => {});
    const whole = frameMessage(Buffer.from("abc"));
    expect(reader.push(whole)).toBe(true);
    expect([reader.push(whole.subarray(0, 6)), reader.push(whole.subarray(6))]).toEqual([false, false]);
    expect([reader.push(whole.subarray(0, 5)), reader.push(whole.subarray(5))]).toEqual([false, true]);
  });

  it("delivers an empty message as soon as its prefix has arrived", () => {
    const read: Buffer[] = [];
    new MessageReader(MAX, (bytes) => read.push(bytes)).push(Buffer.alloc(5));
    expect(read).toEqual([Buffer.alloc(0)]);
  });

  it("refuses a message above the limit when its prefix arrives", () => {
    const prefix = Buffer.from("0000000401", "hex");
    expect(() => new MessageReader(0x400, () => {}).push(prefix)).toThrow(new CodecError("too_large"));
    expect(() => new MessageReader(0x401, () => {}).push(prefix)).not.toThrow();
    expect(() => new MessageReader(MAX, () => {}).push(Buffer.from("00ffffffff", "hex"))).toThrow("too_large");
  });

  it("allocates no memory beyond what the peer has sent", () => {
    const before = process.memoryUsage().arrayBuffers;
    const readers = Array.from({ length: 50 }, () => new MessageReader(2 ** 30, () => {}));
    for (const reader of readers) reader.push(Buffer.from("0010000000ff", "hex"));
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(50 * 512 * 1024);
  });

  it("refuses unknown flags, a body that ends inside a message, and everything after an error", () => {
    const reader = new MessageReader(MAX, () => {});
    expect(() => reader.push(Buffer.from("80", "hex"))).toThrow(new CodecError("bad_flag"));
    expect(() => reader.push(frameMessage(Buffer.from("abc")))).toThrow("bad_flag");
    expect(() => reader.end()).toThrow("bad_flag");
    expect(() => readAll([Buffer.from("00", "hex")])).toThrow(new CodecError("truncated"));
    expect(() => readAll([Buffer.from("0000000002ff", "hex")])).toThrow(new CodecError("truncated"));
  });

  it("parses damaged bodies to messages within the limit or a CodecError", () => {
    const samples = [
      body.subarray(0, 400),
      frameMessage(Buffer.alloc(40)),
      Buffer.concat([frameMessage(Buffer.alloc(9)), frameMessage(Buffer.alloc(9))]),
    ];
    let refused = 0;
    for (const bytes of mutations(samples, runs(4_000), 4)) {
      try {
        for (const message of readAll(
          cut(bytes, () => 1 + Math.floor(random() * 64)),
          256,
        )) {
          expect(message.bytes.length).toBeLessThanOrEqual(256);
        }
      } catch (error) {
        if (!(error instanceof CodecError)) throw error;
        refused++;
      }
    }
    expect(refused).toBeGreaterThan(1_000);
  });
});
