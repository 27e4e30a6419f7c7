/** Messages of NATS laid out by hand: what a server reads. */
import { expect, it } from "vitest";
import { Frames } from "../../src/events/nats/link.ts";

const HEAD_BYTES = "NATS/1.0\r\nid: 1\r\n\r\n".length;
const expectedOf = (payload: Uint8Array): Buffer =>
  Buffer.concat([
    Buffer.from(`HPUB a.b ${HEAD_BYTES} ${HEAD_BYTES + payload.length}\r\nNATS/1.0\r\nid: 1\r\n\r\n`),
    payload,
    Buffer.from("\r\n"),
  ]);

it("a frame writer states head and total lengths, keeps written data while it grows, and can be reused", () => {
  const frames = new Frames();
  const [small, large] = [Buffer.alloc(3, 1), Buffer.alloc(100_000, 2)];
  for (let round = 0; round < 2; round++) {
    frames.clear();
    frames.add("a.b", "id: 1\r\n", small);
    const first = frames.take();
    frames.add("a.b", "id: 1\r\n", small);
    frames.add("a.b", "id: 1\r\n", large);
    const second = frames.take();
    expect(Buffer.from(first).equals(expectedOf(small))).toBe(true);
    expect(Buffer.from(second).equals(Buffer.concat([first, expectedOf(large)]))).toBe(true);
    expect(frames.take()).toHaveLength(0);
  }
});
