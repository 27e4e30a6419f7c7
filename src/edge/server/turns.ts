/** How many requests begin in one turn of the event loop, and which calls are running. */
import { steadyNow } from "../../clock.ts";

/** So many requests are begun in a turn. Calls that are served are far fewer: the load shedder sees to that. */
const MOST_A_TURN = 256;
/** No request is begun once a turn has begun requests for so long, in milliseconds: on a part of a core 256 of them may take a tenth of a second. */
const TURN_MS = 8;
/** The clock is read once for so many requests. */
const LOOK_EVERY = 8;

let turn = 0;
let begun = 0;
let since = 0;
let isLate = false;
let isCounted = false;

/** The number of this turn. Between two moments with one number nothing else was read. */
function currentTurn(): number {
  if (!isCounted) setImmediate(end);
  isCounted = true;
  return turn;
}

/** Counts a request that begins. */
export function countRequest(): void {
  currentTurn();
  if (begun === 0) since = steadyNow();
  else if (begun % LOOK_EVERY === 0) isLate = steadyNow() - since >= TURN_MS;
  begun++;
}

/** Whether no further request should begin in this turn. */
export const isTurnSpent = (): boolean => isLate || begun >= MOST_A_TURN;

const end = (): void => {
  isCounted = false;
  turn++;
  begun = 0;
  isLate = false;
};

/** So many requests of one connection are begun in a turn. */
const MOST_OF_ONE = 32;

/**
 * Begins the requests of one connection that come in one piece: all in order, few in each turn. Those of other connections begin
 * between them, so that a connection with a thousand requests delays its own alone.
 */
export class RequestTurns {
  #waiting: (() => void)[] = [];
  #begun = 0;
  #turn = -1;

  /** Begins a request, now or in a later turn. */
  begin(run: () => void): void {
    if (this.#waiting.length === 0 && this.#mayBegin()) this.#run(run);
    else if (this.#waiting.push(run) === 1) setImmediate(this.#goOn);
  }

  /** Deletes what waits. */
  end(): void {
    this.#waiting = [];
  }

  #mayBegin(): boolean {
    const now = currentTurn();
    if (now !== this.#turn) this.#begun = 0;
    this.#turn = now;
    return this.#begun < MOST_OF_ONE && !isTurnSpent();
  }

  #run(run: () => void): void {
    this.#begun++;
    countRequest();
    run();
  }

  readonly #goOn = (): void => {
    let next = 0;
    // At least one, so that each connection moves on however many there are.
    while (next < this.#waiting.length && (this.#mayBegin() || next === 0)) this.#run(this.#waiting[next++]!);
    this.#waiting.splice(0, next);
    if (this.#waiting.length > 0) setImmediate(this.#goOn);
  };
}

/**
 * Members that come and go by the thousand a second. Not a Set: one that grows or shrinks leaves a table behind, which the collector takes for
 * alive until its next full round, with all members that were in it and all that they hold.
 */
export class RunningCalls<T> {
  readonly #places: (T | undefined)[] = [];
  readonly #free: number[] = [];

  /** Takes a member in; call the returned function once, when it leaves. */
  enter(member: T): () => void {
    const place = this.#free.pop() ?? this.#places.length;
    this.#places[place] = member;
    return () => {
      this.#places[place] = undefined;
      this.#free.push(place);
    };
  }

  /** Calls `visit` for every member; members may leave meanwhile. */
  each(visit: (member: T) => void): void {
    for (const member of [...this.#places]) if (member !== undefined) visit(member);
  }
}
