/** The fast layer as tests choose it. */
import { relative } from "node:path";
import { expect } from "vitest";
import { FAST_PIECES, type FastPiece, readConfig } from "../../src/config.ts";
import { NAMES_ITS_PIECES } from "./named-pieces.ts";

/** What a gateway has of which a test says nothing: `LIMBER_FAST=off vitest run test/edge` runs the plain path. */
export const { fast: FAST } = readConfig({ LIMBER_FAST: process.env.LIMBER_FAST });

/** The same, for a gateway of the test that runs; throws in a file that the plain run leaves out. */
export function fastOfRun(): ReadonlySet<FastPiece> {
  const file = relative(process.cwd(), expect.getState().testPath ?? "");
  if (NAMES_ITS_PIECES.includes(file))
    throw new Error(`${file} is in NAMES_ITS_PIECES: name the pieces of this gateway`);
  return FAST;
}

/** Every piece, for tests of the fast layer itself. */
export const ALL_FAST: ReadonlySet<FastPiece> = new Set(FAST_PIECES);

/** The plain path alone. */
export const PLAIN: ReadonlySet<FastPiece> = new Set();

/** Every piece but these. */
export const without = (...pieces: FastPiece[]): ReadonlySet<FastPiece> =>
  new Set(FAST_PIECES.filter((piece) => !pieces.includes(piece)));
