/** Reads proprio by declared layouts. Undeclared layouts are refused, never guessed. */
import { UnsupportedObservation } from "../unsupported.ts";
import type { ActInput, ActionDeclaration } from "./types.ts";

/** No length, angle or speed of a robot is larger, and sums of squares of such numbers remain finite. */
const LARGEST = 1e6;

/** Proprio in the order of its recognized layout. */
export interface Reading {
  readonly names: readonly string[];
  readonly values: Float64Array;
}

/**
 * Returns the proprio of `input` in the order of one declared layout: the one with exactly the given names (in any order), or, without names,
 * the one of that length. Throws `UnsupportedObservation` with the layouts' names if none fits or a number is not finite.
 */
export function readProprio(input: ActInput, declaration: ActionDeclaration): Reading {
  const { proprio } = input;
  const names = input.proprioNames !== undefined && input.proprioNames.length > 0 ? input.proprioNames : undefined;
  if (names !== undefined && names.length !== proprio.length) {
    throw new UnsupportedObservation(
      `proprio has ${proprio.length} numbers but proprio_names has ${names.length} names`,
    );
  }
  for (const value of proprio) {
    if (!(Math.abs(value) <= LARGEST))
      throw new UnsupportedObservation("every number of proprio must be finite and at most a million");
  }
  const layout = declaration.proprioLayouts.find((known) => known.length === proprio.length && sameNames(known, names));
  if (layout === undefined) throw new UnsupportedObservation(unknownLayout(proprio.length, names, declaration));
  const place = (name: string, at: number): number => proprio[names === undefined ? at : names.indexOf(name)]!;
  return { names: layout, values: Float64Array.from(layout, place) };
}

const sameNames = (known: readonly string[], names: readonly string[] | undefined): boolean =>
  names === undefined || known.every((name) => names.includes(name));

function unknownLayout(length: number, names: readonly string[] | undefined, declaration: ActionDeclaration): string {
  const given = names === undefined ? `${length} numbers` : "these names";
  const known = declaration.proprioLayouts.map((layout) => (layout.length === 0 ? "none" : `[${layout.join(", ")}]`));
  return `proprio with ${given} is not a layout of ${declaration.space} here; known layouts: ${known.join(" or ")}`;
}
