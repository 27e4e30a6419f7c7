/** The offerings that may serve a control loop at the moment, by its plan, which is made anew when supply changed or a call failed. */

import type { Call } from "../../call.ts";
import { steadyNow } from "../../clock.ts";
import { dimensionOf } from "../../contracts/action-spaces.ts";
import { Refusal } from "../../errors.ts";
import { type LoopRouter, type Plan, type PlanStep, sameWay, type Wake } from "../../routing/index.ts";
import { hedgesOf, type InferenceDeps, planArgs, planOrWant, wantResting } from "../call.ts";

/** What a loop is planned from. */
type WantedPlan = Parameters<typeof planArgs>[1];

/** The plan of one loop through its time. */
export class PlanTracker implements LoopRouter {
  readonly #deps: InferenceDeps;
  readonly #wanted: WantedPlan;
  readonly #call: Call;
  readonly #space: string;
  #plan: Plan;
  /** Why there is none at the moment. */
  #refusal: Refusal | undefined;
  /** The supply that it was made from; undefined where it is to be made anew. */
  #madeFrom: unknown;
  /** What the plan lost because it cannot be paid. */
  #unpaid: readonly PlanStep[] = [];
  /** By offering: the cold starts that the loop caused and has not paid for. */
  readonly #wakes = new Map<string, Wake>();

  /** Plans, or refuses when nothing may serve. */
  constructor(deps: InferenceDeps, wanted: WantedPlan, call: Call, space: string) {
    this.#deps = deps;
    this.#wanted = wanted;
    // The time of the whole stream is no observation's.
    this.#call = { ...call, deadline: undefined };
    this.#space = space;
    this.#plan = this.#made();
  }

  /** The newest plan. */
  get plan(): Plan {
    return this.#plan;
  }

  /** The plan is to be made anew before it is used again. */
  outdate(): void {
    this.#madeFrom = undefined;
  }

  /** Goes on with what can be paid of a plan, until it is made anew. */
  narrow(plan: Plan, less: Plan): void {
    if (this.#plan !== plan) return;
    this.#plan = less;
    this.#unpaid = plan.steps.filter((step) => !less.steps.some((each) => sameWay(each, step)));
  }

  /** Whether a step turned out not to be covered. */
  isUnpaid(step: PlanStep): boolean {
    return this.#unpaid.some((each) => sameWay(each, step));
  }

  steps(): readonly PlanStep[] {
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

  admit(step: PlanStep, at: number, budgetMs: number): boolean {
    const { id } = step.offering;
    if (!this.#deps.supply.health.admit(id, at, budgetMs, this.#plan.strictOrder)) return false;
    const wake = step.cold ? this.#deps.wakes.begin(step, at) : undefined;
    if (wake) this.#wakes.set(id, wake);
    return true;
  }

  /** An attempt at an offering ended. */
  told(offeringId: string, answered: boolean): void {
    const wake = this.#wakes.get(offeringId);
    if (!wake) return;
    if (answered) wake.answered();
    else {
      wake.failed();
      this.#wakes.delete(offeringId);
    }
  }

  /** Whether a chunk of an offering pays for the cold start that this loop caused: the first one, once. Undefined where it caused none. */
  takeWake(offeringId: string): Promise<boolean> | undefined {
    const wake = this.#wakes.get(offeringId);
    this.#wakes.delete(offeringId);
    return wake?.pays;
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
    const plan = planOrWant(this.#deps, planArgs(this.#deps, this.#wanted, this.#call, steadyNow()));
    this.#madeFrom = snapshot;
    this.#refusal = undefined;
    this.#unpaid = [];
    return plan;
  }
}
