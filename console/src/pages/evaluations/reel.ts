/** One clock for several films, without React. */

/** How far a film may be from the common time before it is moved, in seconds. */
const DRIFT_S = 0.15;

/** The members of a video that the clock uses. Times are in seconds; `duration` is NaN before it is known. */
export interface ReelFilm {
  currentTime: number;
  readonly duration: number;
  readonly ended: boolean;
  play(): Promise<void>;
  pause(): void;
}

/** The time of the page. */
export interface ReelTime {
  /** Milliseconds since any fixed time. */
  nowMs(): number;
  /** Calls `run` before the next frame is drawn; returns a function that cancels it. */
  nextFrame(run: () => void): () => void;
}

/** Plays films on one clock. A shorter film stays at its end. */
export class Reel {
  readonly #films = new Set<ReelFilm>();
  readonly #time: ReelTime;
  readonly #changed: () => void;
  #timeS = 0;
  /** Cancels the next frame; undefined while paused. */
  #cancel: (() => void) | undefined;
  /** The length of the longest film, in seconds. */
  lengthS = 0;

  /** `changed` is called after each change of `timeS` or `playing`. */
  constructor(time: ReelTime, changed: () => void) {
    this.#time = time;
    this.#changed = changed;
  }

  /** The common time, in seconds. */
  get timeS(): number {
    return this.#timeS;
  }

  get playing(): boolean {
    return this.#cancel !== undefined;
  }

  /** Adds a film; returns a function that removes it. */
  readonly add = (film: ReelFilm | null): (() => void) | undefined => {
    if (film === null) return undefined;
    this.#films.add(film);
    return () => void this.#films.delete(film);
  };

  /** Plays from the common time, or from the start if that is the end. */
  play(): void {
    if (this.#timeS >= this.lengthS) this.show(0);
    this.#run();
  }

  readonly pause = (): void => {
    this.#cancel?.();
    this.#cancel = undefined;
    for (const film of this.#films) film.pause();
    this.#changed();
  };

  /** Pauses at a time, in seconds. */
  show(at: number): void {
    this.#timeS = at;
    for (const film of this.#films) film.currentTime = Math.min(at, film.duration || 0);
    this.pause();
  }

  /** Plays from the start. */
  readonly restart = (): void => {
    this.show(0);
    this.#run();
  };

  #run(): void {
    this.#cancel?.();
    const startMs = this.#time.nowMs() - this.#timeS * 1000;
    for (const film of this.#films) void film.play().catch(() => undefined);
    const tick = (): void => {
      this.#timeS = Math.min(this.lengthS, (this.#time.nowMs() - startMs) / 1000);
      for (const film of this.#films) align(film, this.#timeS);
      if (this.#timeS >= this.lengthS) this.pause();
      else {
        this.#cancel = this.#time.nextFrame(tick);
        this.#changed();
      }
    };
    this.#cancel = this.#time.nextFrame(tick);
    this.#changed();
  }
}

function align(film: ReelFilm, now: number): void {
  const wanted = Math.min(now, film.duration || 0);
  if (!film.ended && Math.abs(film.currentTime - wanted) > DRIFT_S) film.currentTime = wanted;
}
