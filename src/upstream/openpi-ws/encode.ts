/** A request of the gateway as the observation that a server of the openpi wire expects. */
import { ImageFit, NumberType, PixelLayout } from "../../../gen/limber/v1/supply_pb.ts";
import type { Packable } from "../../codecs/msgpack.ts";
import { encodeNumpy, NdArray } from "../../codecs/ndarray.ts";
import type { ActInput } from "../../contracts/contract.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import type { FrameSet, RgbPixels } from "../frames.ts";
import { picturesIn } from "../pictures.ts";
import type { FrameSlot, Profile, ProprioSlot } from "./profiles.ts";

/** A map of the observation while it's being filled. */
type Observation = Map<string, Packable<NdArray>>;

/** What a server's metadata say of its dialect, beyond plain openpi. */
export interface Dialect {
  /** The server wants to be told that it shall infer, and in which session (RoboArena, DreamZero, vLLM-Omni). */
  readonly addressed: boolean;
}

/** The newest observation as a server gets it. Throws an UpstreamFailure `INPUT_REJECTED` when the caller's robot doesn't fit the profile. */
export async function observationOf(profile: Profile, input: ActInput, frames: FrameSet): Promise<Observation> {
  const newest = input.observations.at(-1);
  if (newest === undefined) throw rejected("there is no observation");
  const observation: Observation = new Map();
  await Promise.all(placeFrames(observation, profile, input, frames));
  placeProprio(observation, profile, newest.proprio);
  observation.set(profile.instructionKey, input.instruction);
  return observation;
}

/** One message with the observation, addressed as the server's dialect wants it. */
export function encodeObservation(observation: Observation, dialect: Dialect, input: ActInput): Buffer {
  if (!dialect.addressed) return encodeNumpy(observation);
  const { sessionId, seed } = input;
  const addressed = new Map(observation).set("endpoint", "infer");
  if (sessionId !== undefined) addressed.set("session_id", sessionId);
  if (seed !== undefined) addressed.set("seed", seed);
  return encodeNumpy(addressed);
}

function placeFrames(
  into: Observation,
  { frames: slots }: Profile,
  input: ActInput,
  frames: FrameSet,
): Promise<void>[] {
  const first = picturesIn(input.observations.slice(0, -1));
  const cameras = input.observations.at(-1)?.frames.map(({ camera }) => camera) ?? [];
  return slots.flatMap((slot, position) => {
    const index = indexOf(slot, position, cameras);
    if (index === undefined && slot.optional) return [];
    if (index === undefined) throw rejected(`the profile wants a picture for ${slot.key}`);
    place(into, slot.key, null); // keeps the profile's order of keys, whichever picture is ready first
    return pixelsOf(frames, first + index, slot).then((pixels) => place(into, slot.key, pixels));
  });
}

/** Frames go by their camera's name; by their place where the slot names no camera or the caller names none. */
function indexOf({ camera }: FrameSlot, position: number, cameras: readonly string[]): number | undefined {
  const named = camera !== "" && cameras.some((name) => name !== "");
  const index = named ? cameras.indexOf(camera) : position;
  return cameras[index] === undefined ? undefined : index;
}

async function pixelsOf(frames: FrameSet, index: number, slot: FrameSlot): Promise<NdArray> {
  const { width, height } = slot;
  const fit = slot.fit === ImageFit.STRETCH ? "stretch" : "pad";
  const pixels = await frames.rgb(index, { width, height, fit });
  const turned = slot.rotate180 ? rotate180(pixels) : pixels.data;
  if (slot.layout !== PixelLayout.CHW) return NdArray.uint8(turned, [height, width, 3]);
  return NdArray.uint8(planes(turned), [3, height, width]);
}

function rotate180({ data }: RgbPixels): Uint8Array {
  const turned = Buffer.allocUnsafe(data.length);
  for (let from = 0, to = data.length - 3; to >= 0; from += 3, to -= 3) {
    turned[to] = data[from]!;
    turned[to + 1] = data[from + 1]!;
    turned[to + 2] = data[from + 2]!;
  }
  return turned;
}

/** Channels first. */
function planes(data: Uint8Array): Uint8Array {
  const pixels = data.length / 3;
  const planar = Buffer.allocUnsafe(data.length);
  for (let i = 0, at = 0; i < pixels; i++, at += 3) {
    planar[i] = data[at]!;
    planar[pixels + i] = data[at + 1]!;
    planar[2 * pixels + i] = data[at + 2]!;
  }
  return planar;
}

function placeProprio(into: Observation, { proprio, proprioDim }: Profile, given: readonly number[]): void {
  if (proprioDim !== undefined && given.length !== proprioDim) {
    throw rejected(`the profile wants ${proprioDim} proprioception values, not ${given.length}`);
  }
  for (const slot of proprio) place(into, slot.key, sliceOf(slot, given));
}

function sliceOf({ start, end, key, dtype }: ProprioSlot, given: readonly number[]): NdArray {
  if (start > given.length || (end ?? 0) > given.length)
    throw rejected(`there are too few proprioception values for ${key}`);
  const part = given.slice(start, end);
  return dtype === NumberType.F8 ? NdArray.float64(part) : NdArray.float32(part);
}

/** Sets a value under a key whose dots open maps. */
function place(into: Observation, key: string, value: Packable<NdArray>): void {
  const [head = "", ...rest] = key.split(".");
  if (rest.length === 0) {
    into.set(head, value);
    return;
  }
  const inner = into.get(head);
  const map: Observation = inner instanceof Map ? inner : new Map();
  into.set(head, map);
  place(map, rest.join("."), value);
}

const rejected = (message: string): UpstreamFailure => new UpstreamFailure(AttemptFailure.INPUT_REJECTED, message);
