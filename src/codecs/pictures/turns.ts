/**
 * Schedules the decoding, resizing and encoding of images. This work uses Node's four threads in order of submission, so one robot with many or
 * huge images could occupy them for seconds. Work therefore waits here: few images at a time, alternating between keys, and between the robots
 * of a key.
 */
import type { Signal } from "../../cancellation.ts";

/** The requesting key and robot. */
export interface Asker {
  readonly key: string;
  /** The call, stream or connection. */
  readonly robot: string;
}

/** How many images are processed at once. */
export interface TurnLimits {
  /** In total. One of the four threads is left for name lookups and files. */
  readonly all: number;
  /** Of those larger than `largePixels`, so that small ones never wait only for large ones. */
  readonly large: number;
  readonly largePixels: number;
}

/** Running and waiting work; `begun` and `left` are totals since the start of the process. */
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

/** The slots of one kind, in the order of callers. */
class Line {
  /** Keys and their robots, in the order of their turns. */
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

  /** Returns the next entry, and moves its key and robot to the end. */
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

/** The defaults of a process. */
export const TURN_LIMITS: TurnLimits = { all: 3, large: 1, largePixels: 1920 * 1080 };

/** Schedules image work. */
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
      // A large image uses its kind's slot as soon as that is free; all other slots are for small ones.
      const turn = (this.#largeRunning < large ? this.#large.take() : undefined) ?? this.#small.take();
      if (!turn) return;
      turn.begin();
    }
  }
}

/** The process-wide scheduler, because Node's threads are process-wide. */
export const pictureTurns = new PictureTurns();
