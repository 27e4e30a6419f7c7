/** A connection to NATS for as long as it lasts. One that was lost stays lost: whatever it had not sent is never sent later. */
import { createInbox, deadline, type Msg, type NatsConnection } from "nats";
import { BRAND } from "../../brand.ts";
import { after, sleep } from "../../clock.ts";
import type { EventRecord } from "../../store/events/outbox.ts";
import { ANSWER_MS, dial, natsAddress } from "./connect.ts";
import { RelayTurns, type RelayTurnsDeps } from "./leadership.ts";

/** Subjects that are remembered. */
const MOST_REMEMBERED = 10_000;

/** The subject on which JetStream answers which streams keep a subject. */
const namesIn = (domain: string | undefined): string =>
  domain === undefined ? "$JS.API.STREAM.NAMES" : `$JS.${domain}.API.STREAM.NAMES`;

/** The part of a subject in place of the organization, for an event that concerns none. */
const OPERATOR = "operator";

/** The subject of the events of one organization and one name. */
interface LinkState {
  /** `limber.v1.<org>.<event.name>`. */
  readonly subject: string;
  /** The stream that keeps it, where it had one. One that is gone meanwhile refuses, and with that the connection is given up. */
  stream: string | undefined;
}

/** Some events of a batch, one after the other, which go to one stream or to none. */
interface LinkRun {
  readonly stream: string | undefined;
  readonly from: number;
  readonly to: number;
}

/** The headers of an event; with `before`, that it follows that one. */
const headOf = ({ id }: EventRecord, before?: EventRecord): string =>
  before === undefined
    ? `content-type: application/protobuf\r\nNats-Msg-Id: ${id}\r\n`
    : `content-type: application/protobuf\r\nNats-Msg-Id: ${id}\r\nNats-Expected-Last-Msg-Id: ${before.id}\r\n`;

/** A connection that was made. */
export class NatsLink {
  readonly #connection: NatsConnection;
  readonly #send: Send;
  readonly #frames = new Frames();
  readonly #inbox: Inbox;
  /** Resolves when it was lost or closed. */
  readonly over: Promise<unknown>;
  #refusal: Error | undefined;
  #turns: RelayTurns | undefined;
  /** By organization, then by name. */
  readonly #ways = new Map<string, Map<string, LinkState>>();
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

  /** Connects to `url` once; user and password may stand in it, a user alone is a token. Rejects when that fails. */
  static async dial(url: string): Promise<NatsLink> {
    return new NatsLink(await dial(url), natsAddress(url).domain);
  }

  get isOver(): boolean {
    return this.#connection.isClosed();
  }

  /**
   * Publishes events in order. Resolves when every stream that listens to their subjects has stored them, and the server has all
   * others. Rejects as soon as that fails, with nothing that a stream stores after what it refused. One batch at a time.
   */
  async publish(events: readonly EventRecord[]): Promise<void> {
    // All that was sent before has been answered.
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
      // A server refuses a publication before it answers the flush, and the client reports it in a later turn of the event loop.
      await sleep(0);
    }
    if (this.#refusal) throw this.#refusal;
  }

  /** Takes part in who relays, over this connection. Once. */
  takeTurns(deps: RelayTurnsDeps): RelayTurns {
    this.#turns = new RelayTurns(this.#connection, deps);
    return this.#turns;
  }

  /** Closes it. What was published before is with the server or lost. */
  async close(): Promise<void> {
    if (!this.isOver) await deadline(this.#connection.flush(), ANSWER_MS).catch(() => {});
    await this.#connection.close();
  }

  async #watch(): Promise<void> {
    for await (const status of this.#connection.status()) {
      if (status.type !== "error" || this.#turns?.takes(status.error)) continue;
      this.#refusal ??= status.error;
      this.#inbox.fail(status.error);
    }
  }

  #waysOf(events: readonly EventRecord[]): LinkState[] {
    if (this.#remembered > MOST_REMEMBERED) {
      this.#ways.clear();
      this.#remembered = 0;
    }
    return events.map(({ orgId, name }) => {
      const org = orgId ?? OPERATOR;
      return this.#ways.get(org)?.get(name) ?? this.#remember(org, name);
    });
  }

  #remember(org: string, name: string): LinkState {
    const names = this.#ways.get(org) ?? new Map<string, LinkState>();
    const way = { subject: `${BRAND}.v1.${org}.${name}`, stream: undefined };
    this.#ways.set(org, names.set(name, way));
    this.#remembered += 1;
    return way;
  }

  /** Asks which streams of JetStream keep the subjects of which none is known to. */
  async #lookUp(ways: readonly LinkState[]): Promise<void> {
    if (!this.#connection.info?.jetstream && this.#domain === undefined) return;
    const unknown = new Set<LinkState>();
    for (const way of ways) if (way.stream === undefined) unknown.add(way);
    if (unknown.size === 0) return;
    await Promise.all(
      [...unknown].map(async (way) => {
        const answer = await this.#ask(namesIn(this.#domain), JSON.stringify({ subject: way.subject }));
        if (answer.error && !NO_JETSTREAM.has(answer.error.err_code)) throw new Error(answer.error.description);
        way.stream = answer.streams?.[0];
      }),
    );
  }

  /**
   * Has a stream store events in order. They go as a chain, each to be stored only after the one before it, so that the answer for the last
   * holds for all. Where the chain breaks (others write to the stream too, or some were stored earlier), one after the other, each
   * with its own answer; what is stored already is known by its id.
   */
  async #store(events: readonly EventRecord[], ways: readonly LinkState[], { from, to }: LinkRun): Promise<void> {
    if (to - from > 1 && (await this.#storeChained(events, ways, { from, to }))) return;
    for (let i = from; i < to; i++) {
      const [event, { subject }] = [events[i]!, ways[i]!];
      const { error, stream } = await this.#ask(subject, event.payload, headOf(event));
      // A stream that refuses names itself all the same.
      if (error || stream === undefined) throw new Error(error?.description ?? `no stream answers for ${subject}`);
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
    const { error, stream, duplicate } = await this.#ask(
      ways[to - 1]!.subject,
      last.payload,
      headOf(last, events[to - 2]),
    );
    // An event that was stored before proves nothing about those in between.
    return !error && stream !== undefined && !duplicate;
  }

  /** Sends a message that is answered, and all frames that were added before, in one write. */
  async #ask(subject: string, payload: Uint8Array | string, head = ""): Promise<StreamAnswer> {
    await this.#inbox.open();
    const { address, answer } = this.#inbox.next();
    this.#frames.add(`${subject} ${address}`, head, typeof payload === "string" ? Buffer.from(payload) : payload);
    this.#send(this.#frames.take());
    return (await answer).json<StreamAnswer>();
  }
}

/** The order of all stays. */
function runsOf(ways: readonly LinkState[]): LinkRun[] {
  const runs: LinkRun[] = [];
  for (let from = 0, to = 0; from < ways.length; from = to) {
    const { stream } = ways[from]!;
    while (to < ways.length && ways[to]!.stream === stream) to++;
    runs.push({ stream, from, to });
  }
  return runs;
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

// Messages as the protocol of NATS has them on the wire, many behind each other in one buffer: what its client does for each alone costs
// more than all else that is done for a message.

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
type Send = (frames: Uint8Array) => void;

/**
 * The client's own method of writing to its socket, which is private. What is sent by it goes before all that the client is asked for later.
 * Throws where this version of the client has none.
 */
function sendOf(connection: NatsConnection): Send {
  const { protocol }: { protocol?: { transport?: { send?: unknown } } } = connection as object;
  const transport = protocol?.transport;
  if (typeof transport?.send !== "function") throw new TypeError("this client of NATS sends no bytes as they are");
  const { send } = transport;
  return (frames) => void send.call(transport, frames);
}

// The answers of NATS to requests in own frames (`frames.ts`): what the client does for each request costs as much as a
// hundred events in flight.

/** The request that waits for one answer. */
type PendingReply = PromiseWithResolvers<Msg>;

/** The answers of one connection. */
class Inbox {
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
