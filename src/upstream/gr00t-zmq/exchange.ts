/**
 * ZeroMQ towards one Isaac-GR00T server, by an own REQ peer: no native code, a limit on every frame, and calls that can be aborted.
 * The server does one thing at a time, and so does the connection. It is closed when the call that waits for an answer is aborted.
 */
import { connect, type Socket } from "node:net";
import type { Signal } from "../../cancellation.ts";
import { after } from "../../clock.ts";
import { passed } from "../../codecs/passing.ts";
import { GREETING, pong, READY, requestHead, ZmtpReader } from "../../codecs/zmtp.ts";
import type { UpstreamFailure } from "../../contracts/contract.ts";
import { calledOff, failureOf, lost, malformed } from "../transport/failures.ts";
import { type Address, MAX_MESSAGE_BYTES, type UpstreamServer } from "../transport/servers.ts";
import { Turns } from "../transport/turns.ts";
import type { Speech } from "./speech.ts";

const DEFAULT_PORT = 5_555;
const IDLE_MS = 60_000;
/** Episodes that are remembered as begun. */
const MAX_EPISODES = 1_024;

/** The one connection to a server, opened when it's needed and again when it has gone. */
export class ZmqChannel implements UpstreamServer {
  readonly #address: Address;
  readonly #turns = new Turns();
  readonly #begun = new Set<string>();
  /** How the server speaks, where it is known: forgotten with the connection, for another may listen there then. */
  speech: Speech | undefined;
  #peer: ZmqPeer | undefined;

  constructor(address: Address) {
    this.#address = address;
  }

  get idle(): boolean {
    return this.#peer === undefined && this.#turns.free;
  }

  /** Sends a message, and resolves with its answer. Rejects with an UpstreamFailure. */
  exchange(message: Buffer, signal: Signal): Promise<Buffer> {
    return this.converse(signal, (send) => send(message));
  }

  /** Sends messages that nothing comes between, each when the one before is answered. Rejects as `talk` does. */
  converse<T>(signal: Signal, talk: (send: (message: Buffer) => Promise<Buffer>) => Promise<T>): Promise<T> {
    return this.#turns.run(signal, () => talk((message) => this.#open().exchange(message, signal)));
  }

  /** Whether this episode's begin was not sent yet; from now on it counts as sent. */
  begins(episode: string): boolean {
    if (this.#begun.has(episode)) return false;
    const [oldest] = this.#begun;
    if (this.#begun.size >= MAX_EPISODES && oldest !== undefined) this.#begun.delete(oldest);
    this.#begun.add(episode);
    return true;
  }

  close(): void {
    this.#peer?.fail(lost("the gateway closes its connections"));
  }

  #open(): ZmqPeer {
    this.#peer ??= new ZmqPeer(this.#address, () => {
      this.#peer = undefined;
      this.speech = undefined;
    });
    return this.#peer;
  }
}

/** One socket, and the call that waits for its next message. */
class ZmqPeer {
  readonly #socket: Socket;
  readonly #onClosed: () => void;
  #failure: UpstreamFailure | undefined;
  #isReady = false;
  /** What is sent as soon as the peer is ready. */
  #held: Buffer | undefined;
  #waiting: { resolve(message: Buffer): void; reject(failure: UpstreamFailure): void } | undefined;
  #forgetIdle: () => void = () => undefined;

  /** `onClosed` is called once, when the connection is of no more use. */
  constructor({ url, lookup }: Address, onClosed: () => void) {
    this.#onClosed = onClosed;
    const host = url.hostname.replace(/^\[|\]$/g, "");
    this.#socket = connect({ host, port: Number(url.port || DEFAULT_PORT), lookup });
    this.#socket.setNoDelay(true).setKeepAlive(true, 30_000);
    const reader = new ZmtpReader(MAX_MESSAGE_BYTES, {
      onGreeting: () => void this.#socket.write(READY),
      onCommand: (name, data) => this.#command(name, data),
      onMessage: (body) => this.#receive(body),
    });
    this.#socket.on("data", (chunk) => {
      passed(chunk.length);
      try {
        reader.push(chunk);
      } catch (error) {
        this.fail(failureOf(error));
      }
    });
    this.#socket.on("error", (error) => this.fail(failureOf(error)));
    this.#socket.on("close", () => this.fail(lost("the server hung up")));
    this.#socket.write(GREETING);
  }

  exchange(message: Buffer, signal: Signal): Promise<Buffer> {
    this.#forgetIdle();
    return new Promise((resolve, reject) => {
      if (this.#failure !== undefined) return reject(this.#failure);
      if (signal.aborted) return reject(calledOff(signal));
      const leave = (): void => this.fail(calledOff(signal));
      const done = (): void => {
        this.#waiting = undefined;
        signal.removeEventListener("abort", leave);
      };
      signal.addEventListener("abort", leave, { once: true });
      this.#waiting = {
        resolve: (answer) => {
          done();
          this.#forgetIdle = after(IDLE_MS, () => this.fail(lost("unused for too long")));
          resolve(answer);
        },
        reject: (failure) => {
          done();
          reject(failure);
        },
      };
      if (this.#isReady) this.#send(message);
      else this.#held = message;
    });
  }

  /** The first failure ends the connection: an answer may be lost, and a later one could be taken for it. */
  fail(failure: UpstreamFailure): void {
    if (this.#failure !== undefined) return;
    this.#failure = failure;
    this.#forgetIdle();
    this.#onClosed();
    this.#waiting?.reject(failure);
    this.#socket.destroy();
  }

  #command(name: string, data: Buffer): void {
    if (name === "PING")
      this.#socket.write(pong(data.subarray(2))); // behind the time that it allows
    else if (name === "ERROR") this.fail(malformed("the server refused the handshake"));
    else if (name === "READY") {
      this.#isReady = true;
      if (this.#held !== undefined) this.#send(this.#held);
      this.#held = undefined;
    }
  }

  #send(message: Buffer): void {
    passed(message.length);
    this.#socket.cork();
    this.#socket.write(requestHead(message.length));
    this.#socket.write(message);
    this.#socket.uncork();
  }

  #receive(body: Buffer): void {
    if (this.#waiting === undefined || !this.#isReady) this.fail(malformed("a message that nobody asked for"));
    else this.#waiting.resolve(body);
  }
}
