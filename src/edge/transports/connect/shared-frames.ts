/**
 * Messages of which several callers are sent the same. Connect writes each message for each stream: such a one passes through it as an empty
 * message, and the bytes that are sent in its place are made once for all streams of the same codec.
 */
import { create, type DescMessage, type Message, toBinary, toJsonString } from "@bufbuild/protobuf";
import { isShared } from "../../../call.ts";
import { frameMessage } from "../../../codecs/grpc.ts";

/** What one stream has in Connect's hands: it asks for a message only after the one before was sent. */
export class SharedFrames {
  readonly #output: DescMessage;
  readonly #isJson: boolean;
  #message: Message | undefined;

  /** `output` is the type of the stream's messages; without `isJson` they are sent in binary. */
  constructor(output: DescMessage, isJson: boolean) {
    this.#output = output;
    this.#isJson = isJson;
  }

  /** What Connect is given for a message: the message itself, or an empty one for one that is shared. */
  pass(message: Message): Message {
    this.#message = isShared(message) ? message : undefined;
    return this.#message === undefined ? message : emptyOf(this.#output);
  }

  /** What is sent for an envelope of Connect's: the envelope itself, or the frame of the message that it stands for. */
  sent(envelope: Uint8Array): Uint8Array {
    const message = this.#message;
    this.#message = undefined;
    return message === undefined ? envelope : frameOf(this.#output, message, this.#isJson);
  }
}

const empties = new WeakMap<DescMessage, Message>();

function emptyOf(desc: DescMessage): Message {
  const known = empties.get(desc) ?? create(desc);
  empties.set(desc, known);
  return known;
}

/** By message: what it is in JSON, and in binary. They go with it. */
const frames = { json: new WeakMap<Message, Uint8Array>(), binary: new WeakMap<Message, Uint8Array>() };

function frameOf(desc: DescMessage, message: Message, isJson: boolean): Uint8Array {
  const known = isJson ? frames.json : frames.binary;
  const frame =
    known.get(message) ?? frameMessage(isJson ? Buffer.from(toJsonString(desc, message)) : toBinary(desc, message));
  known.set(message, frame);
  return frame;
}
