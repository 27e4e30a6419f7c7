/** Repeated calls with an idempotency key: what a new call would be refused, they are refused too, and an action is never younger than it says. */
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { beforeAll, describe, expect, it } from "vitest";
import { ADMIN_TOKEN, type Answer, type App, type Caller } from "../../support/app.ts";
import { bearer, inference, refusalIn } from "../../support/clients.ts";
import { type Market, openMarket } from "../../support/market.ts";
import { uniqueNames } from "../../support/names.ts";
import { stopRobots } from "../../support/stops.ts";

const named = uniqueNames("acme", "other");

let market: Market;
let app: App;
let caller: Caller;
let next = 0;

const HARDWARE = { role: "owner", environment: "hardware" };

beforeAll(async () => {
  market = await openMarket([
    { provider: named.acme, model: `${named.acme}/base`, contracts: ["act", "predict"], price_per_frame: 0.001 },
    { provider: named.other, model: `${named.other}/base`, contracts: ["act", "predict"], price_per_frame: 0.001 },
  ]);
  ({ app } = market);
  caller = await app.caller(10, HARDWARE);
});

const freshName = (): string => `replay-${next++}`;
const BODY = {
  model: `${named.acme}/base`,
  action_space: "base_twist_2d",
  horizon: 2,
  observations: [{ proprio: [0.5] }],
};
const act = (name: string, more: object = {}, key = caller.key): Promise<Answer> =>
  app.call("/v1/act", { ...BODY, ...more, idempotency_key: name }, { key });
const good = ({ status, body, text }: Answer) => {
  expect(status, text).toBe(200);
  return body;
};
const refused = ({ status, body, text }: Answer, code: string): void =>
  expect([status, body.error?.code], text).toEqual([status, code]);
const age = (name: string, seconds: number) =>
  app.sql`update idempotency set created = created - make_interval(secs => ${seconds}) where key = ${name}`;
const keyOf = async (facts: object, key = caller.key): Promise<{ id: string; key: string }> => {
  const { body, status, text } = await app.call(`/v1/orgs/${caller.org}/keys`, facts, { key });
  expect(status, text).toBe(201);
  return body;
};
const patch = (id: string, change: object) =>
  app.call(`/v1/orgs/${caller.org}/keys/${id}`, change, { admin: ADMIN_TOKEN, method: "PATCH" });

describe("a replayed action", () => {
  it("is marked as replayed, keeps aging, and is marked as expired after its validity", async () => {
    const name = freshName();
    const first = good(await act(name));
    expect([first.replayed, first.expired]).toEqual([undefined, undefined]);
    const again = good(await act(name));
    expect(again).toEqual({ ...first, replayed: true, observation_age_ms: again.observation_age_ms });
    expect(again.observation_age_ms).toBeGreaterThan(first.observation_age_ms);
    await age(name, 60);
    const late = good(await act(name));
    expect(late).toEqual({ ...first, replayed: true, expired: true, observation_age_ms: late.observation_age_ms });
    expect(late.observation_age_ms).toBeGreaterThan(60_000);
  });

  it("is the same over gRPC, Connect and MCP", async () => {
    const name = freshName();
    const first = good(await act(name));
    await age(name, 60);
    const message = { model: BODY.model, actionSpace: BODY.action_space, horizon: 2, observations: BODY.observations };
    for (const transport of ["grpc", "connect"] as const) {
      const again = await inference(app, transport).act({ ...message, idempotencyKey: name }, bearer(caller.key));
      expect([again.id, again.replayed, again.expired]).toEqual([first.id, true, true]);
    }
    const client = new Client({ name: "an-agent", version: "1.0.0" });
    const requestInit = { headers: { authorization: `Bearer ${caller.key}` } };
    await client.connect(new StreamableHTTPClientTransport(new URL(`${app.url}/mcp`), { requestInit }) as never);
    const { content } = await client.callTool({ name: "act", arguments: { ...BODY, idempotency_key: name } });
    expect(JSON.parse((content as { text: string }[])[0]!.text)).toMatchObject({
      id: first.id,
      replayed: true,
      expired: true,
    });
    await client.close();
  });
});

describe("a replay is refused", () => {
  it("while an emergency stop covers its robot, on every transport, and is served again after the release", async () => {
    const name = freshName();
    const robot = { robot_id: freshName() };
    good(await act(name, robot));
    const stop = good(await stopRobots(app, robot, { key: caller.key }));
    refused(await act(name, robot), "robot_stopped");
    const message = { model: BODY.model, actionSpace: BODY.action_space, horizon: 2, observations: BODY.observations };
    const asked = { ...message, robotId: robot.robot_id, idempotencyKey: name };
    for (const transport of ["grpc", "connect"] as const)
      expect(await refusalIn(inference(app, transport).act(asked, bearer(caller.key)))).toMatchObject({
        reason: "robot_stopped",
      });
    good(await app.call("/v1/robots/release", { stop_id: stop.id }, { key: caller.key }));
    expect(good(await act(name, robot)).replayed).toBe(true);
  });

  it("for another key of the organization, but not for a key derived from the caller's", async () => {
    const name = freshName();
    const predicted = freshName();
    const frames = {
      model: `${named.acme}/base`,
      horizon: 2,
      observations: [{ proprio: [1] }],
      idempotency_key: predicted,
    };
    const first = good(await act(name));
    const frame = good(await app.call("/v1/predict", frames, { key: caller.key }));
    const sibling = await app.key(caller.org, HARDWARE);
    const child = await keyOf({ name: "child" });
    refused(await act(name, {}, sibling), "idempotency_conflict");
    refused(await app.call("/v1/predict", frames, { key: sibling }), "idempotency_conflict");
    expect(good(await act(name, {}, child.key)).id).toBe(first.id);
    expect(good(await app.call("/v1/predict", frames, { key: child.key })).id).toBe(frame.id);
    // A parent gets nothing of its child's.
    const own = freshName();
    good(await act(own, {}, child.key));
    refused(await act(own), "idempotency_conflict");
  });

  it("once the key has lost the model, by name or by alias", async () => {
    const { id, key } = await keyOf({ name: "narrowed" });
    const [byName, aliased] = [freshName(), freshName()];
    const alias = { model: "service/auto", provider: { only: [named.acme] } };
    good(await act(byName, {}, key));
    good(await act(aliased, alias, key));
    expect((await patch(id, { models: [`${named.other}/*`] })).status).toBe(200);
    await expect.poll(async () => (await act(byName, {}, key)).body.error?.code).toBe("model_not_in_scope");
    refused(await act(aliased, alias, key), "no_route_available");
  });

  it("if its action exceeds the repeating key's bounds", async () => {
    const name = freshName();
    const { action } = good(await act(name));
    const most = Math.max(...action.steps.flat().map(Math.abs));
    const [wide, narrow] = [
      await keyOf({ name: "wide", bounds: { lowest: [-most], highest: [most] } }),
      await keyOf({ name: "narrow", bounds: { lowest: [-most / 2], highest: [most / 2] } }),
    ];
    good(await act(name, {}, wide.key));
    const { status, body, text } = await act(name, {}, narrow.key);
    expect([status, body.error.code, body.error.message], text).toEqual([
      502,
      "all_attempts_failed",
      expect.stringContaining("bounds"),
    ]);
  });

  it("once the provider is not trusted, without a charge", async () => {
    const name = freshName();
    const body = { model: `${named.other}/base` };
    good(await act(name, body));
    expect(good(await act(name, body)).replayed).toBe(true);
    const review = (standing: string) =>
      app.admin(`/v1/supply/providers/${named.other}/review`, { standing, note: "a test" });
    await review("rejected");
    await expect.poll(async () => (await act(name, body)).body.error?.code).toBe("no_route_available");
    await review("verified");
    await expect.poll(async () => (await act(name, body)).body.replayed).toBe(true);
  });
});

describe("jobs and payments", () => {
  it("are visible to the creating key and its descendants; other keys of the organization get a conflict", async () => {
    const sibling = await app.key(caller.org, HARDWARE);
    const child = await keyOf({ name: "child of jobs" });
    const calls: readonly [path: string, body: object][] = [
      ["/v1/batch", { contract: "act", requests: [BODY] }],
      ["/v1/evaluate", { policy_endpoint: `${named.acme}/base`, scenario: "base-nav", episodes: 1 }],
    ];
    for (const [path, asked] of calls) {
      const body = { ...asked, idempotency_key: freshName() };
      const [first, below, beside] = [
        await app.call(path, body, { key: caller.key }),
        await app.call(path, body, { key: child.key }),
        await app.call(path, body, { key: sibling }),
      ];
      expect(first.status, first.text).toBeLessThan(300);
      expect(below.body.id, below.text).toBe(first.body.id);
      refused(beside, "idempotency_conflict");
    }
  });

  it("repeats an evaluation although the key's budget covers no further one", async () => {
    const { id, key } = await keyOf({ name: "poor" });
    const evaluate = (name: string) =>
      app.call(
        "/v1/evaluate",
        { policy_endpoint: `${named.acme}/base`, scenario: "base-nav", episodes: 1, idempotency_key: name },
        { key },
      );
    const name = freshName();
    const first = await evaluate(name);
    expect(first.status, first.text).toBeLessThan(300);
    const changed = await patch(id, { budget: { limit_usd: 0.000001 } });
    expect(changed.status, changed.text).toBe(200);
    await expect.poll(async () => (await evaluate(freshName())).status).toBe(402);
    expect((await evaluate(name)).body.id).toBe(first.body.id);
  });
});
