/** A connection to NATS for as long as it lasts. One that was lost stays lost: whatever it had not sent is never sent later. */
import { deadline, type NatsConnection } from "nats";
import { BRAND } from "../../brand.ts";
import { sleep } from "../../clock.ts";
import type { EventRecord } from "../../store/events/outbox.ts";
import { natsAddress } from "./address.ts";
import { ANSWER_MS, dial } from "./connect.ts";
import { Frames, type Send, sendOf } from "./frames.ts";
import { Inbox } from "./inbox.ts";
import { RelayTurns, type RelayTurnsDeps } from "./relay-turns.ts";

/** Subjects that are remembered. */
const MOST_REMEMBERED = 10_000;

/** The subject on which JetStream answers which streams keep a subject. */
const namesIn = (domain: string | undefined): string =>
  domain === undefined ? "$JS.API.STREAM.NAMES" : `$JS.${domain}.API.STREAM.NAMES`;

/** The part of a subject in place of the organisation, for an event that concerns none. */
const OPERATOR = "operator";

/** The subject of the events of one organisation and one name. */
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
  /** By organisation, then by name. */
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
