/**
 * Sockets that read into one block for all of them. Node makes 64 KiB of fresh memory for each read of a server's socket, which
 * costs a fifth of all that it takes to hear a request and to answer it.
 */
import { Socket } from "node:net";
import { hearErrors } from "../edge/server/error-listeners.ts";

/** Bytes are copied out of it before the next read of any connection. */
const BLOCK = Buffer.allocUnsafeSlow(64 << 10);

/** A connection that reads into the block. */
export interface SharedReader {
  readonly socket: Socket;
  /** From now on it reads as any other socket. */
  release(): void;
}

/**
 * Moves the connection of `socket`, which has to be at rest, into a socket whose reads are given to `hear`. Each of the two sockets ends
 * with the other, so that the owner of the first still owns the connection. Undefined where the connection is not plain TCP.
 */
export function readShared(socket: Socket, hear: (chunk: Buffer) => void): SharedReader | undefined {
  const holder = socket as Socket & { _handle: object | null };
  const handle = holder._handle;
  if (handle?.constructor.name !== "TCP" || "encrypted" in socket) return undefined;
  holder._handle = null;
  let told: ((chunk: Buffer) => void) | undefined = hear;
  const options = {
    handle: handle as never, // Node's own
    allowHalfOpen: true,
    readable: true,
    writable: true,
    onread: {
      buffer: BLOCK,
      callback: (bytes: number): boolean => {
        const chunk = Buffer.from(BLOCK.subarray(0, bytes));
        if (told === undefined) return own.push(chunk);
        told(chunk);
        return true;
      },
    },
  };
  const own: Socket = new Socket(options);
  hearErrors(own);
  own.once("finish", () => socket.end()).once("close", () => socket.destroy());
  socket.once("close", () => own.destroy());
  return {
    socket: own,
    release: () => {
      told = undefined;
    },
  };
}
