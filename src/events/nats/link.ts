/** A single connection to NATS. A lost connection is not resumed: unsent messages are never sent later. */
import { createInbox, deadline, type Msg, type NatsConnection } from "nats";
import { BRAND } from "../../brand.ts";
import { after, sleep } from "../../clock.ts";
import type { EventRecord } from "../../store/events/outbox.ts";
import { ANSWER_MS, dial, natsAddress } from "./connect.ts";
import { RelayTurns, type RelayTurnsDeps } from "./leadership.ts";

/** The most cached subjects. */
const MOST_REMEMBERED = 10_000;

/** The JetStream API subject that returns the streams of a subject. */
const namesIn = (domain: string | undefined): string =>
  domain === undefined ? "$JS.API.STREAM.NAMES" : `$JS.${domain}.API.STREAM.NAMES`;

/** Replaces the organization in the subject of an event without one. */
const OPERATOR = "operator";

/** The subject of one organization's events of one name. */
interface LinkState {
  /** `limber.v1.<org>.<event.name>`. */
  readonly subject: string;
  /** The stream of the subject, if it has one. If the stream was deleted, publishing fails and the connection is given up. */
  stream: string | undefined;
}

/** Consecutive events of a batch that go to the same stream, or to none. */
interface LinkRun {
  readonly stream: string | undefined;
  readonly from: number;
  readonly to: number;
}

/** The headers of an event; `before` is the event that must precede it. */
const headOf = ({ id }: EventRecord, before?: EventRecord): string =>
  before === undefined
    ? `content-type: application/protobuf\r\nNats-Msg-Id: ${id}\r\n`
    : `content-type: application/protobuf\r\nNats-Msg-Id: ${id}\r\nNats-Expected-Last-Msg-Id: ${before.id}\r\n`;

/** An established connection. */
export class NatsLink {
  readonly #connection: NatsConnection;
  readonly #send: Send;
  readonly #frames = new Frames();
  readonly #inbox: Inbox;
  /** Resolves when the connection is lost or closed. */
  readonly over: Promise<unknown>;
  #refusal: Error | undefined;
  #leadership: RelayTurns | undefined;
  /** Cache by organization, then by name. */
  readonly #states = new Map<string, Map<string, LinkState>>();
  #remembered = 0;

  readonly #domain: string | undefined;

  private constructor(connection: NatsConnection, domain: string | undefined) {
    this.#connection = connection;
    this.#domain = domain;
    this.#send = sendOf(connection);
    this.#inbox = new Inbox(connection);
    this.over = connection.closed();
    void this.#watch();
  }

  /** Connects to `url` once. It may contain a user and password; a user alone is a token. Rejects on failure. */
  static async dial(url: string): Promise<NatsLink> {
    return new NatsLink(await dial(url), natsAddress(url).domain);
  }

  get isOver(): boolean {
    return this.#connection.isClosed();
  }

  /**
   * Publishes events in order. Resolves when every stream of their subjects has stored them, and the server has received all others. Rejects at
   * the first failure; no stream stores events after one that it rejected. One batch at a time.
   */
  async publish(events: readonly EventRecord[]): Promise<void> {
    // All earlier requests have been answered.
    this.#frames.clear();
    const ways = this.#waysOf(events);
    await this.#lookUp(ways);
    let unkept = false;
    for (const run of runsOf(ways)) {
      if (run.stream !== undefined) await this.#store(events, ways, run);
      else {
        for (let i = run.from; i < run.to; i++)
          this.#frames.add(ways[i]!.subject, headOf(events[i]!), events[i]!.payload);
        this.#send(this.#frames.take());
        unkept = true;
      }
    }
    if (unkept) {
      await deadline(this.#connection.flush(), ANSWER_MS);
      // A server reports a rejected publication before the flush response; the client reports it in a later turn of the event loop.
      await sleep(0);
    }
    if (this.#refusal) throw this.#refusal;
  }

  /** Joins the relay election over this connection. Call it once. */
  takeTurns(deps: RelayTurnsDeps): RelayTurns {
    this.#leadership = new RelayTurns(this.#connection, deps);
    return this.#leadership;
  }

  /** Closes the connection. Earlier publications have reached the server or are lost. */
  async close(): Promise<void> {
    if (!this.isOver) await deadline(this.#connection.flush(), ANSWER_MS).catch(() => {});
    await this.#connection.close();
  }

  async #watch(): Promise<void> {
    for await (const status of this.#connection.status()) {
      if (status.type !== "error" || this.#leadership?.takes(status.error)) continue;
      this.#refusal ??= status.error;
      this.#inbox.fail(status.error);
    }
  }

  #waysOf(events: readonly EventRecord[]): LinkState[] {
    if (this.#remembered > MOST_REMEMBERED) {
      this.#states.clear();
      this.#remembered = 0;
    }
    return events.map(({ orgId, name }) => {
      const org = orgId ?? OPERATOR;
      return this.#states.get(org)?.get(name) ?? this.#remember(org, name);
    });
  }

  #remember(org: string, name: string): LinkState {
    const names = this.#states.get(org) ?? new Map<string, LinkState>();
    const way = { subject: `${BRAND}.v1.${org}.${name}`, stream: undefined };
    this.#states.set(org, names.set(name, way));
    this.#remembered += 1;
    return way;
  }

  /** Queries JetStream for the streams of subjects that are not cached. */
  async #lookUp(ways: readonly LinkState[]): Promise<void> {
    if (!this.#connection.info?.jetstream && this.#domain === undefined) return;
    const unknown = new Set<LinkState>();
    for (const way of ways) if (way.stream === undefined) unknown.add(way);
    if (unknown.size === 0) return;
    await Promise.all(
      [...unknown].map(async (way) => {
        const answer = await this.#request(namesIn(this.#domain), JSON.stringify({ subject: way.subject }));
        if (answer.error && !NO_JETSTREAM.has(answer.error.err_code)) throw new Error(answer.error.description);
        way.stream = answer.streams?.[0];
      }),
    );
  }

  /**
   * Stores events in a stream in order. They are sent as a chain, each conditional on the one before, so that the last acknowledgment covers
   * all. If the chain breaks (other publishers, or events stored earlier), they are sent one by one with individual acknowledgments; the
   * message id identifies duplicates.
   */
  async #store(events: readonly EventRecord[], ways: readonly LinkState[], { from, to }: LinkRun): Promise<void> {
    if (to - from > 1 && (await this.#storeChained(events, ways, { from, to }))) return;
    for (let i = from; i < to; i++) {
      const [event, { subject }] = [events[i]!, ways[i]!];
      const { error, stream } = await this.#request(subject, event.payload, headOf(event));
      // An error response also names the stream.
      if (error || stream === undefined) throw new Error(error?.description ?? `no stream responded for ${subject}`);
    }
  }

  async #storeChained(
    events: readonly EventRecord[],
    ways: readonly LinkState[],
    { from, to }: Pick<LinkRun, "from" | "to">,
  ): Promise<boolean> {
    for (let i = from; i < to - 1; i++) {
      const event = events[i]!;
      this.#frames.add(ways[i]!.subject, headOf(event, i > from ? events[i - 1] : undefined), event.payload);
    }
    const last = events[to - 1]!;
    const { error, stream, duplicate } = await this.#request(
      ways[to - 1]!.subject,
      last.payload,
      headOf(last, events[to - 2]),
    );
    // A duplicate of the last event proves nothing about the events before it.
    return !error && stream !== undefined && !duplicate;
  }

  /** Sends a request and all frames before it in one write. */
  async #request(subject: string, payload: Uint8Array | string, head = ""): Promise<StreamAnswer> {
    await this.#inbox.open();
    const { address, answer } = this.#inbox.next();
    this.#frames.add(`${subject} ${address}`, head, typeof payload === "string" ? Buffer.from(payload) : payload);
    this.#send(this.#frames.take());
    return (await answer).json<StreamAnswer>();
  }
}

/** Keeps the overall order. */
function runsOf(ways: readonly LinkState[]): LinkRun[] {
  const runs: LinkRun[] = [];
  for (let from = 0, to = 0; from < ways.length; from = to) {
    const { stream } = ways[from]!;
    while (to < ways.length && ways[to]!.stream === stream) to++;
    runs.push({ stream, from, to });
  }
  return runs;
}

/** The used fields of JetStream responses (docs.nats.io, JetStream wire API). */
interface StreamAnswer {
  error?: { err_code: number; description: string };
  streams?: string[] | null;
  stream?: string;
  duplicate?: boolean;
}

/** JetStream is not enabled for this account or server. */
const NO_JETSTREAM: ReadonlySet<number> = new Set([10039, 10076]);

// Messages in the NATS wire format, many in one buffer: the client's own work per message would cost more than everything else that is done
// for it.

const FIRST_ROOM = 64 * 1024;
const END = "\r\n";
const VERSION = `NATS/1.0${END}`;

/** A reusable message buffer. */
export class Frames {
  #buffer = Buffer.allocUnsafeSlow(FIRST_ROOM);
  #from = 0;
  #end = 0;

  /** Clears the buffer. Call it once all views have been used. */
  clear(): void {
    this.#from = 0;
    this.#end = 0;
  }

  /**
   * Appends a message as `HPUB` (docs.nats.io, client protocol). `to` is the subject, followed by a space and the reply subject if a response
   * is expected. Every line of `head` must end with a line break. Both must be ASCII.
   */
  add(to: string, head: string, payload: Uint8Array): void {
    const headBytes = VERSION.length + head.length + END.length;
    const text = `HPUB ${to} ${headBytes} ${headBytes + payload.length}${END}${VERSION}${head}${END}`;
    if (this.#end + text.length + payload.length + END.length > this.#buffer.length)
      this.#grow(text.length + payload.length);
    this.#end += this.#buffer.write(text, this.#end, "latin1");
    this.#buffer.set(payload, this.#end);
    this.#end += payload.length;
    this.#buffer[this.#end++] = 13;
    this.#buffer[this.#end++] = 10;
  }

  /** The messages since the last call, as a view that is valid until `clear`. */
  take(): Uint8Array {
    const taken = this.#buffer.subarray(this.#from, this.#end);
    this.#from = this.#end;
    return taken;
  }

  /** Earlier views stay valid. */
  #grow(needed: number): void {
    const waiting = this.#buffer.subarray(this.#from, this.#end);
    this.#buffer = Buffer.allocUnsafeSlow(2 * Math.max(this.#buffer.length, waiting.length + needed));
    this.#buffer.set(waiting);
    this.clear();
    this.#end = waiting.length;
  }
}

/** Sends raw bytes. */
type Send = (frames: Uint8Array) => void;

/**
 * Returns the client's private method that writes to its socket. Its bytes precede everything that the client sends later. Throws if this
 * version of the client has no such method.
 */
function sendOf(connection: NatsConnection): Send {
  const { protocol }: { protocol?: { transport?: { send?: unknown } } } = connection as object;
  const transport = protocol?.transport;
  if (typeof transport?.send !== "function")
    throw new TypeError("this NATS client version has no method to send raw bytes");
  const { send } = transport;
  return (frames) => void send.call(transport, frames);
}

// Responses to requests in the gateway's own frames: a request through the client costs as much as a hundred events in flight.

/** A pending request. */
type PendingReply = PromiseWithResolvers<Msg>;

/** The pending requests of one connection. */
class Inbox {
  readonly #connection: NatsConnection;
  readonly #address = createInbox();
  readonly #pending = new Map<string, PendingReply>();
  #requests = 0;
  #open: Promise<void> | undefined;

  /** Subscribes on `open`, not earlier: users that make no requests may lack the permission. */
  constructor(connection: NatsConnection) {
    this.#connection = connection;
    void connection.closed().then((cause) => this.fail(cause ?? new Error("the connection was closed")));
  }

  /** Subscribes. Resolves when the server has the subscription, so that later requests can be answered. */
  open(): Promise<void> {
    this.#open ??= this.#listen();
    return this.#open;
  }

  /** Returns a reply subject and its response. Rejects on timeout, or if the request has no subscriber. */
  next(): { address: string; answer: Promise<Msg> } {
    const address = `${this.#address}.${this.#requests++}`;
    const waiting: PendingReply = Promise.withResolvers();
    this.#pending.set(address, waiting);
    if (this.#connection.isClosed()) waiting.reject(new Error("the connection is closed"));
    const forget = after(ANSWER_MS, () => waiting.reject(new Error("NATS did not respond in time")));
    const answer = waiting.promise.finally(() => {
      forget();
      this.#pending.delete(address);
    });
    // If the request failed to leave, nothing awaits the response.
    answer.catch(() => {});
    return { address, answer };
  }

  /** Fails all pending requests. */
  fail(cause: Error): void {
    for (const { reject } of this.#pending.values()) reject(cause);
  }

  #listen(): Promise<void> {
    this.#connection.subscribe(`${this.#address}.*`, {
      callback: (error, message) => {
        if (error) return this.fail(error);
        const waiting = this.#pending.get(message.subject);
        // The server's status for a request without a subscriber.
        if (message.data.length === 0 && message.headers?.code === 503)
          waiting?.reject(new Error("the request has no subscriber"));
        else waiting?.resolve(message);
      },
    });
    return this.#connection.flush();
  }
}
