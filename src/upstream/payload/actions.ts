/** Builds an action chunk from the arrays in a server's answer. */
import type { ActionStep } from "../../../gen/limber/v1/action_pb.ts";
import { decodeJsonNumpy, type JsonNumpy } from "../../codecs/python/json-numpy.ts";
import type { Unpacked } from "../../codecs/python/msgpack.ts";
import type { NdArray } from "../../codecs/python/ndarray.ts";
import { numbersIn } from "../../codecs/python/values.ts";
import { type ActAnswer, AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import { failureOf, malformed, reportedError, unanswered } from "../transport/failures.ts";
import type { Profile } from "./profile.ts";

/** Numbers in rows. */
export interface Table {
  readonly rows: number;
  readonly columns: number;
  readonly values: Float64Array;
  /** A single number without axes, which is valid if the action has one number. */
  readonly isBare?: boolean;
}

/**
 * Returns the rows of an array of shape [T, D]. Axes of one before them, such as those of a batch or an environment, are dropped, and one action
 * [D] is one row. Throws an UpstreamFailure.
 */
export function tableOf(array: NdArray): Table {
  const shape = [...array.shape];
  while (shape.length > 2 && shape[0] === 1) shape.shift();
  const [rows = 1, columns = 1] = shape.length === 1 ? [1, shape[0]] : shape;
  if (shape.length > 2) throw malformed(`actions of shape [${array.shape}]`);
  return { rows, columns, values: array.toFloat64(), isBare: shape.length === 0 };
}

/** Returns the rows of an array, a number, or lists of either. Throws an UpstreamFailure for other values, with `missing` if there is none. */
export function tableIn(value: Unpacked<NdArray> | undefined, missing: string): Table {
  const array = value === undefined ? undefined : numbersIn(value);
  if (array !== undefined) return tableOf(array);
  throw malformed(Array.isArray(value) ? "the action must contain only numbers, in rows of equal length" : missing);
}

/** The declared width of an action. */
interface ActionWidth {
  /** Numbers of each part; empty if undeclared. */
  readonly dims: readonly number[];
  /** Numbers of the entire action. */
  readonly dim: number | undefined;
}

/**
 * Parts of one number can arrive as a list of T numbers, without an axis for their column. They are T rows if the part is declared to have one
 * number, if other parts have T rows, or if the action has as many numbers as parts.
 */
function inColumns(tables: readonly Table[], { dims, dim }: ActionWidth): readonly Table[] {
  if (!tables.some(isOneRow)) return tables;
  const long = tables.find(({ rows }) => rows > 1)?.rows;
  const isOneEach = dim === tables.length && tables.every(({ columns }) => columns === tables[0]!.columns);
  return tables.map((table, i) => {
    if (!isOneRow(table)) return table;
    const isColumn = dims[i] !== undefined ? dims[i] === 1 : long === undefined ? isOneEach : table.columns === long;
    return isColumn ? { rows: table.columns, columns: 1, values: table.values } : table;
  });
}

const isOneRow = ({ rows, columns }: Table): boolean => rows === 1 && columns > 1;

/**
 * Concatenates tables in this order, each with its declared width. Throws an UpstreamFailure for other widths than declared, or tables of
 * different length.
 */
export function sideBySide(parts: readonly Table[], width: ActionWidth): Table {
  const { dims } = width;
  const tables = inColumns(parts, width);
  const [first] = tables;
  if (first === undefined) throw malformed("the response contains no action array");
  const sum = tables.reduce((total, { columns }) => total + columns, 0);
  if (tables.some(({ isBare }, i) => isBare && dims[i] !== 1 && sum !== width.dim))
    throw malformed("the action is a single number");
  for (const [i, { columns }] of tables.entries()) {
    if (dims[i] !== undefined && dims[i] !== columns) {
      throw new UpstreamFailure(
        AttemptFailure.ACTION_DIM_MISMATCH,
        `part ${i} of the action has ${columns} columns, and ${dims[i]} are declared`,
      );
    }
  }
  if (tables.length === 1) return first;
  const { rows } = first;
  if (tables.some((table) => table.rows !== rows)) throw malformed("the parts of the action differ in length");
  const values = new Float64Array(rows * sum);
  let left = 0;
  for (const table of tables) {
    for (let row = 0; row < rows; row++) {
      values.set(table.values.subarray(row * table.columns, (row + 1) * table.columns), row * sum + left);
    }
    left += table.columns;
  }
  return { rows, columns: sum, values };
}

/** The horizon of wires that request no number: as many rows as the server returns. */
export const WHOLE_CHUNK = 0;
/** The maximum length of a server's chunk. */
const MOST_ROWS = 1024;

/**
 * Returns the first `horizon` rows in their original length, and how many there were. Fewer rows are returned unchanged; the contract decides
 * whether they are enough. Throws an UpstreamFailure without numbers.
 */
export function chunkOf(table: Table, horizon: number, more: Partial<ActAnswer> = {}): ActAnswer {
  if (table.rows === 0 || table.columns === 0) {
    throw new UpstreamFailure(AttemptFailure.EMPTY_ANSWER, "the action has no numbers");
  }
  const most = horizon === WHOLE_CHUNK ? MOST_ROWS : horizon;
  const steps = stepsOf(table, Math.min(most, table.rows));
  return { steps, chunk: table.rows, dtMs: 0, note: "", prediction: [], gpuSeconds: 0, ...more };
}

function stepsOf({ columns, values }: Table, length: number): ActionStep[] {
  return Array.from({ length }, (_, row) => ({
    $typeName: "limber.v1.ActionStep" as const,
    values: Array.from(values.subarray(row * columns, (row + 1) * columns)),
  }));
}

/**
 * Returns the first `horizon` rows of an answer's action: the concatenated named parts, otherwise `action`, `actions` or the answer itself. JSON
 * text inside JSON text is also read. Throws an UpstreamFailure, also for the text "error", which these servers send with status 200.
 */
export const readJsonAction = (body: Buffer, profile: ActionParts, horizon: number, dim?: number): ActAnswer =>
  jsonActionIn(jsonAnswerIn(body), profile, horizon, { dim });

type ActionParts = Pick<Profile, "actionKeys" | "actionDims">;

/** The known properties of an action, and additional fields. */
interface JsonActionOptions {
  /** The usual keys of the action. */
  readonly usual?: readonly string[];
  readonly gpuSeconds?: number;
  /** Numbers of the entire action, if declared. */
  readonly dim: number | undefined;
}

/**
 * Returns the first `horizon` rows of an answer's action: the concatenated named parts, otherwise the first of `usual`, or the answer itself.
 * Throws an UpstreamFailure.
 */
export function jsonActionIn(
  answer: JsonNumpy,
  { actionKeys, actionDims }: ActionParts,
  horizon: number,
  { usual = ["action", "actions"], gpuSeconds = 0, dim }: JsonActionOptions,
): ActAnswer {
  const found = answer instanceof Map ? usual.map((key) => answer.get(key)).find((value) => value != null) : answer;
  const values = actionKeys.length > 0 ? actionKeys.map((key) => partOf(answer, key)) : [found];
  const tables = values.map((value, i) => {
    const missing = `there is no array named ${actionKeys[i] ?? "actions"}`;
    if (value == null) throw unanswered(answer, missing);
    return tableIn(value, missing);
  });
  return chunkOf(sideBySide(tables, { dims: actionDims, dim }), horizon, { gpuSeconds });
}

/** Returns an answer's content. Throws an UpstreamFailure, also for the text "error" and for a reported error. */
export function jsonAnswerIn(body: Buffer): JsonNumpy {
  const outer = decode(body.toString("utf8"));
  if (outer === "error") throw new UpstreamFailure(AttemptFailure.UPSTREAM_ERROR, 'the server answered "error"');
  const answer = typeof outer === "string" ? decode(outer) : outer;
  if (answer === "error") throw new UpstreamFailure(AttemptFailure.UPSTREAM_ERROR, 'the server answered "error"');
  const error = answer instanceof Map ? reportedError(answer) : undefined;
  if (error) throw error;
  return answer;
}

function decode(text: string): JsonNumpy {
  try {
    return decodeJsonNumpy(text);
  } catch (error) {
    throw failureOf(error);
  }
}

const partOf = (answer: JsonNumpy, key: string): JsonNumpy | undefined =>
  answer instanceof Map ? (answer.get(key) ?? answer.get(`action.${key}`)) : undefined;
