/** A server of HTTP/2 that says exactly what it is told, byte by byte, and remembers what it heard. */
import type { AddressInfo, Socket } from "node:net";
import { createServer } from "node:net";
import { FRAME, type Frame, frame, framesIn, PREFACE } from "./wire-client.ts";

/** One connection to the server. */
export interface Heard {
  readonly socket: Socket;
  send(...bytes: readonly Uint8Array[]): void;
  /** Every whole frame so far. */
  frames(): Frame[];
  /** In how many pieces it all came. */
  pieces: number;
}

/** A server on loopback. */
export interface BareServer {
  readonly url: URL;
  readonly connections: readonly Heard[];
  close(): Promise<void>;
}

/** What a polite server says first. */
export const SERVER_HELLO = Buffer.concat([frame(FRAME.settings, 0, 0), frame(FRAME.settings, 1, 0)]);

/** Listens; `said` is called for each frame that comes, with the number of frames before it. */
export async function startBareServer(said: (heard: Heard, frame: Frame, index: number) => void): Promise<BareServer> {
  const connections: Heard[] = [];
  const server = createServer((socket) => {
    let bytes = Buffer.alloc(0);
    let told = 0;
    const frames = (): Frame[] => framesIn(bytes.subarray(PREFACE.length));
    const heard: Heard = { socket, frames, pieces: 0, send: (...parts) => void socket.write(Buffer.concat(parts)) };
    connections.push(heard);
    socket.setNoDelay(true);
    socket.on("error", () => undefined);
    socket.on("data", (chunk: Buffer) => {
      bytes = Buffer.concat([bytes, chunk]);
      heard.pieces++;
      for (const each of frames().slice(told)) said(heard, each, told++);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`),
    connections,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const { socket } of connections) socket.destroy();
      }),
  };
}
