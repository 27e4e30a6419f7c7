/** Suites: weighted tasks, bound to the digests of their scenarios. */
import { beforeAll, describe, expect, it } from "vitest";
import { BUILT_IN, digestOf, EARLIER, variantFor } from "../../../src/scenarios/index.ts";
import type { App, Caller } from "../../support/app.ts";
import { ownGateway } from "../../support/world.ts";

let app: App;
let caller: Caller;

beforeAll(async () => {
  app = await ownGateway({});
  caller = await app.caller();
});

const NAV = { scenario: "base-nav", episodes: 3 };
const create = (tasks: unknown, key = caller.key, title = "drive and reach") =>
  app.call("/v1/suites", { title, tasks }, { key });
const at = (id: string, method = "GET", key = caller.key) => app.call(`/v1/suites/${id}`, undefined, { key, method });

describe("a suite", () => {
  it("binds each task to the digest of its scenario, and equal tasks to the same digest", async () => {
    const reach = { scenario: "arm-reach@1.0.0", action_space: "joint_pos_7", episodes: 2, seed: 9, weight: 0.5 };
    const tasks = [{ ...NAV, instruction: "drive to the flag" }, reach];
    const { status, body, text } = await create(tasks);
    expect(status, text).toBe(201);
    const nav = BUILT_IN.find(({ id }) => id === "base-nav")!;
    const arm = EARLIER.find(({ id }) => id === "arm-reach")!;
    expect(body).toMatchObject({
      id: expect.stringMatching(/^suite_/),
      object: "suite",
      title: "drive and reach",
      episodes: 5,
      tasks: [
        {
          ...{ scenario: "base-nav", version: nav.version, instruction: "drive to the flag", seed: 0, weight: 1 },
          digest: digestOf(nav, variantFor(nav, undefined)!),
        },
        { ...reach, scenario: "arm-reach", version: "1.0.0", digest: digestOf(arm, variantFor(arm, "joint_pos_7")!) },
      ],
    });
    expect(body.tasks[1].instruction).toBeUndefined();
    expect((await at(body.id)).body).toEqual(body);
    const others = await Promise.all([
      create(tasks, caller.key, "other words"),
      create([{ ...tasks[0], weight: 2 }, reach]),
      create([reach, tasks[0]]),
    ]);
    expect(others.map((other) => other.body.digest === body.digest)).toEqual([true, false, false]);
  });

  it("is no longer listed once archived, stays readable, and never changes", async () => {
    const { key } = await app.caller();
    const ids = [(await create([NAV], key)).body.id, (await create([NAV], key)).body.id];
    const page = await app.call("/v1/suites?limit=1", undefined, { key });
    expect(page.body, page.text).toMatchObject({ data: [{ id: ids[1] }], has_more: true });
    const next = await app.call(`/v1/suites?limit=1&cursor=${page.body.next_cursor}`, undefined, { key });
    expect(next.body, next.text).toMatchObject({ data: [{ id: ids[0] }], has_more: false });
    const archived = await at(ids[1], "DELETE", key);
    expect(archived.body, archived.text).toMatchObject({ id: ids[1], archived_at: expect.any(Number) });
    expect((await at(ids[1], "DELETE", key)).body).toEqual(archived.body);
    const list = await app.call("/v1/suites", undefined, { key });
    expect(list.body.data.map(({ id }: { id: string }) => id)).toEqual([ids[0]]);
    expect((await at(ids[1], "GET", key)).body.archived_at).toBe(archived.body.archived_at);
    await expect(app.sql`update suite set title = 'other' where id = ${ids[0]}`).rejects.toThrow("never changes");
  });

  it("is another organization's secret, and needs the permissions of evaluations", async () => {
    const { body } = await create([NAV]);
    const stranger = await app.caller();
    for (const method of ["GET", "DELETE"]) expect((await at(body.id, method, stranger.key)).status).toBe(404);
    const viewer = await app.key(caller.org, { role: "viewer" });
    expect([(await at(body.id, "GET", viewer)).status, (await create([NAV], viewer)).status]).toEqual([200, 403]);
    const acting = await app.key(caller.org, { role: "owner", scopes: ["act"] });
    expect((await create([NAV], acting)).status).toBe(403);
  });
});

describe("a new suite", () => {
  it.each([
    ["no task", [], 422, "tasks"],
    ["65 tasks", Array.from({ length: 65 }, (_, seed) => ({ ...NAV, seed })), 422, "tasks"],
    ["a weight of 0", [NAV, { ...NAV, instruction: "x", weight: 0 }], 422, "tasks.1.weight"],
    ["a negative weight", [{ ...NAV, weight: -1 }], 422, "tasks.0.weight"],
    ["a weight that is not a number", [{ ...NAV, weight: "NaN" }], 422, "tasks.0.weight"],
    ["an infinite weight", [{ ...NAV, weight: "Infinity" }], 422, "tasks.0.weight"],
    ["no episodes", [{ scenario: "base-nav" }], 422, "tasks.0.episodes"],
    ["the same task twice", [NAV, { scenario: "arm-reach", episodes: 1 }, { ...NAV, seed: 7 }], 422, "tasks.2"],
    [
      "more than 5,000 episodes of all tasks",
      [
        { ...NAV, episodes: 3000 },
        { scenario: "arm-reach", episodes: 2001 },
      ],
      422,
      "tasks",
    ],
    ["seeds beyond 32 bits", [{ ...NAV, seed: 2 ** 32 - 2 }], 422, "tasks.0.seed"],
    ["an unknown action space", [{ ...NAV, action_space: "joint_pos_7" }], 422, "tasks.0.action_space"],
    ["an unknown scenario", [NAV, { scenario: "base-fly", episodes: 1 }], 404, "tasks.1.scenario"],
    ["a line break in an instruction", [{ ...NAV, instruction: "drive\nnow" }], 422, "tasks.0.instruction"],
  ])("is refused with %s, and the refusal names the field", async (_, tasks, status, param) => {
    const answer = await create(tasks);
    expect([answer.status, answer.body.error.param], answer.text).toEqual([status, param]);
  });

  it("is refused without a title, or with control characters in it", async () => {
    for (const title of ["", "a\u0000b", "a\nb"]) {
      const { status, body, text } = await create([NAV], caller.key, title);
      expect([status, body.error.param], text).toEqual([422, "title"]);
    }
  });
});
