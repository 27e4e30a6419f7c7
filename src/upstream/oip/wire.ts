/** The Open Inference Protocol over any transport: act and predict by a model's tensors, and the probe's questions. */
import { steadyNow } from "../../clock.ts";
import type { NdArray } from "../../codecs/python/ndarray.ts";
import type { ModelInput } from "../../contracts/contract.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import { chunkOf, sideBySide, tableOf } from "../payload/chunk.ts";
import { partsOf } from "../payload/observe.ts";
import { type Profile, wantsOf } from "../payload/profile.ts";
import type { FrameSet } from "../pictures/frames.ts";
import { framesIn } from "../pictures/video.ts";
import { failureOf } from "../transport/failures.ts";
import type { CallOptions, UpstreamTarget, Wire } from "../wire.ts";
import { mismatch, outputOf, profileFor, tensorsOf } from "./model.ts";
import { arrayOfTensor, type ModelMetadata, type Tensor } from "./tensors.ts";

/** What a transport does; each rejects with an UpstreamFailure. */
export interface OipTransport {
  /** Resolves when the server is ready for any model. */
  serverReady(target: UpstreamTarget, call: CallOptions): Promise<void>;
  modelReady(target: UpstreamTarget, model: OipModelName, call: CallOptions): Promise<void>;
  metadata(target: UpstreamTarget, model: OipModelName, call: CallOptions): Promise<ModelMetadata>;
  /** The named outputs; all of them when none is named. */
  infer(
    target: UpstreamTarget,
    model: OipModelName,
    request: InferRequest,
    call: CallOptions,
  ): Promise<readonly Tensor[]>;
  close(): Promise<void>;
}

/** A model as the server calls it; an empty version is the server's choice. */
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

/** `name`, or `name/version`: the profile's `server_model`, else the slug's own name. */
function modelOf({ model, profile }: UpstreamTarget): OipModelName {
  const [name = "", version = ""] = (profile?.serverModel ?? model.slice(model.indexOf("/") + 1)).split("/");
  return { name, version };
}

/** A wire of the protocol over this transport. */
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

  /** One inference, with the profile that it went by. */
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
      if (names.length === 0)
        throw new UpstreamFailure(AttemptFailure.EMPTY_ANSWER, "the model has no output of floats");
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

/** Throws an UpstreamFailure, also where shape and bytes differ. */
function numbersOf(tensor: Tensor): NdArray {
  try {
    return arrayOfTensor(tensor);
  } catch (error) {
    throw failureOf(error);
  }
}
