/** The clients in other languages, each checked by its own script. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { IS_LONG } from "../../support/runs.ts";

const ROOT = join(import.meta.dirname, "../../..");
/** What a script exits with on a machine that lacks what it needs. */
const LEFT_OUT = 75;

it.each([
  [
    "the Python clients pass their types, builds and tests against gateways of their own",
    "clients/python/check.sh",
    // Wheels and gateways that are killed are left to the nightly run.
    IS_LONG ? [] : ["--quick"],
  ],
  [
    "the C++ client passes the golden traces and drives a robot through a gateway",
    "clients/cpp/check.sh",
    IS_LONG ? [] : ["--quick"],
  ],
] as const)("%s", { timeout: 1_200_000 }, async (_title, script, args) => {
  const failed = await promisify(execFile)(join(ROOT, script), args, { cwd: ROOT, maxBuffer: 2 ** 28 }).then(
    () => undefined,
    (error: { code?: number; stdout: string; stderr: string }) => error,
  );
  if (failed?.code === LEFT_OUT) return console.warn(`left out: ${script}`);
  expect(failed && `${failed.stdout}\n${failed.stderr}`.slice(-20_000)).toBeUndefined();
});
