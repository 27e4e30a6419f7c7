/** The words that REST JSON writes for the values of an enum. */
import { type DescEnum, type DescEnumValue, getOption, hasOption } from "@bufbuild/protobuf";
import { spelling, synonym } from "../../../../gen/limber/edge/v1/options_pb.ts";

/** The words of one enum, both ways. */
export interface EnumWords {
  /** Number to word, the unspecified value included. */
  readonly ofNumber: ReadonlyMap<number, string>;
  /** Word to number; what is unspecified has no word that a caller may send. */
  readonly toNumber: ReadonlyMap<string, number>;
  /** Words that a caller may send as well, to number: `(synonym)` names them. Documents and answers have only those of `toNumber`. */
  readonly synonyms: ReadonlyMap<string, number>;
}

const known = new WeakMap<DescEnum, EnumWords>();

/** The words of an enum by the one rule (drop the shared prefix, lower the case), or as `(spelling)` gives them. */
export function wordsOf(desc: DescEnum): EnumWords {
  let words = known.get(desc);
  if (words === undefined) {
    const all = desc.values.map((value) => [value.number, wordOf(desc, value)] as const);
    words = {
      ofNumber: new Map(all),
      toNumber: new Map(all.filter(([number]) => number !== 0).map(([number, word]) => [word, number])),
      synonyms: new Map(desc.values.flatMap((value) => getOption(value, synonym).map((word) => [word, value.number]))),
    };
    known.set(desc, words);
  }
  return words;
}

function wordOf(desc: DescEnum, value: DescEnumValue): string {
  if (hasOption(value, spelling)) return getOption(value, spelling);
  return value.name.slice(desc.sharedPrefix?.length ?? 0).toLowerCase();
}
