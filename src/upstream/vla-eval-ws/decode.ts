/** What vla-evaluation-harness's servers say. */
import type { Unpacked, UnpackedMap } from "../../codecs/python/msgpack.ts";
import { decodeNumpy, NdArray } from "../../codecs/python/ndarray.ts";
import type { ActAnswer } from "../../contracts/contract.ts";
import { bareNumber, chunkOf, sideBySide, type Table, tableOf } from "../payload/chunk.ts";
import type { Profile } from "../payload/profile.ts";
import { failureOf, malformed, toldFailure } from "../transport/failures.ts";

type VlaEvalValue = Unpacked<NdArray>;

/** What a server says of itself. */
export interface VlaEvalHello {
  /** The parts of an action and their sizes; empty where it does not say. */
  readonly action: readonly { readonly name: string; readonly dims: number }[];
}

/** Reads the answer to a hello. Throws an UpstreamFailure. */
export function readHello(frame: Buffer): VlaEvalHello {
  const spec = payloadOf(frame, "hello").payload.get("action_spec");
  const parts = spec instanceof Map ? [...spec] : [];
  return {
    action: parts.flatMap(([name, part]) => {
      const dims = part instanceof Map ? part.get("dims") : undefined;
      return typeof dims === "number" && Number.isInteger(dims) && dims >= 0 ? [{ name: name.slice(0, 64), dims }] : [];
    }),
  };
}

/** The first `horizon` rows of the action that answers message `seq`. Throws an UpstreamFailure: the server's own error, another message's answer. */
export function readAction(
  frame: Buffer,
  { actionKeys, actionDims }: Pick<Profile, "actionKeys" | "actionDims">,
  horizon: number,
  seq: number,
  dim?: number,
): ActAnswer {
  const { payload, seq: answered } = payloadOf(frame, "action");
  if (answered !== seq) throw malformed("the answer is to another request");
  const usual = payload.get("actions") ?? payload.get("action");
  const tables =
    actionKeys.length > 0
      ? actionKeys.map((key) => tableIn(usual instanceof Map ? usual.get(key) : payload.get(key)))
      : [tableIn(usual)];
  return chunkOf(sideBySide(tables, { dims: actionDims, dim }), horizon);
}

/** Rows of an array, or of lists of numbers; one list of numbers is one row. */
function tableIn(value: VlaEvalValue | undefined): Table {
  if (value instanceof NdArray) return tableOf(value);
  if (typeof value === "number") return bareNumber(value);
  if (!Array.isArray(value)) throw malformed("there is no array of actions");
  const rows = value.every(isNumber) ? [value] : value;
  const columns = Array.isArray(rows[0]) ? rows[0].length : 0;
  const numbers = rows.flatMap((row) => {
    if (Array.isArray(row) && row.length === columns && row.every(isNumber)) return row;
    throw malformed("a row of the action is no list of numbers");
  });
  return { rows: rows.length, columns, values: Float64Array.from(numbers) };
}

const isNumber = (value: VlaEvalValue): value is number => typeof value === "number";

/** What a message of this type carries. Throws an UpstreamFailure for another one, and for the server's own error. */
function payloadOf(frame: Buffer, type: "hello" | "action"): { payload: UnpackedMap<NdArray>; seq: VlaEvalValue } {
  const message = decode(frame);
  if (!(message instanceof Map)) throw malformed("a message is a map");
  const payload = message.get("payload");
  if (!(payload instanceof Map)) throw malformed("a message has a payload");
  if (message.get("type") === "error") throw toldFailure(String(payload.get("error") ?? ""));
  if (message.get("type") !== type) throw malformed(`this is no message of the type ${type}`);
  return { payload, seq: message.get("seq") ?? null };
}

function decode(frame: Buffer): VlaEvalValue {
  try {
    return decodeNumpy(frame);
  } catch (error) {
    throw failureOf(error);
  }
}
