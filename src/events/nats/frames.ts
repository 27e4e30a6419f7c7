/**
 * Messages as the protocol of NATS has them on the wire, many behind each other in one buffer: what its client does for each alone costs
 * more than all else that is done for a message.
 */
import type { NatsConnection } from "nats";

const FIRST_ROOM = 64 * 1024;
const END = "\r\n";
const VERSION = `NATS/1.0${END}`;

/** A buffer of messages that is used again and again. */
export class Frames {
  #room = Buffer.allocUnsafeSlow(FIRST_ROOM);
  #from = 0;
  #to = 0;

  /** Forgets what it held: call it when all of that has been read. */
  clear(): void {
    this.#from = 0;
    this.#to = 0;
  }

  /**
   * Adds a message as `HPUB` (docs.nats.io, client protocol). `to` is its subject, and after a space where the answer goes, if any shall
   * come. Each line of `head` is ended; both are ASCII.
   */
  add(to: string, head: string, payload: Uint8Array): void {
    const headBytes = VERSION.length + head.length + END.length;
    const text = `HPUB ${to} ${headBytes} ${headBytes + payload.length}${END}${VERSION}${head}${END}`;
    if (this.#to + text.length + payload.length + END.length > this.#room.length)
      this.#grow(text.length + payload.length);
    this.#to += this.#room.write(text, this.#to, "latin1");
    this.#room.set(payload, this.#to);
    this.#to += payload.length;
    this.#room[this.#to++] = 13;
    this.#room[this.#to++] = 10;
  }

  /** The messages since it was last asked, as a view that holds until `clear`. */
  take(): Uint8Array {
    const taken = this.#room.subarray(this.#from, this.#to);
    this.#from = this.#to;
    return taken;
  }

  /** Those that were taken stay where they are. */
  #grow(needed: number): void {
    const waiting = this.#room.subarray(this.#from, this.#to);
    this.#room = Buffer.allocUnsafeSlow(2 * Math.max(this.#room.length, waiting.length + needed));
    this.#room.set(waiting);
    this.clear();
    this.#to = waiting.length;
  }
}

/** Sends bytes as they are. */
export type Send = (frames: Uint8Array) => void;

/**
 * The client's own method of writing to its socket, which is private. What is sent by it goes before all that the client is asked for later.
 * Throws where this version of the client has none.
 */
export function sendOf(connection: NatsConnection): Send {
  const { protocol }: { protocol?: { transport?: { send?: unknown } } } = connection as object;
  const transport = protocol?.transport;
  if (typeof transport?.send !== "function") throw new TypeError("this client of NATS sends no bytes as they are");
  const { send } = transport;
  return (frames) => void send.call(transport, frames);
}
