/** An action chunk from the arrays that a server answered. */
import type { ActionStep } from "../../../gen/limber/v1/action_pb.ts";
import type { NdArray } from "../../codecs/python/ndarray.ts";
import type { ActAnswer } from "../../contracts/contract.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import { malformed } from "../transport/failures.ts";

/** Numbers in rows. */
export interface Table {
  readonly rows: number;
  readonly columns: number;
  readonly values: Float64Array;
}

/** Rows of an array of shape [T, D]; [1, T, D] loses its batch of one, and one action [D] is one row. Throws an UpstreamFailure. */
export function tableOf(array: NdArray): Table {
  const shape = array.shape.length === 3 && array.shape[0] === 1 ? array.shape.slice(1) : array.shape;
  const [rows, columns] = shape.length === 1 ? [1, shape[0]] : shape;
  if (shape.length > 2 || rows === undefined || columns === undefined)
    throw malformed(`actions of shape [${array.shape}]`);
  return { rows, columns, values: array.toFloat64() };
}

/**
 * Tables side by side, in this order; `dims` are the columns that each must have, where it isn't empty.
 * Throws an UpstreamFailure: other columns than declared, or tables of different length.
 */
export function sideBySide(tables: readonly Table[], dims: readonly number[] = []): Table {
  const [first] = tables;
  if (first === undefined) throw malformed("there is no array of actions");
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
  const columns = tables.reduce((sum, table) => sum + table.columns, 0);
  const values = new Float64Array(rows * columns);
  let left = 0;
  for (const table of tables) {
    for (let row = 0; row < rows; row++) {
      values.set(table.values.subarray(row * table.columns, (row + 1) * table.columns), row * columns + left);
    }
    left += table.columns;
  }
  return { rows, columns, values };
}

/** As a horizon: as many rows as the server gives, of wires that ask for no number. */
export const WHOLE_CHUNK = 0;
/** No server's chunk is taken further. */
const MOST_ROWS = 1024;

/**
 * The first `horizon` rows, each as long as the table has it, and how many there were. Fewer come as they are: whether they are enough is for
 * the contract to say. Throws an UpstreamFailure: no numbers.
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
