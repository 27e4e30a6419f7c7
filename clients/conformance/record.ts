/**
 * Records the golden traces of loops. A robot is connected to a real gateway whose model servers are slow, crash and misbehave on purpose. The
 * recorder writes the received messages and, for each event, the robot's decision.
 *
 * `GOLDEN=write vitest run test/story/loop-traces.test.ts` records them again. Times differ between recordings, so review the result. Record only
 * after a change of the format or of the rules.
 */
import { writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { HoldReasonSchema } from "../../gen/limber/v1/control_loop_pb.ts";
import { type App, type Caller, openApp } from "../../test/support/app.ts";
import { type RobotClient, robot } from "../../test/support/loop-client.ts";
import { honestSteps, type Model, startModel } from "../../test/support/model.ts";
import { BOUNDLESS } from "../../test/support/pair.ts";
import { LoopCore, type TraceEvent, type TraceHead, take } from "./core.ts";

const FOLDER = new URL("traces/", import.meta.url);
const RATE_HZ = 50;
const PERIOD_MS = 1000 / RATE_HZ;

interface Scenario {
  readonly says: string;
  readonly finish?: boolean;
  readonly ms?: number;
  readonly deadlineMs?: number;
  readonly horizon?: number;
  /** Actions by time, in milliseconds after the first control step. */
  readonly events?: readonly (readonly [number, (stage: Stage) => void | Promise<void>])[];
}

/** The controls that a scenario can use. */
class Stage {
  readonly app: App;
  readonly caller: Caller;
  readonly models: readonly [Model, Model];
  readonly #scenario: Scenario;
  readonly #core: LoopCore;
  readonly #session: string;
  readonly lines: TraceEvent[] = [];
  #stream: RobotClient | undefined;
  #episode = 1;
  /** Resolves when the last reset has been sent. Observations wait for it. */
  #resets: Promise<void> = Promise.resolve();
  /** Number of values in an observation; a change of it changes the shape. */
  sensed = 1;
  /** Offset added to the clock. */
  aheadMs = 0;
  /** Delay of a model's answer, in milliseconds. */
  delayMs = 0;
  /** Delay of the link, in milliseconds: for resets to the gateway and for every message to the robot. */
  linkMs = 0;
  /** Bit mask of the models that do not answer. */
  dead = 0;
  /** Factor applied to the models' answers. */
  gain = 1;
  /** Number of control steps to skip. */
  skip = 0;
  key: string;
  #began = performance.now();

  constructor(app: App, caller: Caller, models: readonly [Model, Model], name: string, scenario: Scenario) {
    this.app = app;
    this.caller = caller;
    this.key = caller.key;
    this.models = models;
    this.#scenario = scenario;
    this.#session = `trace-${name}`;
    this.#core = new LoopCore(RATE_HZ, { finish: scenario.finish ?? false });
    models.forEach((model, i) => {
      model.script.act = async (call, answer, { stream }) => {
        if (this.dead & (1 << i)) return stream.close(2);
        const steps = honestSteps(call, 2).map((row) => row.map((value) => value * this.gain));
        if (this.delayMs > 0) await sleep(this.delayMs);
        answer(steps);
      };
    });
  }

  get #now(): number {
    return Math.round((performance.now() - this.#began + this.aheadMs) * 1000) / 1000;
  }

  note(event: Omit<TraceEvent, "at" | "expect">): TraceEvent["expect"] {
    const line = { at: this.#now, ...event };
    const expect = take(this.#core, line);
    this.lines.push(expect === undefined ? line : { ...line, expect });
    return expect;
  }

  connect(): void {
    const stream = robot(this.app, this.key, {
      model: "acme/base",
      actionSpace: "base_twist_2d",
      horizon: this.#scenario.horizon ?? 8,
      robotId: "traced",
      episode: this.#episode,
      bounds: { lowest: [-10], highest: [10] },
      provider: { sessionId: this.#session, deadlineMs: this.#scenario.deadlineMs ?? 250 },
    });
    this.#stream = stream;
    void this.#read(stream);
  }

  async #read(stream: RobotClient): Promise<void> {
    try {
      for (let event = await stream.next(); event && stream === this.#stream; event = await stream.next()) {
        if (this.linkMs > 0) await sleep(this.linkMs);
        if (stream !== this.#stream) return;
        if (event.kind === "opened") this.note({ opened: { deadline_ms: event.value.deadlineMs } });
        else if (event.kind === "ended") this.note({ ended: { code: event.value.code } });
        else if (event.kind === "hold") {
          const { step, episode, reason } = event.value;
          this.note({ hold: { episode, step, reason: HoldReasonSchema.value[reason]!.localName.toLowerCase() } });
        } else if (event.kind === "chunk") {
          const { episode, startStep, validUntilStep, action, observationTime } = event.value;
          this.note({
            chunk: {
              episode,
              start_step: startStep,
              valid_until_step: validUntilStep,
              dt_ms: action!.dtMs,
              rows: action!.steps.length,
              ...(observationTime !== undefined && { observation_time: observationTime }),
            },
          });
        }
      }
    } catch {
      // The end was recorded when its message arrived; a broken connection is recorded by `break`.
    }
  }

  /** Breaks the connection and opens another one at once. */
  break(): void {
    this.#stream?.leave();
    this.#stream = undefined;
    this.note({ lost: true });
    this.connect();
  }

  reset(): void {
    this.#episode = this.note({ reset: true }) as number;
    const stream = this.#stream;
    const episode = this.#episode;
    this.#resets = sleep(this.linkMs).then(() => stream?.say({ case: "reset", value: { episode } }));
  }

  #tick(): void {
    if (this.skip > 0) {
      this.skip -= 1;
      return;
    }
    const decision = this.note({ tick: true });
    if (typeof decision !== "object" || !decision.send) return;
    const { step } = decision;
    const tMs = this.lines.at(-1)!.at;
    const observations = [{ proprio: Array.from({ length: this.sensed }, () => step / 1000), tMs }];
    const stream = this.#stream;
    void this.#resets.then(() => stream?.observe(step, { observations } as never));
  }

  async play(): Promise<void> {
    const { ms = 1200, events = [] } = this.#scenario;
    this.#began = performance.now();
    this.connect();
    let due = 0;
    const ahead = [...events];
    for (let now = 0; now < ms; now = performance.now() - this.#began) {
      while (ahead[0] && now >= ahead[0][0]) await ahead.shift()![1](this);
      if (now >= due) {
        this.#tick();
        due += PERIOD_MS;
      }
      await sleep(1);
    }
    this.note({ stop: "closed" });
    this.note({ tick: true });
    this.#stream?.leave();
    this.#stream = undefined;
  }
}

/** Returns an action that changes how the models, the link or the robot behave. */
const set =
  (facts: Partial<Pick<Stage, "delayMs" | "linkMs" | "dead" | "gain" | "sensed" | "skip" | "aheadMs">>) =>
  (stage: Stage): void =>
    void Object.assign(stage, facts);

const SCENARIOS: Readonly<Record<string, Scenario>> = {
  steady: { says: "a quick model, nothing happens" },
  slow: {
    says: "answers take three control steps; observations between them are dropped",
    events: [
      [0, set({ delayMs: 55 })],
      [700, set({ delayMs: 90 })],
    ],
  },
  late: {
    says: "answers come after the deadline for a while: the robot holds",
    deadlineMs: 120,
    events: [
      [300, set({ delayMs: 300 })],
      [900, set({ delayMs: 0 })],
    ],
    ms: 1500,
  },
  "late-finish": {
    says: "the same with `finish`: the valid rest of the chunk before is executed",
    finish: true,
    deadlineMs: 120,
    events: [
      [300, set({ delayMs: 300 })],
      [900, set({ delayMs: 0 })],
    ],
    ms: 1500,
  },
  failover: {
    says: "who serves dies; its equal takes over",
    events: [
      [400, set({ dead: 1 })],
      [800, set({ dead: 2 })],
    ],
  },
  "nobody-serves": {
    says: "all providers die, and come back",
    events: [
      [300, set({ dead: 3 })],
      [600, set({ dead: 0 })],
    ],
    ms: 1800,
  },
  resume: {
    says: "the connection breaks twice; the session goes on",
    events: [
      [300, (stage) => stage.break()],
      [750, (stage) => stage.break()],
    ],
  },
  "resume-finish": {
    says: "the same with `finish`: the valid rest of the chunk before is executed meanwhile",
    finish: true,
    horizon: 16,
    events: [[400, (stage) => stage.break()]],
  },
  episodes: {
    says: "two resets while chunks are on their way: nothing of one episode is executed in the next",
    events: [
      [0, set({ delayMs: 35, linkMs: 30 })],
      [400, (stage) => stage.reset()],
      [800, (stage) => stage.reset()],
    ],
  },
  stopped: {
    says: "an emergency stop ends the loop: nothing of the chunk before is executed, whatever `finish` says",
    finish: true,
    horizon: 16,
    events: [
      [
        500,
        async (stage) =>
          void (await stage.app.call("/v1/robots/stop", { robot_id: "traced", reason: "a test" }, { key: stage.key })),
      ],
    ],
    ms: 800,
  },
  "out-of-bounds": {
    says: "chunks beyond the bounds for a while: the robot holds, whatever `finish` says",
    finish: true,
    events: [
      [300, set({ gain: 1e6 })],
      [600, set({ gain: 1 })],
    ],
  },
  rejected: {
    says: "observations change their shape: the loop gives up after three",
    events: [[400, set({ sensed: 2 })]],
    ms: 800,
  },
  "rate-limited": {
    says: "the key's rate limit is used up: with `finish` chunks last longer than the holds between them",
    finish: true,
    horizon: 16,
    events: [],
    ms: 1500,
  },
  "slow-link": {
    says: "what the gateway sends takes long on its way: what is too old when it comes is not executed",
    deadlineMs: 150,
    horizon: 16,
    events: [
      [300, set({ linkMs: 190 })],
      [700, set({ linkMs: 0 })],
    ],
    ms: 1600,
  },
  interrupted: {
    says: "the robot's program interrupts",
    events: [
      [0, set({ delayMs: 35 })],
      [400, (stage) => void stage.note({ stop: "interrupted" })],
    ],
    ms: 700,
  },
  "clock-back": {
    says: "the robot's clock goes back: the loop is over",
    events: [[400, set({ aheadMs: -200 })]],
    ms: 700,
  },
  "left-out": {
    says: "the robot leaves out control steps: they are left out of the chunk too",
    events: [
      [300, set({ skip: 3 })],
      [600, set({ skip: 12 })],
    ],
  },
};

/** Records every scenario with its own gateway and two model servers. */
export async function record(): Promise<void> {
  const [app, one, two] = await Promise.all([openApp(), startModel(), startModel()]);
  try {
    const offering = { model: "acme/base", price_per_action_step: 0.0001, max_horizon: 16 };
    await app.supply({ provider: "one", endpoint: one.endpoint, ...offering });
    await app.supply({ provider: "two", endpoint: two.endpoint, ...offering });
    for (const [name, scenario] of Object.entries(SCENARIOS)) {
      const caller = await app.caller(10, { role: "owner", rate_limit: BOUNDLESS });
      const stage = new Stage(app, caller, [one, two], name, scenario);
      if (name === "rate-limited")
        stage.key = await app.key(caller.org, {
          role: "operator",
          rate_limit: { requests: 10, window_s: 1, burst: 4, concurrency: 4 },
        });
      await stage.play();
      const { says, finish = false } = scenario;
      const head: TraceHead = { trace: name, says, rate_hz: RATE_HZ, finish, episode: 1 };
      const lines = [head, ...stage.lines].map((line) => `${JSON.stringify(line)}\n`);
      writeFileSync(new URL(`${name}.jsonl`, FOLDER), lines.join(""));
    }
  } finally {
    await Promise.all([app.close(), one.close(), two.close()]);
  }
}
