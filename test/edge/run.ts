/** Other programs, run by tests. */
import { spawn } from "node:child_process";
import { once } from "node:events";

/** Runs `command` on `input` to its end; `out` is all that it said, on both of its ways. */
export async function run(
  command: string,
  args: readonly string[],
  input = "",
): Promise<{ code: number; out: string }> {
  const child = spawn(command, args, { stdio: ["pipe", "pipe", "pipe"] });
  child.stdin.on("error", () => undefined).end(input);
  let out = "";
  child.stdout.on("data", (chunk) => (out += chunk));
  child.stderr.on("data", (chunk) => (out += chunk));
  const [code] = await once(child, "close");
  return { code, out };
}
