/** Kinds of jobs: verifications among them, and the words that a caller may use for evaluations. */
import { beforeAll, expect, it } from "vitest";
import { ACT_DECLARATION, type App, type Caller } from "../../support/app.ts";
import type { Model } from "../../support/model.ts";
import { uniqueName } from "../../support/names.ts";
import { openModel, openWorld } from "../../support/world.ts";

let app: App;
let model: Model;
let supplier: Caller;

beforeAll(async () => {
  [app, model] = await Promise.all([openWorld(), openModel()]);
  supplier = await app.caller(0, { role: "admin" });
});

const listed = async (kind: string, who = supplier) => {
  const { status, text, body } = await app.call(`/v1/jobs?kind=${kind}`, undefined, { key: who.key });
  expect(status, text).toBe(200);
  return body.data;
};

it("lists each requested verification as a completed job", async () => {
  const { key } = supplier;
  const provider = uniqueName("maker");
  await app.call("/v1/supply/providers", { name: provider }, { key });
  const models = `/v1/supply/providers/${provider}/models`;
  const ends = [];
  for (const endpoint of [model.endpoint, "grpc://127.0.0.1:1025"]) {
    const name = `${provider}/base-${ends.length}`;
    const declared = await app.call(models, { ...ACT_DECLARATION, model: name, endpoint }, { key });
    expect(declared.status, declared.text).toBe(201);
    const verified = await app.call(`/v1/supply/offerings/${declared.body.id}/verify`, {}, { key });
    ends.push(verified.body.report.passed ? "completed" : "failed");
  }
  expect(ends).toEqual(["completed", "failed"]);
  const jobs = await listed("verification");
  expect(jobs.map(({ status }: { status: string }) => status)).toEqual(ends.toReversed());
  for (const job of jobs) {
    expect(job).toMatchObject({ object: "job", kind: "verification", total: 1, ended: 1, cost_usd: 0 });
    expect(job.id).toMatch(/^job_/);
    expect(job.created_at).toBeLessThanOrEqual(job.finished_at);
  }
  expect(await listed("verification", await app.caller(0, { role: "admin" }))).toEqual([]);
});

it("accepts `evaluate` and `evaluation` as a kind of jobs and of logs, and names only the documented one", async () => {
  const owner = await app.caller(0);
  for (const path of ["jobs", "logs"])
    for (const kind of ["evaluate", "evaluation"]) {
      const { status, text } = await app.call(`/v1/${path}?kind=${kind}`, undefined, { key: owner.key });
      expect(status, `${path} ${kind}: ${text}`).toBe(200);
    }
  const refused = await app.call("/v1/jobs?kind=evaluations", undefined, { key: owner.key });
  expect([refused.status, refused.text]).toEqual([
    422,
    expect.stringContaining("batch, evaluation, verification, export"),
  ]);
  expect(refused.text).not.toContain("evaluate,");
});
