import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { broughtNode, isTooOld, OLDEST_NODE } from "../../../src/app/brought-node.ts";

it.each([
  ["18.20.8", true],
  ["20.20.2", true],
  ["24.11.9", true],
  ["24.12.0", false],
  ["24.21.0", false],
  ["26.0.0", false],
])("Node.js %s is too old: %s", (version, expected) => {
  expect(isTooOld(version)).toBe(expected);
});

it("the minimum Node.js version is the one that the project declares", () => {
  const { engines } = JSON.parse(readFileSync(new URL("../../../package.json", import.meta.url), "utf8"));
  expect(`${engines.node}.0`).toBe(`>=${OLDEST_NODE}`);
});

it("the bundled Node.js is new enough to run the gateway", () => {
  const version = execFileSync(broughtNode()!, ["-p", "process.versions.node"], { encoding: "utf8" }).trim();
  expect(isTooOld(version)).toBe(false);
});
