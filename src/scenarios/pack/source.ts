/** A scenario pack as read once: the content that is compiled, digested and sent to the threads. */
import { type Dirent, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { ScenarioError } from "../failure.ts";
import { faultsOf, type PackRules } from "./schema.ts";

/** A pack's content. It can be sent to a thread. */
export interface PackSource {
  readonly rules: PackRules;
  readonly mjcf: string;
  readonly assets: ReadonlyMap<string, Uint8Array>;
}

/** The engine's facts about a pack's model. */
export interface PackFacts {
  /** Seconds of one step of the engine. */
  readonly timestep: number;
  /** One name per number of an observation. */
  readonly proprioNames: readonly string[];
}

/** The maximum total size of a pack's files, in bytes. */
const MOST_BYTES = 64 << 20;

/** Returns the names of the packs in a folder, in order. Throws a `ScenarioError` that names the setting. */
export const packNames = (folder: string): string[] =>
  entriesOf(folder)
    .filter((entry) => entry.isDirectory() && !entry.name.startsWith("."))
    .map((entry) => entry.name)
    .sort();

function entriesOf(folder: string): Dirent[] {
  try {
    return readdirSync(folder, { withFileTypes: true });
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new ScenarioError(`LIMBER_SCENARIO_PACKS names an unreadable folder: ${why}`, { cause });
  }
}

/** Reads a pack, or reports all faults of its files. */
export function readSource(folder: string): PackSource | readonly string[] {
  const file = read(() => JSON.parse(readFileSync(join(folder, "scenario.json"), "utf8")) as unknown, "scenario.json");
  if ("fault" in file) return [file.fault];
  const faults = faultsOf(file.value);
  if (faults.length > 0) return faults;
  const rules = file.value as PackRules;
  const names = [rules.mjcf, ...(rules.assets ?? [])];
  let bytes = 0;
  const files = names.map((name) =>
    read(() => {
      bytes += statSync(join(folder, name)).size;
      return bytes > MOST_BYTES ? new Uint8Array() : readFileSync(join(folder, name));
    }, name),
  );
  const missing = files.flatMap((file) => ("fault" in file ? [file.fault] : []));
  if (bytes > MOST_BYTES) missing.push(`its files must have at most ${MOST_BYTES >> 20} MiB in total`);
  if (missing.length > 0) return missing;
  const contents = new Map(files.flatMap((file, i) => ("value" in file ? [[names[i]!, file.value]] : [])));
  const mjcf = Buffer.from(contents.get(rules.mjcf)!).toString("utf8");
  contents.delete(rules.mjcf);
  return { rules, mjcf, assets: contents };
}

function read<T>(how: () => T, name: string): { value: T } | { fault: string } {
  try {
    return { value: how() };
  } catch (cause) {
    return { fault: `${name} can't be read: ${cause instanceof Error ? cause.message : String(cause)}` };
  }
}
