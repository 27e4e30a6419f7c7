/** One process that only answers and one that only works off jobs: what is asked of the one is done by the other. */
import { afterAll, beforeAll, expect, it } from "vitest";
import { ADMIN_TOKEN, type Caller } from "../../support/app.ts";
import { Crew } from "../../support/crew.ts";
import { eventually } from "../../support/eventually.ts";
import { type Receiver, startReceiver } from "../../support/receiver.ts";

let crew: Crew;
let caller: Caller;
let receiver: Receiver;
beforeAll(async () => {
  [crew, receiver] = await Promise.all([Crew.open({ workers: 0 }), startReceiver()]);
  caller = await crew.caller(10);
}, 120_000);
afterAll(async () => {
  await crew.close();
  await receiver.close();
});

const ended = (path: string) =>
  eventually(
    async () => {
      const body = await crew.well(path, undefined, caller);
      expect(crew.hasEnded(body), body.status).toBe(true);
      return body;
    },
    { timeout: 60_000, interval: 100 },
  );
/** Rows that the workers' pruning forgets at once. */
const stale = async (): Promise<number> =>
  (await crew.sql<{ n: number }[]>`select count(*)::int as n from idempotency where key = 'stale'`)[0]?.n ?? 0;

it("a batch, an evaluation, a webhook and old records wait without a worker, and are processed once one starts", async () => {
  const request = { model: "acme/base", action_space: "base_twist_2d", horizon: 2, observations: [{ proprio: [0.5] }] };
  const hook = await crew.well("/v1/webhooks", { url: receiver.url }, caller);
  const batch = await crew.well("/v1/batch", { contract: "act", requests: Array(20).fill(request) }, caller);
  const evaluation = await crew.well(
    "/v1/evaluate",
    { policy_endpoint: "acme/base", scenario: "base-nav", episodes: 2, policy_timeout_ms: 5_000 },
    caller,
  );
  await crew.sql`
    insert into idempotency (org_id, key, hash, key_id, claim_id, leaser_id, method, response, created)
    select ${caller.org}, 'stale', '', 'key_stale', 'req_stale', id, 'x', '', now() - interval '3 days' from leaser limit 1`;
  // What an api process does by itself it has done when it has answered this.
  expect((await crew.well("/health")).status).toBe("ok");
  for (const path of [`/v1/batch/${batch.id}`, `/v1/evaluate/${evaluation.id}`])
    expect(await crew.well(path, undefined, caller)).toMatchObject({ status: "queued" });
  expect([receiver.received.length, await stale()]).toEqual([0, 1]);

  const { process } = await crew.hire(0);
  expect([process.url, process.stdout()]).toEqual(["", "limber ready\n"]);
  expect(await ended(`/v1/batch/${batch.id}`)).toMatchObject({
    status: "completed",
    request_counts: { completed: 20 },
    cost_usd: 0.004,
  });
  expect(await ended(`/v1/evaluate/${evaluation.id}`)).toMatchObject({
    status: "completed",
    usage: { episodes: 2, cost_usd: 0.02 },
  });
  await eventually(() =>
    expect(receiver.received.map(({ json }) => json.type)).toEqual(expect.arrayContaining(["ping", "batch.completed"])),
  );
  const deliveries = await crew.well(`/v1/webhooks/${hook.id}/deliveries`, undefined, caller);
  expect(deliveries.data.length).toBeGreaterThan(1);
  await eventually(async () => expect(await stale()).toBe(0));

  // While the worker works, the other still only answers; told to end, both end well.
  expect(await process.end("SIGTERM")).toMatchObject({ code: 0 });
  const late = await crew.well("/v1/batch", { contract: "act", requests: [request] }, caller);
  expect((await crew.call("/v1/jobs", undefined, { admin: ADMIN_TOKEN })).status).toBeLessThan(500);
  expect(await crew.well(`/v1/batch/${late.id}`, undefined, caller)).toMatchObject({ status: "queued" });
}, 180_000);
