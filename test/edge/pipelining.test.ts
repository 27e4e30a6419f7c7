/** What is wrong on an HTTP/1.1 connection is answered behind what was asked before. */
import { describe, expect, it } from "vitest";
import { ActResponseSchema } from "../../gen/limber/v1/inference_service_pb.ts";
import { GetHealthResponseSchema } from "../../gen/limber/v1/operations_service_pb.ts";
import { eventually } from "../support/eventually.ts";
import { answersIn } from "../support/wire-client.ts";
import { KEY, message, openForTest, shareGateways, type TestGateway } from "./gateway.ts";
import { saying } from "./port-caller.ts";

shareGateways();

const BODY = JSON.stringify({ model: "o/n", observations: [{ proprio: [1, 2] }] });
const act = (...lines: string[]): string =>
  [
    "POST /v1/act HTTP/1.1",
    "Host: a",
    `Authorization: Bearer ${KEY}`,
    "Content-Type: application/json",
    `Content-Length: ${BODY.length}`,
    ...lines,
    "",
    BODY,
  ].join("\r\n");
const get = (path = "/health", ...lines: string[]): string =>
  [`GET ${path} HTTP/1.1`, "Host: a", ...lines, "", ""].join("\r\n");

/** A gateway whose answers wait until the test lets them go. */
async function slow(): Promise<{ gateway: TestGateway; asked: () => number; release: () => void }> {
  const held: (() => void)[] = [];
  const wait = (): Promise<void> => new Promise((resolve) => held.push(resolve));
  const gateway = await openForTest({
    rpcs: {
      Act: async () => {
        await wait();
        return message(ActResponseSchema, { id: "act_1" });
      },
      GetHealth: async () => {
        await wait();
        return message(GetHealthResponseSchema, { status: "ok" });
      },
    },
  });
  return {
    gateway,
    asked: () => held.length,
    release() {
      for (const each of held.splice(0)) each();
    },
  };
}

describe("a fault on the wire is answered after the requests before it", () => {
  it.each<[string, string, number]>([
    ["no HTTP", "garbage\r\n\r\n", 400],
    ["bytes of no sense", "\0\x01\x02", 400],
    ["a head without a host", "GET / HTTP/1.1\r\n\r\n", 400],
    ["two hosts", get("/", "Host: b"), 400],
    ["an unknown method", "BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 400],
    ["a method that is not implemented", "REPORT / HTTP/1.1\r\nHost: a\r\n\r\n", 501],
    ["a tunnel", "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 501],
    ["headers that are too large", get("/", `X-A: ${"a".repeat(20_000)}`), 431],
    ["an expectation that nobody meets", get("/", "Expect: a-miracle"), 417],
    ["a version that nobody speaks", "GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505],
    [
      "a chunked body of no sense",
      `POST /v1/act HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${KEY}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n`,
      400,
    ],
    ["a transfer coding that nobody reads", get("/", "Transfer-Encoding: gzip, chunked"), 501],
  ])("%s", async (_name, wrong, status) => {
    const { gateway, asked, release } = await slow();
    for (const before of [[get()], [act()], [get(), get()], [act(), act()], [act(), get()]]) {
      const wire = await saying(gateway.port, before.join("") + wrong);
      const done = wire.closed;
      let isOpen = true;
      void done.then(() => {
        isOpen = false;
      });
      await eventually(() => {
        if (asked() > 0) release();
        expect(isOpen).toBe(false);
      });
      const statuses = answersIn(await done).map((answer) => answer.status);
      expect(statuses).toEqual([...before.map(() => 200), status]);
    }
  });
});
