/** Idle connections while a port drains: a request that comes by one of them is answered, and then the connection ends. */

import { once } from "node:events";
import { connect as connectTcp } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { WebSocket } from "ws";
import { encodeGr00t } from "../../src/codecs/python/gr00t.ts";
import { encodeNumpy, NdArray } from "../../src/codecs/python/ndarray.ts";
import { GREETING, READY, requestHead } from "../../src/codecs/zmtp.ts";
import { BodyMemory } from "../../src/edge/body-memory.ts";
import type { Gate } from "../../src/edge/gate/gate.ts";
import { serveGr00t } from "../../src/edge/transports/gr00t/gr00t.ts";
import { setClock } from "../support/clocks.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { answersIn, endOf, FRAME, HELLO, request } from "../support/wire-client.ts";
import { KEY, type TestGateway, until } from "./gateway.ts";
import { saying } from "./port-caller.ts";
import { CHUNK, open, SOUND } from "./rest-caller.ts";

/** Longer than any test lasts. */
const LONG_MS = 600_000;

/** A connection that has been answered once. */
interface Idle {
  /** Sends one more request; resolves once it is answered well and the connection has ended. */
  again(): Promise<void>;
}

const body = JSON.stringify(SOUND);
const head = `Host: a\r\nAuthorization: Bearer ${KEY}\r\n`;
const POST = `POST /v1/act HTTP/1.1\r\n${head}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
const GET = `GET / HTTP/1.1\r\n${head}\r\n`;

const http1 = async ({ port }: TestGateway, text: string): Promise<Idle> => {
  const wire = await saying(port, text);
  await wire.until((bytes) => bytes.includes("\r\n\r\n") || undefined);
  return {
    async again() {
      wire.send(text);
      const [, last] = answersIn(await wire.closed);
      expect([last?.status, last?.headers.connection]).toEqual([200, "close"]);
    },
  };
};

const http2 = async ({ port }: TestGateway): Promise<Idle> => {
  const wire = await saying(port, Buffer.concat([HELLO, request(1, "/")]));
  await wire.until((bytes) => endOf(bytes, 1));
  return {
    async again() {
      wire.send(request(3, "/"));
      expect(endOf(await wire.closed, 3)?.type).toBe(FRAME.data);
    },
  };
};

const webSocket = async ({ port }: TestGateway): Promise<Idle> => {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/v1/openpi/o/n?action_space=joint_pos_7&horizon=2`, {
    headers: { authorization: `Api-Key ${KEY}` },
  });
  onTestFinished(() => socket.terminate());
  const answers: Buffer[] = [];
  socket.on("message", (data) => answers.push(data as Buffer));
  const closed = once(socket, "close");
  await once(socket, "message");
  return {
    async again() {
      socket.send(encodeNumpy({ "observation/state": NdArray.float64([1, 2]) }));
      expect((await closed)[0]).toBe(1012);
      expect(answers.at(-1)?.includes("actions")).toBe(true);
    },
  };
};

describe("a gateway that closes", () => {
  it("answers one more request of each idle connection, then closes it", async () => {
    const gateway = await open({ Act: () => CHUNK });
    const idle = await Promise.all([http1(gateway, POST), http1(gateway, GET), http2(gateway), webSocket(gateway)]);
    const drained = gateway.server.drain(LONG_MS, undefined, LONG_MS);
    await until(() => !gateway.server.fastify.server.listening);
    for (const connection of idle) await connection.again();
    await drained;
  });

  it("closes connections that stay idle", async () => {
    const gateway = await open({ Act: () => CHUNK });
    await Promise.all([http1(gateway, POST), http1(gateway, GET), http2(gateway), webSocket(gateway)]);
    await gateway.server.drain(LONG_MS, undefined, 10);
  });
});

it("answers one more message of an idle GR00T client while closing, then disconnects it", async () => {
  const clock = new ManualClock();
  setClock(clock);
  const gr00t = await serveGr00t({
    ...{ gate: {} as Gate, log: () => undefined, memory: new BodyMemory(), host: "127.0.0.1", port: 0, model: "" },
    embodimentOf: () => undefined,
  });
  const ping = encodeGr00t({ endpoint: "ping" });
  const dial = () => {
    const socket = connectTcp(gr00t.port, "127.0.0.1");
    onTestFinished(() => void socket.destroy());
    socket.write(Buffer.concat([GREETING, READY]));
    return socket;
  };
  const [asking, silent] = [dial(), dial()];
  await Promise.all([once(asking, "data"), once(silent, "data")]);
  const closed = gr00t.close(LONG_MS, 50);
  const chunks: Buffer[] = [];
  asking.on("data", (chunk: Buffer) => chunks.push(chunk));
  silent.resume();
  asking.write(Buffer.concat([requestHead(ping.length), ping]));
  await once(asking, "close");
  await clock.advance(50);
  await closed;
  expect(Buffer.concat(chunks).includes("Server is running")).toBe(true);
});
