/** What a model of the Open Inference Protocol takes and gives: a profile drafted from its metadata, and observations in its tensors. */
import { ImageFit, NumberType, PixelForm, PixelLayout, type WireProfile } from "../../../gen/limber/v1/supply_pb.ts";
import { NdArray } from "../../codecs/python/ndarray.ts";
import { type ObservationPart, rejected } from "../payload/observe.ts";
import {
  type FrameSlot,
  instructionIn,
  type Profile,
  Profiles,
  type ProprioSlot,
  picture,
  plainProfile,
  values,
} from "../payload/profile.ts";
import { malformed } from "../transport/failures.ts";
import { DTYPES, type ModelMetadata, type Tensor, type TensorMetadata } from "./tensors.ts";

const PROFILES = new Profiles(plainProfile({}));

/** The declared profile; what it leaves open is drafted from the model's metadata. */
export function profileFor(declared: WireProfile | undefined, metadata: ModelMetadata): Profile {
  const own = PROFILES.of(declared);
  const draft = draftProfile(metadata);
  const isOpen = own.frames.length === 0 && own.proprio.length === 0;
  return {
    ...own,
    frames: isOpen ? draft.frames : own.frames,
    proprio: isOpen ? draft.proprio : own.proprio,
    proprioDim: own.proprioDim ?? (isOpen ? draft.proprioDim : undefined),
    instructionKey: own.instructionKey || draft.instructionKey,
    actionKeys: own.actionKeys.length > 0 ? own.actionKeys : draft.actionKeys,
  };
}

const PICTURE_NAME = /image|frame|picture|camera|rgb|png|jpe?g/i;

/** Pictures by their shape or name, then numbers one behind the other, then the first text; the action is every output of floats, in order. */
export function draftProfile({ inputs, outputs }: ModelMetadata): Profile {
  const frames: FrameSlot[] = [];
  const proprio: ProprioSlot[] = [];
  let instructionKey = "";
  let start = 0;
  for (const input of inputs) {
    const frame = frameSlot(input);
    if (frame !== undefined) frames.push(frame);
    else if (input.datatype === "BYTES") instructionKey ||= input.name;
    else if (isFloat(input)) {
      const size = Math.max(0, input.shape.at(-1) ?? 0);
      const dtype = input.datatype === "FP64" ? NumberType.F8 : NumberType.F4;
      proprio.push(values(start, size === 0 ? undefined : start + size, input.name, dtype));
      start += size;
    }
  }
  const open = proprio.length === 0 || proprio.some(({ end }) => end === undefined);
  return plainProfile({
    frames,
    proprio,
    instructionKey,
    actionKeys: outputs.filter(isFloat).map(({ name }) => name),
    proprioDim: open ? undefined : start,
  });
}

const isFloat = ({ datatype }: TensorMetadata): boolean => datatype.startsWith("FP");

function frameSlot({ name, datatype, shape }: TensorMetadata): FrameSlot | undefined {
  if (datatype === "BYTES") return PICTURE_NAME.test(name) ? picture("", name, { form: PixelForm.ENCODED }) : undefined;
  const axes = shape.length === 4 ? shape.slice(1) : shape;
  if (axes.length !== 3 || (datatype !== "UINT8" && datatype !== "FP32")) return undefined;
  const isPlanar = axes[0] === 3 && axes[2] !== 3;
  if (!isPlanar && axes[2] !== 3) return undefined;
  const [height = 0, width = 0] = isPlanar ? axes.slice(1) : axes;
  return picture("", name, {
    layout: isPlanar ? PixelLayout.CHW : PixelLayout.HWC,
    form: datatype === "FP32" ? PixelForm.F4 : PixelForm.U1,
    fit: ImageFit.PAD,
    ...(width > 0 && { width }),
    ...(height > 0 && { height }),
  });
}

/**
 * Parts, instruction and constants as the model's own inputs: in its element types, with an axis for the batch where it has one.
 * Throws an UpstreamFailure `INPUT_REJECTED` for a part that the model hasn't, or has in another shape.
 */
export function tensorsOf(
  profile: Profile,
  parts: readonly ObservationPart[],
  instruction: string,
  { inputs }: ModelMetadata,
): Tensor[] {
  const wanted = new Map(inputs.map((input) => [input.name, input]));
  const find = (key: string): TensorMetadata => {
    const input = wanted.get(key);
    if (input === undefined) throw rejected(`the model has no input named ${key}`);
    return input;
  };
  const texts = instructionIn(profile, instruction).map(([key, value]) => ({ key, value }));
  return [
    ...parts.map(({ key, value }) =>
      value instanceof NdArray ? numbers(value, find(key)) : bytes(value.bytes, find(key)),
    ),
    ...[...texts, ...profile.constants].map(({ key, value }) =>
      typeof value === "string" ? bytes(Buffer.from(value), find(key)) : numbers(NdArray.float64([value]), find(key)),
    ),
  ];
}

function bytes(element: Buffer, { name, datatype, shape }: TensorMetadata): Tensor {
  if (datatype !== "BYTES") throw rejected(`the input ${name} is of type ${datatype}, not of bytes`);
  return { name, datatype, shape: shape.length === 2 ? [1, 1] : [1], data: [element] };
}

function numbers(array: NdArray, { name, datatype, shape }: TensorMetadata): Tensor {
  const dtype = DTYPES[datatype];
  if (dtype === undefined) throw rejected(`the input ${name} is of type ${datatype}`);
  const widened = array.shape.length + 1 === shape.length ? [1, ...array.shape] : array.shape;
  const fits = widened.length === shape.length && widened.every((size, i) => shape[i] === -1 || shape[i] === size);
  if (!fits) throw rejected(`the input ${name} is of shape [${shape}], not of [${array.shape}]`);
  if (dtype === array.dtype) return { name, datatype, shape: widened, data: array.data };
  const convert = CONVERT[datatype];
  if (convert === undefined) throw rejected(`the input ${name} is of type ${datatype}`);
  return { name, datatype, shape: widened, data: convert(array.toFloat64()) };
}

/** From doubles to the types that models take numbers in. */
const CONVERT: Readonly<Record<string, (values: Float64Array) => Uint8Array>> = {
  FP32: (from) => new Uint8Array(Float32Array.from(from).buffer),
  FP64: (from) => new Uint8Array(from.buffer),
  FP16: (from) => new Uint8Array(Float16Array.from(from).buffer),
  INT32: (from) => new Uint8Array(Int32Array.from(from).buffer),
  INT64: (from) => new Uint8Array(BigInt64Array.from(from, (each) => BigInt(Math.round(each))).buffer),
};

/** What is wrong between a profile and a model; undefined when they fit. */
export function mismatch(profile: Profile, { inputs, outputs }: ModelMetadata): string | undefined {
  const has = new Set(inputs.map(({ name }) => name));
  const named = [...profile.frames, ...profile.proprio, ...profile.constants].map(({ key }) => key);
  const missing = [...named, ...(profile.instructionKey === "" ? [] : [profile.instructionKey])].filter(
    (key) => !has.has(key),
  );
  if (missing.length > 0) return `the model has no inputs named ${missing.join(", ")}; it has ${[...has].join(", ")}`;
  const given = new Set(named).add(profile.instructionKey);
  const open = [...has].filter((name) => !given.has(name));
  if (open.length > 0) return `the profile says nothing of the inputs ${open.join(", ")}`;
  const gives = outputs.map(({ name }) => name);
  const lost = profile.actionKeys.filter((key) => !gives.includes(key));
  return lost.length > 0 ? `the model has no outputs named ${lost.join(", ")}; it has ${gives.join(", ")}` : undefined;
}

/** The output of this name. Throws an UpstreamFailure when there is none. */
export function outputOf(outputs: readonly Tensor[], name: string): Tensor {
  const output = outputs.find((each) => each.name === name);
  if (output === undefined) throw malformed(`there is no output named ${name}`);
  return output;
}
