#!/usr/bin/env node
/** `npx limber start`, the gateway, and `npx limber lerobot --listen 127.0.0.1:8081`, LeRobot's server on the robot itself. */
const COMMANDS: Readonly<Record<string, () => Promise<unknown>>> = {
  start: () => import("./main.ts"),
  lerobot: () => import("./sidecar/main.ts"),
};

const [, , name = ""] = process.argv;
const run = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
if (run) {
  process.argv.splice(2, 1); // the rest is the command's own
  await run();
} else {
  console.error(`limber: the commands are ${Object.keys(COMMANDS).join(" and ")}`);
  process.exitCode = 2;
}
