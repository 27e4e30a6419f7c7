/** The container image, built and run by its own script. */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";

const ROOT = join(import.meta.dirname, "../..");
const isPossible = process.getuid?.() === 0 && existsSync("/usr/bin/buildah");

it.runIf(isPossible)(
  "the image is built without an engine and becomes ready on a database",
  { timeout: 1_200_000 },
  async () => {
    const failed = await promisify(execFile)(join(ROOT, "deploy/container/try.sh"), {
      cwd: ROOT,
      maxBuffer: 2 ** 28,
    }).then(
      () => undefined,
      (error: { stdout: string; stderr: string }) => `${error.stdout}\n${error.stderr}`.slice(-20_000),
    );
    expect(failed).toBeUndefined();
  },
);
