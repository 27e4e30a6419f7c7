/** GET /v1/models and GET /v1/models/{owner}/{name} over the real catalog. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { importCatalog } from "../../../src/store/supply/catalog.ts";
import { ACT_DECLARATION, type Answer, type App, type Caller } from "../../support/app.ts";
import type { FreshDatabase } from "../../support/database.ts";
import type { Model } from "../../support/model.ts";
import { openModel, ownDatabase, ownGateway } from "../../support/world.ts";

const DATA = join(import.meta.dirname, "..", "..", "..", "data");
type Row = Record<string, string & string[]>;
const ROWS: readonly Row[] = readFileSync(join(DATA, "models.jsonl"), "utf8")
  .trimEnd()
  .split("\n")
  .map((line) => JSON.parse(line));

/** Catalogued for act in ee_delta_6d_grip; served by nobody until a test does. */
const OPENVLA = "openvla/openvla-7b";

let database: FreshDatabase;
let app: App;
let caller: Caller;
let model: Model;
beforeAll(async () => {
  database = await ownDatabase();
  await importCatalog(database.sql, DATA);
  app = await ownGateway({ database });
  caller = await app.caller(10);
  model = await openModel();
});

const list = (query: object = {}): Promise<Answer> =>
  app.call(`/v1/models?${new URLSearchParams(query as Record<string, string>)}`);
const idsOf = ({ body }: Answer): string[] => body.data.map(({ id }: { id: string }) => id);
const violationOf = ({ status, body }: Answer) => [status, body.error.code, body.error.details.violations[0]];

describe("200", () => {
  it("lists the whole catalog in one page, by slug, without a key", async () => {
    const { status, body } = await list({ limit: 1000 });
    expect(status).toBe(200);
    expect(body).toMatchObject({ object: "list", total: ROWS.length, limit: 1000, offset: 0 });
    const rest = await list({ limit: 1000, offset: 1000 });
    expect(idsOf({ ...rest, body: { data: [...body.data, ...rest.body.data] } })).toEqual(
      ROWS.map(({ slug }) => slug as string).sort(),
    );
  });

  it("returns 100 from offset 0 by default, and nothing past the end", async () => {
    const all = idsOf(await list({ limit: 1000 }));
    const first = await list();
    expect(first.body).toMatchObject({ limit: 100, offset: 0, total: ROWS.length });
    expect(idsOf(first)).toEqual(all.slice(0, 100));
    expect(idsOf(await list({ limit: 1, offset: 7 }))).toEqual(all.slice(7, 8));
    expect((await list({ offset: 4_000_000_000 })).body).toMatchObject({ data: [], total: ROWS.length });
  });

  it("shows a model's facts and omits unknown ones", async () => {
    const [row] = ROWS.filter(({ slug }) => slug === "2toinf/x-vla");
    const { slug, owner, servable_candidate, ...facts } = row!;
    const { body } = await app.call(`/v1/models/${slug}`);
    expect(body).toEqual({
      id: slug,
      object: "model",
      vendor: owner,
      limits: "",
      featured: false,
      providers: [],
      servable_candidate,
      ...facts,
      offerings: [],
    });
    const [plain] = (await list({ q: "omnid" })).body.data;
    for (const unknown of ["params_b", "license", "weights", "offerings"]) expect(plain).not.toHaveProperty(unknown);
  });
});

describe("each filter leaves exactly the rows that bear its value", () => {
  const CASES: readonly [string, string, (row: Row) => boolean][] = [
    ...["embodied", "driving", "game", "science", "general"].map(
      (word) => ["domain", word, (row: Row) => row.domain === word] as [string, string, (row: Row) => boolean],
    ),
    ["family", "vla", ({ family }) => family === "vla"],
    ["family", "vision-3d", ({ family }) => family === "vision-3d"],
    ["tier", "integration", ({ tier }) => tier === "integration"],
    ["tier", "catalog", ({ tier }) => tier === "catalog"],
    ["contract", "act", ({ contracts }) => contracts!.includes("act")],
    ["contract", "predict", ({ contracts }) => contracts!.includes("predict")],
    ["contract", "evaluate", ({ contracts }) => contracts!.includes("evaluate")],
    ["contract", "ground", ({ contracts }) => contracts!.includes("ground")],
    ...["arm", "humanoid", "quadruped", "mobile-base", "vehicle", "virtual-agent", "agnostic", "none"].map(
      (word) =>
        ["embodiment", word, (row: Row) => row.embodiments!.includes(word)] as [string, string, (row: Row) => boolean],
    ),
    ["action_space", "joint_pos_14", (row) => row.action_spaces!.includes("joint_pos_14")],
    ["era", "classic", ({ era }) => era === "classic"],
    ["era", "current", ({ era }) => era === "current"],
    ["kind", "world-model", ({ kind }) => kind === "world-model"],
    ["kind", "policy", ({ kind }) => kind === "policy"],
    ["kind", "reasoning", ({ kind }) => kind === "reasoning"],
    ["featured", "false", () => true],
    ["featured", "true", () => false],
  ];

  it.each(CASES)("%s=%s", async (filter, value, holds) => {
    const expected = ROWS.filter(holds).map(({ slug }) => slug as string);
    const answer = await list({ [filter]: value, limit: 1000 });
    expect(answer.body.total).toBe(expected.length);
    expect(idsOf(answer)).toEqual(expected.sort().slice(0, 1000));
  });

  it("applies all of them together with a search", async () => {
    const query = { domain: "embodied", kind: "policy", contract: "act", embodiment: "arm", q: "diffusion policy" };
    const answer = await list({ ...query, limit: 1000 });
    expect(answer.body.total).toBeGreaterThan(0);
    for (const found of answer.body.data) {
      expect(found).toMatchObject({ domain: "embodied", kind: "policy" });
      expect([found.contracts, found.embodiments]).toEqual([
        expect.arrayContaining(["act"]),
        expect.arrayContaining(["arm"]),
      ]);
    }
    expect((await list({ ...query, domain: "driving" })).body.total).toBeLessThan(answer.body.total);
  });
});

describe("q", () => {
  it.each([
    ["openvla", OPENVLA],
    ["opnvla", OPENVLA],
    ["OpenVLA team", OPENVLA],
    ["physical inteligence pi0", "physical-intelligence/pi0"],
    ["gr00t n1.5", "nvidia/gr00t-n1.5"],
    ["Qen-VLA", "alibaba-qwen/qwen-vla"],
    ["cosms polcy", "nvidia/cosmos-policy"],
  ])("%s finds %s first", async (q, id) => expect(idsOf(await list({ q }))[0]).toBe(id));

  it("counts all matches, and an empty search matches everything", async () => {
    const { body } = await list({ q: "world model", limit: 2 });
    expect([body.data.length, body.total > 2]).toEqual([2, true]);
    expect((await list({ q: " " })).body.total).toBe(ROWS.length);
    expect((await list({ q: "zzzzqqqq" })).body).toMatchObject({ data: [], total: 0 });
  });
});

describe("422", () => {
  it.each([
    ["domain", "space", "must be one of embodied, driving, game, science, general"],
    ["tier", "live", "must be one of servable, integration, catalog"],
    ["contract", "unspecified", "must be one of act, predict, ground, evaluate"],
    [
      "embodiment",
      "mobile_base",
      "must be one of arm, humanoid, quadruped, mobile-base, vehicle, virtual-agent, agnostic, none",
    ],
    ["era", "Classic", "must be one of current, classic"],
    ["kind", "world_model", "must be one of world-model, policy, reasoning"],
    ["action_space", "joint_pos_8", expect.stringContaining("must be one of base_twist_2d, continuous_nd")],
    ["family", "vlaa", expect.stringMatching(/^must be one of .*\bvla\b/)],
    ["featured", "yes", "must be true or false"],
  ])("%s=%s, listing the valid values", async (path, value, message) => {
    expect(violationOf(await list({ [path]: value }))).toEqual([
      422,
      "validation_failed",
      expect.objectContaining({ path, message }),
    ]);
  });

  it.each([
    ["limit", "0"],
    ["limit", "1001"],
    ["limit", "-1"],
    ["limit", "1.5"],
    ["limit", "many"],
    ["offset", "-1"],
    ["offset", "1e10"],
    ["q", "x".repeat(257)],
    ["colour", "red"],
  ])("%s=%s", async (name, value) => {
    const answer = await list({ [name]: value });
    expect([answer.status, answer.body.error.code]).toEqual([422, "validation_failed"]);
    expect(answer.body.detail[0].loc).toEqual(["query", name]);
  });

  it("is returned for a duplicate filter", async () => {
    expect((await app.call("/v1/models?era=current&era=classic")).status).toBe(422);
  });
});

describe("404", () => {
  it("suggests similar slugs", async () => {
    const { status, body } = await app.call("/v1/models/openvla/openvla-7");
    expect([status, body.error.code]).toEqual([404, "model_not_found"]);
    expect(body.error.details.near).toContain(OPENVLA);
    expect((await app.call("/v1/models/zzzzzzzz/yyyyyyyy")).body.error.details).not.toHaveProperty("near.0");
  });

  it("is returned for scenarios and literature, which are never routed to", async () => {
    const [scenario] = (await app.call("/v1/scenarios?limit=1")).body.data;
    expect((await app.call(`/v1/models/${scenario.id}`)).status).toBe(404);
    expect((await act(scenario.id)).body.error.code).toBe("model_not_found");
    const [piece] = (await app.call("/v1/literature?limit=1")).body.data;
    expect((await act(piece.id)).body.error.code).toBe("model_not_found");
  });
});

const act = (slug: string, provider: object = {}): Promise<Answer> =>
  app.call("/v1/act", { model: slug, horizon: 2, observations: [{ proprio: [0] }], provider }, { key: caller.key });

describe("supply", () => {
  it("returns 409 no_live_deployment for a catalog model without supply, and placeholders on request", async () => {
    const { status, body } = await act(OPENVLA);
    expect([status, body.error.code]).toEqual([409, "no_live_deployment"]);
    const simulated = await act(OPENVLA, { allow_simulated: true });
    expect([simulated.status, simulated.body.route.simulated]).toEqual([200, true]);
  });

  it("makes a model servable while it is live, with price and performance", async () => {
    const before = await app.call(`/v1/models/${OPENVLA}`);
    expect(before.body).toMatchObject({ tier: "integration", offerings: [], providers: [] });

    const id = await app.supply({
      provider: "acme",
      about: { data_collection: "deny" },
      model: OPENVLA,
      endpoint: model.endpoint,
      action_spaces: ["ee_delta_6d_grip"],
      hardware: "A100-40GB",
      region: "eu",
      precision: "bf16",
      price_per_action_step: 0.0002,
      advertised: { p50_ms: 40, p95_ms: 90, uptime_30d: 0.98 },
      cost_usd_per_second: 0.001,
      cold_timeout_s: 16,
      scaledown_s: 3600,
      parameters: ["seed"],
    });
    expect((await list({ tier: "servable" })).body.data).toMatchObject([{ id: OPENVLA, providers: ["acme"] }]);
    const cold = (await app.call(`/v1/models/${OPENVLA}`)).body;
    expect(cold).toMatchObject({ tier: "servable", vendor: "OpenVLA team", providers: ["acme"] });
    expect(cold.offerings).toEqual([
      {
        id,
        provider: "acme",
        status: "live",
        circuit: "closed",
        runtime: "limber-policy",
        region: "eu",
        precision: "bf16",
        hardware: "A100-40GB",
        contracts: ["act"],
        action_spaces: ["ee_delta_6d_grip"],
        embodiments: ["arm"], // the catalog's, as the offering says none
        // Waking costs 16 s of 0.001 dollars, which a call of 16 steps bears.
        prices: [{ contract: "act", unit: "action_step", list_usd: 0.0002, now_usd: 0.0012 }],
        wake_up_usd: 0.016,
        cold: true,
        advertised_ms: { p50: 40, p95: 90 },
        measured_ms: {},
        uptime_30d: 0.98,
        uptime_measured: false,
        max_horizon: 256,
        dt_ms: ACT_DECLARATION.dt_ms,
        parameters: ["seed"],
        data_collection: "deny",
      },
    ]);

    expect((await act(OPENVLA, { deadline_ms: 60_000 })).status).toBe(200);
    const [warm] = (await app.call(`/v1/models/${OPENVLA}`)).body.offerings;
    expect(warm).toMatchObject({ cold: false, wake_up_usd: 0, prices: [{ list_usd: 0.0002, now_usd: 0.0002 }] });
    expect((await act(OPENVLA)).status).toBe(200);
    const [{ measured_ms }] = (await app.call(`/v1/models/${OPENVLA}`)).body.offerings;
    for (const quantile of ["p50", "p95", "p99"]) expect(measured_ms[quantile]).toBeGreaterThan(0);

    // What its last probe failed at is still supply, and says so.
    await app.sql`update offering set status = 'degraded' where id = ${id}`;
    await expect
      .poll(async () => (await app.call(`/v1/models/${OPENVLA}`)).body)
      .toMatchObject({ tier: "servable", offerings: [{ id, status: "degraded", circuit: "closed" }] });
    expect((await act(OPENVLA)).status).toBe(200);

    await app.sql`update offering set status = 'removed' where id = ${id}`;
    await expect.poll(async () => (await app.call(`/v1/models/${OPENVLA}`)).body.tier).toBe("integration");
    expect((await app.call(`/v1/models/${OPENVLA}`)).body).toMatchObject({ offerings: [], providers: [] });
    expect((await list({ tier: "servable" })).body.total).toBe(0);
  });

  it("never shows unverified offerings or addresses", async () => {
    const gone = await openModel();
    await gone.close();
    const { key } = await app.caller(0, { role: "supplier" });
    await app.call("/v1/supply/providers", { name: "broken" }, { key });
    const declared = await app.call(
      "/v1/supply/providers/broken/models",
      {
        model: "2toinf/x-vla",
        runtime: "limber-policy",
        endpoint: gone.endpoint,
        hardware: "cpu",
        contracts: ["act"],
        action_spaces: ["ee_delta_6d_grip"],
      },
      { key },
    );
    const verified = await app.call(`/v1/supply/offerings/${declared.body.id}/verify`, {}, { key });
    expect(verified.body.offering.status).toBe("rejected");
    const { body, text } = await app.call("/v1/models/2toinf/x-vla");
    expect([body.tier, body.offerings]).toEqual(["integration", []]);
    expect(text).not.toContain("127.0.0.1");
  });
});
