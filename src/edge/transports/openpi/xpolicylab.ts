/**
 * A client of XPolicyLab, so that its environments and robots are driven by every model of the gateway: a frame with a type, ids and a payload,
 * answered by one with the same ids. Both generations are served: `infer` with its observation, and `call` of `update_obs` and `get_action`, of
 * which the first is kept here until the second.
 * Source: XPolicyLab/XPolicyLab, client_server/ws/model_client.py, model_server.py and protocol/ at 7198143; `call` of yuz1wan/XPolicyLab at 00cf994.
 */

import { create } from "@bufbuild/protobuf";
import { ActRequestSchema, type ActResponse } from "../../../../gen/limber/v1/inference_service_pb.ts";
import { BRAND } from "../../../brand.ts";
import { now } from "../../../clock.ts";
import { CodecError } from "../../../codecs/error.ts";
import { type EncodeOptions, headOf, isPicture, unfit } from "../../../codecs/pictures/raw-pictures.ts";
import { decodeGr00t, encodeGr00t } from "../../../codecs/python/gr00t.ts";
import { type Packable, UNPACK_LIMITS, type Unpacked, type UnpackedMap } from "../../../codecs/python/msgpack.ts";
import { NdArray } from "../../../codecs/python/ndarray.ts";
import { numbersIn, textIn } from "../../../codecs/python/values.ts";
import { Reason, refuse } from "../../../errors.ts";
import { numbersOwed, spaceOwed } from "../../../inference/robot-check.ts";
import { unreadable } from "../own-keys.ts";
import { MOST_PICTURES, type NamedPart, type OpenpiQuery } from "./observation.ts";
import type { Heard, RobotProtocol } from "./protocol.ts";

type XPolicyValue = Unpacked<NdArray>;
type XPolicyMap = UnpackedMap<NdArray>;

/** Values of one observation, those of its arrays apart. */
const LIMITS = { ...UNPACK_LIMITS, maxValues: 100_000 };
/** As many as `proprio` may have. */
const MOST_NUMBERS = 4_096;
/** What a reply has of its request. */
const IDS = ["message_id", "evaluation_id", "action_case_id", "trial_id", "repeat_index", "step"];
/** Joints in the order in which XPolicyLab packs them. */
const JOINTS = ["", "left_", "right_"].flatMap((arm) => [`${arm}arm_joint_state`, `${arm}ee_joint_state`]);
/** The comment that XPolicyLab writes into a JPEG whose red is first; it turns red and blue of every other file around. */
const RGB_MARK = Buffer.concat([Buffer.of(0xff, 0xfe, 0x00, 0x0a), Buffer.from("XPL-RGB1")]);
/** Where the comment stands, if it is there. */
const HEAD_BYTES = 64 << 10;

/** The parts that an address names: `left_arm_joint_state:6,left_ee_joint_state:1`; undefined where they are none. */
export function partsNamed(text: string): NamedPart[] | undefined {
  const parts: NamedPart[] = [];
  for (const part of text.split(",")) {
    const [, name, dim] = /^([A-Za-z_]\w{0,63})(?::([1-9]\d{0,3}))?$/.exec(part) ?? [];
    if (name === undefined || parts.some(([other]) => other === name)) return undefined;
    parts.push([name, dim === undefined ? undefined : Number(dim)]);
  }
  return parts;
}

/** The size of a message, and when it arrived on the monotonic clock in milliseconds. */
interface Arrival {
  readonly bytes: number;
  readonly arrivedAt: number;
}

/** One connection of a client. */
export class XPolicyProtocol implements RobotProtocol {
  readonly greeting = undefined;
  readonly #query: OpenpiQuery;
  #episode: number;
  #isOver = false;
  /** The message that is answered. */
  #message: XPolicyMap | undefined;
  /** The last observation of `update_obs` and the arrival of its message. */
  #seen: ({ readonly observations: readonly XPolicyValue[] } & Arrival) | undefined;
  /** The parts of the requested action. */
  #parts: readonly (readonly [name: string, dim: number])[] = [];

  constructor(asked: OpenpiQuery) {
    this.#query = asked;
    this.#episode = asked.episode;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  get kept(): number {
    return this.#seen?.bytes ?? 0;
  }

  aside(message: Buffer, isBinary: boolean, arrivedAt: number): readonly Buffer[] | undefined {
    this.#message = undefined;
    // XPolicyLab's server leaves texts unanswered.
    if (!isBinary) return [];
    try {
      const said = frameIn(message);
      this.#message = said;
      const payload = said.get("payload");
      return this.#about(said.get("message_type"), payload instanceof Map ? payload : new Map(), {
        bytes: message.length,
        arrivedAt,
      });
    } catch {
      // It is refused where its caller pays for it.
      return undefined;
    }
  }

  async read(message: Buffer, _isBinary: boolean, by: EncodeOptions): Promise<Heard> {
    const said = this.#message ?? frameIn(message);
    const payload = said.get("payload");
    if (!(payload instanceof Map)) throw unfit("payload", "must be a map");
    const { observation, observedAt } = this.#observationIn(said.get("message_type"), payload);
    if (!(observation instanceof Map)) throw unfit("observation", "must be a map");
    return { kind: "act", observedAt, ...(await this.#requestOf(observation, by)) };
  }

  written({ id, model, action, route, usage, observationAgeMs }: ActResponse, tookMs: number): Buffer {
    const space = action?.space ?? "";
    const rows = (action?.steps ?? []).map(({ values }) => values);
    const sum = this.#parts.reduce((total, [, dim]) => total + dim, 0);
    if (rows.some((row) => row.length !== sum)) throw this.#misfit(`${rows[0]?.length ?? 0} numbers`);
    this.#assertJoints(space);
    const actions = rows.map((row) => {
      const left = row.slice();
      return new Map(this.#parts.map(([name, dim]) => [name, NdArray.float32(left.splice(0, dim))] as const));
    });
    const gateway = {
      id,
      model,
      provider: route?.provider ?? "",
      cost_usd: usage?.costUsd ?? 0,
      observation_age_ms: observationAgeMs ?? 0,
    };
    const func = this.#func();
    if (func === undefined) return this.#reply("infer_result", { actions, latency_ms: tookMs, gateway });
    const result = func === "get_action_batch" ? [actions] : actions;
    return this.#reply("call_result", { ok: true, result, latency_ms: tookMs, gateway });
  }

  refused(text: string): Buffer {
    const type = this.#message?.get("message_type");
    const code = type === "infer" ? "infer_failed" : type === "call" ? "call_failed" : "invalid_frame";
    return this.#error(code, text);
  }

  /** The frames that answer what is no act; undefined for an act. */
  #about(type: XPolicyValue | undefined, payload: XPolicyMap, arrival: Arrival): readonly Buffer[] | undefined {
    switch (type) {
      case "hello":
        return [this.#reply("hello_ack", { ok: true, server: BRAND })];
      case "prepare_case":
      case "trial_end":
      case "heartbeat":
        return [this.#reply(`${type}_ack`, { ok: true })];
      case "reset":
        this.#begin();
        return [this.#reply("reset_result", { ok: true })];
      case "close":
        this.#isOver = true;
        return [];
      case "call":
        return this.#called(payload, arrival);
      default:
        return undefined;
    }
  }

  #called(payload: XPolicyMap, arrival: Arrival): readonly Buffer[] | undefined {
    const [func, seen] = [payload.get("func_name"), payload.get("obs")];
    switch (func) {
      case "reset":
        this.#begin();
        return [this.#reply("call_result", { ok: true, latency_ms: 0 })];
      case "update_obs":
      case "update_obs_batch": {
        const observations = func === "update_obs" ? [seen ?? null] : seen;
        if (!Array.isArray(observations) || !observations.every((each) => each instanceof Map))
          return [
            this.#error(
              "invalid_frame",
              `${func} needs \`obs\`, ${func === "update_obs" ? "a map" : "a list of maps"}`,
            ),
          ];
        this.#seen = { observations, ...arrival };
        return [this.#reply("call_result", { ok: true, latency_ms: 0 })];
      }
      default:
        return undefined;
    }
  }

  /** Nothing of the episode before is shown to a model. */
  #begin(): void {
    this.#episode += 1;
    this.#seen = undefined;
  }

  #func(): string | undefined {
    const payload = this.#message?.get("payload");
    const func =
      this.#message?.get("message_type") === "call" && payload instanceof Map ? payload.get("func_name") : undefined;
    return typeof func === "string" ? func : undefined;
  }

  /** The observation of an act, and its arrival if it came with an earlier message. */
  #observationIn(
    type: XPolicyValue | undefined,
    payload: XPolicyMap,
  ): { observation: XPolicyValue; observedAt?: number } {
    if (type === "infer") return { observation: payload.get("observation") ?? null };
    if (type !== "call")
      throw unfit(
        "message_type",
        "must be one of hello, prepare_case, reset, infer, call, trial_end, heartbeat, close",
      );
    const func = payload.get("func_name");
    if (func === "infer") return { observation: payload.get("obs") ?? null };
    if (func !== "get_action" && func !== "get_action_batch")
      throw unfit(
        "func_name",
        "must be one of reset, update_obs, get_action, update_obs_batch, get_action_batch, infer",
      );
    const given = func === "get_action" ? payload.get("obs") : undefined;
    const observations = given == null ? (this.#seen?.observations ?? []) : [given];
    const [observation] = observations;
    if (observation === undefined) throw unfit("obs", `is missing for ${func}; call update_obs first`);
    if (observations.length > 1)
      throw unfit("obs", `must be of one robot, got ${observations.length}; open a connection for each environment`);
    return { observation, ...(given == null && this.#seen && { observedAt: this.#seen.arrivedAt }) };
  }

  async #requestOf(observation: XPolicyMap, by: EncodeOptions) {
    const { model, preset, actionSpace, horizon, sessionId, robotId, xpolicylab = {} } = this.#query;
    const state = observation.get("state") ?? new Map();
    if (!(state instanceof Map)) throw unfit("state", "must be a map of numbers by name");
    const read = readState(state, xpolicylab.stateKeys);
    this.#parts = partsOf(state, xpolicylab.actionKeys);
    const instruction =
      textIn(observation.get("instruction") ?? null) ?? (observation.get("instruction") == null ? "" : undefined);
    if (instruction === undefined) throw unfit("instruction", "must be one text, or a list of one");
    const environment = observation.get("env_idx");
    const request = create(ActRequestSchema, {
      model,
      observations: [
        {
          frames: await framesIn(observation.get("vision") ?? new Map(), by),
          proprio: read.flatMap(([, values]) => values),
        },
      ],
      // Environments of one connection are robots of their own.
      provider: {
        sessionId: typeof environment === "number" && environment > 0 ? `${sessionId} ${environment}` : sessionId,
      },
      episode: this.#episode,
      // The client carries out all steps of a chunk.
      ...(horizon === undefined ? { wholeChunk: true } : { horizon }),
      ...(instruction !== "" && { instruction }),
      ...(preset !== undefined && { preset }),
      ...(actionSpace !== undefined && { actionSpace }),
      ...(robotId !== undefined && { robotId }),
    });
    // Checked before the call: a refusal must cost nothing. What only a preset knows is checked in the answer.
    const space = spaceOwed(request);
    if (space !== undefined) this.#assertJoints(space);
    const owed = numbersOwed(request);
    if (owed !== undefined && owed !== this.#parts.reduce((total, [, dim]) => total + dim, 0))
      throw this.#misfit(`the ${owed} numbers of ${space}`);
    const cameras = request.observations[0]!.frames.map(({ camera }): [string, string] => [
      camera,
      `vision.${camera}.color`,
    ]);
    const keys = {
      cameras: new Map(cameras),
      frames: "vision",
      proprio: read.map(([name]) => `state.${name}`).join(" and ") || "state",
      instruction: "instruction",
    };
    return { request, keys };
  }

  /** Refuses actions that are no joints under the names of joints, unless the address names the parts. */
  #assertJoints(space: string): void {
    if (this.#query.xpolicylab?.actionKeys !== undefined || space.startsWith("joint_pos_")) return;
    throw refuse(
      Reason.VALIDATION_FAILED,
      `action_keys: actions of ${space} are not known to be joints; name action_space=joint_pos_… or the parts, action_keys=ee_pose:7,ee_joint_state:1, in the address`,
      {},
      { param: "action_keys" },
    );
  }

  #misfit(numbers: string) {
    const parts = this.#parts.map(([name, dim]) => `${name} ${dim}`).join(", ");
    const text = `action_keys: ${numbers} do not fill ${parts}; name the parts in the address, action_keys=name:numbers,…`;
    return refuse(Reason.VALIDATION_FAILED, text, {}, { param: "action_keys" });
  }

  #error(code: string, message: string): Buffer {
    return this.#reply("error", { code, message, details: {} });
  }

  #reply(type: string, payload: Packable<NdArray>): Buffer {
    const ids = IDS.map((key): [string, Packable<NdArray>] => [key, idOf(this.#message?.get(key))]);
    const frame = new Map<string, Packable<NdArray>>([
      ["message_type", type],
      ...ids,
      ["sent_at", new Date(now()).toISOString()],
      ["payload", payload],
    ]);
    return encodeGr00t(frame, "numpy");
  }
}

const MOST_ID = 256;

/** An id as it came, where it is one. */
const idOf = (value: XPolicyValue | undefined): string | number | null =>
  typeof value === "number" ? value : typeof value === "string" ? value.slice(0, MOST_ID) : null;

const NO_MESSAGE = "a message is a map of msgpack with arrays of msgpack_numpy";

function frameIn(message: Buffer): XPolicyMap {
  try {
    const said = decodeGr00t(message, LIMITS);
    if (said instanceof Map) return said;
  } catch (thrown) {
    if (thrown instanceof CodecError) throw unreadable(thrown, NO_MESSAGE);
    throw thrown;
  }
  throw refuse(Reason.MALFORMED_BODY, NO_MESSAGE);
}

/** The state that a model reads: the parts that the address names, else joints in XPolicyLab's order. */
function readState(state: XPolicyMap, named: readonly NamedPart[] | undefined): [name: string, values: number[]][] {
  const joints = JOINTS.filter((name) => state.get(name) != null);
  const other = [...state.keys()].find(
    (name) => !JOINTS.includes(name) && name !== "mobile" && state.get(name) != null,
  );
  if (named === undefined && joints.length === 0 && other !== undefined)
    throw unfit(
      `state.${other.slice(0, 64)}`,
      "has no defined position; list the keys that the model reads as state_keys=… in the address",
    );
  const read = (named?.map(([name]) => name) ?? joints).map((name): [string, number[]] => [
    name,
    numbersOf(state, name),
  ]);
  const count = read.reduce((total, [, values]) => total + values.length, 0);
  if (count > MOST_NUMBERS) throw unfit("state", `must have at most ${MOST_NUMBERS} numbers, got ${count}`);
  return read;
}

function numbersOf(state: XPolicyMap, name: string): number[] {
  const numbers = numbersIn(state.get(name) ?? null);
  const isRow = numbers?.shape.slice(0, -1).every((size) => size === 1);
  if (!numbers || !isRow) throw unfit(`state.${name}`, "must be one row of numbers");
  return [...numbers.toFloat64()];
}

/** The parts of an action: those that the address names, else the joints that the client has. */
function partsOf(state: XPolicyMap, named: readonly NamedPart[] | undefined): [name: string, dim: number][] {
  const parts = named ?? JOINTS.filter((name) => state.get(name) != null).map((name): NamedPart => [name, undefined]);
  if (parts.length === 0)
    throw unfit("state", "has no joints; list the parts of an action as action_keys=name:numbers,… in the address");
  return parts.map(([name, dim]) => [name, dim ?? numbersOf(state, name).length]);
}

/** The color of each camera. Depth goes to no model. */
async function framesIn(vision: XPolicyValue, by: EncodeOptions): Promise<{ camera: string; data: Uint8Array }[]> {
  if (!(vision instanceof Map)) throw unfit("vision", "must be a map of cameras by name");
  if (vision.size > MOST_PICTURES)
    throw unfit("vision", `must have at most ${MOST_PICTURES} cameras, got ${vision.size}`);
  const colors = [...vision].flatMap(([camera, view]) => {
    const color = view instanceof Map ? view.get("color") : view;
    return color == null ? [] : [{ camera, color }];
  });
  return Promise.all(
    colors.map(async ({ camera, color }) => ({
      camera,
      data: await pictureIn(color, `vision.${camera.slice(0, 64)}.color`, by),
    })),
  );
}

/** Pixels, or a JPEG that says in which order its colors are. */
async function pictureIn(color: XPolicyValue, key: string, by: EncodeOptions): Promise<Uint8Array> {
  if (color instanceof NdArray && isPicture(color)) return headOf(color, key, by);
  const file = Buffer.isBuffer(color) ? color : bytesIn(color);
  if (file === undefined) throw unfit(key, "must be an image of shape [height, width, 3], or the bytes of a JPEG");
  if (!file.subarray(0, HEAD_BYTES).includes(RGB_MARK))
    throw unfit(
      key,
      "must have XPolicyLab's mark XPL-RGB1, because files without it have red and blue swapped; send pixels instead",
    );
  return file;
}

/** The bytes of a file that was packed as an array. */
const bytesIn = (color: XPolicyValue): Buffer | undefined =>
  color instanceof NdArray && color.dtype === "|u1" && color.shape.length === 1
    ? Buffer.from(color.data.buffer, color.data.byteOffset, color.data.byteLength)
    : undefined;
