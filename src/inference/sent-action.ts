/** The action of an answer on its way on to the caller. */
import type { Action } from "../../gen/limber/v1/action_pb.ts";
import type { ActAnswer, PackedSteps } from "../contracts/contract.ts";

/** The steps of an answer as they came: the quick writers of REST and gRPC write packed ones without reading them into lists. */
export class SentAction implements Action {
  readonly $typeName = "limber.v1.Action";
  readonly space: string;
  readonly dtMs: number;
  readonly #answer: ActAnswer;

  constructor(space: string, answer: ActAnswer, dtMs: number) {
    this.space = space;
    this.dtMs = dtMs;
    this.#answer = answer;
  }

  get packed(): PackedSteps | undefined {
    return this.#answer.packed;
  }

  get steps(): ActAnswer["steps"] {
    return this.#answer.steps;
  }

  get note(): string {
    return this.#answer.note;
  }
}
