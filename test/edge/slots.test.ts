/** Connection slots when strangers hold as many connections as there may be. */

import { EventEmitter } from "node:events";
import { connect, type Socket } from "node:net";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import type { PortHandler, PortOptions } from "../../src/edge/server/port.ts";
import { Slots, slotOf } from "../../src/edge/server/slots.ts";
import type { App } from "../support/app.ts";
import { eventually } from "../support/eventually.ts";
import { endOf, FLAG, FRAME, frame, HELLO, PREFACE, request, type Wire } from "../support/wire-client.ts";
import { ownGateway } from "../support/world.ts";
import { open, saying, tls } from "./port-caller.ts";

const MOST = 12;

/** What connections say that never show a key: nothing, half a greeting, half a head, and all but a request. */
const SAID = ["", PREFACE.subarray(0, 9), "GET /ready HTTP/1.1\r\nHost: a\r\nX-", HELLO] as const;

/** Opens connections that stay silent after what they say, in turn; tells which are still open. */
async function strangers(port: number, count: number, from = "127.0.0.1"): Promise<() => number> {
  const sockets: Socket[] = [];
  onTestFinished(() => sockets.forEach((socket) => void socket.destroy()));
  for (let i = 0; i < count; i++) {
    const socket = connect({ port, host: "127.0.0.1", localAddress: from });
    sockets.push(socket);
    socket.on("error", () => undefined).resume();
    await new Promise<void>((resolve) => socket.once("connect", resolve).once("close", () => resolve()));
    if (!socket.destroyed) socket.write(SAID[i % SAID.length]!);
  }
  return () => sockets.filter(({ closed }) => !closed).length;
}

/** Answers every request; one with a key gives its connection its slot. */
const byKey: PortHandler = (asked, response) => {
  if (asked.headers.authorization !== undefined) slotOf(asked.socket)?.authenticated();
  asked.on("error", () => undefined).resume();
  asked.once("end", () => response.end());
};

const KEYED = { authorization: "Bearer k" };
const HTTP1 = "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer k\r\n\r\n";
const isAnswered1 = (bytes: Buffer): true | undefined => bytes.includes("HTTP/1.1 200") || undefined;
const http2 = (stream: number): Buffer => request(stream, "/", { more: KEYED });

describe.each<[string, PortOptions, "tls" | undefined]>([
  ["in cleartext", {}, undefined],
  ["under TLS", { tls }, "tls"],
])("a port %s", (_, way, isTls) => {
  const dial = (port: number, protocol: "http1" | "http2"): Promise<Wire> =>
    saying(
      port,
      protocol === "http1" ? HTTP1 : Buffer.concat([HELLO, http2(1)]),
      isTls ? { alpn: [protocol === "http1" ? "http/1.1" : "h2"] } : {},
    );

  it("serves clients with keys while strangers hold every slot", async () => {
    const { port } = await open(byKey, { ...way, maxConnections: MOST });
    const kept = await Promise.all([dial(port, "http1"), dial(port, "http2")]);
    await kept[0].until(isAnswered1);
    await kept[1].until((bytes) => endOf(bytes, 1));
    const openStrangers = await strangers(port, 3 * MOST);
    for (let i = 0; i < MOST; i++) {
      const wire = await dial(port, i % 2 === 0 ? "http1" : "http2");
      if (i % 2 === 0) await wire.until(isAnswered1);
      else await wire.until((bytes) => endOf(bytes, 1));
      wire.socket.destroy();
    }
    await eventually(() => expect(openStrangers()).toBeLessThan(MOST));
    kept[1].send(http2(3));
    await kept[1].until((bytes) => endOf(bytes, 3));
    expect(kept.map(({ socket }) => socket.closed)).toEqual([false, false]);
  });

  it("closes a new connection if all slots are authenticated", async () => {
    const { port } = await open(byKey, { ...way, maxConnections: 2 });
    const kept = await Promise.all([dial(port, "http1"), dial(port, "http2")]);
    await kept[0].until(isAnswered1);
    await kept[1].until((bytes) => endOf(bytes, 1));
    const openStrangers = await strangers(port, 1);
    await eventually(() => expect(openStrangers()).toBe(0));
    expect(kept.map(({ socket }) => socket.closed)).toEqual([false, false]);
  });
});

it.skipIf(process.platform !== "linux")("takes slots from the address that holds the most", async () => {
  const { port } = await open(byKey, { maxConnections: MOST });
  const few = await strangers(port, 3, "127.0.0.9");
  const many = await strangers(port, 3 * MOST, "127.0.0.1");
  await eventually(() => expect(many()).toBe(MOST - 3));
  expect(few()).toBe(3);
});

/** As much of a socket as slots look at. */
class Peer extends EventEmitter {
  remoteAddress = "10.0.0.1";
  bytesRead = 0;
  isGone = false;
  destroy(): void {
    this.isGone = true;
  }
}

it("replaces a silent connection before an active one", () => {
  const slots = new Slots(3);
  const made = Array.from({ length: 5 }, () => new Peer());
  const take = (at: number): boolean => slots.take(made[at] as unknown as Socket);
  expect([take(0), take(1), take(2)]).toEqual([true, true, true]);
  made[0]!.bytesRead = 10;
  expect([take(3), take(4)]).toEqual([true, true]);
  expect(made.map(({ isGone }) => isGone)).toEqual([false, true, true, false, false]);
});

describe("a gateway", () => {
  let app: App;
  beforeAll(async () => {
    app = await ownGateway({ maxConnections: MOST });
  });
  afterAll(() => app.close());

  /** One call with a key by each transport, and what its answer holds. */
  const CALLS: Readonly<
    Record<string, (key: string) => [said: string | Buffer, answered: (bytes: Buffer) => unknown]>
  > = {
    "REST, whole requests": (key) => [
      `POST /v1/act HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}`,
      has("HTTP/1.1 4"),
    ],
    REST: (key) => [`GET /v1/key HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\n\r\n`, has("HTTP/1.1 ")],
    "REST over HTTP/2": (key) => [over2("GET", "/v1/key", { authorization: `Bearer ${key}` }), ended],
    gRPC: (key) => [over2("POST", "/limber.v1.InferenceService/Act", grpc(key)), ended],
    "gRPC by Connect": (key) => [over2("POST", "/limber.v1.WebhookService/ListWebhooks", grpc(key)), ended],
    MCP: (key) => [
      over2("POST", "/mcp", { authorization: `Bearer ${key}`, "content-type": "application/json" }, CALL_TOOL),
      ended,
    ],
    WebSocket: (key) => [
      [
        "GET /v1/openpi/acme/base HTTP/1.1",
        "Host: a",
        `Authorization: Api-Key ${key}`,
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        "",
        "",
      ].join("\r\n"),
      has("HTTP/1.1 101"),
    ],
  };

  it("keeps connections with a valid key on every transport, and no others", async () => {
    const { key } = await app.caller(1);
    const port = Number(new URL(app.url).port);
    const kept = await Promise.all(
      Object.entries(CALLS).map(async ([name, of]) => {
        const [said, answered] = of(key);
        const wire = await saying(port, said);
        await wire.until((bytes) => answered(bytes) || undefined);
        return [name, wire] as const;
      }),
    );
    const [said, answered] = CALLS.REST!("lmb_sk_none");
    const wrong = await saying(port, said);
    await wrong.until((bytes) => answered(bytes) || undefined);
    await strangers(port, 2 * MOST);
    await eventually(() => expect(wrong.socket.closed).toBe(true));
    expect(kept.filter(([, { socket }]) => socket.closed).map(([name]) => name)).toEqual([]);
  });
});

const has = (text: string) => (bytes: Buffer) => bytes.includes(text);
const ended = (bytes: Buffer) => endOf(bytes, 1) !== undefined;
const grpc = (key: string) => ({
  authorization: `Bearer ${key}`,
  "content-type": "application/grpc",
  te: "trailers",
});
const CALL_TOOL = JSON.stringify({
  jsonrpc: "2.0",
  id: 1,
  method: "tools/call",
  params: { name: "list_models", arguments: {} },
});

function over2(method: string, path: string, more: Record<string, string>, body = ""): Buffer {
  const end = method === "GET";
  const head = request(1, path, { method, end, more });
  return Buffer.concat([HELLO, head, ...(end ? [] : [frame(FRAME.data, FLAG.endStream, 1, Buffer.from(body))])]);
}
