/**
 * A robot's observation as openpi's client sends it, as an act request. Sources: the observation keys of openpi's own policies
 * (Physical-Intelligence/openpi, src/openpi/policies), and of the environments under its `examples/`.
 */
import { create } from "@bufbuild/protobuf";
import { type ActRequest, ActRequestSchema } from "../../../../gen/limber/v1/inference_service_pb.ts";
import { encoded, isPicture, unfit } from "../../../codecs/pictures/raw-pictures.ts";
import type { Unpacked, UnpackedMap } from "../../../codecs/python/msgpack.ts";
import { NdArray } from "../../../codecs/python/ndarray.ts";

/** What the address of a connection says about all of its calls. */
export interface OpenpiQuery {
  readonly model: string;
  readonly preset?: string;
  readonly actionSpace?: string;
  readonly horizon?: number;
  readonly sessionId: string;
}

type OpenpiValue = Unpacked<NdArray>;

/** A camera of the gateway, and whether this environment turns its pictures by half a turn before it sends them. */
interface Camera {
  readonly name: string;
  readonly turned?: boolean;
}

/** Cameras by their keys; a key that is not here names its camera by its last word. */
const CAMERAS: Readonly<Record<string, Camera>> = {
  "observation/exterior_image_1_left": { name: "exterior_1" },
  "observation/exterior_image_0_left": { name: "exterior_1" },
  "observation/wrist_image_left": { name: "wrist" },
  "observation/wrist_image": { name: "wrist", turned: true },
};

/** LIBERO, whose first camera has the name that other environments give to their only one. */
const LIBERO: Readonly<Record<string, Camera>> = { "observation/image": { name: "agentview", turned: true } };

/** Numbers come in this order, those that are not named after them. */
const NUMBERS = ["observation/joint_position", "observation/gripper_position", "observation/state", "state"];

/** The request that an observation makes. Refuses what is no observation, or has pictures or numbers of forms that openpi has not. */
export async function requestOf(observation: OpenpiValue, asked: OpenpiQuery): Promise<ActRequest> {
  if (!(observation instanceof Map)) throw unfit("", "an observation is a map");
  const fields = flatten(observation);
  const cameras = fields.has("observation/wrist_image") ? { ...CAMERAS, ...LIBERO } : CAMERAS;
  const frames: Promise<{ camera: string; data: Uint8Array }>[] = [];
  const numbers = new Map<string, Float64Array>();
  for (const [key, value] of fields) {
    if (value instanceof NdArray && isPicture(value)) {
      const { name, turned = false } = cameras[key] ?? { name: lastWord(key) };
      frames.push(encoded(value, key, turned).then((data) => ({ camera: name, data })));
    } else if (isNumbers(value)) numbers.set(key, numbersIn(value, key));
    else if (!isSaid(value))
      throw unfit(key, "a picture is an array of [height, width, 3], numbers are an array or a list of them");
  }
  const order = [
    ...NUMBERS.filter((key) => numbers.has(key)),
    ...[...numbers.keys()].filter((key) => !NUMBERS.includes(key)),
  ];
  const prompt = fields.get("prompt") ?? fields.get("task");
  if (prompt !== undefined && typeof prompt !== "string") throw unfit("prompt", "a prompt is a text");
  const { sessionId, ...request } = asked;
  return create(ActRequestSchema, {
    ...request,
    ...(typeof prompt === "string" && { instruction: prompt }),
    observations: [{ frames: await Promise.all(frames), proprio: order.flatMap((key) => [...numbers.get(key)!]) }],
    provider: { sessionId },
  });
}

type OpenpiNumbers = NdArray | number | OpenpiValue[];

const isNumbers = (value: OpenpiValue): value is OpenpiNumbers =>
  value instanceof NdArray || typeof value === "number" || Array.isArray(value);

/** Texts and marks such as a session's name say nothing of what the robot senses. */
const isSaid = (value: OpenpiValue): boolean =>
  value === null || typeof value === "string" || typeof value === "boolean";

/** What a robot senses in numbers: history and all, but no picture that lacks its colours. */
const MOST_AXES = 2;

function numbersIn(value: OpenpiNumbers, key: string): Float64Array {
  if (typeof value === "number") return Float64Array.of(value);
  if (value instanceof NdArray) {
    if (value.shape.length <= MOST_AXES) return value.toFloat64();
    throw unfit(
      key,
      `an array of [${value.shape.join(", ")}] is neither numbers nor a picture, [height, width, 3] or [3, height, width]`,
    );
  }
  if (!value.every((each) => typeof each === "number")) throw unfit(key, "a list has numbers alone");
  return Float64Array.from(value);
}

/** Maps inside maps, as ALOHA has its pictures, under the keys joined by a dot. */
function flatten(
  map: UnpackedMap<NdArray>,
  prefix = "",
  into = new Map<string, OpenpiValue>(),
): Map<string, OpenpiValue> {
  for (const [key, value] of map) {
    const name = `${prefix}${String(key)}`;
    if (value instanceof Map) flatten(value, `${name}.`, into);
    else into.set(name, value);
  }
  return into;
}

const lastWord = (key: string): string => key.split(/[/.]/).at(-1) ?? key;
