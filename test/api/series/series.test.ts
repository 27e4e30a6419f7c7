/** GET /v1/series: figures of calls over time. */
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { beforeAll, describe, expect, it } from "vitest";
import { SeriesDimension } from "../../../gen/limber/v1/series_pb.ts";
import { SeriesService } from "../../../gen/limber/v1/series_service_pb.ts";
import type { App, Caller } from "../../support/app.ts";
import { bearer } from "../../support/clients.ts";
import { eventually } from "../../support/eventually.ts";
import type { Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import { openModel, openWorld } from "../../support/world.ts";

const named = uniqueNames("acme");

let app: App;
let model: Model;
let caller: Caller;
let lab: string;
let inside: string;
const BODY = {
  model: `${named.acme}/base`,
  action_space: "base_twist_2d",
  horizon: 5,
  observations: [{ proprio: [0] }],
};
const act = (key: string, more: object = {}) => app.call("/v1/act", { ...BODY, ...more }, { key });
const series = (key: string, query = "") => app.call(`/v1/series?${query}`, undefined, { key });

beforeAll(async () => {
  [app, model] = await Promise.all([openWorld(), openModel()]);
  await app.supply({ provider: named.acme, model: `${named.acme}/base`, endpoint: model.endpoint });
  caller = await app.caller(10);
  lab = (await app.call(`/v1/orgs/${caller.org}/workspaces`, { name: "lab" }, { key: caller.key })).body.id;
  inside = await app.key(caller.org, { role: "owner", workspace_id: lab });
  for (const robot_id of ["left", "left", "right"]) expect((await act(caller.key, { robot_id })).status).toBe(200);
  expect((await act(inside)).status).toBe(200);
  expect((await act(caller.key, { provider: { max_price_per_action_step: 0 } })).status).toBe(409);
  // A refusal is put on record after it was answered.
  await eventually(async () => expect((await series(caller.key)).body.total.calls).toBe(5));
});

describe("figures over time", () => {
  it("count all answered calls, failures by reason, latency and cost", async () => {
    const { status, body } = await series(caller.key, "step_s=86400");
    expect(status).toBe(200);
    expect(body).toMatchObject({ object: "series", step_s: 86_400, total: { calls: 5, failed: 1, cost_usd: 0.002 } });
    expect(body.total.failures).toEqual({ no_route_available: 1 });
    expect(body.total.latency_p50_ms).toBeGreaterThan(0);
    expect(body.total.latency_p99_ms).toBeGreaterThanOrEqual(body.total.latency_p50_ms);
    expect(body.series).toHaveLength(1);
    expect(body.series[0]).toMatchObject({ name: "", other: false, total: body.total });
    for (const { at } of body.series[0].points) expect(at % 86_400).toBe(0);
  });

  it("are grouped by model, provider, key, workspace, robot and contract", async () => {
    const by = async (dimension: string, more = "") => {
      const { body } = await series(caller.key, `by=${dimension}&${more}`);
      // biome-ignore lint/suspicious/noExplicitAny: the test says what is inside
      return body.series.map((each: any) => [each.other ? "other" : each.name, each.total.calls]);
    };
    expect(await by("model")).toEqual([
      [`${named.acme}/base`, 4],
      ["", 1],
    ]);
    expect(await by("provider")).toEqual([
      [named.acme, 4],
      ["", 1],
    ]);
    expect(await by("workspace")).toEqual([
      ["", 4],
      [lab, 1],
    ]);
    expect(await by("robot")).toEqual([
      ["left", 2],
      ["", 2],
      ["right", 1],
    ]);
    expect(await by("robot", "limit=1")).toEqual([
      ["left", 2],
      ["other", 3],
    ]);
    expect(await by("contract")).toEqual([["act", 5]]);
    expect((await by("key")).length).toBe(2);
    expect(await by("robot", `robot_id=left&model=${named.acme}/base&provider=${named.acme}&contract=act`)).toEqual([
      ["left", 2],
    ]);
    const client = createClient(SeriesService, createGrpcTransport({ baseUrl: app.url }));
    const told = await client.querySeries({ by: SeriesDimension.ROBOT, robotId: "left" }, bearer(caller.key));
    expect(told.series.map(({ name, total }) => [name, total?.calls])).toEqual([["left", 2]]);
  });

  it("are limited to the workspace for workspace keys, and to the organization", async () => {
    expect((await series(inside)).body.total.calls).toBe(1);
    expect((await series(caller.key, `workspace_id=${lab}`)).body.total.calls).toBe(1);
    expect((await series(inside, "workspace_id=ws_other")).body.error.code).toBe("scope_denied");
    const stranger = await app.caller(0);
    const query = `workspace_id=${lab}`;
    expect((await series(stranger.key, query)).body).toMatchObject({ series: [], total: { calls: 0 } });
    const robots = await app.key(caller.org, { role: "supplier" });
    expect((await series(robots)).body.error.code).toBe("permission_denied");
  });

  it("have a bounded number of steps at the stored resolution", async () => {
    const now = Math.floor(Date.now() / 1000);
    const refused = async (query: string, param: string) => {
      const { status, body } = await series(caller.key, query);
      expect([status, body.error?.param], query).toEqual([422, param]);
    };
    await refused(`since=${now}&until=${now - 1}`, "since");
    await refused(`since=${now - 70_000}&step_s=60`, "step_s");
    await refused("step_s=90", "step_s");
    await refused("step_s=59", "step_s");
    await refused(`since=${now - 4 * 86_400}&step_s=1800`, "step_s");
    await refused("since=0&step_s=3600", "step_s");
    await refused("by=colour", "by");
    await refused("limit=21", "limit");
    await refused("since=-1", "since");
    for (const [span, step] of [
      [600, 60],
      [12_000, 60],
      [12_001, 300],
      [86_400, 900],
      [4 * 86_400, 3_600],
      [30 * 86_400, 21_600],
      [300 * 86_400, 86_400],
    ] as const) {
      const { body } = await series(caller.key, `since=${now - span}&until=${now}`);
      expect([span, body.step_s]).toEqual([span, step]);
    }
    expect((await series(caller.key, `since=4289990000&until=4290000000`)).body.total.calls).toBe(0);
  });
});
