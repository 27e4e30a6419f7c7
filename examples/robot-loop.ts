/**
 * A robot's control loop: a wheeled base drives around a square at 50 Hz, with action chunks from the reference provider. Start the gateway
 * (`npm start`), then
 *
 *   LIMBER_KEY=lmb_sk_… node_modules/.bin/node examples/robot-loop.ts [seconds] [url]
 *
 * It prints rate, age, holds and cost once per second. If the connection breaks, it opens a new one and resumes the session. Each lap around
 * the square is an episode.
 */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import type { LoopChunk } from "../gen/limber/v1/control_loop_pb.ts";
import {
  type ActStreamRequest,
  ActStreamRequestSchema,
  InferenceService,
} from "../gen/limber/v1/inference_service_pb.ts";

const seconds = Number(process.argv[2] ?? 300);
const baseUrl = process.argv[3] ?? "http://127.0.0.1:8080";
const key = process.env.LIMBER_KEY ?? "";
const PERIOD_MS = 20;
const CORNERS = [
  [2, 0],
  [2, 2],
  [0, 2],
  [0, 0],
] as const;

const base = { x: 0, y: 0, yaw: 0 };
let corner = 0;
let step = 0;
let episode = 1;
let chunk: LoopChunk | undefined;
const seen = { chunks: 0, holds: 0, without: 0, stale: 0, ages: 0, costUsd: 0, dropped: 0, streams: 0 };

/** Moves the base by the action that is due. Brakes if there is none, because a late action is worse than none. */
function move(): void {
  const valid = chunk !== undefined && step >= chunk.startStep && step < chunk.validUntilStep;
  if (chunk !== undefined && !valid) seen.without += 1;
  const [speed = 0, turn = 0] = (valid && chunk && dueIn(chunk)) || [];
  base.yaw += (turn * PERIOD_MS) / 1000;
  base.x += (speed * Math.cos(base.yaw) * PERIOD_MS) / 1000;
  base.y += (speed * Math.sin(base.yaw) * PERIOD_MS) / 1000;
  const [x, y] = CORNERS[corner % CORNERS.length]!;
  if (Math.hypot(x - base.x, y - base.y) >= 0.15) return;
  corner += 1;
  if (corner % CORNERS.length > 0) return;
  // The lap is complete: the old episode's plan must not be executed in the next one.
  episode += 1;
  step = 0;
  chunk = undefined;
}

/** Returns the current action. A chunk's actions are `dtMs` apart, which can be longer than a control step. */
function dueIn({ startStep, action }: LoopChunk): readonly number[] | undefined {
  const sinceMs = (step - startStep) * PERIOD_MS;
  return action?.steps[Math.floor(sinceMs / action.dtMs)]?.values;
}

/** Returns the observation and its episode: the goal in the base's own frame, and no obstacles. */
function observation(): Sensed {
  const [x, y] = CORNERS[corner % CORNERS.length]!;
  const observations = [{ proprio: [base.x, base.y, base.yaw, x, y, base.yaw], tMs: performance.now() }];
  return { episode, message: request({ case: "observation", value: { step, observations } }) };
}

interface Sensed {
  readonly episode: number;
  readonly message: ActStreamRequest;
}

const request = (message: MessageInitShape<typeof ActStreamRequestSchema>["message"]): ActStreamRequest =>
  create(ActStreamRequestSchema, message && { message });

const open = (episode: number): ActStreamRequest =>
  request({
    case: "open",
    value: {
      episode,
      model: "reference/potential-nav",
      actionSpace: "base_twist_2d",
      horizon: 16,
      robotId: "example-base",
      bounds: { lowest: [-1, -3], highest: [1, 3] },
      provider: { sessionId: `example-${process.pid}`, deadlineMs: 150 },
    },
  });

const client = createClient(InferenceService, createGrpcTransport({ baseUrl }));
const until = performance.now() + seconds * 1000;

/** Runs one stream: sends the messages of the outbox and handles the answers. */
async function runStream(outbox: Outbox): Promise<void> {
  seen.streams += 1;
  for await (const { event } of client.actStream(outbox.read(), { headers: { authorization: `Bearer ${key}` } })) {
    if (event.case === "chunk") {
      // The message was sent before the gateway received the reset.
      if (event.value.episode !== episode) continue;
      chunk = event.value;
      // A gateway never sends expired chunks; the robot would not execute one either.
      if (step >= chunk.validUntilStep) seen.stale += 1;
      seen.chunks += 1;
      seen.ages += chunk.observationAgeMs;
      seen.costUsd += chunk.usage?.costUsd ?? 0;
      seen.dropped = chunk.droppedObservations;
      if (chunk.route) console.log(`served by ${chunk.route.provider}, ${chunk.route.model}`);
    } else if (event.case === "hold" && event.value.episode === episode) {
      chunk = undefined;
      seen.holds += 1;
    } else if (event.case === "ended") {
      console.log(`ended ${event.value.code || "ok"}: ${event.value.chunks} chunks, ${event.value.holds} holds`);
    }
  }
}

/** Outgoing messages. Of the observations, only the newest is kept. */
class Outbox {
  /** The episode that the gateway has last received. */
  #episode = episode;
  #next: Sensed | undefined;
  #over = false;
  #wake = (): void => {};

  sense(next: Sensed): void {
    this.#next = next;
    this.#wake();
  }

  end(): void {
    this.#over = true;
    this.#wake();
  }

  async *read(): AsyncGenerator<ActStreamRequest> {
    yield open(this.#episode);
    while (!this.#over || this.#next) {
      const next = this.#next;
      this.#next = undefined;
      if (!next) {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
        continue;
      }
      if (next.episode > this.#episode) {
        this.#episode = next.episode;
        yield request({ case: "reset", value: { episode: next.episode } });
      }
      yield next.message;
    }
  }
}

let outbox = new Outbox();
// Scheduled by the clock and not by the previous timer, so that late timers do not slow the loop down.
let due = performance.now();
let ticking = setTimeout(function tick() {
  // A timer can also fire early.
  const isDue = due <= performance.now();
  for (; due <= performance.now(); due += PERIOD_MS) {
    step += 1;
    move();
  }
  if (isDue) outbox.sense(observation());
  ticking = setTimeout(tick, Math.max(0, due - performance.now()));
}, 0);
const printing = setInterval(() => {
  const { chunks, holds, without, stale, ages, costUsd, dropped, streams } = seen;
  console.log(
    `${chunks} Hz, age ${(ages / Math.max(1, chunks)).toFixed(1)} ms, ${holds} holds, ${without} steps without a valid chunk, ` +
      `${stale} stale chunks, ${dropped} dropped, $${costUsd.toFixed(6)}, stream ${streams}, at ${base.x.toFixed(2)} ${base.y.toFixed(2)}`,
  );
  Object.assign(seen, { chunks: 0, ages: 0, holds: 0, without: 0, stale: 0 });
  if (performance.now() > until) outbox.end();
}, 1000);

while (performance.now() < until) {
  outbox = new Outbox();
  await runStream(outbox).catch(async (thrown) => {
    console.log(String(thrown));
    chunk = undefined;
    await new Promise((resolve) => setTimeout(resolve, 200));
  });
}
clearTimeout(ticking);
clearInterval(printing);
