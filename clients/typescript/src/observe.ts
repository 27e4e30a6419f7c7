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

/** Makes the observation; throws `BadInput` for numbers that are none. */
export function observationOf({ images = {}, state = [], gripper, tMs }: Sensed): ObservationInit {
  const isList = Array.isArray(state) || ArrayBuffer.isView(state);
  const proprio = isList ? Array.from(state as ArrayLike<number>) : Object.values(state as Record<string, number>);
  const wrong = proprio.findIndex((value) => typeof value !== "number" || !Number.isFinite(value));
  if (wrong >= 0) throw new BadInput(`state[${wrong}] must be a finite number, not ${proprio[wrong]}`);
  return {
    frames: Object.entries(images).map(([camera, picture]) =>
      typeof picture === "string" ? { camera, url: picture } : { camera, data: Uint8Array.from(picture) },
    ),
    proprio,
    ...(!isList && { proprioNames: Object.keys(state) }),
    ...(gripper !== undefined && { gripper }),
    ...(tMs !== undefined && { tMs }),
  };
}
