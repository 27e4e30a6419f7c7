/** Which model of the reference provider acts in a scenario. */

const BY_SPACE: Readonly<Record<string, string>> = {
  continuous_nd: "reference/energy-swingup",
  ee_delta_6d_grip: "reference/visual-reach",
  joint_pos_7: "reference/ik-reach",
  joint_pos_14: "reference/ik-reach",
  base_twist_2d: "reference/potential-nav",
  waypoint_se2: "reference/potential-nav",
  joint_pos_23: "reference/upper-body",
  joint_pos_29: "reference/upper-body",
};

/** The model; undefined where there is none. */
export const solverOf = (scenario: string, actionSpace: string): string | undefined =>
  scenario === "push-t" ? "reference/push-t" : BY_SPACE[actionSpace];
