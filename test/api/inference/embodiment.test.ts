/** The body that a request is for: a constraint like any other, on every transport and in every call that plans. */
import { beforeAll, describe, expect, it } from "vitest";
import { Embodiment } from "../../../gen/limber/v1/registry_pb.ts";
import type { App, Caller } from "../../support/app.ts";
import { bearer, inference, refusalIn } from "../../support/clients.ts";
import { robot } from "../../support/loop-client.ts";
import { type Market, openMarket } from "../../support/market.ts";
import type { Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";

const named = uniqueNames("acme", "any", "quiet", "silent", "wheels");

let market: Market;
let app: App;
let model: Model;
let caller: Caller;

beforeAll(async () => {
  market = await openMarket([
    { provider: named.wheels, model: `${named.acme}/wheels`, embodiments: ["mobile-base"] },
    { provider: named.any, model: `${named.acme}/any`, embodiments: ["agnostic"] },
    { provider: named.silent, model: `${named.acme}/silent` },
  ]);
  ({ app, model, caller } = market);
  await app.sql`insert into model ${app.sql({ slug: `${named.acme}/known`, name: "known", contracts: ["act"], embodiments: ["quadruped"] })}`;
  await app.supply({ provider: named.quiet, model: `${named.acme}/known`, endpoint: model.endpoint });
});

const BODY = { model: "service/auto", action_space: "base_twist_2d", horizon: 2, observations: [{ proprio: [0] }] };
const preview = async (more: object) => {
  const { body } = await app.call("/v1/routes/preview?contract=act", { ...BODY, ...more }, { key: caller.key });
  return body;
};
const planned = async (more: object): Promise<string[]> =>
  (await preview(more)).plan.map((step: { model: string }) => step.model).sort();

describe("embodiment", () => {
  it("admits offerings made for that body or for any; without it all may serve", async () => {
    expect(await planned({})).toEqual([
      `${named.acme}/any`,
      `${named.acme}/known`,
      `${named.acme}/silent`,
      `${named.acme}/wheels`,
    ]);
    expect(await planned({ embodiment: "mobile-base" })).toEqual([`${named.acme}/any`, `${named.acme}/wheels`]);
    expect(await planned({ embodiment: "humanoid" })).toEqual([`${named.acme}/any`]);
  });

  it("comes from the catalog if an offering declares none", async () => {
    expect(await planned({ embodiment: "quadruped" })).toEqual([`${named.acme}/any`, `${named.acme}/known`]);
    const { offerings } = (await app.call(`/v1/models/${named.acme}/known`)).body;
    expect(offerings).toMatchObject([{ embodiments: ["quadruped"] }]);
  });

  it("decides the offering of an act over REST, Connect and gRPC, and whether a loop opens", async () => {
    const more = { embodiment: "mobile-base", provider: { ignore: [named.any] } };
    const { body } = await app.call("/v1/act", { ...BODY, ...more }, { key: caller.key });
    expect(body.route).toMatchObject({
      model: `${named.acme}/wheels`,
      attempts: [{ model: `${named.acme}/wheels`, status: "ok" }],
    });
    const request = {
      model: "service/auto",
      actionSpace: "base_twist_2d",
      horizon: 2,
      observations: [{ proprio: [0] }],
      embodiment: Embodiment.MOBILE_BASE,
      provider: { ignore: [named.any] },
    };
    for (const transport of ["grpc", "connect"] as const)
      expect((await inference(app, transport).act(request, bearer(caller.key))).model).toBe(`${named.acme}/wheels`);
    const { observations, ...open } = request;
    const loop = robot(app, caller.key, open);
    expect((await loop.expect("opened")).route).toMatchObject({ model: `${named.acme}/wheels` });
    loop.leave();
  });

  it("can be set in a preset", async () => {
    const { key } = caller;
    await app.call("/v1/presets/base", { embodiment: "mobile-base" }, { key, method: "PUT" });
    expect(await planned({ preset: "base" })).toEqual([`${named.acme}/any`, `${named.acme}/wheels`]);
    expect(await planned({ preset: "base", embodiment: "quadruped" })).toEqual([
      `${named.acme}/any`,
      `${named.acme}/known`,
    ]);
  });

  it("without a matching model is 409 with every dropped offering and what to relax", async () => {
    const more = { model: `${named.acme}/wheels`, embodiment: "vehicle" };
    const { status, body } = await app.call("/v1/act", { ...BODY, ...more }, { key: caller.key });
    expect([status, body.error.code]).toEqual([409, "no_route_available"]);
    expect(body.error.details).toMatchObject({
      dropped: [{ reason: "embodiment", detail: "is made for mobile-base, not for vehicle", stage: "expand" }],
      excluded_by: ["embodiment"],
      suggestions: [{ field: "embodiment", admits: 1 }],
    });
    const silent = await preview({ model: `${named.acme}/silent`, embodiment: "arm" });
    expect(silent.dropped).toMatchObject([{ detail: "declares no embodiment" }]);
  });

  it("that is unknown is 422 without an upstream call", async () => {
    const before = model.acts.length;
    for (const embodiment of ["mobile_base", "ARM", "", 1, ["arm"]]) {
      const { status, body } = await app.call("/v1/act", { ...BODY, embodiment }, { key: caller.key });
      expect([embodiment, status, body.error.param]).toEqual([embodiment, 422, "embodiment"]);
    }
    const unknown = { model: "service/auto", observations: [{}], embodiment: 99 as Embodiment };
    expect(await refusalIn(inference(app, "grpc").act(unknown, bearer(caller.key)))).toMatchObject({
      code: "InvalidArgument",
      reason: "validation_failed",
    });
    expect(model.acts.length).toBe(before);
  });
});
