/**
 * What one turn of the event loop begins. Requests of all connections count: what comes behind the last of them waits for the next turn, so that
 * a flood of requests that are refused at once leaves turns short, and others are heard between them.
 */

/** So many requests are begun in a turn. Calls that are served are far fewer: the load shedder sees to that. */
export const MOST_A_TURN = 256;

let turn = 0;
let begun = 0;
let isCounted = false;

/** The number of this turn. Between two moments with one number nothing else was read. */
export function currentTurn(): number {
  if (!isCounted) setImmediate(end);
  isCounted = true;
  return turn;
}

/** Counts a request that begins. */
export function countRequest(): void {
  currentTurn();
  begun++;
}

/** Whether no further request should begin in this turn. */
export const isTurnSpent = (): boolean => begun >= MOST_A_TURN;

const end = (): void => {
  isCounted = false;
  turn++;
  begun = 0;
};
