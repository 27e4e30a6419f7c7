/** The plan of a control loop: the offerings that can serve it now. It is rebuilt when supply changes or a call fails. */
import { create } from "@bufbuild/protobuf";
import type { LoopObservation } from "../../../gen/limber/v1/control_loop_pb.ts";
import type { ActionMeaning, InputContract } from "../../../gen/limber/v1/input_contract_pb.ts";
import { type Observation, ObservationSchema } from "../../../gen/limber/v1/observation_pb.ts";
import type { Call } from "../../call.ts";
import { steadyNow } from "../../clock.ts";
import { dimensionOf, type PackedObservations } from "../../contracts/contract.ts";
import { type GivenInput, meaningIn } from "../../contracts/inputs.ts";
import { Refusal } from "../../errors.ts";
import {
  type LoopRouter,
  type ObservationView,
  type Plan,
  type PlanStep,
  sameWay,
  type Wake,
} from "../../routing/index.ts";
import { readPicture } from "../../upstream/pictures/header.ts";
import { hedgesOf, type InferenceDeps, planArgs, planOrWant, wantResting } from "../call.ts";

/** Input for planning a loop. */
type WantedPlan = Parameters<typeof planArgs>[1];

/** The plan of one loop over time. */
export class PlanTracker implements LoopRouter<ParsedObservation> {
  readonly #deps: InferenceDeps;
  readonly #wanted: WantedPlan;
  readonly #call: Call;
  readonly #space: string;
  #plan: Plan;
  /** Why there is no plan now. */
  #refusal: Refusal | undefined;
  /** The snapshot that it was built from; undefined if it has to be rebuilt. */
  #madeFrom: unknown;
  /** The meaning that actions must have within the episode; undefined if the serving offering declares none. */
  #meaning: ActionMeaning | undefined;
  /** The present instruction, and the goal from `open`. */
  #words: Pick<GivenInput, "instruction" | "goalImage">;
  /** The steps dropped from the plan because the caller cannot pay for them. */
  #unpaid: readonly PlanStep[] | undefined;
  /** By offering: the cold starts that the loop caused and has not paid for. */
  #wakes: Map<string, Wake> | undefined;

  /** Plans the loop. Refuses if no offering can serve it. */
  constructor(
    deps: InferenceDeps,
    wanted: WantedPlan,
    call: Call,
    space: string,
    words: Pick<GivenInput, "instruction" | "goalImage">,
  ) {
    this.#deps = deps;
    this.#wanted = wanted;
    // The deadline of the stream does not apply to single observations.
    this.#call = { ...call, deadline: undefined };
    this.#space = space;
    this.#words = words;
    this.#plan = this.#made();
  }

  /** The newest plan. */
  get plan(): Plan {
    return this.#plan;
  }

  /** Marks the plan to be rebuilt before its next use. */
  outdate(): void {
    this.#madeFrom = undefined;
  }

  /** Continues with the affordable part of a plan until it is rebuilt. */
  narrow(plan: Plan, less: Plan): void {
    if (this.#plan !== plan) return;
    this.#plan = less;
    this.#unpaid = plan.steps.filter((step) => !less.steps.some((each) => sameWay(each, step)));
  }

  /** Whether a step was dropped for lack of credit. */
  isUnpaid(step: PlanStep): boolean {
    return this.#unpaid?.some((each) => sameWay(each, step)) ?? false;
  }

  /** Sets the instruction from now on. */
  set instruction(instruction: string) {
    this.#words = { ...this.#words, instruction };
  }

  steps(bound: PlanStep | string | undefined): readonly PlanStep[] {
    const meaning = this.#meaningOf(bound);
    if (meaning !== this.#meaning) {
      this.#meaning = meaning;
      this.#madeFrom = undefined;
    }
    if (this.#deps.supply.snapshot === this.#madeFrom) return this.#plan.steps;
    try {
      this.#plan = this.#made();
      return this.#plan.steps;
    } catch (thrown) {
      if (!(thrown instanceof Refusal)) throw thrown;
      this.#refusal = thrown;
      return [];
    }
  }

  unreadBy({ offering }: PlanStep, { payload }: ObservationView<ParsedObservation>): string | undefined {
    const { declared } = offering;
    if (declared?.input === undefined) return undefined;
    const given = { ...this.#words, observations: observationsOf(payload, declared.input), actionSpace: this.#space };
    if (declared.meets(given, readPicture)) return undefined;
    const faults = declared.faults(given, readPicture);
    return faults
      .map(({ path, message }) => `${path} ${message}`)
      .join("; ")
      .slice(0, MOST_TOLD);
  }

  /** For a model that served before the stream was opened, uses its offerings' present declarations. */
  #meaningOf(bound: PlanStep | string | undefined): ActionMeaning | undefined {
    if (bound === undefined) return undefined;
    if (typeof bound !== "string") {
      const { declared } = bound.offering;
      return declared && meaningIn(declared.actions, this.#space);
    }
    const { snapshot } = this.#deps.supply;
    for (const row of snapshot.rowsOfModel(bound) ?? []) {
      const { declared } = snapshot.offerings[row]!;
      const meaning = declared && meaningIn(declared.actions, this.#space);
      if (meaning !== undefined) return meaning;
    }
    return undefined;
  }

  admit(step: PlanStep, at: number, budgetMs: number): boolean {
    const { id } = step.offering;
    if (!this.#deps.supply.health.admit(id, at, budgetMs, this.#plan.strictOrder)) return false;
    const wake = step.cold ? this.#deps.wakes.begin(step, at) : undefined;
    if (wake) {
      this.#wakes ??= new Map();
      this.#wakes.set(id, wake);
    }
    return true;
  }

  /** An attempt at an offering ended. */
  told(offeringId: string, answered: boolean): void {
    const wake = this.#wakes?.get(offeringId);
    if (!wake) return;
    if (answered) wake.answered();
    else {
      wake.failed();
      this.#wakes?.delete(offeringId);
    }
  }

  /** The cold start of an offering that this loop caused, for its first chunk, once; undefined where it caused none. */
  takeWake(offeringId: string): Wake | undefined {
    const wake = this.#wakes?.get(offeringId);
    this.#wakes?.delete(offeringId);
    return wake;
  }

  hedge(): boolean {
    return hedgesOf(this.#deps, this.#call).spend();
  }

  dimOf({ offering }: PlanStep): number | undefined {
    return dimensionOf(this.#space, offering.actionDim);
  }

  lacks(model: string | undefined, at: number): void {
    const { health } = this.#deps.supply;
    if (model !== undefined) health.wantModel(model, at);
    else if (this.#refusal) wantResting(health, this.#refusal, at);
  }

  #made(): Plan {
    const { snapshot } = this.#deps.supply;
    const args = planArgs(this.#deps, this.#wanted, this.#call, steadyNow());
    const plan = planOrWant(this.#deps, this.#meaning ? { ...args, meaning: this.#meaning } : args, this.#call.trail);
    this.#madeFrom = snapshot;
    this.#refusal = undefined;
    this.#unpaid = undefined;
    return plan;
  }
}

/** Maximum length of a fault's text. */
const MOST_TOLD = 400;

/**
 * Of the plain ones without pictures it is known that they have numbers, and how many, and no names. They are read where their number
 * matters.
 */
function observationsOf(seen: ParsedObservation, { history }: InputContract): readonly Observation[] {
  const { packed } = seen;
  if (!packed || history || packed.frames.length > 0) return seen.observations;
  let known = PLAIN.get(packed.numbers);
  if (known === undefined) {
    known = [create(ObservationSchema, { proprio: new Array<number>(packed.numbers).fill(0) })];
    if (PLAIN.size < MOST_PLAIN) PLAIN.set(packed.numbers, known);
  }
  return known;
}

const PLAIN = new Map<number, readonly Observation[]>();
const MOST_PLAIN = 64;

/** An observation of a loop; packed if it came in the plain form: its `observations`, as in an act call. */
export type ParsedObservation = LoopObservation & {
  readonly packed?: PackedObservations & {
    /** Numbers, images and time of the newest. */
    readonly numbers: number;
    readonly pictures: number;
    readonly tMs: number | undefined;
    /** Every image looks complete. If false, the observations are parsed to find the fault. */
    readonly isSound: boolean;
  };
};

/** Converts observations to the loop's events. */
export class ObservationViews {
  #numbers = -1;
  #pictures = -1;
  /** The same text for all of one shape, so that none is made for each. */
  #shape = "";

  of(seen: ParsedObservation): ObservationView<ParsedObservation> {
    const { step, packed } = seen;
    if (packed) return { step, tMs: packed.tMs, shape: this.#shapeOf(packed.numbers, packed.pictures), payload: seen };
    const newest = seen.observations[seen.observations.length - 1]!; // the schema asks for one
    const shape = this.#shapeOf(newest.proprio.length, newest.frames.length);
    return { step, tMs: newest.tMs, shape, payload: seen };
  }

  #shapeOf(numbers: number, pictures: number): string {
    if (numbers === this.#numbers && pictures === this.#pictures) return this.#shape;
    this.#numbers = numbers;
    this.#pictures = pictures;
    this.#shape = `${numbers} numbers and ${pictures} images`;
    return this.#shape;
  }
}
