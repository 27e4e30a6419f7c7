/** The order in which a request's pictures stand in its FrameSet. The code that builds the set and the wires that read it share it. */
import type { Frame, Observation } from "../../../gen/limber/v1/observation_pb.ts";
import type { FrameSource } from "./frames.ts";

/**
 * Every picture of a request, for `new FrameSet`: observation by observation, oldest first, its frames and then its depth; last the
 * goal image, if there is one.
 */
export function frameSources(observations: readonly Observation[], goal?: Frame): FrameSource[] {
  const sources: FrameSource[] = [];
  for (const [at, { frames, depth }] of observations.entries()) {
    for (const [i, frame] of frames.entries()) sources.push(sourceOf(frame, `observations.${at}.frames.${i}`));
    for (const [i, frame] of depth.entries())
      sources.push({ ...sourceOf(frame, `observations.${at}.depth.${i}`), isDepth: true });
  }
  if (goal !== undefined) sources.push(sourceOf(goal, "goal_image"));
  return sources;
}

/** How many pictures the observations have; the goal image, if there is one, stands behind them. */
export const picturesIn = (observations: readonly Observation[]): number =>
  observations.reduce((sum, { frames, depth }) => sum + frames.length + depth.length, 0);

const sourceOf = ({ camera, url, data, sha256 }: Frame, path: string): FrameSource => ({
  path,
  camera,
  url,
  data,
  sha256,
});
