/**
 * Scenario packs: a folder each, with `scenario.json`, its MJCF and its assets (`docs/guides/scenario-packs.md`). A pack is read once, and the
 * same content is checked, digested and run. An invalid pack is refused alone.
 */
import { join } from "node:path";
import { checkPack } from "./pack/check.ts";
import type { PackRules } from "./pack/schema.ts";
import { type PackFacts, type PackSource, packNames, readSource } from "./pack/source.ts";
import { playing } from "./pack/task.ts";
import type { Scenario } from "./scenario.ts";

/** A valid pack; it can be sent to a thread. */
export interface Pack extends PackSource {
  readonly facts: PackFacts;
}

/** A refused pack, with all of its faults. */
export interface RefusedPack {
  /** Its folder's name. */
  readonly name: string;
  readonly faults: readonly string[];
}

/**
 * Reads and checks every pack of a folder; of packs with the same id, or one in `taken`, only the first gets it. Throws if the folder cannot be
 * read.
 */
export async function loadPacks(
  folder: string,
  taken: ReadonlySet<string>,
): Promise<{ packs: readonly Pack[]; refused: readonly RefusedPack[] }> {
  const ids = new Set(taken);
  const packs: Pack[] = [];
  const refused: RefusedPack[] = [];
  for (const name of packNames(folder)) {
    const pack = await loadPack(join(folder, name), ids);
    if ("facts" in pack) packs.push(pack);
    else refused.push({ name, faults: pack });
  }
  return { packs, refused };
}

/** Reads and checks one pack; returns all of its faults if it is invalid. */
export async function loadPack(folder: string, ids: Set<string>): Promise<Pack | readonly string[]> {
  const source = readSource(folder);
  if (!("rules" in source)) return source;
  const { id } = source.rules;
  if (ids.has(id)) return [`id is ${id}, which is another scenario's id`];
  const { faults, facts } = await checkPack(source);
  if (!facts) return faults;
  ids.add(id);
  return { ...source, facts };
}

/** Converts a pack to a scenario. */
export function scenarioOfPack(pack: Pack): Scenario {
  const { rules, mjcf, assets, facts } = pack;
  const { id, version, title, description, source = "", action, action_dim: dim } = rules;
  return {
    id,
    version,
    title,
    description,
    topic: "",
    source,
    success: successOf(rules),
    pack,
    variants: [
      {
        actionSpace: rules.action_space,
        fields: rules.action_fields ?? Array.from({ length: dim }, (_, i) => `a${i + 1}`),
        units: rules.units ?? "",
        bounds: {
          low: Array.from({ length: dim }, () => action.low ?? -1),
          high: Array.from({ length: dim }, () => action.high ?? 1),
        },
        proprioNames: facts.proprioNames,
        dtMs: facts.timestep * rules.substeps * 1000,
        maxSteps: rules.max_steps,
        cameras: rules.cameras ?? [],
        mjcf,
        assets,
        instruction: rules.instruction ?? title,
        play: (world) => playing(rules, world),
      },
    ],
  };
}

function successOf({ success, max_steps }: PackRules): string {
  const { site_near: near, return_at_least: least } = success ?? {};
  if (near)
    return `${near.site} comes within ${near.within_m} m of its ${near.place === "target" ? "target" : "place"}.`;
  const lasts = `The episode lasts all ${max_steps} steps`;
  return least === undefined ? `${lasts}.` : `${lasts} with a return of at least ${least}.`;
}
