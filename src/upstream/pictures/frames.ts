/**
 * The images of one request. Each is fetched, parsed and decoded once, and resized once per requested size, so that a fallback to the next
 * offering causes no further cost.
 */
import { createHash } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import sharp, { type Sharp } from "sharp";
import type { Dispatcher } from "undici";
import { ViolationSchema } from "../../../gen/limber/v1/error_pb.ts";
import type { Frame, Observation } from "../../../gen/limber/v1/observation_pb.ts";
import { Cancel, type Signal } from "../../cancellation.ts";
import { after, steadyNow } from "../../clock.ts";
import { CodecError } from "../../codecs/error.ts";
import { decodeDataUrl, isDataUrl } from "../../codecs/pictures/data-url.ts";
import { type ImageFormat, type ImageHeader, readImageHeader, uprightFile } from "../../codecs/pictures/image.ts";
import { packed, pixelsIn, type RgbPixels } from "../../codecs/pictures/raw-pictures.ts";
import { samplePicture } from "../../codecs/pictures/samples.ts";
import { type Asker, pictureTurns } from "../../codecs/pictures/turns.ts";
import { Reason, Refusal } from "../../errors.ts";
import { AddressRefused, checkUrl, FetchFailed, fetchBytes } from "../transport/guard.ts";

/** A frame of the request: encoded bytes in `data`, or the placeholder of an image in pixels; otherwise a `url`. */
export interface FrameSource {
  /** The frame's path in the request, such as `observations.0.frames.1`, for refusals. */
  readonly path: string;
  readonly camera: string;
  readonly url: string;
  readonly data?: Uint8Array;
  /** SHA-256 of the encoded image in lower-case hex. */
  readonly sha256?: string | undefined;
  /** Whether it is a depth image; 16-bit gray images are refused otherwise. */
  readonly isDepth?: boolean;
}

/** The limits and resources for the frames of one request. */
export interface FrameOptions {
  /** From guardedAgent, with the same `allowPrivate`. */
  readonly agent: Dispatcher;
  /** Allows `http:` and private addresses. */
  readonly allowPrivate: boolean;
  /** Ends every wait with its own reason. */
  readonly signal?: Signal | undefined;
  /** On the steady clock in milliseconds; waits end with FrameRefused `frame_timed_out`. */
  readonly deadline?: number | undefined;
  /** The caller for scheduling image work; unnamed callers share one turn. */
  readonly asker?: Asker | undefined;
  /** A pixel cache for several sets of the same images; by default each set has its own. */
  readonly pixels?: KeptPixels | undefined;
}

/** The pixels of one request's images, by size. */
export class KeptPixels {
  readonly decoded = new SharedWork<RgbPixels>();
  readonly resized = new SharedWork<RgbPixels>();
  /** The bytes of each. */
  readonly #bytes = new Map<string, number>();
  #decodedBytes = 0;
  #resizedBytes = 0;

  /** Whether to cache a decoded image of this many bytes for other sizes; otherwise it is decoded again for each. */
  keeps(index: number, bytes: number): boolean {
    const name = `${index}`;
    if (this.#bytes.has(name)) return true;
    if (this.#decodedBytes + bytes > MAX_DECODED_BYTES) return false;
    this.#bytes.set(name, bytes);
    this.#decodedBytes += bytes;
    return true;
  }

  /** Whether there is space for another size of an image, in bytes. */
  takes(name: string, bytes: number): boolean {
    if (this.#bytes.has(name)) return true;
    if (this.#resizedBytes + bytes > MAX_PIXEL_BYTES) return false;
    this.#bytes.set(name, bytes);
    this.#resizedBytes += bytes;
    return true;
  }
}

/**
 * An upright image as its camera encoded it, or encoded again after EXIF rotation; both sides are above zero, together at most 64 megapixels.
 */
export interface EncodedFrame {
  readonly bytes: Buffer;
  readonly format: ImageFormat;
  readonly width: number;
  readonly height: number;
  /** SHA-256 of the bytes, if they differ from the received ones and the request has a checksum. */
  readonly sha256?: string;
}

/** `pad` keeps the ratio and centers the image on black (openpi's resize_with_pad); `stretch` fills the size. */
interface FrameSize {
  readonly width: number;
  readonly height: number;
  readonly fit: "pad" | "stretch";
}

/** Why a frame was refused, as in `details.violations[].type`. */
type FrameReason = keyof typeof SENTENCES;

/** The text for the caller, which reveals nothing of the address or its response. */
const SENTENCES = {
  frame_address_refused: "the gateway does not fetch frames from this address",
  frame_port_refused:
    "the frame's address must name the port 80, 443 or one above 1023 that no other protocol is known by",
  frame_not_an_address:
    "the frame's url is neither an https: nor a data: address; a picture in base64 is written data:image/png;base64, and its letters",
  frame_unreachable: "the frame could not be fetched: its address did not return an image",
  frame_timed_out: "fetching and decoding the frame timed out",
  frame_malformed: "the frame's data: URL is not valid base64 or percent-encoding",
  frame_too_large:
    "the frame is larger than 16 MiB, 64 megapixels, 25 megapixels where its EXIF orientation turns it, or 4K where its encoding isn't row by row",
  frame_not_an_image: "the frame is not a valid PNG, JPEG or WebP image",
  frame_is_depth: "the frame is a 16-bit grayscale (depth) image, but the model reads color; send it in `depth`",
  frame_truncated: "the frame's image is truncated",
  frame_hash_mismatch: "the frame's bytes do not match the SHA-256 in the request",
  frames_too_many_pixels: "the frames of the request would take more than 64 MiB in the sizes that the model reads",
} as const;

const ADDRESSES: ReadonlySet<FrameReason> = new Set([
  "frame_address_refused",
  "frame_port_refused",
  "frame_not_an_address",
]);

/** An unusable frame, as the caller's refusal. */
export class FrameRefused extends Refusal {
  readonly frameReason: FrameReason;

  /** `path` is the frame's path in the request; the cause is for the log. */
  constructor(frameReason: FrameReason, path: string, cause?: unknown) {
    const message = SENTENCES[frameReason];
    const reason = ADDRESSES.has(frameReason) ? Reason.ADDRESS_REFUSED : Reason.FRAME_REFUSED;
    const violations = [create(ViolationSchema, { path, message, type: frameReason })];
    super(reason, message, { violations }, { param: path, cause });
    this.frameReason = frameReason;
  }
}

const MAX_BYTES = 16 * 2 ** 20;
const MAX_PIXELS = 64_000_000;
/** Decoding other images needs up to 8 bytes per pixel at once: 64 MiB at 4K, which a file of 100 KiB can claim. */
const MAX_PIXELS_HELD_WHOLE = 3840 * 2160;
/** Rotating an image needs all of it at once, 3 bytes per pixel: 75 MB for the largest phone images. */
const MAX_PIXELS_TURNED = 25_000_000;
const FETCH_TIMEOUT_MS = 10_000;
const DECODE_TIMEOUT_S = 10;
const ACCEPT = "image/png, image/jpeg, image/webp";
/** Images up to 1080p stay decoded (6 MB); for larger ones memory is more expensive than decoding again. */
const MAX_KEPT_PIXELS = 1920 * 1080;
/** The maximum memory of a request's decoded images: two of 1080p, or 18 of 640 by 480. */
const MAX_DECODED_BYTES = 16 * 2 ** 20;
/** The same in the sizes that models read: 16 moments of four cameras at 512 by 512 need 50 MB. */
const MAX_PIXEL_BYTES = 64 * 2 ** 20;
const NO_ASKER: Asker = { key: "", robot: "" };

/** An address without a scheme was probably meant as the image itself. */
function reasonOf({ reason }: AddressRefused, url: string): FrameReason {
  if (reason === "port_not_allowed") return "frame_port_refused";
  return /^[a-z][a-z0-9+.-]*:/i.test(url.slice(0, 64)) ? "frame_address_refused" : "frame_not_an_address";
}

/** All frames of one request, by index. Results are computed on first use and cached, including failures. */
export class FrameSet {
  readonly #sources: readonly FrameSource[];
  readonly #options: FrameOptions;
  /** Available sizes, and all requested ones. */
  readonly #known: EncodedFrame[] = [];
  readonly #loaded: Promise<EncodedFrame>[] = [];
  /** Created when a wire first reads pixels: most wires pass images on unchanged. */
  #pixels: KeptPixels | undefined;

  constructor(sources: readonly FrameSource[], options: FrameOptions) {
    this.#sources = sources;
    this.#options = options;
    this.#pixels = options.pixels;
  }

  /** The cameras' names, in the order of the request. */
  get cameras(): readonly string[] {
    return this.#sources.map(({ camera }) => camera);
  }

  /** The caller for further image work. */
  get asker(): Asker {
    return this.#options.asker ?? NO_ASKER;
  }

  /** Resolves when every frame is fetched and appears complete; rejects with FrameRefused or the signal's reason. */
  async ready(): Promise<void> {
    await Promise.all(this.#sources.map((_, index) => this.bytes(index)));
  }

  /**
   * As `bytes`, if the upright file came with the request or is cached; undefined if it must be fetched, rotated, or encoded from pixels. Throws
   * FrameRefused.
   */
  held(index: number): EncodedFrame | undefined {
    const known = this.#known[index];
    if (known !== undefined) return known;
    const source = this.#source(index);
    if (pixelsFor(source) !== undefined) return undefined;
    const bytes = bytesIn(source);
    if (bytes === undefined) return undefined;
    const header = look(source, bytes);
    return isUpright(header) ? this.#keep(index, bytes, header) : undefined;
  }

  /**
   * Resolves with the upright image as its camera encoded it. Its header and structure were checked, but its pixels can be damaged. An image in
   * pixels becomes a PNG, and an EXIF-rotated one is encoded again. Rejects with FrameRefused or the signal's reason.
   */
  bytes(index: number): Promise<EncodedFrame> {
    this.#loaded[index] ??= this.#load(index);
    return this.#loaded[index];
  }

  /** Resolves with the upright image's pixels in the size that an upstream requires. Transparency is dropped. */
  rgb(index: number, size: FrameSize): Promise<RgbPixels> {
    const source = this.#source(index);
    return this.#inTime(source.path, async (leaving) => {
      // Fetched by this set even if others share the pixels: if the caller disconnects, its fetches end. Images that came as pixels are not
      // encoded for this.
      const from = source.sha256 ? await this.bytes(index) : (pixelsFor(source) ?? (await this.bytes(index)));
      this.#pixels ??= new KeptPixels();
      const name = `${index} ${size.width}x${size.height} ${size.fit}`;
      if (!this.#pixels.takes(name, 3 * size.width * size.height))
        throw new FrameRefused("frames_too_many_pixels", source.path);
      return this.#pixels.resized.join(name, leaving, (progress) => this.#resize(index, from, size, progress));
    });
  }

  #source(index: number): FrameSource {
    const source = this.#sources[index];
    if (source === undefined) throw new RangeError(`there is no frame ${index}`);
    return source;
  }

  async #load(index: number): Promise<EncodedFrame> {
    const held = this.held(index);
    if (held !== undefined) return held;
    const source = this.#source(index);
    const pixels = pixelsFor(source);
    const bytes = await (pixels ? this.#pack(source, pixels) : (bytesIn(source) ?? this.#fetch(source)));
    const header = look(source, bytes);
    return isUpright(header) ? this.#keep(index, bytes, header) : this.#turn(index, source, { bytes, header });
  }

  #keep(index: number, bytes: Buffer, { format, width, height }: ImageHeader, sha256?: string): EncodedFrame {
    const frame = { bytes, format, width, height, ...(sha256 !== undefined && { sha256 }) };
    this.#known[index] = frame;
    return frame;
  }

  /** Encodes the image again, upright and without its EXIF data. */
  #turn(
    index: number,
    { path, sha256 }: FrameSource,
    { bytes, header }: { bytes: Buffer; header: ImageHeader },
  ): Promise<EncodedFrame> {
    const { width, height } = header;
    const work = async (): Promise<EncodedFrame> => {
      const upright = await uprightFile(bytes, header, DECODE_TIMEOUT_S).catch((error: unknown) => {
        throw undecodable(path, error);
      });
      const turned = lookAt(upright);
      if (typeof turned === "string") throw new FrameRefused(turned, path);
      return this.#keep(index, upright, turned, sha256 && sha256Of(upright));
    };
    return this.#inTime(path, (leaving) => pictureTurns.run(this.asker, width * height, work, leaving));
  }

  #pack({ path }: FrameSource, pixels: RgbPixels): Promise<Buffer> {
    const work = async (): Promise<Buffer> => {
      try {
        return await packed(pixels);
      } catch (error) {
        throw new FrameRefused("frame_not_an_image", path, error);
      }
    };
    return this.#inTime(path, (leaving) => pictureTurns.run(this.asker, pixels.width * pixels.height, work, leaving));
  }

  async #fetch({ url, path }: FrameSource): Promise<Buffer> {
    const { agent, allowPrivate, signal } = this.#options;
    const timeoutMs = Math.min(FETCH_TIMEOUT_MS, this.#timeLeft());
    try {
      if (timeoutMs <= 0) throw new FetchFailed("timed_out");
      const checked = checkUrl(url, { schemes: allowPrivate ? ["https:", "http:"] : ["https:"], allowPrivate });
      return await fetchBytes(checked, { agent, maxBytes: MAX_BYTES, timeoutMs, accept: ACCEPT, signal });
    } catch (error) {
      if (error instanceof AddressRefused) throw new FrameRefused(reasonOf(error, url), path, error);
      if (error instanceof FetchFailed) throw new FrameRefused(FETCH_REASONS[error.reason], path, error);
      throw error;
    }
  }

  async #resize(
    index: number,
    from: EncodedFrame | RgbPixels,
    size: FrameSize,
    progress: WorkProgress,
  ): Promise<RgbPixels> {
    const { path } = this.#source(index);
    const { width, height } = from;
    const pixels = this.#pixels!; // the cache entry
    const turn = (work: () => Sharp, count: number, { signal, begun }: WorkProgress): Promise<RgbPixels> =>
      pictureTurns.run(
        this.asker,
        count,
        () => {
          begun();
          return decoded(path, work());
        },
        signal,
      );
    const count = width * height;
    if (!("bytes" in from)) {
      if (width === size.width && height === size.height) return from;
      return turn(() => fitted(reopen(from), from, size), Math.max(count, size.width * size.height), progress);
    }
    const { bytes } = from;
    if (count > MAX_KEPT_PIXELS || !pixels.keeps(index, 3 * count))
      return turn(() => fitted(open(bytes), from, size), Math.max(count, size.width * size.height), progress);
    const whole = await pixels.decoded.join(`${index}`, progress.signal, (inner) =>
      turn(() => open(bytes), count, {
        signal: inner.signal,
        begun: () => {
          inner.begun();
          progress.begun();
        },
      }),
    );
    if (whole.width === size.width && whole.height === size.height) return whole;
    return turn(() => fitted(reopen(whole), whole, size), size.width * size.height, progress);
  }

  #timeLeft(): number {
    const { deadline } = this.#options;
    return deadline === undefined ? Number.POSITIVE_INFINITY : deadline - steadyNow();
  }

  /** Decoding that has started cannot be stopped, but an aborted call does not wait for it. */
  #inTime<T>(path: string, begin: (leaving: Signal) => Promise<T>): Promise<T> {
    const { signal } = this.#options;
    if (signal?.aborted) return Promise.reject(signal.reason);
    const leaving = new Cancel();
    return new Promise((resolve, reject) => {
      const end = (reason: unknown): void => {
        leaving.abort(reason);
        reject(reason);
      };
      const leave = (): void => end(signal?.reason);
      const forget = after(this.#timeLeft(), () => end(new FrameRefused("frame_timed_out", path)));
      signal?.addEventListener("abort", leave, { once: true });
      begin(leaving)
        .then(resolve, reject)
        .finally(() => {
          forget();
          signal?.removeEventListener("abort", leave);
        });
    });
  }
}

/** Returns the properties of an image by its source's bytes. Throws FrameRefused. */
function look({ path, sha256, isDepth = false }: FrameSource, bytes: Buffer): ImageHeader {
  const header = lookAt(bytes);
  if (typeof header === "string") throw new FrameRefused(header, path);
  if (header.isDepth && !isDepth) throw new FrameRefused("frame_is_depth", path);
  if (sha256 && sha256Of(bytes) !== sha256) throw new FrameRefused("frame_hash_mismatch", path);
  return header;
}

/** Whether an image's rows are stored as rows, from the top. */
export const isUpright = ({ orientation = 1 }: Pick<ImageHeader, "orientation">): boolean => orientation === 1;

/** Returns an image's properties by its bytes, or why it is refused: not an image, truncated, or too large. */
export function lookAt(bytes: Buffer): ImageHeader | FrameReason {
  if (bytes.length > MAX_BYTES) return "frame_too_large";
  const header = readImageHeader(bytes);
  if (header === undefined) return "frame_not_an_image";
  const most = !header.rowByRow ? MAX_PIXELS_HELD_WHOLE : isUpright(header) ? MAX_PIXELS : MAX_PIXELS_TURNED;
  if (header.width * header.height > most) return "frame_too_large";
  return header.complete ? header : "frame_truncated";
}

const FETCH_REASONS = {
  unreachable: "frame_unreachable",
  bad_status: "frame_unreachable",
  encoded: "frame_unreachable",
  timed_out: "frame_timed_out",
  too_large: "frame_too_large",
} as const satisfies Record<FetchFailed["reason"], FrameReason>;

/** The pixels that came with the request instead of a file. */
const pixelsFor = ({ data }: FrameSource): RgbPixels | undefined => data && pixelsIn(data);

/** The bytes that came with the request; undefined if they must be fetched. Throws FrameRefused. */
function bytesIn({ url, data, path }: FrameSource): Buffer | undefined {
  if (data !== undefined && data.length > 0) return Buffer.from(data.buffer, data.byteOffset, data.length);
  return isDataUrl(url) ? readDataUrl(url, path) : samplePicture(url);
}

function readDataUrl(url: string, path: string): Buffer {
  try {
    return decodeDataUrl(url, MAX_BYTES);
  } catch (error) {
    if (!(error instanceof CodecError)) throw error;
    throw new FrameRefused(error.reason === "too_large" ? "frame_too_large" : "frame_malformed", path, error);
  }
}

const sha256Of = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");

const open = (bytes: Buffer): Sharp => sharp(bytes, { failOn: "error", limitInputPixels: MAX_PIXELS });

const reopen = ({ data, width, height }: RgbPixels): Sharp => sharp(data, { raw: { width, height, channels: 3 } });

/**
 * Bilinear as in Pillow, which the models' own clients use: within a gray level on average when reducing; when enlarging, the image is half an
 * output pixel lower right. It does not use the JPEG decoder's scaling, which blurs differently.
 */
const STRETCH = { fit: "fill", kernel: "linear", fastShrinkOnLoad: false } as const;

function fitted(picture: Sharp, from: { width: number; height: number }, size: FrameSize): Sharp {
  if (size.fit === "stretch") return picture.resize({ ...STRETCH, width: size.width, height: size.height });
  const ratio = Math.max(from.width / size.width, from.height / size.height);
  const width = Math.max(1, Math.floor(from.width / ratio));
  const height = Math.max(1, Math.floor(from.height / ratio));
  const left = Math.floor((size.width - width) / 2);
  const top = Math.floor((size.height - height) / 2);
  const border = { left, right: size.width - width - left, top, bottom: size.height - height - top };
  return picture.resize({ ...STRETCH, width, height }).extend({ ...border, background: "#000" });
}

async function decoded(path: string, picture: Sharp): Promise<RgbPixels> {
  try {
    const rgb = picture.removeAlpha().toColourspace("srgb").timeout({ seconds: DECODE_TIMEOUT_S });
    const { data, info } = await rgb.raw().toBuffer({ resolveWithObject: true });
    return { data, width: info.width, height: info.height };
  } catch (error) {
    throw undecodable(path, error);
  }
}

function undecodable(path: string, error: unknown): FrameRefused {
  const isSlow = error instanceof Error && error.message.includes("timeout");
  return new FrameRefused(isSlow ? "frame_timed_out" : "frame_not_an_image", path, error);
}

/**
 * Returns every image of a request for `new FrameSet`: by observation, oldest first, its frames and then its depth images; last the goal image,
 * if there is one.
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

/** The number of the observations' images; the goal image follows them. */
export const picturesIn = (observations: readonly Observation[]): number =>
  observations.reduce((sum, { frames, depth }) => sum + frames.length + depth.length, 0);

const sourceOf = ({ camera, url, data, sha256 }: Frame, path: string): FrameSource => ({
  path,
  camera,
  url,
  data,
  sha256,
});

/** The signals of shared work. */
interface WorkProgress {
  /** Aborted if no caller waits for the work and it has not started. */
  readonly signal: Signal;
  /** From now on the work is completed and cached, even if no caller waits. */
  readonly begun: () => void;
}

class Work<T> implements WorkProgress {
  readonly signal = new Cancel();
  readonly done: Promise<T>;
  waiting = 0;
  hasBegun = false;

  constructor(make: (progress: WorkProgress) => Promise<T>) {
    this.done = make(this);
    // All callers may have left.
    this.done.catch(() => undefined);
  }

  readonly begun = (): void => {
    this.hasBegun = true;
  };
}

/** Shared work by name. Failures are cached, too. */
class SharedWork<T> {
  readonly #all = new Map<string, Work<T>>();

  /** Resolves with the result of `make` for the name, which runs on first use. Rejects with the signal's reason if that is aborted. */
  join(name: string, signal: Signal, make: (progress: WorkProgress) => Promise<T>): Promise<T> {
    if (signal.aborted) return Promise.reject(signal.reason);
    const work = this.#all.get(name) ?? new Work(make);
    this.#all.set(name, work);
    return this.#wait(name, signal, work);
  }

  #wait(name: string, signal: Signal, work: Work<T>): Promise<T> {
    work.waiting += 1;
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        work.waiting -= 1;
        if (work.waiting === 0 && !work.hasBegun) {
          this.#all.delete(name);
          work.signal.abort(signal.reason);
        }
        reject(signal.reason);
      };
      signal.addEventListener("abort", leave, { once: true });
      work.done.then(resolve, reject).finally(() => signal.removeEventListener("abort", leave));
    });
  }
}
