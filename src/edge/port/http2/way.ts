/** What streams ask of the connection that they came by, be they answered here or elsewhere. */
import type { Outbox } from "../../../codecs/http2/outbox.ts";
import type { Sender } from "../../../codecs/http2/sender.ts";

/** The connection. */
export interface Way {
  /** The address at the other end. */
  readonly address: string;
  readonly outbox: Outbox;
  readonly sender: Sender;
  /** What each stream lets us send at its beginning. */
  readonly peerWindow: number;
  /** A stream cost more than it asked. */
  tax(): void;
  /** A stream is over. */
  left(): void;
}
