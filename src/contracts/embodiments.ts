/** The bodies that models are made for. */
import { Embodiment } from "../../gen/limber/v1/registry_pb.ts";

export { Embodiment };

/** The words of the bodies, as the store and the catalog write them. */
export const EMBODIMENTS = {
  arm: Embodiment.ARM,
  humanoid: Embodiment.HUMANOID,
  quadruped: Embodiment.QUADRUPED,
  "mobile-base": Embodiment.MOBILE_BASE,
  vehicle: Embodiment.VEHICLE,
  "virtual-agent": Embodiment.VIRTUAL_AGENT,
  agnostic: Embodiment.AGNOSTIC,
  none: Embodiment.NONE,
} as const;

const wordOf = new Map(Object.entries(EMBODIMENTS).map(([word, body]) => [body as Embodiment, word]));

/** The word of a body. */
export const wordOfEmbodiment = (body: Embodiment): string => wordOf.get(body) ?? "another body";
