/** The requests of one connection that pass over the bridge to node:http2, and what their answers still have to send. */
import type { Duplex } from "node:stream";
import { CODE, FRAME } from "../http2-frames/frames.ts";
import { OutgoingData } from "../http2-frames/outgoing.ts";
import { Bridge, type BridgeHearer } from "./bridge.ts";
import type { Http2Connection } from "./connection.ts";
import type { RequestHead } from "./head.ts";

/** What they ask of the connection that they came by. */
export interface BridgedConnection extends Http2Connection {
  /** Serves a connection inside this process by node:http2. */
  accept(pipe: Duplex): void;
  /** Node has given its session up. */
  ended(code: number): void;
}

/** One request that passes. */
export class BridgedRequest extends OutgoingData {
  readonly #passage: BridgedRequests;
  readonly #bridge: Bridge;
  isAnswered = false;
  /** The caller has said all. */
  isWhole = false;
  /** Node has given it up, behind what it said last. */
  isLeaving = false;

  constructor(passage: BridgedRequests, bridge: Bridge, id: number, sendWindow: number) {
    super();
    this.#passage = passage;
    this.#bridge = bridge;
    this.id = id;
    this.sendWindow = sendWindow;
  }

  /** Queues what node says, and whether it's the last. */
  say(bytes: Buffer, ends: boolean, trailers?: Buffer): void {
    this.push(bytes);
    if (ends) this.finish(trailers);
  }

  override take(most: number): Buffer | undefined {
    const taken = super.take(most);
    this.#bridge.left(taken?.length ?? 0);
    return taken;
  }

  override sent(): void {
    if (this.isEnded) this.#passage.sent(this);
  }
}

const NOTHING = Buffer.alloc(0);

/** All of one connection. */
export class BridgedRequests implements BridgeHearer {
  readonly #connection: BridgedConnection;
  /** There are none on most connections of robots. */
  #streams: Map<number, BridgedRequest> | undefined;
  #bridge: Bridge | undefined;
  /** Of a DATA frame: whose it is, and what of it is still to be handed on. */
  #receiving: BridgedRequest | undefined;
  #held: Buffer | undefined;

  constructor(connection: BridgedConnection) {
    this.#connection = connection;
  }

  get size(): number {
    return this.#streams?.size ?? 0;
  }

  get(id: number): BridgedRequest | undefined {
    return this.#streams?.get(id);
  }

  /** A request begins. */
  open(id: number, { fields }: RequestHead, ends: boolean): void {
    const { peerWindow } = this.#connection;
    this.#bridge ??= new Bridge(this, (pipe) => this.#connection.accept(pipe), peerWindow);
    const stream = new BridgedRequest(this, this.#bridge, id, peerWindow);
    stream.isWhole = ends;
    this.#streams ??= new Map();
    this.#streams.set(id, stream);
    this.#bridge.head(id, ends, fields);
  }

  /** A DATA frame of it begins. */
  dataBegins(stream: BridgedRequest): void {
    if (stream.isWhole) this.break(stream, CODE.streamClosed);
    else this.#receiving = stream;
  }

  /** Some of what the frame carries; without a request it is dropped. */
  dataComes(bytes: Buffer): void {
    if (this.#receiving === undefined) return;
    this.#handOn(false);
    this.#held = bytes;
  }

  /** The frame has ended. */
  dataEnds(ends: boolean, padding: number): void {
    const stream = this.#receiving;
    if (stream === undefined) return;
    // What node never sees it cannot give back.
    if (padding > 0) this.#connection.outbox.number(FRAME.windowUpdate, stream.id, padding);
    this.#handOn(ends);
    this.#receiving = undefined;
  }

  /** More fields behind the request. */
  trailers(stream: BridgedRequest, head: RequestHead, ends: boolean): void {
    if (stream.isWhole || head.isTooLarge) {
      this.break(stream, stream.isWhole ? CODE.streamClosed : CODE.calm);
      return;
    }
    this.#bridge?.head(stream.id, ends, head.fields);
    if (ends) this.#whole(stream);
  }

  /** The caller reads on. */
  window(id: number, bytes: number): void {
    if (this.#streams?.has(id)) this.#connection.outbox.number(FRAME.windowUpdate, id, bytes);
  }

  /** The caller has given a request up. */
  wasReset(stream: BridgedRequest, code: number): void {
    this.#bridge?.reset(stream.id, code);
    this.#forget(stream);
  }

  /** The caller lets a stream have more. */
  grew(stream: BridgedRequest, bytes: number): void {
    this.#bridge?.window(stream.id, bytes);
  }

  /** The caller has changed what every stream may have; `grow` changes those that run. */
  settings(grow: (stream: OutgoingData) => void): void {
    for (const stream of this.#streams?.values() ?? []) grow(stream);
    this.#bridge?.streamWindow(this.#connection.peerWindow);
  }

  /** The caller broke the protocol on this stream alone. */
  break(stream: BridgedRequest, code: number): void {
    this.#connection.outbox.number(FRAME.reset, stream.id, code);
    this.wasReset(stream, code);
    this.#connection.tax();
  }

  /** Hands on what has come in this turn. */
  flush(): void {
    this.#handOn(false);
    this.#bridge?.flush();
  }

  /** The connection is gone. */
  destroy(): void {
    this.#bridge?.destroy();
    this.#streams = undefined;
  }

  /** For what passes: all that node said has been sent. */
  sent(stream: BridgedRequest): void {
    if (stream.isLeaving) this.#connection.outbox.number(FRAME.reset, stream.id, CODE.none);
    if (stream.isLeaving || stream.isWhole) this.#forget(stream);
  }

  /** As BridgeHearer. */
  block(id: number, ends: boolean, block: Buffer): void {
    const stream = this.#streams?.get(id);
    if (stream === undefined) return;
    stream.isAnswered = true;
    if (!ends) {
      this.#connection.sender.block(id, 0, block);
      return;
    }
    stream.say(NOTHING, true, Buffer.from(block));
    this.#connection.sender.send(stream);
  }

  /** As BridgeHearer. */
  data(id: number, ends: boolean, bytes: Buffer): void {
    const stream = this.#streams?.get(id);
    if (stream === undefined) {
      this.#bridge?.left(bytes.length);
      return;
    }
    stream.say(bytes, ends);
    this.#connection.sender.send(stream);
  }

  /** As BridgeHearer. */
  reset(id: number, code: number): void {
    const stream = this.#streams?.get(id);
    if (stream === undefined) return;
    // It says that the rest of the request is of no use: the answer goes first.
    if (code === CODE.none && stream.hasMore) {
      stream.isLeaving = true;
      return;
    }
    this.#connection.outbox.number(FRAME.reset, id, code);
    this.#forget(stream);
    if (!stream.isAnswered) this.#connection.tax();
  }

  /** As BridgeHearer. */
  ended(code: number): void {
    this.#connection.ended(code === CODE.none ? CODE.internal : code);
  }

  #handOn(ends: boolean): void {
    const stream = this.#receiving;
    const bytes = this.#held;
    this.#held = undefined;
    if (stream === undefined || (bytes === undefined && !ends)) return;
    this.#bridge?.data(stream.id, ends, bytes ?? NOTHING);
    if (ends) this.#whole(stream);
  }

  #whole(stream: BridgedRequest): void {
    stream.isWhole = true;
    if (stream.isEnded) this.#forget(stream);
  }

  #forget(stream: BridgedRequest): void {
    if (this.#receiving === stream) {
      this.#receiving = undefined;
      this.#held = undefined;
    }
    if (!this.#streams?.delete(stream.id)) return;
    this.#connection.sender.forget(stream);
    this.#bridge?.left(stream.queued);
    this.#connection.left();
  }
}
