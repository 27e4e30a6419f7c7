/** What two houses know of each other's routing: pins, measured figures, breakers, an operator's hand. */
import { fromBinary } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Event, EventSchema } from "../../gen/limber/v1/event_pb.ts";
import type { App } from "../support/app.ts";
import type { FreshDatabase } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import type { Model } from "../support/model.ts";
import { openNats } from "../support/nats.ts";
import { openModel, ownDatabase, ownGateway } from "../support/world.ts";

const ways = [
  { over: "the database alone", nats: async () => ({ url: undefined, close: async () => {} }) },
  { over: "NATS", nats: openNats },
];

let next = 0;

describe.each(ways)("two replicas over $over", ({ nats: reach }) => {
  let database: FreshDatabase;
  let nats: { url: string | undefined; close(): Promise<void> };
  let one: App;
  let two: App;
  const models: Record<string, Model> = {};
  const offerings: Record<string, string> = {};

  const open = (): Promise<App> => ownGateway({ database, natsUrl: nats.url });
  const act = (app: App, key: string, session?: string, more: object = {}) =>
    app.call(
      "/v1/act",
      {
        model: "acme/base",
        action_space: "base_twist_2d",
        horizon: 5,
        observations: [{ proprio: [0] }],
        ...more,
        provider: {
          ...(session !== undefined && { session_id: session }),
          ...(more as { provider?: object }).provider,
        },
      },
      { key },
    );
  const pinOf = async (app: App, key: string, session: string): Promise<[string, string]> => {
    const { status, body } = await act(app, key, session);
    expect(status).toBe(200);
    return [body.route.pin, body.route.provider];
  };
  /**
   * A pin waits a quarter of a second for the database, and no call longer than that: on a machine that is slower for once, what a replica
   * knows by itself holds. So the tale is told of another session then.
   */
  const inAnEpisode = (tale: (session: string) => Promise<void>): Promise<void> =>
    eventually(
      async () => {
        for (const model of Object.values(models)) model.script.act = undefined;
        await tale(`episode ${next++}`);
      },
      { timeout: 60_000 },
    );
  const events = async (name: string): Promise<Event[]> => {
    const rows = await database.sql<
      { payload: Buffer }[]
    >`select payload from outbox where name = ${name} order by position`;
    return rows.map(({ payload }) => fromBinary(EventSchema, payload));
  };
  const die = (model: Model): void => {
    model.script.act = (_call, _answer, { stream }) => stream.close(2);
  };
  const statusOf = async (app: App, id: string | undefined) =>
    (await app.call("/v1/status")).body.providers
      .flatMap((provider: { offerings: { offering_id: string }[] }) => provider.offerings)
      .find((offering: { offering_id: string }) => offering.offering_id === id);

  beforeAll(async () => {
    [database, nats] = await Promise.all([ownDatabase(), reach()]);
    [one, two] = await Promise.all([open(), open()]);
    for (const provider of ["left", "right"]) {
      models[provider] = await openModel();
      const facts = { model: "acme/base", endpoint: models[provider].endpoint };
      offerings[provider] = await one.supply({ provider, ...facts });
    }
    const { key } = await two.caller();
    await eventually(async () => expect((await act(two, key)).status).toBe(200));
  });
  afterAll(async () => {
    for (const model of Object.values(models)) await model.close();
    await two.gateway.close(0);
    await one.gateway.close(0);
    await nats.close();
  });

  it("keep a session with its first provider on both; a death moves it once, reported once", async () => {
    const { key } = await one.caller();
    await inAnEpisode(async (episode) => {
      const [pin, pinned] = await pinOf(one, key, episode);
      expect(pin).toBe("new");
      for (const app of [two, one, two, one]) expect(await pinOf(app, key, episode)).toEqual(["kept", pinned]);

      die(models[pinned]!);
      const saved = pinned === "left" ? "right" : "left";
      expect(await pinOf(one, key, episode)).toEqual(["moved", saved]);
      for (const app of [two, one, two, one]) expect(await pinOf(app, key, episode)).toEqual(["kept", saved]);
      models[pinned]!.script.act = undefined;
      for (const app of [two, one]) expect(await pinOf(app, key, episode)).toEqual(["kept", saved]);

      const lost = (await events("session.pin_lost")).map(({ data }) => data.value as { sessionId: string });
      expect(lost.filter(({ sessionId }) => sessionId === episode)).toMatchObject([
        { fromProvider: pinned, provider: saved, model: "acme/base" },
      ]);
      // The other one may have heard of the move a moment late and tried the dead one too.
      await expect.poll(async () => (await events("route.fallback_used")).length).toBeGreaterThan(0);
      for (const { data } of (await events("route.fallback_used")).slice(-1))
        expect(data.value).toMatchObject({
          provider: saved,
          offeringId: offerings[saved],
          failedOfferingIds: [offerings[pinned]],
        });
    });
  });

  it("keep a session of the other replica after its death", async () => {
    const { key } = await one.caller();
    await inAnEpisode(async (orphan) => {
      const third = await open();
      const [, pinned] = await pinOf(third, key, orphan).finally(() => third.gateway.close(0));
      for (const app of [one, two]) expect(await pinOf(app, key, orphan)).toEqual(["kept", pinned]);
      const late = await open();
      const kept = await pinOf(late, key, orphan).finally(() => late.gateway.close(0));
      expect(kept).toEqual(["kept", pinned]);
    });
  });

  it("keep two organizations' sessions of one name apart", async () => {
    const [mine, theirs] = [await one.caller(), await one.caller()];
    expect((await pinOf(one, mine.key, "same"))[0]).toBe("new");
    expect((await pinOf(two, theirs.key, "same"))[0]).toBe("new");
  });

  it("let a pin change the order, but never override a constraint", async () => {
    const { key } = await one.caller();
    await inAnEpisode(async (bound) => {
      const [, pinned] = await pinOf(one, key, bound);
      const other = pinned === "left" ? "right" : "left";
      const { body } = await act(two, key, bound, { provider: { only: [other] } });
      expect([body.route.provider, body.route.pin]).toEqual([other, "moved"]);
      await eventually(async () => expect(await pinOf(one, key, bound)).toEqual(["kept", other]));
    });
  });

  it("receive each other's measurements", async () => {
    const model = await openModel();
    await one.supply({ provider: "measured", model: "measured/base", endpoint: model.endpoint });
    const { key } = await one.caller();
    for (let i = 0; i < 10; i++) expect((await act(one, key, undefined, { model: "measured/base" })).status).toBe(200);
    await eventually(async () => {
      const { body } = await two.call("/v1/models/measured/base");
      expect(body.offerings?.[0].measured_ms.p50).toBeGreaterThan(0);
    });
    await model.close();
  });

  it("open a breaker sooner after failures elsewhere, but only with one of their own; and report it once", async () => {
    const model = await openModel();
    const id = await one.supply({ provider: "frail", model: "frail/base", endpoint: model.endpoint });
    const { key } = await one.caller();
    const frail = (app: App) => act(app, key, undefined, { model: "frail/base" });
    await expect.poll(async () => (await frail(two)).status).toBe(200);
    die(model);
    for (let i = 0; i < 5; i++) expect((await frail(one)).status).toBe(502);
    expect((await frail(one)).status).toBe(503);
    expect(await statusOf(one, id)).toMatchObject({ state: "open", consecutive_failures: 5 });
    // All five of the one, of six with the success of the other.
    await eventually(async () => expect((await statusOf(two, id)).failure_rate_5m).toBeGreaterThan(0.8));
    expect(await statusOf(two, id)).toMatchObject({ state: "closed" });
    expect((await frail(two)).status).toBe(502);
    expect(await statusOf(two, id)).toMatchObject({ state: "open" });
    expect((await frail(two)).status).toBe(503);
    await expect
      .poll(async () => (await events("offering.circuit_opened")).map(({ data }) => data.value))
      .toMatchObject([{ offeringId: id, model: "frail/base", provider: "frail" }]);
    await model.close();
  });

  it("apply an operator's breaker override, also if they start later, and record it", async () => {
    const id = offerings.left!;
    const { key } = await one.caller();
    const only = { provider: { only: ["left"] } };
    const force = (state: string) => one.admin(`/v1/status/offerings/${id}/circuit`, { state, reason: "recall" });
    expect(await force("forced_open")).toEqual({ offering_id: id, state: "forced_open" });
    for (const app of [one, two]) {
      await expect.poll(async () => (await statusOf(app, id)).state).toBe("forced_open");
      const refused = await act(app, key, undefined, only);
      expect([refused.status, refused.body.error.code]).toEqual([503, "capacity_exhausted"]);
      expect((await act(app, key)).body.route.provider).toBe("right");
    }
    const late = await open();
    expect((await statusOf(late, id)).state).toBe("forced_open");
    await late.gateway.close(0);
    await force("closed");
    for (const app of [one, two])
      await expect.poll(async () => (await act(app, key, undefined, only)).status).toBe(200);
    const [record] =
      await database.sql`select action, subject, details from audit where action = 'offering.circuit_forced' order by seq limit 1`;
    expect(record).toMatchObject({ subject: id, details: { state: "open", reason: "recall" } });
  });
});
