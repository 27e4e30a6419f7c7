/**
 * Runs the package's own Node.js if the one on the path is too old, as when `limber` is installed for all users or called by its path. This
 * file and `cli.ts` must run on Node 20.
 */
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

/** The oldest version that runs the gateway, as in `engines` of package.json. */
export const OLDEST_NODE = "24.12.0";

/** Whether a Node.js version, such as "20.20.2", is too old for the gateway. */
export function isTooOld(version: string): boolean {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const [oldestMajor = 0, oldestMinor = 0] = OLDEST_NODE.split(".").map(Number);
  return major < oldestMajor || (major === oldestMajor && minor < oldestMinor);
}

/** The path of the package's own Node.js; undefined if its install script did not run. */
export function broughtNode(): string | undefined {
  try {
    const file = join(dirname(createRequire(import.meta.url).resolve("node/package.json")), "bin/node");
    return existsSync(file) ? file : undefined;
  } catch {
    return undefined;
  }
}

/** Runs this command again with the package's Node.js and exits with its code; prints one line if there is none. */
export function runByBroughtNode(script: string): void {
  const node = broughtNode();
  if (node === undefined) {
    console.error(
      `limber: Node.js ${OLDEST_NODE} or later is needed, and this is ${process.versions.node}. ` +
        "The one that comes with the package was not installed: npm install-scripts approve node, then npm rebuild node",
    );
    process.exitCode = 1;
    return;
  }
  const child = spawn(node, [...process.execArgv, script, ...process.argv.slice(2)], { stdio: "inherit" });
  for (const signal of ["SIGTERM", "SIGHUP", "SIGINT"] as const)
    process.on(signal, () => {
      // A terminal sends Ctrl-C to both processes, and a second one means to exit at once.
      if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
    });
  child.once("error", (error) => {
    console.error(`limber: the Node.js of the package does not start: ${error.message}`);
    process.exit(1);
  });
  child.once("close", (code, signal) => {
    if (signal === null) process.exit(code ?? 1);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
}
