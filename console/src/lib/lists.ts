/** Lists that people type: words and numbers with commas or spaces between. */

/** The words of a text. */
export const wordsIn = (text: string): string[] => text.split(/[\s,]+/).filter((word) => word !== "");

/** The phrases of a text, between commas: names may have spaces. */
export const phrasesIn = (text: string): string[] =>
  text
    .split(",")
    .map((phrase) => phrase.trim())
    .filter((phrase) => phrase !== "");

/** The numbers of a text. Throws an `Error` that names what is no number, and the field. */
export const numbersIn = (text: string, field: string): number[] =>
  wordsIn(text).map((word) => {
    const value = Number(word);
    if (!Number.isFinite(value)) throw new Error(`${field}: ${word} is no number`);
    return value;
  });

/** The number of a text; undefined where it is empty. Throws an `Error` that names the field. */
export const numberIn = (text: string, field: string): number | undefined => numbersIn(text, field)[0];
