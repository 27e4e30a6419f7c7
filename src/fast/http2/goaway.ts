/** How a connection of HTTP/2 ends: the GOAWAY of RFC 9113, section 6.8, and the socket behind it. */
import type { Socket } from "node:net";
import { after } from "../../clock.ts";
import { CODE, Fault } from "../http2-frames/frames.ts";

/** How long a peer has to close its side, or to read why it was turned away. */
const LINGER_MS = 1_000;
const LEAST_BYTES = 8;
/** The last stream of a GOAWAY that announces another one: every stream may still be opened. */
export const ANY_STREAM = 2 ** 31 - 1;
/** What that PING carries. */
export const LEAVE_PING = Buffer.from("leaving\n", "latin1");

/** The payload of a GOAWAY that names the last stream that was begun. */
export function packGoaway(lastId: number, code: number): Buffer {
  const payload = Buffer.alloc(LEAST_BYTES);
  payload.writeUInt32BE(lastId);
  payload.writeUInt32BE(code, 4);
  return payload;
}

/** The code of a peer's GOAWAY. Throws a Fault where it is none. */
export function readGoaway(payload: Buffer): number {
  if (payload.length < LEAST_BYTES) throw new Fault(CODE.frameSize, "a GOAWAY of the wrong size");
  return payload.readUInt32BE(4);
}

/** Ends the socket behind the last words. Not destroyed at once: unread bytes would turn the end into a reset, which can overtake them. */
export function hangUp(socket: Socket, code: number): void {
  if (socket.destroyed) return;
  // A connection that was cut off is not read any more.
  if (code !== CODE.none) socket.pause();
  socket.end();
  socket.once(
    "close",
    after(LINGER_MS, () => socket.destroy()),
  );
}
