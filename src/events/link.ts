/** A connection to NATS for as long as it lasts. One that was lost stays lost: whatever it had not sent is never sent later. */
import { deadline, headers, type MsgHdrs, type NatsConnection } from "nats";
import { sleep } from "../ambient.ts";
import { BRAND } from "../brand.ts";
import type { OutboxEvent } from "../store/events/outbox.ts";
import { ANSWER_MS, dial } from "./dial.ts";
import { Frames, type Send, sendOf } from "./frames.ts";

/** Subjects whose stream is remembered. */
const MOST_REMEMBERED = 10_000;

/** Where JetStream tells which streams keep a subject. */
const NAMES = "$JS.API.STREAM.NAMES";

/** What stands for the organisation in the subject of an event that concerns none. */
const OPERATOR = "operator";

/** The subject of an event: `limber.v1.<org>.<event.name>`. */
const subjectOf = ({ orgId, name }: Pick<OutboxEvent, "orgId" | "name">): string =>
  `${BRAND}.v1.${orgId ?? OPERATOR}.${name}`;

/** An event and its subject. */
interface Told {
  readonly event: OutboxEvent;
  readonly subject: string;
}

/** What an event says of itself beside its bytes; with `before`, that it follows that one. */
const headOf = ({ id }: OutboxEvent, before?: OutboxEvent): string =>
  `content-type: application/protobuf\r\nNats-Msg-Id: ${id}\r\n${before ? `Nats-Expected-Last-Msg-Id: ${before.id}\r\n` : ""}`;

/** The same as the client takes it. */
function spelled(head: string): MsgHdrs {
  const told = headers();
  for (const line of head.split("\r\n")) {
    const [name = "", value] = line.split(": ");
    if (value !== undefined) told.set(name, value);
  }
  return told;
}

/** A connection that was made. */
export class NatsLink {
  readonly #connection: NatsConnection;
  readonly #send: Send;
  readonly #frames = new Frames();
  /** Resolves when it was lost or closed. */
  readonly over: Promise<unknown>;
  #refusal: Error | undefined;
  /** The stream of a subject, where it had one. One that is gone meanwhile refuses, and with that the connection is given up. */
  readonly #streams = new Map<string, string>();

  private constructor(connection: NatsConnection) {
    this.#connection = connection;
    this.#send = sendOf(connection);
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
   * others. Rejects as soon as that fails, with nothing that a stream stores after what it refused.
   */
  async publish(events: readonly OutboxEvent[]): Promise<void> {
    const told = events.map((event) => ({ event, subject: subjectOf(event) }));
    await this.#lookUp(told);
    // All that was sent before has been answered.
    this.#frames.clear();
    let unkept = 0;
    for (const { stream, run } of this.#runsOf(told)) {
      if (stream !== undefined) await this.#store(run);
      else {
        for (const { event, subject } of run) this.#frames.add(subject, headOf(event), event.payload);
        this.#send(this.#frames.take());
        unkept += run.length;
      }
    }
    if (unkept > 0) {
      await deadline(this.#connection.flush(), ANSWER_MS);
      // A server refuses a publication before it answers the flush, and the client tells of it in a turn of its own.
      await sleep(0);
    }
    if (this.#refusal) throw this.#refusal;
  }

  /** Closes it. What was published before is with the server or lost. */
  close(): Promise<void> {
    return this.#connection.close();
  }

  async #watch(): Promise<void> {
    for await (const status of this.#connection.status()) if (status.type === "error") this.#refusal ??= status.error;
  }

  /** Events that one stream keeps, or none, one after the other: the order of all stays. */
  #runsOf(told: readonly Told[]): { stream: string | undefined; run: Told[] }[] {
    const runs: { stream: string | undefined; run: Told[] }[] = [];
    for (const each of told) {
      const stream = this.#streams.get(each.subject);
      const last = runs.at(-1);
      if (last && last.stream === stream) last.run.push(each);
      else runs.push({ stream, run: [each] });
    }
    return runs;
  }

  /** Asks which streams of JetStream keep the subjects of which none is known to. */
  async #lookUp(told: readonly Told[]): Promise<void> {
    if (!this.#connection.info?.jetstream) return;
    if (this.#streams.size > MOST_REMEMBERED) this.#streams.clear();
    const unknown = new Set<string>();
    for (const { subject } of told) if (!this.#streams.has(subject)) unknown.add(subject);
    if (unknown.size === 0) return;
    await Promise.all(
      [...unknown].map(async (subject) => {
        const answer = await this.#request(NAMES, JSON.stringify({ subject }));
        if (answer.error && !NO_JETSTREAM.has(answer.error.err_code)) throw new Error(answer.error.description);
        const [stream] = answer.streams ?? [];
        if (stream !== undefined) this.#streams.set(subject, stream);
      }),
    );
  }

  /**
   * Has a stream store events in order. They go as a chain, each to be stored only after the one before it, so that the answer for the last
   * speaks for all. Where the chain breaks (others write to the stream too, or some were stored earlier), one after the other, each
   * with its own answer; what is stored already is known by its id.
   */
  async #store(told: readonly Told[]): Promise<void> {
    if (told.length > 1 && (await this.#storeChained(told))) return;
    for (const { event, subject } of told) {
      const { error, stream } = await this.#request(subject, event.payload, headOf(event));
      // A stream that refuses names itself all the same.
      if (error || stream === undefined) throw new Error(error?.description ?? `no stream answers for ${subject}`);
    }
  }

  async #storeChained(told: readonly Told[]): Promise<boolean> {
    const last = told.at(-1)!;
    let before: OutboxEvent | undefined;
    for (const { event, subject } of told) {
      if (event === last.event) break;
      this.#frames.add(subject, headOf(event, before), event.payload);
      before = event;
    }
    this.#send(this.#frames.take());
    const { error, stream, duplicate } = await this.#request(
      last.subject,
      last.event.payload,
      headOf(last.event, before),
    );
    // One that was there before says nothing of those between.
    return !error && stream !== undefined && !duplicate;
  }

  async #request(subject: string, payload: Uint8Array | string, head = ""): Promise<StreamAnswer> {
    const options = { timeout: ANSWER_MS, headers: spelled(head) };
    return (await this.#connection.request(subject, payload, options)).json<StreamAnswer>();
  }
}

/** JetStream's answers, as far as they matter here (docs.nats.io, JetStream wire API). */
interface StreamAnswer {
  error?: { err_code: number; description: string };
  streams?: string[] | null;
  stream?: string;
  duplicate?: boolean;
}

/** JetStream is not enabled for this account, or not at all. */
const NO_JETSTREAM: ReadonlySet<number> = new Set([10039, 10076]);
