/**
 * Pictures that come in REST JSON as `data:` addresses of base64. They are decoded where they stand in the body: no string is made of the
 * body, and none is parsed out of it, each of which costs the collector more than it costs to make.
 */
import type { Message } from "@bufbuild/protobuf";
import type { ActRequest } from "../../../../gen/limber/v1/inference_service_pb.ts";
import type { Frame } from "../../../../gen/limber/v1/observation_pb.ts";
import { exactly } from "../../../codecs/base64.ts";
import { CodecError } from "../../../codecs/error.ts";
import { decodeDataUrl } from "../../../codecs/pictures/data-url.ts";
import { SideNote } from "../../../side-note.ts";

/** Shorter texts are read with the rest of the body. */
export const LEAST_PICTURE_BYTES = 4 << 10;

/** A larger picture is refused when it is wanted, and not before. */
const MOST_BYTES = 16 << 20;

/** Where the text of a frame's address stands in a body, between its quotes, and in the body's value. */
export interface AddressText {
  readonly start: number;
  readonly end: number;
  /** Keys and places from the outside to the frame's `url`. */
  readonly path: readonly (string | number)[];
}

/** A picture that came as an address. */
export class SentPicture {
  /** The encoded picture. */
  readonly bytes: Buffer;
  readonly #body: Buffer;
  readonly #text: AddressText;

  constructor(body: Buffer, text: AddressText, bytes: Buffer) {
    this.#body = body;
    this.#text = text;
    this.bytes = bytes;
  }

  /** The address as it was sent. */
  get url(): string {
    return this.#body.toString("latin1", this.#text.start, this.#text.end);
  }
}

/** A comma stands behind so many letters at most. */
const LONGEST_HEAD = 256;
/** No letter of these is written in another way in JSON. */
const PLAIN_HEAD = /^data:[ !#-+\--[\]-~]*; *base64,/i;

/**
 * The pictures at all of these places; undefined where one of them is anything but base64 in its plain form, so that the body has to be
 * read as a whole.
 */
export function picturesAt(body: Buffer, texts: readonly AddressText[]): SentPicture[] | undefined {
  const pictures: SentPicture[] = [];
  for (const text of texts) {
    const start = body.toString("latin1", text.start, Math.min(text.end, text.start + LONGEST_HEAD));
    const head = PLAIN_HEAD.exec(start)?.[0];
    const bytes =
      head === undefined ? undefined : plainBytes(head, body.toString("latin1", text.start + head.length, text.end));
    if (bytes === undefined || bytes.length === 0 || bytes.length > MOST_BYTES) return undefined;
    pictures.push(new SentPicture(body, text, bytes));
  }
  return pictures;
}

/** Letters that JSON writes in another way, or forbids. */
const ESCAPED = /[\p{Cc}"\\]/u;

/** The bytes of an address whose text is plain JSON: what decodes to the byte is letters of base64 alone; else it has spaces and percent signs at most. */
function plainBytes(head: string, text: string): Buffer | undefined {
  const bytes = exactly(text);
  if (bytes !== undefined || ESCAPED.test(text)) return bytes;
  try {
    return decodeDataUrl(head + text, MOST_BYTES);
  } catch (thrown) {
    if (thrown instanceof CodecError) return undefined;
    throw thrown;
  }
}

/** The body with nothing between the quotes of these texts, which stand in their order. */
export function without(body: Buffer, texts: readonly AddressText[]): Buffer {
  const parts: Buffer[] = [];
  let from = 0;
  for (const { start, end } of texts) {
    parts.push(body.subarray(from, start));
    from = end;
  }
  return Buffer.concat([...parts, body.subarray(from)]);
}

/**
 * Puts the pictures into the value that was parsed of the rest, in place of the empty texts that it has there. False where a frame has
 * bytes as well, or where there is no such place.
 */
export function putPictures(value: unknown, texts: readonly AddressText[], pictures: readonly SentPicture[]): boolean {
  for (const [i, { path }] of texts.entries()) {
    let frame: unknown = value;
    for (const key of path.slice(0, -1)) frame = (frame as Record<string | number, unknown> | undefined)?.[key];
    if (typeof frame !== "object" || frame === null || Object.hasOwn(frame, "data")) return false;
    if (!("url" in frame) || frame.url !== "") return false;
    frame.url = pictures[i];
  }
  return true;
}

const sent = new SideNote<Frame, SentPicture>("sent");

/** Gives a frame the picture that came as its address. */
export function setPicture(frame: Frame, picture: SentPicture): void {
  frame.data = picture.bytes;
  sent.set(frame, picture);
}

/** The request with its pictures as they were sent: in addresses, where they came in addresses. */
export function asSent<M extends Message>(request: M): M {
  const { observations, goalImage } = request as Partial<ActRequest>;
  const sentFrame = (frame: Frame): Frame => {
    const picture = sent.of(frame);
    return picture === undefined ? frame : { ...frame, url: picture.url, data: NO_BYTES };
  };
  return {
    ...request,
    ...(observations && {
      observations: observations.map((each) => ({
        ...each,
        frames: each.frames.map(sentFrame),
        depth: each.depth.map(sentFrame),
      })),
    }),
    ...(goalImage && { goalImage: sentFrame(goalImage) }),
  };
}

const NO_BYTES = new Uint8Array();
