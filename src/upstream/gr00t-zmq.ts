/**
 * Isaac-GR00T's inference service over ZeroMQ: N1.5, N1.6 and N1.7. Its messages have no version, so it is detected by the server's modality
 * configuration and its answer to a first observation. Source: NVIDIA/Isaac-GR00T, gr00t/policy/server_client.py and gr00t_policy.py.
 */
import { connect, type Socket } from "node:net";
import { Contract } from "../../gen/limber/v1/contract_pb.ts";
import { ServerDialect, WireReset } from "../../gen/limber/v1/supply_pb.ts";
import type { Signal } from "../cancellation.ts";
import { after } from "../clock.ts";
import { passed } from "../codecs/passing.ts";
import { GREETING, pong, READY, requestHead, ZmtpReader } from "../codecs/zmtp.ts";
import { type ActAnswer, AttemptFailure, episodeOf, UpstreamFailure } from "../contracts/contract.ts";
import { flatKeysOf, Histories, shownBy } from "./gr00t-zmq/history.ts";
import {
  actionData,
  encodeCall,
  type ModalityTag,
  PROFILES,
  readAction,
  readModalityConfig,
  readReply,
  type Speech,
} from "./gr00t-zmq/messages.ts";
import { partsOf } from "./payload/observe.ts";
import { readsOf } from "./payload/profile.ts";
import { Turns } from "./transport/exclusive.ts";
import { calledOff, failureOf, lost, malformed } from "./transport/failures.ts";
import {
  type Address,
  MAX_MESSAGE_BYTES,
  type ServerReach,
  Servers,
  type UpstreamServer,
} from "./transport/servers.ts";
import type { UpstreamTarget, Wire, WireProbe } from "./wire.ts";

const SCHEMES: Readonly<Record<string, string>> = { "tcp:": "tcp:" };

/** Opens the wire; connections are made on first use. */
export function gr00tZmq(reach: ServerReach): Wire {
  const channels = new Servers(reach, SCHEMES, (address) => new ZmqChannel(address));
  const histories = new Histories();
  return {
    id: "gr00t-zmq",
    schemes: Object.keys(SCHEMES),
    profiles: PROFILES.names,
    wants: async ({ profile }) => PROFILES.wants(profile),
    reads: (profile) => readsOf(PROFILES.of(profile), profile),
    layout: ({ profile }) => PROFILES.layout(profile),
    dialects: [ServerDialect.GR00T_N1_5, ServerDialect.GR00T_N1_6, ServerDialect.GR00T_N1_7],
    faultOf(profile, contracts) {
      if (!contracts.includes(Contract.ACT) || PROFILES.of(profile).actionKeys.length > 0) return undefined;
      return {
        field: "action_keys",
        text: "is required: list the parts of the response that form the action, in order",
      };
    },
    probes: probesOf(channels),
    async act(target, input, frames, { signal }) {
      const profile = PROFILES.of(target.profile);
      const token = tokenOf(target);
      const parts = await partsOf(profile, input, frames);
      const channel = channels.of(target);
      const speech = await speechOf(channel, { dialect: profile.dialect, token, signal });
      const shown = await shownBy({ target, profile, input, frames, parts, speech, histories });
      const isNew = profile.reset === WireReset.ENDPOINT && input.sessionId !== undefined;
      const answer = await channel.converse(signal, async (send) => {
        if (isNew && channel.begins(episodeOf(input) ?? ""))
          await send(encodeCall("reset", new Map([["options", null]]), token));
        const ask = async ({ layout, arrays }: Speech): Promise<ActAnswer> =>
          readAction(
            await send(encodeCall("get_action", actionData(profile, shown, layout), token, arrays)),
            profile,
            input.horizon,
            target.actionDim,
          );
        try {
          return await ask(speech);
        } catch (thrown) {
          if (speech.layout !== "nested" || !wantsFlat(thrown, flatKeysOf(shown, speech.config))) throw thrown;
          const flat = { ...speech, layout: "flat" } as const;
          const answered = await ask(flat);
          channel.speech = flat;
          return answered;
        }
      });
      return answer;
    },
    async health(target, { signal }) {
      const reply = readReply(
        await channels.of(target).exchange(encodeCall("ping", undefined, tokenOf(target)), signal),
      );
      if (!(reply instanceof Map) || reply.get("status") !== "ok") throw malformed("the response to a ping is not ok");
    },
    async close() {
      channels.close();
    },
  };
}

const tokenOf = ({ auth }: UpstreamTarget): string => (auth.type === "none" ? "" : auth.secret);

function probesOf(channels: Servers<ZmqChannel>): readonly WireProbe[] {
  return [
    {
      name: "modality_config",
      required: true,
      async look(target, { signal }) {
        const call = encodeCall("get_modality_config", undefined, tokenOf(target));
        const served = readModalityConfig(await channels.of(target).exchange(call, signal));
        const { frames, proprio, actionKeys } = PROFILES.of(target.profile);
        const wanted = {
          video: frames.filter(({ optional }) => !optional).map(({ key }) => key.replace("video.", "")),
          state: proprio.filter(({ optional }) => !optional).map(({ key }) => key.replace("state.", "")),
          action: actionKeys,
        };
        for (const [modality, keys] of Object.entries(wanted)) {
          const has = served[modality as keyof typeof wanted];
          const missing = keys.filter((key) => !has.includes(key.replace(`${modality}.`, "")));
          if (missing.length > 0)
            throw new Error(
              `the profile names ${modality} ${missing.join(", ")}, and the server has ${has.join(", ")}`,
            );
        }
        const film = served.moments.length > 1 ? `, images at the time offsets ${served.moments.join(", ")}` : "";
        return `cameras, state and actions match the server, chunks of ${served.chunk ?? "unknown"} steps${film}`;
      },
    },
    {
      name: "token_enforced",
      required: true,
      async look(target, { signal }) {
        if (target.auth.type === "none") return "no token is declared";
        const call = encodeCall("get_modality_config", undefined, `not-${target.auth.secret.length}-it`);
        const failure = await failureIn(channels.of(target).exchange(call, signal));
        if (failure?.failure === AttemptFailure.UPSTREAM_AUTH) return "a wrong token is rejected";
        throw new Error(
          "the server accepts a wrong token: configure the declared token on the server, or declare none",
        );
      },
    },
    {
      name: "unknown_endpoint_refused",
      required: false,
      async look(target, { signal }) {
        const call = encodeCall("no_such_endpoint", undefined, tokenOf(target));
        const failure = await failureIn(channels.of(target).exchange(call, signal));
        if (failure?.failure === AttemptFailure.UPSTREAM_ERROR) return "an unknown endpoint returns an error";
        throw new Error("an unknown endpoint does not return a map with `error`");
      },
    },
  ];
}

/** The failure in an answer; undefined for a good one. Other failures are thrown. */
async function failureIn(exchange: Promise<Buffer>): Promise<UpstreamFailure | undefined> {
  const answer = await exchange;
  try {
    readReply(answer);
    return undefined;
  } catch (error) {
    if (error instanceof UpstreamFailure) return error;
    throw error;
  }
}

const DEFAULT_PORT = 5_555;
const IDLE_MS = 60_000;
/** The maximum number of remembered started episodes. */
const MAX_EPISODES = 1_024;

/** The single connection to a server, opened on demand and reopened after it closed. */
class ZmqChannel implements UpstreamServer {
  readonly #address: Address;
  readonly #turns = new Turns();
  readonly #begun = new Set<string>();
  /** The server's encoding, if known. It is dropped with the connection, because another server may listen there later. */
  speech: Speech | undefined;
  #peer: ZmqPeer | undefined;

  constructor(address: Address) {
    this.#address = address;
  }

  get idle(): boolean {
    return this.#peer === undefined && this.#turns.free;
  }

  /** Sends a message, and resolves with its answer. Rejects with an UpstreamFailure. */
  exchange(message: Buffer, signal: Signal): Promise<Buffer> {
    return this.converse(signal, (send) => send(message));
  }

  /** Sends consecutive messages without others in between, each after the answer to the previous one. Rejects as `talk` does. */
  converse<T>(signal: Signal, talk: (send: (message: Buffer) => Promise<Buffer>) => Promise<T>): Promise<T> {
    return this.#turns.run(signal, () => talk((message) => this.#open().exchange(message, signal)));
  }

  /** Returns whether this episode's start was not sent yet, and marks it as sent. */
  begins(episode: string): boolean {
    if (this.#begun.has(episode)) return false;
    const [oldest] = this.#begun;
    if (this.#begun.size >= MAX_EPISODES && oldest !== undefined) this.#begun.delete(oldest);
    this.#begun.add(episode);
    return true;
  }

  close(): void {
    this.#peer?.fail(lost("the gateway is shutting down"));
  }

  #open(): ZmqPeer {
    this.#peer ??= new ZmqPeer(this.#address, () => {
      this.#peer = undefined;
      this.speech = undefined;
    });
    return this.#peer;
  }
}

/** One socket, and the call that waits for its next message. */
class ZmqPeer {
  readonly #socket: Socket;
  readonly #onClosed: () => void;
  #failure: UpstreamFailure | undefined;
  #isReady = false;
  /** The bytes to send when the peer is ready. */
  #held: Buffer | undefined;
  #waiting: { resolve(message: Buffer): void; reject(failure: UpstreamFailure): void } | undefined;
  #forgetIdle: () => void = () => undefined;

  /** `onClosed` is called once, when the connection becomes unusable. */
  constructor({ url, lookup }: Address, onClosed: () => void) {
    this.#onClosed = onClosed;
    const host = url.hostname.replace(/^\[|\]$/g, "");
    this.#socket = connect({ host, port: Number(url.port || DEFAULT_PORT), lookup });
    this.#socket.setNoDelay(true).setKeepAlive(true, 30_000);
    const reader = new ZmtpReader(MAX_MESSAGE_BYTES, {
      onGreeting: () => void this.#socket.write(READY),
      onCommand: (name, data) => this.#command(name, data),
      onMessage: (body) => this.#receive(body),
    });
    this.#socket.on("data", (chunk) => {
      passed(chunk.length);
      try {
        reader.push(chunk);
      } catch (error) {
        this.fail(failureOf(error));
      }
    });
    this.#socket.on("error", (error) => this.fail(failureOf(error)));
    this.#socket.on("close", () => this.fail(lost("the server closed the connection")));
    this.#socket.write(GREETING);
  }

  exchange(message: Buffer, signal: Signal): Promise<Buffer> {
    this.#forgetIdle();
    return new Promise((resolve, reject) => {
      if (this.#failure !== undefined) return reject(this.#failure);
      if (signal.aborted) return reject(calledOff(signal));
      const leave = (): void => this.fail(calledOff(signal));
      const done = (): void => {
        this.#waiting = undefined;
        signal.removeEventListener("abort", leave);
      };
      signal.addEventListener("abort", leave, { once: true });
      this.#waiting = {
        resolve: (answer) => {
          done();
          this.#forgetIdle = after(IDLE_MS, () => this.fail(lost("the connection was idle for too long")));
          resolve(answer);
        },
        reject: (failure) => {
          done();
          reject(failure);
        },
      };
      if (this.#isReady) this.#send(message);
      else this.#held = message;
    });
  }

  /** The first failure closes the connection: an answer may be lost, and a later one could be matched with the wrong request. */
  fail(failure: UpstreamFailure): void {
    if (this.#failure !== undefined) return;
    this.#failure = failure;
    this.#forgetIdle();
    this.#onClosed();
    this.#waiting?.reject(failure);
    this.#socket.destroy();
  }

  #command(name: string, data: Buffer): void {
    if (name === "PING")
      this.#socket.write(pong(data.subarray(2))); // after its timeout
    else if (name === "ERROR") this.fail(malformed("the server refused the handshake"));
    else if (name === "READY") {
      this.#isReady = true;
      if (this.#held !== undefined) this.#send(this.#held);
      this.#held = undefined;
    }
  }

  #send(message: Buffer): void {
    passed(message.length);
    this.#socket.cork();
    this.#socket.write(requestHead(message.length));
    this.#socket.write(message);
    this.#socket.uncork();
  }

  #receive(body: Buffer): void {
    if (this.#waiting === undefined || !this.#isReady) this.fail(malformed("the server sent an unrequested message"));
    else this.#waiting.resolve(body);
  }
}

const BY_TAG: Readonly<Record<ModalityTag, Pick<Speech, "arrays" | "layout">>> = {
  json: { arrays: "npy", layout: "bare" },
  class: { arrays: "npy", layout: "nested" },
  config: { arrays: "numpy", layout: "nested" },
};

/** The encoding of a declared generation's server that does not state it. */
const USUAL = { arrays: "npy", layout: "nested", config: undefined } as const;
const DECLARED: Readonly<Partial<Record<ServerDialect, Speech>>> = {
  [ServerDialect.GR00T_N1_5]: { ...USUAL, layout: "bare" },
  [ServerDialect.GR00T_N1_6]: USUAL,
  [ServerDialect.GR00T_N1_7]: { ...USUAL, arrays: "numpy" },
};

/** Generations with a single encoding, which need no query. */
const PLAIN: ReadonlySet<ServerDialect | undefined> = new Set([ServerDialect.GR00T_N1_5, ServerDialect.GR00T_N1_6]);

/** Failures of a server that does not support the query, or answers it differently. */
const UNTOLD: ReadonlySet<AttemptFailure> = new Set([AttemptFailure.UPSTREAM_ERROR, AttemptFailure.MALFORMED_ANSWER]);

/** Resolves with the encoding of a channel's server, which is queried once per connection. Rejects with an UpstreamFailure. */
async function speechOf(
  channel: ZmqChannel,
  { dialect, token, signal }: { dialect: ServerDialect | undefined; token: string; signal: Signal },
): Promise<Speech> {
  if (channel.speech) return channel.speech;
  const usual = (dialect === undefined ? undefined : DECLARED[dialect]) ?? USUAL;
  if (PLAIN.has(dialect)) return usual;
  return channel.converse(signal, async (send) => {
    if (channel.speech) return channel.speech;
    const answer = await send(encodeCall("get_modality_config", undefined, token));
    const speech = told(answer, usual);
    channel.speech = speech;
    return speech;
  });
}

function told(answer: Buffer, usual: Speech): Speech {
  try {
    const config = readModalityConfig(answer);
    return { ...usual, ...(config.tag && BY_TAG[config.tag]), config };
  } catch (thrown) {
    if (thrown instanceof UpstreamFailure && UNTOLD.has(thrown.failure)) return usual;
    throw thrown;
  }
}

/** Whether a server that received a nested observation reports a missing flat key: it was started with the wrapper. */
const wantsFlat = (thrown: unknown, keys: Iterable<string>): boolean =>
  thrown instanceof UpstreamFailure &&
  thrown.failure === AttemptFailure.UPSTREAM_ERROR &&
  [...keys].some((key) => thrown.message.includes(`'${key}'`));
