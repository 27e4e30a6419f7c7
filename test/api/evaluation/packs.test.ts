/** A gateway with scenario packs, one of them broken. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import type { Model } from "../../support/model.ts";
import { MJCF, PACK, packFolder } from "../../support/packs.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let folder: string;
let app: App;
let model: Model;
let caller: Caller;

beforeAll(async () => {
  folder = packFolder(
    { good: { "scenario.json": PACK, "hold.xml": MJCF }, bad: { "scenario.json": { ...PACK, substeps: undefined } } },
    afterAll,
  );
  model = await openModel();
  app = await ownGateway({ roles: new Set(["api", "worker"]), scenarioPacks: folder });
  await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  caller = await app.caller();
});

const HOLD = { policy_endpoint: "acme/base", scenario: "hold-up", episodes: 2, seed: 3 };
async function evaluated() {
  const taken = await app.call("/v1/evaluate", HOLD, { key: caller.key });
  expect(taken.status, taken.text).toBe(202);
  return eventually(async () => {
    const { body } = await app.call(`/v1/evaluate/${taken.body.id}`, undefined, { key: caller.key });
    expect(["completed", "failed"]).toContain(body.status);
    return body;
  });
}

it("lists and runs valid packs and reports the faults of others to the operator", async () => {
  const { status, body } = await app.call("/v1/scenarios");
  expect(status).toBe(200);
  expect(body.data.find(({ id }: { id: string }) => id === "hold-up")).toMatchObject({
    version: "1.0.0",
    variants: [{ dt_ms: 50, max_steps: 40 }],
  });
  const health = await app.call("/health", undefined, { admin: ADMIN_TOKEN });
  expect(health.body.detail.warnings).toEqual([
    expect.stringMatching(/^scenario pack bad is skipped: substeps is missing/),
  ]);
});

it("runs the digested files even if they change meanwhile", async () => {
  const before = await evaluated();
  expect(before).toMatchObject({ status: "completed", scenario: { id: "hold-up", action_dim: 2, dt_ms: 50 } });
  writeFileSync(join(folder, "good", "hold.xml"), MJCF.replace('mass="1"', 'mass="3"'));
  writeFileSync(join(folder, "good", "scenario.json"), JSON.stringify({ ...PACK, max_steps: 7 }));
  const after = await evaluated();
  expect(after.scenario).toEqual(before.scenario);
  expect(after.reproducibility.hash).toBe(before.reproducibility.hash);
});

it("does not run a scenario whose digest has changed", async () => {
  const other = await ownGateway({ database: app.database, roles: new Set(["api"]), scenarioPacks: folder });
  try {
    const taken = await other.call("/v1/evaluate", HOLD, { key: caller.key });
    expect(taken.body.scenario.max_steps).toBe(7);
    const end = await eventually(async () => {
      const { body } = await other.call(`/v1/evaluate/${taken.body.id}`, undefined, { key: caller.key });
      expect(body.status).toBe("failed");
      return body;
    });
    expect(end).toMatchObject({ error: { code: "scenario_not_runnable" }, episodes: { completed: 0 } });
    expect(end.scenario).toEqual(taken.body.scenario);
  } finally {
    await other.close();
  }
});
