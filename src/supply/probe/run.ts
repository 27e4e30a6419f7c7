/** One run of the probe: what its checks share. */
import { create } from "@bufbuild/protobuf";
import type { SafetyBounds } from "../../../gen/limber/v1/action_pb.ts";
import { FrameSchema, type Observation, ObservationSchema } from "../../../gen/limber/v1/observation_pb.ts";
import { Cancel } from "../../cancellation.ts";
import { after, steadyNow } from "../../clock.ts";
import { dimensionOf } from "../../contracts/action-spaces.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import { newId } from "../../ids.ts";
import type { Offering } from "../../routing/index.ts";
import type { OfferingRecord } from "../../store/supply/supply.ts";
import type { LimberPolicyWire } from "../../upstream/limber-policy/index.ts";
import { type FrameOptions, FrameSet } from "../../upstream/pictures/frames.ts";
import { frameSources } from "../../upstream/pictures/order.ts";
import { redSquare } from "../../upstream/pictures/test-picture.ts";
import type { CallOptions, UpstreamTarget, Wire } from "../../upstream/wire.ts";
import { adviceFor } from "./faults.ts";

/** Whom questions go to. */
export interface ProbeSubject {
  offering: Offering;
  target: UpstreamTarget;
  wire: Wire;
  /** What no action of it may exceed. */
  bounds: SafetyBounds | undefined;
}

/** What is probed. */
export interface Probed extends ProbeSubject {
  /** What was declared of it, and of its provider's regions. */
  record: OfferingRecord;
}

/** What a probe depends on. */
export interface ProbeDeps {
  agent: FrameOptions["agent"];
  allowPrivate: boolean;
  /** Can be asked what it serves, where it is the offering's wire. */
  native: LimberPolicyWire;
}

interface ProbeCheck {
  name: string;
  passed: boolean;
  required: boolean;
  detail: string;
  latencyMs: number;
  nextStep?: string;
}

/** How a question differs from the plain one. */
export interface Twist {
  target?: UpstreamTarget;
  seed?: number;
  horizon?: number;
  /** Answers are not measured: they are not what calls will be like. */
  aside?: boolean;
}

/** What a server expects to see. */
interface Layout {
  proprioNames: readonly string[];
  proprioDim: number;
  cameras: readonly string[];
}

/** What the checks of one probe ask with, and what they found. */
export class ProbeRun {
  /** It had no time for us, which says nothing about what it can do. */
  busy = false;
  readonly #deps: ProbeDeps;
  /** Whom it asks. */
  readonly probed: ProbeSubject;
  readonly #told: (check: ProbeCheck) => Promise<void>;
  readonly #latencies: number[] = [];
  /** The calls of the present check, and what ends the patience with each. */
  #calls: { readonly signal: Cancel; readonly forget: () => void }[] = [];
  /** How many numbers a step of its answers had. */
  actionDim: number | undefined;
  /** How many steps its shortest chunk had, where it answers chunks of its own length. */
  chunkSteps: number | undefined;
  #asked: Promise<Layout> | undefined;

  readonly #budgetMs: number;

  /** `budgetMs` is the time of one call. */
  constructor(
    deps: ProbeDeps,
    probed: ProbeSubject,
    told: (check: ProbeCheck) => Promise<void>,
    budgetMs = probed.offering.coldTimeoutMs ?? probed.offering.timeoutMs,
  ) {
    this.#budgetMs = budgetMs;
    this.#deps = deps;
    this.probed = probed;
    this.#told = told;
  }

  /** Runs one check; `look` gives a sentence of what was seen, or throws one of what to mend. Answers whether it passed. */
  async check(name: string, look: () => Promise<string>, required = true): Promise<boolean> {
    const began = steadyNow();
    let passed = true;
    let detail: string;
    let nextStep: string | undefined;
    try {
      detail = await look();
    } catch (thrown) {
      passed = false;
      detail = thrown instanceof Error ? thrown.message : String(thrown);
      nextStep = adviceFor(name, thrown);
      if (thrown instanceof UpstreamFailure && thrown.failure === AttemptFailure.UPSTREAM_BUSY) this.busy = true;
    }
    this.rest();
    const latencyMs = Math.round((steadyNow() - began) * 1000) / 1000;
    const advice = nextStep === undefined ? {} : { nextStep };
    await this.#told({ name, passed, required, detail: detail.slice(0, 400), latencyMs, ...advice });
    return passed;
  }

  /** No call is under way: their time runs no more. */
  rest(): void {
    for (const { forget } of this.#calls.splice(0)) forget();
  }

  /** Calls off what is under way. */
  callOff(): void {
    for (const { signal } of this.#calls) signal.abort(new UpstreamFailure(AttemptFailure.TIMEOUT, "called off"));
  }

  /** What its answers were like. */
  measured(): { p50Ms: number; p95Ms: number; coldMs: number; actionDim?: number; chunkSteps?: number } {
    const warm = this.#latencies.slice(1).sort((a, b) => a - b);
    const at = (share: number): number =>
      Math.round((warm[Math.min(warm.length - 1, Math.floor(share * warm.length))] ?? 0) * 1000) / 1000;
    const dim = this.actionDim === undefined ? {} : { actionDim: this.actionDim };
    const chunk = this.chunkSteps === undefined ? {} : { chunkSteps: this.chunkSteps };
    return {
      p50Ms: at(0.5),
      p95Ms: at(0.95),
      coldMs: Math.round((this.#latencies[0] ?? 0) * 1000) / 1000,
      ...dim,
      ...chunk,
    };
  }

  /** What one call is given; its time runs until the check is over. */
  call(): CallOptions {
    const budgetMs = this.#budgetMs;
    const signal = new Cancel();
    const tooLate = new UpstreamFailure(AttemptFailure.TIMEOUT, `no answer within ${Math.round(budgetMs)} ms`);
    this.#calls.push({ signal, forget: after(budgetMs, () => signal.abort(tooLate)) });
    return { signal, budgetMs, requestId: newId("req") };
  }

  /** The declared sample of this number, or one that is made up; with a picture for every camera. */
  async observation(place: { x: number; y: number }, sample: number): Promise<Observation> {
    const { proprioNames, proprioDim, cameras } = await this.#layout();
    const declared = this.probed.target.profile?.samples[sample];
    if (declared && declared.frames.length > 0) return declared;
    const picture = await redSquare(place.x, place.y);
    const frames = cameras.map((camera) => ({ camera, data: picture }));
    if (declared)
      return create(ObservationSchema, { ...declared, frames: frames.map((frame) => create(FrameSchema, frame)) });
    const proprio = Array.from({ length: proprioDim }, (_, i) => 0.1 + 0.02 * i + 0.15 * sample);
    return create(ObservationSchema, { frames, proprio, proprioNames: [...proprioNames] });
  }

  /** What the server expects to see: as it says itself, else as the profile says, else what the action space suggests. */
  #layout(): Promise<Layout> {
    this.#asked ??= this.#askLayout();
    return this.#asked;
  }

  async #askLayout(): Promise<Layout> {
    const { offering, target, wire } = this.probed;
    const wants = await wire.wants?.(target, this.call());
    const cameras = wants && wants.cameras.length > 0 ? wants.cameras : ["front"];
    if (wire.id === this.#deps.native.id) {
      const models = await this.#deps.native.describe(target, this.call());
      const card = models.find((model) => model.slug === offering.model);
      if (card) {
        const named = card.cameras.length > 0 ? card.cameras : cameras;
        return { proprioNames: card.proprioNames, proprioDim: card.proprioNames.length, cameras: named };
      }
    }
    const suggested = dimensionOf(offering.actionSpaces[0] ?? "", offering.actionDim) ?? 0;
    return { proprioNames: [], proprioDim: wants?.proprioDim ?? suggested, cameras };
  }

  /** The pictures of what it is shown. */
  frames(observations: readonly Observation[]): FrameSet {
    const { agent, allowPrivate } = this.#deps;
    return new FrameSet(frameSources(observations), { agent, allowPrivate });
  }

  /** Notes how long an answer took. */
  async timed<T>(run: () => Promise<T>): Promise<T> {
    const began = steadyNow();
    const answer = await run();
    this.#latencies.push(steadyNow() - began);
    return answer;
  }
}
