#!/usr/bin/env node
/** The command `limber`: `npx limber start` and other commands. Each parses its own options. */
import { fileURLToPath } from "node:url";
import { isTooOld, runByBroughtNode } from "./app/brought-node.ts";

const COMMANDS: Readonly<Record<string, { readonly does: string; readonly run: () => Promise<unknown> }>> = {
  start: { does: "runs the gateway", run: () => import("./main.ts") },
  lerobot: {
    does: "LeRobot's policy server on the robot, in front of a gateway",
    run: () => import("./sidecar/main.ts"),
  },
  provider: { does: "brings a model server to a gateway", run: () => import("../tools/provider.ts") },
  archive: { does: "verifies the archive of the request history", run: () => import("../tools/archive.ts") },
  plan: {
    does: "replays a routing case from a file",
    run: async () => (await import("../tools/plan.ts")).runPlan(),
  },
  evaluate: {
    does: "evaluates a policy and shows its scores; `evaluate verify` checks a published evaluation",
    run: () => import("../tools/evaluate.ts"),
  },
  scenario: {
    does: "checks scenario packs, and tries and films scenarios without a gateway",
    run: async () => {
      process.exitCode = await (await import("../tools/scenario.ts")).scenarioCommand(process.argv.slice(2));
    },
  },
  probe: {
    does: "probes a model server of any protocol, without a gateway or an account",
    run: async () => process.exit(await (await import("./app/probe-command.ts")).probeCommand(process.argv.slice(2))),
  },
};

const [, , name = ""] = process.argv;
const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
if (isTooOld(process.versions.node)) {
  runByBroughtNode(fileURLToPath(import.meta.url));
} else if (command) {
  process.argv.splice(2, 1); // the rest is the command's own
  await command.run();
} else {
  const width = Math.max(...Object.keys(COMMANDS).map((each) => each.length));
  const rows = Object.entries(COMMANDS).map(([each, { does }]) => `  limber ${each.padEnd(width)}  ${does}`);
  console.error(["limber: the commands are", ...rows].join("\n"));
  process.exitCode = 2;
}
