/** GET /v1/usage. */
import { beforeAll, describe, expect, it } from "vitest";
import type { App, Caller } from "../../support/app.ts";
import type { Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import { openModel, openWorld } from "../../support/world.ts";

const named = uniqueNames("acme");

let app: App;
let model: Model;

beforeAll(async () => {
  [app, model] = await Promise.all([openWorld(), openModel()]);
  await app.supply({ provider: named.acme, model: `${named.acme}/base`, endpoint: model.endpoint });
});

const act = ({ key }: Caller, horizon: number) =>
  app.call(
    "/v1/act",
    { model: `${named.acme}/base`, action_space: "base_twist_2d", horizon, observations: [{ proprio: [0] }] },
    { key },
  );
const usage = ({ key }: Caller, query = "") => app.call(`/v1/usage${query}`, undefined, { key });

describe("200", () => {
  it("lists charges, newest first, with their sum", async () => {
    const caller = await app.caller(1);
    const ids: string[] = [];
    for (const horizon of [1, 2, 3]) ids.unshift((await act(caller, horizon)).headers.get("x-request-id") ?? "");
    await expect.poll(async () => (await usage(caller)).body.data.length).toBe(3);
    const { body } = await usage(caller);
    expect(body).toMatchObject({ object: "list", has_more: false, totals: { requests: 3, cost_usd: 0.0006 } });
    expect(body).not.toHaveProperty("next_cursor");
    expect(body.data.map((row: { request_id: string }) => row.request_id)).toEqual(ids);
    expect(body.data[0]).toEqual({
      id: ids[0]?.replace("req_", "use_"),
      request_id: ids[0],
      created: expect.any(Number),
      contract: "act",
      model: `${named.acme}/base`,
      provider: named.acme,
      units: 3,
      unit: "action_step",
      cost_usd: 0.0003,
      wake_up_usd: 0,
      key_id: expect.stringMatching(/^key_/),
      simulated: false,
      byok: false,
      status: "settled",
    });
  });

  it("pages with a cursor and returns each row once", async () => {
    const caller = await app.caller(1);
    for (let i = 0; i < 7; i++) await act(caller, 1);
    await expect.poll(async () => (await usage(caller)).body.totals.requests).toBe(7);
    const seen: string[] = [];
    let cursor = "";
    for (let pages = 1; ; pages++) {
      const { body } = await usage(caller, `?limit=3${cursor && `&cursor=${encodeURIComponent(cursor)}`}`);
      seen.push(...body.data.map((row: { id: string }) => row.id));
      expect(body.totals.requests).toBe(7);
      if (!body.has_more) {
        expect([pages, body.data.length]).toEqual([3, 1]);
        break;
      }
      cursor = body.next_cursor;
    }
    expect(new Set(seen).size).toBe(7);
    expect([...seen].sort().reverse()).toEqual(seen);
  });

  it("filters by key, workspace, model, provider, contract and time, and sums up the selection", async () => {
    const caller = await app.caller(1);
    const { body: ws } = await app.call(`/v1/orgs/${caller.org}/workspaces`, { name: "w" }, { key: caller.key });
    const inside = { org: caller.org, key: await app.key(caller.org, { workspace_id: ws.id }) };
    const { body: own } = await app.call("/v1/key", undefined, { key: inside.key });
    await act(caller, 1);
    await act(inside, 2);
    await act(inside, 3);
    await expect.poll(async () => (await usage(caller)).body.data.length).toBe(3);
    const found = async (query: string) => {
      const { data, totals } = (await usage(caller, `?${query}`)).body;
      expect(data.length, query).toBe(totals.requests);
      return [totals.requests, totals.cost_usd];
    };
    expect(await found(`key_id=${own.id}`)).toEqual([2, 0.0005]);
    expect(await found(`workspace_id=${ws.id}`)).toEqual([2, 0.0005]);
    expect(await found(`model=${named.acme}/base&contract=act&provider=${named.acme}`)).toEqual([3, 0.0006]);
    expect(await found(`model=${named.acme}/other`)).toEqual([0, 0]);
    expect(await found("contract=predict")).toEqual([0, 0]);
    const soon = Math.floor(Date.now() / 1000) + 100;
    expect(await found(`since=${soon}`)).toEqual([0, 0]);
    expect(await found(`since=0&until=${soon}`)).toEqual([3, 0.0006]);
    expect((await usage(caller)).body.data[0]).toMatchObject({ workspace_id: ws.id, key_id: own.id });
    const stranger = await app.caller(0);
    expect((await usage(stranger, `?key_id=${own.id}`)).body.data).toEqual([]);
  });

  it("excludes other organizations and failed calls", async () => {
    const [caller, stranger] = [await app.caller(1), await app.caller(1)];
    await act(stranger, 1);
    model.script.act = (_call, _answer, { stream }) => stream.close(2);
    expect((await act(caller, 1)).status).toBe(502);
    model.script.act = undefined;
    await expect.poll(async () => (await usage(stranger)).body.data.length).toBe(1);
    expect((await usage(caller)).body).toMatchObject({ data: [], totals: { requests: 0, cost_usd: 0 } });
  });

  it("is readable by every role except supplier", async () => {
    const { org } = await app.caller(0);
    for (const role of ["owner", "admin", "developer", "operator", "billing", "viewer"])
      expect((await usage({ org, key: await app.key(org, { role }) })).status, role).toBe(200);
    expect((await usage({ org, key: await app.key(org, { role: "supplier" }) })).status).toBe(403);
  });
});

describe("422", () => {
  it("accepts only a limit from 1 to 500 and a valid cursor", async () => {
    const caller = await app.caller(0);
    for (const query of [
      "?limit=0",
      "?limit=501",
      "?limit=ten",
      "?limit=1.5",
      "?limit=1&limit=2",
      "?page=2",
      "?contract=fly",
      "?since=-1",
      "?until=tomorrow",
      `?cursor=${"x".repeat(300)}`,
    ]) {
      const { status, body } = await usage(caller, query);
      expect([status, body.detail[0].loc[0]], query).toEqual([422, "query"]);
    }
    expect((await usage(caller, "?limit=500")).status).toBe(200);
    expect((await usage(caller, "?cursor=nonsense")).status).toBeLessThan(500);
    expect((await usage(caller, "?cursor=%00")).status).toBeLessThan(500);
  });
});
