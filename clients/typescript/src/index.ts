/** The client for Node: gRPC to one gateway. */
import type { Interceptor, Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { LimberClient } from "./client.ts";
import { BadInput } from "./errors.ts";
import { Loop, type LoopOptions } from "./loop/loop.ts";
import { Sessions } from "./sessions.ts";

export * from "./api.ts";
export {
  type ChunkFacts,
  type ChunkFate,
  type CoreOptions,
  type Decision,
  type HoldFate,
  LoopCore,
} from "./loop/core.ts";
export type { Command, Loop, LoopOptions, RunEnd, RunOptions } from "./loop/loop.ts";
export type { LoopStats } from "./loop/stats.ts";

/** Where the gateway is, and how calls show who they are. */
export interface LimberOptions {
  /** The gateway; `LIMBER_URL`, or `http://127.0.0.1:8080` when absent. */
  readonly url?: string;
  /** An API key; `LIMBER_KEY` when absent. */
  readonly key?: string;
}

/** A connection that says nothing for so long is asked whether it lives. */
const PING_MS = 10_000;
const MOST_ANSWER_BYTES = 64 << 20;

/** A client of one gateway. It connects at its first call, and again whenever the connection was lost. */
export class Limber extends LimberClient {
  readonly #transport: Transport;

  constructor({
    url = process.env.LIMBER_URL ?? "http://127.0.0.1:8080",
    key = process.env.LIMBER_KEY,
  }: LimberOptions = {}) {
    if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol))
      throw new BadInput(`url must be an http or https address, not ${url}`);
    if (!key) throw new BadInput("an API key is needed: LIMBER_KEY in the environment, or key");
    if (!/^[!-~]+$/.test(key)) throw new BadInput("the API key has characters that no key has");
    const signed: Interceptor = (next) => (request) => {
      request.header.set("authorization", `Bearer ${key}`);
      return next(request);
    };
    const transport = createGrpcTransport({
      baseUrl: url,
      interceptors: [signed],
      readMaxBytes: MOST_ANSWER_BYTES,
      sessionManager: new Sessions(url, { pingIntervalMs: PING_MS }),
    });
    super(transport);
    this.#transport = transport;
  }

  /** Opens a control loop for one robot. It connects at once. */
  loop(options: LoopOptions): Loop {
    return new Loop(this.#transport, options);
  }
}
