/**
 * XPolicyLab's policy servers: WebSocket and MessagePack. Connections are openpi's, but the client sends a hello first. A server has one policy
 * with one state for all of its clients, so one robot at a time holds it, and an episode starts with a reset. Source: XPolicyLab/XPolicyLab,
 * client_server/ws/model_server.py and protocol/ at 7198143.
 */
import { NumberType, WireSession } from "../../gen/limber/v1/supply_pb.ts";
import { BRAND } from "../brand.ts";
import { now } from "../clock.ts";
import { decodeGr00t, encodeGr00t } from "../codecs/python/gr00t.ts";
import type { MsgpackBudget, Packable, Unpacked, UnpackedMap } from "../codecs/python/msgpack.ts";
import { NdArray } from "../codecs/python/ndarray.ts";
import { type ActAnswer, AttemptFailure, episodeOf, UpstreamFailure } from "../contracts/contract.ts";
import { newId } from "../ids.ts";
import { OpenpiPool, requestHealth } from "./openpi-ws/exchange.ts";
import { type OpenpiFields, place } from "./openpi-ws/messages.ts";
import { chunkOf, sideBySide, type Table, tableOf } from "./payload/actions.ts";
import { arrayOf, type ObservationPart, partsOf } from "./payload/observe.ts";
import { instructionIn, type Profile, Profiles, picture, plainProfile, readsOf, values } from "./payload/profile.ts";
import { Exclusive, type ServerLeases } from "./transport/exclusive.ts";
import { failureOf, malformed, toldFailure } from "./transport/failures.ts";
import { type Address, type ServerReach, Servers, type UpstreamServer } from "./transport/servers.ts";
import type { CallOptions, Wire } from "./wire.ts";

const SCHEMES: Readonly<Record<string, string>> = { "ws:": "ws:", "wss:": "wss:" };

/** The size of the images from XPolicyLab's own environments; policies resize themselves. */
const SIZE = { width: 640, height: 480 } as const;

const color = (camera: string, optional = false) => picture(camera, `vision.${camera}.color`, { ...SIZE, optional });
const joints = (start: number, end: number | undefined, name: string) =>
  values(start, end, `state.${name}`, NumberType.F4);

/** Without a profile: an image if there is one, the complete proprioception, the instruction. Actions are joints. */
const PLAIN = plainProfile({
  frames: [picture("", "vision.cam_head.color", { ...SIZE, optional: true })],
  proprio: [joints(0, undefined, "arm_joint_state")],
  instructionKey: "instruction",
});

/** Arms of six joints and a gripper each, such as piper and arx_x5, packed arm by arm. */
const ARM: Profile = {
  ...PLAIN,
  frames: [color("cam_head"), color("cam_wrist", true)],
  proprio: [joints(0, 6, "arm_joint_state"), joints(6, 7, "ee_joint_state")],
  proprioDim: 7,
  actionKeys: ["arm_joint_state", "ee_joint_state"],
  actionDims: [6, 1],
};
const TWO_ARMS: Profile = {
  ...PLAIN,
  frames: [color("cam_head"), color("cam_left_wrist"), color("cam_right_wrist")],
  proprio: [
    joints(0, 6, "left_arm_joint_state"),
    joints(6, 7, "left_ee_joint_state"),
    joints(7, 13, "right_arm_joint_state"),
    joints(13, 14, "right_ee_joint_state"),
  ],
  proprioDim: 14,
  actionKeys: ["left_arm_joint_state", "left_ee_joint_state", "right_arm_joint_state", "right_ee_joint_state"],
  actionDims: [6, 1, 6, 1],
};

const PROFILES = new Profiles(PLAIN, { "xpolicylab/arm": ARM, "xpolicylab/two-arms": TWO_ARMS });

/** Opens the wire; connections are made on first use. */
export function xpolicylabWs(reach: ServerReach, leases: ServerLeases): Wire {
  const servers = new Servers(reach, SCHEMES, (address) => new XPolicyServer(address, leases));
  return {
    id: "xpolicylab-ws",
    schemes: Object.keys(SCHEMES),
    profiles: PROFILES.names,
    wants: async ({ profile }) => PROFILES.wants(profile),
    reads: (profile) => readsOf(PROFILES.of(profile), profile),
    layout: ({ profile }) => PROFILES.layout(profile),
    probes: [
      {
        name: "hello",
        required: true,
        async look(target, call) {
          const { server, instance } = await servers.of(target).hello(call);
          return `it is ${server || "a server without a name"}${instance === undefined ? "" : `, started as ${instance}`}`;
        },
      },
    ],
    async act(target, given, frames, call) {
      const profile = PROFILES.of(target.profile);
      const input =
        profile.session === WireSession.NONE ? { ...given, sessionId: undefined, episode: undefined } : given;
      const parts = await partsOf(profile, input, frames);
      const { instruction, horizon } = input;
      return servers.of(target).infer(
        { session: input.sessionId ?? "", episode: episodeOf(input) ?? "" },
        {
          encode: (ids, room) => encodeInfer(profile, parts, instruction, ids, room),
          read: (frame, messageId) => readActions(frame, profile, horizon, messageId, target.actionDim),
        },
        call,
      );
    },
    async health(target, { signal }) {
      await requestHealth(servers.addressOf(target), signal);
    },
    async close() {
      servers.close();
    },
  };
}

/** All calls share one connection, because one of them at a time holds the server. */
const ONE = "";

/** One observation, and the reader of its answer. */
interface XPolicyCall<T> {
  readonly encode: (ids: XPolicyIds, room: MsgpackBudget) => Buffer;
  readonly read: (frame: Buffer, messageId: string) => T;
}

/** One server under its lease. */
class XPolicyServer implements UpstreamServer {
  readonly #pool: OpenpiPool<XPolicyHello>;
  readonly #lease: Exclusive;

  constructor(address: Address, leases: ServerLeases) {
    this.#pool = new OpenpiPool(address, { hello: encodeHello(), read: readHello, tellsEpisodes: true });
    this.#lease = new Exclusive(address, leases);
  }

  get idle(): boolean {
    return this.#pool.idle && this.#lease.free;
  }

  /** Resolves with the server's description. Rejects with an UpstreamFailure. */
  hello({ signal }: CallOptions): Promise<XPolicyHello> {
    return this.#pool.metadata(signal);
  }

  /**
   * Resolves with the answer to one observation, in an episode of a session, or in its own without one; after a failure the episode starts
   * again. Rejects with an UpstreamFailure: `UPSTREAM_BUSY` while another session holds the server.
   */
  infer<T>(
    { session, episode }: { session: string; episode: string },
    { encode, read }: XPolicyCall<T>,
    call: CallOptions,
  ): Promise<T> {
    return this.#lease.has(session, call, async ({ session: before, setup = "" }) => {
      const [count = "0", ...last] = setup.split(" ");
      const goesOn = session !== "" && before === session && setup !== "" && last.join(" ") === episode;
      const trialId = episode === "" ? call.requestId : episode;
      const ids = { messageId: newId("req"), trialId, step: goesOn ? Number(count) : 0 };
      const frame = await this.#pool.exchange(ONE, {
        async admit(_, ask) {
          if (goesOn) return;
          const messageId = newId("req");
          readReset(await ask(encodeReset({ ...ids, messageId })), messageId);
        },
        encode: async (_, room) => encode(ids, room),
        opening: undefined,
        signal: call.signal,
      });
      return { answer: read(frame, ids.messageId), setup: `${ids.step + 1} ${episode}` };
    });
  }

  close(): void {
    this.#pool.close();
  }
}

/** The ids of a request, which the server repeats in its answer. */
interface XPolicyIds {
  readonly messageId: string;
  /** The episode. */
  readonly trialId: string | undefined;
  /** Inferences since the episode began. */
  readonly step: number;
}

/** The first message of a connection. */
const encodeHello = (): Buffer => encodeFrame("hello", { messageId: newId("req"), trialId: undefined, step: 0 }, {});

/** Starts an episode: the policy drops its state. */
const encodeReset = (ids: XPolicyIds): Buffer => encodeFrame("reset", ids, { trial_id: ids.trialId ?? null });

/** One observation, which the server answers with a chunk. Throws an UpstreamFailure for an image that the profile declares as a file. */
function encodeInfer(
  profile: Profile,
  parts: readonly ObservationPart[],
  instruction: string,
  ids: XPolicyIds,
  room?: MsgpackBudget,
): Buffer {
  const observation: OpenpiFields = new Map();
  for (const part of parts) place(observation, part.key, arrayOf(part));
  for (const [key, text] of instructionIn(profile, instruction)) place(observation, key, text);
  for (const { key, value } of profile.constants) place(observation, key, value);
  return encodeFrame("infer", ids, { observation }, room);
}

function encodeFrame(
  type: "hello" | "reset" | "infer",
  { messageId, trialId, step }: XPolicyIds,
  payload: Packable<NdArray>,
  room?: MsgpackBudget,
): Buffer {
  const frame = {
    message_type: type,
    message_id: messageId,
    evaluation_id: BRAND,
    action_case_id: null,
    trial_id: trialId ?? null,
    repeat_index: null,
    step,
    sent_at: new Date(now()).toISOString(),
    payload,
  };
  return encodeGr00t(frame, "numpy", room);
}

type XPolicyValue = Unpacked<NdArray>;

/** A server's description. */
interface XPolicyHello {
  readonly server: string;
  /** Changes at each start; servers before `call` have none. */
  readonly instance: string | undefined;
}

/** Reads the answer to a hello. Throws an UpstreamFailure. */
function readHello(frame: Buffer): XPolicyHello {
  const { payload } = replyIn(frame, "hello_ack");
  const [server, instance] = [payload.get("server"), payload.get("server_instance_id")];
  return {
    server: typeof server === "string" ? server.slice(0, 64) : "",
    instance: typeof instance === "string" && instance !== "" ? instance.slice(0, 64) : undefined,
  };
}

/** Throws an UpstreamFailure if an episode did not start. */
function readReset(frame: Buffer, messageId: string): void {
  assertAnswers(replyIn(frame, "reset_result"), messageId);
}

/**
 * Returns the first `horizon` rows of the chunk that answers a message, with its parts in the profile's order. Throws an UpstreamFailure for the
 * server's own error, the answer to another message, and undeclared parts.
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
  if (!Array.isArray(steps)) throw malformed("the response contains no action list");
  if (steps.length === 0) throw new UpstreamFailure(AttemptFailure.EMPTY_ANSWER, "the list of actions is empty");
  if (steps.length > MOST_STEPS)
    throw malformed(`a chunk has ${steps.length} steps, and ${MOST_STEPS} at most are read`);
  const keys = actionKeys.length > 0 ? actionKeys : jointsIn(steps[0]!);
  const tables = keys.map((key) => column(steps, key));
  return chunkOf(sideBySide(tables, { dims: actionKeys.length > 0 ? actionDims : [], dim }), horizon);
}

const MOST_STEPS = 1_024;

/** Joints in XPolicyLab's packing order. */
const JOINTS = ["", "left_", "right_"].flatMap((arm) => [`${arm}arm_joint_state`, `${arm}ee_joint_state`]);

/** The parts without a declaration: only joints. */
function jointsIn(step: XPolicyValue): string[] {
  if (!(step instanceof Map)) throw malformed("each step of the action must be a map");
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
  if (messageId !== asked) throw malformed("the response is for another request");
}

/** Returns the payload of a reply of this type. Throws an UpstreamFailure for another type, and for the server's own error. */
function replyIn(frame: Buffer, type: "hello_ack" | "reset_result" | "infer_result"): Reply {
  const message = decoded(frame);
  if (!(message instanceof Map)) throw malformed("the message must be a map");
  const payload = message.get("payload");
  if (!(payload instanceof Map)) throw malformed("the message must have a payload");
  const said = message.get("message_type");
  if (said === "error") throw toldFailure(String(payload.get("message") ?? payload.get("code") ?? ""));
  if (said !== type) throw malformed(`the message is not of type ${type}`);
  return { messageId: message.get("message_id") ?? null, payload };
}

function decoded(frame: Buffer): XPolicyValue {
  try {
    return decodeGr00t(frame);
  } catch (error) {
    throw failureOf(error);
  }
}
