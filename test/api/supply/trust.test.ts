/** Whose supply serves whom: strangers' offerings reach nobody who did not ask for them, on any contract, by any road. */
import { beforeAll, describe, expect, it } from "vitest";
import { ACT_DECLARATION, ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import { signedIn } from "../../support/browser.ts";
import { eventually } from "../../support/eventually.ts";
import { person } from "../../support/members.ts";
import type { Model } from "../../support/model.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
let model: Model;
let stranger: Caller;
let robot: Caller;

beforeAll(async () => {
  [app, model] = await Promise.all([ownGateway(), openModel()]);
  stranger = await app.caller(0, { role: "supplier" });
  robot = await app.caller(10);
  await app.supply({ provider: "trusted", model: "good/drive", endpoint: model.endpoint, price_per_action_step: 0.01 });
  await offer("cheap", "toy/drive");
  await offer("copycat", "good/drive");
});

/** A stranger's live offering, cheaper than all others. */
async function offer(provider: string, name: string): Promise<void> {
  const { key } = stranger;
  await app.call("/v1/supply/providers", { name: provider }, { key });
  const body = { ...ACT_DECLARATION, model: name, endpoint: model.endpoint, price_per_action_step: 0.00001 };
  const { id } = (await app.call(`/v1/supply/providers/${provider}/models`, body, { key })).body;
  const { offering } = (await app.call(`/v1/supply/offerings/${id}/verify`, {}, { key })).body;
  expect(offering.status).toBe("live");
}

const ACT = { action_space: "base_twist_2d", horizon: 2, observations: [{ proprio: [0] }] };
const act = async (name: string, provider: object = {}, key = robot.key) => {
  const { status, body } = await app.call("/v1/act", { model: name, ...ACT, provider }, { key });
  return status === 200 ? body.route.provider : body.error;
};
const settle = (trust: string, key = robot.key) =>
  app.call(`/v1/orgs/${robot.org}/settings`, { trust }, { key, method: "PATCH" });
const review = (provider: string, standing: string, note = "looked at") =>
  app.admin(`/v1/supply/providers/${provider}/review`, { standing, note });

describe("a caller who named nobody", () => {
  it("is served only by own and verified supply, whatever others cost", async () => {
    for (const alias of ["service/auto", "service/cheapest", "service/auto:floor"])
      expect(await act(alias)).toBe("trusted");
    const { body } = await app.call(
      "/v1/routes/preview?contract=act",
      { model: "service/cheapest", ...ACT },
      { key: robot.key },
    );
    expect(body.plan.map(({ provider, trust }: Record<string, string>) => [provider, trust])).toEqual([
      ["trusted", "verified"],
    ]);
    expect(body.dropped).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ provider: "cheap", reason: "trust" }),
        expect.objectContaining({ provider: "copycat", reason: "trust" }),
      ]),
    );
  });

  it("is served by its own supply", async () => {
    const own = await app.key(stranger.org, { role: "owner" });
    await app.admin(`/v1/orgs/${stranger.org}/credits`, { amount_usd: 1 });
    expect(await act("service/cheapest", {}, own)).toMatch(/^(cheap|copycat)$/);
  });
});

describe("a caller who names", () => {
  it("a model gets it from the organization that owns the name, and from no other unverified one", async () => {
    expect(await act("toy/drive")).toBe("cheap");
    expect(await act("good/drive")).toBe("trusted");
    expect(await act("good/drive", { ignore: ["trusted"] })).toMatchObject({ code: "no_route_available" });
  });

  it("a provider gets it", async () => {
    expect(await act("good/drive", { only: ["copycat"] })).toBe("copycat");
    expect(await act("service/cheapest", { order: ["cheap"] })).toBe("cheap");
  });

  it("a narrower tier is limited to it", async () => {
    expect(await act("toy/drive", { trust: "verified" })).toMatchObject({ code: "no_route_available" });
    expect(await act("service/auto", { trust: "own" })).toMatchObject({
      code: "no_route_available",
      details: { excluded_by: expect.arrayContaining(["trust"]) },
    });
  });
});

describe("community supply", () => {
  it("needs both the settings and the request", async () => {
    const owner = await app.key(robot.org, { role: "owner" });
    expect(await act("service/cheapest", { trust: "community" })).toBe("trusted");
    expect((await settle("community", owner)).body).toMatchObject({ trust: "community" });
    expect(await act("service/cheapest")).toBe("trusted");
    expect(await act("service/cheapest", { trust: "community" })).toMatch(/^(cheap|copycat)$/);
    const verified = await app.key(robot.org, { trust: "verified" });
    expect(await act("service/cheapest", { trust: "community" }, verified)).toBe("trusted");
    expect(await act("toy/drive", {}, verified)).toMatchObject({ code: "no_route_available" });
    const hardware = await app.key(robot.org, { environment: "hardware" });
    expect(await act("toy/drive", {}, hardware)).toMatchObject({ code: "no_route_available" });
    const daring = await app.key(robot.org, { environment: "hardware", trust: "community" });
    expect(await act("service/cheapest", { trust: "community" }, daring)).toMatch(/^(cheap|copycat)$/);
    const careful = { provider: { trust: "verified" } };
    const saved = await app.call("/v1/presets/careful", careful, { key: owner, method: "PUT" });
    expect(saved.status).toBeLessThan(300);
    const { body } = await app.call(
      "/v1/act",
      { model: "service/cheapest", preset: "careful", ...ACT, provider: { trust: "community" } },
      { key: robot.key },
    );
    expect(body.route.provider).toBe("trusted");
    expect((await settle("named", owner)).body.trust).toBe("named");
  });

  it("is not available to a key that excludes it", async () => {
    const shut = await app.key(robot.org, { role: "owner", trust: "verified" });
    expect(await settle("community", shut)).toMatchObject({
      status: 403,
      body: { error: { details: { exceeds: ["trust"] } } },
    });
    const wider = await app.call(`/v1/orgs/${robot.org}/keys`, { trust: "community" }, { key: shut });
    expect(wider).toMatchObject({ status: 403, body: { error: { details: { exceeds: ["trust"] } } } });
    const made = (await app.call(`/v1/orgs/${robot.org}/keys`, {}, { key: shut })).body;
    expect(made.trust).toBe("verified");
    const hardware = await app.key(robot.org, { role: "owner", environment: "hardware" });
    const simulating = (await app.call(`/v1/orgs/${robot.org}/keys`, { environment: "simulation" }, { key: hardware }))
      .body;
    expect(simulating).toMatchObject({ environment: "simulation", trust: "verified" });
  });
});

describe("a key that a person makes at the console without a word about it", () => {
  it("gets no community supply when it drives hardware, unless it allows it explicitly", async () => {
    const { userId } = await person(app, robot.org, "owner");
    const browser = await signedIn(app, robot.org, userId);
    const keys = `/v1/orgs/${robot.org}/keys`;
    const { body: made } = await browser.call(keys, { role: "owner" });
    expect([made.environment, made.trust ?? null]).toEqual(["simulation", null]);
    const asked = (): ReturnType<typeof act> => act("service/cheapest", { trust: "community" }, made.key);
    const change = async (body: object): Promise<void> => {
      const { status, text } = await app.call(`${keys}/${made.id}`, body, { admin: ADMIN_TOKEN, method: "PATCH" });
      expect([status, text]).toEqual([200, expect.anything()]);
    };
    await settle("community");
    expect(await asked()).toMatch(/^(cheap|copycat)$/);
    await change({ environment: "hardware" });
    await eventually(async () => expect(await asked()).toBe("trusted"));
    await change({ trust: "community" });
    await eventually(async () => expect(await asked()).toMatch(/^(cheap|copycat)$/));
    await settle("named");
  });
});

describe("the operator", () => {
  it("can verify, reject and undo, with a note, an event and a record", async () => {
    expect(await review("cheap", "verified", "met them")).toMatchObject({
      standing: "verified",
      standing_note: "met them",
    });
    expect(await act("service/cheapest")).toBe("cheap");
    expect(await review("cheap", "rejected", "it drove ahead")).toMatchObject({ standing: "rejected" });
    expect(await act("service/cheapest")).toBe("trusted");
    expect(await act("toy/drive", { only: ["cheap"] })).toMatchObject({ code: "no_route_available" });
    expect(await review("cheap", "community", "undecided")).toMatchObject({ standing: "community" });
    expect(await act("toy/drive")).toBe("cheap");
    const told = await app.sql`select from outbox where name = 'provider.reviewed' and org_id = ${stranger.org}`;
    expect(told).toHaveLength(3);
    const records = await app.sql`
      select details from audit where action = 'provider.reviewed' and org_id = ${stranger.org} order by seq`;
    expect(records.map(({ details }) => details.standing)).toEqual(["verified", "rejected", "community"]);
    const { key } = stranger;
    const other = await app.call("/v1/supply/providers/cheap/review", { standing: "verified", note: "me" }, { key });
    expect(other.status).toBe(401);
  });

  it("can assign a name to an organization and take it away", async () => {
    const give = (org_id?: string) =>
      app.call("/v1/supply/owners/good", org_id === undefined ? { nobody: true } : { org_id }, {
        admin: ADMIN_TOKEN,
        method: "PUT",
      });
    expect((await give(stranger.org)).body).toEqual({ owner: "good", org_id: stranger.org });
    expect(await act("good/drive", { ignore: ["trusted"] })).toBe("copycat");
    expect((await give("org_unknown")).status).toBe(404);
    expect((await give()).body).toEqual({ owner: "good" });
    expect(await act("good/drive", { ignore: ["trusted"] })).toMatchObject({ code: "no_route_available" });
  });
});
