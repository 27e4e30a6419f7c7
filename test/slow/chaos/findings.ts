/** What a siege found, told by kind: a thousand findings of one kind are one thing to look at. */
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";

/** Findings that differ in names and numbers alone. */
export interface Kind {
  readonly kind: string;
  readonly count: number;
  /** The first of them, as they were found. */
  readonly examples: readonly string[];
}

const EXAMPLES = 5;

/** Findings by kind, the most frequent first. */
export function byKind(findings: readonly string[]): Kind[] {
  const kinds = Map.groupBy(findings, kindOf);
  return [...kinds]
    .map(([kind, all]) => ({ kind, count: all.length, examples: all.slice(0, EXAMPLES) }))
    .sort((a, b) => b.count - a.count);
}

/** A finding without what names its one case: of several lines the first tells what it is. */
const kindOf = (finding: string): string =>
  finding
    .split("\n", 1)[0]!
    .replace(/\bcall-\d+-\d+\b/g, "a call")
    .replace(/\b[a-z]+_(?=[0-9a-z]*\d)[0-9a-z]{12,}\b/gi, "<id>")
    .replace(/-?\d+(?:\.\d+)?/g, "<n>");

/** Prints what came of a siege, by kind, and writes every finding to a file; answers the exit code. */
export function tell(name: string, seed: number, figures: object, findings: readonly string[]): number {
  const kinds = byKind(findings);
  for (const { kind, count, examples } of kinds) {
    console.log(`${count} × ${kind}`);
    for (const example of examples) console.log(`    ${example}`);
  }
  const file = fileURLToPath(new URL(`../../../.limber/chaos/${name}-${seed}.json`, import.meta.url));
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, `${JSON.stringify({ seed, ...figures, kinds, findings }, null, 2)}\n`);
  console.log(JSON.stringify({ seed, ...figures, wrong: findings.length }));
  if (findings.length > 0) console.log(`every finding: ${file}`);
  return findings.length === 0 ? 0 : 1;
}
