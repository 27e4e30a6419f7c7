/** GET /metrics and GET /v1/platform. */
import { beforeAll, describe, expect, it } from "vitest";
import { ADMIN_TOKEN, type App } from "../../support/app.ts";
import { robot } from "../../support/loop-client.ts";
import type { Model } from "../../support/model.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
let model: Model;
const SCRAPER = "a-scraper's-token-for-tests";

beforeAll(async () => {
  [app, model] = await Promise.all([ownGateway({ metricsToken: SCRAPER }), openModel()]);
  const about = { regions: ["eu"] };
  await app.supply({ provider: "acme", about, model: "acme/base", endpoint: model.endpoint });
  const { key } = await app.caller();
  const act = { model: "acme/base", action_space: "base_twist_2d", horizon: 3, observations: [{ proprio: [0.5, 2] }] };
  for (let i = 0; i < 3; i++) expect((await app.call("/v1/act", act, { key })).status).toBe(200);
  await app.call("/v1/act", { ...act, horizon: 0 }, { key });
});

/** The value of the sample whose labels hold all of these words. */
function sampleOf(text: string, name: string, ...words: string[]): number {
  const line = text
    .split("\n")
    .find((line) => new RegExp(`^${name}[{ ]`).test(line) && words.every((word) => line.includes(word)));
  return Number(line?.split(" ").at(-1));
}

describe("GET /metrics", () => {
  it("reports calls, attempts, breakers, credit leases, loops and the process", async () => {
    const { status, headers, text } = await app.call("/metrics", undefined, { admin: ADMIN_TOKEN });
    expect(status).toBe(200);
    expect(headers.get("content-type")).toMatch(/^text\/plain/);
    expect(sampleOf(text, "limber_calls_total", 'rpc="limber.v1.InferenceService/Act"', 'status="200"')).toBe(3);
    expect(sampleOf(text, "limber_calls_total", 'rpc="limber.v1.InferenceService/Act"', 'status="422"')).toBe(1);
    expect(sampleOf(text, "limber_attempts_total", 'provider="acme"', 'outcome="succeeded"')).toBeGreaterThanOrEqual(3);
    expect(sampleOf(text, "limber_attempts_total", 'provider="acme"', 'outcome="failed"')).toBe(0);
    expect(sampleOf(text, "limber_breaker_state", 'model="acme/base"', 'state="closed"')).toBe(1);
    expect(sampleOf(text, "limber_credit_leases")).toBe(1);
    expect(sampleOf(text, "limber_credit_leased_usd", 'state="idle"')).toBeGreaterThan(0);
    expect(sampleOf(text, "limber_loops_open")).toBe(0);
    expect(sampleOf(text, "limber_nodejs_eventloop_lag_p99_seconds")).toBeGreaterThanOrEqual(0);
    expect(sampleOf(text, "limber_process_resident_memory_bytes")).toBeGreaterThan(0);
  });

  it("reports control loops by offering and session", async () => {
    const { key } = await app.caller();
    const provider = { sessionId: "measured" };
    const loop = robot(app, key, { model: "acme/base", actionSpace: "base_twist_2d", horizon: 3, provider });
    await loop.expect("opened");
    for (let step = 1; step <= 3; step++) {
      loop.observe(step);
      await loop.expect("chunk");
    }
    loop.observe(4, { observations: [{ proprio: [1, 2, 3] }] });
    await loop.expect("hold");
    const { text } = await app.call("/metrics", undefined, { key: SCRAPER });
    expect(sampleOf(text, "limber_loops_open")).toBe(1);
    expect(sampleOf(text, "limber_loop_chunks_total", "offering=")).toBe(3);
    expect(sampleOf(text, "limber_loop_holds_total", "offering=")).toBe(1);
    expect(sampleOf(text, "limber_loop_missed_total", "offering=")).toBe(0);
    for (const series of ["limber_loop", "limber_session"]) {
      const label = series === "limber_loop" ? "offering=" : 'stream="req_';
      expect(sampleOf(text, `${series}_effective_hz`, label)).toBeGreaterThan(0);
      expect(sampleOf(text, `${series}_stale_ratio`, label)).toBe(0);
      expect(sampleOf(text, `${series}_jitter_seconds`, label)).toBeGreaterThanOrEqual(0);
    }
    expect(sampleOf(text, "limber_session_missed", "session=")).toBe(0);
    expect(text).not.toContain("measured");
    loop.halfClose();
    await loop.rest();
    const after = (await app.call("/metrics", undefined, { key: SCRAPER })).text;
    expect(sampleOf(after, "limber_loops_open")).toBe(0);
    expect(sampleOf(after, "limber_session_missed", "session=")).toBeNaN();
    expect(sampleOf(after, "limber_loop_chunks_total", "offering=")).toBe(3);
  });

  it("counts events, independent of scrapes", async () => {
    const read = async () => (await app.call("/metrics", undefined, { key: SCRAPER })).text;
    const before = sampleOf(await read(), "limber_calls_total", "InferenceService/Act", 'status="200"');
    expect(sampleOf(await read(), "limber_calls_total", "InferenceService/Act", 'status="200"')).toBe(before);
  });

  it("requires the admin or the metrics token", async () => {
    const { key } = await app.caller(0);
    expect((await app.call("/metrics", undefined, { key: SCRAPER })).status).toBe(200);
    expect((await app.call("/metrics")).body.error.code).toBe("admin_token_required");
    for (const options of [{ key }, { admin: "another-token-of-nobody" }, { admin: SCRAPER }])
      expect((await app.call("/metrics", undefined, options)).body.error.code).toBe("invalid_admin_token");
  });
});

describe("GET /v1/platform", () => {
  it("shows without a key the number of replicas, their start, and the contracts served", async () => {
    const { status, body } = await app.call("/v1/platform");
    expect(status).toBe(200);
    expect(body).toMatchObject({
      replicas: 1,
      uptime_s: expect.any(Number),
      features: { broadcast: true, events_nats: false, payments: false },
      limits: { batch_items: 1000, evaluation_episodes: 10_000 },
      regions: ["eu"],
    });
    const second = await ownGateway({ database: app.database });
    expect((await app.call("/v1/platform")).body.replicas).toBe(2);
    await second.close();
  });
});
