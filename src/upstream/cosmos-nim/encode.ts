/** A prediction as NVIDIA's Cosmos NIM takes it: of its third generation where the offering names a `model_mode`, else of the earlier ones. */

import type { Profile } from "../payload/profile.ts";
import type { VideoQuestion } from "../payload/world-model.ts";

/** The body of one inference. Unknown fields are refused by the server, so only those are sent that it knows. */
export function encodeInfer({ constants }: Profile, picture: string, input: VideoQuestion): string {
  const { instruction, pictures, seed, fps, resolution, actions } = input;
  const fixed = Object.fromEntries(constants.map(({ key, value }) => [key, value]));
  if (fixed.model_mode === undefined) {
    return JSON.stringify({
      ...prompted(instruction),
      image: picture,
      num_output_frames: pictures,
      ...seeded(seed),
      ...fixed,
    });
  }
  // Of an action-conditioned mode the server knows the length: one more than the actions.
  const length = actions.length > 0 ? { action: actions.map(({ values }) => values) } : { num_frames: pictures };
  return JSON.stringify({
    ...prompted(instruction),
    input_reference: picture,
    ...length,
    ...seeded(seed),
    ...(fps !== undefined && { fps }),
    ...(resolution !== undefined && actions.length === 0 && { resolution }),
    ...fixed,
  });
}

const prompted = (instruction: string): object => (instruction === "" ? {} : { prompt: instruction });

const seeded = (seed: number | undefined): object => (seed === undefined ? {} : { seed });
