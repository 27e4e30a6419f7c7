/** Colour words as regions of hue, saturation and value. */
import type { RgbImage } from "../image.ts";
import type { Mask } from "./blobs.ts";

/** A colour word that instructions may use. */
export type ColourWord = keyof typeof COLOURS;

/** Hue in degrees (a range may wrap through 0), saturation and value from 0 to 1. Ranges of neighbouring colours may share an edge. */
interface ColourRegion {
  readonly hue?: readonly [number, number];
  readonly saturation: readonly [number, number];
  readonly value: readonly [number, number];
}

const VIVID: readonly [number, number] = [0.35, 1];
const SOFT: readonly [number, number] = [0.2, 1];
const LIT: readonly [number, number] = [0.2, 1];

const COLOURS = {
  red: { hue: [342, 15], saturation: VIVID, value: LIT },
  orange: { hue: [13, 37], saturation: [0.5, 1], value: [0.6, 1] },
  brown: { hue: [10, 40], saturation: VIVID, value: [0.15, 0.52] },
  yellow: { hue: [38, 70], saturation: SOFT, value: [0.4, 1] },
  green: { hue: [75, 165], saturation: SOFT, value: LIT },
  cyan: { hue: [166, 195], saturation: SOFT, value: LIT },
  blue: { hue: [196, 255], saturation: VIVID, value: LIT },
  purple: { hue: [256, 300], saturation: SOFT, value: LIT },
  pink: { hue: [301, 344], saturation: SOFT, value: [0.4, 1] },
  white: { saturation: [0, 0.15], value: [0.82, 1] },
  gray: { saturation: [0, 0.15], value: [0.25, 0.8] },
  black: { saturation: [0, 1], value: [0, 0.17] },
} as const satisfies Record<string, ColourRegion>;

const SYNONYMS: ReadonlyMap<string, ColourWord> = new Map([
  ["grey", "gray"],
  ["violet", "purple"],
  ["magenta", "pink"],
  ["teal", "cyan"],
  ["turquoise", "cyan"],
]);

/** Every colour that is known, in one spelling each. */
const COLOUR_WORDS = Object.keys(COLOURS) as readonly ColourWord[];

/** The colour that a lower-case word names, if it names one. */
export const colourOf = (word: string): ColourWord | undefined =>
  SYNONYMS.get(word) ?? COLOUR_WORDS.find((colour) => colour === word);

/** The pixels of `image` that have the colour. */
export function maskOf(image: RgbImage, colour: ColourWord): Mask {
  const region: ColourRegion = COLOURS[colour];
  const data = new Uint8Array(image.width * image.height);
  for (let i = 0; i < data.length; i++) {
    data[i] = contains(region, image.data[3 * i]!, image.data[3 * i + 1]!, image.data[3 * i + 2]!) ? 1 : 0;
  }
  return { width: image.width, height: image.height, data };
}

function contains(region: ColourRegion, red: number, green: number, blue: number): boolean {
  const most = Math.max(red, green, blue);
  const spread = most - Math.min(red, green, blue);
  const saturation = most === 0 ? 0 : spread / most;
  if (!within(most / 255, region.value) || !within(saturation, region.saturation)) return false;
  if (region.hue === undefined) return true;
  const hue = Math.round(hueOf(red, green, blue, most, spread));
  const [from, to] = region.hue;
  return from <= to ? hue >= from && hue <= to : hue >= from || hue <= to;
}

const within = (value: number, [low, high]: readonly [number, number]): boolean => value >= low && value <= high;

function hueOf(red: number, green: number, blue: number, most: number, spread: number): number {
  if (spread === 0) return 0;
  if (most === red) return (60 * ((green - blue) / spread) + 360) % 360;
  if (most === green) return 60 * ((blue - red) / spread + 2);
  return 60 * ((red - green) / spread + 4);
}
