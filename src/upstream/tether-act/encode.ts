/** An act as Tether's server takes it: JSON with pictures as files in base64, the state as a list, and the episode that it belongs to. */
import { arrayOf, fileOf, type ObservationPart } from "../payload/observe.ts";
import { instructionIn, type Profile } from "../payload/profile.ts";

/** What an act says beside its observation. */
export interface TetherAct {
  readonly instruction: string;
  /** The server blends chunks of one episode and begins anew with another. */
  readonly episode: string;
  readonly requestId: string;
}

/** The body of one act. */
export async function encodeAct(
  profile: Profile,
  parts: readonly ObservationPart[],
  { instruction, episode, requestId }: TetherAct,
): Promise<string> {
  const fields = await Promise.all(
    parts.map(async (part): Promise<[string, unknown]> => {
      if (part.kind === "frame") return [part.key, (await fileOf(part)).bytes.toString("base64")];
      return [part.key, [...arrayOf(part).toFloat64()]];
    }),
  );
  return JSON.stringify({
    ...Object.fromEntries(fields),
    ...Object.fromEntries(instructionIn(profile, instruction)),
    episode_id: episode,
    request_id: requestId,
    ...Object.fromEntries(profile.constants.map(({ key, value }) => [key, value])),
  });
}
