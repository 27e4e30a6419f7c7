/** What the log says of a control loop, read as operators read it: from the process. */
import { afterAll, beforeAll, expect, it } from "vitest";
import { ACT_DECLARATION, ADMIN_TOKEN, callRest } from "../../support/app.ts";
import { type FreshDatabase, freshDatabase } from "../../support/database.ts";
import { type Gateway, startGateway } from "../../support/gateway.ts";
import { robot } from "../../support/loop-client.ts";
import { honestSteps, type Model, startModel } from "../../support/model.ts";

let database: FreshDatabase;
let gateway: Gateway;
let model: Model;

beforeAll(async () => {
  [database, model] = await Promise.all([freshDatabase(), startModel()]);
  gateway = await startGateway({
    DATABASE_URL: database.url,
    LOG_LEVEL: "info",
    SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
    LIMBER_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
    LIMBER_ALLOW_PRIVATE_ADDRESSES: "true",
    LIMBER_REFERENCE_SUPPLY: "false",
  });
});
afterAll(async () => {
  await gateway.end("SIGKILL");
  await Promise.all([database.close(), model.close()]);
});

it("a loop that ends logs one line: owner, provider, chunks, holds, missed deadlines, rate, share of late answers and jitter", async () => {
  const asked = async (path: string, body: unknown, key?: string) => {
    const answer = await callRest(gateway.url, path, body, key === undefined ? { admin: ADMIN_TOKEN } : { key });
    expect(answer).toMatchObject({ status: expect.toSatisfy((status: number) => status < 300) });
    return answer.body;
  };
  const { id: org } = await asked("/v1/orgs", { name: "test" });
  await asked(`/v1/orgs/${org}/credits`, { amount_usd: 10 });
  const { id: keyId, key } = await asked(`/v1/orgs/${org}/keys`, { role: "owner" });
  await asked("/v1/supply/providers", { name: "acme" }, key);
  const declared = { ...ACT_DECLARATION, model: "acme/base", endpoint: model.endpoint };
  const { id: offeringId } = await asked("/v1/supply/providers/acme/models", declared, key);
  await asked(`/v1/supply/offerings/${offeringId}/verify`, {}, key);

  const loop = robot(gateway, key, {
    model: "acme/base",
    actionSpace: "base_twist_2d",
    horizon: 5,
    provider: { deadlineMs: 2_000 },
  });
  const { id: requestId } = await loop.expect("opened");
  for (const step of [1, 2, 3]) {
    loop.observe(step);
    await loop.expect("chunk");
  }
  model.script.act = () => {};
  loop.observe(4);
  await loop.expect("hold");
  model.script.act = (call, answer) => answer(honestSteps(call, 2));
  loop.observe(5);
  await loop.expect("chunk");
  loop.say({ case: "close", value: {} });
  const told = await loop.expect("ended");

  const { stderr } = await gateway.end("SIGTERM");
  const lines = stderr.split("\n").flatMap((line) => (line.startsWith("{") ? [JSON.parse(line)] : []));
  const ofLoops = lines.filter(({ msg }) => msg === "loop");
  expect(ofLoops).toHaveLength(1);
  const { effectiveHz, jitterMs } = told;
  expect(ofLoops[0]).toMatchObject({ requestId, keyId, offeringId, chunks: 4, holds: 1, missed: 1, staleRatio: 0.2 });
  expect(ofLoops[0]).toMatchObject({ effectiveHz, jitterMs });
  expect(effectiveHz).toBeGreaterThan(0);
  expect(jitterMs).toBeGreaterThan(0);
});
