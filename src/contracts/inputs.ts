/** What models read and what their actions mean: checks whether a declaration is consistent, and whether a request meets it. */
import {
  type ActionMeaning,
  type CameraSpec,
  type ContractSource,
  type GripperMeaning,
  type InputContract,
  InputNeed,
  type ProprioSpec,
} from "../../gen/limber/v1/input_contract_pb.ts";
import { type Frame, ImageFormat, type Observation } from "../../gen/limber/v1/observation_pb.ts";

export { InputNeed };

/** The part of a request that contracts are about. */
export interface GivenInput {
  /** Oldest first. */
  readonly observations: readonly Observation[];
  readonly instruction?: string | undefined;
  readonly goalImage?: Frame | undefined;
  /** The action space of the answer: a model's layouts of proprioception may go by it. */
  readonly actionSpace?: string | undefined;
}

/** What is known of a picture without decoding it. */
export interface PictureFacts {
  readonly width: number;
  readonly height: number;
  readonly format: ImageFormat;
}

/** Reads the header of a picture that came as bytes; undefined where there is none to read. */
export type ReadPicture = (frame: Frame) => PictureFacts | undefined;

/** A field that does not meet a contract, and the smallest change of the request that would mend it. */
export interface InputFault {
  /** Path in the request, such as `observations.0.frames.1.camera`. */
  readonly path: string;
  /** What is wrong, as a sentence that goes on from the path. */
  readonly message: string;
  /** The rule that it breaks, by pydantic's names: `missing`, `extra_forbidden`, `length`, `value_error`. */
  readonly type: "missing" | "extra_forbidden" | "length" | "value_error";
  /** What would serve. */
  readonly change: string;
  /** How many values the field should have, where that is what is wrong. */
  readonly wanted?: number;
}

/** Every field that does not meet the contract; none where nothing is known to be wrong. Pure. */
export function inputFaults(contract: InputContract, given: GivenInput, read: ReadPicture = nothing): InputFault[] {
  const faults: InputFault[] = [];
  const newest = given.observations.length - 1;
  const seen = given.observations[newest];
  checkHistory(contract, given, faults);
  if (seen) {
    checkCameras(contract, seen, { at: `observations.${newest}.frames`, read, faults });
    checkProprio(contract, seen, { at: `observations.${newest}`, space: given.actionSpace ?? "", faults });
  }
  checkNeed(contract.language?.need, "instruction", (given.instruction ?? "") !== "", faults);
  checkNeed(contract.goalImage?.need, "goal_image", given.goalImage !== undefined, faults);
  return faults;
}

/**
 * Whether an input meets a contract, as far as that can be decided without decoding images or interpreting text. A model may still reject
 * input that meets its contract.
 */
export const meetsContract = (contract: InputContract, given: GivenInput, read?: ReadPicture): boolean =>
  inputFaults(contract, given, read).length === 0;

const nothing: ReadPicture = () => undefined;

function checkHistory({ history }: InputContract, { observations }: GivenInput, faults: InputFault[]): void {
  const { length } = observations;
  const { least = 1, most = Number.POSITIVE_INFINITY } = history ?? {};
  if (length >= least && length <= most) return;
  const wanted = length < least ? least : most;
  const side = length < least ? "at least" : "at most";
  faults.push({
    path: "observations",
    message: `has ${counted(length, "observation")}, and the model reads ${side} ${wanted}`,
    type: "length",
    change: `send ${side} ${counted(wanted, "observation")}`,
    wanted,
  });
}

interface CameraCheck {
  readonly at: string;
  readonly read: ReadPicture;
  readonly faults: InputFault[];
}

function checkCameras(
  { cameras: declared, otherCameras }: InputContract,
  { frames }: Observation,
  check: CameraCheck,
): void {
  if (!declared) return;
  const { cameras } = declared;
  const isNamed = frames.some(({ camera }) => camera !== "");
  const taken = new Set<number>();
  const missing: CameraSpec[] = [];
  cameras.forEach((spec, place) => {
    const index = placeOf(spec, isNamed ? undefined : place, frames, place);
    if (index === undefined) {
      if (spec.required) missing.push(spec);
      return;
    }
    taken.add(index);
    checkPicture(spec, frames[index]!, `${check.at}.${index}`, check);
  });
  for (const spec of missing)
    check.faults.push({
      path: check.at,
      message: `lacks the picture of ${cameraName(spec)}`,
      type: "missing",
      change: `add the picture of ${cameraName(spec)}${sizeOf(spec)}`,
    });
  // If other cameras are allowed, report an unknown one only beside a missing one: its name may be misspelled.
  if (otherCameras && missing.length === 0) return;
  const known = cameras.map(cameraName).join(", ") || "no camera";
  frames.forEach(({ camera }, index) => {
    if (taken.has(index)) return;
    check.faults.push({
      path: isNamed ? `${check.at}.${index}.camera` : `${check.at}.${index}`,
      message: `${camera === "" ? "a picture" : JSON.stringify(camera.slice(0, MOST_ECHOED))} is not read; the model reads ${known}`,
      type: "extra_forbidden",
      change: `leave out the picture${camera === "" ? "" : ` of ${JSON.stringify(camera.slice(0, MOST_ECHOED))}`}`,
    });
  });
}

const MOST_ECHOED = 64;

/** Pictures go by their camera's name; by their place where the contract names no camera, or the request names none. */
function placeOf(
  { name, aliases }: CameraSpec,
  unnamed: number | undefined,
  frames: readonly Frame[],
  place: number,
): number | undefined {
  if (name === "" || unnamed !== undefined) return place < frames.length ? place : undefined;
  const index = frames.findIndex(({ camera }) => camera === name || aliases.includes(camera));
  return index < 0 ? undefined : index;
}

function checkPicture(spec: CameraSpec, frame: Frame, path: string, { read, faults }: CameraCheck): void {
  const fixesSize = !spec.anySize && (spec.width !== undefined || spec.height !== undefined);
  if (!fixesSize && spec.formats.length === 0) return;
  // The bytes themselves are believed before what is said of them.
  const facts = read(frame);
  for (const side of fixesSize ? (["width", "height"] as const) : []) {
    const [has, wanted] = [facts?.[side] ?? frame[side], spec[side]];
    if (wanted === undefined || has === undefined || has === wanted) continue;
    faults.push({
      path: `${path}.${side}`,
      message: `is ${has}, and the model reads pictures of ${cameraName(spec)}${sizeOf(spec)}`,
      type: "value_error",
      change: `make the picture of ${cameraName(spec)}${sizeOf(spec)}`,
      wanted,
    });
  }
  const format = (facts?.format ?? frame.format) || undefined;
  if (format === undefined || spec.formats.length === 0 || spec.formats.includes(format)) return;
  const wanted = spec.formats.map((each) => FORMAT_WORDS[each]).join(" or ");
  faults.push({
    path: `${path}.format`,
    message: `is ${FORMAT_WORDS[format]}, and the model reads ${wanted} of ${cameraName(spec)}`,
    type: "value_error",
    change: `encode the picture of ${cameraName(spec)} as ${wanted}`,
  });
}

const FORMAT_WORDS: Readonly<Record<ImageFormat, string>> = {
  [ImageFormat.UNSPECIFIED]: "any",
  [ImageFormat.PNG]: "png",
  [ImageFormat.JPEG]: "jpeg",
  [ImageFormat.WEBP]: "webp",
};

const cameraName = ({ name }: CameraSpec): string => (name === "" ? "any camera" : name);

const sizeOf = ({ width, height }: Pick<CameraSpec, "width" | "height">): string =>
  width === undefined && height === undefined ? "" : ` (${width ?? "any"} by ${height ?? "any"})`;

interface ProprioCheck {
  readonly at: string;
  readonly space: string;
  readonly faults: InputFault[];
}

/** An observation must have one of the layouts; the fault is reported for the nearest. */
function checkProprio({ proprio }: InputContract, seen: Observation, { at, space, faults }: ProprioCheck): void {
  if (proprio.length === 0) return;
  const layouts = proprio.filter(({ actionSpace }) => isOf(actionSpace, space));
  let nearest: InputFault[] | undefined;
  for (const layout of layouts) {
    const found = layoutFaults(layout, seen, at);
    if (found.length === 0) return;
    if (
      nearest === undefined ||
      found.length < nearest.length ||
      (found.length === nearest.length && isNearer(found, nearest, seen))
    )
      nearest = found;
  }
  if (nearest) faults.push(...nearest);
}

const isNearer = ([one]: InputFault[], [other]: InputFault[], { proprio }: Observation): boolean =>
  one?.wanted !== undefined &&
  other?.wanted !== undefined &&
  Math.abs(one.wanted - proprio.length) < Math.abs(other.wanted - proprio.length);

/** Whether what belongs to an action space, or to every one, is of use where answers are in a space, or in any. */
const isOf = (actionSpace: string | undefined, space: string): boolean =>
  !actionSpace || space === "" || actionSpace === space;

/** How many values a layout has; undefined where any number will do. */
export const dimensionOfLayout = ({ dimension, names }: ProprioSpec): number | undefined =>
  dimension ?? (names.length > 0 ? names.length : undefined);

function layoutFaults(layout: ProprioSpec, { proprio, proprioNames }: Observation, at: string): InputFault[] {
  const dim = dimensionOfLayout(layout);
  const { length } = proprio;
  if (dim !== undefined && (length < dim || (length > dim && !layout.moreValues))) {
    const isMissing = length === 0;
    const isSurplus = dim === 0;
    const reads = isSurplus ? "none is read" : `the model reads ${valuesOf(layout, dim)}`;
    return [
      {
        path: `${at}.proprio`,
        message: isMissing ? `is missing: ${reads}` : `has ${counted(length, "value")}, and ${reads}`,
        type: isMissing ? "missing" : isSurplus ? "extra_forbidden" : "length",
        change: isSurplus ? "leave out proprio" : `send ${valuesOf(layout, dim)} in proprio`,
        wanted: dim,
      },
    ];
  }
  return nameFaults(layout, proprioNames, at);
}

/** Names that a request gives to its values are held against those of the layout; a request need not give any. */
function nameFaults({ names, anyOrder, moreValues }: ProprioSpec, given: readonly string[], at: string): InputFault[] {
  if (names.length === 0 || given.length === 0) return [];
  const path = `${at}.proprio_names`;
  const known = new Set(names);
  const has = new Set(given);
  const missing = names.filter((name) => !has.has(name));
  const surplus = moreValues ? [] : given.filter((name) => !known.has(name));
  const change = `name the values ${listed(names)}`;
  const told = (message: string, type: InputFault["type"]): InputFault => ({ path, message, type, change });
  if (missing.length > 0 || surplus.length > 0)
    return [
      ...(missing.length > 0 ? [told(`lacks ${listed(missing)}`, "missing")] : []),
      ...(surplus.length > 0 ? [told(`has ${listed(surplus)}, which the model does not read`, "extra_forbidden")] : []),
    ];
  if (anyOrder || names.every((name, i) => given[i] === name)) return [];
  return [told(`has another order than the model reads: ${listed(names)}`, "value_error")];
}

function valuesOf({ names, units }: ProprioSpec, dim: number): string {
  const each = units.length === names.length ? names.map((name, i) => `${name} in ${units[i]}`) : names;
  const told = each.length === 0 ? "" : ` (${listed(each)})`;
  const all = units.length === 1 && names.length !== 1 ? ` in ${units[0]}` : "";
  return `${counted(dim, "value")}${all}${told}`;
}

/** Names that a sentence lists; the contract has all. */
const MOST_LISTED = 16;

function listed(words: readonly string[]): string {
  const some = words.slice(0, MOST_LISTED).map((word) => word.slice(0, MOST_ECHOED));
  return some.join(", ") + (words.length > MOST_LISTED ? `, and ${words.length - MOST_LISTED} more` : "");
}

function checkNeed(need: InputNeed | undefined, path: string, isGiven: boolean, faults: InputFault[]): void {
  if (need === InputNeed.REQUIRED && !isGiven)
    faults.push({
      path,
      message: "is missing: the model gives no answer without it",
      type: "missing",
      change: `add ${path}`,
    });
  if (need === InputNeed.NONE && isGiven)
    faults.push({ path, message: "is not read by the model", type: "extra_forbidden", change: `leave out ${path}` });
}

const counted = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? "" : "s"}`;

const NEEDS: Readonly<Partial<Record<InputNeed, string>>> = {
  [InputNeed.REQUIRED]: "",
  [InputNeed.OPTIONAL]: " if there is one",
};

/** What a contract says that is read for answers in an action space, or in any, in a sentence without its end; undefined where it says nothing. */
export function readsOf(contract: InputContract, space = ""): string | undefined {
  const { cameras, proprio, language, goalImage, history } = contract;
  const parts: string[] = [];
  if (cameras?.cameras.length === 0) parts.push("no pictures");
  else if (cameras)
    parts.push(
      `pictures of ${cameras.cameras.map((spec) => `${cameraName(spec)}${sizeOf(spec)}${spec.required ? "" : " if there is one"}`).join(", ")}`,
    );
  const layouts = new Set(
    proprio
      .filter(({ actionSpace }) => isOf(actionSpace, space))
      .map((layout) => {
        const dim = dimensionOfLayout(layout);
        const only = !layout.actionSpace || layout.actionSpace === space ? "" : ` for ${layout.actionSpace}`;
        if (dim === 0) return `no proprioception${only}`;
        return dim === undefined ? "" : `${valuesOf(layout, dim)} of proprioception${only}`;
      }),
  );
  layouts.delete("");
  if (layouts.size > 0) parts.push([...layouts].join(" or "));
  const words = language && NEEDS[language.need];
  if (words !== undefined) parts.push(`an instruction${words}`);
  else if (language?.need === InputNeed.NONE) parts.push("no instruction");
  const goal = goalImage && NEEDS[goalImage.need];
  if (goal !== undefined) parts.push(`a goal_image${goal}`);
  if (history?.least !== undefined && history.least > 1) parts.push(`at least ${history.least} observations`);
  return parts.length === 0 ? undefined : parts.join("; ");
}

/**
 * A check that makes nothing: true only where a request surely meets the contract, false where it has to be looked at. Calls in a control loop
 * come this way.
 */
export function quickCheckOf(contract: InputContract): (given: GivenInput) => boolean {
  const parts: ((given: GivenInput) => boolean)[] = [];
  const { history, cameras, proprio, language, goalImage } = contract;
  if (history)
    parts.push(({ observations: { length } }) => length >= (history.least ?? 1) && length <= (history.most ?? length));
  if (cameras) parts.push(quickCameras(cameras.cameras, contract.otherCameras));
  if (proprio.length > 0) parts.push(quickProprio(proprio));
  if (needs(language?.need)) parts.push(quickNeed(language?.need, ({ instruction }) => (instruction ?? "") !== ""));
  if (needs(goalImage?.need)) parts.push(quickNeed(goalImage?.need, (given) => given.goalImage !== undefined));
  return (given) => {
    if (given.observations.length === 0) return false;
    for (let i = 0; i < parts.length; i++) if (!parts[i]!(given)) return false;
    return true;
  };
}

const needs = (need: InputNeed | undefined): boolean => need === InputNeed.REQUIRED || need === InputNeed.NONE;

const quickNeed =
  (need: InputNeed | undefined, isGiven: (given: GivenInput) => boolean) =>
  (given: GivenInput): boolean =>
    isGiven(given) === (need === InputNeed.REQUIRED);

function quickCameras(cameras: readonly CameraSpec[], others: boolean): (given: GivenInput) => boolean {
  const takesAny = cameras.every(
    ({ anySize, width, height, formats }) =>
      (anySize || (width === undefined && height === undefined)) && formats.length === 0,
  );
  if (!takesAny) return () => false;
  return ({ observations }) => {
    const { frames } = observations[observations.length - 1]!; // seen to be there
    let found = 0;
    for (let i = 0; i < cameras.length; i++) {
      const { name, required } = cameras[i]!;
      // By place, or under another name: that is looked at.
      if (name === "") return false;
      let isHere = false;
      for (let j = 0; j < frames.length; j++) isHere ||= frames[j]!.camera === name;
      if (isHere) found++;
      else if (required) return false;
    }
    return others || found === frames.length;
  };
}

function quickProprio(layouts: readonly ProprioSpec[]): (given: GivenInput) => boolean {
  const dims = layouts.map(dimensionOfLayout);
  return ({ observations, actionSpace = "" }) => {
    const { proprio, proprioNames } = observations[observations.length - 1]!; // seen to be there
    if (proprioNames.length > 0) return false;
    for (let i = 0; i < layouts.length; i++) {
      const layout = layouts[i]!;
      if (!isOf(layout.actionSpace, actionSpace)) continue;
      const dim = dims[i];
      if (dim === undefined || proprio.length === dim || (layout.moreValues && proprio.length > dim)) return true;
    }
    return false;
  };
}

/** Maximum bytes of the input declaration, and of the action declarations, which are public. */
export const MOST_INPUT_BYTES = 32 * 1024;

/** What is said, and of what. */
interface SaidOfInput {
  readonly input: InputContract | undefined;
  readonly actions: readonly ActionMeaning[];
  /** The action spaces that the offering emits. */
  readonly actionSpaces: readonly string[];
  /** Numbers per step in an action space; undefined where that is not known. */
  readonly dimOf: (space: string) => number | undefined;
}

/** A field that contradicts another. */
interface InputDeclarationFault {
  readonly path: string;
  /** Goes on from the path. */
  readonly message: string;
}

/** The first contradiction; undefined where there is none. */
export function inputDeclarationFault(said: SaidOfInput): InputDeclarationFault | undefined {
  const { input, actions, actionSpaces } = said;
  const known = (space: string | undefined): boolean => !space || actionSpaces.includes(space);
  return (
    (input && (cameraFault(input) ?? historyFault(input))) ??
    firstOf(input?.proprio ?? [], (layout, i) => layoutFault(layout, `input.proprio.${i}`, known)) ??
    firstOf(actions, (meaning, i) => meaningFault(meaning, `actions.${i}`, said, known)) ??
    twice(actions)
  );
}

function firstOf<T, U>(all: readonly T[], of: (each: T, place: number) => U | undefined): U | undefined {
  for (const [i, each] of all.entries()) {
    const found = of(each, i);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** One name stands for one camera. */
function cameraFault({ cameras }: InputContract): InputDeclarationFault | undefined {
  const names = new Set<string>();
  return firstOf(cameras?.cameras ?? [], ({ name, aliases }, i) => {
    for (const each of [...(name === "" ? [] : [name]), ...aliases]) {
      if (names.has(each))
        return {
          path: `input.cameras.${i}`,
          message: `has the name ${JSON.stringify(each)}, which another camera has too`,
        };
      names.add(each);
    }
    return undefined;
  });
}

function historyFault({ history }: InputContract): InputDeclarationFault | undefined {
  if (history?.least === undefined || history.most === undefined || history.least <= history.most) return undefined;
  return { path: "input.history.least", message: "is above most" };
}

function layoutFault(
  { names, units, dimension, actionSpace, moreValues }: ProprioSpec,
  path: string,
  known: (space: string | undefined) => boolean,
): InputDeclarationFault | undefined {
  if (!known(actionSpace)) return { path: `${path}.action_space`, message: "is not one of action_spaces" };
  const dim = dimension ?? (names.length > 0 ? names.length : undefined);
  if (names.length > 0 && dim !== names.length)
    return { path: `${path}.names`, message: `has ${names.length} names, and dimension says ${dim} values` };
  if (new Set(names).size !== names.length) return { path: `${path}.names`, message: "has a name twice" };
  if (dim === undefined && moreValues)
    return { path: `${path}.more_values`, message: "says nothing without dimension" };
  return unitsFault(units, dim, path);
}

function unitsFault(
  units: readonly string[],
  dim: number | undefined,
  path: string,
): InputDeclarationFault | undefined {
  if (units.length <= 1 || dim === undefined || units.length === dim) return undefined;
  return { path: `${path}.units`, message: `needs one unit, or one for each of ${dim}` };
}

function meaningFault(
  { actionSpace, names, units, gripper }: ActionMeaning,
  path: string,
  { actionSpaces, dimOf }: SaidOfInput,
  known: (space: string | undefined) => boolean,
): InputDeclarationFault | undefined {
  if (!known(actionSpace)) return { path: `${path}.action_space`, message: "is not one of action_spaces" };
  for (const space of actionSpace ? [actionSpace] : actionSpaces) {
    const dim = dimOf(space);
    if (dim === undefined) continue;
    if (names.length > 0 && names.length !== dim)
      return { path: `${path}.names`, message: `has ${names.length} names, and ${space} has ${dim} numbers per step` };
    const far = gripper?.indexes.findIndex((index) => index >= dim) ?? -1;
    if (far >= 0)
      return { path: `${path}.gripper.indexes.${far}`, message: `is beyond the ${dim} numbers of ${space}` };
    const fault = unitsFault(units, dim, path);
    if (fault) return fault;
  }
  if (gripper && gripper.open === gripper.closed)
    return { path: `${path}.gripper.closed`, message: "is the number that opens it too" };
  return undefined;
}

function twice(actions: readonly ActionMeaning[]): InputDeclarationFault | undefined {
  const place = actions.findIndex(
    ({ actionSpace }, i) => actions.findIndex((one) => (one.actionSpace ?? "") === (actionSpace ?? "")) < i,
  );
  return place < 0 ? undefined : { path: `actions.${place}.action_space`, message: "is that of another entry too" };
}

/** Of one offering. Nothing in it ever changes. */
export interface DeclaredInput {
  /** Equal where all else is equal. */
  readonly key: string;
  /** What it reads; undefined where it says nothing of that. */
  readonly input: InputContract | undefined;
  readonly inputSource: ContractSource;
  /** What its actions mean, by action space; empty where it says nothing of that. */
  readonly actions: readonly ActionMeaning[];
  readonly actionsSource: ContractSource;
  /** Every field of a request that does not meet it. */
  faults(given: GivenInput, read?: ReadPicture): InputFault[];
  /** Whether a request meets it, as far as is known: equivalent to no faults, but faster. */
  meets(given: GivenInput, read?: ReadPicture): boolean;
}

/** Builds a declaration and precomputes its checks. */
export function declaredInput(
  said: Pick<DeclaredInput, "key" | "input" | "inputSource" | "actions" | "actionsSource">,
): DeclaredInput {
  const { input } = said;
  if (input === undefined) return { ...said, faults: () => [], meets: () => true };
  const surelyMeets = quickCheckOf(input);
  return {
    ...said,
    faults: (given, read) => inputFaults(input, given, read),
    meets: (given, read) => surelyMeets(given) || inputFaults(input, given, read).length === 0,
  };
}

/** What is declared of the actions in an action space: what is said of that space, else of every one; undefined where nothing is. */
export function meaningIn(meanings: readonly ActionMeaning[], space: string | undefined): ActionMeaning | undefined {
  let general: ActionMeaning | undefined;
  for (const meaning of meanings) {
    if (!meaning.actionSpace) general ??= meaning;
    else if (meaning.actionSpace === space) return meaning;
  }
  return general;
}

/**
 * In what two meanings differ, such as `units`; undefined where they do not. They differ where both state a thing and do not state the same.
 * Pure.
 */
export function differenceOf(one: ActionMeaning | undefined, other: ActionMeaning | undefined): string | undefined {
  if (one === undefined || other === undefined || one === other) return undefined;
  if (differ(one.names, other.names)) return "names";
  if (unitsDiffer(one, other)) return "units";
  if (contradict(one.reference, other.reference)) return "reference";
  if (contradict(one.referenceFrame, other.referenceFrame)) return "reference_frame";
  if (contradict(one.rotation, other.rotation)) return "rotation";
  return grippersDiffer(one.gripper, other.gripper) ? "gripper" : undefined;
}

/** Neither the unspecified value nor an empty word says anything. */
const contradict = (one: string | number | undefined, other: string | number | undefined): boolean =>
  !!one && !!other && one !== other;

/** Lists of which one is empty say nothing. */
const differ = <T>(one: readonly T[], other: readonly T[]): boolean =>
  one.length > 0 && other.length > 0 && (one.length !== other.length || one.some((each, i) => each !== other[i]));

/** One unit stands for all numbers. */
function unitsDiffer({ units: one }: ActionMeaning, { units: other }: ActionMeaning): boolean {
  if (one.length === 1 && other.length > 0) return other.some((unit) => unit !== one[0]);
  if (other.length === 1) return one.some((unit) => unit !== other[0]);
  return differ(one, other);
}

const grippersDiffer = (one: GripperMeaning | undefined, other: GripperMeaning | undefined): boolean =>
  one !== undefined &&
  other !== undefined &&
  (one.open !== other.open || one.closed !== other.closed || differ(one.indexes, other.indexes));
