/** A call that a model answers, made from what it reads. */
import { Contract } from "#messages/limber/v1/contract_pb.ts";
import { type InputContract, InputNeed } from "#messages/limber/v1/input_contract_pb.ts";
import type { Call } from "./snippets.ts";

/** What a call is made for: an offering or a model. */
interface Callable {
  readonly model: string;
  readonly contracts: readonly Contract[];
  readonly actionSpaces: readonly string[];
  readonly input?: InputContract | undefined;
}

/** The image that every gateway serves. */
const SAMPLE = "/samples/red-square.png";

/** The cameras, state and instruction of an observation that fits. An undeclared input gets an image and an instruction. */
function observed(input: InputContract | undefined, space: string | undefined) {
  const cameras = input?.cameras?.cameras ?? (input === undefined ? [undefined] : []);
  const frames = cameras.map((camera) => ({
    ...(camera !== undefined && camera.name !== "" && { camera: camera.name }),
    url: SAMPLE,
  }));
  const layout = input?.proprio.find(({ actionSpace }) => actionSpace === undefined || actionSpace === space);
  const size = layout?.dimension ?? layout?.names.length ?? 0;
  return {
    ...(frames.length > 0 && { frames }),
    ...(layout !== undefined &&
      size > 0 && {
        proprio: Array.from({ length: size }, () => 0),
        ...(layout.names.length > 0 && { proprio_names: layout.names }),
      }),
  };
}

/** The call of the first contract that the model serves. */
export function firstCallOf({ model, contracts, actionSpaces, input }: Callable): Call {
  const [space] = actionSpaces;
  const observations = [observed(input, space)];
  const need = input?.language?.need;
  const instruction =
    need === InputNeed.NONE || need === InputNeed.IGNORED ? {} : { instruction: "reach the red square" };
  if (contracts.includes(Contract.ACT) || contracts.length === 0)
    return {
      method: "POST",
      path: "/v1/act",
      body: { model, ...(space !== undefined && { action_space: space }), ...instruction, observations },
    };
  if (contracts.includes(Contract.PREDICT))
    return { method: "POST", path: "/v1/predict", body: { model, ...instruction, observations } };
  return {
    method: "POST",
    path: "/v1/ground",
    body: { model, instruction: "the red square", observations: [{ frames: [{ url: SAMPLE }] }] },
  };
}
