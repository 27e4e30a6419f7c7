/** What the gateway asks of an Isaac-GR00T server, in the way that it speaks. */
import { encodeGr00t, type Gr00tArrays } from "../../codecs/python/gr00t.ts";
import type { Packable } from "../../codecs/python/msgpack.ts";
import { NdArray } from "../../codecs/python/ndarray.ts";
import { arrayOf, type ObservationPart } from "../payload/observe.ts";
import { instructionIn, type Profile } from "../payload/profile.ts";

type Gr00tFields = Map<string, Packable<NdArray>>;

/** The endpoints that we may name; `kill` ends the server, so it isn't among them. */
export type Endpoint = "ping" | "get_action" | "reset" | "get_modality_config" | "no_such_endpoint";

/** One message to an endpoint, with the token if there is one. */
export function encodeCall(
  endpoint: Endpoint,
  data: Packable<NdArray> | undefined,
  token: string,
  arrays: Gr00tArrays = "npy",
): Buffer {
  const fields: Gr00tFields = new Map([["endpoint", endpoint]]);
  if (data !== undefined) fields.set("data", data);
  if (token !== "") fields.set("api_token", token);
  return encodeGr00t(fields, arrays);
}

/**
 * How an observation is laid out. `bare`: N1.5, flat and nothing around it. `nested`: a map for each modality. `flat`: in the frame of later
 * ones a flat observation, of servers with `--use-sim-policy-wrapper`.
 */
export type Layout = "bare" | "nested" | "flat";

/** An observation with its pictures [T, H, W, 3] and its states [T, D], each under its profile's key. */
export interface Shown {
  readonly video: ReadonlyMap<string, NdArray>;
  readonly state: ReadonlyMap<string, NdArray>;
  readonly instructionKey: string;
  readonly instruction: string;
}

/** The observation as `get_action` takes it. */
export function actionData({ constants }: Pick<Profile, "constants">, shown: Shown, layout: Layout): Packable<NdArray> {
  const fixed = constants.map(({ key, value }) => [key, value] as const);
  if (layout === "bare") return new Map<string, Packable<NdArray>>([...flat(shown, 0), ...fixed]);
  const observation = layout === "flat" ? flat(shown, 1) : nested(shown);
  return new Map<string, Packable<NdArray>>([
    ["observation", observation],
    ["options", fixed.length === 0 ? null : new Map(fixed)],
  ]);
}

/** The observation of one moment. Throws an UpstreamFailure when the profile puts files where the wire has pixels. */
export function momentOf(
  { instructionKey }: Pick<Profile, "instructionKey">,
  parts: readonly ObservationPart[],
  instruction: string,
): Shown {
  const of = (kind: ObservationPart["kind"]): Map<string, NdArray> =>
    new Map(parts.filter((part) => part.kind === kind).map((part) => [part.key, widened(arrayOf(part), 1)]));
  return { video: of("frame"), state: of("proprio"), instructionKey, instruction };
}

/** Keys such as `video.ego_view`, with so many axes of one in front, and a list of one text. */
const flat = ({ video, state, instructionKey, instruction }: Shown, axes: number): Gr00tFields =>
  new Map<string, Packable<NdArray>>([
    ...[...video].map(([key, array]) => [dotted("video.", key), widened(array, axes)] as const),
    ...[...state].map(([key, array]) => [dotted("state.", key), widened(array, axes)] as const),
    ...instructionIn({ instructionKey }, instruction).map(([key, text]) => [key, [text]] as const),
  ]);

/** A map for each modality, with an axis for the batch. */
const nested = ({ video, state, instructionKey, instruction }: Shown): Gr00tFields =>
  new Map<string, Packable<NdArray>>([
    ["video", new Map([...video].map(([key, array]) => [withoutPrefix(key, "video."), widened(array, 1)]))],
    ["state", new Map([...state].map(([key, array]) => [withoutPrefix(key, "state."), widened(array, 1)]))],
    ...instructionIn({ instructionKey }, instruction).map(
      ([key, text]) => ["language", new Map([[withoutPrefix(key, "language."), [[text]]]])] as const,
    ),
  ]);

const dotted = (prefix: string, key: string): string => (key.startsWith(prefix) ? key : `${prefix}${key}`);

const withoutPrefix = (key: string, prefix: string): string =>
  key.startsWith(prefix) ? key.slice(prefix.length) : key;

/** The same numbers with axes of one in front. */
const widened = ({ dtype, shape, data }: NdArray, axes: number): NdArray =>
  new NdArray(dtype, [...Array<number>(axes).fill(1), ...shape], data);
