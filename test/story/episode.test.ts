/** An episode: a robot's loop with a session, whose provider dies under it and comes back. */
import { beforeAll, expect, it } from "vitest";
import type { App } from "../support/app.ts";
import { brokenInvariants } from "../support/invariants.ts";
import type { Model } from "../support/model.ts";
import { openModel, ownGateway } from "../support/world.ts";

let app: App;
let first: Model;
let second: Model;

beforeAll(async () => {
  [app, first, second] = await Promise.all([ownGateway(), openModel(), openModel()]);
  const offering = { model: "acme/base", price_per_action_step: 0.0001 };
  await app.supply({ provider: "one", endpoint: first.endpoint, ...offering });
  await app.supply({ provider: "two", endpoint: second.endpoint, ...offering });
});

it("an episode stays with its provider, continues without a gap after its death, and pays each chunk once", async () => {
  const caller = await app.caller(1);
  const step = async (session: string) => {
    const body = {
      model: "acme/base",
      action_space: "base_twist_2d",
      horizon: 5,
      observations: [{ proprio: [0.1] }],
      provider: { session_id: session },
    };
    return app.call("/v1/act", body, { key: caller.key });
  };

  const opening = await step("episode");
  expect(opening.body.route.pin).toBe("new");
  const pinned: string = opening.body.route.provider;
  for (let i = 0; i < 20; i++)
    expect((await step("episode")).body.route).toMatchObject({ provider: pinned, pin: "kept" });

  const dying = pinned === "one" ? first : second;
  dying.script.act = (_call, _answer, { stream }) => stream.close(2);
  const { status, body: saved } = await step("episode");
  expect([status, saved.route.fallback_used, saved.route.pin]).toEqual([200, true, "moved"]);
  expect(saved.route.attempts.map(({ provider, status }: Record<string, string>) => [provider, status])).toEqual([
    [pinned, "error"],
    [saved.route.provider, "ok"],
  ]);
  for (let i = 0; i < 20; i++)
    expect((await step("episode")).body.route).toMatchObject({ provider: saved.route.provider, pin: "kept" });

  dying.script.act = undefined;
  expect((await step("episode")).body.route.provider).toBe(saved.route.provider);
  const stranger = await app.caller(1);
  const theirs = await app.call(
    "/v1/act",
    { model: "acme/base", action_space: "base_twist_2d", observations: [{}], provider: { session_id: "episode" } },
    { key: stranger.key },
  );
  expect(theirs.body.route.pin).toBe("new");

  const usage = () => app.call("/v1/usage?limit=500", undefined, caller);
  await expect.poll(async () => (await usage()).body.totals).toEqual({ requests: 43, cost_usd: 0.0215 });
  const { body: balance } = await app.call("/v1/billing/balance", undefined, caller);
  expect(balance).toMatchObject({ spent_usd: 0.0215, balance_usd: 0.9785, held_usd: 0 });
  expect(await brokenInvariants(app.sql)).toEqual([]);
});
