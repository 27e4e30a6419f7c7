/**
 * Whose turn it is to have a picture decoded, resized or encoded. That work runs on Node's four threads, in the order in which it was
 * asked for: one robot with many pictures, or with few that are huge, would have all of them for seconds. So it waits here for its turn: few
 * pictures at a time, keys one after the other, and of a key its robots one after the other.
 */
import type { Signal } from "../../cancellation.ts";

/** The requesting key and robot. */
export interface Asker {
  readonly key: string;
  /** The call, the stream or the connection. */
  readonly robot: string;
}

/** How many pictures are worked on at a time. */
export interface TurnLimits {
  /** Of all; one of the four threads is left to names and files. */
  readonly all: number;
  /** Of those that are larger than `largePixels`: the others never wait for these alone. */
  readonly large: number;
  readonly largePixels: number;
}

/** What is done and what waits; `begun` and `left` are counted from the start of the process. */
export interface TurnFigures {
  readonly running: number;
  readonly waiting: number;
  readonly begun: number;
  /** Rejections of entries canceled before their turn. */
  readonly left: number;
}

interface Turn {
  readonly asker: Asker;
  readonly begin: () => void;
}

/** Turns of one kind, in the order of askers. */
class Line {
  /** Keys, and the robots of each, in the order in which it is their turn. */
  readonly #keys = new Map<string, Map<string, Turn[]>>();
  size = 0;

  add(turn: Turn): void {
    const { key, robot } = turn.asker;
    const robots = this.#keys.get(key) ?? new Map<string, Turn[]>();
    const turns = robots.get(robot) ?? [];
    turns.push(turn);
    robots.set(robot, turns);
    this.#keys.set(key, robots);
    this.size += 1;
  }

  /** The next one; whose it was stands behind all others then. */
  take(): Turn | undefined {
    for (const [key, robots] of this.#keys)
      for (const [robot, turns] of robots) {
        const turn = turns.shift();
        this.#keys.delete(key);
        robots.delete(robot);
        if (turns.length > 0) robots.set(robot, turns);
        if (robots.size > 0) this.#keys.set(key, robots);
        this.size -= 1;
        return turn;
      }
    return undefined;
  }

  remove(turn: Turn): void {
    const { key, robot } = turn.asker;
    const robots = this.#keys.get(key);
    const turns = robots?.get(robot);
    if (!robots || !turns) return;
    turns.splice(turns.indexOf(turn), 1);
    this.size -= 1;
    if (turns.length === 0) robots.delete(robot);
    if (robots.size === 0) this.#keys.delete(key);
  }
}

/** What a process uses. */
export const TURN_LIMITS: TurnLimits = { all: 3, large: 1, largePixels: 1920 * 1080 };

/** Gives turns. */
export class PictureTurns {
  readonly #limits: TurnLimits;
  readonly #small = new Line();
  readonly #large = new Line();
  #running = 0;
  #largeRunning = 0;
  #begun = 0;
  #left = 0;

  constructor(limits: TurnLimits = TURN_LIMITS) {
    this.#limits = limits;
  }

  get figures(): TurnFigures {
    const waiting = this.#small.size + this.#large.size;
    return { running: this.#running, waiting, begun: this.#begun, left: this.#left };
  }

  /**
   * Runs the work in turn and settles like it. Rejects with the signal's reason if that is aborted before; work that has started cannot be
   * stopped.
   */
  run<T>(asker: Asker, pixels: number, work: () => Promise<T>, signal?: Signal): Promise<T> {
    if (signal?.aborted) return Promise.reject(signal.reason);
    const isLarge = pixels > this.#limits.largePixels;
    const line = isLarge ? this.#large : this.#small;
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        line.remove(turn);
        this.#left += 1;
        reject(signal?.reason);
      };
      const turn: Turn = {
        asker,
        begin: () => {
          signal?.removeEventListener("abort", leave);
          this.#count(1, isLarge);
          this.#begun += 1;
          Promise.try(work)
            .finally(() => {
              this.#count(-1, isLarge);
              this.#next();
            })
            .then(resolve, reject);
        },
      };
      signal?.addEventListener("abort", leave, { once: true });
      line.add(turn);
      this.#next();
    });
  }

  #count(change: 1 | -1, isLarge: boolean): void {
    this.#running += change;
    if (isLarge) this.#largeRunning += change;
  }

  #next(): void {
    const { all, large } = this.#limits;
    while (this.#running < all) {
      // A large one takes the turn of its kind as soon as that is free; all other turns are for the small.
      const turn = (this.#largeRunning < large ? this.#large.take() : undefined) ?? this.#small.take();
      if (!turn) return;
      turn.begin();
    }
  }
}

/** The turns of this process, for its threads are. */
export const pictureTurns = new PictureTurns();
