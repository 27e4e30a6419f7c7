/**
 * A robot's observation as openpi's client sends it, as an act request. Sources: the observation keys of openpi's own policies
 * (Physical-Intelligence/openpi, src/openpi/policies), and of the environments under its `examples/`; RoboArena's of its server's own
 * description (robo-arena/roboarena, roboarena/policy_server.py at 3034234, policy_client.py at 55aa8a8).
 */

import { create } from "@bufbuild/protobuf";
import { ActRequestSchema } from "../../../../gen/limber/v1/inference_service_pb.ts";
import { type EncodeOptions, headOf, isPicture, unfit } from "../../../codecs/pictures/raw-pictures.ts";
import type { Unpacked, UnpackedMap } from "../../../codecs/python/msgpack.ts";
import { NdArray } from "../../../codecs/python/ndarray.ts";
import { numbersIn, textIn } from "../../../codecs/python/values.ts";
import type { OwnRequest } from "../own-keys.ts";

/** What the address of a connection says about all of its calls. */
export interface OpenpiQuery {
  readonly model: string;
  readonly preset?: string;
  readonly actionSpace?: string;
  /** Exactly so many steps; the model's whole chunk when absent. */
  readonly horizon?: number;
  readonly sessionId: string;
  /** Number of the episode on this connection, whichever session a message names. */
  readonly episode: number;
  /** The robot's name, for the emergency stop. */
  readonly robotId?: string;
  /** What the actions of a client of RoboArena mean to its robot; absent for clients of openpi. */
  readonly roboarena?: RoboarenaSpace;
  /** Of a client of XPolicyLab: the parts of its state that the model reads, and those of an action. */
  readonly xpolicylab?: { readonly stateKeys?: readonly NamedPart[]; readonly actionKeys?: readonly NamedPart[] };
}

/** A part of a state or of an action, and how many numbers it has where that is said. */
export type NamedPart = readonly [name: string, dim: number | undefined];

/** The action spaces of RoboArena, its default first. */
export const ROBOARENA_SPACES = [
  "joint_position",
  "joint_velocity",
  "cartesian_position",
  "cartesian_velocity",
] as const;
export type RoboarenaSpace = (typeof ROBOARENA_SPACES)[number];

/** What a message asks for. */
interface OpenpiAsked {
  readonly endpoint: "infer" | "reset";
  /** The episode that the message names; undefined where it names none. */
  readonly sessionId: string | undefined;
}

/** What a message asks for: clients of RoboArena say so in it, for others it is always an act. Refuses another endpoint. */
export function askedBy(message: OpenpiValue): OpenpiAsked {
  const field = (name: string): OpenpiValue | undefined => (message instanceof Map ? message.get(name) : undefined);
  const endpoint = field("endpoint") ?? "infer";
  if (endpoint !== "infer" && endpoint !== "reset") throw unfit("endpoint", "must be infer or reset");
  const session = field("session_id");
  return { endpoint, sessionId: typeof session === "string" && session !== "" ? session : undefined };
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

/** RoboArena counts its cameras from 0, openpi's policy for DROID has the first one under the name of the second. */
const FIRST_OF_TWO = "observation/exterior_image_0_left";
const ROBOARENA: Readonly<Record<string, Camera>> = { "observation/exterior_image_1_left": { name: "exterior_2" } };

/** Where the instruction stands, the first of them that is there. */
const PROMPTS = ["prompt", "task"];

/** Where the message is about, not what the robot senses. */
const ADDRESS = new Set(["endpoint", "session_id"]);

/** RoboArena's clients always send it; policies for DROID read the eight numbers of joints and gripper. */
const POSE = "observation/cartesian_position";

/** Numbers come in this order, those that are not named after them. */
const NUMBERS = ["observation/joint_position", "observation/gripper_position", "observation/state", "state"];

/** The request that an observation makes. Refuses what is no observation, or has pictures or numbers of forms that openpi has not. */
export async function requestOf(observation: OpenpiValue, asked: OpenpiQuery, by: EncodeOptions): Promise<OwnRequest> {
  if (!(observation instanceof Map)) throw unfit("", "the observation must be a map");
  const fields = flatten(observation);
  const cameras = {
    ...CAMERAS,
    ...(fields.has("observation/wrist_image") && LIBERO),
    ...(fields.has(FIRST_OF_TWO) && ROBOARENA),
  };
  const pictures: { camera: Camera; key: string; value: NdArray }[] = [];
  const numbers = new Map<string, Float64Array>();
  let count = 0;
  const { sessionId, roboarena, ...request } = asked;
  for (const [key, value] of fields) {
    if (ADDRESS.has(key) || PROMPTS.includes(key) || (roboarena?.startsWith("joint") && key === POSE)) continue;
    const picture = value instanceof NdArray ? pictureIn(value) : undefined;
    if (picture) {
      if (pictures.length === MOST_PICTURES)
        throw unfit("", `the observation must have at most ${MOST_PICTURES} images`);
      pictures.push({ camera: cameras[key] ?? { name: lastWord(key) }, key, value: picture });
    } else if (isImageKey(key) && value != null) throw unfit(key, imageText(value));
    else if (isNumbers(value)) {
      const read = valuesIn(value, key);
      count += read.length;
      if (count > MOST_NUMBERS) throw unfit(key, `brings the observation above the maximum of ${MOST_NUMBERS} numbers`);
      numbers.set(key, read);
    } else if (!isSaid(value) || (NUMBERS.includes(key) && value != null))
      throw unfit(key, "must be an image of shape [height, width, 3], or an array or a list of numbers");
  }
  const order = [
    ...NUMBERS.filter((key) => numbers.has(key)),
    ...[...numbers.keys()].filter((key) => !NUMBERS.includes(key)),
  ];
  const promptKey = PROMPTS.find((key) => fields.get(key) != null);
  const prompt = promptKey === undefined ? "" : textIn(fields.get(promptKey));
  if (prompt === undefined) throw unfit(promptKey!, "must be one text, or a list or an array of one");
  // Begun when nothing else can be wrong any more: what fails is heard.
  const frames = pictures.map(async ({ camera: { name, turned = false }, key, value }) => {
    return { camera: name, data: await headOf(value, key, { ...by, turned }) };
  });
  const keys = {
    cameras: new Map(pictures.map(({ camera, key }) => [camera.name, key])),
    frames: "the observation",
    proprio: order.join(" and ") || "observation/state",
    instruction: promptKey ?? "prompt",
  };
  const act = create(ActRequestSchema, {
    ...request,
    // The client replays whatever chunk it gets, and its broker raises an error if one is shorter than announced.
    ...(asked.horizon === undefined && { wholeChunk: true }),
    ...(prompt !== "" && { instruction: prompt }),
    observations: [{ frames: await Promise.all(frames), proprio: order.flatMap((key) => [...numbers.get(key)!]) }],
    provider: { sessionId },
  });
  return { request: act, keys };
}

/** As many as an observation may have. */
export const MOST_PICTURES = 16;

/** A picture, without axes of one in front of it. */
function pictureIn(array: NdArray): NdArray | undefined {
  const { dtype, shape, data } = array;
  const extra = Math.max(0, shape.length - 3);
  if (extra === 0) return isPicture(array) ? array : undefined;
  const isOne = shape.slice(0, extra).every((size) => size === 1);
  return isOne ? pictureIn(new NdArray(dtype, shape.slice(extra), data)) : undefined;
}

/** Whether the key names an image, as every environment of openpi and its simulators write it. */
const isImageKey = (key: string): boolean =>
  Object.hasOwn(CAMERAS, key) || /(?:^|_)(?:images?|rgb|pixels)(?:_|$)/i.test(lastWord(key));

/** The rest of the refusal of a value under an image's key. */
const imageText = (value: OpenpiValue): string =>
  `must be an image of shape [height, width, 3] or [3, height, width], got ${value instanceof NdArray ? `[${value.shape.join(", ")}]` : "no array"}`;

const isNumbers = (value: OpenpiValue): boolean => !isSaid(value) && !(value instanceof Map) && !Buffer.isBuffer(value);

/** Texts and marks such as a session's name say nothing of what the robot senses. */
const isSaid = (value: OpenpiValue): boolean =>
  value === null || typeof value === "boolean" || (!Buffer.isBuffer(value) && textIn(value) !== undefined);

/** What a robot senses in numbers: with history, but without pictures that lack color. */
const MOST_AXES = 2;
/** As many as `proprio` may have. */
const MOST_NUMBERS = 4096;

function valuesIn(value: OpenpiValue, key: string): Float64Array {
  const array = numbersIn(value);
  if (array === undefined) throw unfit(key, "must contain only numbers, in rows of equal length");
  const isPlain = array.shape.length <= MOST_AXES;
  // Refused before megabytes of them are read.
  if (isPlain && array.shape.reduce((product, size) => product * size, 1) > MOST_NUMBERS)
    throw unfit(key, `brings the observation above the maximum of ${MOST_NUMBERS} numbers`);
  if (isPlain) return array.toFloat64();
  throw unfit(
    key,
    `must be numbers, or an image of shape [height, width, 3] or [3, height, width], got [${array.shape.join(", ")}]`,
  );
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
