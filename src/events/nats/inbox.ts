/**
 * Where NATS answers what was asked in frames of our own (`frames.ts`): what the client's requests do for each question costs as much as a
 * hundred events on their way.
 */
import { createInbox, type Msg, type NatsConnection } from "nats";
import { after } from "../../clock.ts";
import { ANSWER_MS } from "./connect.ts";

/** Who waits for one answer. */
type PendingReply = PromiseWithResolvers<Msg>;

/** The answers of one connection. */
export class Inbox {
  readonly #connection: NatsConnection;
  readonly #address = createInbox();
  readonly #waiting = new Map<string, PendingReply>();
  #asked = 0;
  #open: Promise<void> | undefined;

  /** Listens when it is opened, for a user who asks nothing may not be allowed to. */
  constructor(connection: NatsConnection) {
    this.#connection = connection;
    void connection.closed().then((cause) => this.fail(cause ?? new Error("the connection was closed")));
  }

  /** Listens; resolves when the server knows, so that what is asked then is answered here. */
  open(): Promise<void> {
    this.#open ??= this.#listen();
    return this.#open;
  }

  /** The address of one answer, and the answer. It rejects when none comes in time, or nobody listens to what was asked. */
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
    // Whoever asked may have failed to, and not wait for it.
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
        // The server's word for a question that nobody listens to.
        if (message.data.length === 0 && message.headers?.code === 503) waiting?.reject(new Error("nobody listens"));
        else waiting?.resolve(message);
      },
    });
    return this.#connection.flush();
  }
}
