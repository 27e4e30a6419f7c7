/** The fast layer as tests choose it. */
import { FAST_PIECES, type FastPiece, readConfig } from "../../src/config.ts";

/** What a gateway has of which a test says nothing: `LIMBER_FAST=off vitest run test/edge` runs the plain path. */
export const { fast: FAST } = readConfig({ LIMBER_FAST: process.env.LIMBER_FAST });

/** Every piece, for tests of the fast layer itself. */
export const ALL_FAST: ReadonlySet<FastPiece> = new Set(FAST_PIECES);

/** The plain path alone. */
export const PLAIN: ReadonlySet<FastPiece> = new Set();

/** Every piece but these. */
export const without = (...pieces: FastPiece[]): ReadonlySet<FastPiece> =>
  new Set(FAST_PIECES.filter((piece) => !pieces.includes(piece)));
