/**
 * The answers of NATS to requests in own frames (`frames.ts`): what the client does for each request costs as much as a
 * hundred events in flight.
 */
import { createInbox, type Msg, type NatsConnection } from "nats";
import { after } from "../../clock.ts";
import { ANSWER_MS } from "./connect.ts";

/** The request that waits for one answer. */
type PendingReply = PromiseWithResolvers<Msg>;

/** The answers of one connection. */
export class Inbox {
  readonly #connection: NatsConnection;
  readonly #address = createInbox();
  readonly #waiting = new Map<string, PendingReply>();
  #asked = 0;
  #open: Promise<void> | undefined;

  /** Subscribes when it is opened, and not before: a user that makes no requests may not be allowed to. */
  constructor(connection: NatsConnection) {
    this.#connection = connection;
    void connection.closed().then((cause) => this.fail(cause ?? new Error("the connection was closed")));
  }

  /** Subscribes; resolves when the server has the subscription, so that later requests are answered here. */
  open(): Promise<void> {
    this.#open ??= this.#listen();
    return this.#open;
  }

  /** The subject of one answer, and the answer. It rejects when none comes in time, or the request has no subscriber. */
  next(): { address: string; answer: Promise<Msg> } {
    const address = `${this.#address}.${this.#asked++}`;
    const waiting: PendingReply = Promise.withResolvers();
    this.#waiting.set(address, waiting);
    if (this.#connection.isClosed()) waiting.reject(new Error("the connection is closed"));
    const forget = after(ANSWER_MS, () => waiting.reject(new Error("NATS did not answer in time")));
    const answer = waiting.promise.finally(() => {
      forget();
      this.#waiting.delete(address);
    });
    // The request may have failed to leave, and its answer is not awaited then.
    answer.catch(() => {});
    return { address, answer };
  }

  /** Nothing more is answered. */
  fail(cause: Error): void {
    for (const { reject } of this.#waiting.values()) reject(cause);
  }

  #listen(): Promise<void> {
    this.#connection.subscribe(`${this.#address}.*`, {
      callback: (error, message) => {
        if (error) return this.fail(error);
        const waiting = this.#waiting.get(message.subject);
        // The server's status for a request without a subscriber.
        if (message.data.length === 0 && message.headers?.code === 503) waiting?.reject(new Error("nobody listens"));
        else waiting?.resolve(message);
      },
    });
    return this.#connection.flush();
  }
}
