/** The messages of a conversation, sent in their order though large ones are compressed first. */
import type { Message } from "@bufbuild/protobuf";
import type { Speaker } from "../../call.ts";

/** The call that a conversation speaks by. */
export interface CallWriter {
  /** A message as it goes over the wire: a promise where it has to be compressed. */
  framed(message: Message): Buffer | Promise<Buffer>;
  write(frame: Buffer): void;
  /** What was written before is not read yet. */
  readonly isBehind: boolean;
  /** Ends the call, well or with a refusal. */
  end(refusal?: unknown): void;
}

/** Speaks to the caller. A large message is compressed, and those behind it wait; a failure ends the call. */
export function speakerOf(call: CallWriter): Speaker<Message> {
  let before: Promise<void> | undefined;
  let unsent = 0;
  const fail = (thrown: unknown): void => call.end(thrown);
  const inTurn = (send: () => void | Promise<void>): void => {
    if (before === undefined) {
      const sending = send();
      if (!(sending instanceof Promise)) return;
      before = sending.catch(fail);
    } else before = before.then(send).catch(fail);
    unsent += 1;
    void before.then(() => {
      unsent -= 1;
      if (unsent === 0) before = undefined;
    });
  };
  const send = (frame: Buffer | Promise<Buffer>): void | Promise<void> => {
    if (frame instanceof Promise) return frame.then((framed) => call.write(framed));
    call.write(frame);
  };
  return {
    say(message) {
      if (before !== undefined) return inTurn(() => send(call.framed(message)));
      const frame = call.framed(message);
      if (frame instanceof Promise) inTurn(() => send(frame));
      else call.write(frame);
    },
    get behind() {
      return unsent > 1 || call.isBehind;
    },
    end: (refusal) => inTurn(() => call.end(refusal)),
  };
}
