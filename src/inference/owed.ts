/** What the answer to a request has to contain, as far as the request alone determines it. */
import type { ActRequest } from "../../gen/limber/v1/inference_service_pb.ts";
import { DEFAULT_ACTION_SPACE, dimensionOf } from "../contracts/action-spaces.ts";

/** Numbers per step of the action; undefined where a preset may name its space, or its space leaves them to each model. */
export function numbersOwed({ actionSpace, preset }: Pick<ActRequest, "actionSpace" | "preset">): number | undefined {
  if (actionSpace === undefined && preset !== undefined) return undefined;
  return dimensionOf(actionSpace ?? DEFAULT_ACTION_SPACE, undefined);
}
