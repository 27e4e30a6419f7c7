/** Published comparisons on suites: verified by replays, and ranked. */
import { beforeAll, describe, expect, it, vi } from "vitest";
import { newId } from "../../../src/ids.ts";
import { BUILT_IN } from "../../../src/scenarios/index.ts";
import { faultOfSignature, recomputed } from "../../../src/scenarios/published.ts";
import { tx } from "../../../src/store/database/tx.ts";
import { addPublication } from "../../../src/store/jobs/publications.ts";
import { verifyCommand } from "../../../tools/evaluate-verify.ts";
import type { App, Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
let caller: Caller;
let suite: { id: string; digest: string; tasks: object[] };
// biome-ignore lint/suspicious/noExplicitAny: a JSON document.
let document: any;
const scenarios = new Map(BUILT_IN.map((scenario) => [scenario.id, scenario]));

beforeAll(async () => {
  app = await ownGateway({ roles: new Set(["api", "worker"]) });
  const model = await openModel();
  for (const name of ["one", "two"])
    await app.supply({
      ...{ provider: name, model: `acme/${name}`, endpoint: model.endpoint },
      ...{ action_spaces: ["continuous_nd"], action_dim: 1 },
    });
  caller = await app.caller(100);
  const pole = { scenario: "cartpole-balance", episodes: 30 };
  const tasks = [
    { ...pole, weight: 2 },
    { ...pole, episodes: 20, seed: 100, instruction: "keep it up" },
  ];
  const made = await app.call("/v1/suites", { title: "poles <b>", tasks }, { key: caller.key });
  expect(made.status, made.text).toBe(201);
  suite = made.body;
});

const published = async (policies: readonly object[]) => {
  const { key } = caller;
  const { body, text } = await app.call("/v1/evaluate/compare", { suite: suite.id, policies }, { key });
  expect(body.id, text).toMatch(/^cmp_/);
  await eventually(
    async () => {
      const now = await app.call(`/v1/evaluate/compare/${body.id}`, undefined, { key });
      expect(["completed", "failed"]).toContain(now.body.status);
    },
    { timeout: 60_000, interval: 50 },
  );
  return app.call("/v1/publications", { comparison_id: body.id, title: "poles" }, { key });
};
const board = (digest: string, query = "") => app.call(`/v1/leaderboards/${digest}${query}`);

describe("a published comparison on a suite", () => {
  it("verifies by its weighted means, its pairs, and a replay of every task", async () => {
    const each = { horizon: 16, replan_steps: 16 };
    const made = await published([
      { policy_endpoint: "acme/one", ...each },
      { policy_endpoint: "acme/two", ...each, replan_steps: 8 },
    ]);
    expect(made.status, made.text).toBe(201);
    expect(made.body.discloses).toContainEqual('the suite "poles <b>" with its 2 tasks, the seeds, and the scores');
    document = (await app.call(made.body.path)).body;
    expect(document.comparison).toMatchObject({
      suite: { title: "poles <b>", digest: suite.digest, tasks: suite.tasks },
      overall: [{ label: "A" }, { label: "B" }],
      pairs: [{ a: "A", b: "B", n: 50 }],
      failed: [],
    });
    expect(faultOfSignature(document, (await app.call("/.well-known/jwks.json")).body.keys)).toBeUndefined();
    expect(await recomputed(document, scenarios)).toMatchObject({ problems: [], replayed: 100 });
    const page = await fetch(`${app.url}${made.body.path}`, { headers: { accept: "text/html" } });
    const text = await page.text();
    for (const shown of ["Suite poles &lt;b&gt;", "keep it up", "Overall", "100 to 119"]) expect(text).toContain(shown);
    for (const task of [0, 1]) {
      expect(text).toContain(`<td>control, task ${task}</td><td>reference/energy-swingup</td>`);
      const doubt = `Policy A in task ${task} (cartpole-balance) is not known to succeed more often than a control that`;
      expect(text).toContain(doubt);
      expect(text).toContain(`control, task ${task}: zero trajectories`);
    }
  });

  it("is not verified live, and says so before it replays anything", async () => {
    const error = vi.spyOn(console, "error").mockImplementation(() => {});
    const code = await verifyCommand([`${app.url}/v1/publications/${document.id}`, "--live", "--label", "A"]);
    const said = error.mock.calls.flat().join();
    error.mockRestore();
    expect([code, said]).toEqual([2, expect.stringContaining("--live does not support a publication of a suite")]);
  });

  it.each([
    ["a weight", (copy: typeof document) => (copy.comparison.suite.tasks[0].weight = 9), /suite: the digest differs/],
    ["an overall score", (copy: typeof document) => (copy.comparison.overall[0].progress.mean = 1), /overall differs/],
    ["a p-value", (copy: typeof document) => (copy.comparison.pairs[0].sign_flip.p = 0.01), /pairs differ/],
    ["a task by its absence", (copy: typeof document) => copy.evaluations.pop(), /B has no evaluation of task 1/],
    [
      "a task by another",
      (copy: typeof document) => (copy.evaluations[0].task = 1),
      /another scenario, seed or number/,
    ],
  ])("names the difference when someone replaces %s", async (_, change, problem) => {
    const copy = structuredClone(document);
    change(copy);
    expect((await recomputed(copy, scenarios)).problems.join("\n")).toMatch(problem);
  });

  it("ranks its models on the suite's leaderboard, and no longer when it is withdrawn", async () => {
    const { status, body, text } = await board(suite.digest);
    expect(status, text).toBe(200);
    expect(body).toMatchObject({ object: "leaderboard", digest: suite.digest, tasks: suite.tasks });
    const rows = body.data.map(({ model, rank, episodes, attempts }: Record<string, unknown>) => [
      model,
      rank,
      episodes,
      attempts,
    ]);
    expect(rows.sort()).toEqual([
      ["acme/one", 1, 50, 1],
      ["acme/two", 1, 50, 1],
    ]);
    await app.call(`/v1/publications/${document.id}`, undefined, { key: caller.key, method: "DELETE" });
    expect((await board(suite.digest)).status).toBe(404);
  });

  it("is refused if each policy failed in a task", async () => {
    const broken = await openModel({ act: (_call, answer) => answer([[Number.NaN]]) });
    const made = await published(Array(2).fill({ policy_endpoint: broken.endpoint, horizon: 1 }));
    expect([made.status, made.body.error.code], made.text).toEqual([409, "not_publishable"]);
  });
});

describe("a leaderboard of a suite", () => {
  it("ranks by the weighted mean, shows ties as ties, and gives strengths", async () => {
    const digest = `sha256:${"5".repeat(64)}`;
    const task = { scenario: "base-nav", version: "1.0.0", digest: "sha256:1", action_space: "waypoint_se2", seed: 0 };
    const tasks = [
      { ...task, episodes: 20, weight: 3 },
      { ...task, episodes: 40, weight: 1, instruction: "x" },
    ];
    const text = JSON.stringify({ object: "publication", comparison: { suite: { title: "", digest, tasks } } });
    const add = async (model: string, heavy: number, light: number) => {
      const id = newId("pub");
      const outcomes = [
        ["1".repeat(heavy), "0".repeat(20 - heavy)],
        ["1".repeat(light), "0".repeat(40 - light)],
      ];
      const result = {
        ...{ label: "A", digest, model, offeringId: "", revision: undefined, progress: 0.5, attempts: 1 },
        outcomes: outcomes.flat().join(""),
        rate: ((3 * heavy) / 20 + light / 40) / 4,
      };
      const publication = { id, kind: "comparison" as const, subject: id, title: "" };
      await tx(app.sql, (tx) => addPublication(tx, caller.org, publication, text, [result]));
    };
    await add("acme/heavy", 19, 5);
    await add("acme/near", 18, 6);
    await add("acme/light", 2, 30);
    const { body, text: shown } = await board(digest);
    expect(body.data, shown).toHaveLength(3);
    const [first, second, third] = body.data;
    expect([first.model, second.model, third.model]).toEqual(["acme/heavy", "acme/near", "acme/light"]);
    expect([first.rank, second.rank, third.rank]).toEqual([1, 1, 3]);
    expect(first).toMatchObject({ successes: 24, episodes: 60 });
    expect(first.success_rate).toBeCloseTo((3 * 0.95 + 0.125) / 4, 9);
    expect(first.interval.low).toBeLessThan(first.success_rate);
    expect(first.strength.value).toBeGreaterThan(third.strength.value);
    const spaced = await board(digest, "?action_space=waypoint_se2");
    expect([spaced.status, spaced.body.error.param], spaced.text).toEqual([422, "action_space"]);
    expect((await board(`sha256:${"6".repeat(64)}`)).status).toBe(404);
  });
});
