/** The schema of `scenario.json`. A file is checked completely, so that every fault is reported at once. */
import type { Camera } from "../scenario.ts";

/** A part of an observation: a term, for some terms with an argument. */
export type ObsTerm =
  | readonly ["qpos" | "qpos_rel" | "qvel" | "command" | "last_action"]
  | readonly ["site" | "gravity" | "sensor", string]
  | readonly ["qpos_from" | "qvel_clipped" | "last_action", number];

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
  /** `joint_target`: controls at the first state's joint positions plus scale times the action. `control`: controls at scale times the action. */
  readonly action: {
    readonly kind: "joint_target" | "control";
    readonly scale: number;
    readonly low?: number;
    readonly high?: number;
  };
  readonly obs: readonly ObsTerm[];
  readonly reset?: { readonly qpos_noise?: number; readonly qvel_noise?: number };
  /** The policy's instruction, drawn once per episode. */
  readonly command?: readonly (readonly [number, number])[];
  /** The reward of a step, a sum of terms; 1 for each step before a failure if absent. */
  readonly reward?: {
    /** For each step before a failure. */
    readonly alive?: number;
    /** Times the mean speed of a joint's position during the step. */
    readonly speed?: { readonly joint: string; readonly weight: number };
    /** Times the distance of a site from a place, in meters. */
    readonly distance?: { readonly site: string; readonly place: readonly number[]; readonly weight: number };
    /** Times the sum of the squared numbers of the action. */
    readonly action?: number;
  };
  /** At most one condition; reaching `max_steps` is success without one. */
  readonly success?: {
    readonly site_near?: { readonly site: string; readonly place: readonly number[]; readonly within_m: number };
    /** Reaching `max_steps` with at least this return. */
    readonly return_at_least?: number;
  };
  readonly fail?: {
    readonly body_below?: { readonly body: string; readonly z: number };
    readonly joint_outside?: readonly { readonly joint: string; readonly low: number; readonly high: number }[];
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

const place = list(finite, { most: 3, exactly: true });

const pair: Check = (value, path) => {
  const faults = list(finite, { most: 2, exactly: true })(value, path);
  if (faults.length > 0) return faults;
  const [low, high] = value as [number, number];
  return low <= high ? [] : [`${path} must be a minimum and a maximum, got ${low} and ${high}`];
};

/** The argument of each term. */
const TERMS: Readonly<Record<string, "none" | "name" | "index" | "limit" | "scale">> = {
  qpos: "none",
  qpos_from: "index",
  qpos_rel: "none",
  qvel: "none",
  qvel_clipped: "limit",
  command: "none",
  site: "name",
  gravity: "name",
  sensor: "name",
  last_action: "scale",
};

const term: Check = (value, path) => {
  if (!Array.isArray(value) || value.length < 1 || value.length > 2)
    return wrong(path, "a list of a term and its argument", value);
  const [word, argument] = value as [unknown, unknown];
  const takes = typeof word === "string" && Object.hasOwn(TERMS, word) ? TERMS[word] : undefined;
  if (takes === undefined) return wrong(`${path}[0]`, `one of ${Object.keys(TERMS).join(", ")}`, word);
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
    kind: text(/^(joint_target|control)$/, "joint_target or control"),
    scale: finite,
    "low?": finite,
    "high?": finite,
  }),
  obs: list(term, { least: 1, most: 256 }),
  "reset?": object({ "qpos_noise?": noise, "qvel_noise?": noise }),
  "command?": list(pair, { most: 64 }),
  "reward?": object({
    "alive?": finite,
    "speed?": object({ joint: name, weight: finite }),
    "distance?": object({ site: name, place, weight: finite }),
    "action?": finite,
  }),
  "success?": object({
    "site_near?": object({ site: name, place, within_m: positive }),
    "return_at_least?": finite,
  }),
  "fail?": object({
    "body_below?": object({ body: name, z: finite }),
    "joint_outside?": list(object({ joint: name, low: finite, high: finite }), { least: 1, most: 64 }),
  }),
  "cameras?": list(object({ name, width: whole(1, 1024), height: whole(1, 1024) }), { most: 8 }),
});

/** Returns all faults of a `scenario.json`; without any it is a `PackRules`. */
export function faultsOf(rules: unknown): string[] {
  const faults = FILE(rules, "");
  return faults.length > 0 ? faults : faultsBetween(rules as PackRules);
}

/** Faults between fields that are valid individually. */
function faultsBetween({
  action_dim: dim,
  action_fields,
  action,
  assets = [],
  mjcf,
  success,
  fail,
}: PackRules): string[] {
  const { low = -1, high = 1 } = action;
  const faults: string[] = [];
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
