/** What the answer to a request has to contain, as far as the request alone determines it. */
import type { ActRequest } from "../../gen/limber/v1/inference_service_pb.ts";
import { DEFAULT_ACTION_SPACE, dimensionOf } from "../contracts/action-spaces.ts";

type AskedSpace = Pick<ActRequest, "actionSpace" | "preset">;

/** The action space of the answer; undefined where a preset may name it. */
export const spaceOwed = ({ actionSpace, preset }: AskedSpace): string | undefined =>
  actionSpace ?? (preset === undefined ? DEFAULT_ACTION_SPACE : undefined);

/** Numbers per step of the action; undefined where a preset may name its space, or its space leaves them to each model. */
export function numbersOwed(asked: AskedSpace): number | undefined {
  const space = spaceOwed(asked);
  return space === undefined ? undefined : dimensionOf(space, undefined);
}
