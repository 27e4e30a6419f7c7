/** Fails when gen/ is not what proto/ makes: generates into a folder of its own and compares. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const fresh = mkdtempSync(join(tmpdir(), "limber-gen-"));
const run = (command: string, ...args: string[]): void => void execFileSync(command, args, { stdio: "inherit" });
const filesOf = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, encoding: "utf8", withFileTypes: false })
    .filter((name) => /\.\w+$/.test(name))
    .sort();

run("buf", "generate", "--output", fresh);
run(process.execPath, "tools/openapi.ts", join(fresh, "gen", "openapi.json"));
const [made, kept] = [filesOf(join(fresh, "gen")), filesOf("gen")];
const stale = [...new Set([...made, ...kept])].filter(
  (name) =>
    !made.includes(name) ||
    !kept.includes(name) ||
    !readFileSync(join(fresh, "gen", name)).equals(readFileSync(join("gen", name))),
);
rmSync(fresh, { recursive: true, force: true });
if (stale.length > 0) {
  console.error(`gen/ is stale: run npm run gen\n  ${stale.join("\n  ")}`);
  process.exit(1);
}
