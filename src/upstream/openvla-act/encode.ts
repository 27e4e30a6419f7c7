/** An act as OpenVLA's server takes it: one flat object of arrays, the instruction, and the constants that the offering names. */
import { encodeJsonNumpy } from "../../codecs/python/json-numpy.ts";
import type { Packable } from "../../codecs/python/msgpack.ts";
import type { NdArray } from "../../codecs/python/ndarray.ts";
import { arrayOf, type ObservationPart } from "../payload/observe.ts";
import type { Profile } from "../payload/profile.ts";

/** The body of one act. Throws an UpstreamFailure when the profile puts files where the wire has pixels. */
export function encodeAct(
  { instructionKey, constants }: Profile,
  parts: readonly ObservationPart[],
  instruction: string,
): string {
  const fields = new Map<string, Packable<NdArray>>(parts.map((part) => [part.key, arrayOf(part)]));
  fields.set(instructionKey, instruction);
  for (const { key, value } of constants) fields.set(key, value);
  return encodeJsonNumpy(fields);
}
