/**
 * The gateway in a few files, for tests that start it as a process: reading 2,000 modules takes a third of what a start costs. It's made again when a source
 * changes. What the sources find beside themselves, they find where the sources are.
 */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { rolldown } from "rolldown";
import { START_FLAGS } from "../../src/app/collector.ts";

const ROOT = join(import.meta.dirname, "../..");
const CACHE = join(ROOT, "node_modules/.cache/gateway");
/** Packages that look for files or native parts beside themselves. */
const LEFT_AS_IT_IS = /^(?:@img\/|@mujoco\/|nodemailer|pdfkit|pino|sharp|swagger-ui-dist)/;

let made: string | undefined;

/** The folder of the bundle: `main.mjs`, and `compiled/` for `NODE_COMPILE_CACHE`. */
export function bundledGateway(): string {
  if (made !== undefined) return made;
  const sources = ["src", "gen", "package-lock.json"].map((name) => newestIn(join(ROOT, name)));
  const folder = join(CACHE, Math.max(...sources).toString(36));
  if (!existsSync(folder)) {
    const scratch = `${folder}.${process.pid}`;
    execFileSync(process.execPath, [import.meta.filename, scratch], { stdio: "inherit" });
    compile(scratch);
    for (const old of readdirSync(CACHE)) if (!old.includes(".")) rmSync(join(CACHE, old), { recursive: true });
    keep(scratch, folder);
  }
  made = folder;
  return folder;
}

/** A process that is killed writes no cache, so the gateway is loaded once for the cache alone. V8 keeps a cache for each set of flags. */
function compile(folder: string): void {
  const script = `await import(${JSON.stringify(pathToFileURL(join(folder, "gateway.mjs")).href)})`;
  const env = { ...process.env, NODE_COMPILE_CACHE: join(folder, "compiled"), NODE_COMPILE_CACHE_PORTABLE: "1" };
  execFileSync(process.execPath, [...START_FLAGS, "--input-type=module", "-e", script], { env, stdio: "ignore" });
}

/** Gives the folder its name, unless another process was faster. */
function keep(scratch: string, folder: string): void {
  try {
    renameSync(scratch, folder);
  } catch (error) {
    if (!existsSync(folder)) throw error;
    rmSync(scratch, { recursive: true });
  }
}

/** The newest change at or below a path, in milliseconds since 1970. */
function newestIn(path: string): number {
  const { mtimeMs } = statSync(path);
  if (!statSync(path).isDirectory()) return mtimeMs;
  const names = readdirSync(path, { recursive: true, encoding: "utf8" });
  return Math.max(mtimeMs, ...names.map((name) => statSync(join(path, name)).mtimeMs));
}

async function bundle(folder: string): Promise<void> {
  mkdirSync(folder, { recursive: true });
  const build = await rolldown({
    input: { main: join(ROOT, "src/main.ts"), gateway: join(ROOT, "src/app/gateway.ts") },
    platform: "node",
    external: (id) => LEFT_AS_IT_IS.test(id),
    plugins: [
      {
        name: "places-of-sources",
        transform: (code, id) =>
          id.includes("/node_modules/")
            ? null
            : code
                .replaceAll("import.meta.dirname", JSON.stringify(dirname(id)))
                .replaceAll("import.meta.url", JSON.stringify(pathToFileURL(id).href)),
      },
    ],
  });
  await build.write({ dir: folder, format: "esm", entryFileNames: "[name].mjs", chunkFileNames: "[name]-[hash].mjs" });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await bundle(process.argv[2]!);
