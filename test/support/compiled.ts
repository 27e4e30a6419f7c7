/** What Node made of a source tree, kept from one gateway to the next: to read all of it anew is half of what a start costs. */

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { START_FLAGS } from "../../src/app/collector.ts";

const HOME_CACHE = join(import.meta.dirname, "../../node_modules/.cache/compiled");
const known = new Map<string, string>();

/**
 * The folder for `NODE_COMPILE_CACHE` of gateways of a source tree. Who is killed writes nothing down, so the gateway is loaded once
 * for this alone, whenever its sources changed. Node itself looks whether what it finds there is of the very text that it reads.
 */
export function compiled(tree: string, isHome: boolean): string {
  const folder = known.get(tree) ?? (isHome ? HOME_CACHE : join(tree, ".compiled"));
  if (known.has(tree)) return folder;
  known.set(tree, folder);
  const note = join(folder, "of");
  const newest = String(Math.max(...["src", "gen"].map((part) => newestIn(join(tree, part)))));
  if (existsSync(note) && readFileSync(note, "utf8") === newest) return folder;
  mkdirSync(folder, { recursive: true });
  const script = `await import(${JSON.stringify(pathToFileURL(join(tree, "src/app/gateway.ts")).href)})`;
  const env = { ...process.env, NODE_COMPILE_CACHE: folder };
  // Node keeps what it made apart by the flags of V8.
  execFileSync(process.execPath, [...START_FLAGS, "--input-type=module", "-e", script], { env, stdio: "ignore" });
  writeFileSync(note, newest);
  return folder;
}

const newestIn = (folder: string): number =>
  Math.max(
    ...readdirSync(folder, { recursive: true, encoding: "utf8" }).map((name) => statSync(join(folder, name)).mtimeMs),
  );
