/** Drafts of publications, from stored evaluations. */
import { beforeAll, describe, expect, it } from "vitest";
import { newId } from "../../../src/ids.ts";
import { draftsOf } from "../../../src/services/publication-drafts.ts";
import { tx } from "../../../src/store/database/tx.ts";
import { createJob, type JobRecord, jobsOfComparison } from "../../../src/store/jobs/jobs.ts";
import { recording } from "../../support/statements.ts";
import { openModel, openWorld, type World } from "../../support/world.ts";

let world: World;
/** The model of each policy, and its offering. */
let policies: Readonly<Record<"A" | "B", { readonly model: string; readonly offering: string }>>;
beforeAll(async () => {
  world = await openWorld();
  const { endpoint } = await openModel();
  const supply = async () => {
    const model = `acme/${world.name("model")}`;
    return { model, offering: await world.supply({ provider: world.name("prov"), model, endpoint }) };
  };
  policies = { A: await supply(), B: await supply() };
});

const EPISODE = {
  seed: 0,
  ...{ success: true, termination: "success", return: 1, progress: 1, steps: 1, simTimeS: 0.1, metrics: {} },
  ...{ initialStateSha256: "sha256:1", trajectorySha256: "sha256:2" },
};

/** A completed comparison of two models on a suite of `sizes.length` tasks, with one episode each of that many characters of actions. */
async function compared(sizes: readonly number[]): Promise<JobRecord[]> {
  const { sql } = world;
  const [orgId, id] = [newId("org"), newId("cmp")];
  for (const label of ["A", "B"] as const) {
    for (const [index, size] of sizes.entries()) {
      const suite = { id: "suite_1", title: "", digest: `sha256:${id}` };
      const request = {
        ...{
          protocol: "server",
          scenario: "base-nav",
          actionSpace: "waypoint_se2",
          mode: "sync",
          seed: 0,
          episodes: 1,
        },
        world: { version: "1.0.0", digest: `sha256:${index}` },
        comparison: { id, label, policies: 2, metric: "success", inSuite: { suite, index } },
        offering: { id: policies[label].offering, provider: "acme" },
      };
      const keyId = newId("key");
      const items = [{ customId: undefined, request: {} }];
      const facts = { kind: "evaluation" as const, orgId, keyId, workspaceId: undefined, lifeS: 3600 };
      const [result, actions] = [{ model: policies[label].model }, "A".repeat(size)];
      await tx(sql, async (tx) => {
        const job = await createJob(tx, { ...facts, request, items, comparison: id });
        await tx`
          update job set status = 'completed', rank = 9, started = now(), result = ${tx.json(result)} where id = ${job}`;
        await tx`
          update job_item set state = 'completed', response = ${tx.json({ ...EPISODE, actions })} where job_id = ${job}`;
      });
    }
  }
  return jobsOfComparison(sql, { orgId, workspaceId: undefined }, id);
}

const those = (texts: readonly string[], part: string): number => texts.filter((text) => text.includes(part)).length;

describe("drafts of a comparison on a suite", () => {
  it("look up each model's offering and attempts once", async () => {
    const jobs = await compared([8, 8, 8, 8]);
    const { sql, texts } = recording(world.sql);
    const { drafts, recorded } = await draftsOf(sql, jobs);
    expect(drafts.map(({ evaluation }) => evaluation.attempts)).toEqual(Array(8).fill(1));
    expect(recorded).toBe(64);
    expect([those(texts, "as count from job"), those(texts, "where offering.id = ")]).toEqual([2, 2]);
  });

  it("are refused at the evaluation whose actions exceed the limit, and neither it nor later ones are loaded", async () => {
    const jobs = await compared([8, 8 * 2 ** 20]);
    const { sql, texts } = recording(world.sql);
    await expect(draftsOf(sql, jobs)).rejects.toThrow("the recorded actions take more than 8388608 bytes");
    expect(those(texts, "as size from job_item")).toBe(2);
  });
});
