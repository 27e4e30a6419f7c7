/** The registry's other lists: taxonomy, scenarios, literature, providers, routes, runtimes. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { beforeAll, describe, expect, it } from "vitest";
import { Contract } from "../../../gen/limber/v1/contract_pb.ts";
import { Embodiment, ModelTier } from "../../../gen/limber/v1/registry_pb.ts";
import { RegistryService } from "../../../gen/limber/v1/registry_service_pb.ts";
import { BUILT_IN } from "../../../src/scenarios/index.ts";
import { importCatalog } from "../../../src/store/supply/catalog.ts";
import type { App } from "../../support/app.ts";
import type { FreshDatabase } from "../../support/database.ts";
import type { Model } from "../../support/model.ts";
import { openModel, ownDatabase, ownGateway } from "../../support/world.ts";

const DATA = join(import.meta.dirname, "..", "..", "..", "data");
const TAXONOMY = JSON.parse(readFileSync(join(DATA, "taxonomy.json"), "utf8"));
// biome-ignore lint/suspicious/noExplicitAny: rows of three files.
const rowsOf = (name: string): any[] =>
  readFileSync(join(DATA, name), "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
const MODELS = rowsOf("models.jsonl");

let database: FreshDatabase;
let app: App;
let model: Model;
beforeAll(async () => {
  database = await ownDatabase();
  await importCatalog(database.sql, DATA);
  app = await ownGateway({ database });
  model = await openModel();
});

const get = async (path: string) => (await app.call(path)).body;
const served = { action_spaces: ["ee_delta_6d_grip"], price_per_action_step: 0.0001 };

describe("before there is supply", () => {
  it("lists no alias and nothing live", async () => {
    const routes = await get("/v1/routes");
    expect([routes.aliases, routes.data]).toEqual([[], []]);
    expect(routes.live).toMatchObject({ models: [], providers: [], contracts: [], action_spaces: [] });
    expect(await get("/v1/providers")).toMatchObject({ object: "list", data: [], total: 0, limit: 1000, offset: 0 });
  });
});

describe("with supply", () => {
  beforeAll(async () => {
    const endpoint = model.endpoint;
    await app.supply({ provider: "acme", model: "openvla/openvla-7b", endpoint, region: "eu", ...served });
    await app.supply({ provider: "zeta", model: "openvla/openvla-7b", endpoint, ...served });
    await app.supply({
      provider: "acme",
      model: "own/dreams",
      endpoint,
      contracts: ["predict"],
      action_spaces: [],
      price_per_frame: 0.001,
    });
  });

  const openvla = {
    id: "openvla/openvla-7b",
    name: "OpenVLA",
    vendor: "OpenVLA team",
    contracts: ["act", "evaluate"],
    action_spaces: ["ee_delta_6d_grip"],
    providers: ["acme", "zeta"],
  };
  const dreams = {
    id: "own/dreams",
    name: "dreams",
    vendor: "own",
    contracts: ["predict"],
    action_spaces: [],
    providers: ["acme"],
  };
  const description = expect.stringMatching(/\w/);

  it("GET /v1/routes matches the specification field by field", async () => {
    const aliases = [
      { id: "service/auto", description, filter: {}, resolves_to: [openvla, dreams] },
      { id: "service/fastest", description, filter: {}, sort: "latency", resolves_to: [openvla, dreams] },
      { id: "service/cheapest", description, filter: {}, sort: "price", resolves_to: [openvla, dreams] },
      { id: "service/auto:embodied", description, filter: { domain: "embodied" }, resolves_to: [openvla, dreams] },
      { id: "service/auto:vla", description, filter: { family: "vla" }, resolves_to: [openvla] },
    ];
    expect(await get("/v1/routes")).toEqual({
      object: "list",
      aliases,
      variants: [":nitro", ":turbo", ":floor", ":quality"].map((suffix) => ({
        suffix,
        description,
        example: `service/auto${suffix}`,
      })),
      preferences: ["balanced", "fastest", "cheapest", "reliable"].map((value) => ({ value, description })),
      live: {
        models: ["openvla/openvla-7b", "own/dreams"],
        providers: ["acme", "zeta"],
        contracts: ["act", "predict", "evaluate"],
        action_spaces: ["ee_delta_6d_grip"],
        catalog_models: MODELS.length + 1,
        note: description,
      },
      data: aliases,
    });
  });

  it("GET /v1/routes?contract= filters by contract", async () => {
    const act = await get("/v1/routes?contract=act");
    expect(act.aliases.map(({ id }: { id: string }) => id)).toContain("service/auto:vla");
    for (const { resolves_to } of act.aliases) expect(resolves_to).toEqual([openvla]);
    const predict = await get("/v1/routes?contract=predict");
    expect(predict.aliases.map(({ id }: { id: string }) => id)).not.toContain("service/auto:vla");
    for (const { resolves_to } of predict.aliases) expect(resolves_to).toEqual([dreams]);
    expect(predict.live).toMatchObject({ models: ["own/dreams"], providers: ["acme"], contracts: ["predict"] });
    // The gateway itself evaluates what acts where a scenario takes place.
    const evaluate = await get("/v1/routes?contract=evaluate");
    expect(evaluate.aliases.map(({ id }: { id: string }) => id)).toContain("service/auto:vla");
    for (const { resolves_to } of evaluate.aliases) expect(resolves_to).toEqual([openvla]);
    expect((await get("/v1/models?contract=evaluate")).data).toContainEqual(
      expect.objectContaining({ id: openvla.id, contracts: ["act", "evaluate"] }),
    );
    expect((await app.call("/v1/routes?contract=fly")).status).toBe(422);
  });

  it("accepts calls of every listed alias and example", async () => {
    const { key } = await app.caller(10);
    const { aliases, variants } = await get("/v1/routes?contract=act");
    for (const id of [
      ...aliases.map((each: { id: string }) => each.id),
      ...variants.map((each: { example: string }) => each.example),
    ]) {
      const answer = await app.call("/v1/act", { model: id, horizon: 1, observations: [{ proprio: [0] }] }, { key });
      expect([id, answer.status]).toEqual([id, 200]);
    }
  });

  it("GET /v1/providers shows models by provider, without addresses", async () => {
    const { body, text } = await app.call("/v1/providers");
    expect(body).toEqual({
      object: "list",
      data: [
        {
          name: "acme",
          display_name: "acme",
          regions: [],
          data_collection: "allow",
          models: ["openvla/openvla-7b", "own/dreams"],
          contracts: ["act", "predict"],
          action_spaces: ["ee_delta_6d_grip"],
          live_offerings: 2,
        },
        expect.objectContaining({ name: "zeta", models: ["openvla/openvla-7b"], live_offerings: 1 }),
      ],
      total: 2,
      limit: 1000,
      offset: 0,
    });
    expect(text).not.toMatch(/127\.0\.0\.1|email|secret/);
  });

  it("GET /v1/taxonomy counts every value, and how many are live", async () => {
    const { facets } = await get("/v1/taxonomy");
    const countsOf = (facet: string, value: string) =>
      facets[facet].find((each: { value: string }) => each.value === value);
    expect(Object.keys(facets).sort()).toEqual(
      ["action_space", "contract", "domain", "embodiment", "era", "family", "featured", "kind", "tier"].sort(),
    );
    for (const [facet, words] of [
      ["domain", TAXONOMY.domains],
      ["family", TAXONOMY.families],
      ["embodiment", TAXONOMY.embodiments],
      ["era", TAXONOMY.eras],
      ["kind", TAXONOMY.kinds],
      ["tier", TAXONOMY.tiers],
      ["contract", TAXONOMY.contracts],
    ]) {
      for (const { id, meaning } of words) expect(countsOf(facet, id)).toMatchObject({ value: id, meaning });
      for (const { value, count } of facets[facet]) {
        const { total } = await get(`/v1/models?${facet}=${value}&limit=1`);
        expect([facet, value, count]).toEqual([facet, value, total]);
      }
    }
    expect(countsOf("tier", "servable")).toMatchObject({ count: 2, live_count: 2 });
    expect(countsOf("contract", "act").live_count).toBe(1);
    expect(countsOf("family", "vla")).toMatchObject({
      count: MODELS.filter(({ family }) => family === "vla").length,
      live_count: 1,
    });
    expect(countsOf("action_space", "ee_delta_6d_grip").live_count).toBe(1);
    expect(countsOf("era", "classic").live_count).toBe(0);
  });
});

describe("GET /v1/taxonomy", () => {
  it("shows the layout of each action space as in the catalog", async () => {
    const { action_spaces } = await get("/v1/taxonomy");
    expect(action_spaces).toEqual(TAXONOMY.action_spaces.map((space: object) => ({ other_layouts: [], ...space })));
  });
});

describe("GET /v1/scenarios", () => {
  const rows = rowsOf("scenarios.jsonl");
  const shown = ({ slug, owner, ...facts }: Record<string, unknown>) => ({
    id: slug,
    object: "scenario",
    vendor: owner,
    runs_here: false,
    variants: [],
    ...facts,
  });
  const here = BUILT_IN.map(({ id }) => id).sort();
  const idsOf = (data: readonly { id: string }[]) => data.map(({ id }) => id);

  it("lists the gateway's own scenarios, then all of the catalog", async () => {
    const { data, ...page } = await get("/v1/scenarios");
    expect(page).toEqual({ object: "list", total: here.length + rows.length, limit: 1000, offset: 0 });
    expect(idsOf(data.slice(0, here.length))).toEqual(here);
    expect(data.slice(here.length)).toEqual(rows.map(shown));
    const { data: second } = await get(`/v1/scenarios?limit=2&offset=${here.length + 3}`);
    expect(second).toEqual(rows.slice(3, 5).map(shown));
  });

  it("shows instructions, actions and success rules of its own scenarios", async () => {
    const { data } = await get("/v1/scenarios?runnable=true&target=embodied&limit=8");
    expect(data.every(({ runs_here }: { runs_here: boolean }) => runs_here)).toBe(true);
    const cartpole = data.find(({ id }: { id: string }) => id === "cartpole-balance");
    expect(cartpole).toEqual({
      id: "cartpole-balance",
      object: "scenario",
      name: "Cart-pole balance",
      vendor: "limber",
      target: "embodied",
      topic: "control-suite",
      runnable: true,
      runs_here: true,
      sources: [],
      summary: expect.stringContaining("CartPole-v1"),
      success: expect.stringContaining("500 steps"),
      version: "1.0.0",
      variants: [
        {
          action_space: "continuous_nd",
          action_fields: ["force"],
          units: "N, -10 to 10",
          proprio_names: ["cart_x", "cart_v", "pole_angle", "pole_omega"],
          dt_ms: 20,
          max_steps: 500,
        },
      ],
    });
  });

  it.each([
    ["target=game", (row: { target: string }) => row.target === "game"],
    ["runnable=true", (row: { runnable: boolean }) => row.runnable],
    ["runnable=false", (row: { runnable: boolean }) => !row.runnable],
    [
      "runnable=true&target=driving",
      (row: { runnable: boolean; target: string }) => row.runnable && row.target === "driving",
    ],
  ])("%s", async (query, holds) => {
    const { data } = await get(`/v1/scenarios?${query}`);
    const own = data.filter(({ runs_here }: { runs_here: boolean }) => runs_here);
    expect(data.slice(own.length)).toEqual(rows.filter(holds).map(shown));
    // All that runs here is code that is released, and tries robots.
    expect(idsOf(own)).toEqual(query === "runnable=true" ? here : []);
  });

  it("refuses unknown values with 422", async () => {
    for (const query of ["target=space", "runnable=maybe", "limit=0", "kind=survey"])
      expect((await app.call(`/v1/scenarios?${query}`)).status).toBe(422);
  });
});

describe("GET /v1/literature", () => {
  const rows = rowsOf("literature.jsonl");
  const shown = ({ slug, ...facts }: Record<string, unknown>) => ({ id: slug, object: "literature", ...facts });

  it("lists all entries, or those of one kind", async () => {
    const { data, total } = await get("/v1/literature");
    expect([data, total]).toEqual([rows.map(shown), rows.length]);
    for (const kind of ["survey", "position", "theory", "tutorial"]) {
      expect((await get(`/v1/literature?kind=${kind}`)).data).toEqual(
        rows.filter((row) => row.kind === kind).map(shown),
      );
    }
    expect((await app.call("/v1/literature?kind=novel")).status).toBe(422);
  });
});

describe("GET /v1/runtimes", () => {
  it("lists every wire with what it carries", async () => {
    const { object, data } = await get("/v1/runtimes");
    expect([object, data.map(({ id }: { id: string }) => id)]).toEqual([
      "list",
      [
        "limber-policy",
        "openpi-ws",
        "vla-eval-ws",
        "gr00t-zmq",
        "gr00t-http",
        "openvla-act",
        "dexbotic",
        "tether-act",
        "lerobot-async",
        "lerobot-remote",
        "xpolicylab-ws",
        "oip-v2-grpc",
        "oip-v2-rest",
        "vllm-omni-videos",
        "cosmos-nim",
        "cog",
        "openai-chat",
        "limber-outbound",
        "simulated",
      ],
    ]);
    for (const runtime of data) {
      expect(runtime).toMatchObject({
        name: expect.stringMatching(/\w/),
        transport: expect.stringMatching(/^(websocket|grpc|http|zmq|none)$/),
        direction: expect.stringMatching(/^(gateway|supplier)_dials$/),
        auth: expect.arrayContaining(["none"]),
      });
      expect(runtime.contracts.length).toBeGreaterThan(0);
    }
    expect(data[1]).toMatchObject({
      url_schemes: ["ws", "wss"],
      contracts: ["act"],
      profiles: expect.arrayContaining(["openpi/libero"]),
    });
    const [, pointer] = data[1].options_schema.split("#");
    const document = await get("/openapi.json");
    const schema = pointer
      .split("/")
      .slice(1)
      .reduce((at: Record<string, unknown>, part: string) => at[part], document);
    expect(schema).toMatchObject({ type: "object" });
  });
});

describe("over gRPC", () => {
  it("returns true enums for the same registry", async () => {
    const client = createClient(RegistryService, createGrpcTransport({ baseUrl: app.url }));
    const { data, total } = await client.listModels({ embodiment: Embodiment.MOBILE_BASE, limit: 3 });
    expect(total).toBe(MODELS.filter(({ embodiments }) => embodiments.includes("mobile-base")).length);
    for (const { embodiments } of data) expect(embodiments).toContain(Embodiment.MOBILE_BASE);
    const { model } = await client.getModel({ owner: "openvla", name: "openvla-7b" });
    expect([model?.tier, model?.contracts]).toEqual([ModelTier.SERVABLE, [Contract.ACT, Contract.EVALUATE]]);
    await expect(client.getModel({ owner: "no", name: "body" })).rejects.toThrow(/not found/);
  });
});
