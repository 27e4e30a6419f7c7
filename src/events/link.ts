/** A connection to NATS for as long as it lasts. One that was lost stays lost: whatever it had not sent is never sent later. */
import { deadline, headers, type NatsConnection } from "nats";
import { sleep } from "../ambient.ts";
import { BRAND } from "../brand.ts";
import type { OutboxEvent } from "../store/outbox.ts";
import { ANSWER_MS, dial } from "./dial.ts";

/** What stands for the organisation in the subject of an event that concerns none. */
const OPERATOR = "operator";

/** The subject of an event: `limber.v1.<org>.<event.name>`. */
const subjectOf = ({ orgId, name }: Pick<OutboxEvent, "orgId" | "name">): string =>
  `${BRAND}.v1.${orgId ?? OPERATOR}.${name}`;

/** A connection that was made. */
export class NatsLink {
  readonly #connection: NatsConnection;
  /** Resolves when it was lost or closed. */
  readonly over: Promise<unknown>;
  #refusal: Error | undefined;

  private constructor(connection: NatsConnection) {
    this.#connection = connection;
    this.over = connection.closed();
    void this.#watch();
  }

  /** Connects to `url` once; user and password may stand in it, a user alone is a token. Rejects when that fails. */
  static async dial(url: string): Promise<NatsLink> {
    return new NatsLink(await dial(url));
  }

  get isOver(): boolean {
    return this.#connection.isClosed();
  }

  /**
   * Publishes events in order. Resolves when every stream that listens to their subjects has stored them, and the server has all
   * others. Rejects as soon as that fails, with nothing sent of what comes after.
   */
  async publish(events: readonly OutboxEvent[]): Promise<void> {
    const stored = await this.#storedSubjects(new Set(events.map(subjectOf)));
    for (const event of events) {
      const subject = subjectOf(event);
      const told = headers();
      told.set("content-type", "application/protobuf");
      told.set("Nats-Msg-Id", event.id);
      if (stored.has(subject)) await this.#store(subject, event.payload, told);
      else this.#connection.publish(subject, event.payload, { headers: told });
    }
    await deadline(this.#connection.flush(), ANSWER_MS);
    // A server refuses a publication before it answers the flush, and the client tells of it in a turn of its own.
    await sleep(0);
    if (this.#refusal) throw this.#refusal;
  }

  /** Closes it. What was published before is with the server or lost. */
  close(): Promise<void> {
    return this.#connection.close();
  }

  async #watch(): Promise<void> {
    for await (const status of this.#connection.status()) if (status.type === "error") this.#refusal ??= status.error;
  }

  /** Those of the subjects that a stream of JetStream keeps. */
  async #storedSubjects(subjects: ReadonlySet<string>): Promise<ReadonlySet<string>> {
    if (!this.#connection.info?.jetstream) return new Set();
    const asked = [...subjects].map(async (subject) => {
      const answer = await this.#request("$JS.API.STREAM.NAMES", JSON.stringify({ subject }));
      if (answer.error && !NO_JETSTREAM.has(answer.error.err_code)) throw new Error(answer.error.description);
      return (answer.streams?.length ?? 0) > 0 ? [subject] : [];
    });
    return new Set((await Promise.all(asked)).flat());
  }

  async #store(subject: string, payload: Uint8Array, told: ReturnType<typeof headers>): Promise<void> {
    const { error, stream } = await this.#request(subject, payload, told);
    // A stream that refuses names itself all the same.
    if (error || stream === undefined) throw new Error(error?.description ?? `no stream answers for ${subject}`);
  }

  async #request(subject: string, payload: Uint8Array | string, told = headers()): Promise<StreamAnswer> {
    const reply = await this.#connection.request(subject, payload, { timeout: ANSWER_MS, headers: told });
    return reply.json<StreamAnswer>();
  }
}

/** JetStream's answers, as far as they matter here (docs.nats.io, JetStream wire API). */
interface StreamAnswer {
  error?: { err_code: number; description: string };
  streams?: string[] | null;
  stream?: string;
}

/** JetStream is not enabled for this account, or not at all. */
const NO_JETSTREAM: ReadonlySet<number> = new Set([10039, 10076]);
