/** What the probe shows and says. */
import type { Contract, Intent } from "../../contracts/contract.ts";
import type { Offering } from "../../routing/index.ts";

/** Where the red square is. */
export const SQUARE = { x: 0.75, y: 0.25 };
/** Where it is when it has to be found anew. */
export const ELSEWHERE = { x: 0.3, y: 0.6 };
/** What a robot is to do about it. */
export const INSTRUCTION = "reach the red square";
/** Calls by which a figure is more than chance. */
export const WARM_CALLS = 3;

/** What a caller with such a request expects. */
export const intentFor = (
  offering: Offering,
  contract: Contract,
  actionSpace: string | undefined,
  units: number,
): Intent => ({
  contract,
  model: offering.model,
  models: [],
  preference: undefined,
  provider: undefined,
  actionSpace,
  embodiment: undefined,
  seed: undefined,
  units,
  parameters: [],
});
