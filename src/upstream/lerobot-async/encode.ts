/** Requests to LeRobot's asynchronous inference server: pickles of its own classes, in pieces of its own stream messages. */
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { frameMessage } from "../../codecs/grpc.ts";
import type { NdArray } from "../../codecs/python/ndarray.ts";
import { type Picklable, PyFloat, writePickle } from "../../codecs/python/pickle-write.ts";
import { arrayOf, type ObservationPart } from "../payload/observe.ts";
import type { Profile } from "../payload/profile.ts";

/** Where its classes live since 0.4.0. */
const HELPERS = "lerobot.async_inference.helpers";
const PIECE_BYTES = 2 << 20;
const TRANSFER = { begin: 1, middle: 2, end: 3 } as const;

/** A message without fields. */
export const encodeNothing = (): Buffer => frameMessage(new Uint8Array());

/** The policy that the offering names, and what it will be shown. */
export function encodeSetup({ frames, proprio, constants }: Profile): Buffer {
  const constant = new Map(constants.map(({ key, value }) => [key, value]));
  const names = proprio.map(({ key }) => key);
  const state: [string, Picklable] = [
    "observation.state",
    new Map<string, Picklable>([
      ["dtype", "float32"],
      ["shape", { tuple: [names.length] }],
      ["names", names],
    ]),
  ];
  const cameras = frames.map(({ key, width, height }): [string, Picklable] => [
    `observation.images.${key}`,
    new Map<string, Picklable>([
      ["dtype", "image"],
      ["shape", { tuple: [height, width, 3] }],
      ["names", ["height", "width", "channels"]],
    ]),
  ]);
  const fields = new Map<string, Picklable>([
    ["policy_type", constant.get("policy_type") ?? ""],
    ["pretrained_name_or_path", constant.get("pretrained_name_or_path") ?? ""],
    ["lerobot_features", new Map([state, ...cameras])],
    ["actions_per_chunk", constant.get("actions_per_chunk") ?? 50],
    ["device", constant.get("device") ?? "cuda"],
    ["rename_map", new Map()],
  ]);
  const setup = writePickle({ instance: [HELPERS, "RemotePolicyConfig"], fields });
  return frameMessage(new BinaryWriter().tag(1, WireType.LengthDelimited).bytes(setup).finish());
}

/** One observation that the server has to look at, as the messages of its stream. Throws an UpstreamFailure for files in a picture's place. */
export function encodeObservation(
  parts: readonly ObservationPart[],
  task: string,
  timestep: number,
  timestamp: number,
): Buffer {
  const observation = new Map<string, Picklable>(parts.map((part) => [part.key, pickled(part, arrayOf(part))]));
  observation.set("task", task);
  const fields = new Map<string, Picklable>([
    ["timestamp", new PyFloat(timestamp)],
    ["timestep", timestep],
    ["observation", observation],
    ["must_go", true],
  ]);
  return inPieces(writePickle({ instance: [HELPERS, "TimedObservation"], fields }));
}

/** A motor is a float by its name; a picture is an array of numpy's. */
function pickled({ kind }: ObservationPart, array: NdArray): Picklable {
  const { shape, dtype, data } = array;
  if (kind === "frame") return { call: ["numpy", "ndarray"], args: [{ tuple: shape }, dtype, data] };
  return new PyFloat(array.toFloat64()[0]);
}

function inPieces(pickle: Buffer): Buffer {
  const count = Math.max(1, Math.ceil(pickle.length / PIECE_BYTES));
  return Buffer.concat(
    Array.from({ length: count }, (_, i) => {
      const transfer = i === count - 1 ? TRANSFER.end : i === 0 ? TRANSFER.begin : TRANSFER.middle;
      const writer = new BinaryWriter().tag(1, WireType.Varint).int32(transfer);
      writer.tag(2, WireType.LengthDelimited).bytes(pickle.subarray(i * PIECE_BYTES, (i + 1) * PIECE_BYTES));
      return frameMessage(writer.finish());
    }),
  );
}
