/** What Dexbotic answers: `response`, rows of numbers, with an axis for its batch of one or without. */
import type { ActAnswer } from "../../contracts/contract.ts";
import { jsonActionIn, jsonAnswerIn } from "../payload/json-actions.ts";
import type { Profile } from "../payload/profile.ts";

/** The first `horizon` rows. Throws an UpstreamFailure. */
export const readAction = (body: Buffer, profile: Profile, horizon: number, dim?: number): ActAnswer =>
  jsonActionIn(jsonAnswerIn(body), profile, horizon, { usual: ["response"], dim });
