/**
 * How values of the database become values of the program, and back. The driver could ask the server for its array
 * types on each new connection, but a connection that is lost during that question ends the process: they are listed
 * here.
 */

/** A number beyond 2^53 rejects rather than lose its last digits: it may be money. */
const wholeNumber = (text: string): number => {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw new RangeError(`${text} from the database is beyond an exact number`);
  return value;
};

/** Sums of whole numbers are numeric too, so whole values are held to the same bound. */
const numeric = (text: string): number => (/^-?\d+$/.test(text) ? wholeNumber(text) : Number(text));

/** How one type is read and written. The driver hands over whatever a statement was given. */
interface Codec {
  parse(text: string): unknown;
  serialize(value: unknown): string;
}

const TEXT: Codec = { parse: String, serialize: String };
const NUMBER: Codec = { parse: Number, serialize: String };
const EXACT: Codec = { parse: wholeNumber, serialize: String };
const NUMERIC: Codec = { parse: numeric, serialize: String };
const JSON_TEXT: Codec = { parse: JSON.parse, serialize: JSON.stringify };
const BOOLEAN: Codec = { parse: (text) => text === "t", serialize: String };
const TIME: Codec = {
  parse: (text) => new Date(text),
  serialize: (value) => (value instanceof Date ? value.toISOString() : String(value)),
};

/** The numbers of a type and of its array type, as PostgreSQL has had them from its beginning (pg_type.dat). */
const ARRAYS: readonly { element: number; array: number; codec: Codec }[] = [
  { element: 16, array: 1000, codec: BOOLEAN },
  { element: 20, array: 1016, codec: EXACT },
  { element: 21, array: 1005, codec: NUMBER },
  { element: 23, array: 1007, codec: NUMBER },
  { element: 25, array: 1009, codec: TEXT },
  { element: 114, array: 199, codec: JSON_TEXT },
  { element: 701, array: 1022, codec: NUMBER },
  { element: 1043, array: 1015, codec: TEXT },
  { element: 1184, array: 1185, codec: TIME },
  { element: 1700, array: 1231, codec: NUMERIC },
  { element: 2950, array: 2951, codec: TEXT },
  { element: 3802, array: 3807, codec: JSON_TEXT },
];

/** A quoted element with its escapes, or a bare one. */
const ELEMENT = /"((?:[^"\\]|\\.)*)"|([^,{}"]+)/gs;

function parseArray(text: string, { parse }: Codec): unknown[] {
  // Bounds come first where they don't begin at 1.
  const elements = text.slice(text.indexOf("{"));
  if (elements.startsWith("{{")) throw new RangeError("Arrays of arrays are not read from the database");
  return Array.from(elements.matchAll(ELEMENT), ([, quoted, bare]) => {
    if (quoted !== undefined) return parse(quoted.replace(/\\(.)/gs, "$1"));
    return bare === "NULL" ? null : parse(bare!);
  });
}

function writeArray(values: unknown, { serialize }: Codec): string {
  if (!Array.isArray(values) || values.includes(undefined)) {
    throw new TypeError("A statement takes an array, and none of its elements may be undefined");
  }
  const elements = values.map((value) => (value === null ? "NULL" : `"${serialize(value).replace(/["\\]/g, "\\$&")}"`));
  return `{${elements.join(",")}}`;
}

/** The unix time of a moment, in whole seconds. */
export const unixSeconds = (moment: Date): number => Math.floor(moment.getTime() / 1000);

const driverType = (oid: number, codec: Codec) => ({ to: oid, from: [oid], ...codec });

/**
 * The types that the driver doesn't have by itself, or reads as text: bigint, numeric, and arrays of the common
 * types.
 */
export const TYPES = Object.fromEntries([
  ["int8", driverType(20, EXACT)],
  ["numeric", driverType(1700, NUMERIC)],
  ...ARRAYS.map(({ array, codec }) => [
    `array_${array}`,
    driverType(array, {
      parse: (text) => parseArray(text, codec),
      serialize: (values) => writeArray(values, codec),
    }),
  ]),
]);

/** For each type its array type, by their numbers, as `sql.array(values, type)` looks it up. */
export const ARRAY_TYPES: Readonly<Record<number, number>> = Object.fromEntries(
  ARRAYS.map(({ element, array }) => [element, array]),
);
