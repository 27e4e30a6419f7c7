/** An act as the HTTP form of Isaac-GR00T N1.5 takes it. */
import { encodeJsonNumpy } from "../../codecs/python/json-numpy.ts";
import { actionData, momentOf } from "../gr00t-zmq/encode.ts";
import type { ObservationPart } from "../payload/observe.ts";
import type { Profile } from "../payload/profile.ts";

/** The body of one act: a flat observation. Throws an UpstreamFailure when the profile puts files where the wire has pixels. */
export const encodeAct = (profile: Profile, parts: readonly ObservationPart[], instruction: string): string =>
  encodeJsonNumpy(new Map([["observation", actionData(profile, momentOf(profile, parts, instruction), "bare")]]));
