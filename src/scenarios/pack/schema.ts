/** The schema of `scenario.json`. A file is checked completely, so that every fault is reported at once. */
import type { Camera } from "../scenario.ts";

/** A part of an observation: a term, for some terms with an argument. */
export type ObsTerm =
  | readonly ["qpos" | "qpos_rel" | "qvel" | "command" | "target" | "last_action"]
  | readonly ["site" | "gravity" | "sensor", string]
  | readonly ["sensor", string, number]
  | readonly ["qpos_from" | "qpos_rel_from" | "qvel_from" | "qvel_clipped" | "last_action", number];

/** A position in meters, or the one that was drawn for the episode. */
export type Place = readonly number[] | "target";

/** Numbers of a sensor that should equal numbers of the command. */
export interface Tracked {
  readonly sensor: string;
  /** Indexes of the sensor's values, and of the command's numbers in the same order. */
  readonly values: readonly number[];
  readonly command: readonly number[];
  readonly weight: number;
  readonly sigma: number;
}

/** `scenario.json`. */
export interface PackRules {
  readonly id: string;
  readonly version: string;
  readonly title: string;
  readonly description: string;
  readonly source?: string;
  readonly instruction?: string;
  /** The MJCF's file name, and the names of included files. */
  readonly mjcf: string;
  readonly assets?: readonly string[];
  readonly action_space: string;
  readonly action_dim: number;
  readonly action_fields?: readonly string[];
  readonly units?: string;
  /** Engine steps per control step; the engine's timestep is the MJCF's. */
  readonly substeps: number;
  readonly max_steps: number;
  /**
   * `joint_target`: controls at the first state's joint positions plus scale times the action. `control`: controls at scale times the action.
   * `mocap_delta`: the mocap body at the position of `body` plus scale times the first three numbers.
   */
  readonly action: {
    readonly kind: "joint_target" | "control" | "mocap_delta";
    readonly scale: number;
    readonly low?: number;
    readonly high?: number;
    /** Of `mocap_delta`. */
    readonly mocap?: string;
    readonly body?: string;
    /** The fourth number of `mocap_delta`, times the scale, controls these actuators; without any it has no effect. */
    readonly gripper?: { readonly actuators: readonly string[]; readonly scale: number };
  };
  readonly obs: readonly ObsTerm[];
  readonly reset?: { readonly keyframe?: string; readonly qpos_noise?: number; readonly qvel_noise?: number };
  /** The policy's instruction, drawn at the start and, if given, each time that so many steps have passed. */
  readonly command?: readonly (readonly [number, number])[];
  readonly command_every?: number;
  /** A position that is drawn at the start: in a box around the position of a site, or around the origin. A mocap body shows it. */
  readonly target?: {
    readonly around?: string;
    readonly box: readonly (readonly [number, number])[];
    readonly marker?: string;
  };
  /** The reward of a step, a sum of terms; 1 for each step before a failure if absent. */
  readonly reward?: {
    /** For each step before a failure. */
    readonly alive?: number;
    /** Times the mean speed of a joint's position during the step. */
    readonly speed?: { readonly joint: string; readonly weight: number };
    /** Times the distance of a site from a place, in meters. */
    readonly distance?: { readonly site: string; readonly place: Place; readonly weight: number };
    /** For each step that ends with a site farther from a place. */
    readonly far?: { readonly site: string; readonly place: Place; readonly within_m: number; readonly weight: number };
    /** Times e to the power of minus the squared error over `sigma`. */
    readonly track?: readonly Tracked[];
    /** Times the sum of the squared numbers of the action. */
    readonly action?: number;
  };
  /** At most one condition; reaching `max_steps` is success without one. */
  readonly success?: {
    readonly site_near?: { readonly site: string; readonly place: Place; readonly within_m: number };
    /** Reaching `max_steps` with at least this return. */
    readonly return_at_least?: number;
  };
  readonly fail?: {
    readonly body_below?: { readonly body: string; readonly z: number };
    readonly joint_outside?: readonly { readonly joint: string; readonly low: number; readonly high: number }[];
    /** The vertical part of the site's z axis, 1 when it points up and -1 when it points down. */
    readonly tilted?: { readonly site: string; readonly below: number };
  };
  readonly cameras?: readonly Camera[];
}

/** Reports the faults of a value at a path. */
type Check = (value: unknown, path: string) => string[];

const shown = (value: unknown): string => {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
};
const wrong = (path: string, wanted: string, value: unknown): string[] => [
  value === undefined ? `${path} is missing; it must be ${wanted}` : `${path} must be ${wanted}, got ${shown(value)}`,
];

const text =
  (pattern: RegExp, wanted: string): Check =>
  (value, path) =>
    typeof value === "string" && pattern.test(value) ? [] : wrong(path, wanted, value);
const number =
  (low: number, high: number, wanted: string, isWhole = false): Check =>
  (value, path) =>
    typeof value === "number" && value >= low && value <= high && (!isWhole || Number.isInteger(value))
      ? []
      : wrong(path, wanted, value);
const whole = (low: number, high: number): Check =>
  number(low, high, `a whole number from ${low.toLocaleString("en")} to ${high.toLocaleString("en")}`, true);
const list =
  (check: Check, { least = 0, most = 1000, exactly = false } = {}): Check =>
  (value, path) => {
    const count = exactly ? `${most}` : `${least} to ${most}`;
    return Array.isArray(value) && value.length >= (exactly ? most : least) && value.length <= most
      ? value.flatMap((each, i) => check(each, `${path}[${i}]`))
      : wrong(path, `a list of ${count} items`, value);
  };
const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** An object with exactly these fields; a name that ends in `?` is optional. */
const object = (fields: Readonly<Record<string, Check>>): Check => {
  const known = Object.keys(fields).map((name) => name.replace("?", ""));
  return (value, path) => {
    if (!isObject(value)) return wrong(path || "the file", "an object", value);
    const at = (name: string): string => (path === "" ? name : `${path}.${name}`);
    return [
      ...Object.keys(value)
        .filter((name) => !known.includes(name))
        .map((name) => `${at(name)} is an unknown field; known fields are ${known.join(", ")}`),
      ...Object.entries(fields).flatMap(([name, check]) => {
        const field = name.replace("?", "");
        return name.endsWith("?") && value[field] === undefined ? [] : check(value[field], at(field));
      }),
    ];
  };
};

const finite = number(-1e9, 1e9, "a number");
const positive = number(1e-9, 1e9, "a number above 0");
const noise = number(0, 1e9, "a number that is not negative");
const name = text(/^[^\p{C}]{1,200}$/u, "a name of 1 to 200 characters");
const sentence = text(/^.{0,2000}$/su, "a text of at most 2,000 characters");
const file = text(/^(?!\.)[\w. -]{1,100}$/, "the plain name of a file beside scenario.json");

const place: Check = (value, path) =>
  value === "target"
    ? []
    : list(finite, { most: 3, exactly: true })(value, path).map((fault) =>
        fault.replace("a list of 3 items", 'a list of 3 items, or "target"'),
      );

const indexes = list(whole(0, 63), { least: 1, most: 64 });

const pair: Check = (value, path) => {
  const faults = list(finite, { most: 2, exactly: true })(value, path);
  if (faults.length > 0) return faults;
  const [low, high] = value as [number, number];
  return low <= high ? [] : [`${path} must be a minimum and a maximum, got ${low} and ${high}`];
};

/** The argument of each term. */
const TERMS: Readonly<Record<string, "none" | "name" | "index" | "limit" | "scale" | "name and scale">> = {
  qpos: "none",
  qpos_from: "index",
  qpos_rel: "none",
  qpos_rel_from: "index",
  qvel: "none",
  qvel_from: "index",
  qvel_clipped: "limit",
  command: "none",
  target: "none",
  site: "name",
  gravity: "name",
  sensor: "name and scale",
  last_action: "scale",
};

const term: Check = (value, path) => {
  if (!Array.isArray(value) || value.length < 1 || value.length > 3)
    return wrong(path, "a list of a term and its argument", value);
  const [word, argument, scale] = value as [unknown, unknown, unknown];
  const takes = typeof word === "string" && Object.hasOwn(TERMS, word) ? TERMS[word] : undefined;
  if (takes === undefined) return wrong(`${path}[0]`, `one of ${Object.keys(TERMS).join(", ")}`, word);
  if (takes === "name and scale")
    return [...name(argument, `${path}[1]`), ...(value.length === 2 ? [] : finite(scale, `${path}[2]`))];
  if (value.length === 3) return [`${path} has a second argument, which ${shown(word)} does not accept`];
  if (takes === "none")
    return value.length === 1 ? [] : [`${path} has an argument, which ${shown(word)} does not accept`];
  if (takes === "name") return name(argument, `${path}[1]`);
  if (takes === "index") return whole(1, 1000)(argument, `${path}[1]`);
  if (takes === "limit") return positive(argument, `${path}[1]`);
  return value.length === 1 ? [] : finite(argument, `${path}[1]`);
};

const FILE = object({
  id: text(/^[a-z0-9][a-z0-9-]{0,63}$/, "lower-case letters, digits and dashes, at most 64"),
  version: text(/^[\w.+-]{1,64}$/, "a version such as 1.0.0"),
  title: name,
  description: sentence,
  "source?": sentence,
  "instruction?": sentence,
  mjcf: file,
  "assets?": list(file),
  action_space: text(/^[a-z][a-z0-9_]{0,63}$/, "the name of an action space, such as continuous_nd"),
  action_dim: whole(1, 256),
  "action_fields?": list(name, { least: 1, most: 256 }),
  "units?": sentence,
  substeps: whole(1, 10_000),
  max_steps: whole(1, 100_000),
  action: object({
    kind: text(/^(joint_target|control|mocap_delta)$/, "joint_target, control or mocap_delta"),
    scale: finite,
    "low?": finite,
    "high?": finite,
    "mocap?": name,
    "body?": name,
    "gripper?": object({ actuators: list(name, { most: 16 }), scale: finite }),
  }),
  obs: list(term, { least: 1, most: 256 }),
  "reset?": object({ "keyframe?": name, "qpos_noise?": noise, "qvel_noise?": noise }),
  "command?": list(pair, { most: 64 }),
  "command_every?": whole(1, 100_000),
  "target?": object({ "around?": name, box: list(pair, { most: 3, exactly: true }), "marker?": name }),
  "reward?": object({
    "alive?": finite,
    "speed?": object({ joint: name, weight: finite }),
    "distance?": object({ site: name, place, weight: finite }),
    "far?": object({ site: name, place, within_m: positive, weight: finite }),
    "track?": list(object({ sensor: name, values: indexes, command: indexes, weight: finite, sigma: positive }), {
      least: 1,
      most: 16,
    }),
    "action?": finite,
  }),
  "success?": object({
    "site_near?": object({ site: name, place, within_m: positive }),
    "return_at_least?": finite,
  }),
  "fail?": object({
    "body_below?": object({ body: name, z: finite }),
    "joint_outside?": list(object({ joint: name, low: finite, high: finite }), { least: 1, most: 64 }),
    "tilted?": object({ site: name, below: number(-1, 1, "a number from -1 to 1") }),
  }),
  "cameras?": list(object({ name, width: whole(1, 1024), height: whole(1, 1024) }), { most: 8 }),
});

/** Returns all faults of a `scenario.json`; without any it is a `PackRules`. */
export function faultsOf(rules: unknown): string[] {
  const faults = FILE(rules, "");
  return faults.length > 0 ? faults : faultsBetween(rules as PackRules);
}

/** Faults between fields that are valid individually. */
function faultsBetween(rules: PackRules): string[] {
  const { action_dim: dim, action_fields, action, assets = [], mjcf, success, fail } = rules;
  const { low = -1, high = 1 } = action;
  const faults = [...actionFaults(rules), ...drawnFaults(rules)];
  if (action_fields && action_fields.length !== dim)
    faults.push(`action_fields must have ${dim} names, as action_dim states, got ${action_fields.length}`);
  if (low >= high) faults.push(`action.low must be below action.high, got ${low} and ${high}`);
  const twice = assets.filter((name, i) => assets.indexOf(name) !== i || name === mjcf);
  if (twice.length > 0) faults.push(`assets has duplicate files: ${twice.join(", ")}`);
  if (success?.site_near && success.return_at_least !== undefined)
    faults.push("success must have one condition, got site_near and return_at_least");
  for (const [i, { low: least, high: most }] of (fail?.joint_outside ?? []).entries())
    if (least >= most) faults.push(`fail.joint_outside[${i}].low must be below high, got ${least} and ${most}`);
  return faults;
}

/** Faults of the fields that only some kinds of actions have. */
function actionFaults({ action, action_dim: dim }: PackRules): string[] {
  const { kind, mocap, body, gripper } = action;
  if (kind !== "mocap_delta") {
    const extra = Object.entries({ mocap, body, gripper }).filter(([, value]) => value !== undefined);
    return extra.map(([field]) => `action.${field} requires the kind mocap_delta, got ${kind}`);
  }
  const missing = Object.entries({ mocap, body }).filter(([, value]) => value === undefined);
  const faults = missing.map(([field]) => `action.${field} is missing; mocap_delta requires it`);
  const wanted = gripper ? 4 : 3;
  if (dim !== wanted)
    faults.push(`action_dim must be ${wanted}, for mocap_delta ${gripper ? "with" : "without"} a gripper, got ${dim}`);
  return faults;
}

/** Faults of rules that use a target or a command. */
function drawnFaults({ target, command = [], command_every: every, obs, reward, success }: PackRules): string[] {
  const faults: string[] = [];
  const uses = {
    ...Object.fromEntries(obs.map(([word], i) => [`obs[${i}]`, word])),
    "reward.distance.place": reward?.distance?.place,
    "reward.far.place": reward?.far?.place,
    "success.site_near.place": success?.site_near?.place,
  };
  for (const [path, word] of Object.entries(uses))
    if (word === "target" && !target) faults.push(`${path} is "target", so \`target\` must be set`);
  if (every !== undefined && command.length === 0) faults.push("command_every requires a command");
  const tracked = reward?.track ?? [];
  for (const [i, { sensor, values, command: numbers }] of tracked.entries()) {
    const path = `reward.track[${i}]`;
    if (values.length !== numbers.length)
      faults.push(`${path}.command must have ${values.length} indexes, as many as values, got ${numbers.length}`);
    const beyond = numbers.find((number) => number >= command.length);
    if (beyond !== undefined)
      faults.push(
        `${path}.command must be below ${command.length}, the number of the command's numbers, got ${beyond}`,
      );
    if (tracked.findIndex((other) => other.sensor === sensor) !== i)
      faults.push(`${path}.sensor must be tracked once, got ${sensor} again`);
  }
  return faults;
}
