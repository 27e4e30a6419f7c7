/** `limber start`: the gateway, with the flags of V8 that the command line of `npx` can't name. */
import { fileURLToPath } from "node:url";
import { missingFlags } from "../fast/collector.ts";

const MAIN = fileURLToPath(new URL("../main.ts", import.meta.url));

/**
 * Replaces this process by one that has the flags, with the same id, environment and terminal. Where there is no such call (Windows), or
 * somebody listens to this process over a channel that would be lost, the gateway runs with V8's own settings.
 */
export async function startCommand(): Promise<void> {
  const flags = missingFlags(process.execArgv);
  const { execve } = process;
  if (flags.length > 0 && execve !== undefined && process.platform !== "win32" && !process.connected)
    execve(process.execPath, [process.execPath, ...flags, ...process.execArgv, MAIN, ...process.argv.slice(2)]);
  await import("../main.ts");
}
