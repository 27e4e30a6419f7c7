/** Comparisons on a suite: weighted tasks, one overall score per policy, and no task left out. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { newId } from "../../../src/ids.ts";
import type { App, Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { MJCF, PACK, packFolder } from "../../support/packs.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
/** Another replica, which has a scenario pack and runs no jobs. */
let packed: App;
let caller: Caller;
/** Instructions that a policy received, by its endpoint. */
const heard = new Set<string>();

beforeAll(async () => {
  const scenarioPacks = packFolder({ good: { "scenario.json": PACK, "hold.xml": MJCF } }, afterAll);
  packed = await ownGateway({ roles: new Set(["api"]), scenarioPacks });
  app = await ownGateway({ roles: new Set(["api", "worker"]), database: packed.database });
  caller = await app.caller();
});

const NAV = { scenario: "base-nav", action_space: "waypoint_se2" };
const TASKS = [
  { ...NAV, episodes: 2, seed: 5, weight: 3 },
  { ...NAV, episodes: 3, seed: 50, instruction: "drive to the flag" },
];
const suiteOf = async (tasks: readonly object[], { key } = caller, at = app): Promise<string> => {
  const { body, text } = await at.call("/v1/suites", { title: "drive", tasks }, { key });
  expect(body.id, text).toMatch(/^suite_/);
  return body.id;
};
const compare = (body: object, { key } = caller, at = app) =>
  at.call("/v1/evaluate/compare", { metric: "progress", ...body }, { key });
const ended = (id: string) =>
  eventually(
    async () => {
      const { body } = await app.call(`/v1/evaluate/compare/${id}`, undefined, { key: caller.key });
      expect(["completed", "failed", "cancelled"]).toContain(body.status);
      return body;
    },
    { timeout: 60_000, interval: 100 },
  );

/** A policy at an address that drives straight to the goal, or stands. */
async function policyOf(kind: "seek" | "stand"): Promise<object> {
  const { endpoint } = await openModel({
    act({ horizon, observations, instruction }, answer) {
      heard.add(instruction);
      const [x = 0, y = 0, yaw = 0, goalX = 0, goalY = 0, goalYaw = 0] = observations.at(-1)?.proprio ?? [];
      const [dx, dy, cos, sin] = [goalX - x, goalY - y, Math.cos(yaw), Math.sin(yaw)];
      const row = kind === "stand" ? [0, 0, 0] : [dx * cos + dy * sin, dy * cos - dx * sin, goalYaw - yaw];
      answer(Array.from({ length: horizon }, () => row));
    },
  });
  return { policy_endpoint: endpoint, horizon: 16, replan_steps: 16 };
}

describe("a comparison on a suite", () => {
  it("runs each policy in each task, and judges by the weighted mean of the tasks", async () => {
    const policies = [await policyOf("seek"), await policyOf("stand")];
    const suite = await suiteOf(TASKS);
    const taken = await compare({ suite, policies });
    expect(taken.status, taken.text).toBe(202);
    expect(taken.body).toMatchObject({
      episodes: 5,
      estimate: { episodes: 10, episodes_usd: 0.1 },
      suite: { id: suite, title: "drive", digest: expect.stringMatching(/^sha256:/) },
    });
    expect(taken.body.scenario).toBeUndefined();
    const end = await ended(taken.body.id);
    expect(end.status).toBe("completed");
    expect(end.tasks).toMatchObject([
      { index: 0, weight: 3, seed: 5, episodes: 2, scenario: { id: "base-nav" } },
      { index: 1, weight: 1, seed: 50, episodes: 3, instruction: "drive to the flag" },
    ]);
    const { tasks, policies: shown, pairs } = end;
    for (const [i, { label, overall, rank }] of shown.entries()) {
      const means = tasks.map(
        (task: { policies: { scores: { progress_score: { mean: number } } }[] }) =>
          task.policies[i]!.scores.progress_score.mean,
      );
      expect(overall.progress.mean).toBeCloseTo((3 * means[0] + means[1]) / 4, 9);
      expect(overall.progress.ci95.method).toBe("bootstrap");
      expect(overall.success.ci95.method).toBe("wilson");
      expect([label, rank]).toEqual(["AB"[i], 1]);
    }
    expect(pairs).toHaveLength(1);
    expect(pairs[0]).toMatchObject({ a: "A", b: "B", n: 5, sign_flip: { p: expect.any(Number) } });
    expect(pairs[0].progress.mean).toBeCloseTo(shown[0].overall.progress.mean - shown[1].overall.progress.mean, 9);
    expect([pairs[0].mcnemar, pairs[0].return]).toEqual([undefined, undefined]);
    expect(tasks[1].seeds.map(({ seed }: { seed: number }) => seed)).toEqual([50, 51, 52]);
    expect(tasks[1].pairs[0]).toMatchObject({ n: 3, mcnemar: { p: expect.any(Number) } });
    expect(end.verdict.text).toMatch(/^Neither is known to be better: A minus B is -?\d+ points of weighted progress/);
    expect(heard.has("drive to the flag")).toBe(true);
    const one = await app.call(`/v1/evaluate/${tasks[1].policies[0].evaluation_id}`, undefined, { key: caller.key });
    expect(one.body.per_episode[0].seed).toBe(50);
  });

  it("gives three policies strengths by their common seeds", async () => {
    const policies = [await policyOf("stand"), await policyOf("seek"), await policyOf("stand")];
    const { body, text } = await compare({ suite: await suiteOf(TASKS), policies });
    expect(body.id, text).toMatch(/^cmp_/);
    const { policies: shown } = await ended(body.id);
    const values = shown.map(({ strength }: { strength: { value: number } }) => strength.value);
    expect(values[1]).toBeGreaterThan(values[0]);
    expect(values[0]).toBeCloseTo(values[2], 6);
    expect(shown[1].strength.ci95.method).toBe("bootstrap");
  });

  it("has no overall score if the scenario of a task disappeared while it ran, and the verdict says so", async () => {
    const suite = await suiteOf(
      [
        { ...NAV, episodes: 1 },
        { scenario: "hold-up", episodes: 1 },
      ],
      caller,
      packed,
    );
    const { endpoint } = await openModel();
    const policies = [
      { policy_endpoint: endpoint, horizon: 4 },
      { policy_endpoint: endpoint, horizon: 8 },
    ];
    const taken = await compare({ suite, policies }, caller, packed);
    expect(taken.status, taken.text).toBe(202);
    const end = await ended(taken.body.id);
    expect(
      end.tasks.map((task: { policies: { status: string }[] }) => task.policies.map(({ status }) => status)),
    ).toEqual([
      ["completed", "completed"],
      ["failed", "failed"],
    ]);
    expect(end.policies.map(({ status, overall, rank }: Record<string, unknown>) => [status, overall, rank])).toEqual([
      ["failed", undefined, undefined],
      ["failed", undefined, undefined],
    ]);
    expect(end.verdict).toMatchObject({ best: [], known: false });
    expect(end.verdict.text).toContain("A was not compared: scenario_not_runnable in task 1 (hold-up).");
    expect(end.tasks[0].pairs).toHaveLength(1);
  });
});

describe("refusals of a comparison on a suite", () => {
  it("name the task whose scenario was removed or has changed, before anything is charged", async () => {
    const policies = [await policyOf("seek"), await policyOf("stand")];
    const removed = await suiteOf(
      [
        { ...NAV, episodes: 1 },
        { scenario: "hold-up", episodes: 1 },
      ],
      caller,
      packed,
    );
    const changed = newId("suite");
    await app.sql`
      insert into suite (id, org_id, title, digest, tasks)
      select ${changed}, org_id, title, digest, jsonb_set(tasks, '{0,digest}', '"sha256:0"') from suite where id = ${removed}`;
    for (const [suite, name] of [
      [removed, "task 1: the gateway has no scenario hold-up 1.0.0"],
      [changed, "task 0: the gateway has no scenario base-nav"],
    ] as const) {
      const { status, body, text } = await compare({ suite, policies });
      expect([status, body.error.code, body.error.param], text).toEqual([409, "scenario_not_runnable", "suite"]);
      expect(body.error.message).toContain(name);
    }
  });

  it.each([
    ["a suite and a scenario", { ...NAV, suite: "own" }, 422, "scenario"],
    ["a suite and episodes", { episodes: 3, suite: "own" }, 422, "episodes"],
    ["a suite and a seed", { seed: 0, suite: "own" }, 422, "seed"],
    ["neither a suite nor a scenario", {}, 422, "scenario"],
    ["a scenario without episodes", NAV, 422, "episodes"],
    ["another organization's suite", { suite: "theirs" }, 404, "suite"],
    ["an archived suite", { suite: "archived" }, 422, "suite"],
    ["more than 10,000 episodes of all policies and tasks", { suite: "large", policies: 3 }, 422, "suite"],
    ["a camera that a task lacks", { suite: "own", camera_map: { front: "none" } }, 422, "policies.0.camera_map.front"],
  ])("name the field for %s", async (_, asked, status, param) => {
    const { suite, policies = 2, camera_map, ...rest } = asked as Record<string, unknown>;
    const large = TASKS.map((task) => ({ ...task, episodes: 2000 }));
    const suites: Record<string, () => Promise<string>> = {
      own: () => suiteOf(TASKS),
      theirs: async () => suiteOf(TASKS, await app.caller()),
      large: () => suiteOf(large),
      archived: async () => {
        const id = await suiteOf(TASKS);
        await app.call(`/v1/suites/${id}`, undefined, { key: caller.key, method: "DELETE" });
        return id;
      },
    };
    const id = typeof suite === "string" ? await suites[suite]?.() : undefined;
    const each = {
      policy_endpoint: "grpc://127.0.0.1:50999",
      horizon: 16,
      ...(camera_map !== undefined && { camera_map }),
    };
    const body = { ...rest, ...(id !== undefined && { suite: id }), policies: Array(policies).fill(each) };
    const answer = await compare(body);
    expect([answer.status, answer.body.error?.param], answer.text).toEqual([status, param]);
  });

  it("say how many episodes the balance covers before anything runs", async () => {
    const poor = await app.caller(1);
    const suite = await suiteOf(
      [
        { ...NAV, episodes: 2500 },
        { ...NAV, episodes: 2500, instruction: "x" },
      ],
      poor,
    );
    const each = { policy_endpoint: "grpc://127.0.0.1:50999", horizon: 16 };
    const { status, body, text } = await compare({ suite, policies: [each, each] }, poor);
    // Of each policy: 100 of 10,000 episodes.
    expect([status, body.error.code, body.error.details.max_affordable?.episodes], text).toEqual([
      402,
      "insufficient_credits",
      50,
    ]);
    expect((await app.call("/v1/jobs", undefined, { key: poor.key })).body.data).toEqual([]);
  });
});
