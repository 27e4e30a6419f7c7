/** How the messages of a conversation leave in their order, though large ones are compressed on the way. */
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

/** What the caller hears. Large messages are compressed, and keep those behind them waiting; whatever breaks on the way ends the call. */
export function speakerOf(voice: CallWriter): Speaker<Message> {
  let before: Promise<void> | undefined;
  let unsent = 0;
  const fail = (thrown: unknown): void => voice.end(thrown);
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
    if (frame instanceof Promise) return frame.then((framed) => voice.write(framed));
    voice.write(frame);
  };
  return {
    say(message) {
      if (before !== undefined) return inTurn(() => send(voice.framed(message)));
      const frame = voice.framed(message);
      if (frame instanceof Promise) inTurn(() => send(frame));
      else voice.write(frame);
    },
    get behind() {
      return unsent > 1 || voice.isBehind;
    },
    end: (refusal) => inTurn(() => voice.end(refusal)),
  };
}
