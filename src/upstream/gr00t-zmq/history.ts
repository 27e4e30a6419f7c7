/**
 * Images of earlier moments, for servers that require more than the newest: N1.7 looks back by `delta_indices`, in control steps. A caller can
 * send the moments itself, as several observations; otherwise the images of earlier calls of its episode are used.
 */
import { steadyNow } from "../../clock.ts";
import { NdArray } from "../../codecs/python/ndarray.ts";
import { type ActInput, episodeOf } from "../../contracts/contract.ts";
import { arrayOf, type ObservationPart, partsOf, rejected } from "../payload/observe.ts";
import { ownName, type Profile } from "../payload/profile.ts";
import type { FrameSet } from "../pictures/frames.ts";
import type { UpstreamTarget } from "../wire.ts";
import type { ModalityConfig, Shown, Speech } from "./messages.ts";

/** The images of one moment, by key. */
interface Moment {
  /** In milliseconds of any clock; undefined if only the order is known. */
  readonly at: number | undefined;
  readonly pictures: ReadonlyMap<string, NdArray>;
}

/** Stored moments per episode, besides the newest. */
const MOST_KEPT = 8;
/** The maximum age of a moment in an episode without a known rate, and of an episode's newest moment before it expires. */
const FRESH_MS = 60_000;
/** The maximum size of all stored images in bytes; above it, the least recently called episode is dropped. */
const MOST_BYTES = 64 << 20;

/** The stored history of one episode. */
interface Film {
  readonly moments: (Moment & { readonly at: number })[];
  bytes: number;
}

/** The earlier images of one wire's episodes. */
export class Histories {
  /** Least recently called first. */
  readonly #films = new Map<string, Film>();
  #bytes = 0;

  /**
   * Returns an episode's moments, oldest first, ending with that of `at`, which is stored for later calls. A server looks back by `steps` of
   * `dtMs`.
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
    // A fast loop sends more moments than are useful.
    if (!last || at - last.at >= span / MOST_KEPT) {
      if (film.moments.length >= 2 * MOST_KEPT) this.#drop(film);
      film.moments.push({ at, pictures: new Map([...pictures].map(([key, picture]) => [key, alone(picture)])) });
      this.#count(film, sizeOf(pictures));
    }
    this.#tidy(at);
    return seen;
  }

  /** Drops expired episodes, and the least recently called ones above the size limit. */
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

/** Copies an image that is a view of its message, which would retain the complete message. */
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
 * Returns films [T, H, W, 3] with the images of the moments at `offsets`, in steps of `dtMs`. The nearest moment is used for each; without a
 * known rate, the last ones in order. Missing moments are replaced by the oldest.
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

/** The profile fixes sizes, so an image of another shape is from another profile. */
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

/** The inputs of an observation. */
interface ToShow {
  readonly target: UpstreamTarget;
  readonly profile: Profile;
  readonly input: ActInput;
  readonly frames: FrameSet;
  /** From partsOf, with the same profile. */
  readonly parts: readonly ObservationPart[];
  readonly speech: Speech;
  readonly histories: Histories;
}

/**
 * Builds the observation. Throws an UpstreamFailure if the server requires a part that the caller or the profile lacks, or if the profile
 * specifies files, while the wire has pixels.
 */
export async function shownBy(asked: ToShow): Promise<Shown> {
  const { profile, input, parts, speech } = asked;
  const { config } = speech;
  const film = await filmOf(asked);
  const states = parts.filter(({ kind }) => kind === "proprio");
  const shown = {
    video: stacked(film, config?.moments ?? NOW, asked.target.dtMs),
    state: new Map(states.map((part) => [part.key, repeated(arrayOf(part), config?.stateMoments ?? 1)])),
    instructionKey: instructionKeyOf(profile, config),
    instruction: input.instruction,
  };
  if (config?.tag !== undefined) assertWhole(shown, config);
  return shown;
}

const NOW: readonly number[] = [0];

/** The keys of a flat observation, as a server with the wrapper names them: the sent and the required ones. */
export const flatKeysOf = ({ video, state }: Shown, config: ModalityConfig | undefined): string[] => [
  ...[...video.keys(), ...(config?.video ?? [])].map((key) => `video.${ownName(key)}`),
  ...[...state.keys(), ...(config?.state ?? [])].map((key) => `state.${ownName(key)}`),
];

/** Returns the available moments: the caller's own if it sends several, otherwise those of its episode, otherwise only the newest. */
async function filmOf({ target, profile, input, frames, parts, speech, histories }: ToShow): Promise<Moment[]> {
  const newest = picturesIn(parts);
  const offsets = speech.config?.moments ?? NOW;
  if (offsets.length === 1 || newest.size === 0) return [{ at: undefined, pictures: newest }];
  const earlier = await earlierMoments(profile, input, frames);
  if (earlier.length > 0) return [...earlier, { at: input.observations.at(-1)?.tMs, pictures: newest }];
  const episode = episodeOf(input);
  if (episode === undefined) return [{ at: undefined, pictures: newest }];
  const steps = Math.max(0, -Math.min(...offsets));
  const now = { at: steadyNow(), pictures: newest };
  return histories.shown(`${target.offeringId} ${episode}`, now, { steps, dtMs: target.dtMs });
}

/** The images of the observations before the newest, oldest first, without observations that have none. */
async function earlierMoments(profile: Profile, input: ActInput, frames: FrameSet): Promise<Moment[]> {
  const { observations } = input;
  const loose = {
    ...profile,
    proprio: [],
    proprioDim: undefined,
    frames: profile.frames.map((slot) => ({ ...slot, optional: true })),
  };
  const moments: Moment[] = [];
  for (let i = Math.max(0, observations.length - MOST_EARLIER - 1); i < observations.length - 1; i++) {
    const until = { ...input, observations: observations.slice(0, i + 1) };
    const pictures = picturesIn(await partsOf(loose, until, frames));
    if (pictures.size > 0) moments.push({ at: observations[i]!.tMs, pictures });
  }
  return moments;
}

/** The maximum number of earlier observations that are used. */
const MOST_EARLIER = 16;

const picturesIn = (parts: readonly ObservationPart[]): Map<string, NdArray> =>
  new Map(parts.filter(({ kind }) => kind === "frame").map((part) => [part.key, arrayOf(part)]));

/** The state is repeated for every required moment. */
const repeated = ({ dtype, shape, data }: NdArray, times: number): NdArray =>
  new NdArray(dtype, [times, ...shape], times === 1 ? data : Buffer.concat(Array<Uint8Array>(times).fill(data)));

/** The server's own key, if it has one and does not know the profile's. */
function instructionKeyOf({ instructionKey }: Profile, config: ModalityConfig | undefined): string {
  const keys = config?.language ?? [];
  return keys.length !== 1 || keys.includes(instructionKey) ? instructionKey : keys[0]!;
}

/** Refuses input that the server would fail on, before calling it. N1.5 has its own instruction key, which later versions lack. */
function assertWhole({ video, state, instruction, instructionKey }: Shown, config: ModalityConfig): void {
  const has = new Set([...video.keys(), ...state.keys()].map(ownName));
  const missing = [...config.video, ...config.state].find((key) => !has.has(key));
  if (missing !== undefined) throw rejected(`the server requires ${missing}, which the observation lacks`);
  if (instruction === "" && config.tag !== "json" && config.language.length > 0)
    throw rejected(`the server requires an instruction under ${instructionKey}, which the request lacks`);
}
