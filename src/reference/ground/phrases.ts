/** What an instruction asks for: the coloured things that it names. */
import { type ColourWord, colourOf } from "./colours.ts";
import { type ShapeWord, shapeOf } from "./shapes.ts";

/** One coloured thing. Without a shape any form will do; `all` asks for every one in view. */
export interface Phrase {
  readonly label: string;
  readonly colour: ColourWord;
  readonly shape?: ShapeWord;
  readonly all: boolean;
}

/** How many words after its colour a thing's noun may stand ("the green wooden toy cube"). */
const REACH = 3;
const BREAKS = new Set([
  "and",
  "or",
  "on",
  "onto",
  "in",
  "into",
  "to",
  "with",
  "from",
  "near",
  "next",
  "over",
  "under",
  "the",
  "a",
]);
const EVERY = new Set(["all", "every", "each"]);

/** The coloured things of an instruction, in its order and without repeats; empty when it has no colour word. */
export function readPhrases(instruction: string): Phrase[] {
  const words = instruction.toLowerCase().match(/[a-z]+/g) ?? [];
  const phrases = new Map<string, Phrase>();
  words.forEach((word, at) => {
    const colour = colourOf(word);
    if (colour === undefined) return;
    const noun = nounAfter(words, at);
    const label = noun === undefined ? colour : `${colour} ${noun.word}`;
    const all = noun?.plural === true || words.slice(Math.max(0, at - 2), at).some((before) => EVERY.has(before));
    const phrase = { label, colour, all, ...(noun && { shape: noun.shape }) };
    if (!phrases.has(label)) phrases.set(label, phrase);
  });
  return [...phrases.values()];
}

function nounAfter(
  words: readonly string[],
  at: number,
): { word: string; shape: ShapeWord; plural: boolean } | undefined {
  for (const word of words.slice(at + 1, at + 1 + REACH)) {
    if (BREAKS.has(word) || colourOf(word) !== undefined) return undefined;
    for (const singular of [word, word.replace(/s$/, ""), word.replace(/es$/, "")]) {
      const shape = shapeOf(singular);
      if (shape !== undefined) return { word: singular, shape, plural: singular !== word };
    }
  }
  return undefined;
}
