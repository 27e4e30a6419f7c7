/** What streams ask of the connection that they came by, be they answered here or elsewhere. */
import type { Slot } from "../../edge/server/slots.ts";
import type { Outbox } from "../http2-frames/outbox.ts";
import type { Sender } from "../http2-frames/sender.ts";

/** The connection. */
export interface Http2Connection {
  /** The address at the other end. */
  readonly address: string;
  readonly slot: Slot | undefined;
  readonly outbox: Outbox;
  readonly sender: Sender;
  /** What each stream lets us send at its beginning. */
  readonly peerWindow: number;
  /** A stream cost more than it asked. */
  tax(): void;
  /** The gate refused a call to its caller: nothing was done for it, and it has to cost something. */
  refused(): void;
  /** The answer to a stream waits for its turn, or does so no longer. */
  held(change: 1 | -1): void;
  /** A stream is over. */
  left(): void;
}
