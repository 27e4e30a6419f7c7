/** The control loops that this replica carries: looked after once a second, found by session, ended together. */
import { every } from "../../../ambient.ts";
import { Reason, type Refusal, refuse } from "../../../refusal.ts";
import type { Mover, StopBook } from "../../robot/stop-book.ts";
import type { LastChunk } from "./resumption.ts";

/** A loop as the board knows it. */
export interface Carried {
  /** The stream's identifier. */
  readonly id: string;
  /** The last chunk that was charged. */
  readonly last: LastChunk | undefined;
  /** The session with its organisation; undefined where none was named. */
  readonly session: string | undefined;
  /** Whom it moves, as emergency stops know it. */
  readonly mover: Mover;
  /** A second has passed. */
  tidy(): void;
  /** Ends as soon as no answer is awaited. */
  drain(): void;
  /** Ends at once. */
  cut(refusal: Refusal): void;
}

const TIDY_MS = 1_000;

/** All loops of one replica. */
export class LoopBoard {
  readonly #loops = new Set<Carried>();
  readonly #sessions = new Map<string, Carried>();
  readonly #rest: () => void;
  #draining = false;

  constructor() {
    this.#rest = every(TIDY_MS, () => {
      for (const loop of this.#loops) loop.tidy();
    });
  }

  /** Takes a loop in; one that has its session is answered, for the new one takes over. */
  enter(loop: Carried): Carried | undefined {
    this.#loops.add(loop);
    if (loop.session === undefined) return undefined;
    const before = this.#sessions.get(loop.session);
    this.#sessions.set(loop.session, loop);
    return before;
  }

  /** Lets a loop go. */
  leave(loop: Carried): void {
    this.#loops.delete(loop);
    if (loop.session !== undefined && this.#sessions.get(loop.session) === loop) this.#sessions.delete(loop.session);
  }

  /** Ends the loop that a session is in, where another stream has taken it on another replica. */
  taken(session: string, stream: string): void {
    const loop = this.#sessions.get(session);
    if (loop && loop.id !== stream) loop.cut(takenOver());
  }

  /** Calls `visit` for every loop; they may leave meanwhile. */
  each(visit: (loop: Carried) => void): void {
    for (const loop of [...this.#loops]) visit(loop);
  }

  /** How many there are. */
  get size(): number {
    return this.#loops.size;
  }

  /** Whether no new loops are taken in. */
  get draining(): boolean {
    return this.#draining;
  }

  /** Ends every loop as soon as no answer is awaited in it. */
  drain(): void {
    this.#draining = true;
    this.each((loop) => loop.drain());
  }

  /** Cuts, from now on, every loop that an emergency stop covers. */
  obey(stops: StopBook): void {
    stops.follow(() =>
      this.each((loop) => {
        const refusal = stops.refusalOf(loop.mover);
        if (refusal) loop.cut(refusal);
      }),
    );
  }

  /** Looks after nobody any longer. */
  close(): void {
    this.#rest();
  }
}

/** The refusal of a stream whose session another one has taken. */
export const takenOver = (): Refusal =>
  refuse(Reason.SESSION_TAKEN_OVER, "another stream of the same session was opened; it goes on there");
