/** Builds observations from what a robot senses. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import { BadInput } from "./errors.ts";
import type { ObservationSchema } from "./gen/limber/v1/observation_pb.ts";

/** What a robot senses at one moment. */
export interface Sensed {
  /** Encoded images (PNG, JPEG or WebP) by camera name, or their `https:` or `data:` URLs. */
  readonly images?: Readonly<Record<string, Uint8Array | string>>;
  /** Proprioception, in the order and units that the model declares; or each value by its name. */
  readonly state?: ArrayLike<number> | Readonly<Record<string, number>>;
  /** Gripper opening, in the range that the model declares. */
  readonly gripper?: number;
  /** Capture time, in milliseconds of the robot's own clock. */
  readonly tMs?: number;
}

/** The fields of an observation message. */
export type ObservationInit = MessageInitShape<typeof ObservationSchema>;

/** Magic bytes of encoded images: JPEG, PNG, and the RIFF header of WebP. */
const BEGINNINGS: readonly (readonly number[])[] = [
  [0xff, 0xd8, 0xff],
  [0x89, 0x50, 0x4e, 0x47],
  [0x52, 0x49, 0x46, 0x46],
];

/** Builds an observation. Throws `BadInput` for numbers that are not finite and for images that are not encoded. */
export function observationOf({ images = {}, state = [], gripper, tMs }: Sensed): ObservationInit {
  const isList = Array.isArray(state) || ArrayBuffer.isView(state);
  const proprio = isList ? Array.from(state as ArrayLike<number>) : Object.values(state as Record<string, number>);
  const wrong = proprio.findIndex((value) => typeof value !== "number" || !Number.isFinite(value));
  if (wrong >= 0) throw new BadInput(`state[${wrong}] must be a finite number, got ${proprio[wrong]}`);
  for (const [name, value] of Object.entries({ gripper, tMs }))
    if (value !== undefined && !Number.isFinite(value))
      throw new BadInput(`${name} must be a finite number, got ${value}`);
  return {
    frames: Object.entries(images).map(([camera, picture]) =>
      typeof picture === "string" ? { camera, url: picture } : { camera, data: pictureOf(camera, picture) },
    ),
    proprio,
    ...(!isList && { proprioNames: Object.keys(state) }),
    ...(gripper !== undefined && { gripper }),
    ...(tMs !== undefined && { tMs }),
  };
}

/** Copies an image, so that the camera can reuse its buffer. */
function pictureOf(camera: string, picture: Uint8Array): Uint8Array<ArrayBuffer> {
  const kind = Object.prototype.toString.call(picture).slice("[object ".length, -1);
  if (kind !== "Uint8Array")
    throw new BadInput(`images.${camera} must be a Uint8Array with an encoded PNG, JPEG or WebP, got ${kind}`);
  if (!BEGINNINGS.some((bytes) => bytes.every((byte, at) => picture[at] === byte)))
    throw new BadInput(
      `images.${camera} must be an encoded PNG, JPEG or WebP; encode pixels first, for example with sharp or a canvas`,
    );
  return Uint8Array.from(picture);
}
