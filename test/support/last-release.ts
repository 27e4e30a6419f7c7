/**
 * The gateway and the clients of the last release, as `npm run compat:freeze` kept them. `node test/support/last-release.ts` prints the folder that
 * they are in, for the checks of the clients in other languages.
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { brotliDecompressSync } from "node:zlib";

const ROOT = join(import.meta.dirname, "../..");
const KEPT = join(ROOT, "test/slow/compat/last.tar.br");
/** Below the tree's own packages, so that what is unpacked finds them. */
const CACHE = join(ROOT, "node_modules/.cache/last-release");

/** What a package says that it needs. */
interface Manifest {
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

/**
 * The folder with `gateway/`, `typescript/` and `python/limber/` of the last release, unpacked once. Its packages are those that it was
 * released with: the tree's own where the versions are the same, otherwise npm installs them.
 */
export function lastRelease(): string {
  const archive = readFileSync(KEPT);
  const folder = join(CACHE, createHash("sha256").update(archive).digest("hex").slice(0, 16));
  if (existsSync(folder)) return folder;
  mkdirSync(CACHE, { recursive: true });
  const made = mkdtempSync(join(CACHE, "made-"));
  execFileSync("tar", ["-x", "-C", made], { input: brotliDecompressSync(archive) });
  const today = needsOf(join(ROOT, "package.json"));
  const client = needsOf(join(ROOT, "clients/typescript/package.json"));
  if (needsOf(join(made, "gateway/package.json")) !== today) install(join(made, "gateway"));
  if (needsOf(join(made, "typescript/package.json")) !== client) install(join(made, "typescript"));
  try {
    renameSync(made, folder);
  } catch (error) {
    rmSync(made, { recursive: true });
    // Two that unpack at once make the same.
    if (!existsSync(folder)) throw error;
  }
  return folder;
}

function needsOf(file: string): string {
  const { dependencies = {}, optionalDependencies = {} } = JSON.parse(readFileSync(file, "utf8")) as Manifest;
  return Object.entries({ ...dependencies, ...optionalDependencies })
    .map(([name, version]) => `${name}@${version}`)
    .sort()
    .join();
}

const install = (folder: string): void =>
  void execFileSync("npm", ["install", "--omit=dev", "--prefer-offline", "--no-audit", "--no-fund", "--silent"], {
    cwd: folder,
    stdio: ["ignore", 2, 2],
  });

if (import.meta.main) console.log(lastRelease());
