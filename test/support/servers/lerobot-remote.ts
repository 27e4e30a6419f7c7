/** A server of LeRobot's remote inference behind its carrier, doing as it's told. It has one session at a time, as LeRobot's own has. */
import type { WebSocket } from "ws";
import { type OpenpiServer, startOpenpiServer } from "../openpi-server.ts";
import { pack, unpack } from "../plain-msgpack.ts";
import { tree } from "./vla-eval.ts";

/** One message as it came. */
export interface RemoteSaid {
  readonly type: string;
  readonly instance: string;
  readonly session: string;
  readonly generation: number;
  readonly request: string;
  readonly body: Map<string, unknown>;
}

/** How a server differs from a plain one. */
export interface RemoteOptions {
  /** Fields of its descriptor, and of its capabilities. */
  readonly descriptor?: Readonly<Record<string, unknown>>;
  readonly capabilities?: Readonly<Record<string, unknown>>;
  /** Another body of an answer's envelope, or another envelope around it. */
  readonly action?: ((envelope: Record<string, unknown>) => Record<string, unknown>) | undefined;
  /** Refuses to open a session with this code. */
  readonly refuse?: string;
  /** Every connection may have a session, as with many such servers behind one address. */
  readonly isMany?: boolean;
}

/** A server with every message that came. */
export interface RemoteServer extends OpenpiServer {
  readonly said: RemoteSaid[];
}

/** A feature as a descriptor has it. */
export const feature = (name: string, shape: readonly number[], more: object = {}): object => ({
  name,
  shape,
  dtype: "float32",
  kind: "tensor",
  names: [],
  semantics: "test",
  ...more,
});

/** What an answer says again of its observation. */
const IDENTITY = ["artifact_identity", "observation_id", "capture_time", "task", "task_version"];

/** Starts a server on loopback. */
export async function startRemoteServer(options: RemoteOptions = {}): Promise<RemoteServer> {
  const said: RemoteSaid[] = [];
  let sessions = 0;
  /** The connection whose session is open. */
  let owner: WebSocket | undefined;
  const capabilities = {
    modes: ["chunk"],
    prediction_steps: 8,
    execution_steps: 2,
    action_interval: 0.05,
    features: [feature("observation.state", [3])],
    action_feature: feature("action", [2]),
    ...options.capabilities,
  };
  const descriptor = {
    deployment: "arm",
    instance_id: "boot-1",
    artifact_identity: "sha256:1",
    semantics: "radians",
    capabilities,
    ready: true,
    available: true,
    ...options.descriptor,
  };
  const server = await startOpenpiServer({
    metadata: undefined,
    aside(bytes, client) {
      const message = saidIn(bytes);
      said.push(message);
      switch (message.type) {
        case "describe":
          return reply(message, "descriptor", descriptor, { instance_id: "boot-1" });
        case "open": {
          const refused =
            options.refuse ?? (options.isMany || owner === undefined || owner === client ? undefined : "busy");
          if (refused !== undefined)
            return reply(message, "error", { code: refused, message: "Deployment owned by another session" });
          owner = client;
          client.once("close", () => {
            if (owner === client) owner = undefined;
          });
          sessions += 1;
          return reply(message, "accepted", { ...descriptor, mode: "chunk" }, { session_id: `session-${sessions}` });
        }
        case "control":
          if (message.body.get("operation") === "close") owner = undefined;
          return reply(message, "ack", {
            operation: message.body.get("operation"),
            applied_generation: message.generation,
          });
        default:
          return undefined;
      }
    },
    read(bytes, headers) {
      const { body } = saidIn(bytes);
      const state = (body.get("features") as Map<string, Map<string, unknown>>).get("observation.state");
      const data = state?.get("data") as Buffer;
      return {
        instruction: String(body.get("task")),
        proprio: [...new Float32Array(new Uint8Array(data).buffer)],
        headers,
      };
    },
    answer(steps, bytes) {
      const message = saidIn(bytes);
      const body = {
        ...Object.fromEntries(IDENTITY.map((key) => [key, message.body.get(key)])),
        canonical_actions: tensor(steps),
        model_actions: null,
        execution_steps: steps.length,
      };
      const envelope = { ...envelopeOf(message, "action"), body };
      return pack(tree(options.action?.(envelope) ?? envelope));
    },
    error: (text, bytes) => reply(saidIn(bytes), "error", { code: "execution", message: text }),
  });
  return { ...server, said };
}

/** Rows as LeRobot packs a tensor. */
export const tensor = (
  steps: readonly (readonly number[])[],
  shape = [steps.length, steps[0]?.length ?? 0],
): object => ({
  __lerobot_type__: "tensor",
  dtype: "float32",
  shape,
  endianness: "little",
  data: Buffer.from(Float32Array.from(steps.flat()).buffer),
});

/** Reads one message. */
export function saidIn(bytes: Buffer): RemoteSaid {
  const record = unpack(bytes) as Map<string, unknown>;
  if (record.get("version") !== 1) throw new TypeError("this is no message of version 1");
  return {
    type: String(record.get("message_type")),
    instance: String(record.get("instance_id")),
    session: String(record.get("session_id")),
    generation: Number(record.get("generation")),
    request: String(record.get("request_id")),
    body: record.get("body") as Map<string, unknown>,
  };
}

const envelopeOf = (message: RemoteSaid, type: string): Record<string, unknown> => ({
  version: 1,
  message_type: type,
  instance_id: message.instance,
  session_id: message.session,
  generation: message.generation,
  request_id: message.request,
});

/** The bytes of a message that answers another one. */
const reply = (message: RemoteSaid, type: string, body: object, more: object = {}): Buffer =>
  pack(tree({ ...envelopeOf(message, type), ...more, body: listed(body) }));

/** Maps in lists, which `tree` leaves as they are. */
const listed = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map((item) => tree(listed(item)));
  if (!(value instanceof Object) || value.constructor !== Object) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, listed(item)]));
};
