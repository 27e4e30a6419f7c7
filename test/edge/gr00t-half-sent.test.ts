/** A message over ZeroMQ that a stranger never finishes: it may not hold the memory that strangers share. */

import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { expect, it, onTestFinished } from "vitest";
import { GREETING, READY, requestHead } from "../../src/codecs/zmtp.ts";
import { BodyMemory } from "../../src/edge/body-memory.ts";
import type { Gate } from "../../src/edge/gate/gate.ts";
import { serveGr00t } from "../../src/edge/transports/gr00t/gr00t.ts";

/** No message comes whole here: the gate is never asked. */
const gate = {
  admit() {
    throw new Error("a message came whole");
  },
} as unknown as Gate;

it("closes a connection with a partial message, but not one of a client between two messages", async () => {
  const memory = new BodyMemory();
  const transport = await serveGr00t({
    gate,
    log: () => undefined,
    memory,
    host: "127.0.0.1",
    port: 0,
    model: "",
    embodimentOf: () => undefined,
    messageMs: 100,
  });
  onTestFinished(() => transport.close(0));
  const begin = (): Socket => {
    const socket = connect(transport.port, "127.0.0.1");
    onTestFinished(() => void socket.destroy());
    socket.write(Buffer.concat([GREETING, READY]));
    return socket.on("error", () => undefined).resume();
  };
  const resting = begin();
  const halves = [Buffer.from([1]), requestHead(1 << 20), Buffer.concat([requestHead(1 << 20), Buffer.alloc(1 << 17)])];
  await Promise.all(
    halves.map(async (half) => {
      const socket = begin();
      socket.write(half);
      await once(socket, "close");
    }),
  );
  expect(resting.closed).toBe(false);
  await expect.poll(() => memory.held).toBe(0);
});
