/** Which process a new connection goes to. */

/** A process that a new connection may go to, as its parent knows it. */
export interface Candidate {
  /** Connections that it has, with those that are on their way to it. */
  readonly connections: number;
  /** Those of them that it has had for less than two of its reports: what runs on them is not told of yet. */
  readonly fresh: number;
  /** Loops and calls that run in it. */
  readonly work: number;
  /** Milliseconds since it was last heard of. */
  readonly silentMs: number;
}

/** A process that was not heard of for longer may stand still. */
const LATE_MS = 1_000;

/**
 * The least loaded of the processes that were heard of lately, or of all where none was; undefined without any. Of equals the first in
 * the order of `from` on, so that they take turns.
 */
export function place<T extends Candidate>(processes: readonly T[], from = 0): T | undefined {
  const prompt = processes.filter(({ silentMs }) => silentMs < LATE_MS);
  const choice = prompt.length > 0 ? prompt : processes;
  let best: T | undefined;
  for (let i = 0; i < choice.length; i++) {
    const next = choice[(from + i) % choice.length]!;
    if (best === undefined || loadOf(next) < loadOf(best)) best = next;
  }
  return best;
}

/** What a robot is: a connection, a loop, and a call at times. */
const WORK_OF_A_CONNECTION = 2;

/**
 * Connections are counted here the moment they are handed over, and work is told of later: so work counts only where it is more than its
 * connections account for, as that of a proxy which carries the calls of many over one. A fresh connection counts beside it: many that come
 * together would all go to the process that had a little less to do when it was last heard of.
 */
const loadOf = ({ connections, fresh, work }: Candidate): number =>
  Math.max(connections - fresh, work / WORK_OF_A_CONNECTION) + fresh;
