/** What an offering says that it reads and that its actions mean, ready to hold requests against. */
import type { ActionMeaning, ContractSource, InputContract } from "../../gen/limber/v1/input_contract_pb.ts";
import { type GivenInput, type InputFault, inputFaults, quickCheckOf, type ReadPicture } from "./inputs.ts";

/** Of one offering. Nothing in it ever changes. */
export interface DeclaredInput {
  /** Equal where all else is equal. */
  readonly key: string;
  /** What it reads; undefined where it says nothing of that. */
  readonly input: InputContract | undefined;
  readonly inputSource: ContractSource;
  /** What its actions mean, by action space; empty where it says nothing of that. */
  readonly actions: readonly ActionMeaning[];
  readonly actionsSource: ContractSource;
  /** Every field of a request that does not meet it. */
  faults(given: GivenInput, read?: ReadPicture): InputFault[];
  /** Whether a request meets it, as far as can be told: the same as that there are no faults, and quicker. */
  meets(given: GivenInput, read?: ReadPicture): boolean;
}

/** Puts a declaration together; what is asked of every request is worked out once. */
export function declaredInput(
  said: Pick<DeclaredInput, "key" | "input" | "inputSource" | "actions" | "actionsSource">,
): DeclaredInput {
  const { input } = said;
  if (input === undefined) return { ...said, faults: () => [], meets: () => true };
  const surelyMeets = quickCheckOf(input);
  return {
    ...said,
    faults: (given, read) => inputFaults(input, given, read),
    meets: (given, read) => surelyMeets(given) || inputFaults(input, given, read).length === 0,
  };
}
