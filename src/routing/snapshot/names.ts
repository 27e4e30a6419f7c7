/** Names and their numbers, in a table that never stops the world to grow as a Map does, and that the garbage collector need not look through. */
import type { Sliced } from "../../slices.ts";

/** Names numbered from 0 in the order in which they came; equal names have one number. */
export class Names {
  /** By number. Nobody else writes to it. */
  readonly names: string[] = [];
  /** By hash: a name's number plus one, at its place or at the next free one behind it; 0 is free. */
  readonly #slots: Uint32Array;
  readonly #mask: number;

  /** Takes up to `most` names. */
  constructor(most: number) {
    const slots = 2 ** Math.ceil(Math.log2(2 * most + 2));
    this.#slots = new Uint32Array(slots);
    this.#mask = slots - 1;
  }

  /** The number of a name, or -1. */
  of(name: string): number {
    return this.#slots[this.#placeOf(name)]! - 1;
  }

  /** The number of a name, which gets one where it has none. Throws a RangeError when no number is left. */
  add(name: string): number {
    const place = this.#placeOf(name);
    const known = this.#slots[place]!;
    if (known > 0) return known - 1;
    if (this.names.length > this.#mask >> 1) throw new RangeError("more names than there is room for");
    const count = this.names.push(name);
    this.#slots[place] = count;
    return count - 1;
  }

  #placeOf(name: string): number {
    let place = hashOf(name) & this.#mask;
    for (;;) {
      const slot = this.#slots[place]!;
      if (slot === 0 || this.names[slot - 1] === name) return place;
      place = (place + 1) & this.#mask;
    }
  }
}

/** How many names are looked at between two yields. */
const STRIDE = 128;

/** The numbers of the names of `all`, in order: those of `before` itself where they are the same. */
export function* naming<T>(all: ArrayLike<T>, nameOf: (each: T) => string, before: Names): Sliced<Names> {
  let same = before.names.length === all.length;
  for (let i = 0; same && i < all.length; i++) {
    same = before.names[i] === nameOf(all[i]!);
    if (i % STRIDE === 0) yield;
  }
  if (same) return before;
  const names = new Names(all.length);
  for (let i = 0; i < all.length; i++) {
    names.add(nameOf(all[i]!));
    if (i % STRIDE === 0) yield;
  }
  return names;
}

/** FNV-1a over the letters, its upper bits folded into those that count. */
function hashOf(name: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
  return hash ^ (hash >>> 15);
}
