/**
 * `npm run build`: the gateway as the npm package `limber`, in `dist/`. Node runs no TypeScript under `node_modules`, so what is installed is
 * compiled. Everything stands where it stands in a clone, so that what the sources find beside themselves is found.
 */
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";

const ROOT = join(import.meta.dirname, "..");

/** What goes along as it is, where it is there. */
const ASSETS = [
  "LICENSE",
  "README.md",
  "CHANGELOG.md",
  "data",
  "gen/openapi.json",
  "gen/tools.json",
  "test/plans/supply.json",
  "console/dist",
];
/** What the package's own description takes from the project's. */
interface Manifest {
  readonly version: string;
  readonly [name: string]: unknown;
}

/** Makes the package anew in `folder`, which is emptied, and returns its path. Throws where the sources don't compile. */
export function build(folder = join(ROOT, "dist")): string {
  execFileSync(process.execPath, [join(ROOT, "console/build.ts"), "--if-stale", "--strict"], { stdio: "inherit" });
  rmSync(folder, { recursive: true, force: true });
  const tsc = join(ROOT, "node_modules/.bin/tsc");
  const args = [tsc, "-p", "tsconfig.build.json", "--outDir", folder];
  execFileSync(process.execPath, args, { cwd: ROOT, stdio: "inherit" });
  for (const file of filesOf(folder, ".js")) nameCompiled(file);
  for (const name of ASSETS) if (existsSync(join(ROOT, name))) copy(name, folder);
  for (const file of filesOf(join(ROOT, "src"))) if (!file.endsWith(".ts")) copy(relative(ROOT, file), folder);
  writeFileSync(join(folder, "package.json"), `${JSON.stringify(manifest(), null, 2)}\n`);
  return folder;
}

/**
 * The compiler renames what is imported. Workers and processes are started from addresses instead; a source that is named in another
 * way would be missing in the package.
 */
function nameCompiled(file: string): void {
  const text = readFileSync(file, "utf8").replaceAll(
    /(new URL\("\.{1,2}\/[\w./-]+)\.ts(", import\.meta\.url\))/g,
    "$1.js$2",
  );
  const left = /["'`][\w./-]*\/[\w.-]+\.ts["'`]/.exec(text);
  if (left) throw new Error(`${file} names a source, ${left[0]}, in a way that is not compiled`);
  writeFileSync(file, text);
}

function manifest(): object {
  const { name, version, description, license, type, dependencies, optionalDependencies } = JSON.parse(
    readFileSync(join(ROOT, "package.json"), "utf8"),
  ) as Manifest;
  return {
    ...{ name, version, description, license, type },
    // It brings the Node.js that it needs; this one starts it.
    engines: { node: ">=20" },
    bin: { limber: "src/cli.js" },
    dependencies,
    optionalDependencies,
  };
}

function copy(name: string, folder: string): void {
  const target = join(folder, name);
  mkdirSync(dirname(target), { recursive: true });
  cpSync(join(ROOT, name), target, { recursive: true });
}

const filesOf = (folder: string, ending = ""): string[] =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(ending))
    .map((entry) => join(entry.parentPath, entry.name));

if (import.meta.main) console.log(build());
