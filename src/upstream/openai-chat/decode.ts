/** A completed chat as points and boxes. */
import type { GroundedBox, GroundedPoint } from "../../../gen/limber/v1/grounding_pb.ts";
import type { GroundAnswer } from "../../contracts/contract.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import { malformed } from "../transport/failures.ts";
import { isObject, readJson } from "../transport/http.ts";
import type { Convention, PointPlace, ShownPicture } from "./conventions.ts";

/** The text of a completion, and its tokens. */
export interface Completion {
  readonly text: string;
  readonly inputTokens: number;
  readonly outputTokens: number;
}

/** Far more than the tokens that we allow an answer can be. */
const MAX_TEXT = 256 * 1024;
const MAX_LABEL = 200;

/** The text of a completion without its reasoning. Throws an UpstreamFailure: no text, no count of tokens. */
export function readCompletion(body: Buffer): Completion {
  const answer = readJson(body);
  const choices = isObject(answer) ? answer.choices : undefined;
  const choice: unknown = Array.isArray(choices) ? choices[0] : undefined;
  const message = isObject(choice) ? choice.message : undefined;
  const text = isObject(message) ? textOf(message.content) : undefined;
  if (text === undefined) throw malformed("the answer has no text");
  if (text.length > MAX_TEXT) throw new UpstreamFailure(AttemptFailure.ANSWER_TOO_LARGE, "the answer is too long");
  const usage = isObject(answer) ? answer.usage : undefined;
  const inputTokens = isObject(usage) ? usage.prompt_tokens : undefined;
  const outputTokens = isObject(usage) ? usage.completion_tokens : undefined;
  if (!isCount(inputTokens) || !isCount(outputTokens))
    throw malformed("the answer doesn't say how many tokens it took");
  return { text: withoutThoughts(text), inputTokens, outputTokens };
}

/** A text, or the text parts of a list of parts. */
function textOf(content: unknown): string | undefined {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return undefined;
  return content.map((part: unknown) => (isObject(part) && typeof part.text === "string" ? part.text : "")).join("");
}

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 0;

/** What stands behind the last end of reasoning; reasoning that never ends has no answer. */
function withoutThoughts(text: string): string {
  const end = text.lastIndexOf("</think>");
  if (end >= 0) return text.slice(end + "</think>".length);
  return text.trimStart().startsWith("<think>") ? "<think>" : text;
}

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
  text: string,
  convention: Convention,
  seen: ShownPicture,
  cameras: readonly string[],
  first: number,
): ReadReply {
  const places = convention.read(text, seen);
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

/** One answer of several questions' answers. */
export function groundAnswerOf(read: readonly ReadReply[], completions: readonly Completion[]): GroundAnswer {
  const dropped = read.reduce((sum, each) => sum + each.dropped, 0);
  return {
    points: read.flatMap(({ points }) => points),
    boxes: read.flatMap(({ boxes }) => boxes),
    note: dropped === 0 ? "" : `${dropped} places outside of the picture were left out`,
    inputTokens: completions.reduce((sum, { inputTokens }) => sum + inputTokens, 0),
    outputTokens: completions.reduce((sum, { outputTokens }) => sum + outputTokens, 0),
  };
}
