/** The action spaces of the specification and the dimension that each fixes. */

/** What an action space promises about every step. */
export interface ActionSpace {
  name: string;
  /** Numbers per step; undefined where each offering declares its own. */
  dim: number | undefined;
  /** What the numbers are. */
  meaning: string;
}

/** The action space of an act request that names none. */
export const DEFAULT_ACTION_SPACE = "ee_delta_6d_grip";

/** The dimensions that dimension checks go by. Source: specification, "Action spaces with live supply". */
export const ACTION_SPACES: readonly ActionSpace[] = [
  { name: "base_twist_2d", dim: 2, meaning: "linear velocity in m/s, angular velocity in rad/s" },
  { name: "continuous_nd", dim: undefined, meaning: "as many continuous controls as the offering declares" },
  { name: "ee_delta_6d_grip", dim: 7, meaning: "end-effector translation in m, rotation vector in rad, gripper" },
  { name: "joint_pos_14", dim: 14, meaning: "joint positions in rad, two arms of seven" },
  { name: "joint_pos_23", dim: 23, meaning: "joint positions in rad, base, torso, arms and grippers" },
  { name: "joint_pos_29", dim: 29, meaning: "joint positions in rad, whole humanoid body" },
  { name: "joint_pos_7", dim: 7, meaning: "joint positions in rad, one arm of seven" },
  { name: "latent_action", dim: undefined, meaning: "as many latent numbers as the offering declares" },
  { name: "waypoint_se2", dim: 3, meaning: "x in m, y in m, heading in rad" },
];

const byName = new Map(ACTION_SPACES.map((space) => [space.name, space]));

/** The action space of this name, or undefined when the specification has none. */
export const actionSpaceOf = (name: string): ActionSpace | undefined => byName.get(name);

/** Numbers per step that an offering owes in this space: the space's own, else what the offering declares. */
export const dimensionOf = (name: string, declared: number | undefined): number | undefined =>
  byName.get(name)?.dim ?? declared;
