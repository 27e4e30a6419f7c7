/** What a column says of an offering. */

import { DEFAULT_HORIZON } from "../../contracts/conflicts.ts";
import { Contract } from "../../contracts/contract.ts";
import { EMBODIMENTS, Embodiment } from "../../contracts/embodiments.ts";
import type { Sliced } from "../../slices.ts";
import type { Offering } from "../offering.ts";
import type { Ground } from "./base-table.ts";
import { BODY_SETS, bodyBit, type Columns, Flag, parameterBits, servesBits } from "./snapshot.ts";
import { supplierCode } from "./suppliers.ts";

/** A number of each offering, by the name of its column. */
export type OfferingNumbers<K extends string> = Readonly<Record<K, (offering: Offering) => number>>;

const priceOf = (contract: Contract) => (offering: Offering) => offering.priceNano[contract] ?? 0;

/** Every column of numbers; what is not known is Infinity where less is better, and 0 where more is. */
export const NUMBERS: {
  readonly plain: OfferingNumbers<"maxHorizon" | "chunk" | "precisionBits" | "wakeMicro" | "warmMs">;
  /** One for each contract, in their order. */
  readonly priceNano: readonly ((offering: Offering) => number)[];
  readonly advertised: OfferingNumbers<keyof Columns["advertised"]>;
} = {
  plain: {
    maxHorizon: ({ maxHorizon }) => maxHorizon,
    chunk: ({ chunk, maxHorizon }) => Math.min(chunk ?? DEFAULT_HORIZON, maxHorizon),
    precisionBits: ({ precision }) => precisionBits(precision),
    wakeMicro: ({ coldTimeoutMs, costNanoPerSecond }) =>
      Math.round(((coldTimeoutMs ?? 0) / 1000) * (costNanoPerSecond / 1000)),
    warmMs: ({ scaledownS }) => (scaledownS === undefined ? Number.POSITIVE_INFINITY : scaledownS * 1000),
  },
  priceNano: Object.values(Contract).map(priceOf),
  advertised: {
    p50Ms: ({ advertised }) => advertised.p50Ms ?? advertised.p95Ms ?? Number.POSITIVE_INFINITY,
    p95Ms: ({ advertised }) => advertised.p95Ms ?? advertised.p50Ms ?? Number.POSITIVE_INFINITY,
    // Waking that was not said to take time takes none.
    coldMs: ({ coldTimeoutMs, advertised }) =>
      coldTimeoutMs ?? advertised.p50Ms ?? advertised.p95Ms ?? Number.POSITIVE_INFINITY,
    unitsPerS: ({ advertised }) => advertised.unitsPerS ?? 0,
    uptime: ({ advertised }) => advertised.uptime30d ?? 0,
    judgedP95Ms: ({ advertised, probed }) => advertised.p95Ms ?? probed?.p95Ms ?? Number.POSITIVE_INFINITY,
    judgedUptime: ({ advertised, probed }) => advertised.uptime30d ?? probed?.uptime ?? 0,
  },
};

/** Columns with so many rows and nothing in them. */
export function* emptyColumns(rows: number): Sliced<Columns> {
  const codes = ["model", "provider", "region", "traits", "supplier", "bodies", "declared", "kind"] as const;
  const words = {} as Record<(typeof codes)[number], Uint32Array>;
  for (const name of codes) words[name] = new Uint32Array(rows);
  yield;
  const priceNano: Float64Array[] = [];
  for (const _ of NUMBERS.priceNano) priceNano.push(new Float64Array(rows));
  yield;
  const plain = emptyEach(NUMBERS.plain, rows);
  yield;
  return { ...words, ...plain, priceNano, advertised: emptyEach(NUMBERS.advertised, rows) };
}

function emptyEach<K extends string>(numbers: OfferingNumbers<K>, rows: number): Record<K, Float64Array> {
  const columns = {} as Record<K, Float64Array>;
  for (const name of Object.keys(numbers) as K[]) columns[name] = new Float64Array(rows);
  return columns;
}

/** Writes all columns of an offering into a row that was not read yet. */
export function writeRow(columns: Columns, ground: Ground, row: number, offering: Offering): void {
  const provider = ground.providers.of(offering.provider);
  const region = ground.regions.add(offering.region);
  const traits = traitsOf(offering);
  const bodies = bodiesOf(offering);
  columns.model[row] = ground.models.of(offering.model);
  columns.provider[row] = provider;
  columns.region[row] = region;
  columns.traits[row] = traits;
  columns.supplier[row] = supplierCode(provider, offering.supplier);
  columns.bodies[row] = bodies;
  columns.declared[row] = ground.declaredOf(offering.declared);
  columns.kind[row] = ground.kindOf(provider, region, bodies, traits);
  writeNumbers(columns, NUMBERS.plain, row, offering);
  writeNumbers(columns.advertised, NUMBERS.advertised, row, offering);
  for (let i = 0; i < columns.priceNano.length; i++) columns.priceNano[i]![row] = NUMBERS.priceNano[i]!(offering);
}

function writeNumbers<K extends string>(
  columns: Readonly<Record<K, Float64Array>>,
  numbers: OfferingNumbers<K>,
  row: number,
  offering: Offering,
): void {
  for (const name in numbers) columns[name][row] = numbers[name](offering);
}

/** The bits of one number at a precision: `bf16` and `fp16` 16, `int8` 8. */
function precisionBits(precision: string): number {
  return Math.min(64, Number(/\d+/.exec(precision)?.[0] ?? 0));
}

/** Everything about an offering that is a yes or a no. */
export function traitsOf({
  contracts,
  actionSpaces,
  parameters,
  simulated,
  retainsFrames,
  supplier,
  signed,
}: Offering): number {
  const bits =
    parameterBits(parameters) |
    (signed ? Flag.SIGNED : 0) |
    (supplier.ownsName ? Flag.OWNS_NAME : 0) |
    (simulated ? Flag.SIMULATED : 0) |
    (retainsFrames ? Flag.RETAINS_FRAMES : 0);
  return bits | servedBits(contracts, actionSpaces);
}

/** The bodies that an offering is made for. One for any body is one for each. */
export function bodiesOf({ embodiments }: Offering): number {
  let bits = 0;
  for (const word of embodiments) bits |= BODIES.get(word) ?? 0;
  return bits;
}

/** The bits of a word. Without a body there is nothing that `agnostic` would stand for. */
const BODIES: ReadonlyMap<string, number> = new Map(
  Object.entries(EMBODIMENTS).map(([word, body]) => [
    word,
    body === Embodiment.AGNOSTIC ? BODY_SETS - 1 - bodyBit(Embodiment.NONE) : bodyBit(body),
  ]),
);

/** The part of it that says what it serves. */
export function servedBits(contracts: readonly Contract[], actionSpaces: readonly string[]): number {
  let bits = 0;
  for (const contract of contracts) bits |= servesBits(contract, undefined);
  for (const space of actionSpaces) bits |= servesBits(Contract.UNSPECIFIED, space);
  return bits;
}
