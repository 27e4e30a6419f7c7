/** `npx limber probe`: whether a model server does what a gateway expects, without a gateway. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { probeCommand } from "../../src/app/probe-command.ts";
import type { Model } from "../support/model.ts";
import { type OpenpiServer, startOpenpiServer } from "../support/openpi-server.ts";
import { openModel } from "../support/world.ts";

let model: Model;
let openpi: OpenpiServer;

beforeAll(async () => {
  [model, openpi] = await Promise.all([openModel(), startOpenpiServer()]);
});
afterAll(async () => {
  await openpi.close();
});

/** Eight steps of seven numbers. */
const steps = (value: number): number[][] => Array.from({ length: 8 }, () => Array(7).fill(value));

/** Eight steps of eight numbers. */
const wide = (value: number): number[][] => Array.from({ length: 8 }, () => Array(8).fill(value));

async function run(...args: string[]): Promise<{ code: number; said: string; complained: string }> {
  const [said, complained]: [string[], string[]] = [[], []];
  const code = await probeCommand(
    args,
    (text) => said.push(text),
    (text) => complained.push(text),
  );
  return { code, said: said.join("\n"), complained: complained.join("\n") };
}

it("passes a native server and prints a table for a README", async () => {
  const { code, said } = await run(model.endpoint, "--action-space", "base_twist_2d");
  expect(said).toMatch(/^Passes the probe of Limber over `limber-policy`/);
  expect(said).toMatch(/^\| action_shape \| passed \| [\d.]+ ms \| 4 steps of 2 finite numbers \|$/m);
  expect(said).not.toContain("region");
  expect(code).toBe(0);
});

it("passes an openpi server and prints JSON", async () => {
  const first = { kind: "steps", steps: steps(0.1) } as const; // the guess, a check without a camera, and the first answer
  openpi.behave(first, first, first, { kind: "steps", steps: steps(0.2) });
  const { code, said } = await run(openpi.endpoint, "--action-space", "joint_pos_7", "--json");
  const report = JSON.parse(said);
  expect(report.checks[0]).toMatchObject({ name: "reachable", passed: true });
  expect([code, report.passed]).toEqual([0, true]);
});

it("guesses the profile of an openpi server from what it answers, and says what it assumed", async () => {
  // Eight numbers per step are DROID's: the answer to LIBERO's observation does not fit.
  openpi.behave(
    { kind: "error", text: "KeyError: observation/joint_position" },
    { kind: "steps", steps: wide(0.1) },
    { kind: "steps", steps: wide(0.2) },
  );
  const { said } = await run(openpi.endpoint);
  expect(said).toContain("Assumed the profile openpi/droid and continuous_nd: ");
  expect(said).toMatch(/^\| action_shape \| passed \| [\d.]+ ms \| \d+ steps of 8 finite numbers/m);
  openpi.behave({ kind: "error", text: "KeyError: state" });
  const unknown = await run(openpi.endpoint, "--json");
  expect(unknown.complained).toContain("Assumed no profile");
  expect(unknown.code).toBe(1);
});

it("fails a server with a wrong dimension and says what to do", async () => {
  model.script.act = (call, answer) => answer(Array.from({ length: call.horizon }, () => [0, 0, 0]));
  const { code, said } = await run(model.endpoint, "--action-space", "base_twist_2d");
  model.script.act = undefined;
  expect(code).toBe(1);
  expect(said).toMatch(/^Fails/);
  expect(said).toMatch(/^\| action_shape \| FAILED/m);
  expect(said).toContain("What to do:");
});

it("fails if no server answers", async () => {
  const { code, said } = await run("grpc://127.0.0.1:1");
  expect([code, said.includes("| reachable | FAILED")]).toEqual([1, true]);
});

it.each([
  [[], "specify one address"],
  [["here"], "not a valid address"],
  [["http://127.0.0.1:8000"], "--runtime is required"],
  [["ws://h", "--runtime", "limber-outbound"], "must be one of"],
  [["ws://h", "--contract", "evaluate"], "--contract must be"],
  [["ws://h", "--max-horizon", "0"], "--max-horizon must be"],
  [["ws://h", "--auth", "basic"], "--auth must be"],
  [["ws://h", "--auth", "bearer"], "--secret-file"],
  [["ws://h", "--auth", "bearer", "--secret-file", "/nonexistent"], "cannot be read"],
  [["ws://h", "--speed"], "Unknown option"],
])("%j is not a command", async (args, words) => {
  const { code, complained } = await run(...args);
  expect([code, complained.includes(words)], complained).toEqual([2, true]);
});

it("sends a server its secret, read from a file", async () => {
  const folder = mkdtempSync(join(tmpdir(), "limber-probe-"));
  const closed = await startOpenpiServer();
  closed.behave({ kind: "steps", steps: steps(0.1) });
  try {
    writeFileSync(join(folder, "secret"), "hush\n");
    const { said } = await run(closed.endpoint, "--auth", "bearer", "--secret-file", join(folder, "secret"));
    expect(said).not.toContain("hush");
    expect(closed.healthChecks.map(({ authorization }) => authorization)).toContain("Bearer hush");
  } finally {
    await closed.close();
    rmSync(folder, { recursive: true });
  }
});
