/** Sends items to a reader as events, as fast as they come and no faster than they are read. */
import type { Signal } from "../../../cancellation.ts";
import type { Flow, Taker } from "../../../flow.ts";
import type { EventWriter, ServerEvent } from "./sse.ts";

/** How items are sent. */
export interface EventPushOptions<T> {
  readonly signal: Signal;
  /** Begins the answer, when the first item or the end is there. */
  begin(): EventWriter;
  eventOf(item: T): ServerEvent;
  /** The event that says why there is nothing more. */
  errorOf(thrown: unknown): ServerEvent;
}

/** Resolves when all is sent; rejects with what ended it early. The answer is not begun where that came first. */
export const pushEvents = <T>(flow: Flow<T>, telling: EventPushOptions<T>): Promise<void> =>
  new Promise((resolve, reject) => new EventPusher(flow, telling, resolve, reject).ask());

class EventPusher<T> implements Taker<T> {
  readonly #flow: Flow<T>;
  readonly #telling: EventPushOptions<T>;
  readonly #told: () => void;
  readonly #failed: (thrown: unknown) => void;
  #writer: EventWriter | undefined;
  #isOver = false;
  /** Items that are there when they are asked for are sent in a loop: with recursion each would stand on the stack inside the one before. */
  #isAsking = false;
  #again = false;

  constructor(flow: Flow<T>, telling: EventPushOptions<T>, told: () => void, failed: (thrown: unknown) => void) {
    this.#flow = flow;
    this.#telling = telling;
    this.#told = told;
    this.#failed = failed;
    telling.signal.addEventListener("abort", this.#aborted, { once: true });
  }

  readonly ask = (): void => {
    if (this.#isAsking) {
      this.#again = true;
      return;
    }
    this.#isAsking = true;
    do {
      this.#again = false;
      if (this.#isOver) return;
      if (this.#telling.signal.aborted) this.#aborted();
      else this.#flow.next(this);
    } while (this.#again);
    this.#isAsking = false;
  };

  item(item: T): void {
    if (this.#isOver) return;
    let room: Promise<void> | undefined;
    try {
      this.#writer ??= this.#telling.begin();
      room = this.#writer.write(this.#telling.eventOf(item));
    } catch (thrown) {
      this.#flow.leave();
      this.failed(thrown);
      return;
    }
    if (room === undefined) this.ask();
    else room.then(this.ask);
  }

  over(): void {
    if (!this.#end()) return;
    try {
      this.#writer ??= this.#telling.begin();
      this.#writer.end();
      this.#told();
    } catch (thrown) {
      this.#failed(thrown);
    }
  }

  failed(thrown: unknown): void {
    if (!this.#end()) return;
    const writer = this.#writer;
    if (writer === undefined) {
      this.#failed(thrown);
      return;
    }
    const room = writer.write(this.#telling.errorOf(thrown)) ?? Promise.resolve();
    room.then(() => {
      writer.end();
      this.#failed(thrown);
    });
  }

  /** A flow that does not hear of the signal would keep its reader waiting for ever. */
  readonly #aborted = (): void => {
    if (this.#isOver) return;
    this.#flow.leave();
    this.failed(this.#telling.signal.reason);
  };

  /** True the first time. */
  #end(): boolean {
    if (this.#isOver) return false;
    this.#isOver = true;
    this.#telling.signal.removeEventListener("abort", this.#aborted);
    return true;
  }
}
