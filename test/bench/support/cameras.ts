/**
 * Pictures as robots send them: JPEGs of 15 to 60 kB of real cameras where they are at hand beside the checkout, drawn ones where not,
 * each encoded anew in another light. Every one that is sent has bytes of its own: a comment inside counts them, so that nothing can be
 * kept by its content.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import sharp, { type Sharp } from "sharp";

/** The cameras of a robot with one picture, and with three. */
export const CAMERAS = ["camera_0", "camera_1", "camera_2"] as const;

/** A side of a picture as model servers take it, and as clients of openpi and GR00T send it. */
export const SIDE = 224;

/** Letters of base64 alike, so that the count can be written into a picture's text as well. */
const PLACE = "limber0count000";
/** Digits that are counted in, at the end of the comment's first twelve letters: four groups of three bytes. */
const DIGITS = 12;
/** Where the comment stands in every picture: behind the marker of the start, and its own head. */
const AT = 6;
/** Pictures of one camera before the first comes again, in another count. */
const VARIANTS = 12;
const QUALITY = [88, 88, 85] as const;

/** What is asked with. */
export interface Shot {
  readonly jpeg: Buffer;
  /** Red, green and blue bytes of `SIDE` by `SIDE`. */
  readonly pixels: Buffer;
}

/** So many pictures of each of so many cameras. */
export async function shotsOf(cameras: number): Promise<Shot[][]> {
  const film = filmOf();
  return Promise.all(
    CAMERAS.slice(0, cameras).map((_, camera) =>
      Promise.all(Array.from({ length: VARIANTS }, (_, i) => shot(film(camera, i), camera, i))),
    ),
  );
}

async function shot(from: Sharp, camera: number, i: number): Promise<Shot> {
  const light = { brightness: 1 + i / 100 };
  const file = await from.modulate(light).jpeg({ quality: QUALITY[camera]! }).toBuffer();
  const comment = Buffer.concat([Buffer.from([0xff, 0xfe, 0, 2 + PLACE.length]), Buffer.from(PLACE)]);
  const jpeg = Buffer.concat([file.subarray(0, 2), comment, file.subarray(2)]);
  const pixels = await sharp(jpeg).resize({ width: SIDE, height: SIDE, fit: "fill" }).removeAlpha().raw().toBuffer();
  return { jpeg, pixels };
}

/** What a camera's picture is made from. */
function filmOf(): (camera: number, i: number) => Sharp {
  const folder = fileURLToPath(new URL("../../../../shared/frames/", import.meta.url));
  const names = existsSync(folder) ? readdirSync(folder).sort() : [];
  const video = names.filter((name) => name.endsWith(".jpg")).map((name) => readFileSync(folder + name));
  const stills = names.filter((name) => name.endsWith(".png")).map((name) => readFileSync(folder + name));
  if (video.length === 0 || stills.length === 0) return drawn;
  return (camera, i) => sharp(camera < 2 ? video[(i + 7 * camera) % video.length] : stills[i % stills.length]);
}

/** A slope with grain. */
function drawn(camera: number, i: number): Sharp {
  const [width, height] = camera < 2 ? [320, 180] : [640, 480];
  const pixels = Buffer.alloc(3 * width * height);
  for (let at = 0, x = camera + 3 * i + 1; at < pixels.length; at++) {
    x = (x * 1103515245 + 12345) % 2 ** 31;
    pixels[at] = 90 + ((at / 3) % width) / 8 + ((x >> 16) % 36);
  }
  return sharp(pixels, { raw: { width, height, channels: 3 } });
}

/** A message with pictures, and where their counts stand. */
export interface Stamped {
  readonly message: Buffer;
  readonly places: readonly number[];
}

/** Finds the counts of the pictures of a message in which they stand as bytes. */
export function stampedBytes(message: Buffer): Stamped {
  const places: number[] = [];
  for (let at = message.indexOf(PLACE); at >= 0; at = message.indexOf(PLACE, at + 1)) places.push(at);
  return { message, places };
}

/** The same in base64, behind the mark of a data URL. */
export function stampedText(message: Buffer): Stamped {
  const mark = ";base64,";
  const places: number[] = [];
  for (let at = message.indexOf(mark); at >= 0; at = message.indexOf(mark, at + 1))
    places.push(at + mark.length + (4 * AT) / 3);
  return { message, places };
}

let counted = 0;

/** A copy of the message whose pictures no other message has. */
export function countedCopy({ message, places }: Stamped): Buffer {
  const copy = Buffer.from(message);
  for (const place of places) copy.write(String(++counted).padStart(DIGITS, "0"), place, "latin1");
  return copy;
}
