/**
 * The transport for Isaac-GR00T's clients: ZeroMQ REQ over TCP, one MessagePack map a message, whose `api_token` is the key. Every
 * `get_action` is an act call through the gate that all transports share. `kill` is answered with an error, and nothing else happens.
 * Source: NVIDIA/Isaac-GR00T, gr00t/policy/server_client.py.
 */

import { type AddressInfo, createServer, type Socket } from "node:net";
import { Priority } from "../../../../gen/limber/edge/v1/options_pb.ts";
import { type ActResponse, InferenceService } from "../../../../gen/limber/v1/inference_service_pb.ts";
import { BRAND } from "../../../brand.ts";
import type { CallTrail, Principal } from "../../../call.ts";
import { Cancel } from "../../../cancellation.ts";
import { after, steadyNow } from "../../../clock.ts";
import { CodecError } from "../../../codecs/error.ts";
import { passed } from "../../../codecs/passing.ts";
import type { EncodeOptions } from "../../../codecs/pictures/raw-pictures.ts";
import { encodeGr00t, type Gr00tArrays, readGr00t } from "../../../codecs/python/gr00t.ts";
import { type Packable, UNPACK_LIMITS } from "../../../codecs/python/msgpack.ts";
import { NdArray } from "../../../codecs/python/ndarray.ts";
import { GREETING, pong, READY_TO_ANSWER, requestHead, ZmtpReader } from "../../../codecs/zmtp.ts";
import { asRefusal, factsOf, Reason, Refusal, refuse } from "../../../errors.ts";
import { newId } from "../../../ids.ts";
import type { Embodiment } from "../../../inference/robot-check.ts";
import { numbersOwed } from "../../../inference/robot-check.ts";
import { type BodyMemory, type HeldBytes, ownerOf } from "../../body-memory.ts";
import type { CallLog } from "../../call-log.ts";
import type { Gate } from "../../gate/gate.ts";
import { CONVERSATION_BYTES } from "../../messages/bounds.ts";
import { refusalOf } from "../../messages/errors.ts";
import { encodedOnce } from "../../messages/json.ts";
import { Slots, slotOf } from "../../server/slots.ts";
import { type OwnRequest, ownLineOf, unreadable } from "../own-keys.ts";
import { type AskedAction, actionAsked, modalitiesOf, modelAsked } from "./observation.ts";

/** What this transport depends on. */
interface Gr00tOptions {
  readonly gate: Gate;
  readonly log: CallLog;
  readonly memory: BodyMemory;
  readonly host: string;
  /** 0 picks one. */
  readonly port: number;
  /** How long a message of a connection that has shown no key may take to come whole, in milliseconds. */
  readonly messageMs?: number;
  /** The model of clients that name none, and whose key is for no single one. */
  readonly model: string;
  /** How a live model acts; undefined where nothing live serves it, and of an alias. */
  embodimentOf(model: string): Embodiment | undefined;
  /** The most connections; 1,000 where nothing is said. */
  readonly maxConnections?: number;
  /** What an address that connects counts as; undefined for a trusted proxy. */
  readonly chargedAs?: (address: string) => string | undefined;
}

/** The transport while it listens. */
interface Gr00tTransport {
  readonly port: number;
  /** Leaves new connections to another process that listens on the port. */
  refuseConnections(): void;
  /** Takes no new connection, and ends each with its next answer, an idle one after `idleMs` and every one after `patienceMs`. */
  close(patienceMs: number, idleMs?: number): Promise<void>;
}

/** Values of one message, those of its arrays apart. */
const LIMITS = { ...UNPACK_LIMITS, maxValues: 100_000 };
/** Whose memory messages take before their connection has shown a key: all of those share what one key may take. */
const UNKNOWN = "gr00t";
/** A peer has this long to say who it is. */
const GREETING_MS = 10_000;
/** A message of a connection that has shown no key has this long to come whole. */
const MESSAGE_MS = 30_000;
const MOST_CONNECTIONS = 1_000;
/** What a peer may send ahead of its answers before its connection is closed; GR00T clients send one message at a time. */
const MOST_AHEAD = 8;
/** The connection of a peer that pings and leaves more than this unread is closed. */
const MOST_UNREAD_BYTES = 64 << 10;

/** What a command takes beside its name and what it says: flags, its size, and the size of its name. */
const COMMAND_BYTES = 3;

const method = InferenceService.method.act;

/** Listens. */
export async function serveGr00t(options: Gr00tOptions): Promise<Gr00tTransport> {
  const peers = new Map<Socket, Gr00tPeer>();
  const slots = new Slots(options.maxConnections ?? MOST_CONNECTIONS, options.chargedAs);
  const server = createServer({ noDelay: true, keepAlive: true }, (socket) => {
    if (!slots.take(socket)) {
      socket.destroy();
      return;
    }
    const peer = new Gr00tPeer(options, socket);
    peers.set(socket, peer);
    socket.on("error", () => socket.destroy());
    socket.once("close", () => peers.delete(socket));
    peer.begin();
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.port, options.host, resolve);
  });
  const { port } = server.address() as AddressInfo; // it listens at a port
  return {
    port,
    refuseConnections() {
      server.maxConnections = 0;
    },
    close: (patienceMs, idleMs = 0) =>
      new Promise((resolve) => {
        const forget = after(patienceMs, () => {
          for (const socket of peers.keys()) socket.destroy();
        });
        server.close(() => {
          forget();
          resolve();
        });
        for (const peer of peers.values()) peer.drain(idleMs);
      }),
  };
}

/** One client. It sends its next message when it has the answer to the last one. */
class Gr00tPeer {
  readonly #options: Gr00tOptions;
  readonly #socket: Socket;
  readonly #disconnected = new Cancel();
  readonly #session = `gr00t ${newId("req")}`;
  #episode = 1;
  /** How the client writes arrays, as its last message with any had them. */
  #arrays: Gr00tArrays = "npy";
  #turn: Promise<void> = Promise.resolve();
  /** Messages that are not answered. */
  #ahead = 0;
  #isDraining = false;
  /** Bytes of a message that has not come whole, or is not answered. */
  #coming = 0;
  #owner = UNKNOWN;
  readonly #robot = newId("req");
  #held: HeldBytes;
  /** Deletes that a half-sent message is waited for; undefined where none is. */
  #forgetMessage: (() => void) | undefined;

  constructor(options: Gr00tOptions, socket: Socket) {
    this.#options = options;
    this.#held = options.memory.open(this.#owner);
    this.#socket = socket;
  }

  /** Ends the connection once every message is answered; an idle one with its next answer, or after `idleMs`. */
  drain(idleMs: number): void {
    this.#isDraining = true;
    if (this.#ahead > 0) return;
    // A peer that reads nothing does not hold the end.
    if (idleMs === 0) this.#socket.end(() => this.#socket.destroy());
    else
      this.#socket.once(
        "close",
        after(idleMs, () => this.drain(0)),
      );
  }

  begin(): void {
    const socket = this.#socket;
    const forget = after(GREETING_MS, () => socket.destroy());
    socket.once("close", () => {
      forget();
      this.#isWhole();
      this.#held.release();
      this.#disconnected.abort(refuse(Reason.CLIENT_CLOSED_REQUEST, "the client disconnected before the response"));
    });
    const reader = new ZmtpReader(CONVERSATION_BYTES, {
      onGreeting: () => void socket.write(READY_TO_ANSWER),
      onCommand: (name, data) => {
        this.#coming = Math.max(0, this.#coming - COMMAND_BYTES - name.length - data.length);
        if (name === "READY") forget();
        else if (name !== "PING") return;
        else if (socket.writableLength > MOST_UNREAD_BYTES) socket.destroy();
        else socket.write(pong(data.subarray(2)));
      },
      onMessage: (body) => this.#receive(body),
    });
    socket.write(GREETING);
    socket.on("data", (chunk) => {
      try {
        passed(chunk.length);
        this.#coming += chunk.length;
        this.#held.to(this.#coming);
        reader.push(chunk);
        this.#awaitRest(reader);
      } catch (thrown) {
        socket.destroy(); // no peer of this protocol, or no room for what it sends
        if (thrown instanceof Refusal) this.#note(newId("req"), 0, thrown);
      }
    });
  }

  /** Strangers share what their messages may take: none of them holds a half-sent one for long. */
  #awaitRest(reader: ZmtpReader): void {
    if (reader.isBetween) this.#isWhole();
    else if (this.#owner === UNKNOWN)
      this.#forgetMessage ??= after(this.#options.messageMs ?? MESSAGE_MS, () => this.#socket.destroy());
  }

  #isWhole(): void {
    this.#forgetMessage?.();
    this.#forgetMessage = undefined;
  }

  #receive(body: Buffer): void {
    const arrivedAt = steadyNow();
    const socket = this.#socket;
    socket.pause();
    // One read may hold many messages.
    if (++this.#ahead > MOST_AHEAD)
      throw refuse(
        Reason.CLIENT_CLOSED_REQUEST,
        "too many requests are pending on this connection; wait for the answers",
      );
    this.#turn = this.#turn.then(async () => {
      if (socket.destroyed) return;
      const value = await this.#answer(body, arrivedAt);
      const answer = encodeGr00t(value, this.#arrays);
      this.#ahead -= 1;
      const isTaken = socket.destroyed || socket.write(Buffer.concat([requestHead(answer.length), answer]));
      this.#listen(isTaken);
      if (this.#isDraining) this.drain(0);
    });
    this.#turn.catch((thrown) => {
      this.#socket.destroy();
      this.#note(newId("req"), 0, asRefusal(thrown));
    });
  }

  /** Hears on once all is answered: where answers wait for the peer, when it has read them. Until then they are what it holds. */
  #listen(isTaken: boolean): void {
    const socket = this.#socket;
    this.#coming = 0;
    this.#held.to(socket.writableLength);
    if (this.#ahead > 0) return;
    if (isTaken) socket.resume();
    else socket.once("drain", () => this.#listen(true));
  }

  async #answer(body: Buffer, arrivedAt: number): Promise<Packable<NdArray>> {
    const requestId = newId("req");
    const startedAt = steadyNow();
    const trail: CallTrail = { inputBytes: body.length };
    let refusal: Refusal | undefined;
    let own: OwnRequest | undefined;
    try {
      const { message, arrays } = read(body);
      this.#arrays = arrays ?? this.#arrays;
      const endpoint = message.get("endpoint") ?? "get_action";
      if (endpoint === "ping") return { status: "ok", message: "Server is running" };
      if (endpoint === "reset") {
        // Nothing of the episode before is shown to a model.
        this.#episode += 1;
        return {};
      }
      if (endpoint !== "get_action" && endpoint !== "get_modality_config")
        return { error: `Unknown endpoint: ${String(endpoint).slice(0, 64)}` };
      const token = message.get("api_token");
      const admission = await this.#options.gate.admit(method, {
        authorization: typeof token === "string" ? `Bearer ${token}` : undefined,
        adminToken: undefined,
        remoteAddress: this.#socket.remoteAddress ?? "",
        slot: slotOf(this.#socket),
        priority: Priority.LOOP,
        requestId,
        trail,
      });
      try {
        this.#known(ownerOf(admission.principal), body.length);
        const usual = modelOf(admission.principal) ?? this.#options.model;
        if (endpoint === "get_modality_config") return modalitiesOf(usual, this.#options.embodimentOf(usual));
        const data = message.get("data");
        const model = modelAsked(data) ?? usual;
        const embodiment = this.#options.embodimentOf(model);
        const asked = await actionAsked(data, {
          model,
          embodiment,
          session: this.#session,
          episode: this.#episode,
          by: this.#by,
        });
        own = asked;
        // Checked before the call: a refusal must cost nothing. Sizes that only a model knows are checked in its answer.
        const owed = numbersOwed(asked.request);
        if (owed !== undefined) assertWhole(asked.parts, owed);
        // Sound: the method answers no other message.
        const encode = encodedOnce((answer) => written(answer as ActResponse, asked));
        const context = {
          requestId,
          signal: this.#disconnected,
          arrivedAt,
          deadline: undefined,
          idempotencyKey: undefined,
          trail,
          encode,
        };
        return encode(await this.#options.gate.unary(method, admission, asked.request, context));
      } finally {
        admission.leave();
      }
    } catch (thrown) {
      refusal = refusalOf(thrown);
      const { code, status } = factsOf(refusal.reason);
      const said =
        status === 401 ? "Unauthorized: Invalid API token" : `${code} (${status}): ${ownLineOf(refusal, own)}`;
      return { error: `${said} [${requestId}]` };
    } finally {
      this.#note(requestId, steadyNow() - startedAt, refusal, trail);
    }
  }

  get #by(): EncodeOptions {
    return { asker: { key: this.#owner, robot: this.#robot }, signal: this.#disconnected };
  }

  /** From now on it is this key's memory that messages take. */
  #known(owner: string, bytes: number): void {
    if (owner === this.#owner || this.#disconnected.aborted) return;
    this.#held.release();
    this.#owner = owner;
    this.#held = this.#options.memory.open(owner);
    this.#held.to(bytes);
  }

  #note(requestId: string, latencyMs: number, refusal: Refusal | undefined, trail?: CallTrail): void {
    const facts = refusal && factsOf(refusal.reason);
    this.#options.log({
      requestId,
      transport: "gr00t",
      rpc: `${method.parent.typeName}/${method.name}`,
      status: facts?.status ?? 200,
      latencyMs,
      ...(facts && { code: facts.code }),
      ...(refusal?.cause !== undefined && { cause: refusal.cause }),
      ...(refusal && { message: refusal.message }),
      trail,
    });
  }
}

/** The one model that a key is for, where it is for a single one. */
function modelOf(principal: Principal): string | undefined {
  if (principal.kind !== "key" || principal.models.length !== 1) return undefined;
  const [model = ""] = principal.models;
  return model.endsWith("/*") ? undefined : model;
}

const NO_MESSAGE = "a message is a map of msgpack with numpy arrays";

function read(body: Buffer): {
  message: ReadonlyMap<unknown, ReturnType<typeof readGr00t>["value"]>;
  arrays: Gr00tArrays | undefined;
} {
  try {
    const { value: message, arrays } = readGr00t(body, LIMITS);
    if (message instanceof Map) return { message, arrays };
  } catch (thrown) {
    if (thrown instanceof CodecError) throw unreadable(thrown, NO_MESSAGE);
    throw thrown;
  }
  throw refuse(Reason.MALFORMED_BODY, NO_MESSAGE);
}

const sizeOf = (parts: AskedAction["parts"]): number => parts.reduce((sum, [, size]) => sum + size, 0);

/** Refuses parts that do not make up an action of `dim` numbers. */
function assertWhole(parts: AskedAction["parts"], dim: number): void {
  if (parts.length > 0 && sizeOf(parts) !== dim)
    throw refuse(Reason.VALIDATION_FAILED, `options.action_keys must add up to the ${dim} numbers of an action`);
}

/** N1.5: a map of [T, D]. Later: `[actions, info]`, the actions [1, T, D]. */
function written(
  { id, model, action, route, usage }: ActResponse,
  { dotted, bare, parts, usualParts }: AskedAction,
): Packable<NdArray> {
  const steps = action?.steps ?? [];
  const dim = steps[0]?.values.length ?? 0;
  assertWhole(parts, dim);
  // Another model than the usual one may have served.
  const usual = sizeOf(usualParts) === dim ? usualParts : [["action", dim] as const];
  const named = parts.length > 0 ? parts : usual;
  const actions = new Map<string, NdArray>();
  let from = 0;
  for (const [name, size] of named) {
    const start = from;
    const values = steps.flatMap((step) => step.values.slice(start, start + size));
    const shape = bare ? [steps.length, size] : [1, steps.length, size];
    actions.set(dotted ? `action.${name}` : name, NdArray.float32(values, shape));
    from += size;
  }
  if (bare) return actions;
  const info = { gateway: BRAND, id, model, provider: route?.provider ?? "", cost_usd: usage?.costUsd ?? 0 };
  return [actions, info];
}
