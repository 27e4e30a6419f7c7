/** What several offerings say alike of what they read and of what their actions mean. */
import { create, equals } from "@bufbuild/protobuf";
import {
  type ActionMeaning,
  ActionMeaningSchema,
  type ActionMeanings,
  ActionMeaningsSchema,
  type InputContract,
  InputContractSchema,
} from "../../../gen/limber/v1/input_contract_pb.ts";
import type { Offering } from "../../routing/index.ts";

/** As models are shown. */
export interface SharedInput {
  readonly input?: InputContract;
  readonly actions?: ActionMeanings;
}

/** What all of them say; nothing of what one of them does not say, or says otherwise. */
export function sharedInput(offerings: readonly Pick<Offering, "declared">[]): SharedInput {
  const [first, ...others] = offerings.map(({ declared }) => declared);
  if (first === undefined) return {};
  const { input, actions } = first;
  const sameInput = others.every(
    (other) => other === first || (other?.input && input && equals(InputContractSchema, other.input, input)),
  );
  const sameActions = others.every((other) => other === first || (other && alike(other.actions, actions)));
  return {
    ...(input && sameInput && { input }),
    ...(sameActions && actions.length > 0 && { actions: create(ActionMeaningsSchema, { actions: [...actions] }) }),
  };
}

const alike = (one: readonly ActionMeaning[], other: readonly ActionMeaning[]): boolean =>
  one.length === other.length && one.every((each, i) => equals(ActionMeaningSchema, each, other[i]!));

/** Letters of a declaration's key beyond which listings of many models leave it out: each may have 64 KiB. */
const MOST_LISTED = 4_096;

/** The same for listings of many models: what is long is left out. */
export const listedInput = (offerings: readonly Pick<Offering, "declared">[]): SharedInput =>
  offerings.some(({ declared }) => (declared?.key.length ?? 0) > MOST_LISTED) ? {} : sharedInput(offerings);
