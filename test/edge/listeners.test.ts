/** Connections that wait in the kernel's queues until they are accepted. */

import { connect, createServer, type Socket } from "node:net";
import { expect, it, onTestFinished } from "vitest";
import { MoreListeners } from "../../src/edge/server/listeners.ts";
import { replaceAmbient } from "../support/ambient.ts";
import { ManualClock } from "../support/manual-clock.ts";

/** Dials more connections than can be accepted in 800 ms, at 10 ms each; returns how many were accepted and reset. */
async function flood(isShedding: boolean): Promise<{ accepted: number; reset: number }> {
  let elapsed = 0;
  const clock = new ManualClock();
  clock.steady = () => elapsed;
  const restore = replaceAmbient({ clock });
  onTestFinished(restore);
  const own = createServer();
  await new Promise<void>((resolve) => own.listen({ host: "127.0.0.1", port: 0, reusePort: true }, resolve));
  const address = own.address();
  if (address === null || typeof address === "string") return expect.unreachable();
  let accepted = 0;
  const more = new MoreListeners(
    (socket) => {
      accepted++;
      elapsed += 10;
      (socket as Socket).on("error", () => undefined).end("accepted");
    },
    () => isShedding,
  );
  await more.open("127.0.0.1", address.port);
  // Only the listeners under test share the port.
  await new Promise((resolve) => own.close(resolve));
  const seen = Array.from(
    { length: 600 },
    () =>
      new Promise<string>((resolve) => {
        const socket = connect(address.port, "127.0.0.1");
        socket.on("data", (data) => resolve(data.toString())).on("error", ({ message }) => resolve(message));
        socket.on("end", () => socket.end());
      }),
  );
  const all = await Promise.all(seen);
  await more.close();
  return { accepted, reset: all.filter((text) => text.includes("ECONNRESET")).length };
}

it.runIf(process.platform === "linux")(
  "resets connections that wait behind a queue that stands while the gateway sheds load, and accepts all otherwise",
  async () => {
    expect(await flood(false)).toEqual({ accepted: 600, reset: 0 });
    const { accepted, reset } = await flood(true);
    expect(reset).toBeGreaterThan(0);
    expect(accepted).toBeGreaterThan(0);
    expect(accepted + reset).toBe(600);
  },
);
