/** What leaderboards cache. */
import { expect, it, vi } from "vitest";
import type { SuiteTask } from "../../../src/scenarios/suite.ts";
import { Leaderboards } from "../../../src/services/leaderboard.ts";

const task: SuiteTask = {
  ...{ scenario: "base-nav", version: "1.0.0", digest: "sha256:1", actionSpace: "waypoint_se2" },
  ...{ episodes: 50, seed: 0, weight: 1 },
};

it("the tasks of a suite are read from a document once for each digest, of the latest 64", async () => {
  const boards = new Leaderboards();
  const read = vi.fn(async () => [task]);
  for (let i = 0; i < 2; i++) expect(await boards.tasksOf("sha256:first", read)).toEqual([task]);
  expect(read).toHaveBeenCalledTimes(1);
  for (let i = 0; i < 64; i++) await boards.tasksOf(`sha256:${i}`, read);
  await boards.tasksOf("sha256:63", read);
  expect(read).toHaveBeenCalledTimes(65);
  await boards.tasksOf("sha256:first", read);
  expect(read).toHaveBeenCalledTimes(66);
});

it("a suite whose document is gone is read again", async () => {
  const boards = new Leaderboards();
  const read = vi.fn(async () => undefined);
  for (let i = 0; i < 2; i++) expect(await boards.tasksOf("sha256:1", read)).toBeUndefined();
  expect(read).toHaveBeenCalledTimes(2);
});
