/** An instant model server in a thread of its own, so that what it costs isn't counted as the gateway's. */
import { parentPort, workerData } from "node:worker_threads";
import { WebSocketServer } from "ws";
import { EVERY_WIRE } from "../../wires/every-wire.ts";

const STEPS = Array.from({ length: 16 }, (_, t) => Array.from({ length: 7 }, (_, d) => t + d / 10));
/** Two frames, or two points. */
const TWO = [
  [0.5, -0.25],
  [1.5, -0.75],
];

async function endpoint(id: string): Promise<string> {
  if (id === "bare") {
    const server = new WebSocketServer({ port: 0, host: "127.0.0.1", perMessageDeflate: false });
    await new Promise((resolve) => server.once("listening", resolve));
    const answer = Buffer.alloc(600);
    server.on("connection", (client) => client.on("message", () => client.send(answer)));
    return `ws://127.0.0.1:${(server.address() as { port: number }).port}`;
  }
  const row = EVERY_WIRE.find((wire) => wire.id === id);
  if (!row) throw new Error(`there is no wire ${id}`);
  const server = await row.start();
  server.behave({ kind: "steps", steps: row.contract === "act" ? STEPS : TWO });
  return server.endpoint;
}

parentPort?.postMessage(await endpoint(workerData as string));
