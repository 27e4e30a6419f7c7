/** A server's answer on the openpi wire, in any of its dialects, as an action chunk. */
import type { ActionStep } from "../../../gen/limber/v1/action_pb.ts";
import type { Unpacked, UnpackedMap } from "../../codecs/msgpack.ts";
import { decodeNumpy, NdArray } from "../../codecs/ndarray.ts";
import type { ActAnswer } from "../../contracts/contract.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import { failureOf, malformed, ownerText } from "../failures.ts";
import type { Dialect } from "./encode.ts";

type Value = Unpacked<NdArray>;
type Answer = UnpackedMap<NdArray>;

/** The first frame of a connection: the server's metadata, which tell its dialect. Throws an UpstreamFailure when it isn't a map. */
export function readMetadata(bytes: Buffer): Dialect {
  const metadata = decode(bytes);
  if (!(metadata instanceof Map)) throw malformed("the metadata are not a map");
  return { addressed: ADDRESSED_BY.some((key) => metadata.has(key)) };
}

/** Metadata that only servers have that dispatch on `endpoint`. */
const ADDRESSED_BY = ["needs_session_id", "policy_server_config"] as const;

/**
 * The first `horizon` rows of the answer's action, each as long as the answer has it. Throws an UpstreamFailure: the server's own
 * error, no action, fewer rows than asked for.
 */
export function readAnswer(bytes: Buffer, actionKeys: readonly string[], horizon: number): ActAnswer {
  const answer = decode(bytes);
  if (answer instanceof Map) throwIfError(answer);
  const table = actionKeys.length > 0 ? besides(answer, actionKeys) : tableOf(actionIn(answer));
  if (table.rows === 0 || table.columns === 0) {
    throw new UpstreamFailure(AttemptFailure.EMPTY_ANSWER, "the action has no numbers");
  }
  if (table.rows < horizon) {
    throw new UpstreamFailure(AttemptFailure.WRONG_STEP_COUNT, `${table.rows} steps, of ${horizon} asked for`);
  }
  return { steps: stepsOf(table, horizon), dtMs: 0, note: "", prediction: [], gpuSeconds: gpuSecondsOf(answer) };
}

/** Numbers in rows. */
interface Table {
  readonly rows: number;
  readonly columns: number;
  readonly values: Float64Array;
}

function decode(bytes: Buffer): Value {
  try {
    return decodeNumpy(bytes);
  } catch (error) {
    throw failureOf(error);
  }
}

/** Errors that dialects put into a map: `{type: "error", message}` and `{ok: false, error: {message}}`. */
function throwIfError(answer: Answer): void {
  if (answer.get("type") !== "error" && answer.get("ok") !== false) return;
  const inner = answer.get("error");
  const message = answer.get("message") ?? (inner instanceof Map ? inner.get("message") : inner);
  throw new UpstreamFailure(AttemptFailure.UPSTREAM_ERROR, ownerText(String(message ?? "")));
}

/** Where openpi (`actions`), cosmos (`action`), vLLM-Omni (the answer itself) and starVLA (`data.actions`) put the action. */
function actionIn(answer: Value): Value | undefined {
  if (!(answer instanceof Map)) return answer;
  const data = answer.get("data");
  return answer.get("actions") ?? answer.get("action") ?? (data instanceof Map ? data.get("actions") : undefined);
}

/** The named arrays side by side, in this order. */
function besides(answer: Value, keys: readonly string[]): Table {
  const tables = keys.map((key) => tableOf(answer instanceof Map ? answer.get(key) : undefined));
  const rows = tables[0]?.rows ?? 0;
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

/** Rows of an array of shape [T, D]; [1, T, D] loses its batch of one, and one action [D] is one row. */
function tableOf(value: Value | undefined): Table {
  if (!(value instanceof NdArray)) throw malformed("there is no array of actions");
  const shape = value.shape.length === 3 && value.shape[0] === 1 ? value.shape.slice(1) : value.shape;
  const [rows, columns] = shape.length === 1 ? [1, shape[0]] : shape;
  if (shape.length > 2 || rows === undefined || columns === undefined)
    throw malformed(`actions of shape [${value.shape}]`);
  return { rows, columns, values: value.toFloat64() };
}

function stepsOf({ columns, values }: Table, horizon: number): ActionStep[] {
  return Array.from({ length: horizon }, (_, row) => ({
    $typeName: "limber.v1.ActionStep" as const,
    values: Array.from(values.subarray(row * columns, (row + 1) * columns)),
  }));
}

/** What the server measured of its own work, if it did. */
function gpuSecondsOf(answer: Value): number {
  for (const key of ["policy_timing", "server_timing"]) {
    const timing = answer instanceof Map ? answer.get(key) : undefined;
    const ms = timing instanceof Map ? timing.get("infer_ms") : undefined;
    if (typeof ms === "number" && ms >= 0 && Number.isFinite(ms)) return ms / 1000;
  }
  return 0;
}
