/** A connection that opens when it's needed and again when it has gone, not at once when that keeps failing. */
import { connect as connectTcp, isIP, type OnReadOpts, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { after, steadyNow } from "../../clock.ts";
import type { UpstreamFailure } from "../../contracts/failure.ts";
import { random } from "../../random.ts";
import { lost, unreachable } from "../../upstream/transport/failures.ts";
import type { Address } from "../../upstream/transport/servers.ts";
import { countArrived } from "../collector.ts";
import { ClientSession } from "./session.ts";
import type { Stream, StreamHearer } from "./stream.ts";

/** From the first packet to the server's first frame: a server that infers in its event loop is slow to greet. */
const CONNECT_MS = 10_000;
const IDLE_MS = 5 * 60_000;
/** A call that ran out of time asks whether the connection still lives; without an answer in this time it's given up. */
const PROOF_OF_LIFE_MS = 10_000;
const BACKOFF = { firstMs: 25, mostMs: 1_000 } as const;
const KEEP_ALIVE_MS = 30_000;

/** The sessions to one server: at most one takes new streams, others may be ending. */
export class ClientConnection {
  readonly #address: Address;
  readonly #onIdle: () => void;
  readonly #sessions = new Set<ClientSession>();
  #session: ClientSession | undefined;
  #isGreeted = false;
  #usedAt = 0;
  #failures = 0;
  #notBefore = 0;
  #lastFailure: UpstreamFailure | undefined;
  #forgetAsked: (() => void) | undefined;

  /** `onIdle` ends what would keep an unused session open. */
  constructor(address: Address, onIdle: () => void) {
    this.#address = address;
    this.#onIdle = onIdle;
  }

  get idle(): boolean {
    return this.#sessions.size === 0 && steadyNow() >= this.#notBefore;
  }

  /** Opens a stream, on a new session if need be; `block` are its header fields. Throws an UpstreamFailure while none may be opened. */
  open(block: Buffer, hearer: StreamHearer): Stream {
    const session = this.#session?.takesStreams ? this.#session : this.#connect();
    this.touch();
    return session.open(block, hearer);
  }

  /** Marks the connection as used, by a stream that is already open. */
  touch(): void {
    this.#usedAt = steadyNow();
  }

  /** Gives the session up unless it answers a ping soon. */
  proveLife(): void {
    const session = this.#session;
    if (session === undefined || !this.#isGreeted || this.#forgetAsked !== undefined) return;
    this.#forgetAsked = after(PROOF_OF_LIFE_MS, () => session.destroy(lost("the connection is silent")));
    session.ping(() => this.#hasLife());
  }

  /** Ends everything at once. */
  close(): void {
    for (const session of this.#sessions) session.destroy(lost("the connection was closed"));
  }

  #hasLife(): void {
    this.#forgetAsked?.();
    this.#forgetAsked = undefined;
  }

  #connect(): ClientSession {
    if (steadyNow() < this.#notBefore && this.#lastFailure !== undefined) throw this.#lastFailure;
    let isGreeted = false;
    const isSecure = this.#address.url.protocol === "https:";
    const session = new ClientSession((hear) => dial(this.#address, hear), isSecure ? "secureConnect" : "connect", {
      greeted: () => {
        isGreeted = true;
        if (this.#session === session) this.#isGreeted = true;
        this.#failures = 0;
        forget();
      },
      closed: (failure) => {
        forget();
        forgetIdle();
        this.#sessions.delete(session);
        if (this.#session === session) this.#left();
        if (!isGreeted && failure) this.#backOff(failure);
      },
    });
    const forget = after(CONNECT_MS, () => session.destroy(unreachable("no connection in time")));
    const closeIfIdle = (): void => {
      const left = this.#usedAt + IDLE_MS - steadyNow();
      if (left > 0) {
        forgetIdle = after(left, closeIfIdle);
      } else {
        session.close();
        this.#onIdle();
      }
    };
    let forgetIdle = after(IDLE_MS, closeIfIdle);
    this.#left();
    this.#session = session;
    this.#sessions.add(session);
    return session;
  }

  /** Nothing that is known of the session matters any more. */
  #left(): void {
    this.#session = undefined;
    this.#isGreeted = false;
    this.#hasLife();
  }

  #backOff(failure: UpstreamFailure): void {
    const longest = Math.min(BACKOFF.mostMs, BACKOFF.firstMs * 2 ** this.#failures++);
    this.#notBefore = steadyNow() + longest * (0.5 + random() / 2);
    this.#lastFailure = failure;
  }
}

const DEFAULT_PORT: Readonly<Record<string, number>> = { "http:": 80, "https:": 443 };

function dial({ url, lookup }: Address, hear: (chunk: Buffer) => boolean): Socket {
  const host = url.hostname.replace(/^\[|\]$/g, "");
  const to = { host, port: Number(url.port || DEFAULT_PORT[url.protocol]), lookup, onread: intoBlocks(hear) };
  const socket =
    url.protocol === "https:"
      ? connectTls({ ...to, ALPNProtocols: ["h2"], ...(isIP(host) === 0 && { servername: host }) })
      : connectTcp(to);
  return socket.setKeepAlive(true, KEEP_ALIVE_MS);
}

/**
 * Arriving bytes are read into blocks that many small reads share: a block for each would cost more than its message. Bytes that no
 * receiver keeps, as parts of large messages that are copied together elsewhere, leave their room to the next ones.
 */
const BLOCK_BYTES = 64 << 10;
const LEAST_BYTES = 16 << 10;

function intoBlocks(hear: (chunk: Buffer) => boolean): OnReadOpts {
  let block = Buffer.allocUnsafeSlow(BLOCK_BYTES);
  let read = 0;
  return {
    buffer: () => {
      if (block.length - read >= LEAST_BYTES) return block.subarray(read);
      read = 0;
      countArrived(BLOCK_BYTES);
      block = Buffer.allocUnsafeSlow(BLOCK_BYTES);
      return block;
    },
    callback: (bytes) => {
      if (hear(block.subarray(read, read + bytes))) read += bytes;
      return true;
    },
  };
}
