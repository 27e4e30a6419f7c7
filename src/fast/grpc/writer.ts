/** The messages of a conversation, sent in their order though large ones are compressed first. */
import type { Message } from "@bufbuild/protobuf";
import type { Speaker } from "../../call.ts";

/** The call that a conversation speaks by. */
export interface CallWriter {
  /** A message as it goes over the wire: a promise where it has to be compressed. */
  framed(message: Message): Buffer | Promise<Buffer>;
  write(frame: Buffer): void;
  /** What was written before is not read yet. */
  isBehind(): boolean;
  /** Ends the call, well or with a refusal. */
  end(refusal?: unknown): void;
}

/** Speaks to the caller. A large message is compressed, and those behind it wait; a failure ends the call. */
export class CallSpeaker implements Speaker<Message> {
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
