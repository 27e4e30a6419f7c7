/**
 * Robots that are connected to this replica and wait for runs. An agent's run is a control loop of the agent's key, opened through the
 * gate: its observations come from the robot and its chunks go to the robot. Every condition that ends the run is checked before each chunk
 * is forwarded.
 */
import { create, fromJson, type MessageInitShape } from "@bufbuild/protobuf";
import { type SafetyBounds, SafetyBoundsSchema } from "../../gen/limber/v1/action_pb.ts";
import { type Arming, ArmingSchema, type PolicyRun, PolicyRunSchema } from "../../gen/limber/v1/arming_pb.ts";
import {
  type AttendOpen,
  type AttendRobotRequest,
  type AttendRobotResponse,
  AttendRobotResponseSchema,
} from "../../gen/limber/v1/arming_service_pb.ts";
import { HoldReason, type LoopObservation } from "../../gen/limber/v1/control_loop_pb.ts";
import {
  type ActStreamRequest,
  ActStreamRequestSchema,
  type ActStreamResponse,
} from "../../gen/limber/v1/inference_service_pb.ts";
import { type Call, type KeyPrincipal, keyOf, type StreamHandler, type StreamWriter } from "../call.ts";
import { Cancel } from "../cancellation.ts";
import { after, every, now } from "../clock.ts";
import { assertBounds, exceeds } from "../contracts/act.ts";
import { violation } from "../contracts/contract.ts";
import { factsOf, Reason, Refusal, refuse } from "../errors.ts";
import type { Notifications } from "../store/database/notifications.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import {
  type ArmingRecord,
  endArming,
  endRun,
  findArming,
  findRun,
  type RunCounts,
  type RunRecord,
  renewRun,
  takeRun,
} from "../store/robots.ts";
import type { ActiveStops, Mover } from "./stops.ts";

/** Milliseconds within which a robot must send `open`. */
const OPEN_WITHIN_MS = 10_000;
/** Interval at which a run renews its record. */
const RENEW_MS = 2_000;
const MICRO_PER_USD = 1_000_000;

/** The part of the gate that runs need. The gate is opened after all services. */
export interface LoopOpener {
  /**
   * Opens a control loop for a key, counted against its limits. `again` is called periodically and rejects if the loop must end, in
   * addition to the checks of the key itself. Rejects with a refusal if the key cannot open a loop.
   */
  open(
    keyId: string,
    speaker: StreamWriter<ActStreamResponse>,
    options: { readonly requestId: string; readonly signal: Cancel; readonly again: () => Promise<void> },
  ): Promise<StreamHandler<ActStreamRequest>>;
  /** Refuses if the key is no longer allowed to arm robots, or if the session that it armed in has ended. */
  assertMayArm(keyId: string, sessionId: string | undefined): Promise<void>;
}

/** Dependencies of attended robots. */
interface AttendedDeps {
  readonly sql: Sql;
  readonly notifications: Notifications;
  readonly stops: ActiveStops;
  readonly warn: (text: string, cause: unknown) => void;
}

/** The robots connected to this replica. */
export class AttendedRobots {
  readonly #deps: AttendedDeps;
  readonly #robots = new Set<AttendedRobot>();
  readonly #waiting = new Set<() => void>();
  readonly #off: () => void;
  #opener: LoopOpener | undefined;
  #isDraining = false;

  constructor(deps: AttendedDeps) {
    this.#deps = deps;
    const look = (robot: AttendedRobot): void => robot.look();
    this.#off = deps.notifications.on(
      "robot_run",
      (payload) => {
        for (const robot of this.#robots) if (robot.name === payload) look(robot);
        for (const wake of this.#waiting) wake();
      },
      () => this.#robots.forEach(look),
    );
  }

  /** Sets how runs are opened. */
  bind(opener: LoopOpener): void {
    this.#opener = opener;
  }

  /** Returns how loops are opened. Refuses while the gateway is starting. */
  get opener(): LoopOpener {
    if (this.#opener === undefined) throw refuse(Reason.NOT_READY, "the gateway is starting; retry");
    return this.#opener;
  }

  /** Resolves when a run changes, or after `ms`. */
  changed(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        forget();
        this.#waiting.delete(done);
        resolve();
      };
      const forget = after(ms, done);
      this.#waiting.add(done);
    });
  }

  /** Serves one robot's stream. */
  attend(speaker: StreamWriter<AttendRobotResponse>, call: Call): StreamHandler<AttendRobotRequest> {
    const robot = new AttendedRobot(this.#deps, speaker, call, {
      opener: () => this.opener,
      gone: () => this.#robots.delete(robot),
    });
    this.#robots.add(robot);
    if (this.#isDraining) robot.drain();
    call.signal.addEventListener("abort", () => robot.leave(), { once: true });
    return robot;
  }

  /** Moves robots to other replicas, each as soon as it has no run. */
  drain(): void {
    this.#isDraining = true;
    for (const robot of [...this.#robots]) robot.drain();
  }

  /** Ends the remaining streams and stops listening for notifications. */
  close(): void {
    this.#off();
    for (const robot of [...this.#robots]) robot.cut(closing());
  }
}

/** A run that moves the robot. */
interface Running {
  readonly run: RunRecord;
  readonly arming: ArmingRecord;
  readonly episode: number;
  readonly cancel: Cancel;
  readonly forget: (() => void)[];
  listener: StreamHandler<ActStreamRequest> | undefined;
  counts: RunCounts;
  /** The newest observation that arrived before the loop was open. */
  early: LoopObservation | undefined;
}

type Said = MessageInitShape<typeof AttendRobotResponseSchema>["event"];

/** One connected robot. */
class AttendedRobot implements StreamHandler<AttendRobotRequest> {
  readonly #deps: AttendedDeps;
  readonly #speaker: StreamWriter<AttendRobotResponse>;
  readonly #key: KeyPrincipal;
  readonly #requestId: string;
  readonly #opener: () => LoopOpener;
  readonly #gone: () => void;
  readonly #forgetOpen: () => void;
  #open: AttendOpen | undefined;
  #robotId = "";
  #running: Running | undefined;
  #episode = 0;
  #isLooking = false;
  #looksAgain = false;
  #isOver = false;
  #isDraining = false;

  constructor(
    deps: AttendedDeps,
    speaker: StreamWriter<AttendRobotResponse>,
    call: Call,
    { opener, gone }: { opener: () => LoopOpener; gone: () => void },
  ) {
    this.#deps = deps;
    this.#speaker = speaker;
    this.#key = keyOf(call);
    this.#requestId = call.requestId;
    this.#opener = opener;
    this.#gone = gone;
    this.#forgetOpen = after(OPEN_WITHIN_MS, () =>
      this.cut(refuse(Reason.REQUEST_TIMEOUT, "no `open` message arrived in time")),
    );
  }

  /** Its name in notifications. */
  get name(): string {
    return `${this.#key.orgId} ${this.#robotId}`;
  }

  hear({ message }: AttendRobotRequest): void {
    if (message.case === "open") this.#begin(message.value);
    else if (this.#open === undefined) throw violation("open", "must be the first message", "missing");
    else if (message.case === "observation") this.#observe(message.value);
    else this.close();
  }

  room(): void {
    this.#running?.listener?.room();
  }

  close(): void {
    this.#end("robot_left");
  }

  cut(refusal: Refusal): void {
    this.#end("robot_left", refusal);
  }

  leave(): void {
    this.#end("robot_left");
  }

  /** Ends the stream as soon as no run moves the robot. */
  drain(): void {
    this.#isDraining = true;
    if (this.#running === undefined) this.cut(closing());
  }

  /** Looks for a waiting run, and checks whether the present one has ended elsewhere. */
  look(): void {
    if (this.#open === undefined || this.#isOver) return;
    this.#looksAgain = true;
    if (this.#isLooking) return;
    this.#isLooking = true;
    void (async () => {
      while (this.#looksAgain && !this.#isOver) {
        this.#looksAgain = false;
        await this.#look();
      }
    })()
      .catch((thrown) => this.#deps.warn("failed to read a robot's runs", thrown))
      .finally(() => {
        this.#isLooking = false;
      });
  }

  #begin(open: AttendOpen): void {
    if (this.#open !== undefined) throw violation("open", "must be sent only once, as the first message", "unexpected");
    const robotId = open.robotId ?? this.#key.robotId;
    if (robotId === undefined)
      throw violation("open.robot_id", "is required because this key is not bound to a robot", "missing");
    if (this.#key.robotId !== undefined && robotId !== this.#key.robotId)
      throw refuse(Reason.SCOPE_DENIED, "this key is bound to another robot", { needed: [robotId] });
    assertBounds(open.bounds, undefined, "open.bounds");
    this.#forgetOpen();
    this.#robotId = robotId;
    this.#open = open;
    this.#say({ case: "opened", value: { id: this.#requestId, robotId } });
    this.look();
  }

  async #look(): Promise<void> {
    const running = this.#running;
    if (running !== undefined) {
      const run = await findRun(this.#deps.sql, running.run.id);
      if (run === undefined || run.ended !== undefined) this.#finish(running, run?.why ?? "lost");
      if (this.#running !== undefined) return;
    }
    const { orgId, workspaceId } = this.#key;
    const taken = await takeRun(this.#deps.sql, { orgId, workspaceId, robotId: this.#robotId });
    if (taken === undefined) return;
    // A robot that has disconnected cannot carry out a run.
    if (this.#isOver) await endRun(this.#deps.sql, taken.run.id, "robot_left");
    else await this.#start(taken.run, taken.arming);
  }

  async #start(run: RunRecord, arming: ArmingRecord): Promise<void> {
    const cancel = new Cancel();
    const running: Running = {
      ...{ run, arming, cancel },
      episode: ++this.#episode,
      forget: [],
      listener: undefined,
      early: undefined,
      counts: { chunks: 0, holds: 0, costMicro: 0 },
    };
    this.#running = running;
    const refusal = this.#refusalOf(running);
    if (refusal !== undefined) return this.#finish(running, factsOf(refusal.reason).code);
    const leftMs = Math.min(run.maxSeconds * 1000, arming.ends * 1000 - now());
    running.forget.push(after(Math.max(0, leftMs), () => this.#finish(running, "max_seconds")));
    running.forget.push(every(RENEW_MS, () => void this.#renew(running)));
    this.#say({ case: "run", value: { run: runMessage(run), episode: running.episode } });
    try {
      const speaker = this.#speakerFor(running);
      const again = (): Promise<void> => this.#assertArmed(arming);
      await again();
      const listener = await this.#opener().open(run.keyId, speaker, {
        requestId: `req${run.id.slice(run.id.indexOf("_"))}`,
        signal: cancel,
        again,
      });
      if (this.#running !== running) return listener.cut(called());
      running.listener = listener;
      listener.hear(this.#opening(running));
      if (running.early !== undefined) this.#observe(running.early);
    } catch (thrown) {
      if (!(thrown instanceof Refusal)) this.#deps.warn("failed to start a run", thrown);
      this.#finish(running, thrown instanceof Refusal ? factsOf(thrown.reason).code : "internal_error");
    }
  }

  /** Refuses if the arming has ended, or if its owner is no longer allowed to arm the robot; the latter also ends the arming. */
  async #assertArmed({ id, createdBy, sessionId }: ArmingRecord): Promise<void> {
    const arming = await findArming(this.#deps.sql, id);
    if (!arming?.stands) throw refuse(Reason.ROBOT_NOT_ARMED, "the robot is no longer armed for this agent");
    await assertOperator(this.#deps.sql, this.#opener(), { id, createdBy, sessionId });
  }

  #opening({ run, arming, episode }: Running): ActStreamRequest {
    const { actionSpace, horizon, deadlineMs, embodiment } = this.#open!; // it runs, so that it has opened
    const value = {
      model: run.model,
      actionSpace,
      episode,
      robotId: this.#robotId,
      provider: { sessionId: run.id, ...(deadlineMs !== undefined && { deadlineMs }) },
      ...(run.instruction !== "" && { instruction: run.instruction }),
      ...(horizon !== undefined && { horizon }),
      ...(embodiment !== undefined && { embodiment }),
      ...(arming.bounds !== undefined && { bounds: boundsOf(arming.bounds) }),
    };
    return create(ActStreamRequestSchema, { message: { case: "open", value } });
  }

  #observe(observation: LoopObservation): void {
    const running = this.#running;
    if (running === undefined) return;
    if (running.listener === undefined) running.early = observation;
    else
      running.listener.hear(create(ActStreamRequestSchema, { message: { case: "observation", value: observation } }));
  }

  #speakerFor(running: Running): StreamWriter<ActStreamResponse> {
    const speaker = this.#speaker;
    return {
      say: ({ event }) => {
        if (this.#running !== running) return;
        if (event.case === "chunk") this.#pass(running, event);
        else if (event.case === "hold") {
          running.counts = { ...running.counts, holds: running.counts.holds + 1 };
          this.#say(event);
        }
      },
      get behind() {
        return speaker.behind;
      },
      end: (refusal) => this.#finish(running, refusal instanceof Refusal ? factsOf(refusal.reason).code : "robot_left"),
    };
  }

  /** Forwards a chunk, unless something has ended the run or the chunk exceeds the robot's own bounds. */
  #pass(running: Running, event: Extract<ActStreamResponse["event"], { case: "chunk" }>): void {
    const refusal = this.#refusalOf(running);
    if (refusal !== undefined) {
      this.#finish(running, factsOf(refusal.reason).code);
      return;
    }
    const { action, usage, startStep, episode, observationAgeMs } = event.value;
    const { chunks, holds, costMicro } = running.counts;
    const cost = costMicro + Math.round((usage?.costUsd ?? 0) * MICRO_PER_USD);
    const steps = { steps: action?.steps ?? [], dtMs: 0, note: "", prediction: [], gpuSeconds: 0 };
    if ([this.#key.bounds, this.#open?.bounds].some((bounds) => exceeds(bounds, steps))) {
      running.counts = { chunks, holds: holds + 1, costMicro: cost };
      const reason = HoldReason.OUT_OF_BOUNDS;
      this.#say({ case: "hold", value: { step: startStep, reason, episode, observationAgeMs } });
      return;
    }
    running.counts = { chunks: chunks + 1, holds, costMicro: cost };
    this.#say(event);
  }

  /** Returns why the robot must not move; undefined if it can. */
  #refusalOf({ run }: Running): Refusal | undefined {
    // The agent's own key is checked by its loop.
    const mover: Mover = { key: this.#key, sessionId: run.id, robotIds: [this.#robotId, this.#key.robotId] };
    const refusal = this.#deps.stops.refusalOf(mover);
    if (refusal !== undefined) return refusal;
    const { models } = this.#key;
    const may =
      models.length === 0 || models.some((glob) => glob === run.model || glob === `${run.model.split("/")[0]}/*`);
    return may ? undefined : refuse(Reason.MODEL_NOT_IN_SCOPE, "the robot's own key cannot use this model");
  }

  async #renew(running: Running): Promise<void> {
    const goesOn = await renewRun(this.#deps.sql, running.run.id, running.counts).catch(() => true);
    if (!goesOn) this.look();
  }

  /** Ends a run once. The robot receives nothing else of this run afterwards. */
  #finish(running: Running, why: string): void {
    if (this.#running !== running) return;
    this.#running = undefined;
    for (const forget of running.forget) forget();
    const { listener, run, counts } = running;
    const cut = called();
    listener?.cut(cut);
    running.cancel.abort(cut);
    this.#say({
      case: "over",
      value: { run: runMessage({ ...run, ...counts, ended: Math.floor(now() / 1000), why }) },
    });
    endRun(this.#deps.sql, run.id, why, { counts }).catch((thrown) =>
      this.#deps.warn("failed to record the end of a run", thrown),
    );
    if (this.#isDraining) this.cut(closing());
    else this.look();
  }

  #end(why: string, refusal?: Refusal): void {
    if (this.#isOver) return;
    this.#forgetOpen();
    if (this.#running) this.#finish(this.#running, why);
    this.#isOver = true;
    this.#gone();
    this.#speaker.end(refusal);
  }

  #say(event: Said): void {
    if (!this.#isOver) this.#speaker.say(create(AttendRobotResponseSchema, { event } as { event: NonNullable<Said> }));
  }
}

/** Refuses if the owner of an arming is no longer allowed to arm the robot, and ends the arming. */
export async function assertOperator(
  sql: Sql,
  opener: LoopOpener,
  { id, createdBy, sessionId }: Pick<ArmingRecord, "id" | "createdBy" | "sessionId">,
): Promise<void> {
  try {
    await opener.assertMayArm(createdBy, sessionId);
  } catch (thrown) {
    if (!(thrown instanceof Refusal)) throw thrown;
    await tx(sql, (tx) => endArming(tx, id, "operator_gone"));
    throw refuse(Reason.ROBOT_NOT_ARMED, "the member or key that armed this robot is no longer allowed to arm it");
  }
}

const closing = (): Refusal =>
  refuse(Reason.NOT_READY, "the gateway is shutting down; reconnect", {}, { retryAfter: 1 });
const called = (): Refusal => refuse(Reason.CLIENT_CLOSED_REQUEST, "the run has ended");

/** Parses stored bounds. */
export const boundsOf = (stored: object): SafetyBounds =>
  fromJson(SafetyBoundsSchema, stored as Parameters<typeof fromJson>[1]); // written by toJson

/** Builds the message of an arming. */
export function armingMessage({ bounds, ...arming }: ArmingRecord): Arming {
  const { id, robotId, keyId, clientId, models, maxSeconds, created, createdBy, ends, ended, endedWhy, stands } =
    arming;
  return create(ArmingSchema, {
    ...{ id, robotId, maxSeconds, created, createdBy, ends, stands },
    object: "robot_arming",
    models: [...models],
    ...(keyId !== undefined && { keyId }),
    ...(clientId !== undefined && { clientId }),
    ...(bounds !== undefined && { bounds: boundsOf(bounds) }),
    ...(ended !== undefined && { ended }),
    ...(endedWhy !== undefined && { endedWhy }),
  });
}

/** Builds the message of a run. */
export function runMessage(run: RunRecord): PolicyRun {
  const { id, robotId, armingId, keyId, model, instruction, maxSeconds, created, chunks, holds, costMicro } = run;
  const { started, ended, why } = run;
  return create(PolicyRunSchema, {
    ...{ id, robotId, armingId, keyId, model, instruction, maxSeconds, created, chunks, holds },
    object: "policy_run",
    costUsd: costMicro / MICRO_PER_USD,
    ...(started !== undefined && { started }),
    ...(ended !== undefined && { ended }),
    ...(why !== undefined && { why }),
  });
}
