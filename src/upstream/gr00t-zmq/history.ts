/**
 * Pictures of earlier moments, for servers that want more than the newest: N1.7 looks back by `delta_indices`, in control steps. A caller may
 * send the moments itself, as several observations; else the pictures of the earlier calls of its episode are kept.
 */
import { steadyNow } from "../../clock.ts";
import { NdArray } from "../../codecs/python/ndarray.ts";
import { type ActInput, episodeOf } from "../../contracts/contract.ts";
import { arrayOf, type ObservationPart, partsOf, rejected } from "../payload/observe.ts";
import { ownName, type Profile } from "../payload/profile.ts";
import type { FrameSet } from "../pictures/frames.ts";
import type { UpstreamTarget } from "../wire.ts";
import type { ModalityConfig, Shown, Speech } from "./messages.ts";

/** The pictures of one moment, by key. */
interface Moment {
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

/** All that an observation is made from. */
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
 * The observation. Throws an UpstreamFailure: the server wants a part that the caller or the profile has not, or the profile puts files where
 * the wire has pixels.
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

/** The keys of a flat observation, as a server with the wrapper names them: of what it is shown, and of what it wants. */
export const flatKeysOf = ({ video, state }: Shown, config: ModalityConfig | undefined): string[] => [
  ...[...video.keys(), ...(config?.video ?? [])].map((key) => `video.${ownName(key)}`),
  ...[...state.keys(), ...(config?.state ?? [])].map((key) => `state.${ownName(key)}`),
];

/** The moments to choose from: the caller's own, where it sends several, else those of its episode, else the newest alone. */
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

/** The pictures of the observations before the newest, oldest first; of those that have any. */
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

/** Observations beyond so many before the newest are not looked at. */
const MOST_EARLIER = 16;

const picturesIn = (parts: readonly ObservationPart[]): Map<string, NdArray> =>
  new Map(parts.filter(({ kind }) => kind === "frame").map((part) => [part.key, arrayOf(part)]));

/** A state is the same in all moments that are wanted of it. */
const repeated = ({ dtype, shape, data }: NdArray, times: number): NdArray =>
  new NdArray(dtype, [times, ...shape], times === 1 ? data : Buffer.concat(Array<Uint8Array>(times).fill(data)));

/** The server's own key, if it has one and does not know the profile's. */
function instructionKeyOf({ instructionKey }: Profile, config: ModalityConfig | undefined): string {
  const keys = config?.language ?? [];
  return keys.length !== 1 || keys.includes(instructionKey) ? instructionKey : keys[0]!;
}

/** Refuses input at which the server would fail, before it is called. N1.5 has its own instruction key, which later versions lack. */
function assertWhole({ video, state, instruction, instructionKey }: Shown, config: ModalityConfig): void {
  const has = new Set([...video.keys(), ...state.keys()].map(ownName));
  const missing = [...config.video, ...config.state].find((key) => !has.has(key));
  if (missing !== undefined) throw rejected(`the server requires ${missing}, which the observation lacks`);
  if (instruction === "" && config.tag !== "json" && config.language.length > 0)
    throw rejected(`the server requires an instruction under ${instructionKey}, which the request lacks`);
}
