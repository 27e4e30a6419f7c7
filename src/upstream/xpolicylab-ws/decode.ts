/** What XPolicyLab's policy servers answer. */
import { decodeGr00t } from "../../codecs/python/gr00t.ts";
import type { Unpacked, UnpackedMap } from "../../codecs/python/msgpack.ts";
import { NdArray } from "../../codecs/python/ndarray.ts";
import type { ActAnswer } from "../../contracts/contract.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import { chunkOf, sideBySide, type Table, tableOf } from "../payload/chunk.ts";
import type { Profile } from "../payload/profile.ts";
import { failureOf, malformed, toldFailure } from "../transport/failures.ts";

type XPolicyValue = Unpacked<NdArray>;

/** What a server says of itself. */
export interface XPolicyHello {
  readonly server: string;
  /** Changes when it is started again; servers before `call` have none. */
  readonly instance: string | undefined;
}

/** Reads the answer to a hello. Throws an UpstreamFailure. */
export function readHello(frame: Buffer): XPolicyHello {
  const { payload } = replyIn(frame, "hello_ack");
  const [server, instance] = [payload.get("server"), payload.get("server_instance_id")];
  return {
    server: typeof server === "string" ? server.slice(0, 64) : "",
    instance: typeof instance === "string" && instance !== "" ? instance.slice(0, 64) : undefined,
  };
}

/** Throws an UpstreamFailure where an episode did not begin. */
export function readReset(frame: Buffer, messageId: string): void {
  assertAnswers(replyIn(frame, "reset_result"), messageId);
}

/**
 * The first `horizon` rows of the chunk that answers a message, its parts in the order of the profile. Throws an UpstreamFailure: the server's own
 * error, the answer to another message, parts that are not declared.
 */
export function readActions(
  frame: Buffer,
  { actionKeys, actionDims }: Pick<Profile, "actionKeys" | "actionDims">,
  horizon: number,
  messageId: string,
  dim?: number,
): ActAnswer {
  const reply = replyIn(frame, "infer_result");
  assertAnswers(reply, messageId);
  const actions = reply.payload.get("actions");
  if (actions instanceof NdArray) return chunkOf(sideBySide([tableOf(actions)], { dims: [], dim }), horizon);
  const steps = actions instanceof Map ? [actions] : actions;
  if (!Array.isArray(steps)) throw malformed("there is no list of actions");
  if (steps.length === 0) throw new UpstreamFailure(AttemptFailure.EMPTY_ANSWER, "the list of actions is empty");
  if (steps.length > MOST_STEPS)
    throw malformed(`a chunk has ${steps.length} steps, and ${MOST_STEPS} at most are read`);
  const keys = actionKeys.length > 0 ? actionKeys : jointsIn(steps[0]!);
  const tables = keys.map((key) => column(steps, key));
  return chunkOf(sideBySide(tables, { dims: actionKeys.length > 0 ? actionDims : [], dim }), horizon);
}

const MOST_STEPS = 1_024;

/** Joints in the order in which XPolicyLab packs them. */
const JOINTS = ["", "left_", "right_"].flatMap((arm) => [`${arm}arm_joint_state`, `${arm}ee_joint_state`]);

/** Where no parts are declared: joints, and nothing beside them. */
function jointsIn(step: XPolicyValue): string[] {
  if (!(step instanceof Map)) throw malformed("a step of the action is a map");
  const other = [...step.keys()].find((key) => !JOINTS.includes(key));
  if (other !== undefined)
    throw malformed(
      `the action has ${JSON.stringify(other.slice(0, 64))}: declare its parts in the profile's action_keys`,
    );
  return JOINTS.filter((key) => step.has(key));
}

/** One part of all steps. */
function column(steps: readonly XPolicyValue[], key: string): Table {
  const rows = steps.map((step) => numbersOf(step instanceof Map ? step.get(key) : undefined, key));
  const columns = rows[0]?.length ?? 0;
  if (rows.some((row) => row.length !== columns)) throw malformed(`the steps of ${key.slice(0, 64)} differ in length`);
  return { rows: rows.length, columns, values: Float64Array.from(rows.flatMap((row) => [...row])) };
}

function numbersOf(value: XPolicyValue | undefined, key: string): ArrayLike<number> & Iterable<number> {
  if (typeof value === "number") return [value];
  if (value instanceof NdArray && value.shape.filter((size) => size !== 1).length <= 1) return value.toFloat64();
  if (Array.isArray(value) && value.every((each) => typeof each === "number")) return value;
  throw malformed(`a step of the action has no numbers under ${key.slice(0, 64)}`);
}

interface Reply {
  readonly messageId: XPolicyValue;
  readonly payload: UnpackedMap<NdArray>;
}

function assertAnswers({ messageId }: Reply, asked: string): void {
  if (messageId !== asked) throw malformed("the answer is to another request");
}

/** What a reply of this type carries. Throws an UpstreamFailure for another one, and for the server's own error. */
function replyIn(frame: Buffer, type: "hello_ack" | "reset_result" | "infer_result"): Reply {
  const message = decoded(frame);
  if (!(message instanceof Map)) throw malformed("a message is a map");
  const payload = message.get("payload");
  if (!(payload instanceof Map)) throw malformed("a message has a payload");
  const said = message.get("message_type");
  if (said === "error") throw toldFailure(String(payload.get("message") ?? payload.get("code") ?? ""));
  if (said !== type) throw malformed(`this is no message of the type ${type}`);
  return { messageId: message.get("message_id") ?? null, payload };
}

function decoded(frame: Buffer): XPolicyValue {
  try {
    return decodeGr00t(frame);
  } catch (error) {
    throw failureOf(error);
  }
}
