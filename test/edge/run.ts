/** Other programs, run by tests. */
import { spawn } from "node:child_process";
import { once } from "node:events";

/** Runs `command` to its end; `out` is all that it said, on both of its ways. */
export async function run(command: string, args: readonly string[]): Promise<{ code: number; out: string }> {
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"] });
  let out = "";
  child.stdout.on("data", (chunk) => (out += chunk));
  child.stderr.on("data", (chunk) => (out += chunk));
  const [code] = await once(child, "close");
  return { code, out };
}
