import { describe, expect, it } from "vitest";
import { GREETING, pong, ZmtpReader } from "../../../src/codecs/zmtp.ts";

describe("a PONG", () => {
  it.each([0, 16, 250, 251, 4_000])("gives a context of %i bytes back, whatever its length", (bytes) => {
    const context = Buffer.alloc(bytes, 7);
    const heard: [string, Buffer][] = [];
    const reader = new ZmtpReader(1 << 20, {
      onGreeting: () => {},
      onCommand: (name, data) => heard.push([name, Buffer.from(data)]),
      onMessage: () => {},
    });
    reader.push(GREETING);
    reader.push(pong(context));
    expect(heard).toEqual([["PONG", context]]);
  });
});
