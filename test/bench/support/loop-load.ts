/** Robots for benchmarks: control loops on bare HTTP/2 streams that send one observation after the other, or at a pace. */
import { type ClientHttp2Session, type ClientHttp2Stream, connect } from "node:http2";
import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { LoopOpenSchema } from "../../../gen/limber/v1/control_loop_pb.ts";
import { ActStreamRequestSchema, ActStreamResponseSchema } from "../../../gen/limber/v1/inference_service_pb.ts";
import { frameMessage, MessageReader } from "../../../src/codecs/grpc.ts";

/** Where the loop is served over gRPC. */
export const LOOP_PATH = "/limber.v1.InferenceService/ActStream";

/** A step that takes four bytes as a varint, like all that follow it in a run. */
const FIRST_STEP = 2 ** 21;
const PROPRIO = Array.from({ length: 14 }, (_, i) => i / 16);

/** What a robot opens its loop with. */
type Open = MessageInitShape<typeof LoopOpenSchema>;
const OPEN: Open = { model: "bench/instant", instruction: "pick up the cup" };

const openFrame = (open: Open): Buffer =>
  frameMessage(
    toBinary(
      ActStreamRequestSchema,
      create(ActStreamRequestSchema, { message: { case: "open", value: create(LoopOpenSchema, open) } }),
    ),
  );
/** Makes the observation of a step. */
export type Observe = (step: number) => Buffer;

/** Observations of numbers and of these pictures, none of which has the bytes of another step's. */
export function observing(pictures: readonly Uint8Array[]): Observe {
  const frames = pictures.map((data, i) => ({ camera: `camera_${i}`, data }));
  const value = { step: FIRST_STEP, observations: [{ frames, proprio: PROPRIO }] };
  const message = create(ActStreamRequestSchema, { message: { case: "observation", value } });
  const whole = frameMessage(toBinary(ActStreamRequestSchema, message));
  const stepAt = whole.indexOf(Buffer.from([0x08, 0x80, 0x80, 0x80, 0x01])) + 1;
  // In the middle of its scan a picture may have any bytes below a marker's.
  const marks = pictures.map((data) => whole.indexOf(data) + (data.length >> 1));
  return (step) => {
    const frame = Buffer.from(whole);
    const value = FIRST_STEP + step;
    frame[stepAt] = (value & 0x7f) | 0x80;
    frame[stepAt + 1] = ((value >> 7) & 0x7f) | 0x80;
    frame[stepAt + 2] = ((value >> 14) & 0x7f) | 0x80;
    frame[stepAt + 3] = (value >> 21) & 0x7f;
    for (const mark of marks) for (let i = 0; i < 4; i++) frame[mark + i] = (value >> (7 * i)) & 0x7f;
    return frame;
  };
}

const observe = observing([]);

/** A chunk is field 2 of an answer; a hold, say, is another. */
const isChunk = (message: Buffer): boolean => message[0] === 0x12;
const ENDED = 0x22;

/** The step that a chunk begins at, which stands behind its name and its action. */
function stepOf(message: Buffer): number {
  let at = 1;
  const varint = (): number => {
    let value = 0;
    for (let weight = 1; ; weight *= 128) {
      const byte = message[at++]!;
      value += (byte & 0x7f) * weight;
      if (byte < 0x80) return value;
    }
  };
  varint();
  for (let i = 0; i < 2; i++) {
    at += 1;
    const length = varint();
    at += length;
  }
  at += 1;
  return varint() - FIRST_STEP;
}

/** One robot. */
export class BenchRobot {
  readonly #stream: ClientHttp2Stream;
  readonly opened: Promise<void>;
  /** A relay's answers are all alike, and come in order. */
  readonly #inOrder: boolean;
  readonly #observation: Observe;
  #steps = 0;
  /** Steps that were asked about and not answered, and when. */
  #open: { step: number; at: number }[] = [];
  /** Milliseconds until each chunk came. */
  latencies: number[] = [];
  /** Answers after the first message that were no chunk. */
  others = 0;
  #told = (): void => {};
  /** When it was last told that another offering serves it, and that the loop is over. */
  movedAt = Number.NaN;
  endedAt = Number.NaN;
  /** When the last chunk came. */
  heardAt = Number.NaN;
  #plainBytes = 0;

  constructor(session: ClientHttp2Session, key: string, open: Open, observation: Observe) {
    this.#observation = observation;
    this.#inOrder = key === "";
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
      if (first) opened.resolve();
      else this.#hear(message);
      first = false;
    });
    this.#stream.on("data", (chunk: Buffer) => reader.push(chunk));
    this.#stream.write(openFrame(open));
  }

  /** Sends an observation. */
  send(): void {
    this.#open.push({ step: ++this.#steps, at: performance.now() });
    this.#stream.write(this.#observation(this.#steps));
  }

  /** Sends an observation and resolves when something is answered. */
  ask(): Promise<void> {
    return new Promise((resolve) => {
      this.#told = resolve;
      this.send();
    });
  }

  close(): void {
    this.#stream.close(8);
  }

  /** A chunk that is larger than the one before may have a route in it. */
  #lookAtRoute(message: Buffer): void {
    if (message.length > this.#plainBytes + 20) {
      const { event } = fromBinary(ActStreamResponseSchema, message);
      if (event.case === "chunk" && event.value.route) this.movedAt = performance.now();
      else this.#plainBytes = message.length;
    }
  }

  #hear(message: Buffer): void {
    if (!isChunk(message)) {
      this.others += 1;
      if (message[0] === ENDED) this.endedAt = performance.now();
      if (process.env.BENCH_TALK) console.log(JSON.stringify(fromBinary(ActStreamResponseSchema, message).event));
    } else {
      this.heardAt = performance.now();
      this.#lookAtRoute(message);
      const step = this.#inOrder ? this.#open[0]?.step : stepOf(message);
      while (this.#open[0] && this.#open[0].step < step!) this.#open.shift();
      const asked = this.#open.shift();
      if (asked) this.latencies.push(performance.now() - asked.at);
    }
    this.#told();
  }
}

/** Opens `count` robots over `connections`. */
export async function robots(
  origin: string,
  key: string,
  connections: number,
  count: number,
  open = OPEN,
  observation = observe,
) {
  const sessions = Array.from({ length: connections }, () => connect(origin));
  for (const session of sessions) session.on("error", () => undefined);
  const all = Array.from(
    { length: count },
    (_, i) => new BenchRobot(sessions[i % connections]!, key, open, observation),
  );
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

/** What robots saw since they were last asked. */
function seenBy(all: readonly BenchRobot[], sent: number): LoopLoad {
  const latencies = all.flatMap((robot) => robot.latencies).sort((a, b) => a - b);
  const others = all.reduce((sum, robot) => sum + robot.others, 0);
  for (const robot of all) Object.assign(robot, { latencies: [], others: 0 });
  return { sent, carried: latencies.length, others, latencies };
}

/** Every robot asks again as soon as it was answered, `each` times. */
export async function closedLoops(all: readonly BenchRobot[], each: number): Promise<LoopLoad> {
  seenBy(all, 0);
  await Promise.all(
    all.map(async (robot) => {
      for (let i = 0; i < each; i++) await robot.ask();
    }),
  );
  return seenBy(all, all.length * each);
}

/** Every robot sends an observation `hz` times a second for `seconds`, answered or not. */
export async function pacedLoops(all: readonly BenchRobot[], hz: number, seconds: number): Promise<LoopLoad> {
  seenBy(all, 0);
  const period = 1000 / hz;
  const began = performance.now();
  const state = all.map((robot, i) => ({ robot, next: began + (i / all.length) * period, left: hz * seconds }));
  await new Promise<void>((resolve) => {
    const turn = (): void => {
      const now = performance.now();
      let open = 0;
      for (const each of state) {
        while (each.left > 0 && each.next <= now) {
          each.next += period;
          each.left -= 1;
          each.robot.send();
        }
        open += each.left;
      }
      if (open === 0) resolve();
      else setTimeout(turn, 1);
    };
    turn();
  });
  await new Promise((resolve) => setTimeout(resolve, 300));
  return seenBy(all, all.length * hz * seconds);
}
