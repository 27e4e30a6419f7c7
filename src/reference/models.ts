/** The reference provider's models: each model's card, as data for the catalog and for registration. */
import { CONTROLLERS, OWN_CONTROLLERS } from "./act/plan.ts";
import type { ActionDeclaration, ActionSpace } from "./act/types.ts";

/** A model card. Family, kind, domain and embodiments are terms of the catalog's taxonomy. */
export interface ReferenceModel {
  readonly slug: `reference/${string}`;
  readonly name: string;
  readonly kind: "policy" | "world-model" | "reasoning";
  readonly domain: "embodied" | "general";
  readonly family: "manipulation" | "navigation" | "humanoid-control" | "video-generation" | "embodied-reasoning";
  readonly embodiments: readonly ("arm" | "humanoid" | "mobile-base" | "virtual-agent" | "none" | "agnostic")[];
  readonly contracts: readonly ("act" | "predict" | "ground")[];
  /** Its abilities, in one sentence. */
  readonly summary: string;
  /** Its limits, one sentence each. */
  readonly limits: readonly string[];
  /** For act: one declaration per action space (dimension, step time, units, frame, gripper, proprio layouts). */
  readonly actions: readonly ActionDeclaration[];
  /** The number of cameras that a request must have, and the maximum that is read. */
  readonly cameras: { readonly least: number; readonly most: number };
  readonly maxHorizon: number;
  /** Supported request parameters; every model is deterministic, so any seed gives the same answer. */
  readonly parameters: readonly "seed"[];
}

const declarationsOf = (...spaces: ActionSpace[]): ActionDeclaration[] =>
  spaces.map((space) => CONTROLLERS[space].declaration);

const COMMON = { maxHorizon: 256, parameters: ["seed"] } as const;
const POLICY = { ...COMMON, kind: "policy", domain: "embodied", contracts: ["act"] } as const;
const BLIND = { ...POLICY, cameras: { least: 0, most: 0 } } as const;

const NOT_YOUR_ROBOT =
  "Plans for its own declared bodies, which are no maker's: joint angles for another robot would be wrong.";
const NO_OBSTACLES = "Knows nothing of obstacles, of its own other limbs, or of forces.";
const NO_LANGUAGE = "Reads no instruction and no picture: the goal must be in proprio.";

/** Every model of the reference provider: classical algorithms without weights, whose limits are stated and tested. */
export const REFERENCE_MODELS: readonly ReferenceModel[] = [
  {
    ...BLIND,
    slug: "reference/ik-reach",
    name: "IK reach",
    family: "manipulation",
    embodiments: ["arm"],
    summary:
      "Joint targets that bring one or two hands to given places, or with one arm a block to its mark, by inverse kinematics.",
    limits: [
      NOT_YOUR_ROBOT,
      NO_OBSTACLES,
      NO_LANGUAGE,
      "Places the hand but does not turn it; grippers keep their opening, except when a block and its mark are given.",
      "With a block and its mark, the seventh number of joint_pos_7 is the gripper and the last roll is kept at zero.",
    ],
    actions: declarationsOf("joint_pos_7", "joint_pos_14"),
  },
  {
    ...BLIND,
    slug: "reference/upper-body",
    name: "Upper body reach",
    family: "humanoid-control",
    embodiments: ["humanoid"],
    summary: "Joint targets that bring both hands of a humanoid to given places while its pelvis is held.",
    limits: [
      NOT_YOUR_ROBOT,
      NO_OBSTACLES,
      NO_LANGUAGE,
      "Does not balance: the pelvis must be fixed. Legs and waist keep their measured angles.",
    ],
    actions: declarationsOf("joint_pos_23", "joint_pos_29"),
  },
  {
    ...BLIND,
    slug: "reference/latent-reach",
    name: "Latent reach",
    family: "manipulation",
    embodiments: ["arm"],
    summary:
      "The one-arm motion of IK reach as a latent code: four DCT-II coefficients per joint for every eight joint rows.",
    limits: [
      NOT_YOUR_ROBOT,
      NO_OBSTACLES,
      NO_LANGUAGE,
      "A code means nothing without the documented decoder, and loses what changes faster than its cosines.",
    ],
    actions: declarationsOf("latent_action"),
  },
  {
    ...POLICY,
    slug: "reference/visual-reach",
    name: "Visual reach",
    family: "manipulation",
    embodiments: ["arm"],
    cameras: { least: 0, most: 1 },
    summary:
      "Hand shifts to a goal in proprio, to the colored thing that the instruction names in a frame, or a block to its mark.",
    limits: [
      "Sees only by color and shape words, through one camera that looks straight down (picture up is +x, 0.64 m wide).",
      "Without proprio it takes the camera to ride over the hand and only brings the hand above the thing, never down.",
      "Grasps only a block whose place and mark are in proprio, from straight above; else the gripper stays open.",
      "Goes in a straight line and knows nothing of obstacles.",
    ],
    actions: declarationsOf("ee_delta_6d_grip"),
  },
  {
    ...BLIND,
    slug: "reference/potential-nav",
    name: "Potential-field navigation",
    family: "navigation",
    embodiments: ["mobile-base"],
    summary: "Drives a round base to a goal pose around up to eight round obstacles, as twists or as waypoints.",
    limits: [
      NO_LANGUAGE,
      "Obstacles must be given, round and standing still; a wall of them closer than the base is wide can trap it.",
      "Made for a base of 0.2 m radius at up to 0.6 m/s.",
    ],
    actions: declarationsOf("base_twist_2d", "waypoint_se2"),
  },
  {
    ...BLIND,
    slug: "reference/energy-swingup",
    name: "Energy swing-up",
    family: "manipulation",
    embodiments: ["virtual-agent"],
    summary:
      "Swings the pendulum of Pendulum-v1 up and balances it, or balances the pole of CartPole-v1: continuous_nd, one number.",
    limits: [NO_LANGUAGE, "Only for the masses, lengths, step times and limits of Pendulum-v1 and CartPole-v1."],
    actions: declarationsOf("continuous_nd"),
  },
  {
    ...BLIND,
    slug: "reference/push-t",
    name: "Push-T by a model of pushing",
    family: "manipulation",
    embodiments: ["virtual-agent"],
    summary:
      "Pushes the T of gym-pusht onto its mark, each time by the push that a model of a sliding T predicts to help most: continuous_nd, two numbers.",
    limits: [NO_LANGUAGE, "Only for the shape and damping of that T: the model knows both. It plans two pushes ahead."],
    actions: [OWN_CONTROLLERS["reference/push-t"]!.declaration],
  },
  {
    ...COMMON,
    slug: "reference/block-flow",
    name: "Block flow",
    kind: "world-model",
    domain: "general",
    family: "video-generation",
    embodiments: ["none"],
    contracts: ["predict"],
    cameras: { least: 1, most: 1 },
    summary:
      "The next frames of one camera, by block matching and constant velocity where the last frames bear that out.",
    limits: [
      "Knows nothing of what it sees: good for steady motion of rigid things, and for a few frames ahead.",
      "Not action-conditioned: given actions are ignored, and the note says so.",
      "Finds motion of up to 24 pixels per frame (of frames of up to 400 pixels a side; in proportion for larger ones).",
      "One frame shows no motion and is repeated; two frames give untested motion.",
    ],
    actions: [],
  },
  {
    ...COMMON,
    slug: "reference/colour-shape",
    name: "Color and shape",
    kind: "reasoning",
    domain: "embodied",
    family: "embodied-reasoning",
    embodiments: ["agnostic"],
    contracts: ["ground"],
    cameras: { least: 1, most: 1 },
    summary:
      "Points at and boxes the colored things that an instruction names, and distinguishes cube, ball, triangle and bar.",
    limits: [
      "Finds nothing without one of twelve English color words, and abstains when nothing fits.",
      "Things must be of one plain color, stand out from what is around them, and not touch others of their color.",
      "Knows shapes by their outlines, so that a far ball may pass for a cube; other nouns are matched by color alone.",
    ],
    actions: [],
  },
];
