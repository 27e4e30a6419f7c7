/** Actions in the JSON of HTTP servers: arrays of json_numpy, lists of them, or plain lists of numbers. */
import { decodeJsonNumpy, type JsonNumpy } from "../../codecs/python/json-numpy.ts";
import { NdArray } from "../../codecs/python/ndarray.ts";
import type { ActAnswer } from "../../contracts/contract.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import { failureOf, malformed } from "../transport/failures.ts";
import { bareNumber, chunkOf, sideBySide, type Table, tableOf } from "./chunk.ts";
import type { Profile } from "./profile.ts";

/**
 * The first `horizon` rows of an answer's action: the named parts side by side, else `action`, `actions` or the answer itself. A JSON
 * text inside a JSON text is read too. Throws an UpstreamFailure, also for the text "error", which these servers send with status 200.
 */
export const readJsonAction = (body: Buffer, profile: ActionParts, horizon: number, dim?: number): ActAnswer =>
  jsonActionIn(jsonAnswerIn(body), profile, horizon, { dim });

type ActionParts = Pick<Profile, "actionKeys" | "actionDims">;

/** What is known of an action, and what else there is to say of it. */
interface JsonActionOptions {
  /** Where the action usually is. */
  readonly usual?: readonly string[];
  readonly gpuSeconds?: number;
  /** Numbers of the whole action, where they are declared. */
  readonly dim: number | undefined;
}

/** The first `horizon` rows of the action in an answer: the named parts side by side, else the first of `usual`, or the answer itself. Throws an UpstreamFailure. */
export function jsonActionIn(
  answer: JsonNumpy,
  { actionKeys, actionDims }: ActionParts,
  horizon: number,
  { usual = ["action", "actions"], gpuSeconds = 0, dim }: JsonActionOptions,
): ActAnswer {
  const found = answer instanceof Map ? usual.map((key) => answer.get(key)).find((value) => value != null) : answer;
  const tables =
    actionKeys.length > 0 ? actionKeys.map((key) => rowsOf(partOf(answer, key), key)) : [rowsOf(found, "actions")];
  return chunkOf(sideBySide(tables, { dims: actionDims, dim }), horizon, { gpuSeconds });
}

/** What an answer says. Throws an UpstreamFailure, also for the text "error". */
export function jsonAnswerIn(body: Buffer): JsonNumpy {
  const outer = decode(body.toString("utf8"));
  if (outer === "error") throw new UpstreamFailure(AttemptFailure.UPSTREAM_ERROR, 'the server answered "error"');
  const answer = typeof outer === "string" ? decode(outer) : outer;
  if (answer === "error") throw new UpstreamFailure(AttemptFailure.UPSTREAM_ERROR, 'the server answered "error"');
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

/** One array, a list of arrays or of lists of numbers (a row each), a list of numbers (one row), or a number; a batch of one loses its axis. */
function rowsOf(given: JsonNumpy | undefined, name: string): Table {
  const value = isBatchOfOne(given) ? given[0] : given;
  if (value instanceof NdArray) return tableOf(value);
  if (isNumber(value)) return bareNumber(value);
  if (!Array.isArray(value)) throw malformed(`there is no array named ${name}`);
  if (value.length > 0 && value.every(isNumber))
    return { rows: 1, columns: value.length, values: Float64Array.from(value) };
  const rows = value.map((row) => rowOf(row, name));
  const columns = rows[0]?.length ?? 0;
  if (rows.some((row) => row.length !== columns)) throw malformed(`the rows of ${name} differ in length`);
  const values = new Float64Array(rows.length * columns);
  for (const [i, row] of rows.entries()) values.set(row, i * columns);
  return { rows: rows.length, columns, values };
}

const isBatchOfOne = (value: JsonNumpy | undefined): value is [JsonNumpy[]] =>
  Array.isArray(value) && value.length === 1 && Array.isArray(value[0]) && value[0].every((row) => Array.isArray(row));

function rowOf(row: JsonNumpy, name: string): ArrayLike<number> {
  if (row instanceof NdArray && row.shape.length <= 1) return row.toFloat64();
  if (Array.isArray(row) && row.every(isNumber)) return row;
  throw malformed(`a row of ${name} is no list of numbers`);
}

const isNumber = (value: JsonNumpy | undefined): value is number => typeof value === "number";
