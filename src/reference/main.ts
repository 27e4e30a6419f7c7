/**
 * The reference provider as a process: `node src/reference/main.ts --grpc-port 0 --openpi-port 0`. Prints one line of JSON when it listens, and
 * exits on SIGTERM, on SIGINT, and when its standard input closes.
 */
import { parseArgs } from "node:util";
import { type ReferenceServer, serveReference } from "./server.ts";

const { values } = parseArgs({
  options: {
    host: { type: "string", default: "127.0.0.1" },
    "grpc-port": { type: "string", default: "0" },
    "openpi-port": { type: "string", default: "0" },
  },
});

const listen = {
  host: values.host,
  grpcPort: Number(values["grpc-port"]),
  openpiPort: Number(values["openpi-port"]),
};

serveReference(listen).then(announce, (error: Error) => {
  process.stderr.write(`the reference provider can't listen: ${error.message}\n`);
  process.exit(1);
});

function announce({ grpc, openpi, close }: ReferenceServer): void {
  const end = (): void => void close().then(() => process.exit(0));
  process.once("SIGTERM", end).once("SIGINT", end);
  process.stdin.once("end", end).once("error", end).resume();
  process.stdout.write(`${JSON.stringify({ ready: true, grpc, openpi })}\n`);
}
