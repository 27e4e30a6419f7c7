/**
 * gRPC for the calls of control loops, on the HTTP/2 streams of the fast layer: the same gate and the same service functions as every other
 * transport, without the request and response objects that Connect builds for each call. Heads, messages and trailers are those of
 * Connect, to the last header.
 * Source: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
 */
import type { DescMethod, Message } from "@bufbuild/protobuf";
import { ADMIN_HEADER } from "../../brand.ts";
import type { CallTrail, Listener } from "../../call.ts";
import { Cancel } from "../../cancellation.ts";
import { after, steadyNow } from "../../clock.ts";
import { CodecError } from "../../codecs/error.ts";
import { frameMessage, MessageReader, PREFIX } from "../../codecs/grpc.ts";
import { type BodyMemory, type HeldBytes, ownerOf, UNCOUNTED_BYTES } from "../../edge/body-memory.ts";
import { type CallLog, callerIdOf } from "../../edge/call-log.ts";
import { overloaded } from "../../edge/gate/admission/admission.ts";
import {
  type Admission,
  type Advice,
  type CallContext,
  type Gate,
  headersOfAnswer,
  type Overload,
} from "../../edge/gate/gate.ts";
import { assertBounded, boundsOf } from "../../edge/messages/bounds.ts";
import { encodedOnce } from "../../edge/messages/encoded-once.ts";
import { refusalOf } from "../../edge/messages/errors.ts";
import { refuseStream, wantsStream } from "../../edge/messages/stream.ts";
import { RunningCalls } from "../../edge/server/running-calls.ts";
import type { Coding } from "../../edge/transports/grpc/compression.ts";
import { refusalOfFrames, unreadable } from "../../edge/transports/grpc/faults.ts";
import { grpcTrailersOf, NotSpoken } from "../../edge/transports/grpc/status.ts";
import { UNREAD_MS } from "../../edge/transports/stalled-reader.ts";
import { factsOf, Reason, type Refusal, refuse } from "../../errors.ts";
import { newId } from "../../ids.ts";
import type { CallHearer, CallStream, CallTaker, FindTaker } from "../http2/call.ts";
import type { HeadFields } from "../http2/head.ts";
import { CODE } from "../http2-frames/frames.ts";
import { packPairs } from "../http2-frames/hpack.ts";
import { readMessage } from "../protobuf/read.ts";
import { frameOf } from "../protobuf/write.ts";
import { headOf, OK_TRAILERS, trailersOf } from "./blocks.ts";
import { nameCodings, requestCoding, responseCoding } from "./codings.ts";
import { QUICK, type Quick } from "./quick.ts";
import { deadlineOf, timedOut, timeoutOf } from "./timeout.ts";
import { CallSpeaker, type CallWriter } from "./writer.ts";

/** What is served here, and how. */
export interface GrpcOptions {
  gate: Gate;
  /** The RPCs that are taken: unary ones, server streams and conversations. */
  methods: readonly DescMethod[];
  memory: BodyMemory;
  /** Aborted when the gateway closes; running calls then end as unavailable. */
  closing: AbortSignal;
  log: CallLog;
}

const GRPC_TYPES = new Set(["application/grpc", "application/grpc+proto"]);

/** Finds the calls that are served here. */
export function grpcCalls(options: GrpcOptions): FindTaker {
  const running = new RunningCalls<GrpcCall>();
  const takers = new Map<string, CallTaker>();
  for (const method of options.methods)
    takers.set(`/${method.parent.typeName}/${method.name}`, {
      endless: method.methodKind === "bidi_streaming",
      open(stream) {
        const { overload } = options.gate;
        const { authorization, [ADMIN_HEADER]: adminToken } = stream.fields;
        const org = overload?.refuses(method, authorization, adminToken);
        if (overload !== undefined && org !== undefined) return new ShedCall(stream, overload, org);
        const call = new GrpcCall(options, method, stream);
        call.begin(running.enter(call));
        return call;
      },
    });
  options.closing.addEventListener("abort", () => {
    running.each((call) => call.fail(refuse(Reason.NOT_READY, "the gateway is closing; call again elsewhere")));
  });
  return (head) => {
    if (head[":method"] !== "POST" || !GRPC_TYPES.has(head["content-type"] ?? "")) return undefined;
    return takers.get(head[":path"] ?? "");
  };
}

/** Smaller messages are sent as they are: compressing an action chunk costs a control loop a millisecond. */
const COMPRESS_FROM_BYTES = 1 << 20;

/** What the schema does not know is dropped. */
const READING = { readUnknownFields: false };
/** Statuses from here on are no fault of the caller's. */
const FAULT_OF_OURS = 500;

/** How long a refused caller has to end its side, in milliseconds. */
const LINGER_MS = 1_000;

/** The trailers of calls that are refused before anything is made for them, by what they say of the time: all but the request's id. */
const overloadTrailers = new WeakMap<Advice, { block: Buffer; details: Buffer; idAt: number }>();

/** Stands where a request's id will, and is as long. */
const ID_MARK = `req_${"0".repeat(26)}`;

const DETAILS = "grpc-status-details-bin";

/** The head and the trailers of a call that is refused for overload. */
function overloadBlocks(advice: Advice): { head: Buffer; trailers: Buffer } {
  const requestId = newId("req");
  let made = overloadTrailers.get(advice);
  if (made === undefined) {
    const { [DETAILS]: encoded, ...fields } = grpcTrailersOf(overloaded(advice), ID_MARK);
    const details = Buffer.from(String(encoded), "base64");
    made = { block: trailersOf(fields), details, idAt: details.indexOf(ID_MARK) };
    overloadTrailers.set(advice, made);
  }
  const { block, details, idAt } = made;
  details.write(requestId, idAt, "latin1");
  const encoded = details.toString("base64").replace(/=+$/, "");
  return {
    head: headOf(["x-request-id", requestId]),
    trailers: Buffer.concat([block, packPairs([DETAILS, encoded])]),
  };
}

/** A call that is refused for overload: its answer is at hand, and nothing of it is read. */
class ShedCall implements CallHearer {
  #forget: (() => void) | undefined;

  constructor(stream: CallStream, overload: Overload, org: string) {
    const answer = (): void => {
      if (!stream.isOpen) return;
      const { head, trailers } = overloadBlocks(overload.advice());
      stream.respond(head);
      stream.end(trailers);
      if (stream.isOpen) this.#forget = after(LINGER_MS, () => stream.reset(CODE.none));
    };
    if (overload.pace(org, answer, () => stream.reset(CODE.calm))) stream.hold();
  }

  data(): void {}
  end(): void {}
  room(): void {}

  closed(): void {
    this.#forget?.();
  }
}

/** One call, from its headers to its trailers. */
class GrpcCall implements CallHearer {
  readonly #options: GrpcOptions;
  readonly #method: DescMethod;
  readonly #stream: CallStream;
  readonly #headers: HeadFields;
  #forget: (() => void) | undefined;
  readonly #responseCoding: Coding | undefined;
  readonly #quick: Quick | undefined;
  /** The caller's time, in milliseconds; undefined where it has no end, NaN where it cannot be read. */
  readonly #timeoutMs: number | undefined;
  readonly #requestId = newId("req");
  readonly #startedAt = steadyNow();
  readonly #caller = new Cancel();
  readonly #trail: CallTrail = {};
  #forgetTimeout: (() => void) | undefined;
  #forgetEnd: (() => void) | undefined;
  #admission: Admission | undefined;
  #held: HeldBytes | undefined;
  /** What the messages of a conversation hold that were heard last. */
  #heard = 0;
  /** Reads what the caller sends, once the call is let in. */
  #reader: MessageReader | undefined;
  /** The one message of a call that is no conversation. */
  #body: { message: Buffer; compressed: boolean } | undefined;
  #coding: Coding | undefined;
  #context: CallContext | undefined;
  #listener: Listener<Message> | undefined;
  /** What is heard of a conversation waits for this: messages are heard in the order in which they came. */
  #before: Promise<void> | undefined;
  /** These messages: no more than came in one piece, for the stream is paused. */
  #packed: { message: Buffer; compressed: boolean }[] = [];
  /** Ends the wait for a caller that has not read on. */
  #goOn: (() => void) | undefined;
  /** The answer is complete, or the caller is gone. */
  #over = false;
  #refusal: Refusal | undefined;

  constructor(options: GrpcOptions, method: DescMethod, stream: CallStream) {
    const headers = stream.fields;
    this.#options = options;
    this.#method = method;
    this.#stream = stream;
    this.#headers = headers;
    this.#responseCoding = responseCoding(headers);
    this.#quick = QUICK.get(method);
    this.#timeoutMs = timeoutOf(headers["grpc-timeout"]);
  }

  /** `forget` is called when nothing more comes of the call. */
  begin(forget: () => void): void {
    this.#forget = forget;
    if (this.#timeoutMs! > 0) this.#forgetTimeout = after(this.#timeoutMs!, () => this.fail(timedOut()));
    // What comes with the head is heard once the call is let in.
    this.#stream.pause();
    void this.#admit();
  }

  async #admit(): Promise<void> {
    try {
      const admission = await this.#options.gate.admit(this.#method, {
        authorization: this.#headers.authorization,
        adminToken: this.#headers[ADMIN_HEADER],
        remoteAddress: this.#stream.address,
        slot: this.#stream.slot,
        requestId: this.#requestId,
        trail: this.#trail,
        ...(this.#timeoutMs! > 0 && { deadline: this.#startedAt + this.#timeoutMs! }),
      });
      this.#read(admission);
    } catch (thrown) {
      this.#refuse(thrown);
      return;
    }
    this.#stream.resume();
  }

  /** The call ends before it was let in, or with its head: where that is the caller's doing, its connection is charged. */
  #refuse(thrown: unknown): void {
    this.fail(thrown);
    if (this.#refusal !== undefined && factsOf(this.#refusal.reason).status < FAULT_OF_OURS) this.#stream.charge();
  }

  /** Ends the call with a refusal, in trailers behind whatever was answered so far; does nothing once the call is over. */
  readonly fail = (thrown: unknown): void => {
    if (this.#over) return;
    const refusal = refusalOf(thrown, this.#caller);
    this.#refusal = refusal;
    this.#end(trailersOf(grpcTrailersOf(refusal, this.#requestId)));
    this.#caller.abort(refusal);
  };

  /** As CallHearer. */
  data(bytes: Buffer): void {
    if (this.#over || this.#reader === undefined) return;
    try {
      this.#reader.push(bytes);
    } catch (thrown) {
      this.#failRead(thrown);
    }
  }

  /** As CallHearer. */
  end(): void {
    if (this.#before === undefined) this.#ended();
    else void this.#before.then(() => this.#ended());
  }

  /** As CallHearer. */
  room(): void {
    this.#goOn?.();
    if (this.#over) return;
    try {
      this.#listener?.room();
    } catch (thrown) {
      this.fail(thrown);
    }
  }

  /** As CallHearer. */
  closed(): void {
    if (!this.#over) {
      this.#over = true;
      this.#refusal = refuse(Reason.CLIENT_CLOSED_REQUEST, "the caller left before the answer");
      this.#caller.abort(this.#refusal);
    }
    this.#goOn?.();
    this.#forget?.();
    this.#forgetTimeout?.();
    this.#forgetEnd?.();
    this.#letGo();
    this.#held?.release();
    this.#admission?.leave();
    this.#note();
  }

  #read(admission: Admission): void {
    if (this.#over) {
      admission.leave();
      return;
    }
    this.#admission = admission;
    if (!this.#stream.isWhole) admission.work?.reading();
    if (this.#timeoutMs! <= 0) throw timedOut();
    this.#coding = requestCoding(this.#headers);
    this.#context = this.#contextOf();
    const isConversation = this.#method.methodKind === "bidi_streaming";
    if (isConversation)
      this.#listener = this.#options.gate.conversation(
        this.#method,
        admission,
        new CallSpeaker(this.#voice()),
        this.#context,
      );
    this.#reader = new MessageReader(
      boundsOf(this.#method).bytes,
      (message, compressed) => (isConversation ? this.#converse(message, compressed) : this.#take(message, compressed)),
      "ignored",
      (bytes) => this.#hold(bytes),
    );
  }

  /** Holds memory for a message of so many bytes, beside what was heard before. */
  #hold(bytes: number): void {
    if (this.#listener === undefined) this.#trail.inputBytes = bytes;
    if (bytes <= UNCOUNTED_BYTES || !this.#admission || this.#over) return;
    this.#held ??= this.#options.memory.open(ownerOf(this.#admission.principal));
    this.#held.to(bytes + this.#heard);
  }

  /** Drops what came of a message that is not needed any more. */
  #letGo(): void {
    this.#reader = undefined;
    this.#body = undefined;
  }

  #take(message: Buffer, compressed: boolean): void {
    if (this.#body) throw new NotSpoken(`protocol error: received extra input message for ${this.#kind} method`);
    this.#body = { message, compressed };
  }

  #converse(message: Buffer, compressed: boolean): void {
    if (!compressed && this.#before === undefined) this.#hear(message);
    else this.#hearInTurn(message, compressed);
  }

  #hear(bytes: Buffer): void {
    if (this.#over) return;
    const plain = this.#quick?.read(bytes);
    if (plain) this.#listener?.hear(plain, true);
    else this.#listener?.hear(this.#decode(bytes));
    if (!this.#held) return;
    // A loop works on the newest message; the one before it is not held any more.
    this.#heard = bytes.length > UNCOUNTED_BYTES ? bytes.length : 0;
    this.#held.to(this.#heard);
  }

  /** Decompresses waiting messages one at a time and handles each before the next. */
  #hearInTurn(message: Buffer, compressed: boolean): void {
    if (compressed && !this.#coding) throw unreadable();
    this.#packed.push({ message, compressed });
    if (this.#before !== undefined) return;
    this.#stream.pause();
    this.#before = this.#hearPacked().then(() => {
      this.#packed = [];
      this.#before = undefined;
      this.#stream.resume();
    });
  }

  async #hearPacked(): Promise<void> {
    for (let next = 0; next < this.#packed.length && !this.#over; next++) {
      const { message, compressed } = this.#packed[next]!;
      try {
        this.#hear(compressed ? await this.#unpacked(message) : message);
      } catch (thrown) {
        this.#failRead(thrown);
      }
    }
  }

  /** The request has ended. */
  #ended(): void {
    if (this.#over) return;
    try {
      this.#reader?.end();
      if (this.#listener) this.#listener.close();
      else this.#asked();
    } catch (thrown) {
      this.#failRead(thrown);
    }
  }

  #asked(): void {
    if (!this.#body) throw new NotSpoken(`protocol error: missing input message for ${this.#kind} method`);
    const { message, compressed } = this.#body;
    if (!compressed) this.#answer(message).catch(this.fail);
    else if (!this.#coding) throw unreadable();
    else
      this.#unpacked(message)
        .then((bytes) => this.#answer(bytes))
        .catch(this.fail);
  }

  #unpacked(message: Buffer): Promise<Buffer> {
    const grown = (bytes: number): void => this.#hold(bytes + message.length);
    return this.#coding!.decompress(message, boundsOf(this.#method).bytes, grown);
  }

  #voice(): CallWriter {
    const stream = this.#stream;
    return {
      framed: (message) => this.#framed(message),
      write: (frame) => void this.#write(frame),
      isBehind: () => stream.isBehind,
      end: (refusal) => {
        if (refusal !== undefined) this.fail(refusal);
        else this.#end(OK_TRAILERS);
      },
    };
  }

  /** What the caller sent can't be read. The service of a conversation brings it to its end. */
  #failRead(thrown: unknown): void {
    const read = thrown instanceof CodecError ? refusalOfFrames(thrown, boundsOf(this.#method).bytes) : thrown;
    if (this.#listener === undefined || this.#over) this.fail(read);
    else this.#listener.cut(refusalOf(read, this.#caller));
  }

  async #answer(bytes: Buffer): Promise<void> {
    const admission = this.#admission;
    const context = this.#context;
    if (this.#over || !admission || !context) return;
    const { gate } = this.#options;
    const request = this.#decode(bytes);
    if (this.#method.methodKind === "unary") {
      if (wantsStream(this.#method, request)) throw refuseStream();
      const encode = encodedOnce((answer) => this.#encoded(answer));
      const frame = this.#compressed(
        encode(await gate.unary(this.#method, admission, request, { ...context, encode })),
      );
      this.#end(OK_TRAILERS, frame instanceof Promise ? await frame : frame);
      return;
    }
    for await (const message of gate.serverStream(this.#method, admission, request, context)) {
      const frame = this.#framed(message);
      if (!this.#write(frame instanceof Promise ? await frame : frame)) await this.#drained();
      if (this.#over) return;
    }
    this.#end(OK_TRAILERS);
  }

  /** Resolves when there is room for more, or the call is over. */
  #drained(): Promise<void> {
    return new Promise((resolve) => {
      const forget = after(UNREAD_MS, () => this.#giveUp());
      this.#goOn = () => {
        this.#goOn = undefined;
        forget();
        resolve();
      };
      if (this.#over) this.#goOn();
    });
  }

  #contextOf(): CallContext {
    return {
      requestId: this.#requestId,
      signal: this.#caller,
      arrivedAt: this.#startedAt,
      deadline: deadlineOf(this.#timeoutMs, this.#startedAt, this.#headers["grpc-timeout"]),
      idempotencyKey: this.#headers["idempotency-key"],
      traceparent: this.#headers.traceparent,
      host: this.#headers[":authority"] ?? this.#headers.host,
      trail: this.#trail,
    };
  }

  get #kind(): string {
    return this.#method.methodKind.replace("_", "-");
  }

  #decode(bytes: Buffer): Message {
    const { input } = this.#method;
    assertBounded(input, bytes, boundsOf(this.#method));
    try {
      return readMessage(input, bytes, READING);
    } catch (thrown) {
      throw unreadable(thrown);
    }
  }

  #framed(message: Message): Buffer | Promise<Buffer> {
    return this.#compressed(this.#encoded(message));
  }

  #encoded(message: Message): Buffer {
    return this.#quick?.write(message) ?? frameOf(this.#method.output, message);
  }

  #compressed(frame: Buffer): Buffer | Promise<Buffer> {
    const coding = this.#responseCoding;
    if (!coding || frame.length - PREFIX < COMPRESS_FROM_BYTES) return frame;
    return coding.compress(frame.subarray(PREFIX)).then((compressed) => frameMessage(compressed, true));
  }

  /** Sends a message of the answer; false asks to wait until the caller has read some of it. */
  #write(frame: Buffer): boolean {
    if (this.#over) return true;
    this.#respond();
    return this.#stream.write(frame);
  }

  #end(trailers: Buffer, frame?: Buffer): void {
    if (this.#over) return;
    this.#over = true;
    this.#letGo();
    this.#goOn?.();
    this.#respond();
    if (frame !== undefined) this.#stream.write(frame);
    this.#stream.end(trailers);
    if (!this.#stream.isOpen) return;
    // The end waits behind what is not read yet; then what a refused caller still sends is of no use.
    if (this.#stream.hasMore) this.#forgetEnd = after(UNREAD_MS, () => this.#giveUp());
    else this.#forgetEnd = after(LINGER_MS, () => this.#stream.reset(CODE.none));
    this.#stream.resume();
  }

  /** The caller has stopped reading. */
  #giveUp(): void {
    this.#stream.reset(this.#stream.hasMore ? CODE.cancel : CODE.none);
  }

  #respond(): void {
    if (this.#stream.isAnswered) return;
    const pairs = ["x-request-id", this.#requestId];
    nameCodings(pairs, this.#responseCoding, this.#headers);
    if (this.#admission) pairs.push(...headersOfAnswer(this.#admission));
    this.#stream.respond(headOf(pairs));
  }

  #note(): void {
    const facts = this.#refusal && factsOf(this.#refusal.reason);
    const principal = this.#admission?.principal;
    this.#options.log({
      requestId: this.#requestId,
      transport: "grpc",
      rpc: `${this.#method.parent.typeName}/${this.#method.name}`,
      status: facts?.status ?? 200,
      latencyMs: steadyNow() - this.#startedAt,
      code: facts?.code,
      keyId: principal?.kind === "key" ? principal.keyId : undefined,
      cause: this.#refusal?.cause,
      callerRequestId: callerIdOf(this.#headers["x-request-id"]),
      trail: this.#trail,
    });
  }
}
