/** POST /v1/routes/preview. */
import { beforeAll, describe, expect, it } from "vitest";
import type { App, Caller } from "../../support/app.ts";
import { bearer, inference } from "../../support/clients.ts";
import { type Market, openMarket } from "../../support/market.ts";
import type { Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";

const named = uniqueNames("acme", "shared");

let market: Market;
let app: App;
let model: Model;
let caller: Caller;
let offering: string;
let world: string;

beforeAll(async () => {
  market = await openMarket(
    [
      { provider: named.acme, model: `${named.acme}/base`, advertised: { p50_ms: 20, p95_ms: 40 } },
      { provider: named.acme, model: `${named.acme}/world`, contracts: ["predict"], price_per_frame: 0.002 },
    ],
    0,
  );
  ({ app, model, caller } = market);
  [offering, world] = market.offerings as [string, string];
});

const BODY = {
  model: `${named.acme}/base`,
  action_space: "base_twist_2d",
  horizon: 10,
  observations: [{ proprio: [0.5] }],
};
const preview = (more: object = {}, query = "") =>
  app.call(`/v1/routes/preview${query}`, { ...BODY, ...more }, { key: caller.key });

describe("200", () => {
  it("shows plan and cost, runs and charges nothing, and needs no credit but reports a lack of it", async () => {
    const before = model.acts.length + model.predicts.length;
    const { status, body } = await preview();
    expect(status).toBe(200);
    expect(body).toEqual({
      object: "route_plan",
      contract: "act",
      considered: 1,
      plan: [
        {
          rank: 1,
          offering_id: offering,
          model: `${named.acme}/base`,
          provider: named.acme,
          region: "",
          precision: "",
          score: expect.any(Number),
          price_unit_usd: 0.0001,
          price_now_usd: 0.0001,
          estimated_cost_usd: 0.001,
          wake_up_usd: 0,
          expected_ms: { p50: expect.any(Number), p95: expect.any(Number) },
          cold: false,
          reason_codes: expect.arrayContaining(["balanced"]),
          trust: "verified",
          quality: [],
        },
      ],
      dropped: [],
      estimated_cost_usd: { min: 0.001, expected: 0.001, max: 0.001 },
      pinned: false,
      would_refuse: { code: "insufficient_credits" },
    });
    expect(model.acts.length + model.predicts.length).toBe(before);
    // The preview itself is on record, as soon as the log is written.
    const [rows] = await app.sql`
      select count(*)::int as requests from request where org_id = ${caller.org} and contract <> 'preview'`;
    expect(rows?.requests).toBe(0);
  });

  it("uses the contract of the query, or the one that the model serves", async () => {
    expect((await preview({}, "?contract=act")).body).toMatchObject({ contract: "act", plan: [{}] });
    const asked = await preview({ model: `${named.acme}/world`, action_space: undefined }, "?contract=predict");
    expect(asked.body).toMatchObject({ contract: "predict", plan: [{ offering_id: world }] });
    const left = await preview({ model: `${named.acme}/world`, action_space: undefined });
    expect(left.body).toMatchObject({ contract: "predict", estimated_cost_usd: { max: 0.02 } });
    expect((await preview({ model: "service/auto" })).body.contract).toBe("act");
  });

  it("finds for evaluate what /v1/routes lists, at the price of an episode, in its action spaces only", async () => {
    await app.supply({
      provider: named.acme,
      model: `${named.acme}/upper-body`,
      endpoint: model.endpoint,
      action_spaces: ["latent_action"],
      action_dim: 1,
    });
    const { live } = (await app.call("/v1/routes?contract=evaluate")).body;
    expect(live).toMatchObject({ models: [`${named.acme}/base`], action_spaces: ["base_twist_2d"] });
    for (const asked of [`${named.acme}/base`, "service/auto", `${named.acme}/upper-body`, `${named.acme}/world`]) {
      const anySpace = await preview({ model: asked, action_space: undefined }, "?contract=evaluate");
      const models = anySpace.body.plan.map((step: { model: string }) => step.model);
      expect(models).toEqual(live.models.filter((slug: string) => asked === slug || asked === "service/auto"));
    }
    const { body } = await preview({}, "?contract=evaluate");
    expect(body).toMatchObject({
      contract: "evaluate",
      plan: [{ offering_id: offering, price_unit_usd: 0.01, estimated_cost_usd: 0.01 }],
      estimated_cost_usd: { min: 0.01, expected: 0.01, max: 0.01 },
    });
    const elsewhere = await preview({ action_space: "joint_pos_7" }, "?contract=evaluate");
    expect(elsewhere.body).toMatchObject({ plan: [], would_refuse: { code: "action_space_mismatch" } });
    const nowhere = await preview(
      { model: `${named.acme}/upper-body`, action_space: "latent_action" },
      "?contract=evaluate",
    );
    expect([nowhere.status, nowhere.body.error.param]).toEqual([422, "action_space"]);
  });

  it("with a seed shows what a call with that seed does, and another order with another seed", async () => {
    const providers = ["one", "two", "three", "four"];
    for (const provider of providers)
      await app.supply({
        provider,
        model: `${named.shared}/base`,
        endpoint: model.endpoint,
        advertised: { p50_ms: 20 },
      });
    const { key } = await app.caller(10);
    const firsts = new Set<string>();
    for (let seed = 0; seed < 24; seed++) {
      const shown = (await preview({ model: `${named.shared}/base`, seed })).body.plan;
      const again = (await preview({ model: `${named.shared}/base`, seed })).body.plan;
      const ids = (plan: { offering_id: string }[]) => plan.map(({ offering_id }) => offering_id);
      expect(ids(again)).toEqual(ids(shown));
      firsts.add(shown[0].provider);
      if (seed % 8 !== 0) continue;
      const { body } = await app.call("/v1/act", { ...BODY, model: `${named.shared}/base`, seed }, { key });
      expect([seed, body.route.attempts]).toMatchObject([seed, [{ offering_id: shown[0].offering_id, status: "ok" }]]);
    }
    expect([...firsts].sort()).toEqual(providers.toSorted());
  });

  it("says why no offering would serve, and what was dropped", async () => {
    const { status, body } = await preview({ provider: { max_cost_usd: 0 } });
    expect(status).toBe(200);
    expect(body).toMatchObject({
      plan: [],
      would_refuse: { code: "no_route_available" },
      dropped: [{ offering_id: offering, provider: named.acme, model: `${named.acme}/base`, reason: "max_cost_usd" }],
    });
    const none = await preview({ provider: { only: ["nobody"] } });
    expect(none.body).toMatchObject({
      would_refuse: { code: "no_route_available" },
      dropped: [{ reason: "not_in_only" }],
    });
  });

  it("works the same over gRPC and Connect", async () => {
    const request = { model: `${named.acme}/base`, actionSpace: "base_twist_2d", observations: [{ proprio: [0] }] };
    for (const transport of ["grpc", "connect"] as const) {
      const answer = await inference(app, transport).previewRoutes({ request }, bearer(caller.key));
      expect(answer).toMatchObject({ object: "route_plan", considered: 1, plan: [{ offeringId: offering }] });
    }
  });
});

describe("422", () => {
  it("refuses an unknown contract, and ground, which has no plan", async () => {
    const unknown = await preview({}, "?contract=dance");
    expect([unknown.status, unknown.body.detail[0].loc]).toEqual([422, ["query", "contract"]]);
    const ground = await preview({}, "?contract=ground");
    expect([ground.status, ground.body.error.code]).toEqual([422, "validation_failed"]);
    const twice = await preview({}, "?contract=act&contract=predict");
    expect(twice.status).toBe(422);
    const misspelt = await preview({}, "?contrat=act");
    expect([misspelt.status, misspelt.body.detail[0].loc]).toEqual([422, ["query", "contrat"]]);
  });
});

describe("401, 403 and 404", () => {
  it("requires a key, permission and a known model", async () => {
    expect((await app.call("/v1/routes/preview", BODY)).status).toBe(401);
    const viewer = await app.key(caller.org, { role: "viewer" });
    expect((await app.call("/v1/routes/preview", BODY, { key: viewer })).body.error.code).toBe("permission_denied");
    expect((await preview({ model: `${named.acme}/nothing` })).body.error.code).toBe("model_not_found");
  });
});
