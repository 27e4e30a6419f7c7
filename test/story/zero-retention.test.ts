/**
 * Zero data retention: what callers of an organisation send and get goes down every road that keeps something; then everything that was
 * written and sent is searched for it. The same roads of an organisation that retains data show that the search finds it.
 */
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { pruneJobKeys } from "../../src/store/jobs/jobs.ts";
import { importCatalog } from "../../src/store/supply/catalog.ts";
import type { App, Caller } from "../support/app.ts";
import type { FreshDatabase } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { robot } from "../support/loop-client.ts";
import type { Model } from "../support/model.ts";
import { type OtlpReceiver, startOtlpReceiver } from "../support/otlp-receiver.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { dump, found } from "../support/search.ts";
import { openModel, ownDatabase, ownGateway } from "../support/world.ts";

const DATA = join(import.meta.dirname, "../../data");
const BENCHMARK = "1x/1x-world-model-challenge";

let database: FreshDatabase;
let app: App;
let model: Model;
let hook: Receiver;
let spans: OtlpReceiver;

beforeAll(async () => {
  database = await ownDatabase();
  await importCatalog(database.sql, DATA);
  [model, hook, spans] = await Promise.all([openModel(), startReceiver(), startOtlpReceiver()]);
  app = await ownGateway({ database, roles: new Set(["api", "worker"]) });
  await app.supply({
    provider: "acme",
    model: "acme/base",
    endpoint: model.endpoint,
    about: { data_collection: "deny" },
  });
}, 60_000);
afterAll(async () => {
  await Promise.all([hook.close(), spans.close()]);
});

const ACT = { model: "acme/base", action_space: "base_twist_2d", horizon: 2, observations: [{ proprio: [0.5] }] };
const EVALUATION = { scenario: BENCHMARK, runner: "external", episodes: 1 };
const OPEN = { model: "acme/base", actionSpace: "base_twist_2d", horizon: 200 };

const call = (path: string, key: string, body?: unknown, method?: string) =>
  app.call(path, body, { key, ...(method !== undefined && { method }) });

async function well(path: string, key: string, body?: unknown, method?: string) {
  const answer = await call(path, key, body, method);
  if (answer.status >= 300) throw new Error(`${path} answered ${answer.status}: ${answer.text}`);
  return answer;
}

/** An organisation that retains data, one that does not, and one with a workspace that does not. */
const OWNERS = {
  retains: (): Promise<Caller> => app.caller(10),
  organisation: async (): Promise<Caller> => {
    const caller = await app.caller(10);
    await well(`/v1/orgs/${caller.org}/settings`, caller.key, { zdr: true }, "PATCH");
    return caller;
  },
  workspace: async (): Promise<Caller> => {
    const { org } = await app.caller(10);
    const { id } = await app.admin(`/v1/orgs/${org}/workspaces`, { name: "lab", settings: { zdr: true } });
    return { org, key: await app.key(org, { role: "owner", workspace_id: id }) };
  },
} as const;

/** What was sent and got, by what it is: none of it may be found. */
type Words = Record<string, string>;

const ended = (path: string, key: string) =>
  eventually(
    async () => {
      const { body } = await call("/v1/jobs?limit=100", key);
      const job = body.data.find(({ id }: { id: string }) => path.endsWith(id));
      expect(["completed", "failed", "cancelled"]).toContain(job.status);
    },
    { timeout: 60_000 },
  );

/** Sends a caller's words down every road; answers them, with those that came back. Nothing is fetched. */
async function travel(
  mark: string,
  { key }: Caller,
): Promise<Words & { batch: string; evaluation: string; trial: string }> {
  const word = (kind: string): string => `cnry-${kind}-of-${mark}`;
  const words: Words = {};
  const say = (kind: string): string => (words[kind] = word(kind));
  await well("/v1/webhooks", key, { url: hook.url, events: ["*"] });
  await well("/v1/broadcast", key, { name: "all", endpoint: spans.url, protocol: "http/json", events: true });

  const session_id = say("session");
  const plain = {
    ...ACT,
    instruction: say("instruction"),
    metadata: { note: say("metadata") },
    provider: { session_id },
  };
  await well("/v1/act", key, plain);
  await call("/v1/act", key, { ...plain, model: "acme/gone" });
  const keyed = { key, headers: { "idempotency-key": "once" } };
  const first = await app.call("/v1/act", plain, keyed);
  words.answer = first.body.id;
  expect((await app.call("/v1/act", plain, keyed)).body.id).toBe(first.body.id);

  const loop = robot(app, key, {
    ...OPEN,
    provider: { sessionId: session_id, deadlineMs: 10_000 },
    instruction: say("loop"),
  });
  await loop.expect("opened");
  loop.observe(1);
  words.chunk = (await loop.expect("chunk")).chunkId;
  loop.halfClose();
  await loop.rest();

  const frame = { camera: "front", url: `data:image/png;base64,${Buffer.from(say("frame")).toString("base64")}` };
  const requests = [
    { ...ACT, instruction: say("batch"), metadata: { note: say("item") }, custom_id: say("name") },
    { ...ACT, observations: [{ frames: [frame] }] },
    { ...ACT, horizon: say("refused") },
  ];
  const { body: batch } = await well("/v1/batch", key, {
    contract: "act",
    requests,
    metadata: { note: say("purpose") },
  });

  const policy_endpoint = `ws://cnry-${mark}.lan:8000`;
  words.endpoint = policy_endpoint;
  const asked = { ...EVALUATION, policy_endpoint, metadata: { note: say("asked") } };
  const { body: evaluation } = await well("/v1/evaluate", key, asked);
  const { body: taken } = await well("/v1/evaluate/claims", key, { harness: "h" });
  expect(taken.claim.evaluation.policy.endpoint).toBe(policy_endpoint);
  const report = {
    epoch: 1,
    index: 0,
    termination: "policy_error",
    error: say("fault"),
    return: 0,
    steps: 1,
    sim_time_s: 1,
  };
  await well(`/v1/evaluate/${evaluation.id}/episodes`, key, { ...report, latencies_ms: [1] });
  await well(`/v1/evaluate/${evaluation.id}/finish`, key, { epoch: 1, error: { code: "x", message: say("end") } });

  const scene = {
    policy_endpoint: "acme/base",
    scenario: "base-nav",
    episodes: 1,
    media: "strip",
    horizon: 64,
    replan_steps: 64,
  };
  const { body: trial } = await well("/v1/evaluate", key, { ...scene, metadata: { note: say("tried") } });
  await Promise.all([ended(batch.id, key), ended(trial.id, key)]);
  return { ...words, batch: batch.id, evaluation: evaluation.id, trial: trial.id };
}

const sent = (): string =>
  [...hook.received.map(({ body }) => body), ...spans.spans.map((span) => JSON.stringify(span, asText))].join("\n");
const asText = (_: string, value: unknown): unknown => (typeof value === "bigint" ? `${value}` : value);
const isOver = async (orgId: string): Promise<void> => {
  await eventually(async () => {
    const [left] =
      await app.sql`select count(*)::int as n from webhook_delivery as d join webhook as w on w.id = d.hook_id
      where w.org_id = ${orgId} and d.state = 'pending'`;
    expect(left?.n).toBe(0);
    expect(spans.spans.some(({ name }) => name === "gateway.act")).toBe(true);
  });
};

describe("the search", () => {
  it("finds everything that an organization with retention stores, on every path", async () => {
    const caller = await OWNERS.retains();
    const { batch, evaluation, trial, ...words } = await travel("retains", caller);
    await isOver(caller.org);
    const text = `${await dump(app.sql)}\n${sent()}`;
    // An instruction of a call that is answered at once is kept nowhere.
    const { instruction: _, loop: __, ...kept } = words;
    const missing = Object.entries(kept).filter(([kind, word]) => found("it", text, { [kind]: word }).length === 0);
    expect(missing).toEqual([]);
    expect(found("what was sent", sent(), { session: words.session! })).not.toEqual([]);
  }, 120_000);
});

describe.each(["organisation", "workspace"] as const)("of the %s that retains no data", (owner) => {
  let caller: Caller;
  let words: Words;
  let jobs: { batch: string; evaluation: string; trial: string };

  it("stores nothing of its callers in the database, webhooks or spans", async () => {
    caller = await OWNERS[owner]();
    const { batch, evaluation, trial, ...rest } = await travel(owner, caller);
    [words, jobs] = [rest, { batch, evaluation, trial }];
    await isOver(caller.org);
    const text = await dump(app.sql);
    expect(text).toContain(batch);
    expect([...found("the database", text, words), ...found("what was sent", sent(), words)]).toEqual([]);
    for (const path of ["/v1/logs?limit=500", "/v1/usage"]) {
      expect(found(path, (await call(path, caller.key)).text, words)).toEqual([]);
    }
  }, 120_000);

  it("keeps a batch readable until its results are fetched, then unreadable", async () => {
    const path = `/v1/batch/${jobs.batch}`;
    const before = (await call(`${path}?items=true`, caller.key)).body;
    expect(before.metadata).toEqual({ note: words.purpose });
    expect(before.items[0].custom_id).toBe(words.name);
    expect(before.request_counts).toMatchObject({ total: 3, completed: 1, failed: 2 });
    const results = await call(`${path}/results`, caller.key);
    expect(results.status).toBe(200);
    const lines = results.text
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(lines[0]).toMatchObject({ custom_id: words.name, response: { status_code: 200 } });
    expect(lines.map(({ status }) => status)).toEqual(["completed", "failed", "failed"]);

    await eventually(async () => {
      expect(await call(`${path}/results`, caller.key)).toMatchObject({
        status: 410,
        body: { error: { code: "data_gone" } },
      });
    });
    expect(await app.sql`select from job_key where id = ${jobs.batch}`).toHaveLength(0);
    expect(await app.sql`select from idempotency where starts_with(key, ${jobs.batch})`).toHaveLength(0);
    const after = (await call(`${path}?items=true`, caller.key)).body;
    expect(after).toMatchObject({ status: "completed", request_counts: before.request_counts, errors: [] });
    expect([after.metadata, after.items[0].custom_id]).toEqual([undefined, undefined]);
  });

  it("keeps an evaluation readable once after its end", async () => {
    for (const [id, note] of [
      [jobs.evaluation, words.asked],
      [jobs.trial, words.tried],
    ]) {
      const first = (await call(`/v1/evaluate/${id}`, caller.key)).body;
      expect(first.metadata).toEqual({ note });
      expect(first.per_episode).toHaveLength(1);
      if (id === jobs.trial) expect(first.per_episode[0].picture_url).toMatch(/^data:image/);
      const second = (await call(`/v1/evaluate/${id}`, caller.key)).body;
      expect(second).toMatchObject({
        status: first.status,
        per_episode: [],
        episodes: first.episodes,
        usage: first.usage,
      });
      expect([second.metadata, second.scores, second.policy.endpoint]).toEqual([undefined, undefined, ""]);
      expect(await app.sql`select from job_key where id = ${id!}`).toHaveLength(0);
      const { text } = await call(`/v1/evaluate/${id}/events`, caller.key);
      expect(text).toMatch(/^event: done$/m);
    }
  });

  it("makes unfetched results unreadable in time, and deletes their key", async () => {
    const asked = { contract: "act", requests: [{ ...ACT, custom_id: "a" }] };
    const { id } = (await well("/v1/batch", caller.key, asked)).body;
    await ended(id, caller.key);
    await app.sql`update job_key set until = now() where id = ${id}`;
    expect((await call(`/v1/batch/${id}/results`, caller.key)).status).toBe(410);
    await pruneJobKeys(app.sql);
    expect(await app.sql`select from job_key where id = ${id}`).toHaveLength(0);
  });

  it("resumes a session with its charged chunk", async () => {
    const open = { ...OPEN, provider: { sessionId: "one arm", deadlineMs: 10_000 } };
    const first = robot(app, caller.key, open);
    await first.expect("opened");
    first.observe(1);
    const { chunkId } = await first.expect("chunk");
    first.halfClose();
    await first.rest();
    expect(chunkId).not.toBe("");
    const again = robot(app, caller.key, open);
    expect(await again.expect("opened")).toMatchObject({ resumed: true, resumedStep: 1 });
    again.observe(1);
    expect(await again.expect("chunk")).toMatchObject({ replayed: true, chunkId });
    again.leave();
  });
});
