/** Tells HTTP/2 with prior knowledge from HTTP/1 by the first bytes of a cleartext connection. */
import type { Socket } from "node:net";

/** What a client of HTTP/2 says first. */
export const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "latin1");

/**
 * Reads `socket` until its bytes match the HTTP/2 preface (RFC 9113 section 3.4) or differ from it, gives them all back
 * and calls `tell`, with the socket paused. A peer that leaves before either is destroyed; a silent one is the caller's
 * to time out.
 */
export function tellProtocol(socket: Socket, tell: (protocol: "http1" | "http2") => void): void {
  let got: Buffer = Buffer.alloc(0);
  const leave = (): unknown => socket.destroy();
  const read = (chunk: Buffer): void => {
    got = got.length === 0 ? chunk : Buffer.concat([got, chunk]);
    const length = Math.min(got.length, PREFACE.length);
    const same = got.compare(PREFACE, 0, length, 0, length) === 0;
    if (same && length < PREFACE.length) return;
    socket.off("data", read).off("end", leave);
    socket.pause();
    socket.unshift(got);
    tell(same ? "http2" : "http1");
  };
  socket.on("data", read).on("end", leave);
}
