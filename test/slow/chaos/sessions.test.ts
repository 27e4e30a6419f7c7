/** Two gateways, as processes, on one database: a session outlives its provider, and then the gateway that served it. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ACT_DECLARATION, ADMIN_TOKEN, type Answer, callRest } from "../../support/app.ts";
import { type FreshDatabase, freshDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { type Gateway, startGateway } from "../../support/gateway.ts";
import { type Model, startModel } from "../../support/model.ts";
import { openNats } from "../../support/nats.ts";

const ways = [
  { over: "the database alone", nats: async () => ({ url: undefined, close: async () => {} }) },
  { over: "NATS", nats: openNats },
];

describe.each(ways)("over $over", ({ nats: reach }) => {
  let database: FreshDatabase;
  let nats: { url: string | undefined; close(): Promise<void> };
  let one: Gateway;
  let two: Gateway;
  let key: string;
  const models: Record<string, Model> = {};

  const start = (): Promise<Gateway> =>
    startGateway({
      LOG_LEVEL: "error",
      DATABASE_URL: database.url,
      ...(nats.url !== undefined && { NATS_URL: nats.url }),
      SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
      LIMBER_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
      LIMBER_ALLOW_PRIVATE_ADDRESSES: "true",
      LIMBER_REFERENCE_SUPPLY: "false",
    });
  const act = (gateway: Gateway, session: string): Promise<Answer> =>
    callRest(
      gateway.url,
      "/v1/act",
      {
        model: "acme/base",
        action_space: "base_twist_2d",
        horizon: 2,
        observations: [{ proprio: [0] }],
        provider: { session_id: session },
      },
      { key },
    );
  const pinOf = async (gateway: Gateway, session: string): Promise<[string, string]> => {
    const { status, body, text } = await act(gateway, session);
    expect([status, status === 200 ? "" : text]).toEqual([200, ""]);
    return [body.route.pin, body.route.provider];
  };

  beforeAll(async () => {
    [database, nats] = await Promise.all([freshDatabase(), reach()]);
    [one, two] = await Promise.all([start(), start()]);
    const admin = (path: string, body: object) => callRest(one.url, path, body, { admin: ADMIN_TOKEN });
    const { id: org } = (await admin("/v1/orgs", { name: "chaos" })).body;
    await admin(`/v1/orgs/${org}/credits`, { amount_usd: 100 });
    ({ key } = (await admin(`/v1/orgs/${org}/keys`, { role: "owner" })).body);
    for (const provider of ["left", "right"]) {
      models[provider] = await startModel();
      await callRest(one.url, "/v1/supply/providers", { name: provider }, { key });
      const declaration = { ...ACT_DECLARATION, model: "acme/base", endpoint: models[provider].endpoint };
      const { body } = await callRest(one.url, `/v1/supply/providers/${provider}/models`, declaration, { key });
      await callRest(one.url, `/v1/supply/offerings/${body.id}/verify`, {}, { key });
    }
    await eventually(async () => expect((await callRest(two.url, "/v1/routes")).body.live.providers.length).toBe(2));
  });
  afterAll(async () => {
    for (const gateway of [one, two]) await gateway?.end("SIGKILL");
    for (const model of Object.values(models)) await model.close();
    await nats.close();
    await database.close();
  });

  it("moves the pin once when the provider dies, reports it, and keeps it when a gateway is killed", async () => {
    const [pin, pinned] = await pinOf(one, "episode");
    expect(pin).toBe("new");
    for (const gateway of [two, one, two]) expect(await pinOf(gateway, "episode")).toEqual(["kept", pinned]);

    await models[pinned]!.close();
    const saved = pinned === "left" ? "right" : "left";
    expect(await pinOf(one, "episode")).toEqual(["moved", saved]);
    for (const gateway of [two, one, two, one]) expect(await pinOf(gateway, "episode")).toEqual(["kept", saved]);
    expect(await pinOf(one, "begun just before")).toEqual(["new", saved]);

    await one.end("SIGKILL");
    expect(await pinOf(two, "episode")).toEqual(["kept", saved]);
    expect(await pinOf(two, "begun just before")).toEqual(["kept", saved]);
    one = await start();
    expect(await pinOf(one, "episode")).toEqual(["kept", saved]);
  });
});
