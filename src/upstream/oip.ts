/** The Open Inference Protocol over any transport: act and predict by a model's tensors, and the probe's checks. */
import { ImageFit, NumberType, PixelForm, PixelLayout, type WireProfile } from "../../gen/limber/v1/supply_pb.ts";
import { steadyNow } from "../clock.ts";
import { type DType, fromBfloat16, NdArray } from "../codecs/python/ndarray.ts";
import { AttemptFailure, type ModelInput, UpstreamFailure } from "../contracts/contract.ts";
import { chunkOf, sideBySide, tableOf } from "./payload/actions.ts";
import { type ObservationPart, partsOf, rejected } from "./payload/observe.ts";
import {
  type FrameSlot,
  instructionIn,
  type Profile,
  Profiles,
  type ProprioSlot,
  picture,
  plainProfile,
  values,
  wantsOf,
} from "./payload/profile.ts";
import type { FrameSet } from "./pictures/frames.ts";
import { framesIn } from "./pictures/video.ts";
import { failureOf, malformed } from "./transport/failures.ts";
import type { CallOptions, UpstreamTarget, Wire } from "./wire.ts";

/** The operations of a transport; each rejects with an UpstreamFailure. */
export interface OipTransport {
  /** Resolves when the server is ready for any model. */
  serverReady(target: UpstreamTarget, call: CallOptions): Promise<void>;
  modelReady(target: UpstreamTarget, model: OipModelName, call: CallOptions): Promise<void>;
  metadata(target: UpstreamTarget, model: OipModelName, call: CallOptions): Promise<ModelMetadata>;
  /** The names of the requested outputs; empty for all. */
  infer(
    target: UpstreamTarget,
    model: OipModelName,
    request: InferRequest,
    call: CallOptions,
  ): Promise<readonly Tensor[]>;
  close(): Promise<void>;
}

/** The server's name of a model; an empty version is the server's choice. */
export interface OipModelName {
  readonly name: string;
  readonly version: string;
}

/** One inference. */
export interface InferRequest {
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly string[];
}

/** Milliseconds for which a model's metadata are kept. */
const METADATA_MS = 60_000;
const MAX_MODELS = 1_024;

/** `name`, or `name/version`: the profile's `server_model`, otherwise the slug's own name. */
function modelOf({ model, profile }: UpstreamTarget): OipModelName {
  const [name = "", version = ""] = (profile?.serverModel ?? model.slice(model.indexOf("/") + 1)).split("/");
  return { name, version };
}

/** Opens a wire of the protocol over this transport. */
export function oipWire(id: string, schemes: readonly string[], transport: OipTransport): Wire {
  const known = new Map<string, { at: number; metadata: ModelMetadata }>();

  const metadataOf = async (target: UpstreamTarget, call: CallOptions): Promise<ModelMetadata> => {
    const model = modelOf(target);
    const key = `${target.auth.type} ${target.auth.secret} ${target.endpoint} ${model.name}/${model.version}`;
    const kept = known.get(key);
    if (kept !== undefined && steadyNow() - kept.at < METADATA_MS) return kept.metadata;
    if (known.size >= MAX_MODELS) known.clear();
    const metadata = await transport.metadata(target, model, call);
    known.set(key, { at: steadyNow(), metadata });
    return metadata;
  };

  /** One inference, with its profile. */
  const infer = async (
    target: UpstreamTarget,
    input: ModelInput,
    frames: FrameSet,
    call: CallOptions,
    outputs: (profile: Profile, metadata: ModelMetadata) => readonly string[],
  ): Promise<{ profile: Profile; names: readonly string[]; answered: readonly Tensor[] }> => {
    const metadata = await metadataOf(target, call);
    const profile = profileFor(target.profile, metadata);
    const names = outputs(profile, metadata);
    const parts = await partsOf(profile, input, frames);
    const request = { inputs: tensorsOf(profile, parts, input.instruction, metadata), outputs: names };
    return { profile, names, answered: await transport.infer(target, modelOf(target), request, call) };
  };

  return {
    id,
    schemes,
    async wants(target, call) {
      return wantsOf(profileFor(target.profile, await metadataOf(target, call)));
    },
    probes: [
      {
        name: "model_ready",
        required: true,
        async look(target, call) {
          await transport.modelReady(target, modelOf(target), call);
          return `the model ${modelOf(target).name} is ready`;
        },
      },
      {
        name: "model_metadata",
        required: true,
        async look(target, call) {
          const metadata = await transport.metadata(target, modelOf(target), call);
          const profile = profileFor(target.profile, metadata);
          const fault = mismatch(profile, metadata);
          if (fault !== undefined) throw new Error(fault);
          const keys = [...profile.frames, ...profile.proprio].map(({ key }) => key).join(", ");
          return `takes ${keys || "nothing of the observation"}; acts by ${profile.actionKeys.join(", ") || "no output"}`;
        },
      },
    ],
    async act(target, input, frames, call) {
      const { profile, names, answered } = await infer(target, input, frames, call, ({ actionKeys }) => actionKeys);
      if (names.length === 0) throw new UpstreamFailure(AttemptFailure.EMPTY_ANSWER, "the model has no float output");
      const tables = names.map((name) => tableOf(numbersOf(outputOf(answered, name))));
      return chunkOf(sideBySide(tables, { dims: profile.actionDims, dim: target.actionDim }), input.horizon);
    },
    async *predict(target, input, frames, call) {
      const { names, answered } = await infer(target, input, frames, call, (_, { outputs }) =>
        outputs.filter(({ datatype }) => datatype === "UINT8").map(({ name }) => name),
      );
      const [video = ""] = names;
      const pictures = await framesIn(numbersOf(outputOf(answered, video)), target.dtMs, input.horizon);
      for (const frame of pictures) yield { kind: "frame", frame };
      yield { kind: "summary", gpuSeconds: 0, note: "" };
    },
    health: (target, call) => transport.serverReady(target, call),
    close: () => transport.close(),
  };
}

/** Throws an UpstreamFailure, also if shape and bytes differ. */
function numbersOf(tensor: Tensor): NdArray {
  try {
    return arrayOfTensor(tensor);
  } catch (error) {
    throw failureOf(error);
  }
}

const PROFILES = new Profiles(plainProfile({}));

/** The declared profile; its open fields are drafted from the model's metadata. */
function profileFor(declared: WireProfile | undefined, metadata: ModelMetadata): Profile {
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

/** Images by their shape or name, then consecutive numbers, then the first text; the action is every float output, in order. */
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
 * Writes parts, instruction and constants as the model's own inputs: in its element types, with a batch axis if it has one. Throws an
 * UpstreamFailure `INPUT_REJECTED` for a part that the model lacks, or has in another shape.
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

/** Converts doubles to the models' number types. */
const CONVERT: Readonly<Record<string, (values: Float64Array) => Uint8Array>> = {
  FP32: (from) => new Uint8Array(Float32Array.from(from).buffer),
  FP64: (from) => new Uint8Array(from.buffer),
  FP16: (from) => new Uint8Array(Float16Array.from(from).buffer),
  INT32: (from) => new Uint8Array(Int32Array.from(from).buffer),
  INT64: (from) => new Uint8Array(BigInt64Array.from(from, (each) => BigInt(Math.round(each))).buffer),
};

/** Describes the conflict between a profile and a model; undefined if they match. */
function mismatch(profile: Profile, { inputs, outputs }: ModelMetadata): string | undefined {
  const has = new Set(inputs.map(({ name }) => name));
  const named = [...profile.frames, ...profile.proprio, ...profile.constants].map(({ key }) => key);
  const missing = [...named, ...(profile.instructionKey === "" ? [] : [profile.instructionKey])].filter(
    (key) => !has.has(key),
  );
  if (missing.length > 0) return `the model has no inputs named ${missing.join(", ")}; it has ${[...has].join(", ")}`;
  const given = new Set(named).add(profile.instructionKey);
  const open = [...has].filter((name) => !given.has(name));
  if (open.length > 0) return `the profile does not map the inputs ${open.join(", ")}`;
  const gives = outputs.map(({ name }) => name);
  const lost = profile.actionKeys.filter((key) => !gives.includes(key));
  return lost.length > 0 ? `the model has no outputs named ${lost.join(", ")}; it has ${gives.join(", ")}` : undefined;
}

/** Returns the named output. Throws an UpstreamFailure if it is missing. */
function outputOf(outputs: readonly Tensor[], name: string): Tensor {
  const output = outputs.find((each) => each.name === name);
  if (output === undefined) throw malformed(`there is no output named ${name}`);
  return output;
}

/** A named array. Bytes are little-endian and row-major; texts and files are BYTES. */
export interface Tensor {
  readonly name: string;
  readonly datatype: string;
  readonly shape: readonly number[];
  /** Numbers, or the elements of a BYTES tensor. */
  readonly data: Uint8Array | readonly Buffer[];
}

/** One of a model's inputs or outputs in its metadata; -1 stands for any size. */
export interface TensorMetadata {
  readonly name: string;
  readonly datatype: string;
  readonly shape: readonly number[];
}

/** A model's metadata. */
export interface ModelMetadata {
  readonly inputs: readonly TensorMetadata[];
  readonly outputs: readonly TensorMetadata[];
}

/** The protocol's name of each supported element type. BF16 is only supported in outputs, raw. */
const DTYPES: Readonly<Record<string, DType>> = {
  BOOL: "|b1",
  UINT8: "|u1",
  INT8: "|i1",
  UINT16: "<u2",
  INT16: "<i2",
  UINT32: "<u4",
  INT32: "<i4",
  UINT64: "<u8",
  INT64: "<i8",
  FP16: "<f2",
  FP32: "<f4",
  FP64: "<f8",
};

/**
 * Numbers as a tensor's bytes, for element types whose numbers are sent individually. 64-bit types are not, because a JavaScript number cannot
 * represent all values.
 */
export const WRITES: Readonly<Record<string, (values: readonly number[]) => ArrayBuffer>> = {
  BOOL: (values) => Uint8Array.from(values).buffer,
  UINT8: (values) => Uint8Array.from(values).buffer,
  INT8: (values) => Int8Array.from(values).buffer,
  UINT16: (values) => Uint16Array.from(values).buffer,
  INT16: (values) => Int16Array.from(values).buffer,
  UINT32: (values) => Uint32Array.from(values).buffer,
  INT32: (values) => Int32Array.from(values).buffer,
  FP32: (values) => Float32Array.from(values).buffer,
  FP64: (values) => Float64Array.from(values).buffer,
};

/**
 * Returns a tensor of numbers as an array. Throws an UpstreamFailure for texts and unknown element types; CodecError if shape and bytes differ.
 */
export function arrayOfTensor({ name, datatype, shape, data }: Tensor): NdArray {
  const dtype = DTYPES[datatype];
  if (datatype === "BF16" && data instanceof Uint8Array) return fromBfloat16(data, shape);
  if (dtype === undefined || !(data instanceof Uint8Array))
    throw malformed(`the output ${name} is of type ${datatype.slice(0, 20)}`);
  return new NdArray(dtype, shape, data);
}

/** Elements of a BYTES tensor in raw form: each after its length in four bytes. */
export function rawBytes(elements: readonly Buffer[]): Buffer {
  const pieces = elements.flatMap((element) => {
    const length = Buffer.alloc(4);
    length.writeUInt32LE(element.length);
    return [length, element];
  });
  return Buffer.concat(pieces);
}
