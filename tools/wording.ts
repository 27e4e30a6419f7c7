/**
 * Checks the wording of what people read: phrases that hide their subject or are not American English, and sentences of more than 30 words.
 * `tools/wording.json` has the phrases, the allowed lines, and a ceiling for each folder that is still being rewritten.
 * `node tools/wording.ts --write` lowers the ceilings to the present counts; it never raises one.
 */
import { existsSync, globSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

interface Wording {
  /** Regular expressions, each matched as whole words, with the replacement to suggest. */
  readonly phrases: Record<string, string>;
  /** Files or folders, and how many phrases they may still have. All others may have none. */
  ceilings: Record<string, number>;
  /** Text of lines that may have a phrase or a long sentence. */
  readonly allowed: readonly string[];
}

interface Fault {
  readonly file: string;
  readonly text: string;
}

const ROOT = join(import.meta.dirname, "..");
const CONFIG = join(ROOT, "tools/wording.json");
const MAX_WORDS = 30;
const MAX_ALLOWED = 20;
const PAGES = [
  "*.md",
  "docs/**/*.md",
  "deploy/**/*.md",
  "examples/**/*.md",
  "console/*.md",
  "clients/*/*.md",
  "data/*.md",
  "test/**/*.md",
];
const SOURCES = ["proto/**/*.{proto,md}", "src/**/*.{ts,md,sql}"];

const wording = JSON.parse(readFileSync(CONFIG, "utf8")) as Wording;
const phrases = Object.entries(wording.phrases).map(
  ([phrase, better]) => [new RegExp(`\\b(?:${phrase})\\b`, "gi"), better] as const,
);
const isAllowed = (line: string): boolean => wording.allowed.some((part) => line.includes(part));
const read = (file: string): string => readFileSync(join(ROOT, file), "utf8");
const filesOf = (patterns: readonly string[]): string[] =>
  patterns
    .flatMap((pattern) => globSync(pattern, { cwd: ROOT, exclude: (name) => name.split("/").includes("node_modules") }))
    .sort();

function phrasesIn(file: string): Fault[] {
  const text = read(file);
  // Names in code keep their spelling.
  return (file.endsWith(".ts") ? text : text.replaceAll(/`[^`\n]*`/g, "code")).split("\n").flatMap((line, index) =>
    isAllowed(line)
      ? []
      : phrases.flatMap(([pattern, better]) =>
          [...line.matchAll(pattern)].map(([found]) => ({
            file,
            text: `${file}:${index + 1}: "${found}"; write ${better}`,
          })),
        ),
  );
}

/** The prose of a page: paragraphs, list items and table cells, with code replaced by a word. */
function prose(page: string): string[] {
  return page
    .replaceAll(/^ *```.*?^ *```/gms, "")
    .replaceAll(/<!--.*?-->/gs, "")
    .replaceAll(/`[^`\n]*`/g, "code")
    .replaceAll(/\]\([^)]*\)/g, "]")
    .split(/\n\s*\n|\n(?=\s*(?:[-*#|]|\d+\.) ?)/)
    .flatMap((block) => (block.trimStart().startsWith("|") ? block.split("|") : [block]));
}

function longSentencesIn(file: string): Fault[] {
  return prose(read(file))
    .flatMap((block) => block.replaceAll(/\s+/g, " ").split(/(?<=[.!?:;])\**\)? /))
    .filter((sentence) => sentence.split(" ").length > MAX_WORDS && !isAllowed(sentence))
    .map((sentence) => ({ file, text: `${file}: ${sentence.split(" ").length} words: ${sentence}` }));
}

const faults = [
  ...filesOf([...PAGES, ...SOURCES]).flatMap(phrasesIn),
  ...filesOf(["docs/**/*.md"]).flatMap(longSentencesIn),
];

/** The ceiling that counts for a file: that of its longest listed folder. */
const ceilingOf = (file: string): string | undefined =>
  Object.keys(wording.ceilings)
    .filter((folder) => file === folder || file.startsWith(`${folder}/`))
    .sort((a, b) => b.length - a.length)[0];

const byCeiling = Map.groupBy(faults, ({ file }) => ceilingOf(file));
const problems = (byCeiling.get(undefined) ?? []).map(({ text }) => text);
for (const [folder, ceiling] of Object.entries(wording.ceilings)) {
  const found = byCeiling.get(folder) ?? [];
  if (!existsSync(join(ROOT, folder)))
    problems.push(`tools/wording.json: ${folder} does not exist; remove its ceiling`);
  else if (found.length > ceiling)
    problems.push(
      `${folder} has ${found.length} phrases to replace, at most ${ceiling} are left to do:`,
      ...found.map(({ text }) => `  ${text}`),
    );
}
if (wording.allowed.length > MAX_ALLOWED)
  problems.push(`tools/wording.json: at most ${MAX_ALLOWED} allowed lines, got ${wording.allowed.length}`);

if (process.argv.includes("--write")) {
  wording.ceilings = Object.fromEntries(
    Object.entries(wording.ceilings)
      .filter(([folder]) => existsSync(join(ROOT, folder)))
      .map(([folder, ceiling]): [string, number] => [folder, Math.min(ceiling, byCeiling.get(folder)?.length ?? 0)])
      .filter(([, ceiling]) => ceiling > 0),
  );
  writeFileSync(CONFIG, `${JSON.stringify(wording, undefined, 2)}\n`);
}
if (problems.length > 0) {
  console.error(problems.join("\n"));
  process.exit(1);
}
