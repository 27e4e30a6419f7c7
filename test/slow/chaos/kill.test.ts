/** kill -9 in the middle of the work. */
import { afterAll, beforeAll, expect, it } from "vitest";
import { startPostgres } from "../../../src/embedded/postgres.ts";
import { connect } from "../../../src/store/database/tx.ts";
import { ACT_DECLARATION, ADMIN_TOKEN, callRest } from "../../support/app.ts";
import { type Gateway, scratchDir, startGateway } from "../../support/gateway.ts";
import { brokenInvariants } from "../../support/invariants.ts";
import { honestSteps, type Model, startModel } from "../../support/model.ts";

const dir = scratchDir();
const env = {
  LOG_LEVEL: "error",
  DATA_DIR: dir.path,
  SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
  LIMBER_REFERENCE_SUPPLY: "false",
};
let model: Model;
let gateway: Gateway;
let key: string;
let org: string;

beforeAll(async () => {
  model = await startModel();
  gateway = await startGateway(env);
  const admin = (path: string, body: object) => callRest(gateway.url, path, body, { admin: ADMIN_TOKEN });
  ({ id: org } = (await admin("/v1/orgs", { name: "chaos" })).body);
  await admin(`/v1/orgs/${org}/credits`, { amount_usd: 1000 });
  const rate_limit = { requests: 1_000_000, window_s: 1, burst: 1_000_000, concurrency: 1000 };
  ({ key } = (await admin(`/v1/orgs/${org}/keys`, { role: "owner", rate_limit })).body);
  await call("/v1/supply/providers", { name: "acme" });
  const declaration = { ...ACT_DECLARATION, model: "acme/base", endpoint: model.endpoint };
  const { body: offering } = await call("/v1/supply/providers/acme/models", declaration);
  const { body: verified } = await call(`/v1/supply/offerings/${offering.id}/verify`, {});
  if (verified.offering?.status !== "live") throw new Error(JSON.stringify(verified));
  model.script.act = (act, answer) => void setTimeout(() => answer(honestSteps(act, 2)), 20);
});
afterAll(async () => {
  await gateway?.end("SIGKILL");
  await model.close();
  dir.remove();
});

const call = (path: string, body?: object, headers: Record<string, string> = {}) =>
  callRest(gateway.url, path, body, { key, headers });

/** What callers know of their calls when the gateway dies. */
interface Witness {
  readonly answered: Map<string, number>;
  readonly replayable: { idempotencyKey: string; text: string }[];
  readonly unanswered: string[];
}

/** Two hundred callers that call again and again until nobody answers any more; a third of them with idempotency keys. */
async function callUntilDeath(round: number): Promise<Witness> {
  const witness: Witness = { answered: new Map(), replayable: [], unanswered: [] };
  const body = { model: "acme/base", action_space: "base_twist_2d", horizon: 2, observations: [{ proprio: [0.5] }] };
  const caller = async (number: number): Promise<void> => {
    for (let i = 0; ; i++) {
      const idempotencyKey = number % 3 === 0 ? `${round}-${number}-${i}` : undefined;
      try {
        const headers = idempotencyKey === undefined ? {} : { "idempotency-key": idempotencyKey };
        const { status, headers: told, body: answer, text } = await call("/v1/act", body, headers);
        if (status !== 200) throw new Error(`${status} ${text}`, { cause: "refused" });
        witness.answered.set(told.get("x-request-id") ?? "", Math.round(answer.usage.cost_usd * 1e6));
        if (idempotencyKey !== undefined) witness.replayable.push({ idempotencyKey, text });
      } catch (error) {
        if (error instanceof Error && error.cause === "refused") throw error;
        if (idempotencyKey !== undefined) witness.unanswered.push(idempotencyKey);
        return;
      }
    }
  };
  await Promise.all(Array.from({ length: 200 }, (_, number) => caller(number)));
  return witness;
}

/** Every row of the usage list, by request. */
async function usage(): Promise<Map<string, { status: string; micro: number }>> {
  const rows = new Map<string, { status: string; micro: number }>();
  for (let cursor = ""; ; ) {
    const { body } = await call(`/v1/usage?limit=500${cursor && `&cursor=${cursor}`}`);
    for (const row of body.data)
      rows.set(row.request_id, { status: row.status, micro: Math.round(row.cost_usd * 1e6) });
    if (!body.has_more) return rows;
    cursor = body.next_cursor;
  }
}

it("kill -9 during 200 concurrent acts keeps every answered call on record, no hold, and a balanced ledger", async () => {
  const witnesses: Witness[] = [];
  for (let round = 0; round < 3; round++) {
    const calling = callUntilDeath(round);
    const goal = model.acts.length + 400 + 150 * round;
    await expect.poll(() => model.acts.length, { interval: 5 }).toBeGreaterThan(goal);
    await gateway.end("SIGKILL");
    witnesses.push(await calling);
    gateway = await startGateway(env);
    await expect.poll(async () => (await call("/v1/billing/balance")).body.held_usd).toBe(0);
  }

  const rows = await usage();
  const { body: balance } = await call("/v1/billing/balance");
  const answered = new Map(witnesses.flatMap((witness) => [...witness.answered]));
  expect(answered.size).toBeGreaterThan(500);
  const missing = [...answered.keys()].filter((id) => !rows.has(id));
  expect(missing).toEqual([]);
  for (const [id, micro] of answered) {
    const { status, micro: charged } = rows.get(id)!;
    expect(charged).toBe(status === "settled" ? micro : 0);
  }
  const spent = [...rows.values()].reduce((sum, { micro }) => sum + micro, 0);
  expect(Math.round(balance.spent_usd * 1e6)).toBe(spent);
  expect(balance).toMatchObject({ granted_usd: 1000, held_usd: 0, balance_usd: balance.available_usd });

  // What was answered under an idempotency key is answered the same; what was not may run now.
  const body = { model: "acme/base", action_space: "base_twist_2d", horizon: 2, observations: [{ proprio: [0.5] }] };
  const asked = model.acts.length;
  for (const { idempotencyKey, text } of witnesses.flatMap(({ replayable }) => replayable.slice(-25)))
    expect((await call("/v1/act", body, { "idempotency-key": idempotencyKey })).body).toMatchObject({
      ...JSON.parse(text),
      replayed: true,
      observation_age_ms: expect.any(Number),
    });
  expect(model.acts.length).toBe(asked);
  for (const idempotencyKey of witnesses.flatMap(({ unanswered }) => unanswered.slice(0, 20)))
    expect((await call("/v1/act", body, { "idempotency-key": idempotencyKey })).status).toBe(200);

  expect(await gateway.end("SIGTERM")).toMatchObject({ code: 0, stderr: "" });
  const postgres = await startPostgres({ dataDir: dir.path });
  const sql = connect(postgres.url, { max: 1 });
  expect(await brokenInvariants(sql)).toEqual([]);
  await sql.end();
  await postgres.stop();
}, 120_000);
