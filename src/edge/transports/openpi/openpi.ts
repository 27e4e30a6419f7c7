/**
 * The openpi transport: a robot's unmodified openpi-client gets routing, failover and billing by a change of address,
 * `ws://gateway/v1/openpi/{owner}/{name}?preset=…&action_space=…&horizon=…`. Every message is an act call through the gate that all
 * transports share. A refusal is a text frame, as the client expects it, and the socket stays open for the next call. A client of
 * RoboArena calls `/v1/roboarena/{owner}/{name}`, one of vla-evaluation-harness `/v1/vla-eval/{owner}/{name}`, one of XPolicyLab
 * `/v1/xpolicylab/{owner}/{name}`.
 * Sources: openpi-client's websocket_client_policy.py (Physical-Intelligence/openpi); robo-arena/roboarena, roboarena/policy_server.py at
 * 3034234 and policy_client.py at 55aa8a8.
 */

import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { create } from "@bufbuild/protobuf";
import { type WebSocket, WebSocketServer } from "ws";
import { Priority } from "../../../../gen/limber/edge/v1/options_pb.ts";
import { type ActResponse, InferenceService } from "../../../../gen/limber/v1/inference_service_pb.ts";
import {
  GetModelRequestSchema,
  type GetModelResponse,
  RegistryService,
} from "../../../../gen/limber/v1/registry_service_pb.ts";
import type { CallTrail } from "../../../call.ts";
import { Cancel } from "../../../cancellation.ts";
import { after, every, steadyNow } from "../../../clock.ts";
import { passed } from "../../../codecs/passing.ts";
import type { Asker } from "../../../codecs/pictures/turns.ts";
import { WEBSOCKET_PIECES } from "../../../codecs/websocket.ts";
import { factsOf, Reason, Refusal, refuse } from "../../../errors.ts";
import { newId } from "../../../ids.ts";
import { type BodyMemory, type HeldBytes, ownerOf, UNCOUNTED_BYTES } from "../../body-memory.ts";
import type { CallLog } from "../../call-log.ts";
import type { CallHead } from "../../gate/authenticate.ts";
import type { Gate } from "../../gate/gate.ts";
import { CONVERSATION_BYTES } from "../../messages/bounds.ts";
import { refusalOf, restAnswer } from "../../messages/errors.ts";
import { encodedOnce } from "../../messages/json.ts";
import { unknown } from "../../messages/json-text.ts";
import { slotOf } from "../../server/slots.ts";
import type { UpgradeTaker } from "../../server/whole-requests.ts";
import { type OwnRequest, ownLineOf } from "../own-keys.ts";
import { type OpenpiQuery, ROBOARENA_SPACES, type RoboarenaSpace } from "./observation.ts";
import { OpenpiProtocol, type RobotProtocol } from "./protocol.ts";
import { VlaEvalProtocol } from "./vla-eval.ts";
import { partsNamed, XPolicyProtocol } from "./xpolicylab.ts";

/** The dependencies of this transport. */
interface OpenpiOptions {
  readonly gate: Gate;
  readonly log: CallLog;
  readonly memory: BodyMemory;
  /** Aborted to end running calls. */
  readonly closing: AbortSignal;
}

const PATH = /^\/v1\/(openpi|roboarena|vla-eval|xpolicylab)(?:\/([^/]+)\/([^/]+))?$/;
/** The protocols that can precede the model in the user name of a URL. */
const MARKED = ["roboarena", "vla-eval", "xpolicylab"] as const;
/** The most unanswered requests of a client; above it, its connection is closed. */
const MOST_AHEAD = { messages: 8, bytes: CONVERSATION_BYTES } as const;
/** The ping interval; a connection is closed after two pings without a pong. */
const PING_MS = 30_000;
const MOST_MISSED = 2;
/** The most unread bytes of a slow reader; above it, its connection is closed. */
const MOST_UNREAD_BYTES = 1 << 20;
/** The same for a caller that sends pings. */
const MOST_UNREAD_PONGS = 64 << 10;
/** WebSocket close codes: normal, service restart, policy (a client that does not read), and try again later. */
const CLOSE = { done: 1000, restart: 1012, policy: 1008, later: 1013 } as const;
/** How long the close frame has before an unresponsive connection is cut. */
const LINGER_MS = 1_000;
/** The size of an empty frame: two bytes, and its mask. */
const FRAME_BYTES = 6;
const method = InferenceService.method.act;

/** Creates the transport. */
export function openpiTransport(options: OpenpiOptions): UpgradeTaker {
  // No compression: openpi offers none, and it would delay a control loop.
  const limits = { maxPayload: CONVERSATION_BYTES, ...WEBSOCKET_PIECES };
  const server = new WebSocketServer({ noServer: true, perMessageDeflate: false, ...limits });
  const robots = new Set<OpenpiRobot>();
  let draining: number | undefined;
  options.closing.addEventListener("abort", () => {
    for (const robot of robots) robot.leave();
  });
  const serve = (client: WebSocket, robot: Admitted, socket: Duplex): void => {
    const served = new OpenpiRobot(options, client, robot);
    robots.add(served);
    client.once("close", () => robots.delete(served));
    served.begin(socket);
    if (draining !== undefined) served.drain(draining);
  };
  return {
    wants: ({ url = "", headers }) =>
      /^websocket$/i.test(headers.upgrade ?? "") && (PATH.test(pathOf(url)) || pathOf(url) === "/"),
    take: (request, socket, head) => {
      socket.on("error", () => socket.destroy());
      admit(options, request)
        .then((robot) => server.handleUpgrade(request, socket, head, (client) => serve(client, robot, socket)))
        .catch((thrown) => refuseUpgrade(socket, refusalOf(thrown)));
    },
    drain(idleMs) {
      draining = idleMs;
      for (const robot of robots) robot.drain(idleMs);
    },
  };
}

/** The client protocols, by their names in the URL. */
const PROTOCOLS = {
  openpi: (asked: OpenpiQuery) => new OpenpiProtocol(asked),
  roboarena: (asked: OpenpiQuery) => new OpenpiProtocol(asked),
  "vla-eval": (asked: OpenpiQuery) => new VlaEvalProtocol(asked),
  xpolicylab: (asked: OpenpiQuery) => new XPolicyProtocol(asked),
} as const satisfies Record<string, (asked: OpenpiQuery) => RobotProtocol>;
type ProtocolName = keyof typeof PROTOCOLS;

const pathOf = (url: string): string => url.split("?", 1)[0] ?? "";
const queryOf = (url: string): URLSearchParams => new URLSearchParams(url.slice(pathOf(url).length));

/** A connecting client and its parameters. */
interface Admitted {
  /** The account of its messages' memory. */
  readonly owner: string;
  readonly caller: Omit<CallHead, "requestId">;
  readonly protocol: RobotProtocol;
  /** An error in the URL, with which each request is refused. Clients show only the status of a refused connection. */
  readonly fault: Refusal | undefined;
}

/** Refuses keys without the act contract, before the upgrade. */
async function admit({ gate }: OpenpiOptions, request: IncomingMessage): Promise<Admitted> {
  const { key, user } = credentialsOf(request.headers.authorization);
  const address = addressOf(request.url ?? "", user);
  const caller = {
    authorization: key === undefined ? undefined : `Bearer ${key}`,
    adminToken: undefined,
    remoteAddress: request.socket.remoteAddress ?? "",
    slot: slotOf(request.socket),
    priority: Priority.LOOP,
  };
  const requestId = newId("req");
  const admission = await gate.admit(method, { ...caller, requestId });
  admission.leave();
  const asked = askedOf(address, requestId);
  const actionSpace = asked.actionSpace ?? (asked.preset === undefined ? await spaceOf(gate, asked.model) : undefined);
  const fault = faultIn(address);
  const owner = ownerOf(admission.principal);
  const query = { ...asked, ...(actionSpace !== undefined && { actionSpace }) };
  return { owner, caller, protocol: PROTOCOLS[address.protocol](query), fault };
}

/** A model's first action space, for clients whose protocol has no action spaces. Undefined for an alias or unknown model. */
async function spaceOf(gate: Gate, model: string): Promise<string | undefined> {
  const { getModel } = RegistryService.method;
  const [owner = "", name = ""] = model.split(":")[0]!.split("/");
  const requestId = newId("req");
  const head = { authorization: undefined, adminToken: undefined, remoteAddress: "", requestId };
  const context = {
    requestId,
    signal: new Cancel(),
    arrivedAt: steadyNow(),
    deadline: undefined,
    idempotencyKey: undefined,
  };
  try {
    const request = create(GetModelRequestSchema, { owner, name });
    const admission = await gate.admit(getModel, head);
    const answer = await gate.unary(getModel, admission, request, context).finally(() => admission.leave());
    return (answer as GetModelResponse).model?.actionSpaces[0]; // what the method answers
  } catch (thrown) {
    if (thrown instanceof Refusal) return undefined;
    throw thrown;
  }
}

/** The key from `Api-Key`, `Bearer`, or a URL with a user name: the user name is the model, the password the key. */
function credentialsOf(header = ""): { key?: string; user?: string } {
  const [, scheme = "", value = ""] = /^(\S+) +(\S+) *$/.exec(header) ?? [];
  if (/^(api-key|bearer)$/i.test(scheme)) return { key: value };
  if (!/^basic$/i.test(scheme)) return {};
  const [user = "", ...key] = Buffer.from(value, "base64").toString("utf8").split(":");
  // openpi's client does not percent-decode the URL's user name and password.
  return { key: decoded(key.join(":")), ...(user !== "" && { user: decoded(user) }) };
}

/** The query parameters. */
const PARAMETERS = ["preset", "action_space", "horizon", "session_id", "robot_id"];
/** The action space of a RoboArena client. */
const ROBOARENA_SPACE = "roboarena_action_space";

/** The parts of a state and of an action of an XPolicyLab client. */
const XPOLICY_KEYS = ["state_keys", "action_keys"] as const;

/** By protocol: the harness uses one step at a time, and starts sessions itself. */
const KNOWN: Readonly<Record<ProtocolName, readonly string[]>> = {
  openpi: PARAMETERS,
  roboarena: [...PARAMETERS, ROBOARENA_SPACE],
  "vla-eval": ["preset", "action_space", "robot_id"],
  xpolicylab: [...PARAMETERS, ...XPOLICY_KEYS],
};

/** The target of a connection: its protocol, the model if given, and the query. */
interface OpenpiAddress {
  readonly protocol: ProtocolName;
  readonly model: string | undefined;
  readonly query: URLSearchParams;
}

/**
 * Parses the path and the query, or, for clients that only have a host setting, the URL's user name: `owner/name` with an optional query, and
 * with `roboarena/`, `vla-eval/` or `xpolicylab/` in front for those clients.
 */
function addressOf(url: string, user = ""): OpenpiAddress {
  const [, said, owner, name] = PATH.exec(pathOf(url)) ?? [];
  const protocol = MARKED.find((marked) => marked === said) ?? "openpi";
  if (owner !== undefined) return { protocol, model: `${decoded(owner)}/${decoded(name ?? "")}`, query: queryOf(url) };
  const query = new URLSearchParams([...queryOf(url), ...queryOf(user)]);
  const slug = pathOf(user);
  const marked = MARKED.find((each) => slug.split("/").length === 3 && slug.startsWith(`${each}/`));
  if (marked) return { protocol: marked, model: slug.slice(marked.length + 1), query };
  return { protocol, model: slug === "" ? undefined : slug, query };
}

/** The error in a URL's query, if any. */
function faultIn({ protocol, query }: OpenpiAddress): Refusal | undefined {
  const no = (param: string, text: string): Refusal =>
    refuse(Reason.VALIDATION_FAILED, `\`${param}\` ${text}`, {}, { param });
  const known = KNOWN[protocol];
  const stranger = [...query.keys()].find((name) => !known.includes(name));
  if (stranger !== undefined) return no(stranger.slice(0, 64), unknown("parameter", stranger, known));
  const space = query.get(ROBOARENA_SPACE);
  if (space !== null && !isRoboarenaSpace(space))
    return no(ROBOARENA_SPACE, `must be one of ${ROBOARENA_SPACES.join(", ")}`);
  const keys = XPOLICY_KEYS.find((name) => query.has(name) && partsNamed(query.get(name)!) === undefined);
  if (keys !== undefined)
    return no(keys, "must list parts with their sizes, such as `left_arm_joint_state:6,left_ee_joint_state:1`");
  const horizon = query.get("horizon");
  return horizon === null || /^\d{1,9}$/.test(horizon)
    ? undefined
    : no("horizon", "must be an integer between 1 and 256");
}

const isRoboarenaSpace = (text: string | null): text is RoboarenaSpace =>
  ROBOARENA_SPACES.some((space) => space === text);

function askedOf({ protocol, model, query }: OpenpiAddress, requestId: string): OpenpiQuery {
  if (model === undefined)
    throw refuse(
      Reason.NOT_FOUND,
      `specify the model in the path /v1/${protocol}/{owner}/{name} or as the user name of the URL`,
    );
  const horizon = query.get("horizon");
  const space = query.get(ROBOARENA_SPACE);
  return {
    model,
    sessionId: query.get("session_id") ?? `openpi ${requestId}`,
    episode: 1,
    ...(query.has("robot_id") && { robotId: query.get("robot_id")! }),
    ...(query.has("preset") && { preset: query.get("preset")! }),
    ...(query.has("action_space") && { actionSpace: query.get("action_space")! }),
    ...(horizon !== null && { horizon: Number(horizon) >>> 0 }),
    ...(protocol === "xpolicylab" && { xpolicylab: xpolicyKeys(query) }),
    ...(protocol === "roboarena" && { roboarena: isRoboarenaSpace(space) ? space : ROBOARENA_SPACES[0] }),
  };
}

function xpolicyKeys(query: URLSearchParams): NonNullable<OpenpiQuery["xpolicylab"]> {
  const [stateKeys, actionKeys] = XPOLICY_KEYS.map((name) => partsNamed(query.get(name) ?? ""));
  return { ...(stateKeys && { stateKeys }), ...(actionKeys && { actionKeys }) };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function refuseUpgrade(socket: Duplex, refusal: Refusal): void {
  if (!socket.writable) return void socket.destroy();
  const { status, headers, body } = restAnswer(refusal, newId("req"));
  const head = [`HTTP/1.1 ${status} Refused`, "connection: close", "content-type: application/json"];
  for (let i = 0; i < headers.length; i += 2) head.push(`${headers[i]}: ${headers[i + 1]}`);
  head.push(`content-length: ${Buffer.byteLength(body)}`);
  socket.end(`${head.join("\r\n")}\r\n\r\n${body}`);
}

/** One connection: requests are answered in order, as in an openpi server. */
class OpenpiRobot {
  readonly #options: OpenpiOptions;
  readonly #client: WebSocket;
  readonly #asker: Asker;
  readonly #caller: Omit<CallHead, "requestId">;
  readonly #protocol: RobotProtocol;
  readonly #fault: Refusal | undefined;
  /** Aborted when the connection ends. */
  readonly #disconnected = new Cancel();
  #turn: Promise<void> = Promise.resolve();
  /** Unanswered requests. */
  readonly #ahead = { messages: 0, bytes: 0 };
  /** Bytes of an incomplete message. */
  #coming = 0;
  readonly #held: HeldBytes;
  #missed = 0;
  #isDraining = false;

  constructor(options: OpenpiOptions, client: WebSocket, { owner, caller, protocol, fault }: Admitted) {
    this.#options = options;
    this.#held = options.memory.open(owner);
    this.#asker = { key: owner, robot: newId("req") };
    this.#client = client;
    this.#caller = caller;
    this.#protocol = protocol;
    this.#fault = fault;
  }

  /** Clients wait for the metadata, which the server sends first. */
  begin(socket: Duplex): void {
    const client = this.#client;
    client.on("error", () => undefined);
    const rest = every(PING_MS, () => {
      if (this.#missed++ < MOST_MISSED) client.ping();
      else client.terminate();
    });
    client.on("pong", (data) => {
      this.#missed = 0;
      this.#coming = Math.max(0, this.#coming - data.length - FRAME_BYTES);
    });
    // Each ping gets a pong: without a limit, a caller that does not read would make them accumulate.
    client.on("ping", (data) => {
      this.#coming = Math.max(0, this.#coming - data.length - FRAME_BYTES);
      if (client.bufferedAmount > MOST_UNREAD_PONGS) client.terminate();
    });
    // Runs before the frame parser, which reports only complete messages.
    socket.prependListener("data", this.#came);
    client.on("close", () => {
      rest();
      socket.off("data", this.#came);
      this.#held.release();
      this.#disconnected.abort(refuse(Reason.CLIENT_CLOSED_REQUEST, "the client disconnected before the response"));
    });
    // Messages are Buffers by default.
    client.on("message", (data, isBinary) => this.#receive(data as Buffer, isBinary));
    const { greeting } = this.#protocol;
    if (greeting !== undefined) client.send(greeting);
  }

  readonly #came = (chunk: Buffer): void => {
    passed(chunk.length);
    this.#coming += chunk.length;
    this.#hold();
  };

  /** Counts incoming bytes and unread responses. Without memory, the client is refused and retries. */
  readonly #hold = (): void => {
    try {
      this.#held.to(this.#coming + this.#ahead.bytes + this.#client.bufferedAmount + (this.#protocol.kept ?? 0));
    } catch (thrown) {
      const refusal = refusalOf(thrown);
      this.#held.release();
      this.#client.close(CLOSE.later, factsOf(refusal.reason).code);
      this.#client.pause();
      after(LINGER_MS, () => this.#client.terminate());
      this.#disconnected.abort(refusal);
    }
  };

  #receive(data: Buffer, isBinary: boolean): void {
    const ahead = this.#ahead;
    const arrivedAt = steadyNow();
    this.#missed = 0;
    this.#coming = 0;
    // The protocol has no ids, so responses are in order; a client must not send far ahead.
    const isFar = ahead.messages >= MOST_AHEAD.messages || ahead.bytes + data.length > MOST_AHEAD.bytes;
    if (isFar || this.#client.bufferedAmount > MOST_UNREAD_BYTES) {
      this.#client.close(CLOSE.policy, "too many unread responses or pending messages");
      this.#disconnected.abort(
        refuse(Reason.CLIENT_CLOSED_REQUEST, "the connection was closed because the client stopped reading"),
      );
      return;
    }
    ahead.messages += 1;
    ahead.bytes += data.length;
    this.#turn = this.#turn
      .then(() => this.#answer(data, isBinary, arrivedAt))
      .finally(() => {
        ahead.messages -= 1;
        ahead.bytes -= data.length;
        this.#hold();
        if (this.#isDraining) this.drain(0);
      });
  }

  /** Ends the connection once every request is answered; an idle one with its next response, or after `idleMs`. */
  drain(idleMs: number): void {
    this.#isDraining = true;
    if (this.#ahead.messages > 0) return;
    if (idleMs === 0) this.leave();
    else
      this.#client.once(
        "close",
        after(idleMs, () => this.drain(0)),
      );
  }

  /** Ends the connection. */
  leave(): void {
    this.#client.close(CLOSE.restart, "the gateway is shutting down; reconnect");
  }

  #sendAll(frames: readonly (Buffer | string)[]): void {
    for (const frame of frames) this.#send(frame);
  }

  #send(frame: Buffer | string): void {
    const unread = this.#client.bufferedAmount + frame.length;
    this.#client.send(frame, unread > UNCOUNTED_BYTES ? this.#hold : undefined);
  }

  async #answer(data: Buffer, isBinary: boolean, arrivedAt: number): Promise<void> {
    if (this.#disconnected.aborted) return;
    const requestId = newId("req");
    const startedAt = steadyNow();
    let refusal: Refusal | undefined;
    let keyId: string | undefined;
    let own: OwnRequest | undefined;
    const trail: CallTrail = { inputBytes: data.length };
    try {
      const said = this.#protocol.aside(data, isBinary, arrivedAt);
      if (said !== undefined) {
        this.#sendAll(said);
        if (this.#protocol.isOver) this.#client.close(CLOSE.done);
        return;
      }
      const { gate } = this.#options;
      const admission = await gate.admit(method, { ...this.#caller, requestId, trail });
      try {
        if (admission.principal.kind === "key") keyId = admission.principal.keyId;
        if (this.#fault) throw this.#fault;
        const request = await this.#protocol.read(data, isBinary, { asker: this.#asker, signal: this.#disconnected });
        if (request.kind === "frames") return this.#sendAll(request.frames);
        own = request;
        const encode = encodedOnce((answer) =>
          // Sound: the method answers no other message.
          this.#protocol.written(answer as ActResponse, steadyNow() - startedAt),
        );
        const context = {
          requestId,
          signal: this.#disconnected,
          arrivedAt,
          observedAt: request.observedAt,
          deadline: undefined,
          idempotencyKey: undefined,
          trail,
          encode,
        };
        this.#send(encode(await gate.unary(method, admission, request.request, context)));
      } finally {
        admission.leave();
      }
    } catch (thrown) {
      refusal = refusalOf(thrown);
      const { code, status } = factsOf(refusal.reason);
      // The client raises it as the server's error, and can call again.
      this.#send(this.#protocol.refused(`${code} (${status}): ${ownLineOf(refusal, own)} [${requestId}]`));
    }
    const facts = refusal && factsOf(refusal.reason);
    this.#options.log({
      requestId,
      transport: "openpi",
      rpc: `${method.parent.typeName}/${method.name}`,
      status: facts?.status ?? 200,
      latencyMs: steadyNow() - startedAt,
      ...(facts && { code: facts.code }),
      ...(keyId !== undefined && { keyId }),
      trail,
      ...(refusal?.cause !== undefined && { cause: refusal.cause }),
      ...(refusal && { message: refusal.message }),
    });
  }
}
