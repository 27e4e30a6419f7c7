/** Renders a scenario's cameras: one ray per pixel, flat light. The engine has no renderer in this environment. */
import sharp from "sharp";
import type { World } from "./engine.ts";
import type { Camera } from "./scenario.ts";

/** Pixels, row by row, three bytes each. */
export interface Picture {
  readonly width: number;
  readonly height: number;
  readonly rgb: Uint8Array;
}

const SKY = [214, 224, 236] as const;
/** The direction of the light, and the minimum brightness of a face. */
const LIGHT = [0.4, -0.5, 0.77] as const;
const SHADE = 0.45;
/** Meters. */
const FARTHEST = 20;
const CHECK_M = 0.5;

/** Renders the current state of the world. */
export function takePicture(world: World, camera: Camera): Picture {
  const { width, height } = camera;
  const rgb = new Uint8Array(3 * width * height);
  drawRows(world, camera, { from: 0, to: height }, rgb);
  return { width, height, rgb };
}

/** Rows of a picture: from the first, to before the last. */
interface Rows {
  readonly from: number;
  readonly to: number;
}

/** Renders rows of the current state of the world into the pixels of a picture. */
export function drawRows(world: World, camera: Camera, rows: Rows, picture: Uint8Array): void {
  const { mj, model, data } = world;
  const { width, name } = camera;
  const id = world.id("camera", name);
  const eye = Array.from((data.cam_xpos as Float64Array).subarray(3 * id, 3 * id + 3));
  const turn = (data.cam_xmat as Float64Array).slice(9 * id, 9 * id + 9);
  const rays = raysOf(camera, rows, (model.cam_fovy as Float64Array)[id]!, turn);
  const count = width * (rows.to - rows.from);
  const rgb = picture.subarray(3 * width * rows.from, 3 * width * rows.to);
  const hit = new mj.IntBuffer(count);
  const far = new mj.DoubleBuffer(count);
  const normal = new mj.DoubleBuffer(3 * count);
  try {
    mj.mj_multiRay(model, data, eye, rays, SHOWN_GROUPS, true, -1, hit, far, normal, count, FARTHEST);
    const [hits, fars, normals] = [
      hit.GetView() as Int32Array,
      far.GetView() as Float64Array,
      normal.GetView() as Float64Array,
    ];
    const colors = colorsOf(world);
    for (let pixel = 0; pixel < count; pixel++) {
      const geom = hits[pixel]!;
      if (geom < 0) {
        rgb.set(SKY, 3 * pixel);
        continue;
      }
      const at = 3 * pixel;
      const facing = LIGHT[0] * normals[at]! + LIGHT[1] * normals[at + 1]! + LIGHT[2] * normals[at + 2]!;
      let light = SHADE + (1 - SHADE) * Math.max(0, facing);
      // The floor gets squares, because a plain one offers no visual reference.
      if (model.geom_type[geom] === PLANE && isDark(eye, rays, pixel, fars[pixel]!)) light *= 0.9;
      for (let part = 0; part < 3; part++) rgb[3 * pixel + part] = Math.round(255 * light * colors[3 * geom + part]!);
    }
  } finally {
    hit.delete();
    far.delete();
    normal.delete();
  }
}

const PLANE = 0;
/** As in MuJoCo's own viewer: collision-only geoms are in the other groups. */
const SHOWN_GROUPS = [1, 1, 1, 0, 0, 0];
/** The default color of a geom, in place of which its material's is used. */
const UNCOLORED = [0.5, 0.5, 0.5, 1] as const;
/** `mjTEXROLE_RGB` among `mjNTEXROLE`. */
const RGB_ROLE = 1;
const ROLES = 10;

const painted = new WeakMap<World, Float32Array>();

/** Three numbers for each geom, 0 to 1: its own color, otherwise its material's, times the mean of the material's texture. */
function colorsOf(world: World): Float32Array {
  const known = painted.get(world);
  if (known) return known;
  const { model } = world;
  const [own, materials] = [model.geom_rgba as Float32Array, model.geom_matid as Int32Array];
  const colors = new Float32Array(3 * materials.length);
  for (const [geom, material] of materials.entries()) {
    const isOwn = material < 0 || UNCOLORED.some((part, i) => own[4 * geom + i] !== part);
    const [from, at] = isOwn ? [own, 4 * geom] : [model.mat_rgba as Float32Array, 4 * material];
    const texture = material < 0 ? -1 : (model.mat_texid as Int32Array)[ROLES * material + RGB_ROLE]!;
    const mean = texture < 0 ? [1, 1, 1] : meanOf(world, texture);
    for (let part = 0; part < 3; part++) colors[3 * geom + part] = from[at + part]! * mean[part]!;
  }
  painted.set(world, colors);
  return colors;
}

/** The mean color of a texture, 0 to 1. */
function meanOf({ model }: World, texture: number): number[] {
  const channels = (model.tex_nchannel as Int32Array)[texture]!;
  const count = (model.tex_width as Int32Array)[texture]! * (model.tex_height as Int32Array)[texture]!;
  const start = Number((model.tex_adr as ArrayLike<number | bigint>)[texture]!);
  const bytes = (model.tex_data as Uint8Array).subarray(start, start + count * channels);
  const sums = [0, 0, 0];
  for (let pixel = 0; pixel < count; pixel++) {
    // A texture with one channel is gray.
    for (let part = 0; part < 3; part++) sums[part]! += bytes[pixel * channels + Math.min(part, channels - 1)]!;
  }
  return sums.map((sum) => sum / Math.max(1, count) / 255);
}

function isDark(eye: readonly number[], rays: readonly number[], pixel: number, far: number): boolean {
  const x = eye[0]! + far * rays[3 * pixel]!;
  const y = eye[1]! + far * rays[3 * pixel + 1]!;
  return (Math.floor(x / CHECK_M) + Math.floor(y / CHECK_M)) % 2 === 0;
}

/** A unit direction per pixel, in the world's frame. A camera looks along its own -z, with y up. */
function raysOf({ width, height }: Camera, { from, to }: Rows, fovy: number, turn: Float64Array): number[] {
  const half = Math.tan((fovy * Math.PI) / 360);
  const rays = new Array<number>(3 * width * (to - from));
  for (let row = from; row < to; row++) {
    const up = half * (1 - (2 * row + 1) / height);
    for (let column = 0; column < width; column++) {
      const right = (half * ((2 * column + 1) / width - 1) * width) / height;
      const length = Math.sqrt(right * right + up * up + 1);
      const at = 3 * ((row - from) * width + column);
      for (let axis = 0; axis < 3; axis++) {
        rays[at + axis] = (turn[3 * axis]! * right + turn[3 * axis + 1]! * up - turn[3 * axis + 2]!) / length;
      }
    }
  }
  return rays;
}

/** An image as PNG. */
export const pngOf = ({ width, height, rgb }: Picture): Promise<Buffer> =>
  sharp(rgb, { raw: { width, height, channels: 3 } })
    .png({ compressionLevel: 6 })
    .toBuffer();

/** Images side by side, as one PNG; all of equal size, at least one. */
export function stripOf(pictures: readonly Picture[]): Promise<Buffer> {
  const { width, height } = pictures[0]!;
  const wide = width * pictures.length;
  const rgb = new Uint8Array(3 * wide * height);
  for (const [i, picture] of pictures.entries()) {
    for (let row = 0; row < height; row++) {
      rgb.set(picture.rgb.subarray(3 * row * width, 3 * (row + 1) * width), 3 * (row * wide + i * width));
    }
  }
  return pngOf({ width: wide, height, rgb });
}

/** Frames of equal size in sequence. */
export interface Film {
  readonly width: number;
  readonly height: number;
  readonly frames: number;
  /** Milliseconds between two frames. */
  readonly frameMs: number;
  /** Pixels, frame by frame. */
  readonly rgb: Uint8Array;
}

export const FILM_FORMATS = ["webp", "gif"] as const;
export type FilmFormat = (typeof FILM_FORMATS)[number];

/** Images in sequence, as an animated picture; all of equal size, at least one, `delayMs` apart. */
export function filmOf(pictures: readonly Picture[], delayMs: number, format: FilmFormat): Promise<Buffer> {
  const { width, height } = pictures[0]!;
  const rgb = Buffer.concat(pictures.map((picture) => picture.rgb));
  return animated({ width, height, frames: pictures.length, frameMs: delayMs, rgb }, format);
}

/** A film as an animated picture. */
export function animated({ width, height, frames, frameMs, rgb }: Film, format: FilmFormat): Promise<Buffer> {
  const film = sharp(rgb, { raw: { width, height: height * frames, channels: 3, pageHeight: height } });
  // Viewers replace shorter delays by longer ones.
  const timing = { delay: Array.from({ length: frames }, () => Math.max(20, Math.round(frameMs))), loop: 0 };
  return format === "gif"
    ? film.gif({ ...timing, effort: 3, colors: 64, interFrameMaxError: 4 }).toBuffer()
    : film.webp({ ...timing, quality: 75, effort: 3 }).toBuffer();
}

/** Milliseconds between a film's images, and its maximum number of images: those of a longer episode are further apart. */
const FILM_EVERY_MS = 100;
const FILM = 300;

/** Steps between two images of a film of an episode. */
export const filmSteps = (steps: number, dtMs: number): number =>
  Math.max(1, Math.round(FILM_EVERY_MS / dtMs), spread(steps, FILM));

/** Steps between two images, for at most this many images: the first, the last and some between. */
export const spread = (steps: number, most: number): number => Math.max(1, Math.ceil(steps / (most - 1)));

/** A camera with a resolution for people: `side` pixels on its longer side. */
export function enlarged({ name, width, height }: Camera, side: number): Camera {
  const share = side / Math.max(width, height);
  return { name, width: Math.round(width * share), height: Math.round(height * share) };
}

/** The same with an even number of rows and columns, as video needs it. */
export function enlargedEven(camera: Camera, side: number): Camera {
  const { name, width, height } = enlarged(camera, side);
  return { name, width: width + (width % 2), height: height + (height % 2) };
}
