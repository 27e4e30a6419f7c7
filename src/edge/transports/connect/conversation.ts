/** A conversation for transports that know streams only as iterables: what the service says is read as one. */
import type { Message } from "@bufbuild/protobuf";
import type { Listener, Speaker } from "../../../call.ts";
import type { Signal } from "../../../cancellation.ts";
import { Refusal } from "../../../errors.ts";

/** Messages that may wait to be read before the reader counts as slow. */
const MOST_UNREAD = 1;

/**
 * What a service says to `requests`. `open` begins the conversation; a refusal on either side ends it by being thrown. Where the caller
 * has `left`, the service knows.
 */
export async function* converse(
  requests: AsyncIterable<Message>,
  left: Signal,
  open: (speaker: Speaker<Message>) => Listener<Message>,
): AsyncGenerator<Message, void, undefined> {
  const said = new ConversationMessage();
  const listener = open(said);
  hearAll(requests, listener).catch((thrown: unknown) => {
    // The service brings what it began to its end; one that had ended before has nothing more to say.
    if (thrown instanceof Refusal && !left.aborted) listener.cut(thrown);
    else said.end(thrown);
  });
  yield* said.read(listener);
}

async function hearAll(requests: AsyncIterable<Message>, listener: Listener<Message>): Promise<void> {
  for await (const request of requests) listener.hear(request);
  listener.close();
}

/** What was said and is not read yet. */
class ConversationMessage implements Speaker<Message> {
  readonly #messages: Message[] = [];
  #over = false;
  #refusal: unknown;
  #wake = (): void => {};

  get behind(): boolean {
    return this.#messages.length > MOST_UNREAD;
  }

  say(message: Message): void {
    if (this.#over) return;
    this.#messages.push(message);
    this.#wake();
  }

  end(refusal?: unknown): void {
    if (this.#over) return;
    this.#over = true;
    this.#refusal = refusal;
    this.#wake();
  }

  async *read(listener: Listener<Message>): AsyncGenerator<Message, void, undefined> {
    for (;;) {
      while (this.#messages.length > 0) {
        const wasBehind = this.behind;
        yield this.#messages.shift()!;
        if (wasBehind && !this.behind) listener.room();
      }
      if (this.#over) break;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    if (this.#refusal !== undefined) throw this.#refusal;
  }
}
