/** An act as OpenVLA's server takes it: one flat object of arrays, the instruction, and the constants that the offering names. */
import { encodeJsonNumpy } from "../../codecs/python/json-numpy.ts";
import type { Packable } from "../../codecs/python/msgpack.ts";
import type { NdArray } from "../../codecs/python/ndarray.ts";
import { arrayOf, type ObservationPart } from "../payload/observe.ts";
import { instructionIn, type Profile } from "../payload/profile.ts";

/** The body of one act. Throws an UpstreamFailure when the profile puts files where the wire has pixels. */
export function encodeAct(profile: Profile, parts: readonly ObservationPart[], instruction: string): string {
  const fields = new Map<string, Packable<NdArray>>(parts.map((part) => [part.key, arrayOf(part)]));
  for (const [key, text] of instructionIn(profile, instruction)) fields.set(key, text);
  for (const { key, value } of profile.constants) fields.set(key, value);
  return encodeJsonNumpy(fields);
}
