/** The client for Node.js: gRPC to one gateway. */
import type { Interceptor, Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { LimberClient } from "./client.ts";
import { addressed, BadInput } from "./errors.ts";
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

/** The gateway's address and the credentials of calls. */
export interface LimberOptions {
  /** The gateway's address (default: `LIMBER_URL`, or `http://127.0.0.1:8080`). */
  readonly url?: string;
  /** The API key (default: `LIMBER_KEY`). */
  readonly key?: string;
}

/** An idle connection is checked by a ping after this time. */
const PING_MS = 10_000;
const MOST_ANSWER_BYTES = 64 << 20;

/** A client of one gateway. It connects at the first call and reconnects when the connection is lost. */
export class Limber extends LimberClient {
  readonly #transport: Transport;

  constructor({
    url = process.env.LIMBER_URL ?? "http://127.0.0.1:8080",
    key = process.env.LIMBER_KEY,
  }: LimberOptions = {}) {
    if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol))
      throw new BadInput(`url must be an http or https address, got ${url}`);
    if (!key) throw new BadInput("no API key: set LIMBER_KEY or pass key");
    if (!/^[!-~]+$/.test(key))
      throw new BadInput("the API key contains an invalid character; check for a space or a line break");
    const signed: Interceptor = (next) => (request) => {
      request.header.set("authorization", `Bearer ${key}`);
      return next(request);
    };
    const transport = createGrpcTransport({
      baseUrl: url,
      interceptors: [addressed, signed],
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
