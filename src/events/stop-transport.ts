/** Emergency stops between replicas without the database: over NATS, where there is one. Each replica that holds a stop answers. */
import { createInbox, type Msg } from "nats";
import { BRAND } from "../brand.ts";
import { after } from "../clock.ts";
import type { ReplicaLine } from "./nats/replica-line.ts";

/** What the transport depends on. */
export interface StopTransportDeps {
  /** A connection for stops alone, so that no large message is ahead of one; undefined where there is no NATS: then no replica is notified. */
  readonly line: ReplicaLine | undefined;
  /** Names this replica among those that answer. */
  readonly replica: string;
  /** Applies the message of another replica, before it is answered. */
  hear(order: string): void;
}

const SUBJECT = `${BRAND}.replica.v1.stop`;
/** Milliseconds in which answers are counted. */
const ANSWERS_MS = 2_000;

/** The transport of one replica. PostgreSQL stays the truth; any message may be lost. */
export class StopTransport {
  readonly #deps: StopTransportDeps;
  readonly #off: (() => void) | undefined;

  /** Subscribes. NATS need not be reachable. */
  constructor(deps: StopTransportDeps) {
    this.#deps = deps;
    this.#off = deps.line?.on({ subject: SUBJECT, hear: (message) => this.#hear(message) });
  }

  /** Notifies all other replicas; the names of those that answer come into the returned set as they do. */
  tell(order: string): ReadonlySet<string> {
    const answered = new Set<string>();
    const nats = this.#deps.line?.nats;
    if (nats === undefined) return answered;
    try {
      const reply = createInbox();
      const answers = nats.subscribe(reply, {
        callback: (error, message) => {
          if (!error) answered.add(message.string());
        },
      });
      after(ANSWERS_MS, () => answers.unsubscribe());
      nats.publish(SUBJECT, `${this.#deps.replica} ${order}`, { reply });
    } catch {
      // The connection is just being lost: no replica is notified.
    }
    return answered;
  }

  /** Unsubscribes. */
  close(): void {
    this.#off?.();
  }

  #hear(message: Msg): void {
    const { replica, hear } = this.#deps;
    const text = message.string();
    const at = text.indexOf(" ");
    if (text.slice(0, at) === replica) return;
    hear(text.slice(at + 1));
    message.respond(replica);
  }
}
