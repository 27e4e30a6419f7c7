/** Stage 2: every offering that a model or alias of the request stands for. */
import { Reason, type Refusal, refuse } from "../../errors.ts";
import { type Candidates, Flag, servesBits } from "../snapshot/snapshot.ts";
import type { Ask, RoutingTarget } from "./intent.ts";

const NONE = new Uint32Array(0);

/** The rows that a target stands for, whatever they can serve: what a refusal names. */
export function universeOf(ask: Ask, target: RoutingTarget): Uint32Array {
  const { snapshot } = ask;
  const rows = target.alias ? snapshot.rowsOfAlias(target.alias) : (snapshot.rowsOfModel(target.name) ?? NONE);
  if (ask.allowSimulated) return rows;
  // The catalog's placeholders are no supply: only requests that allow them get them. They come last.
  let end = rows.length;
  while (end > 0 && !snapshot.isRegistered(rows[end - 1]!)) end--;
  return rows.subarray(0, end);
}

/** The rows that the constraints start from. An alias's are listed beforehand; a model has few, and each counts as a kind of its own. */
export function expand(ask: Ask, target: RoutingTarget): Candidates {
  if (target.alias) return ask.snapshot.serving(target.alias, ask.serves, ask.allowSimulated);
  const rows = universeOf(ask, target);
  if (ownKinds.length < rows.length) ownKinds = Uint32Array.from({ length: 2 * rows.length }, (_, place) => place);
  return { rows, kinds: ownKinds, samples: rows };
}

let ownKinds = Uint32Array.from({ length: 64 }, (_, place) => place);

/** Every row that the request stands for, once. */
export function consideredRows(ask: Ask): Iterable<number> {
  if (ask.targets.length === 1) return universeOf(ask, ask.targets[0]!);
  return new Set(ask.targets.flatMap((target) => [...universeOf(ask, target)]));
}

/** Whether anything stands behind a target that may serve at all: live supply, or placeholders that the request admits. */
function hasSupply(ask: Ask, target: RoutingTarget): boolean {
  const unwanted = ask.allowSimulated ? 0 : Flag.SIMULATED;
  return universeOf(ask, target).some((row) => (ask.snapshot.columns.traits[row]! & unwanted) === 0);
}

/** The refusal of a request that no live supply stands behind, whatever its constraints; undefined when some does. */
export function withoutSupply(ask: Ask): Refusal | undefined {
  if (ask.targets.some((target) => hasSupply(ask, target))) return undefined;
  const names = ask.targets.map((target) => target.name).join(", ");
  const hint = ask.scope.environment === "hardware" ? "" : "; provider.allow_simulated would admit placeholders";
  return refuse(Reason.NO_LIVE_DEPLOYMENT, `nothing live serves ${names}${hint}`, {}, { param: "model" });
}

/** The refusal of a named model that does not emit the action space asked for; undefined when every named model does. */
export function wrongActionSpace(ask: Ask): Refusal | undefined {
  const space = ask.intent.actionSpace;
  if (space === undefined) return undefined;
  for (const target of ask.targets) {
    if (target.alias) continue;
    const rows = universeOf(ask, target);
    if (!servesAny(ask, rows, servesBits(ask.contract, undefined)) || servesAny(ask, rows, ask.serves)) continue;
    const emitted = spacesOf(ask, target, rows);
    if (emitted.includes(space)) continue;
    return refuse(
      Reason.ACTION_SPACE_MISMATCH,
      `${target.name} does not emit ${space}; it emits ${emitted.join(", ")}`,
      { needed: emitted },
      { param: "action_space" },
    );
  }
  return undefined;
}

function servesAny({ snapshot }: Ask, rows: Uint32Array, bits: number): boolean {
  return rows.some((row) => (snapshot.columns.traits[row]! & bits) === bits);
}

function spacesOf({ snapshot }: Ask, target: RoutingTarget, rows: Uint32Array): string[] {
  const spaces = new Set(snapshot.catalogModel(target.name)?.actionSpaces);
  for (const row of rows) for (const space of snapshot.offerings[row]!.actionSpaces) spaces.add(space);
  return [...spaces].sort();
}
