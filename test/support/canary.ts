/** A server inside that nobody should ever reach: it listens on both loopbacks at one port and counts who comes. */
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";

/** The canary. */
export interface Canary {
  readonly port: number;
  /** How many connections came. */
  readonly connections: () => number;
  close(): void;
}

/** Starts one. */
export async function startCanary(): Promise<Canary> {
  const servers: Server[] = [];
  let connections = 0;
  let port = 0;
  for (const host of ["127.0.0.1", "::1"]) {
    const server = createServer((_, response) => response.end("secret"));
    server.on("connection", () => connections++);
    await new Promise<void>((resolve) => server.listen(port, host, resolve));
    ({ port } = server.address() as AddressInfo); // a TCP server's address is never a string
    servers.push(server);
  }
  return {
    port,
    connections: () => connections,
    close: () => {
      for (const server of servers) server.close().closeAllConnections();
    },
  };
}
