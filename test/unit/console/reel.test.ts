/** The common clock of films that the console shows side by side. */
import { expect, it } from "vitest";
import { Reel, type ReelFilm } from "../../../console/src/pages/evaluations/reel.ts";

/** A film on a manual clock, which can lag behind. */
class FakeFilm implements ReelFilm {
  currentTime = 0;
  playing = false;
  readonly duration: number;
  constructor(duration: number) {
    this.duration = duration;
  }
  get ended(): boolean {
    return this.currentTime >= this.duration;
  }
  async play(): Promise<void> {
    this.playing = true;
  }
  pause(): void {
    this.playing = false;
  }
}

/** A reel with films of these lengths, in seconds. */
function opened(...lengths: readonly number[]) {
  let ms = 5_000;
  let frame: (() => void) | undefined;
  const time = {
    nowMs: () => ms,
    nextFrame(run: () => void) {
      frame = run;
      return () => {
        frame = undefined;
      };
    },
  };
  const reel = new Reel(time, () => {});
  reel.lengthS = Math.max(...lengths);
  const films = lengths.map((length) => new FakeFilm(length));
  for (const film of films) reel.add(film);
  /** Draws a frame after some time, in which each film that plays advances at its speed. */
  const passes = (seconds: number, speeds: readonly number[] = []): void => {
    ms += 1000 * seconds;
    for (const [i, film] of films.entries())
      if (film.playing) film.currentTime = Math.min(film.duration, film.currentTime + seconds * (speeds[i] ?? 1));
    const run = frame;
    frame = undefined;
    run?.();
  };
  const times = (): number[] => films.map(({ currentTime }) => Math.round(1000 * currentTime) / 1000);
  return { reel, films, passes, times, isDrawing: () => frame !== undefined };
}

it("films side by side play together, the shorter one stays at its end, and all pause at the end of the longest", () => {
  const { reel, films, passes, times, isDrawing } = opened(2, 4);
  reel.play();
  passes(1);
  expect([reel.timeS, times()]).toEqual([1, [1, 1]]);
  passes(2);
  expect([reel.timeS, times()]).toEqual([3, [2, 3]]);
  passes(3);
  expect([reel.timeS, reel.playing, isDrawing(), times()]).toEqual([4, false, false, [2, 4]]);
  expect(films.map(({ playing }) => playing)).toEqual([false, false]);
  reel.play();
  expect([reel.timeS, reel.playing, times()]).toEqual([0, true, [0, 0]]);
});

it("a film more than 0.15 s away from the others is moved to the common time, and a nearer one is not", () => {
  const { reel, passes, times } = opened(10, 10);
  reel.play();
  passes(1, [0.9, 0.8]);
  expect(times()).toEqual([0.9, 1]);
  passes(1, [0.9, 1.2]);
  expect(times()).toEqual([2, 2]);
});

it("paused films stay at the common time and continue from it", () => {
  const { reel, films, passes, times } = opened(10, 10);
  reel.play();
  passes(1);
  reel.pause();
  passes(5);
  expect([reel.timeS, times(), films.map(({ playing }) => playing)]).toEqual([1, [1, 1], [false, false]]);
  reel.play();
  passes(1);
  expect([reel.timeS, times()]).toEqual([2, [2, 2]]);
});

it("a chosen time pauses all films there, each within its own length, and a restart begins at 0", () => {
  const { reel, films, passes, times } = opened(2, 10, Number.NaN);
  reel.lengthS = 10;
  reel.play();
  passes(1);
  reel.show(6);
  expect([reel.timeS, reel.playing, times()]).toEqual([6, false, [2, 6, 0]]);
  expect(films.some(({ playing }) => playing)).toBe(false);
  reel.restart();
  passes(0.5);
  expect([reel.timeS, reel.playing, times().slice(0, 2)]).toEqual([0.5, true, [0.5, 0.5]]);
});

it("a removed film is left alone", () => {
  const { reel, films } = opened(10);
  const late = new FakeFilm(10);
  reel.add(late)?.();
  reel.play();
  expect([films[0]!.playing, late.playing]).toEqual([true, false]);
});
