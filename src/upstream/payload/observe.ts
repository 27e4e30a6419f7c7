/** The newest observation of a request as the parts of a server's profile, each under its key. */
import { ImageFit, NumberType, PixelForm, PixelLayout } from "../../../gen/limber/v1/supply_pb.ts";
import { encoded, type RgbPixels } from "../../codecs/pictures/raw-pictures.ts";
import type { Asker } from "../../codecs/pictures/turns.ts";
import { NdArray } from "../../codecs/python/ndarray.ts";
import { AttemptFailure, type ModelInput, UpstreamFailure } from "../../contracts/contract.ts";
import { type EncodedFrame, type FrameSet, picturesIn } from "../pictures/frames.ts";
import { type FrameSlot, ownName, type Profile, type ProprioSlot } from "./profile.ts";

/** One part of an observation: pixels [H, W, 3] or [3, H, W], the image's own file, or numbers [D]. */
export interface ObservationPart {
  readonly key: string;
  readonly kind: "frame" | "proprio";
  readonly value: NdArray | EncodedFrame;
  /** The camera of an image. */
  readonly asker?: Asker;
}

/**
 * Returns frames first, then proprioception, each in the profile's order. Images are resized once per size and cached in the frame set. Throws
 * an UpstreamFailure `INPUT_REJECTED` if the caller's robot does not match the profile, before any image is decoded.
 */
export async function partsOf(profile: Profile, input: ModelInput, frames: FrameSet): Promise<ObservationPart[]> {
  const newest = input.observations.at(-1);
  if (newest === undefined) throw rejected("the request contains no observation");
  const proprio = proprioOf(profile, newest.proprio);
  const pictures = picturesFor(profile, input);
  const shown = pictures.map(async ({ slot, index }): Promise<ObservationPart> => {
    const value = slot.form === PixelForm.ENCODED ? await frames.bytes(index) : await pixelsOf(frames, index, slot);
    return { key: slot.key, kind: "frame", value, asker: frames.asker };
  });
  return [...(await Promise.all(shown)), ...proprio];
}

/** Proprioception parts and pixels are arrays; only a frame in its own encoding is not. */
export function arrayOf({ key, value }: ObservationPart): NdArray {
  if (value instanceof NdArray) return value;
  throw rejected(`this wire carries pixels, not files, under ${key}`);
}

/** Returns a frame as a file: as its camera encoded it, or pixels as a PNG. */
export async function fileOf({
  key,
  value,
  asker = NO_ASKER,
}: ObservationPart): Promise<Pick<EncodedFrame, "bytes" | "format">> {
  if (!(value instanceof NdArray)) return value;
  return { bytes: Buffer.from(await encoded(value, key, { asker })), format: "png" };
}

const NO_ASKER: Asker = { key: "", robot: "" };

/** The failure for an observation that a server cannot use. */
export const rejected = (message: string): UpstreamFailure =>
  new UpstreamFailure(AttemptFailure.INPUT_REJECTED, message, undefined, message);

/** Returns the index in the frame set of each image in the profile. */
export function picturesFor({ frames: slots }: Profile, input: ModelInput): { slot: FrameSlot; index: number }[] {
  const first = picturesIn(input.observations.slice(0, -1));
  const cameras = input.observations.at(-1)?.frames.map(({ camera }) => camera) ?? [];
  return slots.flatMap((slot, position) => {
    const { index, isOwn } = placeOf(slot, position, cameras);
    // An image under the server's own name is already in the server's form.
    if (cameras[index] !== undefined)
      return [{ slot: isOwn ? { ...slot, rotate180: false } : slot, index: first + index }];
    if (slot.optional) return [];
    throw rejected(`${wanted(slot)}; ${shown(cameras)}`);
  });
}

const MOST_ECHOED = 64;

/** Describes the missing image by the server's key and the camera's name. */
const wanted = ({ key, camera }: FrameSlot): string =>
  `the profile wants a picture for ${key}${camera === "" || camera === key ? "" : ` (the camera ${camera})`}`;

/** Lists the caller's images by its own names. */
function shown(cameras: readonly string[]): string {
  if (cameras.length === 0) return "the observation has none";
  const names = cameras.map((name) => (name === "" ? "a camera without a name" : name.slice(0, MOST_ECHOED)));
  return `the observation has one of ${names.join(", ")}`;
}

/** Frames are matched by their camera's name or the server's name for it; by position if the slot or the caller names no camera. */
function placeOf(
  { camera, key }: FrameSlot,
  position: number,
  cameras: readonly string[],
): { index: number; isOwn: boolean } {
  if (camera === "" || !cameras.some((name) => name !== "")) return { index: position, isOwn: false };
  const index = cameras.indexOf(camera);
  if (index >= 0) return { index, isOwn: false };
  return { index: cameras.findIndex((name) => name === key || name === ownName(key)), isOwn: true };
}

async function pixelsOf(frames: FrameSet, index: number, slot: FrameSlot): Promise<NdArray> {
  const { width, height } = slot;
  const fit = slot.fit === ImageFit.STRETCH ? "stretch" : "pad";
  const pixels = await frames.rgb(index, { width, height, fit });
  const turned = slot.rotate180 ? rotate180(pixels) : pixels.data;
  const isPlanar = slot.layout === PixelLayout.CHW;
  const data = isPlanar ? planes(turned) : turned;
  const shape = isPlanar ? [3, height, width] : [height, width, 3];
  if (slot.form !== PixelForm.F4) return NdArray.uint8(data, shape);
  return NdArray.float32(
    Float32Array.from(data, (byte) => byte / 255),
    shape,
  );
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

/** Converts to channels first. */
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

function proprioOf({ proprio, proprioDim }: Profile, given: readonly number[]): ObservationPart[] {
  if (proprioDim !== undefined && given.length !== proprioDim) {
    const keys = proprio.map(({ key }) => key).join(", ");
    throw rejected(`the profile wants ${proprioDim} proprioception values for ${keys}, not ${given.length}`);
  }
  const filled = proprio.filter((slot) => isFilled(slot, given.length));
  return filled.map((slot) => ({ key: slot.key, kind: "proprio", value: sliceOf(slot, given) }));
}

/** A part for the remaining values is not sent if there are none. A required part without values is refused by its key. */
function isFilled({ optional = false, start, end }: ProprioSlot, count: number): boolean {
  if (end !== undefined) return !optional || end <= count;
  return start < count || (!optional && start > count);
}

function sliceOf({ start, end, key, dtype }: ProprioSlot, given: readonly number[]): NdArray {
  if (start > given.length || (end ?? 0) > given.length)
    throw rejected(`there are too few proprioception values for ${key}`);
  const part = given.slice(start, end);
  return dtype === NumberType.F8 ? NdArray.float64(part) : NdArray.float32(part);
}
