/**
 * What a model sees and does, as Isaac-GR00T's clients ask for it before they begin. Source: NVIDIA/Isaac-GR00T, `ModalityConfig` of
 * gr00t/data/types.py, and how gr00t/policy/server_client.py of N1.6 and N1.7 write it.
 */
import { ALIAS_PREFIX } from "../../../brand.ts";
import type { Packable } from "../../../codecs/python/msgpack.ts";
import { Reason, refuse } from "../../../errors.ts";
import type { Embodiment } from "../../../inference/embodiment.ts";

/** Where names are the caller's own: clients take no empty list. */
const ANY = { video: ["image"], state: ["state"], action: ["action"], language: "annotation.human.task_description" };
/** Steps of a chunk, where the router chooses the model. */
const USUAL_STEPS = 16;

/** The four modalities of a model. One picture of each camera is enough: the gateway keeps those that a model looks back to. */
export function modalitiesOf(model: string, embodiment: Embodiment | undefined): Packable {
  // Of an alias of the router it is found out with each call.
  if (!embodiment && !model.startsWith(ALIAS_PREFIX))
    throw refuse(Reason.NO_LIVE_DEPLOYMENT, `nothing live serves ${model}`);
  const { video = [], state = [], action = [], language = "" } = embodiment?.layout ?? {};
  const steps = Array.from({ length: embodiment?.chunk ?? USUAL_STEPS }, (_, step) => step);
  const wanted = state.map(({ name }) => name);
  return {
    video: modality([0], video.length > 0 ? video : ANY.video),
    state: modality([0], wanted.length > 0 ? wanted : ANY.state),
    action: modality(steps, action.length > 0 ? action.map(([name]) => name) : ANY.action),
    language: modality([0], [language || ANY.language]),
  };
}

/** Under the tags of both generations: a client looks for its own. */
const modality = (deltas: readonly number[], keys: readonly string[]): Packable => ({
  __ModalityConfig_class__: true,
  __ModalityConfig__: true,
  as_json: {
    delta_indices: deltas,
    modality_keys: keys,
    sin_cos_embedding_keys: null,
    mean_std_embedding_keys: null,
    action_configs: null,
  },
});
