/** A ground call as the chat that an OpenAI-compatible server completes. */
import sharp from "sharp";
import { pictureTurns } from "../../codecs/pictures/turns.ts";
import type { GroundInput } from "../../contracts/contract.ts";
import type { Profile } from "../payload/profile.ts";
import type { FrameSet } from "../pictures/frames.ts";
import type { Convention, ShownPicture } from "./conventions.ts";

/** One picture as a model is shown it. */
export interface Shown extends ShownPicture {
  /** As a `data:` URL: a server that fetched addresses could be sent anywhere. */
  readonly url: string;
}

/** The limit of an answer, where the profile declares none. */
const MAX_TOKENS = 2_048;
/** The fields that a server may do without. */
const OPTIONAL = ["max_completion_tokens", "max_tokens", "temperature", "seed", "stream"] as const;
/** The most pixels that models of the Qwen2.5 family take before they shrink a picture themselves. */
const MAX_PIXELS = 1_280 * 28 * 28;

/** The picture as the convention wants it: as its camera encoded it, or resized to sides that the model won't change again. */
export async function showPicture(frames: FrameSet, index: number, { multipleOf }: Convention): Promise<Shown> {
  const { bytes, format, width, height } = await frames.bytes(index);
  if (multipleOf === undefined) return { url: dataUrl(format, bytes), width, height };
  const size = sizeFor({ width, height }, multipleOf);
  const { data } = await frames.rgb(index, { ...size, fit: "stretch" });
  const work = (): Promise<Buffer> =>
    sharp(data, { raw: { ...size, channels: 3 } })
      .png({ compressionLevel: 1 })
      .toBuffer();
  const png = await pictureTurns.run(frames.asker, size.width * size.height, work);
  return { url: dataUrl("png", png), ...size };
}

/** The nearest size whose sides are multiples, within the budget of pixels, and at least one multiple long. */
export function sizeFor({ width, height }: ShownPicture, multipleOf: number): ShownPicture {
  const shrink = Math.min(1, Math.sqrt(MAX_PIXELS / (width * height)));
  const side = (length: number): number => {
    const most = Math.max(1, Math.floor(MAX_PIXELS / multipleOf / multipleOf));
    return multipleOf * Math.min(most, Math.max(1, Math.round((length * shrink) / multipleOf)));
  };
  return { width: side(width), height: side(height) };
}

const dataUrl = (format: string, bytes: Buffer): string => `data:image/${format};base64,${bytes.toString("base64")}`;

/** One question, and what of it may be left out. */
export interface ChatQuestion {
  readonly body: Readonly<Record<string, unknown>>;
  /** Fields that the offering's owner did not declare, so that the gateway may leave them out. */
  readonly optional: readonly string[];
  /** The caller's own parameters. */
  readonly given: readonly string[];
  /** The limit of tokens. */
  readonly limit: number;
}

/** One question about these pictures. */
export function encodeChat(
  { serverModel, constants }: Profile,
  model: string,
  convention: Convention,
  shown: readonly Shown[],
  { instruction, temperature, seed }: GroundInput,
): ChatQuestion {
  const declared = Object.fromEntries(constants.map(({ key, value }) => [key, value]));
  const limits = [declared.max_tokens, declared.max_completion_tokens].map(Number).filter((each) => each > 0);
  const body = {
    model: serverModel ?? model,
    messages: [
      {
        role: "user",
        content: [
          ...shown.map(({ url }) => ({ type: "image_url", image_url: { url } })),
          { type: "text", text: convention.prompt(instruction) },
        ],
      },
    ],
    ...(limits.length === 0 && { max_tokens: MAX_TOKENS }),
    temperature: temperature ?? 0,
    ...(seed !== undefined && { seed }),
    ...declared,
    stream: false,
  };
  return {
    body,
    optional: OPTIONAL.filter((field) => declared[field] === undefined),
    given: [...(temperature === undefined ? [] : ["temperature"]), ...(seed === undefined ? [] : ["seed"])],
    limit: limits[0] ?? MAX_TOKENS,
  };
}
