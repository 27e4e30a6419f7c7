/** What a robot senses, in the form that a call takes. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import { BadInput } from "./errors.ts";
import type { ObservationSchema } from "./gen/limber/v1/observation_pb.ts";

/** What a robot senses at one moment. */
export interface Sensed {
  /** Encoded pictures (PNG, JPEG or WebP) by the name of their camera, or `https:` and `data:` addresses of them. */
  readonly images?: Readonly<Record<string, Uint8Array | string>>;
  /** Proprioception, in the order and the units that the model declares; or each value by its name. */
  readonly state?: ArrayLike<number> | Readonly<Record<string, number>>;
  /** Opening of the gripper, in the range that the model declares. */
  readonly gripper?: number;
  /** When it was sensed, in milliseconds on the robot's own clock. */
  readonly tMs?: number;
}

/** A message's worth of what a robot senses. */
export type ObservationInit = MessageInitShape<typeof ObservationSchema>;

/** What encoded pictures begin with: JPEG, PNG, and RIFF of WebP. */
const BEGINNINGS: readonly (readonly number[])[] = [
  [0xff, 0xd8, 0xff],
  [0x89, 0x50, 0x4e, 0x47],
  [0x52, 0x49, 0x46, 0x46],
];

/** Makes the observation; throws `BadInput` for numbers that are none, and for pictures that are not encoded. */
export function observationOf({ images = {}, state = [], gripper, tMs }: Sensed): ObservationInit {
  const isList = Array.isArray(state) || ArrayBuffer.isView(state);
  const proprio = isList ? Array.from(state as ArrayLike<number>) : Object.values(state as Record<string, number>);
  const wrong = proprio.findIndex((value) => typeof value !== "number" || !Number.isFinite(value));
  if (wrong >= 0) throw new BadInput(`state[${wrong}] must be a finite number, not ${proprio[wrong]}`);
  for (const [name, value] of Object.entries({ gripper, tMs }))
    if (value !== undefined && !Number.isFinite(value))
      throw new BadInput(`${name} must be a finite number, not ${value}`);
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

/** A copy of the picture, so that a camera may write over its buffer. */
function pictureOf(camera: string, picture: Uint8Array): Uint8Array<ArrayBuffer> {
  const kind = Object.prototype.toString.call(picture).slice("[object ".length, -1);
  if (kind !== "Uint8Array")
    throw new BadInput(`images.${camera} must be the bytes of a PNG, JPEG or WebP in a Uint8Array, and is ${kind}`);
  if (!BEGINNINGS.some((bytes) => bytes.every((byte, at) => picture[at] === byte)))
    throw new BadInput(
      `images.${camera} is no PNG, JPEG or WebP: pixels have to be encoded first, for example with sharp or a canvas`,
    );
  return Uint8Array.from(picture);
}
