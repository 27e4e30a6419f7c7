/** Tries of a request in a batch whose refusal passes by itself: each is a call by the key's limits. */
import { expect, it } from "vitest";
import { Cancel } from "../../../src/cancellation.ts";
import { type BatchPlace, batchWork } from "../../../src/jobs/batch.ts";
import { JobSeals } from "../../../src/services/job.ts";
import { takeJob } from "../../../src/store/jobs/jobs.ts";
import { createVault } from "../../../src/vault.ts";
import { ownDatabase, ownGateway } from "../../support/world.ts";

it("each retry takes a concurrency slot, and waits if limits or database have none", async () => {
  const database = await ownDatabase();
  const app = await ownGateway({ database, roles: new Set(["api"]) });
  const { key } = await app.caller();
  const requests = [{ model: "acme/base", observations: [{ proprio: [0.5, 2] }] }];
  const { id } = (await app.call("/v1/batch", { contract: "act", requests }, { key })).body;
  const job = (await takeJob(database.sql, "worker", ["batch"]))!;
  const events: string[] = [];
  let given = 0;
  const place = (): BatchPlace => {
    const name = `place ${++given}`;
    events.push(name);
    return { leave: () => undefined, unused: () => undefined };
  };
  const lacking = [{ places: [], againMs: 1 }, new Error("the database is away")];
  const places = new Map<BatchPlace, number>();
  await batchWork({
    sql: database.sql,
    seals: new JobSeals(database.sql, createVault(Buffer.alloc(32, 7))),
    crowded: () => false,
    async places() {
      const lack = given === 1 ? lacking.shift() : undefined;
      if (lack instanceof Error) throw lack;
      if (lack !== undefined) return lack;
      const next = place();
      places.set(next, given);
      return { places: [next], againMs: 0 };
    },
    async answer(_keyId, _call, taken) {
      events.push(`call in place ${places.get(taken)}`);
      return places.get(taken) === 1
        ? { kind: "refusal", body: {}, retryable: true }
        : { kind: "answer", statusCode: 200, body: {}, costMicro: 0 };
    },
  })(job, { lost: new Cancel(), stopped: new Cancel(), isAwaited: async () => false });
  expect(events.slice(0, 4)).toEqual(["place 1", "call in place 1", "place 2", "call in place 2"]);
  expect(lacking).toEqual([]);
  expect((await app.call(`/v1/batch/${id}`, undefined, { key })).body).toMatchObject({
    status: "completed",
    request_counts: { completed: 1, total: 1 },
  });
});
