/**
 * Builds the console into `console/dist`: hashed files, each beside its forms in Brotli and gzip.
 *
 *     node console/build.ts              builds
 *     node console/build.ts --if-stale   builds where a source is newer than what was built; what `npm start` does first
 *     node console/build.ts --watch      builds after every change
 *
 * With `--if-stale` nothing fails, but with `--strict` too: an install without development packages starts the gateway with what it has.
 */
import { existsSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const DIST = join(HERE, "dist");
/** The schema's messages, which the console shares with the TypeScript client. */
const MESSAGES = "../clients/typescript/src/gen";
/** What the build is made of, beside the packages. */
const SOURCES = ["src", "public", "index.html", "build.ts", "docs.ts", "package.json", "../docs", MESSAGES];
/** What is worth compressing. */
const TEXT = /\.(?:js|css|html|svg|json)$/;

/** Whether there is no build, or a source is newer than it. */
export function isStale(): boolean {
  const built = join(DIST, "index.html");
  if (!existsSync(built)) return true;
  const { mtimeMs } = statSync(built);
  return SOURCES.some((name) => newestIn(join(HERE, name)) > mtimeMs);
}

function newestIn(path: string): number {
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return 0;
  if (!stat.isDirectory()) return path.endsWith(".png") ? 0 : stat.mtimeMs;
  return Math.max(stat.mtimeMs, ...readdirSync(path).map((name) => newestIn(join(path, name))));
}

/** Builds. The folder appears whole: processes that build at the same time leave the build of one of them. */
export async function buildConsole({ watch = false } = {}): Promise<void> {
  const [{ build }, { default: react }, { default: tailwind }, { docsPlugin }] = await Promise.all([
    import("vite"),
    import("@vitejs/plugin-react"),
    import("@tailwindcss/vite"),
    import("./docs.ts"),
  ]);
  // Vite leaves what the environment says as it is, and a test's would make a build for development of it.
  const { NODE_ENV } = process.env;
  process.env.NODE_ENV = "production";
  const outDir = watch ? DIST : `${DIST}.${process.pid}`;
  await build({
    root: HERE,
    base: "/console/",
    configFile: false,
    logLevel: "warn",
    plugins: [react(), tailwind(), docsPlugin()],
    resolve: { alias: { "#messages": join(HERE, MESSAGES) } },
    build: {
      outDir,
      emptyOutDir: true,
      target: "es2024",
      assetsInlineLimit: 0,
      chunkSizeWarningLimit: 1_000,
      modulePreload: { polyfill: false },
      reportCompressedSize: false,
      rolldownOptions: { checks: { pluginTimings: false } },
      ...(watch && { watch: {} }),
    },
  });
  if (NODE_ENV === undefined) delete process.env.NODE_ENV;
  else process.env.NODE_ENV = NODE_ENV;
  if (watch) return;
  for (const name of readdirSync(outDir, { recursive: true, encoding: "utf8" }))
    if (TEXT.test(name)) compress(join(outDir, name));
  rmSync(DIST, { recursive: true, force: true });
  try {
    renameSync(outDir, DIST);
  } catch (error) {
    rmSync(outDir, { recursive: true, force: true });
    // Another process was faster with the same.
    if (isStale()) throw error;
  }
}

function compress(path: string): void {
  const bytes = readFileSync(path);
  writeFileSync(`${path}.gz`, gzipSync(bytes, { level: 9 }));
  const quality = { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY };
  writeFileSync(`${path}.br`, brotliCompressSync(bytes, { params: quality }));
}

/** What `npm start` runs: never fails. */
async function buildIfStale(): Promise<void> {
  if (!isStale()) return;
  console.log("building the console");
  try {
    await buildConsole();
  } catch (error) {
    const told = error instanceof Error ? error.message.split("\n", 1)[0] : String(error);
    console.error(`limber: the console is not built: ${told}`);
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const strict = process.argv.includes("--strict");
  if (process.argv.includes("--if-stale") && !strict) await buildIfStale();
  else if (strict && !isStale()) process.exit(0);
  else await buildConsole({ watch: process.argv.includes("--watch") });
}
