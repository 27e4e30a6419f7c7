/** Emergency stops between replicas without the database: over NATS, where there is one. Each replica that holds a stop answers. */
import { createInbox, type NatsConnection } from "nats";
import { BRAND } from "../brand.ts";
import { after, sleep } from "../clock.ts";
import { dial } from "./nats/connect.ts";

/** What the transport depends on. */
export interface StopTransportDeps {
  /** The address of NATS; undefined where there is none: then no replica is notified. */
  readonly url: string | undefined;
  /** Names this replica among those that answer. */
  readonly replica: string;
  /** Applies the message of another replica, before it is answered. */
  hear(word: string): void;
}

const SUBJECT = `${BRAND}.replica.v1.stop`;
const REDIAL_MS = 2_000;
/** Milliseconds in which answers are counted. */
const ANSWERS_MS = 2_000;

/** The transport of one replica. PostgreSQL stays the truth; any message may be lost. */
export class StopTransport {
  readonly #deps: StopTransportDeps;
  readonly #leaving = new AbortController();
  readonly #stay: Promise<void>;
  #nats: NatsConnection | undefined;

  /** Subscribes. NATS need not be reachable. */
  constructor(deps: StopTransportDeps) {
    this.#deps = deps;
    this.#stay = deps.url === undefined ? Promise.resolve() : this.#dialOn(deps.url);
  }

  /** Notifies all other replicas; the names of those that answer come into the returned set as they do. */
  tell(word: string): ReadonlySet<string> {
    const answered = new Set<string>();
    const nats = this.#nats;
    if (nats === undefined) return answered;
    try {
      const reply = createInbox();
      const answers = nats.subscribe(reply, {
        callback: (error, message) => {
          if (!error) answered.add(message.string());
        },
      });
      after(ANSWERS_MS, () => answers.unsubscribe());
      nats.publish(SUBJECT, `${this.#deps.replica} ${word}`, { reply });
    } catch {
      // The connection is just being lost: no replica is notified.
    }
    return answered;
  }

  /** Unsubscribes. */
  async close(): Promise<void> {
    this.#leaving.abort();
    await this.#nats?.close();
    await this.#stay;
  }

  async #dialOn(url: string): Promise<void> {
    const { signal } = this.#leaving;
    while (!signal.aborted) {
      await this.#once(url).catch(() => {});
      this.#nats = undefined;
      await sleep(REDIAL_MS, signal).catch(() => {});
    }
  }

  async #once(url: string): Promise<void> {
    const { replica, hear } = this.#deps;
    const connection = await dial(url);
    if (this.#leaving.signal.aborted) return connection.close();
    connection.subscribe(SUBJECT, {
      callback: (error, message) => {
        if (error) return;
        const text = message.string();
        const at = text.indexOf(" ");
        if (text.slice(0, at) === replica) return;
        hear(text.slice(at + 1));
        message.respond(replica);
      },
    });
    this.#nats = connection;
    await connection.closed();
  }
}
