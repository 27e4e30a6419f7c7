/** What LeRobot's client says, whichever way its messages are written. */
import { NdArray } from "../codecs/python/ndarray.ts";

/** What a client asks for before it begins. */
export interface LerobotSetup {
  /** `pretrained_name_or_path`: here the slug of a model, or an alias. */
  readonly model: string;
  /** Names of the numbers of its state, in order. */
  readonly motors: readonly string[];
  readonly cameras: readonly string[];
  readonly chunk: number;
  /** Actions as the client reads them: one for each step, from the observation's on, `dtMs` milliseconds apart. */
  readonly actions: (seen: LerobotObservation, steps: readonly (readonly number[])[], dtMs: number) => Buffer;
}

/** One observation, of which only what the setup names is read: a robot may send whatever else it knows. */
export interface LerobotObservation {
  /** Unix seconds by the robot's clock. */
  readonly timestamp: number;
  readonly timestep: number;
  readonly task: string;
  /** A number by the robot's own name: Python's own, one of numpy's, or an array of none but one; undefined where it has none. */
  readonly number: (name: string) => number | undefined;
  /** An array by the robot's own name; undefined where it has none. */
  readonly array: (name: string) => NdArray | undefined;
}

const IMAGES = "observation.images.";

/** The cameras among named features: pictures that a model of colors reads. Depth is one channel, and LeRobot's server shows it to no policy. */
export const camerasIn = (features: readonly (readonly [name: string, shape: unknown])[]): string[] =>
  features.flatMap(([name, shape]) => {
    const hasColors = !Array.isArray(shape) || (shape.length === 3 && shape[2] !== 1);
    return hasColors && name.startsWith(IMAGES) ? [name.slice(IMAGES.length)] : [];
  });

/** A number of a robot. Throws an error that names it where there is none. */
export function readNumber(seen: LerobotObservation, name: string): number {
  const value = seen.number(name);
  if (value === undefined) throw new TypeError(`the observation has no number ${name}`);
  return value;
}

/**
 * A picture in bytes, of whatever numbers the camera's driver makes: LeRobot's server divides all of them by 255, so each is a brightness
 * from 0 to 255. Throws an error that names the camera where there is no picture.
 */
export function readPicture(seen: LerobotObservation, camera: string): NdArray {
  const picture = seen.array(camera);
  if (picture === undefined) throw new TypeError(`the observation has no image ${camera}`);
  if (picture.dtype === "|u1") return picture;
  const bytes = Uint8Array.from(picture.toFloat64(), (value) => {
    const brightness = Math.round(value);
    if (brightness >= 0 && brightness <= 255) return brightness;
    throw new TypeError(`the picture ${camera} has ${value}; a brightness is a number from 0 to 255`);
  });
  return NdArray.uint8(bytes, picture.shape);
}

/** The number of an array that holds no more than one: a 0-d array, or LeRobot's own writer's, which gives a number of numpy's an axis of one. */
export const onlyOf = (array: NdArray | undefined): number | undefined =>
  array?.shape.every((length) => length === 1) ? array.toFloat64()[0] : undefined;
