import { describe, expect, it } from "vitest";
import { GREETING, pong, ZmtpReader } from "../../../src/codecs/zmtp.ts";

describe("a ZMTP PONG", () => {
  it.each([0, 16, 250, 251, 4_000])("returns a context of %i bytes, whatever its length", (bytes) => {
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
