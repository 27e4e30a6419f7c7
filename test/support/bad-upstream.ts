/** Servers that don't even speak: they take connections and misbehave beneath any protocol. */
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

/** A listener on loopback. */
export interface BadUpstream {
  readonly port: number;
  /** How many connections have come. */
  readonly connections: () => number;
  close(): Promise<void>;
}

/** What is done with each connection. */
export const MISBEHAVIOURS = {
  /** Takes the connection and says nothing. */
  silence: () => undefined,
  /** Resets it as soon as something comes. */
  reset: (socket: Socket) => void socket.once("data", () => socket.resetAndDestroy()),
  /** Answers with bytes of no protocol. */
  garbage: (socket: Socket) => void socket.once("data", () => socket.write(Buffer.alloc(4_096, 0x5a))),
  /** Is a web server with a secret in its error page. */
  html: (socket: Socket) =>
    void socket.once("data", () => socket.end("HTTP/1.1 500 Oops\r\ncontent-length: 14\r\n\r\nsecret=hunter2")),
  /** Hangs up as soon as something comes. */
  hangUp: (socket: Socket) => void socket.once("data", () => socket.end()),
} as const satisfies Record<string, (socket: Socket) => void>;

/** Listens and does this with every connection. */
export async function startBadUpstream(misbehave: (socket: Socket) => void): Promise<BadUpstream> {
  const sockets = new Set<Socket>();
  let connections = 0;
  const server = createServer((socket) => {
    connections++;
    sockets.add(socket);
    socket.on("error", () => undefined);
    socket.once("close", () => sockets.delete(socket));
    misbehave(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    connections: () => connections,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}

/** A network between client and server that can fall silent without a word, as when a cable is pulled. */
export interface Cable extends BadUpstream {
  /** From now on nothing passes, in either direction, and nobody is told; new connections do pass. */
  pull(): void;
}

/** Forwards connections to a port of loopback until it's pulled. */
export async function startCable(to: number): Promise<Cable> {
  const pairs = new Set<[Socket, Socket]>();
  const bad = await startBadUpstream((client) => {
    const server = connect(to, "127.0.0.1");
    const pair: [Socket, Socket] = [client, server];
    pairs.add(pair);
    server.on("error", () => undefined);
    client.pipe(server).pipe(client);
    client.once("close", () => server.destroy());
  });
  return {
    ...bad,
    pull: () => {
      for (const [client, server] of pairs) {
        client.unpipe(server);
        server.unpipe(client);
        client.pause();
        server.pause();
      }
      pairs.clear();
    },
  };
}
