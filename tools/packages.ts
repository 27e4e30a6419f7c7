/**
 * `node tools/packages.ts FOLDER…`: installs the packages of folders that the gateway does not need, unless they are installed already:
 * `test` for tests, `tools/dev` to generate and check code. Their commands appear in `node_modules/.bin`, where `npx` and scripts find them.
 */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";

const ROOT = join(import.meta.dirname, "..");
const BIN = join(ROOT, "node_modules", ".bin");

for (const folder of process.argv.slice(2)) {
  const path = join(ROOT, folder);
  const stamp = join(path, "node_modules", ".installed");
  const lock = readFileSync(join(path, "package-lock.json"), "utf8");
  if (!existsSync(stamp) || readFileSync(stamp, "utf8") !== lock) {
    execFileSync("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], { cwd: path, stdio: "inherit" });
    writeFileSync(stamp, lock);
  }
  linkCommands(join(path, "node_modules"));
}

/** Links the commands of the folder's own packages. `npm ci` in the root removes the links. */
function linkCommands(modules: string): void {
  const { dependencies } = JSON.parse(readFileSync(join(modules, "..", "package.json"), "utf8")) as {
    readonly dependencies: Readonly<Record<string, string>>;
  };
  mkdirSync(BIN, { recursive: true });
  for (const name of Object.keys(dependencies)) {
    const { bin = {} } = JSON.parse(readFileSync(join(modules, name, "package.json"), "utf8")) as {
      readonly bin?: string | Readonly<Record<string, string>>;
    };
    for (const command of typeof bin === "string" ? [name] : Object.keys(bin)) {
      const link = join(BIN, command);
      if (existsSync(link)) continue;
      rmSync(link, { force: true });
      symlinkSync(relative(BIN, join(modules, ".bin", command)), link);
    }
  }
}
