/** Installs the packages of `test/package.json`, which only tests need, unless they are installed already. */
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const FOLDER = join(import.meta.dirname, "..", "test");
const stamp = join(FOLDER, "node_modules", ".installed");
const lock = readFileSync(join(FOLDER, "package-lock.json"), "utf8");

if (!existsSync(stamp) || readFileSync(stamp, "utf8") !== lock) {
  execFileSync("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], { cwd: FOLDER, stdio: "inherit" });
  writeFileSync(stamp, lock);
}
