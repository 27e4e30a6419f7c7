/** The lists of rows that plans over aliases start from. */
import { atOnce, type Sliced } from "../ambient.ts";
import type { Alias } from "./aliases.ts";
import { type Candidates, type Columns, Flag } from "./snapshot.ts";

interface List {
  readonly alias: Alias;
  /** What everything in it serves, and the flag of placeholders where they are unwanted: it is none of the bits that are asked for. */
  readonly wanted: number;
  readonly candidates: Candidates;
  /** A plan began with it. */
  asked: boolean;
}

/** How many rows are looked at between two yields. */
const STEPS = 4096;

/** Lists of one snapshot: made when a plan asks for them first, or beforehand. */
export class Serving {
  readonly #columns: Pick<Columns, "traits" | "kind">;
  readonly #rowsOf: (alias: Alias) => Uint32Array;
  readonly #lists = new Map<string, Map<number, List>>();

  constructor(columns: Pick<Columns, "traits" | "kind">, rowsOf: (alias: Alias) => Uint32Array) {
    this.#columns = columns;
    this.#rowsOf = rowsOf;
  }

  /** How many lists are made. */
  get size(): number {
    return [...this.#lists.values()].reduce((sum, lists) => sum + lists.size, 0);
  }

  /** The rows of an alias that serve all of `bits`; with placeholders or without. */
  of(alias: Alias, bits: number, simulated: boolean): Candidates {
    const wanted = simulated ? bits : bits | Flag.SIMULATED;
    const list = this.#lists.get(alias.id)?.get(wanted) ?? atOnce(this.#listing(alias, wanted));
    list.asked = true;
    return list.candidates;
  }

  /** Makes what plans over another snapshot asked for, so that none over this one is the first to ask. */
  *warming(before: Serving): Sliced<void> {
    for (const lists of before.#lists.values()) {
      for (const { alias, wanted, asked } of lists.values()) {
        if (asked && !this.#lists.get(alias.id)?.has(wanted)) yield* this.#listing(alias, wanted);
      }
    }
  }

  /** Rows and their kinds, numbered as they come. */
  *#listing(alias: Alias, wanted: number): Sliced<List> {
    const { traits, kind } = this.#columns;
    const all = this.#rowsOf(alias);
    const bits = wanted & ~Flag.SIMULATED;
    const rows = new Uint32Array(all.length);
    const kinds = new Uint32Array(all.length);
    const numbers = new Map<number, number>();
    const samples: number[] = [];
    let count = 0;
    for (let i = 0; i < all.length; i++) {
      if (i % STEPS === STEPS - 1) yield;
      const row = all[i]!;
      if ((traits[row]! & wanted) !== bits) continue;
      let number = numbers.get(kind[row]!);
      if (number === undefined) {
        number = samples.push(row) - 1;
        numbers.set(kind[row]!, number);
      }
      rows[count] = row;
      kinds[count++] = number;
    }
    const candidates = { rows: rows.slice(0, count), kinds: kinds.slice(0, count), samples: Uint32Array.from(samples) };
    const list = { alias, wanted, candidates, asked: false };
    const lists = this.#lists.get(alias.id);
    if (lists) lists.set(wanted, list);
    else this.#lists.set(alias.id, new Map([[wanted, list]]));
    yield;
    return list;
  }
}
