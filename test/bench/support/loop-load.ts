/** Robots for benchmarks: control loops on bare HTTP/2 streams that send one observation after the other, or at a pace. */
import { type ClientHttp2Session, type ClientHttp2Stream, connect } from "node:http2";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { ActStreamRequestSchema, ActStreamResponseSchema } from "../../../gen/limber/v1/inference_service_pb.ts";
import { frameMessage, MessageReader } from "../../../src/codecs/grpc.ts";

/** Where the loop is served over gRPC. */
export const LOOP_PATH = "/limber.v1.InferenceService/ActStream";

/** A step that takes four bytes as a varint, like all that follow it in a run. */
const FIRST_STEP = 2 ** 21;
const PROPRIO = Array.from({ length: 14 }, (_, i) => i / 16);

const openFrame = frameMessage(
  toBinary(
    ActStreamRequestSchema,
    create(ActStreamRequestSchema, {
      message: { case: "open", value: { model: "bench/instant", instruction: "pick up the cup" } },
    }),
  ),
);
const observationFrame = frameMessage(
  toBinary(
    ActStreamRequestSchema,
    create(ActStreamRequestSchema, {
      message: { case: "observation", value: { step: FIRST_STEP, observations: [{ proprio: PROPRIO }] } },
    }),
  ),
);
const STEP_AT = observationFrame.indexOf(Buffer.from([0x08, 0x80, 0x80, 0x80, 0x01])) + 1;

function observe(step: number): Buffer {
  const frame = Buffer.from(observationFrame);
  const value = FIRST_STEP + step;
  frame[STEP_AT] = (value & 0x7f) | 0x80;
  frame[STEP_AT + 1] = ((value >> 7) & 0x7f) | 0x80;
  frame[STEP_AT + 2] = ((value >> 14) & 0x7f) | 0x80;
  frame[STEP_AT + 3] = (value >> 21) & 0x7f;
  return frame;
}

/** One robot. */
export class BenchRobot {
  readonly #stream: ClientHttp2Stream;
  readonly opened: Promise<void>;
  #told = (): void => {};
  #steps = 0;
  /** Answers after the first message, and those of them that were no chunk. */
  answers = 0;
  others = 0;

  constructor(session: ClientHttp2Session, key: string) {
    this.#stream = session.request({
      ":method": "POST",
      ":path": LOOP_PATH,
      "content-type": "application/grpc",
      te: "trailers",
      authorization: `Bearer ${key}`,
    });
    this.#stream.on("error", () => undefined);
    const opened = Promise.withResolvers<void>();
    this.opened = opened.promise;
    let first = true;
    const reader = new MessageReader(1 << 20, (message) => {
      if (first) {
        first = false;
        opened.resolve();
        return;
      }
      this.answers += 1;
      // A chunk is field 2 of the answer; a hold, say, is another.
      if (message[0] !== 0x12) {
        this.others += 1;
        if (process.env.BENCH_TALK) console.log(JSON.stringify(fromBinary(ActStreamResponseSchema, message).event));
      }
      this.#told();
    });
    this.#stream.on("data", (chunk: Buffer) => reader.push(chunk));
    this.#stream.write(openFrame);
  }

  /** Sends an observation and resolves with the milliseconds until its answer. */
  ask(): Promise<number> {
    const began = performance.now();
    return new Promise((resolve) => {
      this.#told = () => resolve(performance.now() - began);
      this.#stream.write(observe(++this.#steps));
    });
  }

  close(): void {
    this.#stream.close(8);
  }
}

/** Opens `count` robots over `connections`. */
export async function robots(origin: string, key: string, connections: number, count: number) {
  const sessions = Array.from({ length: connections }, () => connect(origin));
  for (const session of sessions) session.on("error", () => undefined);
  const all = Array.from({ length: count }, (_, i) => new BenchRobot(sessions[i % connections]!, key));
  await Promise.all(all.map(({ opened }) => opened));
  return {
    all,
    close() {
      for (const robot of all) robot.close();
      for (const session of sessions) session.destroy();
    },
  };
}

/** What a run saw. */
export interface LoopLoad {
  sent: number;
  /** Chunks that came in time for their step. */
  carried: number;
  others: number;
  latencies: number[];
}

/** Every robot asks again as soon as it was answered, `each` times. */
export async function closedLoops(all: readonly BenchRobot[], each: number): Promise<LoopLoad> {
  const latencies: number[] = [];
  const before = all.reduce((sum, { others }) => sum + others, 0);
  await Promise.all(
    all.map(async (robot) => {
      for (let i = 0; i < each; i++) latencies.push(await robot.ask());
    }),
  );
  latencies.sort((a, b) => a - b);
  const others = all.reduce((sum, robot) => sum + robot.others, 0) - before;
  return { sent: latencies.length, carried: latencies.length - others, others, latencies };
}

/** Every robot asks `hz` times a second for `seconds`, unless its last question is still open: that step counts as not carried. */
export async function pacedLoops(all: readonly BenchRobot[], hz: number, seconds: number): Promise<LoopLoad> {
  const latencies: number[] = [];
  let sent = 0;
  const before = all.reduce((sum, { others }) => sum + others, 0);
  const period = 1000 / hz;
  const began = performance.now();
  const waiting = new Set<BenchRobot>();
  const last: Promise<void>[] = [];
  const state = all.map((robot, i) => ({ robot, next: began + (i / all.length) * period, left: hz * seconds }));
  await new Promise<void>((resolve) => {
    const turn = (): void => {
      const now = performance.now();
      let open = 0;
      for (const each of state) {
        while (each.left > 0 && each.next <= now) {
          each.next += period;
          each.left -= 1;
          sent += 1;
          if (waiting.has(each.robot)) continue;
          waiting.add(each.robot);
          last.push(
            each.robot.ask().then((ms) => {
              waiting.delete(each.robot);
              latencies.push(ms);
            }),
          );
        }
        open += each.left;
      }
      if (open > 0) setTimeout(turn, 1);
      else resolve();
    };
    turn();
  });
  await Promise.race([Promise.all(last), new Promise((resolve) => setTimeout(resolve, 2000))]);
  latencies.sort((a, b) => a - b);
  const others = all.reduce((sum, robot) => sum + robot.others, 0) - before;
  return { sent, carried: latencies.length - others, others, latencies };
}
