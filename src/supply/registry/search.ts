/** Full text over the catalog: every word of a query must be borne by a model, and a typo is forgiven, in an unfinished word too. Pure. */

import type { Sliced } from "../../slices.ts";

/** What is searched of one model. */
export interface Searched {
  readonly name: string;
  /** The last part of its slug. */
  readonly slug: string;
  readonly owner: string;
  readonly family: string;
  readonly summary: string;
}

/** What a word is worth where it stands: a model's own name says more than what is said of it. */
const WORTH: Readonly<Record<keyof Searched, number>> = { name: 8, slug: 6, owner: 4, family: 2, summary: 1 };

/** How well a word matches a search term. */
const WHOLE = 1;
const BEGINNING = 0.7;
const INSIDE = 0.4;
const NEAR = 0.3;
const NEAR_BEGINNING = 0.15;

/** Shorter words stand inside too many others, or are a typo of them. */
const LEAST_INSIDE = 2;
const LEAST_NEAR = 4;
const LEAST_NEAR_BEGINNING = 5;
/** A word of so many letters may have two typos. */
const LONG = 8;
/** More words and letters than names have are not looked up. */
const MOST_WORDS = 10;
const MOST_LETTERS = 48;

/** Where a word stands, as places in the list of models, and what it's worth in each. */
type SearchPlaces = Map<number, number>;

/** An index over a list of models. */
export class SearchIndex {
  readonly #places = new Map<string, SearchPlaces>();

  /** Makes a model findable at a place in the list. */
  put(model: Searched, place: number): void {
    for (const [field, worth] of Object.entries(WORTH)) {
      const words = wordsOf(model[field as keyof Searched]); // a key of the table that is made of them
      // A word says more where it stands alone: "OpenVLA" comes before "OpenVLA OFT".
      const each = worth + 1 / words.length;
      for (const word of words) this.#add(word, place, each);
      // So that "gr00tn1" and "openvla" find "GR00T N1" and "Open VLA".
      if (field === "name" || field === "owner") this.#add(words.join(""), place, each);
    }
  }

  /**
   * Places of the models that bear every word of `query`, best first, else in their order. Where none does, its words may be
   * parts of one: "Drive VLA" of DriveVLA. A query without words finds none.
   */
  find(query: string): number[] {
    const words = [...new Set(wordsOf(query))].slice(0, MOST_WORDS);
    let scores = this.#all(words);
    if (scores.size === 0 && words.length > 1) scores = this.#answers(words.join("").slice(0, MOST_LETTERS));
    return [...scores].sort(([a, high], [b, low]) => low - high || a - b).map(([place]) => place);
  }

  /** Where all words are answered. */
  #all(words: readonly string[]): SearchPlaces {
    let scores: SearchPlaces | undefined;
    for (const asked of words) {
      const answers = this.#answers(asked);
      scores = scores ? bothOf(scores, answers) : answers;
      if (scores.size === 0) break;
    }
    return scores ?? new Map();
  }

  #add(word: string, place: number, worth: number): void {
    if (word === "") return;
    const places = this.#places.get(word) ?? new Map<number, number>();
    places.set(place, Math.max(places.get(place) ?? 0, worth));
    this.#places.set(word, places);
  }

  /** Where an asked word is answered, and how well; by words that are near to it only where nothing bears it. */
  #answers(asked: string): SearchPlaces {
    const borne = this.#collect((word) => likeness(word, asked));
    if (borne.size > 0 || asked.length < LEAST_NEAR) return borne;
    const typos = asked.length < LONG ? 1 : 2;
    return this.#collect((word) => nearness(word, asked, typos));
  }

  #collect(quality: (word: string) => number): SearchPlaces {
    const best: SearchPlaces = new Map();
    for (const [word, places] of this.#places) {
      const good = quality(word);
      if (good === 0) continue;
      for (const [place, worth] of places) best.set(place, Math.max(best.get(place) ?? 0, good * worth));
    }
    return best;
  }
}

/** Indexes so many models, by what is searched of each. */
export function* indexing(count: number, searched: (place: number) => Searched): Sliced<SearchIndex> {
  const index = new SearchIndex();
  for (let place = 0; place < count; place++) {
    index.put(searched(place), place);
    if (place % 8 === 0) yield;
  }
  return index;
}

/** What two words have in common, and what it's worth. */
function bothOf(one: SearchPlaces, other: SearchPlaces): SearchPlaces {
  const both: SearchPlaces = new Map();
  for (const [place, worth] of one) {
    const more = other.get(place);
    if (more !== undefined) both.set(place, worth + more);
  }
  return both;
}

function likeness(word: string, asked: string): number {
  if (word === asked) return WHOLE;
  if (word.startsWith(asked)) return BEGINNING;
  return asked.length >= LEAST_INSIDE && word.includes(asked) ? INSIDE : 0;
}

/** Words in small letters without accents: letters and digits of any script. */
function wordsOf(text: string): string[] {
  const plain = text.normalize("NFKD").replaceAll(/\p{M}/gu, "").toLowerCase();
  return (plain.match(/[\p{L}\p{N}]+/gu) ?? []).map((word) => word.slice(0, MOST_LETTERS));
}

/** How well a word matches a search term with at most `most` typos, which may be unfinished: its first letter must match then. */
function nearness(word: string, asked: string, most: number): number {
  if (Math.abs(word.length - asked.length) <= most && edits(word, asked, most) <= most) return NEAR;
  if (asked.length < LEAST_NEAR_BEGINNING || word.length < asked.length || word[0] !== asked[0]) return 0;
  for (let length = asked.length - 1; length <= Math.min(asked.length + 1, word.length); length++)
    if (edits(word.slice(0, length), asked, 1) <= 1) return NEAR_BEGINNING;
  return 0;
}

/** How many edits make one word of the other, a letter more, less, another, or two swapped; given up once it must be more than `most`. */
function edits(a: string, b: string, most: number): number {
  let twoAbove: number[] = [];
  let above = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    let least = i;
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1];
      let fewest = Math.min(above[j - 1]! + (same ? 0 : 1), above[j]! + 1, row[j - 1]! + 1);
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      if (swapped) fewest = Math.min(fewest, twoAbove[j - 2]! + 1);
      row[j] = fewest;
      if (fewest < least) least = fewest;
    }
    if (least > most) return least;
    twoAbove = above;
    above = row;
  }
  return above[b.length]!;
}
