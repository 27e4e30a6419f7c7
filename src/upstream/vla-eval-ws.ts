/**
 * vla-evaluation-harness's model servers: WebSocket and MessagePack, messages with a type, episodes. Connections are openpi's, but the client
 * sends a hello first, and an episode starts with a message that has no answer. A server keeps the remainder of a chunk for later observations,
 * by connection and episode. Source: allenai/vla-evaluation-harness, src/vla_eval/model_servers/serve.py at 03a7066, predict.py and connection.py
 * at 13de095.
 */
import { WireSession } from "../../gen/limber/v1/supply_pb.ts";
import { BRAND } from "../brand.ts";
import { now } from "../clock.ts";
import type { MsgpackBudget, Packable, Unpacked, UnpackedMap } from "../codecs/python/msgpack.ts";
import { decodeNumpy, encodeNumpyText, NdArray } from "../codecs/python/ndarray.ts";
import { type ActAnswer, episodeOf } from "../contracts/contract.ts";
import { OpenpiPool, requestHealth } from "./openpi-ws/exchange.ts";
import { type OpenpiFields, place } from "./openpi-ws/messages.ts";
import { chunkOf, sideBySide, tableIn } from "./payload/actions.ts";
import { type ObservationPart, partsOf, rejected } from "./payload/observe.ts";
import { instructionIn, type Profile, Profiles, picture, plainProfile, readsOf, values } from "./payload/profile.ts";
import { failureOf, malformed, toldFailure } from "./transport/failures.ts";
import { type Address, type ServerReach, Servers } from "./transport/servers.ts";
import type { Wire } from "./wire.ts";

const SCHEMES: Readonly<Record<string, string>> = { "ws:": "ws:", "wss:": "wss:" };

/** The size of LIBERO's images in the harness; servers resize themselves. */
const SIZE = { width: 256, height: 256 } as const;

/** Without a profile: an image if there is one, the complete proprioception, the instruction. */
const PLAIN = plainProfile({
  frames: [picture("", "images.agentview", { ...SIZE, optional: true })],
  proprio: [values(0, undefined, "states")],
  instructionKey: "task_description",
});

/** As in the harness: images are rotated by 180°, as in openpi's client for LIBERO. */
const LIBERO: Profile = {
  ...PLAIN,
  frames: [
    picture("agentview", "images.agentview", { ...SIZE, rotate180: true }),
    picture("wrist", "images.wrist", { ...SIZE, rotate180: true, optional: true }),
  ],
  proprio: [values(0, 8, "states")],
  proprioDim: 8,
};

const PROFILES = new Profiles(PLAIN, { "vla-eval/libero": LIBERO });

/** Opens the wire; connections are made on first use. */
export function vlaEvalWs(reach: ServerReach): Wire {
  const pools = new Servers(reach, SCHEMES, openPool);
  let numbered = 0;
  return {
    id: "vla-eval-ws",
    schemes: Object.keys(SCHEMES),
    profiles: PROFILES.names,
    wants: async ({ profile }) => PROFILES.wants(profile),
    reads: (profile) => readsOf(PROFILES.of(profile), profile),
    probes: [
      {
        name: "action_spec",
        required: false,
        async look(target, { signal }) {
          const { action } = await pools.of(target).metadata(signal);
          if (action.length === 0 || action.some(({ dims }) => dims === 0))
            return "the server does not declare the action dimension";
          const sum = action.reduce((total, { dims }) => total + dims, 0);
          const parts = action.map(({ name, dims }) => `${name} ${dims}`).join(", ");
          if (target.actionDim === undefined || target.actionDim === sum) return `an action has ${parts}`;
          throw new Error(`it says that an action has ${sum} numbers (${parts}), and ${target.actionDim} are declared`);
        },
      },
    ],
    async act(target, given, frames, { signal }) {
      const profile = PROFILES.of(target.profile);
      const sessionId = profile.session === WireSession.NONE ? undefined : given.sessionId;
      const { instruction, horizon } = given;
      const parts = await partsOf(profile, given, frames);
      const [start, seq] = [++numbered, ++numbered];
      const answer = await pools.of(target).exchange(sessionId, {
        async encode(_, room, isFirst) {
          const observation = encodeObservation(profile, parts, instruction, { seq, room });
          // A call without a session is an episode, so that no remaining steps of another robot's chunk answer it.
          return isFirst || sessionId === undefined ? [encodeEpisode(instruction, start), observation] : observation;
        },
        opening: undefined,
        episode: episodeOf(given),
        signal,
      });
      return readAction(answer, profile, horizon, seq, target.actionDim);
    },
    async health(target, { signal }) {
      await requestHealth(pools.addressOf(target), signal, "/health");
    },
    async close() {
      pools.close();
    },
  };
}

/** All connections to one server with one credential. */
const openPool = (address: Address): OpenpiPool<VlaEvalHello> =>
  new OpenpiPool(address, { hello: encodeHello(), read: readHello, tellsEpisodes: true });

/** The message types of a client. */
type VlaEvalType = "hello" | "episode_start" | "observation";

/** The protocol version since which servers answer a hello. */
const PROTOCOL_VERSION = 1;

/** The first message of a connection. */
const encodeHello = (): Buffer => message("hello", { harness_version: BRAND, protocol_version: PROTOCOL_VERSION }, 0);

/** Starts an episode, which drops the server's state of the previous one. It has no answer. */
export const encodeEpisode = (instruction: string, seq: number): Buffer =>
  message("episode_start", { task: instruction === "" ? {} : { name: instruction } }, seq);

/** Writes one observation. Throws an UpstreamFailure for an image file that the server cannot read. */
export function encodeObservation(
  profile: Profile,
  parts: readonly ObservationPart[],
  instruction: string,
  { seq, room }: { seq: number; room: MsgpackBudget },
): Buffer {
  const payload: OpenpiFields = new Map();
  for (const part of parts) place(payload, part.key, packed(part));
  for (const [key, text] of instructionIn(profile, instruction)) place(payload, key, text);
  for (const { key, value } of profile.constants) place(payload, key, value);
  return message("observation", payload, seq, room);
}

/** Pixels are an array. A file is in the harness's own file form, which supports PNG and JPEG. */
function packed({ key, value }: ObservationPart): Packable<NdArray> {
  if (value instanceof NdArray) return value;
  const { bytes, format, width, height } = value;
  if (format === "webp") throw rejected(`this wire carries no WebP, under ${key}`);
  return { __image__: true, format, data: bytes, shape: [height, width, 3] };
}

function message(type: VlaEvalType, payload: Packable<NdArray>, seq: number, room?: MsgpackBudget): Buffer {
  return encodeNumpyText({ type, payload, seq, timestamp: now() / 1_000 }, room);
}

type VlaEvalValue = Unpacked<NdArray>;

/** A server's description. */
interface VlaEvalHello {
  /** The parts of an action and their sizes; empty if not stated. */
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

/**
 * Returns the first `horizon` rows of the action that answers message `seq`. Throws an UpstreamFailure for the server's own error, and for
 * another message's answer.
 */
export function readAction(
  frame: Buffer,
  { actionKeys, actionDims }: Pick<Profile, "actionKeys" | "actionDims">,
  horizon: number,
  seq: number,
  dim?: number,
): ActAnswer {
  const { payload, seq: answered } = payloadOf(frame, "action");
  if (answered !== seq) throw malformed("the response is for another request");
  const usual = payload.get("actions") ?? payload.get("action");
  const tables =
    actionKeys.length > 0
      ? actionKeys.map((key) => tableIn(usual instanceof Map ? usual.get(key) : payload.get(key), NO_ACTION))
      : [tableIn(usual, NO_ACTION)];
  return chunkOf(sideBySide(tables, { dims: actionDims, dim }), horizon);
}

const NO_ACTION = "the response contains no action array";

/** Returns the payload of a message of this type. Throws an UpstreamFailure for another type, and for the server's own error. */
function payloadOf(frame: Buffer, type: "hello" | "action"): { payload: UnpackedMap<NdArray>; seq: VlaEvalValue } {
  const message = decode(frame);
  if (!(message instanceof Map)) throw malformed("the message must be a map");
  const payload = message.get("payload");
  if (!(payload instanceof Map)) throw malformed("the message must have a payload");
  if (message.get("type") === "error") throw toldFailure(String(payload.get("error") ?? ""));
  if (message.get("type") !== type) throw malformed(`the message is not of type ${type}`);
  return { payload, seq: message.get("seq") ?? null };
}

function decode(frame: Buffer): VlaEvalValue {
  try {
    return decodeNumpy(frame);
  } catch (error) {
    throw failureOf(error);
  }
}
