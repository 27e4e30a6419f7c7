/** One question of a loop on its way: it can be called off, and hears what came of it. */
import type { ActAnswer } from "../../contracts/contract.ts";
import type { Dispatch } from "../../routing/index.ts";
import { Cancel } from "../../cancellation.ts";
import type { Hearer } from "../../upstream/wire.ts";
import type { Seen } from "./observation-view.ts";

/** Whose question it is. */
export interface Asker {
  answered(question: Dispatch<Seen>, answer: ActAnswer): void;
  failed(question: Dispatch<Seen>, thrown: unknown): void;
}

/** A question on its way. */
export class Flight extends Cancel implements Hearer {
  readonly #asker: Asker;
  readonly #question: Dispatch<Seen>;

  /** Its number. */
  get id(): number {
    return this.#question.flight;
  }

  constructor(asker: Asker, question: Dispatch<Seen>) {
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
