/** A completed chat as points and boxes. */
import type { GroundedBox, GroundedPoint } from "../../../gen/limber/v1/grounding_pb.ts";
import type { GroundAnswer } from "../../contracts/contract.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import { type Completion, cutBecause } from "../payload/completion.ts";
import { malformed } from "../transport/failures.ts";
import { type Convention, type PointPlace, placesIn, type ShownPicture, uncut } from "./conventions.ts";

const MAX_LABEL = 200;

/** How far outside of the picture rounding may put a place. */
const SLACK = 0.005;

/** What was read of one question's answer. */
export interface ReadReply {
  readonly points: readonly GroundedPoint[];
  readonly boxes: readonly GroundedBox[];
  /** Places outside of the picture, or in a picture that there isn't. */
  readonly dropped: number;
}

/**
 * The places that a text names, clamped where rounding put them outside. `cameras` are those of the pictures that were shown, the first
 * of them frame number `first`. Throws an UpstreamFailure for a text of another convention, and when no place lies in the picture.
 */
export function readPlaces(
  { text, isCut, outputTokens }: Completion,
  { convention, seen, asked }: { convention: Convention; seen: ShownPicture; asked: string },
  cameras: readonly string[],
  first: number,
): ReadReply {
  const places = placesIn(isCut ? uncut(text) : text, convention, seen, asked);
  // Nothing is there only where the model ended by itself.
  if (isCut && !places?.length)
    throw new UpstreamFailure(AttemptFailure.MALFORMED_ANSWER, cutBecause("length", outputTokens ?? 0));
  if (places === undefined) throw malformed("the answer isn't written in the declared convention of coordinates");
  const points: GroundedPoint[] = [];
  const boxes: GroundedBox[] = [];
  for (const place of places) {
    const camera = cameras[place.frame];
    const at = place.at.map(inside);
    if (camera === undefined || !at.every((each) => each !== undefined)) continue;
    const { label, confidence = 1 } = place;
    const common = { label: label.slice(0, MAX_LABEL).toWellFormed(), confidence, frame: first + place.frame, camera };
    if (at.length === 2) points.push(pointOf(at, common));
    if (at.length === 4) boxes.push(boxOf(at, common));
  }
  const dropped = places.length - points.length - boxes.length;
  if (dropped > 0 && dropped === places.length) {
    throw malformed("every place in the answer lies outside of the picture: is the declared convention the model's?");
  }
  return { points, boxes, dropped };
}

type Common = Pick<GroundedPoint, "label" | "confidence" | "frame" | "camera">;

const pointOf = ([x = 0, y = 0]: readonly number[], common: Common): GroundedPoint => ({
  $typeName: "limber.v1.GroundedPoint",
  x,
  y,
  ...common,
});

/** Corners in either order. */
const boxOf = ([x1 = 0, y1 = 0, x2 = 0, y2 = 0]: readonly number[], common: Common): GroundedBox => ({
  $typeName: "limber.v1.GroundedBox",
  xMin: Math.min(x1, x2),
  yMin: Math.min(y1, y2),
  xMax: Math.max(x1, x2),
  yMax: Math.max(y1, y2),
  ...common,
});

function inside(share: PointPlace["at"][number]): number | undefined {
  if (!(share >= -SLACK && share <= 1 + SLACK)) return undefined;
  return Math.min(1, Math.max(0, share));
}

/** One answer of several questions' answers. `left` are the caller's parameters that the server refuses. */
export function groundAnswerOf(
  read: readonly ReadReply[],
  completions: readonly Completion[],
  left: readonly string[],
): GroundAnswer {
  const dropped = read.reduce((sum, each) => sum + each.dropped, 0);
  const isUncounted = completions.some((each) => each.inputTokens === undefined || each.outputTokens === undefined);
  const notes = [
    dropped > 0 && `${dropped} places outside of the picture were left out`,
    completions.some(({ isCut }) => isCut) && "the answer was cut off: the places before that are given",
    left.length > 0 && `the server refuses ${left.join(" and ")}, which was left out`,
    isUncounted && "the server counts no tokens, so that some are not charged",
  ];
  return {
    points: read.flatMap(({ points }) => points),
    boxes: read.flatMap(({ boxes }) => boxes),
    note: notes.filter((note) => note !== false).join("; "),
    inputTokens: completions.reduce((sum, { inputTokens = 0 }) => sum + inputTokens, 0),
    outputTokens: completions.reduce((sum, { outputTokens = 0 }) => sum + outputTokens, 0),
  };
}
