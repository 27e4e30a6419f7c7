/** The good client beside every attack: it calls by each road that robots use, one call after the other, and counts its answers. */
import * as http from "node:http";
import { type ClientHttp2Session, type ClientHttp2Stream, connect } from "node:http2";
import * as https from "node:https";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  ActRequestSchema,
  ActStreamRequestSchema,
  ActStreamResponseSchema,
} from "../../../gen/limber/v1/inference_service_pb.ts";
import { frameMessage, MessageReader } from "../../../src/codecs/grpc.ts";
import { type Target, within } from "./target.ts";

/** One act call that costs its model little, as REST and as gRPC say it. */
export interface Ask {
  readonly model: string;
  readonly actionSpace: string;
  readonly proprio: readonly number[];
}

/** The good client and the attackers ask different models: an attacker who wears out a provider is no subject here. */
export const GOOD_ASK: Ask = {
  model: "reference/potential-nav",
  actionSpace: "base_twist_2d",
  proprio: [0.1, 0.1, 0.1, 0.1, 0.1, 0.1],
};
export const BAD_ASK: Ask = {
  model: "reference/energy-swingup",
  actionSpace: "continuous_nd",
  proprio: [0.1, 0.1, 0.1, 0.1],
};

const HORIZON = 4;
const messageOf = ({ model, actionSpace, proprio }: Ask) => ({
  ...{ model, actionSpace, horizon: HORIZON },
  observations: [{ proprio: [...proprio] }],
});

export const actJson = ({ model, actionSpace, proprio }: Ask): string =>
  JSON.stringify({ model, action_space: actionSpace, horizon: HORIZON, observations: [{ proprio }] });
export const actFrame = (ask: Ask): Buffer =>
  frameMessage(toBinary(ActRequestSchema, create(ActRequestSchema, messageOf(ask))));
/** The first message of a control loop. */
export function openFrame({ model, actionSpace }: Ask): Buffer {
  const provider = { deadlineMs: 10_000 };
  return loopFrame({ case: "open", value: { model, actionSpace, horizon: HORIZON, provider } });
}
/** What a robot senses at one step of its loop. */
export const observationFrame = ({ proprio }: Ask, step: number): Buffer =>
  loopFrame({ case: "observation", value: { step, observations: [{ proprio: [...proprio] }] } });

function loopFrame(message: object): Buffer {
  return frameMessage(toBinary(ActStreamRequestSchema, create(ActStreamRequestSchema, { message } as never)));
}

/** Which roads the good client takes: calls of REST and gRPC on kept connections, a control loop, calls on new connections. */
const ROADS = ["rest", "grpc", "loop", "fresh"] as const;
type Road = (typeof ROADS)[number];

const GOOD_JSON = actJson(GOOD_ASK);
const GOOD_FRAME = actFrame(GOOD_ASK);
/** Between two calls of a road: the good client asks steadily, and leaves the machine to the attack. */
const PACE_MS = 5;
/** Far more than any call takes: one that takes longer hangs. */
const CALL_HANGS_MS = 60_000;
const MOST_FAILURES = 20;
/** How a gateway that has too many calls refuses one, over REST and gRPC. */
const OVERLOADED = /overloaded|more%20calls%20than%20it%20can%20serve/;

const sinceMs = (began: number): number => Math.round(performance.now() - began);

/** A good client at work. */
export class GoodClient {
  readonly answers: Record<Road, number> = { rest: 0, grpc: 0, loop: 0, fresh: 0 };
  /** Calls that were refused because the gateway had too many of them. */
  overloaded = 0;
  /** What else was not answered well, and why; the first of it. */
  readonly failures: string[] = [];
  readonly #target: Target;
  /** By whether there is TLS. */
  readonly #http: typeof http | typeof https;
  readonly #agent: http.Agent;
  readonly #session: ClientHttp2Session;
  readonly #waiting = new Set<() => void>();
  #stopping = false;
  /** No road goes on. */
  #isOver = false;
  readonly #roads: Promise<unknown>;

  constructor(target: Target) {
    this.#target = target;
    this.#http = target.url.startsWith("https:") ? https : http;
    this.#agent = new this.#http.Agent({ keepAlive: true, maxSockets: 1 });
    this.#session = connect(target.url);
    this.#session.on("error", (error) => this.#fail("grpc", error));
    const calls: Record<Road, () => Promise<void>> = {
      rest: () => this.#rest("/v1/act", GOOD_JSON, this.#agent),
      grpc: () => this.#grpc(),
      loop: this.#loop(),
      fresh: () => this.#rest("/health", undefined, undefined),
    };
    this.#roads = Promise.all(ROADS.map((road) => this.#take(road, calls[road]))).then(() => {
      this.#isOver = true;
      this.#wake();
    });
  }

  /** Answers of all roads so far. */
  get total(): number {
    return ROADS.reduce((sum, road) => sum + this.answers[road], 0);
  }

  /** Resolves when every road has been answered `count` more times, or one has failed: a measure of progress that no slow machine upsets. */
  async progress(count: number): Promise<void> {
    const wanted = Object.fromEntries(ROADS.map((road) => [road, this.answers[road] + count]));
    const failed = this.failures.length;
    const isThere = (): boolean =>
      this.#isOver || this.failures.length > failed || ROADS.every((road) => this.answers[road] >= wanted[road]!);
    while (!isThere()) await new Promise<void>((resolve) => this.#waiting.add(resolve));
  }

  /** Ends after the calls that are under way. */
  async stop(): Promise<void> {
    this.#stopping = true;
    await this.#roads;
    this.#agent.destroy();
    this.#session.destroy();
    this.#wake();
  }

  async #take(road: Road, call: () => Promise<void>): Promise<void> {
    while (!this.#stopping && this.#target.end() === undefined && this.failures.length < MOST_FAILURES) {
      try {
        await within(call(), `the good client's answer by ${road}`, CALL_HANGS_MS);
        this.answers[road]++;
      } catch (thrown) {
        this.#fail(road, thrown);
      }
      this.#wake();
      await new Promise((resolve) => setTimeout(resolve, PACE_MS));
    }
  }

  /** Of a gateway that has ended nothing more is said than that. */
  #fail(road: Road, thrown: unknown): void {
    const why = thrown instanceof Error ? thrown.message : String(thrown);
    if (OVERLOADED.test(why)) this.overloaded += 1;
    else if (this.#target.end() === undefined && !this.#stopping)
      this.failures.push(`the good client was not served by ${road}: ${why}`);
    this.#wake();
  }

  #wake(): void {
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }

  #rest(path: string, body: string | undefined, agent: http.Agent | undefined): Promise<void> {
    const { port, good } = this.#target;
    const began = performance.now();
    let connectedMs: number | undefined;
    return new Promise((resolve, rejectBare) => {
      // When a connection opened and when it failed tells whose fault it is: a silent one is closed after ten seconds.
      const reject = (error: Error): void => {
        const opened = connectedMs === undefined ? "never" : `after ${connectedMs} ms`;
        rejectBare(new Error(`${error.message} (open ${opened}, failed after ${sinceMs(began)} ms)`));
      };
      const request = this.#http.request({
        ...{ port, host: "127.0.0.1", path, agent: agent ?? false, method: body === undefined ? "GET" : "POST" },
        headers: {
          authorization: `Bearer ${good.key}`,
          ...(body !== undefined && { "content-type": "application/json", "content-length": Buffer.byteLength(body) }),
        },
      });
      request.once("socket", (socket) => {
        // A kept one stands open already.
        if (socket.connecting) socket.once("connect", () => (connectedMs = sinceMs(began)));
        else connectedMs = 0;
      });
      request.once("error", reject).once("response", (response) => {
        let text = "";
        response.setEncoding("utf8").on("data", (part: string) => (text += part));
        response.once("error", reject).once("end", () => {
          if (response.statusCode === 200) resolve();
          else reject(new Error(`${response.statusCode} ${text.slice(0, 300)}`));
        });
      });
      request.end(body);
    });
  }

  #stream(method: string): ClientHttp2Stream {
    return this.#session.request({
      ":method": "POST",
      ":path": `/limber.v1.InferenceService/${method}`,
      "content-type": "application/grpc",
      te: "trailers",
      authorization: `Bearer ${this.#target.good.key}`,
    });
  }

  #grpc(): Promise<void> {
    const stream = this.#stream("Act");
    return new Promise((resolve, reject) => {
      let told = "no trailers";
      let bytes = 0;
      const look = (fields: Record<string, unknown>): void => {
        if (fields["grpc-status"] !== undefined) told = `${fields["grpc-status"]} ${fields["grpc-message"] ?? ""}`;
      };
      stream
        .on("response", look)
        .on("trailers", look)
        .on("data", (part: Buffer) => (bytes += part.length));
      stream.once("error", reject);
      stream.once("close", () => {
        if (told.startsWith("0 ") && bytes > 0) resolve();
        else reject(new Error(`gRPC status ${told}`));
      });
      stream.end(GOOD_FRAME);
    });
  }

  /** One control loop for as long as it lasts: each observation is answered by a chunk or a hold. */
  #loop(): () => Promise<void> {
    let open: { stream: ClientHttp2Stream; next: () => Promise<string> } | undefined;
    let step = 0;
    return async () => {
      if (open === undefined) {
        const stream = this.#stream("ActStream");
        open = { stream, next: eventsOf(stream) };
        stream.write(openFrame(GOOD_ASK));
        await expectOne(open.next(), ["opened"]);
      }
      try {
        open.stream.write(observationFrame(GOOD_ASK, step++));
        await expectOne(open.next(), ["chunk", "hold"]);
      } catch (thrown) {
        open.stream.destroy();
        open = undefined;
        throw thrown;
      }
    };
  }
}

async function expectOne(coming: Promise<string>, wanted: readonly string[]): Promise<void> {
  const event = await coming;
  if (!wanted.includes(event)) throw new Error(`the loop was told ${event} instead of ${wanted.join(" or ")}`);
}

/** The names of the events of a loop, one at a time; rejects when the stream ends. */
function eventsOf(stream: ClientHttp2Stream): () => Promise<string> {
  const events: string[] = [];
  let ended: string | undefined;
  let wake = (): void => {};
  const reader = new MessageReader(1 << 20, (message) => {
    events.push(fromBinary(ActStreamResponseSchema, message).event.case ?? "nothing");
    wake();
  });
  const end = (why: string): void => {
    ended ??= why;
    wake();
  };
  stream.on("data", (part: Buffer) => reader.push(part));
  stream.once("trailers", (fields) => end(`grpc-status ${fields["grpc-status"]} ${fields["grpc-message"] ?? ""}`));
  stream.on("error", (error) => end(error.message)).once("close", () => end("closed"));
  return async () => {
    for (;;) {
      const event = events.shift();
      if (event !== undefined) return event;
      if (ended !== undefined) throw new Error(`the loop ended: ${ended}`);
      await new Promise<void>((resolve) => (wake = resolve));
    }
  };
}
