/** Act: selects the controller of an action space, and builds a chunk from its rows. */
import { UnsupportedObservation } from "../unsupported.ts";
import { balancePole } from "./cartpole.ts";
import { latentReach } from "./latent.ts";
import { readProprio } from "./layout.ts";
import { baseTwist, waypoints } from "./nav.ts";
import { pickPlaceJoints, pickPlaceShifts } from "./pick-place.ts";
import { pushT } from "./push-t.ts";
import { bimanualReach, humanoid23Reach, humanoid29Reach, jointReach } from "./reach.ts";
import { visualReach } from "./servo.ts";
import { swingUp } from "./swingup.ts";
import type { ActInput, ActionSpace, ActOutput, Controller } from "./types.ts";

/** The controller of every action space of the specification; a model with its own controller names it in its card. */
export const CONTROLLERS: Readonly<Record<ActionSpace, Controller>> = {
  base_twist_2d: baseTwist,
  waypoint_se2: waypoints,
  ee_delta_6d_grip: byLayout(visualReach, pickPlaceShifts),
  joint_pos_7: byLayout(jointReach, pickPlaceJoints),
  joint_pos_14: bimanualReach,
  joint_pos_23: humanoid23Reach,
  joint_pos_29: humanoid29Reach,
  continuous_nd: byLayout(swingUp, balancePole),
  latent_action: latentReach,
};

/** Controllers of models whose numbers differ from others in their action space, by slug. */
export const OWN_CONTROLLERS: Readonly<Record<string, Controller>> = { "reference/push-t": pushT };

/**
 * Plans a chunk of exactly `horizon` rows. Equal inputs give equal chunks, and every number is finite. Throws `UnsupportedObservation` for an
 * unknown action space, a horizon outside 1 to 256, and input that the controller cannot read.
 */
export function plan(input: ActInput, model = ""): ActOutput {
  const { horizon } = input;
  if (!Object.hasOwn(CONTROLLERS, input.actionSpace))
    throw new UnsupportedObservation("no controller for this action space");
  if (!Number.isInteger(horizon) || horizon < 1 || horizon > 256) {
    throw new UnsupportedObservation("horizon must be a whole number between 1 and 256");
  }
  if (input.goal !== undefined)
    throw new UnsupportedObservation("the classical controllers do not read a goal image; give the goal in proprio");
  const { declaration, begin } = OWN_CONTROLLERS[model] ?? CONTROLLERS[input.actionSpace as ActionSpace];
  const motion = begin(input);
  const steps = new Float64Array(horizon * declaration.dim);
  for (let row = 0; row < horizon; row++) steps.set(motion.next(), row * declaration.dim);
  return { steps, dim: declaration.dim, dtMs: motion.dtMs ?? declaration.dtMs, note: motion.note() };
}

/** Combines controllers: the one with the proprio's layout is used. No two may have a layout of one length. */
function byLayout(main: Controller, ...others: readonly Controller[]): Controller {
  const all = [main, ...others];
  const proprioLayouts = all.flatMap((controller) => controller.declaration.proprioLayouts);
  const declaration = { ...main.declaration, proprioLayouts };
  const knows = (controller: Controller, { proprio }: ActInput): boolean =>
    controller.declaration.proprioLayouts.some((layout) => layout.length === proprio.length);
  return {
    declaration,
    begin(input) {
      readProprio(input, declaration);
      const controller = all.find((known) => knows(known, input)) ?? main;
      return { ...controller.begin(input), dtMs: controller.declaration.dtMs };
    },
  };
}
