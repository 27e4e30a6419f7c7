/** Limits the requests that start in one event loop turn, and tracks running calls. */
import { steadyNow } from "../../clock.ts";

/** The most requests started per turn. Far fewer calls are served: load shedding ensures that. */
const MOST_A_TURN = 256;
/** No more requests start once a turn has spent this long on starting them, in milliseconds: on a fraction of a core, 256 take 100 ms. */
const TURN_MS = 8;
/** The number of requests per clock read. */
const LOOK_EVERY = 8;

let turn = 0;
let begun = 0;
let since = 0;
let isLate = false;
let isCounted = false;

/** The number of this turn. Nothing else was read between two moments with the same number. */
function currentTurn(): number {
  if (!isCounted) setImmediate(end);
  isCounted = true;
  return turn;
}

/** Counts a request that starts. */
export function countRequest(): void {
  currentTurn();
  if (begun === 0) since = steadyNow();
  else if (begun % LOOK_EVERY === 0) isLate = steadyNow() - since >= TURN_MS;
  begun++;
}

/** Whether no further request should start in this turn. */
export const isTurnSpent = (): boolean => isLate || begun >= MOST_A_TURN;

const end = (): void => {
  isCounted = false;
  turn++;
  begun = 0;
  isLate = false;
};

/** The most requests of one connection started per turn. */
const MOST_OF_ONE = 32;

/**
 * Starts the requests of one connection that arrive together: in order, and few per turn. Requests of other connections start between them, so
 * a connection with a thousand requests delays only its own.
 */
export class RequestTurns {
  #waiting: (() => void)[] = [];
  #begun = 0;
  #turn = -1;

  /** Starts a request, now or in a later turn. */
  begin(run: () => void): void {
    if (this.#waiting.length === 0 && this.#mayBegin()) this.#run(run);
    else if (this.#waiting.push(run) === 1) setImmediate(this.#goOn);
  }

  /** Drops waiting requests. */
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
    // At least one, so that each connection makes progress regardless of their number.
    while (next < this.#waiting.length && (this.#mayBegin() || next === 0)) this.#run(this.#waiting[next++]!);
    this.#waiting.splice(0, next);
    if (this.#waiting.length > 0) setImmediate(this.#goOn);
  };
}

/**
 * A set for thousands of additions and removals per second. Not a Set: when that grows or shrinks, it leaves a table behind, which stays until
 * the next full collection with all former members and what they refer to.
 */
export class RunningCalls<T> {
  readonly #places: (T | undefined)[] = [];
  readonly #free: number[] = [];

  /** Adds a member; call the returned function once to remove it. */
  enter(member: T): () => void {
    const place = this.#free.pop() ?? this.#places.length;
    this.#places[place] = member;
    return () => {
      this.#places[place] = undefined;
      this.#free.push(place);
    };
  }

  /** Calls `visit` for every member; members can be removed meanwhile. */
  each(visit: (member: T) => void): void {
    for (const member of [...this.#places]) if (member !== undefined) visit(member);
  }
}
