/** A prediction as a Cog container takes it: the inputs that its own schema has, by their usual names. */
import { instructionIn, type Profile } from "../payload/profile.ts";
import type { VideoQuestion } from "../payload/world-model.ts";

/** The body of one prediction; `accepts` are the names of the model's inputs. */
export function encodePrediction(
  profile: Profile,
  picture: string,
  { instruction, pictures, seed, fps, actions }: VideoQuestion,
  accepts: ReadonlySet<string>,
): string {
  const known: [string, unknown][] = [
    ["num_frames", pictures],
    ["seed", seed],
    ["fps", fps],
    ["actions", actions.length > 0 ? JSON.stringify(actions.map(({ values }) => values)) : undefined],
  ];
  const input = Object.fromEntries([
    [profile.frames[0]?.key ?? "image", picture],
    ...instructionIn(profile, instruction),
    ...known.filter(([key, value]) => value !== undefined && accepts.has(key)),
    ...profile.constants.map(({ key, value }) => [key, value]),
  ]);
  return JSON.stringify({ input });
}
