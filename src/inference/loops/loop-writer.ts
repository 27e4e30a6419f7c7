/** The messages to a loop's caller: chunks, holds, repeated chunks, episodes, the last message; and whether the caller reads them. */
import { create } from "@bufbuild/protobuf";
import {
  HoldReason,
  type LoopChunk,
  LoopEpisodeSchema,
  type LoopOpened,
} from "../../../gen/limber/v1/control_loop_pb.ts";
import type { ActStreamResponse } from "../../../gen/limber/v1/inference_service_pb.ts";
import type { Route } from "../../../gen/limber/v1/route_pb.ts";
import type { Speaker } from "../../call.ts";
import { steadyNow } from "../../clock.ts";
import type { Refusal } from "../../errors.ts";
import { type DeliverEffect, type HoldEffect, routeOf } from "../../routing/index.ts";
import type { Charge } from "../call-billing.ts";
import type { LoopCounts } from "./loop-counts.ts";
import type { StretchCounts } from "./loop-stretch.ts";
import { chunkOf, endedOf, holdOf, type LoopMessage, ownOf, replayOf } from "./messages.ts";
import type { ParsedObservation } from "./observation-view.ts";
import type { ResumedChunk } from "./resumption.ts";

/** How a loop's words are made. */
export interface LoopWriterOptions {
  readonly speaker: Speaker<ActStreamResponse>;
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
