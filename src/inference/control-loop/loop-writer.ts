/** The messages to a loop's client, and whether it reads them. */
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

/** How a loop's words are made. */
interface LoopWriterOptions {
  readonly speaker: StreamWriter<ActStreamResponse>;
  /** The stream's identifier, which is a part of the names of its chunks. */
  readonly streamId: string;
  readonly space: string;
  readonly deadlineMs: number;
  readonly tally: LoopCounts;
  /** Counts for the log. */
  readonly stretch: StretchCounts;
  /** Called, soon, when the caller has stopped to read. */
  readonly unread: () => void;
}

/** Speaks to one caller. */
export class LoopWriter {
  readonly #options: LoopWriterOptions;
  /** What the names of its chunks begin with. */
  #name: Buffer | undefined;
  #behindSince: number | undefined;
  /** The last chunk that was charged, and the last route that was sent. */
  #last: LoopChunk | undefined;
  #lastAt = 0;
  #route: Route | undefined;
  /** Number of the episode that chunks and holds are of. */
  #episode = 1;

  constructor(options: LoopWriterOptions) {
    this.#options = options;
  }

  /** The last chunk that was charged, with its route, for a stream that resumes the session. */
  get last(): ResumedChunk | undefined {
    if (!this.#last) return undefined;
    const last = ownOf(this.#last);
    return { chunk: this.#route ? { ...last, route: this.#route } : last, toldAt: this.#lastAt };
  }

  /** Number of the episode. */
  get episode(): number {
    return this.#episode;
  }

  /** From now on everything is of the episode of this number. A chunk of another one is forgotten. */
  enter(episode: number): void {
    if (episode !== this.#episode) this.#last = undefined;
    this.#episode = episode;
  }

  /** Whether messages wait because the caller does not read. */
  get behind(): boolean {
    return this.#behindSince !== undefined;
  }

  /** Milliseconds since the caller last read, while messages wait. */
  unreadMs(now: number): number {
    return this.#behindSince === undefined ? 0 : now - this.#behindSince;
  }

  /** The caller reads again; false where it never stopped. */
  room(): boolean {
    const wasBehind = this.#behindSince !== undefined;
    this.#behindSince = undefined;
    return wasBehind;
  }

  /** Takes the last chunk's steps out of what came with them: packed ones hold on to all of it, other loops' chunks too. */
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

  /** A chunk that was just charged, by `route` where that is news. */
  chunk(effect: DeliverEffect<ParsedObservation>, charge: Charge, at: number, route: Route | undefined): void {
    const { space, streamId, tally, stretch } = this.#options;
    stretch.chunk(effect.tries);
    this.#route = route ?? this.#route;
    tally.chunk(at, effect.ageMs + at - effect.at, charge, effect.answer.gpuSeconds);
    this.#lastAt = at;
    this.#name ??= nameOf(streamId);
    this.#last = chunkOf(effect, charge, { at, name: this.#name, space, route, episode: this.#episode });
    this.#say("chunk", this.#last);
  }

  /** What was charged on the stream before is given again, unless it is too old by now; either way it costs nothing. */
  replay({ chunk, toldAt }: ResumedChunk, dropped: number): void {
    // Now: what asked for it may have waited until the stream was open.
    const at = steadyNow();
    const ageMs = chunk.observationAgeMs + at - toldAt;
    const late = { kind: "hold", at, step: chunk.startStep, reason: HoldReason.LATE, ageMs, detail: "" } as const;
    if (ageMs >= this.#options.deadlineMs) this.hold({ ...late, tries: [], dropped });
    else this.#say("chunk", replayOf(chunk, ageMs, dropped));
  }

  hold(hold: HoldEffect): void {
    this.#options.tally.hold(hold.reason);
    this.#options.stretch.hold(hold.reason, hold.tries);
    // A caller that does not read is sent no more.
    if (this.#behindSince === undefined) this.#say("hold", holdOf(hold, steadyNow(), this.#episode));
  }

  /** Sends the last message and ends the stream. A loop that was never announced to its caller is only refused. */
  end(refusal: Refusal | undefined, opened: boolean, dropped: number): void {
    const { speaker, tally } = this.#options;
    if (opened) speaker.say(endedOf(refusal, tally, dropped));
    speaker.end(refusal);
  }

  #say<C extends LoopMessage["case"]>(name: C, value: Extract<LoopMessage, { case: C }>["value"]): void {
    const { speaker, unread } = this.#options;
    // The pair was just checked.
    const event = { case: name, value } as LoopMessage;
    speaker.say({ $typeName: "limber.v1.ActStreamResponse", event });
    if (this.#behindSince !== undefined || !speaker.behind) return;
    this.#behindSince = steadyNow();
    // Not at once: what is being carried out comes first.
    queueMicrotask(() => {
      if (this.#behindSince !== undefined) unread();
    });
  }
}

/** What the names of a stream's chunks begin with. */
function nameOf(streamId: string): Buffer {
  const name = `chunk${streamId.slice(streamId.indexOf("_"))}-`;
  // Not from the pool of small buffers, of which it would keep eight kilobytes.
  const bytes = Buffer.allocUnsafeSlow(name.length);
  bytes.write(name, "latin1");
  return bytes;
}

/** A chunk's route, where it is news. */
export const newRoute = (effect: DeliverEffect<ParsedObservation>): Route | undefined =>
  effect.moved || effect.tries.length > 1 ? routeOf(effect) : undefined;

/** One member of what a stream says. */
type LoopMessage = Exclude<ActStreamResponse["event"], { case: undefined }>;

/** Milliseconds, to the microsecond. */
const rounded = (ms: number): number => Math.round(ms * 1000) / 1000;

/** The first message: the offering, the rhythm, the price, and the point from which the session is resumed. */
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

/** A chunk that leaves at `at`. `name` is what the names of all chunks of its stream begin with. Written out, because a loop makes thousands a second. */
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

/** The same chunk with steps of its own: packed ones hold on to all that came with them, other loops' chunks too. */
function ownOf(chunk: LoopChunk): LoopChunk {
  const { action, chunkId } = chunk;
  if (!(action instanceof SentAction)) return chunk;
  const { $typeName, space, steps, dtMs, note } = action;
  return { ...chunk, chunkId, action: { $typeName, space, steps, dtMs, note } };
}

/** A chunk that was charged on an earlier stream, given again. */
const replayOf = (chunk: LoopChunk, ageMs: number, dropped: number): LoopChunk => ({
  ...chunk,
  chunkId: chunk.chunkId,
  observationAgeMs: rounded(ageMs),
  usage: create(ActUsageSchema, { actionSteps: 0 }),
  droppedObservations: dropped,
  replayed: true,
});

/** A hold that leaves at `at`. */
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

/** An answer that came and may not leave, `waitedMs` after it came. */
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

/** The last words. */
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

/** What a chunk says beside its name. */
type SentMessage = Omit<LoopChunk, "$typeName" | "$unknown" | "chunkId" | "replayed">;

/** A chunk that leaves for the first time. Its name ends with its step, and becomes a text when it is read. */
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

  /** `name` is what the names of all chunks of its stream begin with, in plain letters. */
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

  /** The beginning of its name, for gRPC's quick writer. */
  get name(): Uint8Array {
    return this.#name;
  }
}
