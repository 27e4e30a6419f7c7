/** What the gateway asks of an Isaac-GR00T server. Arrays go as npy files, which every generation of its servers reads. */
import { ServerDialect } from "../../../gen/limber/v1/supply_pb.ts";
import { encodeGr00t } from "../../codecs/python/gr00t.ts";
import type { Packable } from "../../codecs/python/msgpack.ts";
import { NdArray } from "../../codecs/python/ndarray.ts";
import { arrayOf, type ObservationPart } from "../payload/observe.ts";
import type { Profile } from "../payload/profile.ts";

type Gr00tFields = Map<string, Packable<NdArray>>;

/** The endpoints that we may name; `kill` ends the server, so it isn't among them. */
export type Endpoint = "ping" | "get_action" | "reset" | "get_modality_config" | "no_such_endpoint";

/** One message to an endpoint, with the token if there is one. */
export function encodeCall(endpoint: Endpoint, data: Packable<NdArray> | undefined, token: string): Buffer {
  const fields: Gr00tFields = new Map([["endpoint", endpoint]]);
  if (data !== undefined) fields.set("data", data);
  if (token !== "") fields.set("api_token", token);
  return encodeGr00t(fields);
}

/** The observation as `get_action` takes it. Throws an UpstreamFailure when the profile puts files where the wire has pixels. */
export function actionData(
  profile: Profile,
  parts: readonly ObservationPart[],
  instruction: string,
): Packable<NdArray> {
  return profile.dialect === ServerDialect.GR00T_N1_5
    ? flatObservation(profile, parts, instruction)
    : nested(profile, parts, instruction);
}

/** The observation of N1.5: `video.<k>` [T, H, W, 3], `state.<k>` [T, D], a list of one text. */
export function flatObservation(
  { instructionKey, constants }: Profile,
  parts: readonly ObservationPart[],
  instruction: string,
): Gr00tFields {
  const fields: Gr00tFields = new Map(parts.map((part) => [part.key, widened(arrayOf(part), 1)]));
  fields.set(instructionKey, [instruction]);
  for (const { key, value } of constants) fields.set(key, value);
  return fields;
}

/** N1.6 and later: a map for each modality, with axes for batch and time, and options beside it. */
function nested(
  { instructionKey, constants }: Profile,
  parts: readonly ObservationPart[],
  instruction: string,
): Gr00tFields {
  const modality = (kind: ObservationPart["kind"], prefix: string): Gr00tFields =>
    new Map(
      parts
        .filter((part) => part.kind === kind)
        .map((part) => [withoutPrefix(part.key, prefix), widened(arrayOf(part), 2)]),
    );
  const observation: Gr00tFields = new Map<string, Packable<NdArray>>([
    ["video", modality("frame", "video.")],
    ["state", modality("proprio", "state.")],
    ["language", new Map([[withoutPrefix(instructionKey, "language."), [[instruction]]]])],
  ]);
  const options = constants.length === 0 ? null : new Map(constants.map(({ key, value }) => [key, value]));
  return new Map<string, Packable<NdArray>>([
    ["observation", observation],
    ["options", options],
  ]);
}

const withoutPrefix = (key: string, prefix: string): string =>
  key.startsWith(prefix) ? key.slice(prefix.length) : key;

/** The same numbers with axes of one in front. */
const widened = ({ dtype, shape, data }: NdArray, axes: number): NdArray =>
  new NdArray(dtype, [...Array<number>(axes).fill(1), ...shape], data);
