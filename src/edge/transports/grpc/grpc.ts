/**
 * gRPC for inference calls and control loops, on node:http2 streams. Uses the same gate and service functions as the other transports, without
 * Connect's request and response objects per call. Heads, messages and trailers are the same as Connect's.
 * Source: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
 */
import { constants, type OutgoingHttpHeaders } from "node:http2";
import type { DescMethod, Message } from "@bufbuild/protobuf";
import { InferenceService } from "../../../../gen/limber/v1/inference_service_pb.ts";
import { ADMIN_HEADER } from "../../../brand.ts";
import type { CallTrail, StreamHandler, StreamWriter } from "../../../call.ts";
import { Cancel } from "../../../cancellation.ts";
import { after, steadyNow } from "../../../clock.ts";
import { CodecError } from "../../../codecs/error.ts";
import { frameMessage, MessageReader, PREFIX } from "../../../codecs/grpc.ts";
import { readMessage } from "../../../codecs/protobuf/read.ts";
import { frameOf } from "../../../codecs/protobuf/write.ts";
import { factsOf, Reason, type Refusal, refuse } from "../../../errors.ts";
import { newId } from "../../../ids.ts";
import { type BodyMemory, type HeldBytes, ownerOf, UNCOUNTED_BYTES } from "../../body-memory.ts";
import { type CallLog, callerIdOf } from "../../call-log.ts";
import { overloaded } from "../../gate/admission.ts";
import type { Admission, CallContext } from "../../gate/authenticate.ts";
import { type Advice, type Gate, headersOfAnswer } from "../../gate/gate.ts";
import { assertBounded, boundsOf, refuseStream, wantsStream } from "../../messages/bounds.ts";
import { refusalOf } from "../../messages/errors.ts";
import { encodedOnce } from "../../messages/json.ts";
import type { StreamServer } from "../../server/http2.ts";
import { RunningCalls } from "../../server/turns.ts";
import { UNREAD_MS } from "../stalled-reader.ts";
import { type CallHandler, CallStream, type HeadFields } from "./call-stream.ts";
import { type Coding, nameCodings, requestCoding, responseCoding } from "./compression.ts";
import { QUICK, type Quick } from "./loop-messages.ts";
import {
  deadlineOf,
  grpcTrailersOf,
  headOf,
  NotSpoken,
  OK_TRAILERS,
  refusalOfFrames,
  timedOut,
  timeoutOf,
  unreadable,
} from "./status.ts";

/** The options of this transport. */
interface GrpcOptions {
  gate: Gate;
  memory: BodyMemory;
  /** Aborted when the gateway shuts down; running calls then end as unavailable. */
  closing: AbortSignal;
  log: CallLog;
}

const GRPC_TYPES = new Set(["application/grpc", "application/grpc+proto"]);

/** The RPCs of this transport. Connect serves all others. */
const { act, actStream, predict, predictStream } = InferenceService.method;
const METHODS: ReadonlyMap<string, DescMethod> = new Map(
  [act, actStream, predict, predictStream].map((method) => [`/${method.parent.typeName}/${method.name}`, method]),
);

/** Serves inference calls on the streams of node:http2. */
export function grpcStreams(options: GrpcOptions): StreamServer {
  const running = new RunningCalls<GrpcCall>();
  options.closing.addEventListener("abort", () => {
    running.each((call) =>
      call.fail(refuse(Reason.NOT_READY, "the gateway is shutting down; retry on another connection")),
    );
  });
  return {
    take(stream, headers, peer) {
      if (headers[":method"] !== "POST" || !GRPC_TYPES.has(headers["content-type"] ?? "")) return false;
      const method = METHODS.get(headers[":path"] ?? "");
      if (method === undefined) return false;
      const call = new CallStream(stream, headers, peer);
      const { overload } = options.gate;
      const { authorization, [ADMIN_HEADER]: adminToken } = call.fields;
      const org = overload?.refuses(method, authorization, adminToken);
      if (overload !== undefined && org !== undefined) {
        overload.pace(
          org,
          () => refuseOverload(call, overload.advice()),
          () => call.reset(constants.NGHTTP2_ENHANCE_YOUR_CALM),
        );
        return true;
      }
      const grpcCall = new GrpcCall(options, method, call);
      call.handledBy(grpcCall);
      grpcCall.begin(running.enter(grpcCall));
      return true;
    },
  };
}

/** Smaller messages are not compressed: compressing an action chunk costs a control loop 1 ms. */
const COMPRESS_FROM_BYTES = 1 << 20;

/** Drops unknown fields. */
const READING = { readUnknownFields: false };

/** Prepared trailers of refused calls by retry delay, without the request id. */
const overloadTrailers = new WeakMap<Advice, { fields: OutgoingHttpHeaders; details: Buffer; idAt: number }>();

/** The placeholder of a request id, of the same length. */
const ID_MARK = `req_${"0".repeat(26)}`;

const DETAILS = "grpc-status-details-bin";

/** Refuses a call for overload, without reading it. */
function refuseOverload(call: CallStream, advice: Advice): void {
  const requestId = newId("req");
  let made = overloadTrailers.get(advice);
  if (made === undefined) {
    const { [DETAILS]: encoded, ...fields } = grpcTrailersOf(overloaded(advice), ID_MARK);
    const details = Buffer.from(String(encoded), "base64");
    made = { fields, details, idAt: details.indexOf(ID_MARK) };
    overloadTrailers.set(advice, made);
  }
  const { fields, details, idAt } = made;
  details.write(requestId, idAt, "latin1");
  call.respond(headOf(["x-request-id", requestId]));
  call.end({ ...fields, [DETAILS]: details.toString("base64").replace(/=+$/, "") });
}

/** One call, from its headers to its trailers. */
class GrpcCall implements CallHandler {
  readonly #options: GrpcOptions;
  readonly #method: DescMethod;
  readonly #stream: CallStream;
  readonly #headers: HeadFields;
  #removeListener: (() => void) | undefined;
  readonly #responseCoding: Coding | undefined;
  readonly #quick: Quick | undefined;
  /** The caller's timeout in milliseconds; undefined if none, NaN if invalid. */
  readonly #timeoutMs: number | undefined;
  readonly #requestId = newId("req");
  readonly #startedAt = steadyNow();
  readonly #caller = new Cancel();
  readonly #trail: CallTrail = {};
  #cancelTimeout: (() => void) | undefined;
  #admission: Admission | undefined;
  #held: HeldBytes | undefined;
  /** The memory held for the last received messages of a bidirectional stream. */
  #messageBytes = 0;
  /** Parses the caller's messages, once the call is admitted. */
  #reader: MessageReader | undefined;
  /** The message of a call that is not a bidirectional stream. */
  #body: { message: Buffer; compressed: boolean } | undefined;
  #coding: Coding | undefined;
  #context: CallContext | undefined;
  #listener: StreamHandler<Message> | undefined;
  /** Resolves when the previous message was handled: messages are handled in order. */
  #before: Promise<void> | undefined;
  /** Messages that wait for it: only those of one read, because the stream is paused. */
  #packed: { message: Buffer; compressed: boolean }[] = [];
  /** Resumes writing to a caller that was slow to read. */
  #goOn: (() => void) | undefined;
  /** The response is complete, or the caller has disconnected. */
  #isOver = false;
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

  /** `forget` is called when the call has ended. */
  begin(forget: () => void): void {
    this.#removeListener = forget;
    if (this.#timeoutMs! > 0) this.#cancelTimeout = after(this.#timeoutMs!, () => this.fail(timedOut()));
    // Data that arrives with the headers is handled once the call is admitted.
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

  /** Ends the call before it was admitted; if that is the caller's fault, it counts against the connection's budget. */
  #refuse(thrown: unknown): void {
    this.fail(thrown);
  }

  /** Ends the call with a refusal in its trailers, after what was sent so far; does nothing if the call has ended. */
  readonly fail = (thrown: unknown): void => {
    if (this.#isOver) return;
    const refusal = refusalOf(thrown, this.#caller);
    this.#refusal = refusal;
    this.#end(grpcTrailersOf(refusal, this.#requestId));
    this.#caller.abort(refusal);
  };

  /** See CallHandler. */
  data(bytes: Buffer): void {
    if (this.#isOver || this.#reader === undefined) return;
    try {
      this.#reader.push(bytes);
    } catch (thrown) {
      this.#failRead(thrown);
    }
  }

  /** See CallHandler. */
  end(): void {
    if (this.#before === undefined) this.#ended();
    else void this.#before.then(() => this.#ended());
  }

  /** See CallHandler. */
  room(): void {
    this.#goOn?.();
    if (this.#isOver) return;
    try {
      this.#listener?.room();
    } catch (thrown) {
      this.fail(thrown);
    }
  }

  /** See CallHandler. */
  closed(): void {
    if (!this.#isOver) {
      this.#isOver = true;
      this.#refusal = refuse(Reason.CLIENT_CLOSED_REQUEST, "the client disconnected before the response");
      this.#caller.abort(this.#refusal);
    }
    this.#goOn?.();
    this.#removeListener?.();
    this.#cancelTimeout?.();
    this.#emptyRows();
    this.#held?.release();
    this.#admission?.leave();
    this.#note();
  }

  #read(admission: Admission): void {
    if (this.#isOver) {
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
        new CallSpeaker(this.#writer()),
        this.#context,
      );
    this.#reader = new MessageReader(
      boundsOf(this.#method).bytes,
      (message, compressed) => (isConversation ? this.#converse(message, compressed) : this.#take(message, compressed)),
      "ignored",
      (bytes) => this.#hold(bytes),
    );
  }

  /** Reserves memory for a message of so many bytes, in addition to the earlier messages. */
  #hold(bytes: number): void {
    if (this.#listener === undefined) this.#trail.inputBytes = bytes;
    if (bytes <= UNCOUNTED_BYTES || !this.#admission || this.#isOver) return;
    this.#held ??= this.#options.memory.open(ownerOf(this.#admission.principal));
    this.#held.to(bytes + this.#messageBytes);
  }

  /** Drops data of a message that is no longer needed. */
  #emptyRows(): void {
    this.#reader = undefined;
    this.#body = undefined;
  }

  #take(message: Buffer, compressed: boolean): void {
    if (this.#body) throw new NotSpoken(`protocol error: received extra input message for ${this.#kind} method`);
    this.#body = { message, compressed };
  }

  #converse(message: Buffer, compressed: boolean): void {
    if (!compressed && this.#before === undefined) this.#receive(message);
    else this.#receiveInTurn(message, compressed);
  }

  #receive(bytes: Buffer): void {
    if (this.#isOver) return;
    const plain = this.#quick?.read(bytes);
    if (plain) this.#listener?.hear(plain, true);
    else this.#listener?.hear(this.#decode(bytes));
    if (!this.#held) return;
    // A loop processes the newest message, so the previous one is no longer counted.
    this.#messageBytes = bytes.length > UNCOUNTED_BYTES ? bytes.length : 0;
    this.#held.to(this.#messageBytes);
  }

  /** Decompresses waiting messages one at a time and handles each before the next. */
  #receiveInTurn(message: Buffer, compressed: boolean): void {
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
    for (let next = 0; next < this.#packed.length && !this.#isOver; next++) {
      const { message, compressed } = this.#packed[next]!;
      try {
        this.#receive(compressed ? await this.#unpacked(message) : message);
      } catch (thrown) {
        this.#failRead(thrown);
      }
    }
  }

  /** The request has ended. */
  #ended(): void {
    if (this.#isOver) return;
    try {
      this.#reader?.end();
      if (this.#listener) this.#listener.close();
      else this.#serveUnary();
    } catch (thrown) {
      this.#failRead(thrown);
    }
  }

  #serveUnary(): void {
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

  #writer(): CallWriter {
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

  /** Handles an unreadable request. The service of a bidirectional stream completes it. */
  #failRead(thrown: unknown): void {
    const read = thrown instanceof CodecError ? refusalOfFrames(thrown, boundsOf(this.#method).bytes) : thrown;
    if (this.#listener === undefined || this.#isOver) this.fail(read);
    else this.#listener.cut(refusalOf(read, this.#caller));
  }

  async #answer(bytes: Buffer): Promise<void> {
    const admission = this.#admission;
    const context = this.#context;
    if (this.#isOver || !admission || !context) return;
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
      if (this.#isOver) return;
    }
    this.#end(OK_TRAILERS);
  }

  /** Resolves when more can be written, or the call has ended. */
  #drained(): Promise<void> {
    return new Promise((resolve) => {
      const forget = after(UNREAD_MS, () => this.#giveUp());
      this.#goOn = () => {
        this.#goOn = undefined;
        forget();
        resolve();
      };
      if (this.#isOver) this.#goOn();
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

  /** Sends a message of the response; false asks to wait until the caller has read some of it. */
  #write(frame: Buffer): boolean {
    if (this.#isOver) return true;
    this.#respond();
    return this.#stream.write(frame);
  }

  #end(trailers: OutgoingHttpHeaders, frame?: Buffer): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#emptyRows();
    this.#goOn?.();
    this.#respond();
    this.#stream.end(trailers, frame);
  }

  /** The caller has stopped reading. */
  #giveUp(): void {
    this.#stream.reset(constants.NGHTTP2_CANCEL);
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
      message: this.#refusal?.message,
      callerRequestId: callerIdOf(this.#headers["x-request-id"]),
      trail: this.#trail,
    });
  }
}

/** The call of a bidirectional stream's writer. */
interface CallWriter {
  /** A framed message: a promise if it has to be compressed. */
  framed(message: Message): Buffer | Promise<Buffer>;
  write(frame: Buffer): void;
  /** Whether earlier messages are still unread. */
  isBehind(): boolean;
  /** Ends the call, successfully or with a refusal. */
  end(refusal?: unknown): void;
}

/** Writes to the caller. A large message is compressed, and later ones wait; a failure ends the call. */
class CallSpeaker implements StreamWriter<Message> {
  readonly #call: CallWriter;
  #before: Promise<void> | undefined;
  #unsent = 0;

  constructor(call: CallWriter) {
    this.#call = call;
  }

  say(message: Message): void {
    const call = this.#call;
    if (this.#before !== undefined) {
      this.#inTurn(() => this.#send(call.framed(message)));
      return;
    }
    const frame = call.framed(message);
    if (frame instanceof Promise) this.#inTurn(() => this.#send(frame));
    else call.write(frame);
  }

  get behind(): boolean {
    return this.#unsent > 1 || this.#call.isBehind();
  }

  end(refusal?: unknown): void {
    this.#inTurn(() => this.#call.end(refusal));
  }

  #send(frame: Buffer | Promise<Buffer>): void | Promise<void> {
    if (frame instanceof Promise) return frame.then((framed) => this.#call.write(framed));
    this.#call.write(frame);
  }

  #inTurn(send: () => void | Promise<void>): void {
    if (this.#before === undefined) {
      const sending = send();
      if (!(sending instanceof Promise)) return;
      this.#before = sending.catch(this.#fail);
    } else this.#before = this.#before.then(send).catch(this.#fail);
    this.#unsent += 1;
    void this.#before.then(() => {
      this.#unsent -= 1;
      if (this.#unsent === 0) this.#before = undefined;
    });
  }

  readonly #fail = (thrown: unknown): void => this.#call.end(thrown);
}
