/**
 * LeRobot's remote inference, protocol version 1: a WebSocket on which each message is one envelope. The server describes its inputs and
 * actions. It has one session at a time, which a connection opens on demand and which ends with the connection.
 */
import { NumberType, PixelForm, PixelLayout, WireSession } from "../../gen/limber/v1/supply_pb.ts";
import { now } from "../clock.ts";
import {
  decodeRemote,
  encodeRemote,
  type RemoteErrorCode,
  type RemoteHeader,
  type RemoteMap,
  type RemoteMessage,
  RemotePicture,
  type RemoteType,
  type RemoteValue,
} from "../codecs/python/lerobot-remote.ts";
import { NdArray } from "../codecs/python/ndarray.ts";
import { type ActAnswer, AttemptFailure, episodeOf, UpstreamFailure } from "../contracts/contract.ts";
import { newId } from "../ids.ts";
import { OpenpiPool, requestHealth } from "./openpi-ws/exchange.ts";
import { chunkOf, tableOf } from "./payload/actions.ts";
import { arrayOf, type ObservationPart, partsOf, rejected } from "./payload/observe.ts";
import {
  type FrameSlot,
  type Profile,
  Profiles,
  type ProprioSlot,
  picture,
  plainProfile,
  readsOf,
  values,
  wantsOf,
} from "./payload/profile.ts";
import { failureOf, malformed, ownerText } from "./transport/failures.ts";
import { type Address, type ServerReach, Servers } from "./transport/servers.ts";
import type { Wire } from "./wire.ts";

const SCHEMES: Readonly<Record<string, string>> = { "ws:": "ws:", "wss:": "wss:" };

const PROFILES = new Profiles(plainProfile({ instructionKey: "task" }));

/** Calls without a session share the server in turn, each as an episode. No caller's session has an empty name. */
const NO_SESSION = "";

const IMAGES = "observation.images.";

/** Returns a profile with the server's own names, sizes and types; undeclared parts are in the server's order. */
function fitted(profile: Profile, { features }: RemoteServer): Profile {
  const isCalled = (key: string) => (feature: RemoteFeature) => feature.name === key || feature.name === IMAGES + key;
  const pictures = features.filter(({ isPicture }) => isPicture);
  const tensors = features.filter(({ isPicture }) => !isPicture);
  const frames = pictures.map((feature): FrameSlot => {
    const { name, shape } = feature;
    const [height = 1, width = 1] = shape;
    const own = name.startsWith(IMAGES) ? name.slice(IMAGES.length) : name;
    const told = profile.frames.find(({ key }) => isCalled(key)(feature)) ?? picture(own, name);
    return { ...told, key: name, height, width, layout: PixelLayout.HWC, form: PixelForm.U1 };
  });
  let start = 0;
  const proprio = tensors.map((feature): ProprioSlot => {
    const { name, shape, dtype } = feature;
    const end = start + shape.reduce((product, length) => product * length, 1);
    const told = profile.proprio.find(({ key }) => isCalled(key)(feature)) ?? values(start, end, name);
    start = end;
    return { ...told, key: name, dtype: dtype === "float64" ? NumberType.F8 : NumberType.F4 };
  });
  return { ...profile, frames, proprio };
}

/** Opens the wire; connections are made on first use. */
export function lerobotRemote(reach: ServerReach): Wire {
  const pools = new Servers(reach, SCHEMES, openPool);
  return {
    id: "lerobot-remote",
    schemes: Object.keys(SCHEMES),
    profiles: PROFILES.names,
    async wants(target, { signal }) {
      return wantsOf(fitted(PROFILES.of(target.profile), await pools.of(target).metadata(signal)));
    },
    reads: (profile) => readsOf(PROFILES.of(profile), profile),
    probes: [
      {
        name: "descriptor",
        required: true,
        async look(target, { signal }) {
          const { deployment, artifact, features, action, interval, steps } = await pools.of(target).metadata(signal);
          const odd = features.find(({ isPicture, dtype }) => !isPicture && !/^float(32|64)$/.test(dtype));
          if (odd) throw new Error(`the server requires ${odd.name} as ${odd.dtype}; this wire supports only floats`);
          const [dim] = action.shape;
          if (target.actionDim !== undefined && target.actionDim !== dim)
            throw new Error(
              `the server declares actions of ${dim} numbers, but the offering declares ${target.actionDim}`,
            );
          const names = features.map(({ name }) => name.slice(0, 64)).join(", ");
          const of = `${deployment.slice(0, 64)} serves ${artifact.slice(0, 80)}`;
          return `${of}: ${names}; ${steps} steps of ${dim} numbers, ${Math.round(1_000 * interval)} ms apart`;
        },
      },
    ],
    async act(target, given, frames, { signal }) {
      const profile = PROFILES.of(target.profile);
      const sessionId = profile.session === WireSession.NONE ? undefined : given.sessionId;
      const request = newId("req");
      let asked: RemoteServer | undefined;
      const answer = await pools.of(target).exchange(sessionId ?? NO_SESSION, {
        admit: (server, ask, isFirst) => admit(server, ask, isFirst || sessionId === undefined),
        async encode(server) {
          const parts = await partsOf(fitted(profile, server), given, frames);
          server.sequence += 1;
          asked = server;
          return encodeObservation(server, parts, given.instruction, request);
        },
        opening: undefined,
        episode: episodeOf(given),
        signal,
      });
      const server = asked!; // a request is encoded before it is answered
      try {
        const { instance, session, generation } = server;
        return readAction(
          readReply(answer, "action", { instance, session, generation, request }),
          server,
          given.horizon,
        );
      } catch (error) {
        server.isFaulted = true;
        throw error;
      }
    },
    async health(target, { signal }) {
      await requestHealth(pools.addressOf(target), signal);
    },
    async close() {
      pools.close();
    },
  };
}

/** All connections to one server with one credential. */
const openPool = (address: Address): OpenpiPool<RemoteServer> =>
  new OpenpiPool(address, { hello: encodeDescribe(), read: readDescriptor, tellsEpisodes: true });

/** Sends a message to the server, and resolves with its next frame. */
type Ask = (frame: Buffer) => Promise<Buffer>;

/** Opens the server's session if the connection has none; `isNew` starts an episode in an open one. Rejects with an UpstreamFailure. */
async function admit(server: RemoteServer, ask: Ask, isNew: boolean): Promise<void> {
  if (server.isFaulted && server.session !== "") {
    // The answer does not matter: a failed session has ended or is about to end.
    await ask(encodeControl(server, "close", newId("req")));
    server.session = "";
  }
  if (server.session !== "") {
    if (isNew) await begin(server, ask, server.generation + 1);
    return;
  }
  const request = newId("req");
  const { instance } = server;
  const asked = { instance, session: "", generation: 0, request };
  server.session = readReply(await ask(encodeOpen(server, request)), "accepted", asked).session;
  server.isFaulted = false;
  await begin(server, ask, 0);
}

/** Starts a new episode: the policy resets, and earlier requests become stale. */
async function begin(server: RemoteServer, ask: Ask, generation: number): Promise<void> {
  server.generation = generation;
  const request = newId("req");
  const { instance, session } = server;
  readReply(await ask(encodeControl(server, "reset", request)), "ack", { instance, session, generation, request });
}

/** The first message of a connection. */
const encodeDescribe = (): Buffer =>
  encodeRemote({ type: "describe", instance: "", session: "", generation: 0, request: newId("req") });

/** Requests the server's single session with the server's own contract, by which the offering was declared. */
const encodeOpen = (server: RemoteServer, request: string): Buffer =>
  encodeRemote(
    { type: "open", instance: server.instance, session: "", generation: 0, request },
    {
      expected_artifact: server.artifact,
      features: server.said.features,
      action_feature: server.said.action,
      semantics: server.semantics,
      action_interval: server.interval,
      mode: "chunk",
      encoding: "raw",
    },
  );

/** `reset` starts an episode, `close` ends the session. */
const encodeControl = (
  { instance, session, generation }: RemoteServer,
  operation: "reset" | "close",
  request: string,
): Buffer => encodeRemote({ type: "control", instance, session, generation, request }, { operation });

/** Writes one observation under the server's own names. Throws an UpstreamFailure if a part does not have the server's shape. */
function encodeObservation(
  server: RemoteServer,
  parts: readonly ObservationPart[],
  task: string,
  request: string,
): Buffer {
  const { instance, session, generation, sequence, artifact, features } = server;
  const byName = new Map(parts.map((part) => [part.key, part]));
  const shown = features.map(({ name, shape }): [string, RemoteValue] => {
    const part = byName.get(name);
    if (part === undefined) throw rejected(`the server requires ${name}, which the profile does not map`);
    const { dtype, data } = arrayOf(part);
    const [height = 0, width = 0] = shape;
    if (part.kind === "frame") return [name, new RemotePicture(height, width, "raw", data)];
    return [name, new NdArray(dtype, shape, data)];
  });
  return encodeRemote(
    { type: "observation", instance, session, generation, request },
    {
      sequence,
      artifact_identity: artifact,
      observation_id: request,
      capture_time: now() / 1_000,
      task,
      task_version: 0,
      features: new Map(shown),
      delay: 0,
      model_continuation: null,
      canonical_continuation: null,
      cursor: 0,
    },
  );
}

/** One input or action of a server. */
interface RemoteFeature {
  readonly name: string;
  readonly shape: readonly number[];
  readonly dtype: string;
  readonly isPicture: boolean;
}

/** A server's description, and one connection's state in its session. */
interface RemoteServer {
  readonly instance: string;
  readonly deployment: string;
  /** The served checkpoint and configuration. */
  readonly artifact: string;
  readonly semantics: string;
  readonly features: readonly RemoteFeature[];
  readonly action: RemoteFeature;
  /** Seconds between two actions, as stated. */
  readonly interval: number;
  /** Rows of an action chunk. */
  readonly steps: number;
  /** Both unchanged, because opening a session repeats them. */
  readonly said: { readonly features: RemoteValue; readonly action: RemoteValue };
  /** Empty while no session is open. */
  session: string;
  generation: number;
  /** The number of the newest observation. */
  sequence: number;
  /** Whether the session failed, so that it must be closed and another one opened. */
  isFaulted: boolean;
}

/** Reads the answer to `describe`. Throws an UpstreamFailure for another message, and for a server that is not ready or serves no chunks. */
function readDescriptor(frame: Buffer): RemoteServer {
  const { instance, body } = messageIn(frame, "descriptor");
  const capabilities = mapIn(body, "capabilities");
  const modes = capabilities.get("modes");
  const features = capabilities.get("features");
  const interval = capabilities.get("action_interval");
  const steps = capabilities.get("execution_steps");
  if (body.get("ready") !== true)
    throw new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, "the server reports that it is not ready");
  if (!Array.isArray(modes) || !modes.includes("chunk"))
    throw malformed("the server does not support chunks, the requested mode");
  if (!Array.isArray(features) || typeof interval !== "number" || !(interval > 0) || typeof steps !== "number")
    throw malformed("the descriptor names no features, no interval or no steps");
  return {
    instance,
    deployment: textIn(body, "deployment"),
    artifact: textIn(body, "artifact_identity"),
    semantics: textIn(body, "semantics"),
    features: features.map(featureOf),
    action: featureOf(capabilities.get("action_feature") ?? null),
    interval,
    steps,
    said: { features, action: capabilities.get("action_feature") ?? null },
    session: "",
    generation: 0,
    sequence: 0,
    isFaulted: false,
  };
}

/** Reads a reply of the type that answers `asked`. Throws an UpstreamFailure for the server's own error, and for a reply to something else. */
function readReply(
  frame: Buffer,
  type: "accepted" | "ack" | "action",
  asked: Omit<RemoteHeader, "type">,
): RemoteMessage {
  const message = messageIn(frame, type);
  const { instance, session, generation, request } = asked;
  if (
    message.instance !== instance ||
    message.request !== request ||
    message.generation !== generation ||
    (type !== "accepted" && message.session !== session)
  )
    throw malformed("the response is for another request");
  return message;
}

/**
 * Returns the first `horizon` rows of an action. An observation has the name of its request; servers of LeRobot's first drafts also repeat its
 * number. Throws an UpstreamFailure for actions of another observation, and for anything but a tensor of rows.
 */
function readAction({ request, body }: RemoteMessage, server: RemoteServer, horizon: number): ActAnswer {
  const isNamed = body.get("observation_id") === request && body.get("artifact_identity") === server.artifact;
  if (!isNamed || (body.get("sequence") ?? server.sequence) !== server.sequence)
    throw malformed("the actions are for another observation");
  const actions = body.get("canonical_actions");
  if (!(actions instanceof NdArray) || actions.shape.length !== 2)
    throw malformed("the response contains no action tensor");
  if (body.get("execution_steps") !== actions.shape[0])
    throw malformed("the number of rows differs from the number of steps to execute");
  return chunkOf(tableOf(actions), horizon, { dtMs: Math.round(1_000 * server.interval) });
}

function messageIn(frame: Buffer, type: RemoteType): RemoteMessage {
  const message = decoded(frame);
  if (message.type === "error") throw toldError(message.body);
  if (message.type !== type) throw malformed(`the message is not of type ${type}`);
  return message;
}

function decoded(frame: Buffer): RemoteMessage {
  try {
    return decodeRemote(frame);
  } catch (error) {
    throw failureOf(error);
  }
}

const BY_CODE: Readonly<Partial<Record<RemoteErrorCode, AttemptFailure>>> = {
  busy: AttemptFailure.UPSTREAM_BUSY,
  timeout: AttemptFailure.TIMEOUT,
};

function toldError(body: RemoteMap): UpstreamFailure {
  const code = String(body.get("code"));
  const failure = Object.hasOwn(BY_CODE, code) ? BY_CODE[code as RemoteErrorCode] : undefined;
  return new UpstreamFailure(
    failure ?? AttemptFailure.UPSTREAM_ERROR,
    ownerText(String(body.get("message") ?? "")) || code.slice(0, 64),
  );
}

function featureOf(value: RemoteValue): RemoteFeature {
  if (!(value instanceof Map)) throw malformed("a feature is not a map");
  const shape = value.get("shape");
  if (!Array.isArray(shape) || !shape.every(isSize) || shape.length > 4) throw malformed("a feature has no shape");
  return {
    name: textIn(value, "name"),
    shape,
    dtype: textIn(value, "dtype"),
    isPicture: value.get("kind") === "rgb",
  };
}

const MAX_SIDE = 16_384;
const isSize = (value: unknown): value is number =>
  Number.isInteger(value) && Number(value) > 0 && Number(value) <= MAX_SIDE;

const MAX_TEXT = 4_096;

function textIn(map: RemoteMap, key: string): string {
  const value = map.get(key);
  if (typeof value !== "string" || value.length > MAX_TEXT) throw malformed(`the server does not declare ${key}`);
  return value;
}

function mapIn(map: RemoteMap, key: string): RemoteMap {
  const value = map.get(key);
  if (value instanceof Map) return value;
  throw malformed(`the server does not declare ${key}`);
}
