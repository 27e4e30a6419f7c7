/**
 * Runs before each test file. It measures what the file costs, prints the latest REST answers of a failed test, and after the file's own
 * hooks puts back whatever the file left replaced or open. A file that left something behind fails, and the next file starts clean.
 */
import { readFileSync } from "node:fs";
import { afterAll, afterEach, beforeEach, expect } from "vitest";
import { replacementsNow, restoreReplaced } from "./ambient.ts";
import { answersOfTest, forgetAnswers } from "./answers.ts";
import { childSeconds, ownSeconds } from "./cpu.ts";
import { closeDatabases } from "./database.ts";
import { eventually } from "./eventually.ts";
import { closeOpened, closeStaying, openNow, socketsThatStay } from "./opened.ts";

declare module "vitest" {
  interface TaskMeta {
    /** CPU-seconds of this process and of the children it has waited for while the file ran. */
    cpuS?: number;
  }
}

const REPLACES_CLOCK = /support\/(ambient|clocks|manual-clock)\.ts"|useFakeTimers/;
// Timers of the shared gateway would run on the clock or the timers that such a file replaces, and it is opened again afterwards anyway.
if (REPLACES_CLOCK.test(readFileSync(expect.getState().testPath ?? "", "utf8"))) await closeStaying();

const startedAt = ownSeconds() + childSeconds();
/** sharp sets this one when it is first loaded. */
const OF_PACKAGES = new Set(["VIPSHOME"]);
const environment = { ...process.env };
const resources = openResources();
let openBefore: ReadonlySet<unknown> = new Set();
let replacedBefore = 0;

beforeEach(() => {
  forgetAnswers();
  openBefore = openNow();
  replacedBefore = replacementsNow();
});
afterEach(async ({ task }) => {
  if (task.result?.state === "fail") for (const answer of answersOfTest()) console.error(answer);
  // A test that fails in its middle does not reach its own restore.
  restoreReplaced(replacedBefore);
  await closeOpened(openBefore);
});

// Hooks run in reverse order: this one runs after every hook of the file.
// biome-ignore lint/correctness/noEmptyPattern: Vitest reads which fixtures a hook needs from this pattern.
afterAll(async ({}, suite) => {
  suite.file.meta.cpuS = ownSeconds() + childSeconds() - startedAt;
  const failed = await closeOpened().then(
    () => [],
    (failure: unknown) => [`what could not be closed: ${failure}`],
  );
  const left = [
    failed,
    restoreReplaced(),
    restoreEnvironment(),
    await closeDatabases(),
    await openedResources(),
  ].flat();
  expect(left, "the file left these replaced or open").toEqual([]);
});

function restoreEnvironment(): string[] {
  const names = new Set([...Object.keys(environment), ...Object.keys(process.env)]);
  const changed = [...names].filter((name) => process.env[name] !== environment[name] && !OF_PACKAGES.has(name));
  for (const name of changed) {
    if (environment[name] === undefined) delete process.env[name];
    else process.env[name] = environment[name];
  }
  return changed.map((name) => `environment variable ${name}`);
}

/** How many listening sockets and child processes are open, apart from the shared gateway's. */
function openResources(): Record<string, number> {
  const counted: Record<string, number> = { TCPServerWrap: 0, ProcessWrap: 0 };
  for (const name of process.getActiveResourcesInfo()) if (name in counted) counted[name]!++;
  counted.TCPServerWrap! -= socketsThatStay();
  return counted;
}

/** A socket or a process that was told to close may take a moment. */
async function openedResources(): Promise<string[]> {
  const names = { TCPServerWrap: "a listening socket", ProcessWrap: "a child process" } as const;
  const more = (): string[] => {
    const now = openResources();
    return Object.entries(names).flatMap(([kind, name]) => (now[kind]! > resources[kind]! ? [name] : []));
  };
  await eventually(() => expect(more()).toEqual([]), { timeout: 5_000 }).catch(() => undefined);
  return more();
}
