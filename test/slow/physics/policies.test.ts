/** The policies of evaluations: which offering is asked, for how many steps, and what its calls cost. */
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import type { App } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { honestSteps, type Model } from "../../support/model.ts";
import { startOpenpiServer } from "../../support/openpi-server.ts";
import { startDexboticServer, startTetherServer } from "../../support/servers/json-acts.ts";
import { startOpenvlaServer } from "../../support/servers/json-numpy.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
let first: Model;
let second: Model;
let offering: string;

beforeAll(async () => {
  [first, second] = await Promise.all([openModel(), openModel()]);
  app = await ownGateway({ roles: new Set(["api", "worker"]) });
  offering = await app.supply({ provider: "acme", model: "acme/base", endpoint: first.endpoint });
  // The same model elsewhere, where its numbers are a little different: cheaper, so that it would be asked more often.
  second.script.act = (call, answer) => answer(honestSteps(call, 2).map((step) => step.map((each) => each + 1e-7)));
  const cheap = { price_per_action_step: 0.000001 };
  await app.supply({ provider: "beta", model: "acme/base", endpoint: second.endpoint, ...cheap });
  await app.supply({ provider: "acme", model: "acme/short", endpoint: first.endpoint, max_horizon: 4 });
});
afterEach(() => {
  first.script.act = undefined;
});

/** On two cores the physics of one evaluation runs at a time. */
const SLOW = { timeout: 120_000 };
/** Looks at the same pace as calls would leave the calls of the policy no place in the limits of their key. */
const LOOKS = { ...SLOW, interval: 250 };
const NAV = { policy_endpoint: "acme/base", scenario: "base-nav", episodes: 1, policy_timeout_ms: 5000 };
const evaluate = (key: string, body: object = {}) => app.call("/v1/evaluate", { ...NAV, ...body }, { key });
const ended = async (key: string, body: object = {}) => {
  const taken = await evaluate(key, body);
  expect(taken.status, taken.text).toBe(202);
  return eventually(async () => {
    const { body } = await app.call(`/v1/evaluate/${taken.body.id}`, undefined, { key });
    expect(["completed", "failed"]).toContain(body.status);
    return body;
  }, LOOKS);
};

describe("an evaluated gateway model", SLOW, () => {
  it("runs at one offering, which the record names, and at the same one the next time", async () => {
    const { key } = await app.caller();
    const [before, elsewhere] = [first.acts.length, second.acts.length];
    const runs = await Promise.all(Array.from({ length: 4 }, () => ended(key)));
    expect(runs.map(({ policy }) => [policy.offering_id, policy.provider])).toEqual(
      Array.from({ length: 4 }, () => [offering, "acme"]),
    );
    expect(new Set(runs.map(({ reproducibility }) => reproducibility.hash)).size).toBe(1);
    expect(first.acts.length).toBeGreaterThan(before);
    expect(second.acts.length).toBe(elsewhere);
  });

  it("gets no request for more steps than its offering gives", async () => {
    const { key } = await app.caller();
    const end = await ended(key, { policy_endpoint: "acme/short" });
    expect(end).toMatchObject({ status: "completed", policy: { horizon: 4, replan_steps: 1 } });
    const exact = await ended(key, { policy_endpoint: "acme/short", horizon: 3 });
    expect(exact).toMatchObject({ status: "completed", policy: { horizon: 3, replan_steps: 1 } });
    const long = await evaluate(key, { policy_endpoint: "acme/short", horizon: 5 });
    expect([long.status, long.body.error.code]).toEqual([409, "no_route_available"]);
  });

  it("is refused at once if it does not read the scenario's observation, with what it lacks", async () => {
    const reads = { input: { cameras: [{ name: "overhead", required: true }], other_cameras: true } };
    await app.supply({ provider: "acme", model: "acme/sees", endpoint: first.endpoint, ...reads });
    const { key } = await app.caller();
    const { status, body, text } = await evaluate(key, { policy_endpoint: "acme/sees", pictures: false });
    expect(status, text).toBe(422);
    expect([body.error.code, body.error.param]).toEqual(["input_contract", "policy_endpoint"]);
    expect(body.error.message).toContain("the policy reads pictures of overhead");
  });

  it("reports and counts its calls with the episodes, to the micro-dollar", async () => {
    const { org, key } = await app.caller();
    const { usage } = await ended(key, { episodes: 2 });
    const [spent] = await app.sql<{ episodes: number; calls: number; micro: number }[]>`
      select count(*) filter (where contract = 'evaluate')::int as episodes, count(*) filter (where contract = 'act')::int as calls,
        sum(cost_micro) filter (where contract = 'act')::int as micro
      from request where org_id = ${org} and status = 'settled'`;
    expect(usage).toEqual({
      episodes: 2,
      cost_usd: 0.02,
      policy_calls: spent!.calls,
      policy_cost_usd: expect.closeTo(spent!.micro / 1e6, 9),
      total_cost_usd: expect.closeTo(0.02 + spent!.micro / 1e6, 9),
    });
    expect(spent).toMatchObject({ episodes: 2 });
    expect(spent!.micro).toBeGreaterThan(0);
  });

  it("is refused if the balance covers the episodes and not the calls that they can make", async () => {
    // One episode: a cent, and at most 75 calls of 16 steps at 100 micro-dollars each.
    const [poor, able] = [await app.caller(0.129), await app.caller(0.131)];
    const { status, body } = await evaluate(poor.key);
    expect([status, body.error.code]).toEqual([402, "insufficient_credits"]);
    expect((await evaluate(able.key)).status).toBe(202);
  });
});

describe("an evaluated server at an address", SLOW, () => {
  it.each([
    ["as many steps as it returns", {}, "completed"],
    ["no more steps than requested", { horizon: 5 }, "completed"],
    ["fewer steps than requested", { horizon: 7 }, "failed"],
  ])("is trusted in what it declares: %s", async (_, asked, status) => {
    const { key } = await app.caller();
    const server = await startOpenpiServer();
    try {
      server.behave({ kind: "steps", steps: Array.from({ length: 6 }, () => [0.1, 0]) });
      const end = await ended(key, { policy_endpoint: server.endpoint, ...asked });
      expect(end).toMatchObject({ status, usage: { policy_cost_usd: 0 } });
      expect(end.policy.horizon).toBe((asked as { horizon?: number }).horizon);
      if (status === "failed") expect(end.error.message).toContain("fewer actions than `horizon`");
    } finally {
      await server.close();
    }
  });
});

describe("an evaluated server with settings", SLOW, () => {
  const rows = Array.from({ length: 6 }, () => [0.1, 0]);
  const auth = { type: "bearer", secret: "the-policys-own" };

  it.each([
    ["openvla-act", () => startOpenvlaServer(), "state"],
    ["dexbotic", () => startDexboticServer(), "states"],
    ["tether-act", () => startTetherServer(), "state"],
  ])(
    "is called over HTTP by its runtime, profile and credentials, which are deleted at the end: %s",
    async (runtime, start, state) => {
      const { key } = await app.caller();
      const server = await start();
      try {
        server.behave({ kind: "steps", steps: rows });
        const profile = { proprio: [{ start: 0, end: 3, key: state }] };
        const end = await ended(key, { policy_endpoint: server.endpoint, runtime, profile, auth });
        expect(end, JSON.stringify(end.error)).toMatchObject({
          status: "completed",
          policy: { protocol: runtime, endpoint: server.endpoint },
          usage: { episodes: 1, policy_cost_usd: 0 },
        });
        expect(server.acts.length).toBeGreaterThan(0);
        expect(server.acts.map(({ headers }) => headers.authorization)).toEqual(
          server.acts.map(() => "Bearer the-policys-own"),
        );
        expect(server.acts[0]?.proprio).toHaveLength(3);
        expect(JSON.stringify(end)).not.toContain("the-policys-own");
        const [job] = await app.sql`select request::text, secret from job where id = ${end.id}`;
        expect(job?.secret).toBeNull();
        expect(job?.request).not.toContain("the-policys-own");
      } finally {
        await server.close();
      }
    },
  );

  it("has its secret sealed while the evaluation waits", async () => {
    const front = await ownGateway({ roles: new Set(["api"]) });
    try {
      const { key } = await front.caller();
      const asked = { ...NAV, policy_endpoint: "ws://127.0.0.1:8009/", auth };
      const { status, body } = await front.call("/v1/evaluate", asked, { key });
      expect([status, JSON.stringify(body).includes("the-policys-own")]).toEqual([202, false]);
      const [job] = await front.sql<{ secret: Buffer }[]>`select secret from job where id = ${body.id}`;
      expect(job?.secret.length).toBeGreaterThan(0);
      expect(job?.secret.includes("the-policys-own")).toBe(false);
      await front.call(`/v1/evaluate/${body.id}`, undefined, { key, method: "DELETE" });
      expect(await front.sql`select from job where secret is not null`).toHaveLength(0);
    } finally {
      await front.close();
    }
  });

  it.each([
    ["an HTTP address without a runtime", { policy_endpoint: "http://127.0.0.1:8001/" }, "runtime"],
    ["a runtime of another scheme", { policy_endpoint: "http://127.0.0.1:8001/", runtime: "openpi-ws" }, "runtime"],
    ["a runtime that does not act", { policy_endpoint: "http://127.0.0.1:8001/", runtime: "cog" }, "runtime"],
    ["an unknown runtime", { policy_endpoint: "ws://127.0.0.1:8001/", runtime: "x" }, "runtime"],
    ["others' connections", { policy_endpoint: "outbound://acme", runtime: "limber-outbound" }, "policy_endpoint"],
    ["an unknown profile", { policy_endpoint: "ws://127.0.0.1:8009/", profile: { preset: "x" } }, "profile.preset"],
    ["a runtime for a model", { runtime: "openpi-ws" }, "runtime"],
    ["a profile for a model", { profile: {} }, "profile"],
    ["credentials for a model", { auth }, "auth"],
  ])("is refused for %s", async (_, asked, param) => {
    const { key } = await app.caller();
    const { status, body } = await evaluate(key, asked);
    expect([status, body.error.code, body.error.param]).toEqual([422, "validation_failed", param]);
  });
});

describe("the evaluation seed", SLOW, () => {
  it.each([
    [2 ** 32 - 2, 202],
    [2 ** 32 - 1, 422],
  ])("%i of two episodes gets status %i", async (seed, status) => {
    const { key } = await app.caller();
    const taken = await evaluate(key, { seed, episodes: 2 });
    expect(taken.status).toBe(status);
    if (status === 422) expect(taken.body.error.param).toBe("seed");
  });

  it("without a successor for the last episode is refused over Connect, too", async () => {
    const { key } = await app.caller();
    const body = { policyEndpoint: "acme/base", scenario: "base-nav", episodes: 2, seed: 2 ** 32 - 1 };
    const path = "/limber.v1.EvaluationService/Evaluate";
    const answer = await app.call(path, body, { key });
    expect([answer.status, answer.body.code]).toEqual([400, "invalid_argument"]);
  });
});
