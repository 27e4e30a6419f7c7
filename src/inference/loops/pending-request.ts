/** One request of a loop to an offering: it can be cancelled, and gets the outcome. */

import { Cancel } from "../../cancellation.ts";
import type { ActAnswer } from "../../contracts/contract.ts";
import type { DispatchEffect } from "../../routing/index.ts";
import type { Hearer } from "../../upstream/wire.ts";
import type { ParsedObservation } from "./observation-view.ts";

/** Whose question it is. */
export interface RequestOwner {
  answered(question: DispatchEffect<ParsedObservation>, answer: ActAnswer): void;
  failed(question: DispatchEffect<ParsedObservation>, thrown: unknown): void;
}

/** A question on its way. */
export class PendingRequest extends Cancel implements Hearer {
  readonly #asker: RequestOwner;
  readonly #question: DispatchEffect<ParsedObservation>;

  /** Its number. */
  get id(): number {
    return this.#question.attempt;
  }

  constructor(asker: RequestOwner, question: DispatchEffect<ParsedObservation>) {
    super();
    this.#asker = asker;
    this.#question = question;
  }

  answered(answer: ActAnswer): void {
    this.#asker.answered(this.#question, answer);
  }

  failed(thrown: unknown): void {
    this.#asker.failed(this.#question, thrown);
  }
}
