/**
 * Connections of the openpi wire: WebSockets with strictly alternating requests and answers, without ids. A connection whose call was aborted is
 * closed, because its next frame would be matched with another request.
 */
import { type ClientRequestArgs, get as getHttp, type IncomingMessage } from "node:http";
import { get as getHttps } from "node:https";
import { type ClientOptions, type RawData, WebSocket } from "ws";
import { BRAND } from "../../brand.ts";
import { nativeOf, type Signal } from "../../cancellation.ts";
import { after } from "../../clock.ts";
import { pathsUnder } from "../../codecs/base-address.ts";
import { passed } from "../../codecs/passing.ts";
import type { MsgpackBudget } from "../../codecs/python/msgpack.ts";
import { WEBSOCKET_PIECES } from "../../codecs/websocket.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import {
  calledOff,
  failureOf,
  failureOfClose,
  failureOfStatus,
  lost,
  malformed,
  toldFailure,
} from "../transport/failures.ts";
import { AddressRefused } from "../transport/guard.ts";
import { type Address, MAX_MESSAGE_BYTES, type UpstreamServer } from "../transport/servers.ts";
import { isResetDone, type Metadata } from "./messages.ts";

/** Connections to one server, and calls that wait for one of them. */
const MAX_CONNECTIONS = 256;
const MAX_WAITING = 256;
/** Concurrent calls: of one session, which a server may identify by its connection, and of all calls without a session. */
const LANE = { session: 1, anonymous: 8 } as const;
/** The request buffer of a connection: three cameras at 224 by 224 use less than half of it. */
const MAX_SCRATCH_BYTES = 1 << 20;
/** Shorter than vLLM-Omni's 30 s, so that the server never closes the connection during a call. */
const IDLE_MS = 25_000;

/** The handshake of a connection, for servers of this wire and of related ones. `T` is the server's description of itself. */
interface Greeting<T> {
  /** The client's first message; undefined if the server sends first. */
  readonly hello: Buffer | undefined;
  /** Reads the server's first frame. Throws an UpstreamFailure. */
  readonly read: (frame: Buffer) => T;
  /** Whether a request announces the start of its episode. Other servers keep their state per connection. */
  readonly tellsEpisodes: boolean;
}

/** One request, until its connection is available. */
interface OpenpiRequest<T = Metadata> {
  /**
   * Writes the request as the server's metadata require, into the connection's own buffer, preceded by messages that get no response.
   * `isFirst`: nothing was sent on this connection before, or not in this episode.
   */
  readonly encode: (told: T, room: MsgpackBudget, isFirst: boolean) => Promise<Buffer | readonly Buffer[]>;
  /** Sends queries that must precede the request; each is answered by one frame. `isFirst` as above. */
  readonly admit?: (told: T, ask: (frame: Buffer) => Promise<Buffer>, isFirst: boolean) => Promise<void>;
  /** Sent before the first request of each episode, on every connection; the server confirms it. */
  readonly opening: Buffer | undefined;
  /** Names the session's episode; absent if the session has only one. */
  readonly episode?: string | undefined;
  readonly signal: Signal;
}

/** All connections to one server with one credential. */
export class OpenpiPool<T = Metadata> implements UpstreamServer {
  readonly #address: Address;
  readonly #greeting: Greeting<T>;
  /** The parameters sent on its newest connection; undefined before the first. */
  #told: T | undefined;
  /** Least recently used first. */
  readonly #connections = new Set<OpenpiConnection<T>>();
  readonly #waiting: OpenpiWaiter<T>[] = [];

  constructor(address: Address, greeting: Greeting<T>) {
    this.#address = address;
    this.#greeting = greeting;
  }

  get idle(): boolean {
    return this.#connections.size === 0;
  }

  /**
   * Sends one request and resolves with its answer, on the session's own connection. Rejects with an UpstreamFailure. An aborted call closes its
   * connection, because the protocol has no cancellation.
   */
  exchange(session: string | undefined, request: OpenpiRequest<T>): Promise<Buffer> {
    this.#leaveEpisode(session, request);
    return this.#on(session, request.signal, (connection) => connection.exchange(request));
  }

  /** Closes a session's connection of another episode, if the server does not receive episode starts. */
  #leaveEpisode(session: string | undefined, { opening, episode }: OpenpiRequest<T>): void {
    if (session === undefined || opening !== undefined || this.#greeting.tellsEpisodes) return;
    for (const connection of this.#connections)
      if (connection.session === session && !connection.isOf(episode)) connection.close();
  }

  /** The server's description at the last connection; undefined if it was never connected. */
  get told(): T | undefined {
    return this.#told;
  }

  /** Resolves with the metadata that the server sends when a connection opens. Rejects with an UpstreamFailure. */
  metadata(signal: Signal): Promise<T> {
    return this.#on(undefined, signal, (connection) => connection.metadata(signal));
  }

  async #on<A>(
    session: string | undefined,
    signal: Signal,
    use: (connection: OpenpiConnection<T>) => Promise<A>,
  ): Promise<A> {
    if (signal.aborted) throw calledOff(signal);
    const connection = this.#take(session) ?? (await this.#wait(session, signal));
    try {
      return await use(connection);
    } finally {
      this.#release(connection);
    }
  }

  close(): void {
    for (const waiter of this.#waiting.splice(0)) waiter.reject(lost("the gateway is shutting down"));
    for (const connection of this.#connections) connection.close();
  }

  /** Returns a connection that now belongs to the caller; undefined if it must wait. */
  #take(session: string | undefined): OpenpiConnection<T> | undefined {
    let inLane = 0;
    let unused: OpenpiConnection<T> | undefined;
    for (const connection of this.#connections) {
      const mine = connection.session === session;
      if (mine && !connection.busy) return connection.occupy();
      if (mine) inLane++;
      else if (!connection.busy) unused ??= connection;
    }
    if (inLane >= (session === undefined ? LANE.anonymous : LANE.session)) return undefined;
    if (this.#connections.size >= MAX_CONNECTIONS && unused === undefined) return undefined;
    if (this.#connections.size >= MAX_CONNECTIONS) unused?.close();
    return this.#open(session);
  }

  #open(session: string | undefined): OpenpiConnection<T> {
    const connection = new OpenpiConnection(this.#address, this.#greeting, session, {
      greeted: (told) => {
        this.#told = told;
      },
      closed: () => {
        this.#connections.delete(connection);
        this.#serve();
      },
    });
    this.#connections.add(connection);
    return connection.occupy();
  }

  #release(connection: OpenpiConnection<T>): void {
    if (!this.#connections.delete(connection)) return;
    this.#connections.add(connection);
    connection.rest();
    this.#serve();
  }

  #wait(session: string | undefined, signal: Signal): Promise<OpenpiConnection<T>> {
    if (this.#waiting.length >= MAX_WAITING) {
      throw new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, "too many calls are queued for this server");
    }
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        this.#waiting.splice(this.#waiting.indexOf(waiter), 1);
        reject(calledOff(signal));
      };
      const waiter: OpenpiWaiter<T> = {
        session,
        resolve: (connection) => {
          signal.removeEventListener("abort", leave);
          resolve(connection);
        },
        reject: (failure) => {
          signal.removeEventListener("abort", leave);
          reject(failure);
        },
      };
      signal.addEventListener("abort", leave, { once: true });
      this.#waiting.push(waiter);
    });
  }

  /** Assigns free connections to waiting calls, in order. */
  #serve(): void {
    for (const waiter of [...this.#waiting]) {
      const connection = this.#take(waiter.session);
      if (connection === undefined) continue;
      this.#waiting.splice(this.#waiting.indexOf(waiter), 1);
      waiter.resolve(connection);
    }
  }
}

interface OpenpiWaiter<T> {
  readonly session: string | undefined;
  readonly resolve: (connection: OpenpiConnection<T>) => void;
  readonly reject: (failure: UpstreamFailure) => void;
}

/** A pool's callbacks for a connection, each called once. */
interface OpenpiEvents<T> {
  greeted(told: T): void;
  /** The connection is unusable. */
  closed(): void;
}

/** One WebSocket, and the call that waits for its next frame. */
class OpenpiConnection<T> {
  readonly session: string | undefined;
  readonly #socket: WebSocket;
  readonly #greeting: Greeting<T>;
  readonly #events: OpenpiEvents<T>;
  #busy = false;
  #metadata: T | undefined;
  /** The session of the last sent request; null before the first. */
  #episode: string | undefined | null = null;
  #opened = false;
  #takesText = false;
  #scratch: Buffer = Buffer.alloc(0);
  #failure: UpstreamFailure | undefined;
  #listener: { resolve(frame: Frame): void; reject(failure: UpstreamFailure): void } | undefined;
  #forgetIdle: () => void = () => undefined;

  constructor(address: Address, greeting: Greeting<T>, session: string | undefined, events: OpenpiEvents<T>) {
    this.session = session;
    this.#greeting = greeting;
    this.#events = events;
    this.#socket = new WebSocket(address.url, optionsFor(address));
    const { hello } = greeting;
    if (hello !== undefined) this.#socket.on("open", () => this.#socket.send(hello));
    this.#socket.on("message", (data, isBinary) => this.#receive(data, isBinary));
    this.#socket.on("unexpected-response", (_, response) => this.#fail(upgradeFailure(response)));
    this.#socket.on("error", (error) => this.#fail(socketFailure(error)));
    this.#socket.on("close", (code) => this.#fail(failureOfClose(code)));
  }

  get busy(): boolean {
    return this.#busy;
  }

  /** Whether it was only used in this episode. */
  isOf(episode: string | undefined): boolean {
    return this.#episode === null || this.#episode === episode;
  }

  occupy(): this {
    this.#busy = true;
    this.#forgetIdle();
    return this;
  }

  rest(): void {
    this.#busy = false;
    this.#forgetIdle = after(IDLE_MS, () => this.close());
  }

  metadata(signal: Signal): Promise<T> {
    return this.#guarded(() => this.#greeted(signal));
  }

  exchange({ admit, encode, opening, episode, signal }: OpenpiRequest<T>): Promise<Buffer> {
    return this.#guarded(async () => {
      const told = await this.#greeted(signal);
      const isFirst = this.#episode !== episode;
      await admit?.(told, (frame) => this.#asked(frame, signal), isFirst);
      const frames = await encode(told, this.#room, isFirst);
      if (signal.aborted) throw calledOff(signal);
      if (opening !== undefined && (isFirst || !this.#opened)) await this.#begin(opening, signal);
      this.#episode = episode;
      for (const frame of Buffer.isBuffer(frames) ? [frames] : frames) this.#send(frame);
      return (await this.#frame(signal)).bytes;
    });
  }

  #send(frame: Buffer): void {
    // Masking copies the bytes.
    passed(frame.length);
    this.#socket.send(frame);
  }

  async #asked(frame: Buffer, signal: Signal): Promise<Buffer> {
    if (signal.aborted) throw calledOff(signal);
    this.#send(frame);
    return (await this.#frame(signal)).bytes;
  }

  async #guarded<A>(work: () => Promise<A>): Promise<A> {
    try {
      return await work();
    } catch (error) {
      // An encoder that throws has probably sent nothing, but a new connection is safe at a low cost.
      this.#fail(failureOf(error));
      throw error;
    }
  }

  async #greeted(signal: Signal): Promise<T> {
    if (this.#metadata === undefined) {
      this.#metadata = this.#greeting.read((await this.#frame(signal)).bytes);
      this.#events.greeted(this.#metadata);
    }
    return this.#metadata;
  }

  /** Only here can a text be anything but an error. */
  async #begin(opening: Buffer, signal: Signal): Promise<void> {
    this.#takesText = true;
    this.#socket.send(opening);
    const { bytes, isBinary } = await this.#frame(signal);
    this.#takesText = false;
    if (isResetDone(bytes, isBinary)) this.#opened = true;
    else throw isBinary ? malformed("the server did not respond to a reset") : told(bytes);
  }

  close(): void {
    this.#fail(lost("closed by the gateway"));
  }

  /** Buffers one request at a time: the previous one was answered, so it has been sent completely. */
  readonly #room: MsgpackBudget = (bytes) => {
    if (bytes > MAX_SCRATCH_BYTES) return Buffer.allocUnsafe(bytes);
    if (bytes > this.#scratch.length) this.#scratch = Buffer.allocUnsafeSlow(bytes);
    return this.#scratch.subarray(0, bytes);
  };

  /** Resolves with the server's next frame. */
  #frame(signal: Signal): Promise<Frame> {
    return new Promise((resolve, reject) => {
      if (this.#failure !== undefined) return reject(this.#failure);
      if (signal.aborted) return reject(calledOff(signal));
      const leave = (): void => this.#fail(calledOff(signal));
      const done = (): void => {
        this.#listener = undefined;
        signal.removeEventListener("abort", leave);
      };
      signal.addEventListener("abort", leave, { once: true });
      this.#listener = {
        resolve: (frame) => {
          done();
          resolve(frame);
        },
        reject: (failure) => {
          done();
          reject(failure);
        },
      };
    });
  }

  #receive(data: RawData, isBinary: boolean): void {
    const bytes = data as Buffer; // the default `binaryType`
    passed(bytes.length);
    if (!isBinary && !this.#takesText) this.#fail(told(bytes));
    else if (this.#listener === undefined) this.#fail(malformed("the server sent an unrequested frame"));
    else this.#listener.resolve({ bytes, isBinary });
  }

  /** The first failure closes the connection: an answer may be lost, and a later one could be matched with the wrong request. */
  #fail(failure: UpstreamFailure): void {
    if (this.#failure !== undefined) return;
    this.#failure = failure;
    this.#forgetIdle();
    this.#listener?.reject(failure);
    this.#socket.terminate();
    this.#events.closed();
  }
}

/** An error without a code is `ws`'s own, for an upgrade that violates the protocol. */
const socketFailure = (error: Error): UpstreamFailure =>
  "code" in error || error instanceof AddressRefused ? failureOf(error) : malformed(error.message, error);

/** No pings: a server that runs inference on its event loop cannot answer them. No compression: openpi offers none. */
function optionsFor({ lookup, authorization }: Address): ClientOptions & ClientRequestArgs {
  return {
    lookup,
    perMessageDeflate: false,
    followRedirects: false,
    maxPayload: MAX_MESSAGE_BYTES,
    ...WEBSOCKET_PIECES,
    headers: headersFor(authorization),
  };
}

const headersFor = (authorization: string | undefined): Record<string, string> => ({
  "user-agent": BRAND,
  ...(authorization !== undefined && { authorization }),
});

function upgradeFailure({ statusCode = 0 }: Pick<IncomingMessage, "statusCode">): UpstreamFailure {
  return failureOfStatus(statusCode);
}

/** Handles one message of the server. */
interface Frame {
  readonly bytes: Buffer;
  readonly isBinary: boolean;
}

/** A text is a traceback. */
const told = (text: Buffer): UpstreamFailure => toldFailure(tailOf(text));

/** Only the end of a traceback is shown, which can be megabytes long. */
const tailOf = (text: Buffer): string => text.subarray(-4_096).toString("utf8");

/** The status of servers without `/healthz`, which shows that they are alive. */
const UPGRADE_REQUIRED = 426;

const refusedAt = (at: URL, statusCode: number): UpstreamFailure =>
  Object.assign(upgradeFailure({ statusCode }), { address: at.origin + at.pathname });

/**
 * Resolves when the server's health check passes, which an openpi server cannot answer during inference. Rejects with an UpstreamFailure.
 * For a server behind a path, that path is tried first, then the root.
 */
export async function requestHealth(
  { url, lookup, authorization }: Address,
  signal: Signal,
  health: `/${string}` = "/healthz",
): Promise<void> {
  const get = url.protocol === "wss:" ? getHttps : getHttp;
  const statusAt = (at: URL): Promise<number> =>
    new Promise((resolve, reject) => {
      const fail = (error: unknown): void => reject(signal.aborted ? calledOff(signal) : failureOf(error));
      get(at, { lookup, signal: nativeOf(signal), agent: false, headers: headersFor(authorization) }, (response) => {
        response.destroy();
        resolve(response.statusCode ?? 0);
      }).on("error", fail);
    });
  // A server may have the route at the root instead of its own path. One without it that requires an upgrade is alive.
  let [failure, isAlive]: [UpstreamFailure | undefined, boolean] = [undefined, false];
  for (const path of new Set([...pathsUnder(url.pathname, health), health])) {
    const at = new URL(url.href.replace(/^ws/, "http"));
    at.pathname = path;
    const status = await statusAt(at);
    if (status === 200) return;
    if (status === UPGRADE_REQUIRED) isAlive = true;
    else if (status === 404) failure ??= refusedAt(at, status);
    else throw refusedAt(at, status);
  }
  if (!isAlive) throw failure;
}
