/** A server of tests that can be stopped as a machine stops, and comes back on its port. */
import type { AddressInfo, Server, Socket } from "node:net";
import { setImmediate, setTimeout } from "node:timers/promises";

/** A server that listens on loopback. */
export interface Listening {
  readonly port: number;
  /** Ends it with all of its connections. */
  close(): Promise<void>;
  /** The same, and then it listens on its port again. */
  restart(): Promise<void>;
}

/** Starts the server that `make` makes, which is made anew for each start; `connected` hears of each connection. */
export async function listening(
  make: () => Server,
  connected: (socket: Socket) => void = () => {},
): Promise<Listening> {
  const sockets = new Set<Socket>();
  let server: Server;
  const listen = async (port: number): Promise<void> => {
    server = make();
    server.on("connection", (socket: Socket) => {
      sockets.add(socket);
      socket.on("error", () => undefined);
      socket.once("close", () => sockets.delete(socket));
      connected(socket);
    });
    await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  };
  const close = async (): Promise<void> => {
    const closed = new Promise((resolve) => server.close(resolve));
    for (const socket of sockets) socket.destroy();
    await closed;
  };
  await listen(0);
  const { port } = server!.address() as AddressInfo;
  return {
    port,
    close,
    async restart() {
      await close();
      // A client in this process has heard of it by then. After a stall the timer fires before anything is read, hence the turns.
      await setTimeout(50);
      for (let turn = 0; turn < 10; turn++) await setImmediate();
      await listen(port);
    },
  };
}
