/** The lists of rows that plans over aliases start from. */
import { atOnce, type Sliced } from "../../slices.ts";
import type { Alias } from "../aliases.ts";
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
  readonly #aliased: ReadonlyMap<Alias, Uint32Array>;
  readonly #lists = new Map<string, Map<number, List>>();

  constructor(columns: Pick<Columns, "traits" | "kind">, aliased: ReadonlyMap<Alias, Uint32Array>) {
    this.#columns = columns;
    this.#aliased = aliased;
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
    yield* this.taking(before, () => true);
  }

  /** The same, where lists that are not `touched` hold what they held. */
  *taking(before: Serving, touched: (alias: Alias, wanted: number) => boolean): Sliced<void> {
    for (const lists of before.#lists.values()) {
      for (const list of lists.values()) {
        const { alias, wanted, asked } = list;
        if (!asked || this.#lists.get(alias.id)?.has(wanted)) continue;
        if (touched(alias, wanted)) yield* this.#listing(alias, wanted);
        else this.#keep({ ...list, asked: false });
      }
    }
  }

  /** Rows and their kinds, numbered as they come. */
  *#listing(alias: Alias, wanted: number): Sliced<List> {
    const { traits, kind } = this.#columns;
    const all = this.#aliased.get(alias)!;
    const bits = bitsOf(wanted);
    let count = 0;
    for (let i = 0; i < all.length; i++) {
      if (i % STEPS === STEPS - 1) yield;
      if ((traits[all[i]!]! & wanted) === bits) count++;
    }
    const rows = new Uint32Array(count);
    const kinds = new Uint32Array(count);
    const numbers = new Map<number, number>();
    const samples: number[] = [];
    let place = 0;
    for (let i = 0; i < all.length; i++) {
      if (i % STEPS === STEPS - 1) yield;
      const row = all[i]!;
      if ((traits[row]! & wanted) !== bits) continue;
      let number = numbers.get(kind[row]!);
      if (number === undefined) {
        number = samples.push(row) - 1;
        numbers.set(kind[row]!, number);
      }
      rows[place] = row;
      kinds[place++] = number;
    }
    const list = { alias, wanted, candidates: { rows, kinds, samples: Uint32Array.from(samples) }, asked: false };
    this.#keep(list);
    yield;
    return list;
  }

  #keep(list: List): void {
    const lists = this.#lists.get(list.alias.id);
    if (lists) lists.set(list.wanted, list);
    else this.#lists.set(list.alias.id, new Map([[list.wanted, list]]));
  }
}

/** Of what is looked at, the bits that have to be there. */
export const bitsOf = (wanted: number): number => wanted & ~Flag.SIMULATED;
