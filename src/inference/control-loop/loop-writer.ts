/** Writes a loop's messages to its client and tracks whether the client reads them. */
import { create } from "@bufbuild/protobuf";
import type { Action } from "../../../gen/limber/v1/action_pb.ts";
import {
  HoldReason,
  type LoopChunk,
  LoopEndedSchema,
  LoopEpisodeSchema,
  type LoopHold,
  type LoopOpened,
  LoopOpenedSchema,
} from "../../../gen/limber/v1/control_loop_pb.ts";
import { type ActUsage, ActUsageSchema } from "../../../gen/limber/v1/inference_pb.ts";
import type { ActStreamResponse } from "../../../gen/limber/v1/inference_service_pb.ts";
import type { InputContract } from "../../../gen/limber/v1/input_contract_pb.ts";
import type { Route } from "../../../gen/limber/v1/route_pb.ts";
import { toUsd } from "../../billing/price.ts";
import type { StreamWriter } from "../../call.ts";
import { nowSeconds, steadyNow } from "../../clock.ts";
import { SentAction } from "../../contracts/act.ts";
import { meaningIn } from "../../contracts/inputs.ts";
import { factsOf, type Refusal } from "../../errors.ts";
import { type DeliverEffect, type HoldEffect, type PlanStep, routeOf } from "../../routing/index.ts";
import type { Charge } from "../call-billing.ts";
import type { ParsedObservation } from "./loop-plan.ts";
import type { LoopCounts, ResumedChunk, StretchCounts } from "./loop-registry.ts";

/** Options for the messages of a loop. */
interface LoopWriterOptions {
  readonly speaker: StreamWriter<ActStreamResponse>;
  /** The stream's id, a part of its chunks' ids. */
  readonly streamId: string;
  readonly space: string;
  readonly deadlineMs: number;
  readonly tally: LoopCounts;
  /** Counts for the log. */
  readonly stretch: StretchCounts;
  /** Called, asynchronously, when the client has stopped reading. */
  readonly unread: () => void;
}

/** Writes to one client. */
export class LoopWriter {
  readonly #options: LoopWriterOptions;
  /** The prefix of its chunks' ids. */
  #name: Buffer | undefined;
  #behindSince: number | undefined;
  /** The last charged chunk, and the last route sent. */
  #last: LoopChunk | undefined;
  #lastAt = 0;
  #route: Route | undefined;
  /** The episode number of chunks and holds. */
  #episode = 1;

  constructor(options: LoopWriterOptions) {
    this.#options = options;
  }

  /** The last charged chunk with its route, for a stream that resumes the session. */
  get last(): ResumedChunk | undefined {
    if (!this.#last) return undefined;
    const last = ownOf(this.#last);
    return { chunk: this.#route ? { ...last, route: this.#route } : last, toldAt: this.#lastAt };
  }

  /** The episode number. */
  get episode(): number {
    return this.#episode;
  }

  /** Sets the episode number of later messages, and drops the last chunk if it belongs to another one. */
  enter(episode: number): void {
    if (episode !== this.#episode) this.#last = undefined;
    this.#episode = episode;
  }

  /** Whether messages are queued because the client does not read. */
  get behind(): boolean {
    return this.#behindSince !== undefined;
  }

  /** Milliseconds since the client last read, while messages are queued. */
  unreadMs(now: number): number {
    return this.#behindSince === undefined ? 0 : now - this.#behindSince;
  }

  /** The client reads again; returns false if it never stopped. */
  room(): boolean {
    const wasBehind = this.#behindSince !== undefined;
    this.#behindSince = undefined;
    return wasBehind;
  }

  /** Copies the last chunk's steps: packed ones keep the complete receive buffer in memory, including other loops' chunks. */
  tidy(): void {
    if (this.#last) this.#last = ownOf(this.#last);
  }

  opened(message: LoopOpened): void {
    this.#say("opened", message);
  }

  /** Acknowledges a reset. */
  acknowledge(): void {
    this.#say("episode", create(LoopEpisodeSchema, { episode: this.#episode }));
  }

  /** Sends a chunk that was just charged, with `route` if it changed. */
  chunk(effect: DeliverEffect<ParsedObservation>, charge: Charge, at: number, route: Route | undefined): void {
    const { space, streamId, tally, stretch } = this.#options;
    const ageMs = effect.ageMs + at - effect.at;
    stretch.chunk(effect.tries, ageMs);
    this.#route = route ?? this.#route;
    tally.chunk(at, ageMs, charge, effect.answer.gpuSeconds);
    this.#lastAt = at;
    this.#name ??= nameOf(streamId);
    this.#last = chunkOf(effect, charge, { at, name: this.#name, space, route, episode: this.#episode });
    this.#say("chunk", this.#last);
  }

  /** Sends the chunk that was charged on the previous stream again, free of charge, unless it has expired. */
  replay({ chunk, toldAt }: ResumedChunk, dropped: number): void {
    // Time now: the request may have waited until the stream was open.
    const at = steadyNow();
    const ageMs = chunk.observationAgeMs + at - toldAt;
    const late = { kind: "hold", at, step: chunk.startStep, reason: HoldReason.LATE, ageMs, detail: "" } as const;
    if (ageMs >= this.#options.deadlineMs) this.hold({ ...late, tries: [], dropped });
    else this.#say("chunk", replayOf(chunk, ageMs, dropped));
  }

  hold(hold: HoldEffect): void {
    this.#options.tally.hold(hold.reason);
    this.#options.stretch.hold(hold.reason, hold.tries);
    // A client that does not read receives nothing more.
    if (this.#behindSince === undefined) this.#say("hold", holdOf(hold, steadyNow(), this.#episode));
  }

  /** Sends the last message and ends the stream. A loop that has not sent `opened` is only refused. */
  end(refusal: Refusal | undefined, opened: boolean, dropped: number): void {
    const { speaker, tally } = this.#options;
    if (opened) speaker.say(endedOf(refusal, tally, dropped));
    speaker.end(refusal);
  }

  #say<C extends LoopMessage["case"]>(name: C, value: Extract<LoopMessage, { case: C }>["value"]): void {
    const { speaker, unread } = this.#options;
    // The pair was checked above.
    const event = { case: name, value } as LoopMessage;
    speaker.say({ $typeName: "limber.v1.ActStreamResponse", event });
    if (this.#behindSince !== undefined || !speaker.behind) return;
    this.#behindSince = steadyNow();
    // Asynchronously, because present effects come first.
    queueMicrotask(() => {
      if (this.#behindSince !== undefined) unread();
    });
  }
}

/** The prefix of a stream's chunk ids. */
function nameOf(streamId: string): Buffer {
  const name = `chunk${streamId.slice(streamId.indexOf("_"))}-`;
  // Not from the buffer pool, which would keep 8 kB in memory.
  const bytes = Buffer.allocUnsafeSlow(name.length);
  bytes.write(name, "latin1");
  return bytes;
}

/** A chunk's route, if it changed. */
export const newRoute = (effect: DeliverEffect<ParsedObservation>): Route | undefined =>
  effect.moved || effect.tries.length > 1 ? routeOf(effect) : undefined;

/** One field of a stream's messages. */
type LoopMessage = Exclude<ActStreamResponse["event"], { case: undefined }>;

/** Milliseconds, to the microsecond. */
const rounded = (ms: number): number => Math.round(ms * 1000) / 1000;

/** The first message: offering, rate, price, and the point at which the session resumes. */
export function openedOf({
  id,
  step,
  units,
  deadlineMs,
  resumed,
  last,
  episode,
  space,
  input,
}: {
  id: string;
  step: PlanStep;
  units: number;
  deadlineMs: number;
  resumed: boolean;
  last: LoopChunk | undefined;
  episode: number;
  space: string;
  input: InputContract | undefined;
}): LoopOpened {
  const { declared } = step.offering;
  return create(LoopOpenedSchema, {
    id,
    created: nowSeconds(),
    route: routeOf({ tries: [], step, hedgeMicro: undefined }),
    dtMs: step.offering.dtMs,
    horizon: units,
    deadlineMs: Math.round(deadlineMs),
    chunkCostUsd: toUsd(step.listMicro),
    resumed,
    episode,
    ...(last && { resumedStep: last.startStep }),
    input,
    actions: declared && meaningIn(declared.actions, space),
  });
}

/** A chunk sent at `at`. `name` is the prefix of its stream's chunk ids. Written out, because a loop sends thousands a second. */
function chunkOf(
  effect: DeliverEffect<ParsedObservation>,
  { units, costMicro, hedgeMicro = 0 }: Charge,
  {
    at,
    name,
    space,
    route,
    episode,
  }: { at: number; name: Uint8Array; space: string; route: Route | undefined; episode: number },
): LoopChunk {
  const { view, answer, step } = effect;
  return new SentChunk(name, {
    action: new SentAction(space, answer, answer.dtMs || step.offering.dtMs),
    startStep: view.step,
    validUntilStep: effect.validUntil,
    observationAgeMs: rounded(effect.ageMs + at - effect.at),
    episodeBreak: effect.episodeBreak,
    usage: {
      $typeName: "limber.v1.ActUsage",
      actionSteps: units,
      gpuSeconds: answer.gpuSeconds,
      costUsd: toUsd(costMicro + hedgeMicro),
    },
    droppedObservations: effect.dropped,
    observationTime: view.tMs,
    route,
    episode,
  });
}

/** The same chunk with its own copy of the steps: packed ones keep the complete receive buffer in memory, including other loops' chunks. */
function ownOf(chunk: LoopChunk): LoopChunk {
  const { action, chunkId } = chunk;
  if (!(action instanceof SentAction)) return chunk;
  const { $typeName, space, steps, dtMs, note } = action;
  return { ...chunk, chunkId, action: { $typeName, space, steps, dtMs, note } };
}

/** A chunk that was charged on an earlier stream, sent again. */
const replayOf = (chunk: LoopChunk, ageMs: number, dropped: number): LoopChunk => ({
  ...chunk,
  chunkId: chunk.chunkId,
  observationAgeMs: rounded(ageMs),
  usage: create(ActUsageSchema, { actionSteps: 0 }),
  droppedObservations: dropped,
  replayed: true,
});

/** A hold sent at `at`. */
const holdOf = (hold: HoldEffect, at: number, episode: number): LoopHold => ({
  $typeName: "limber.v1.LoopHold",
  step: hold.step,
  reason: hold.reason,
  observationAgeMs: rounded(hold.ageMs + at - hold.at),
  detail: hold.detail,
  droppedObservations: hold.dropped,
  episode,
  ...(hold.tries.length > 0 && { route: routeOf({ tries: hold.tries, step: undefined, hedgeMicro: undefined }) }),
});

/** A response that arrived but must not be sent, `waitedMs` after it arrived. */
export const heldBack = (
  effect: DeliverEffect<ParsedObservation>,
  reason: HoldReason,
  waitedMs: number,
): HoldEffect => ({
  kind: "hold",
  at: effect.at + waitedMs,
  step: effect.view.step,
  reason,
  ageMs: effect.ageMs + waitedMs,
  detail: "",
  tries: effect.tries,
  dropped: effect.dropped,
});

/** The last message. */
function endedOf(refusal: Refusal | undefined, tally: LoopCounts, dropped: number): ActStreamResponse {
  const code = refusal === undefined ? "" : factsOf(refusal.reason).code;
  const { chunks, holds, effectiveHz, staleRatio, jitterMs } = tally.whole.figures;
  const { usage } = tally;
  const told = { code, chunks, holds, droppedObservations: dropped, usage, effectiveHz, staleRatio, jitterMs };
  return {
    $typeName: "limber.v1.ActStreamResponse",
    event: { case: "ended", value: create(LoopEndedSchema, told) },
  };
}

/** The fields of a chunk beside its id. */
type SentMessage = Omit<LoopChunk, "$typeName" | "$unknown" | "chunkId" | "replayed">;

/** A chunk sent for the first time. Its id ends with its step, and is formatted on first access. */
class SentChunk implements LoopChunk {
  readonly $typeName = "limber.v1.LoopChunk";
  readonly action: Action | undefined;
  readonly startStep: number;
  readonly validUntilStep: number;
  readonly observationTime: number | undefined;
  readonly observationAgeMs: number;
  readonly route: Route | undefined;
  readonly episodeBreak: boolean;
  readonly usage: ActUsage | undefined;
  readonly droppedObservations: number;
  readonly replayed = false;
  readonly episode: number;
  readonly #name: Uint8Array;

  /** `name` is the prefix of its stream's chunk ids, in ASCII. */
  constructor(name: Uint8Array, said: SentMessage) {
    this.#name = name;
    this.action = said.action;
    this.startStep = said.startStep;
    this.validUntilStep = said.validUntilStep;
    this.observationTime = said.observationTime;
    this.observationAgeMs = said.observationAgeMs;
    this.route = said.route;
    this.episodeBreak = said.episodeBreak;
    this.usage = said.usage;
    this.droppedObservations = said.droppedObservations;
    this.episode = said.episode;
  }

  get chunkId(): string {
    return `${Buffer.from(this.#name).toString("latin1")}${this.startStep}`;
  }

  /** The prefix of its id, for gRPC's fast writer. */
  get name(): Uint8Array {
    return this.#name;
  }
}
