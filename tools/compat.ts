/**
 * `npm run compat:freeze`: keeps what a release promises, in `test/slow/compat/`: its schema (`last.binpb.gz`), and its gateway and clients as they are
 * installed (`last.tar.br`: `gateway/`, `typescript/`, `python/`). A clone of one commit has no other way to the release before it.
 */
import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { brotliCompressSync, constants } from "node:zlib";
import { build } from "./build.ts";
import { SAME_BYTES } from "./release.ts";

const ROOT = join(import.meta.dirname, "..");
const KEPT = join(ROOT, "test/slow/compat");
/** No client asks for pages, and they are a third of a gateway. */
const LEFT_OUT = ["gateway/console", "__pycache__"];

function freeze(): void {
  const run = (command: string, args: readonly string[], cwd = ROOT): void =>
    void execFileSync(command, args, { cwd, stdio: "inherit" });
  run("buf", ["build", "proto", "--exclude-source-info", "-o", join(KEPT, "last.binpb.gz")]);
  const scratch = mkdtempSync(join(tmpdir(), "limber-compat-"));
  try {
    const folder = join(scratch, "all");
    build(join(folder, "gateway"));
    run("npm", ["run", "build", "--silent"], join(ROOT, "clients/typescript"));
    for (const name of ["package.json", "dist"])
      cpSync(join(ROOT, "clients/typescript", name), join(folder, "typescript", name), { recursive: true });
    cpSync(join(ROOT, "clients/python/limber"), join(folder, "python/limber"), { recursive: true });
    const archive = join(scratch, "all.tar");
    const except = LEFT_OUT.map((name) => `--exclude=${name}`);
    run("tar", [...SAME_BYTES, ...except, "-C", folder, "-cf", archive, "gateway", "typescript", "python"]);
    writeFileSync(join(KEPT, "last.tar.br"), packed(archive));
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

function packed(archive: string): Buffer {
  const bytes = readFileSync(archive);
  const { BROTLI_PARAM_LGWIN, BROTLI_PARAM_SIZE_HINT } = constants;
  // The clients hold the gateway's messages once more: what is kept for so long is looked back to.
  return brotliCompressSync(bytes, { params: { [BROTLI_PARAM_LGWIN]: 24, [BROTLI_PARAM_SIZE_HINT]: bytes.length } });
}

if (import.meta.main) freeze();
