/** Whether what is said of an offering's input and actions can be true: what the schema cannot state. */
import type { ActionMeaning, InputContract, ProprioSpec } from "../../gen/limber/v1/input_contract_pb.ts";

/** The most bytes of what is said of the input, and of what is said of actions: everybody is shown it. */
export const MOST_INPUT_BYTES = 32 * 1024;

/** What is said, and of what. */
export interface SaidOfInput {
  readonly input: InputContract | undefined;
  readonly actions: readonly ActionMeaning[];
  /** The action spaces that the offering emits. */
  readonly actionSpaces: readonly string[];
  /** Numbers per step in an action space; undefined where that is not known. */
  readonly dimOf: (space: string) => number | undefined;
}

/** A field that contradicts another. */
export interface InputDeclarationFault {
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
  if (!known(actionSpace)) return { path: `${path}.action_space`, message: "is none of action_spaces" };
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
  if (!known(actionSpace)) return { path: `${path}.action_space`, message: "is none of action_spaces" };
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
