/** What a server is shown: the newest observation of a request, with as many earlier moments as the server wants. */
import { steadyNow } from "../../clock.ts";
import { NdArray } from "../../codecs/python/ndarray.ts";
import { type ActInput, episodeOf } from "../../contracts/contract.ts";
import { arrayOf, type ObservationPart, partsOf, rejected } from "../payload/observe.ts";
import { ownName, type Profile } from "../payload/profile.ts";
import type { FrameSet } from "../pictures/frames.ts";
import type { UpstreamTarget } from "../wire.ts";
import type { ModalityConfig } from "./decode.ts";
import type { Shown } from "./encode.ts";
import { type Histories, type Moment, stacked } from "./history.ts";
import type { Speech } from "./speech.ts";

/** All that an observation is made from. */
export interface ToShow {
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

/** The server's own key, where it has one and the profile's is none of its keys. */
function instructionKeyOf({ instructionKey }: Profile, config: ModalityConfig | undefined): string {
  const keys = config?.language ?? [];
  return keys.length !== 1 || keys.includes(instructionKey) ? instructionKey : keys[0]!;
}

/** Refuses what the server would fail at, before it is asked. N1.5 has an instruction of its own, which later ones have not. */
function assertWhole({ video, state, instruction, instructionKey }: Shown, config: ModalityConfig): void {
  const has = new Set([...video.keys(), ...state.keys()].map(ownName));
  const missing = [...config.video, ...config.state].find((key) => !has.has(key));
  if (missing !== undefined) throw rejected(`the server wants ${missing}, and the observation has none`);
  if (instruction === "" && config.tag !== "json" && config.language.length > 0)
    throw rejected(`the server wants an instruction under ${instructionKey}, and the request has none`);
}
