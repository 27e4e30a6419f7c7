import { hostname } from "node:os";
import { pino } from "pino";
import { describe, expect, it } from "vitest";
import { CallLines, callerIdOf, type LogLine } from "../../../src/edge/call-log.ts";

const whole: LogLine = {
  requestId: "req_1",
  transport: "rest",
  rpc: "limber.v1.InferenceService/Act",
  status: 429,
  latencyMs: 1.5,
  code: "rate_limited",
  keyId: "key_1",
  callerRequestId: callerIdOf("the-caller:1"),
};
const { code: _, keyId: __, callerRequestId: ___, ...plain } = whole;

describe("log lines of answered calls", () => {
  it.each([
    ["with every field", whole],
    ["of a plain success", { ...plain, status: 200 }],
  ])("equal pino's lines, %s", (_, line) => {
    const byHand: string[] = [];
    const byPino: string[] = [];
    const log = pino({}, { write: (text: string) => byPino.push(text) });
    const lines = new CallLines((text) => byHand.push(text), { pid: process.pid, hostname: hostname() });
    lines.add(line);
    lines.close();
    log.info(line, "call");
    const [mine, pinos] = [byHand, byPino].map((texts) => JSON.parse(texts.join("")));
    expect({ ...mine, time: 0 }).toEqual({ ...pinos, time: 0 });
    expect(byHand.join("").endsWith("\n")).toBe(true);
  });

  it("are buffered, and none is lost when the gateway closes", () => {
    const writes: string[] = [];
    const lines = new CallLines((text) => writes.push(text), { pid: 1 });
    for (let i = 0; i < 1000; i++) lines.add(plain);
    lines.close();
    expect(writes.length).toBeLessThan(30);
    expect(writes.join("").trimEnd().split("\n")).toHaveLength(1000);
  });
});
