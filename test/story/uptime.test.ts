/** What an offering's calls came to, remembered by houses that come after. */
import { beforeAll, expect, it } from "vitest";
import type { App } from "../support/app.ts";
import type { FreshDatabase } from "../support/database.ts";
import type { Model } from "../support/model.ts";
import { openModel, ownDatabase, ownGateway } from "../support/world.ts";

let database: FreshDatabase;
let first: App;
let model: Model;

beforeAll(async () => {
  database = await ownDatabase();
  [first, model] = await Promise.all([ownGateway({ database }), openModel()]);
});

it("shows the measured uptime in the status and judges the advertised one until seven days are measured, also after a restart", async () => {
  const advertised = { p50_ms: 1, p95_ms: 2, uptime_30d: 0.999 };
  await first.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint, advertised });
  const { key } = await first.caller(10);
  const body = { model: "acme/base", action_space: "base_twist_2d", observations: [{ proprio: [0] }] };
  const act = (app: App, provider: object = {}) => app.call("/v1/act", { ...body, provider }, { key });
  const detail = async (app: App) => (await app.call("/v1/models/acme/base")).body.offerings[0];

  for (let i = 0; i < 24; i++) {
    model.script.act = i % 4 === 0 ? (_call, answer) => answer([[Number.NaN]]) : undefined;
    expect((await act(first)).status).toBe(i % 4 === 0 ? 502 : 200);
  }
  expect((await detail(first)).uptime_30d).toBe(0.999);
  expect((await act(first, { min_uptime_30d: 0.9 })).status).toBe(200);
  const measured = (await detail(first)).measured_ms;
  await first.close();

  const second = await ownGateway({ database });
  const { body: status } = await second.call("/v1/status");
  expect(status.providers[0].offerings[0]).toMatchObject({ uptime_5m: 0.76, uptime_1d: 0.76, uptime_30d: 0.76 });
  expect(status.jobs).toEqual({ queued: 0, running: 0, failed_24h: 0 });
  const known = await detail(second);
  expect(known.uptime_30d).toBe(0.999);
  // The sketch's buckets are a fifth wide, and both houses read the same ones.
  expect(known.measured_ms.p50 / measured.p50).toBeGreaterThan(0.6);
  expect(known.measured_ms.p50 / measured.p50).toBeLessThan(1.6);
  for (let i = 0; i < 3; i++) expect((await act(second, { min_uptime_30d: 0.9 })).status).toBe(200);
  const [cache] = [(await second.call("/v1/status")).body.cache];
  expect(cache.entries).toBeGreaterThan(0);
  expect(cache.hit_rate).toBeGreaterThan(0);
});
