/**
 * Pictures of earlier moments, for servers that want more than the newest: N1.7 looks back by `delta_indices`, in control steps. A caller may
 * send the moments itself, as several observations; else the pictures of the earlier calls of its episode are kept.
 */
import { NdArray } from "../../codecs/python/ndarray.ts";

/** The pictures of one moment, by key. */
export interface Moment {
  /** In milliseconds of any one clock; undefined where only the order is known. */
  readonly at: number | undefined;
  readonly pictures: ReadonlyMap<string, NdArray>;
}

/** Moments that are kept of an episode, beside its newest. */
const MOST_KEPT = 8;
/** What is older than this is of another episode, where there is no rhythm; an episode whose newest moment is, is over. */
const FRESH_MS = 60_000;
/** Bytes of all pictures that are kept: beyond it the episode goes that was called longest ago. */
const MOST_BYTES = 64 << 20;

/** What one episode has shown. */
interface Film {
  readonly moments: (Moment & { readonly at: number })[];
  bytes: number;
}

/** The earlier pictures of the episodes of one wire. */
export class Histories {
  /** Called longest ago first. */
  readonly #films = new Map<string, Film>();
  #bytes = 0;

  /**
   * The moments that an episode has shown, oldest first and that of `at` last, which is kept for its next calls. A server looks back by `steps`
   * of `dtMs`.
   */
  shown(
    episode: string,
    { at, pictures }: Moment & { readonly at: number },
    { steps, dtMs }: { steps: number; dtMs: number },
  ): Moment[] {
    const span = steps * dtMs;
    const film = this.#films.get(episode) ?? { moments: [], bytes: 0 };
    this.#films.delete(episode);
    this.#films.set(episode, film);
    const freshMs = span > 0 ? 2 * span : FRESH_MS;
    while (film.moments.length > 0 && film.moments[0]!.at < at - freshMs) this.#drop(film);
    const seen: Moment[] = [...film.moments, { at, pictures }];
    const last = film.moments.at(-1);
    // A fast loop shows more moments than are of use.
    if (!last || at - last.at >= span / MOST_KEPT) {
      if (film.moments.length >= 2 * MOST_KEPT) this.#drop(film);
      film.moments.push({ at, pictures: new Map([...pictures].map(([key, picture]) => [key, alone(picture)])) });
      this.#count(film, sizeOf(pictures));
    }
    this.#tidy(at);
    return seen;
  }

  /** Forgets episodes that are over, and those that were called longest ago where there is too much of all. */
  #tidy(at: number): void {
    for (const [episode, film] of this.#films) {
      const isOver = (film.moments.at(-1)?.at ?? 0) < at - FRESH_MS;
      if (!isOver && this.#bytes <= MOST_BYTES) return;
      this.#count(film, -film.bytes);
      this.#films.delete(episode);
    }
  }

  #drop(film: Film): void {
    const gone = film.moments.shift();
    if (gone) this.#count(film, -sizeOf(gone.pictures));
  }

  #count(film: Film, bytes: number): void {
    film.bytes += bytes;
    this.#bytes += bytes;
  }
}

/** A picture that is a view of the message that it came with would keep all of that, however much it is. */
const alone = (picture: NdArray): NdArray =>
  picture.data.buffer.byteLength === picture.data.length
    ? picture
    : new NdArray(picture.dtype, picture.shape, new Uint8Array(picture.data));

function sizeOf(pictures: Moment["pictures"]): number {
  let bytes = 0;
  for (const { data } of pictures.values()) bytes += data.length;
  return bytes;
}

/**
 * The newest pictures of a film, each [T, H, W, 3] with those of the moments that `offsets` name in steps of `dtMs`. The nearest moment stands
 * for each; where there is no rhythm, the last ones in their order. What is missing is the oldest that there is.
 */
export function stacked(film: readonly Moment[], offsets: readonly number[], dtMs: number): Map<string, NdArray> {
  const newest = film.at(-1);
  const chosen = offsets.map((offset, i) => momentFor(film, offset, offsets.length - i, dtMs));
  return new Map(
    [...(newest?.pictures ?? [])].map(([key, picture]) => {
      const each = chosen.map((moment) => alike(moment?.pictures.get(key), picture));
      return [key, new NdArray(picture.dtype, [each.length, ...picture.shape], joined(each))];
    }),
  );
}

const joined = (pictures: readonly NdArray[]): Uint8Array =>
  pictures.length === 1 ? pictures[0]!.data : Buffer.concat(pictures.map(({ data }) => data));

/** The profile fixes sizes, so that only another profile's picture is of another shape. */
const alike = (earlier: NdArray | undefined, now: NdArray): NdArray =>
  earlier !== undefined && earlier.data.length === now.data.length ? earlier : now;

function momentFor(film: readonly Moment[], offset: number, fromEnd: number, dtMs: number): Moment | undefined {
  const newest = film.at(-1)?.at;
  if (dtMs <= 0 || newest === undefined || film.some(({ at }) => at === undefined))
    return film[Math.max(0, film.length - fromEnd)];
  const wanted = newest + offset * dtMs;
  let nearest: Moment | undefined;
  for (const moment of film)
    if (nearest === undefined || Math.abs(moment.at! - wanted) <= Math.abs(nearest.at! - wanted)) nearest = moment;
  return nearest;
}
