/** /v1/presets, and what a preset does to calls. */
import { beforeAll, describe, expect, it } from "vitest";
import {
  ActRequestSchema,
  GroundRequestSchema,
  PredictRequestSchema,
} from "../../../gen/limber/v1/inference_service_pb.ts";
import { PresetConfigSchema } from "../../../gen/limber/v1/preset_pb.ts";
import type { App, Caller } from "../../support/app.ts";
import { bearer, inference } from "../../support/clients.ts";
import { eventually } from "../../support/eventually.ts";
import { type Market, openMarket } from "../../support/market.ts";
import type { Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import { ownGateway } from "../../support/world.ts";

const named = uniqueNames("acme", "bolt", "other");

let market: Market;
let app: App;
let model: Model;
let caller: Caller;

beforeAll(async () => {
  market = await openMarket([
    { provider: named.acme, model: `${named.acme}/base`, region: "eu" },
    { provider: named.bolt, model: `${named.acme}/base`, region: "us" },
    { provider: named.acme, model: `${named.other}/base`, region: "eu" },
    {
      provider: named.acme,
      model: `${named.acme}/world`,
      contracts: ["predict", "ground"],
      price_per_frame: 0.001,
      price_per_1k_tokens: 0.01,
    },
  ]);
  ({ app, model, caller } = market);
});

const BODY = { model: `${named.acme}/base`, action_space: "base_twist_2d", observations: [{ proprio: [0.5] }] };
const put = (name: string, config: unknown, key = caller.key) =>
  app.call(`/v1/presets/${name}`, config, { key, method: "PUT" });
const act = (more: object, key = caller.key) => app.call("/v1/act", { ...BODY, ...more }, { key });
const get = (path: string, key = caller.key) => app.call(path, undefined, { key });
const remove = (name: string, key = caller.key) =>
  app.call(`/v1/presets/${name}`, undefined, { key, method: "DELETE" });

describe("200", () => {
  it("creates, shows, lists and deletes", async () => {
    const config = { horizon: 4, provider: { only: [named.acme] }, metadata: { cell: "7" } };
    const saved = await put("arm-cell", config);
    expect([saved.status, saved.body]).toEqual([
      200,
      {
        name: "arm-cell",
        version: 1,
        config: expect.objectContaining(config.metadata ? { horizon: 4 } : {}),
        updated_at: expect.any(Number),
      },
    ]);
    expect(saved.body.config.provider.only).toEqual([named.acme]);
    expect((await get("/v1/presets/arm-cell")).body).toEqual(saved.body);
    const { body } = await get("/v1/presets");
    expect([body.object, body.data.map(({ name }: { name: string }) => name), body.has_more]).toEqual([
      "list",
      ["arm-cell"],
      false,
    ]);
    expect((await remove("arm-cell")).body).toEqual({ object: "preset", name: "arm-cell", deleted: true });
    expect((await get("/v1/presets/arm-cell")).status).toBe(404);
    expect((await remove("arm-cell")).status).toBe(404);
  });

  it("numbers changed versions, keeps old ones, and ignores changes without effect", async () => {
    await put("loop", { horizon: 2 });
    expect((await put("loop", { horizon: 3 })).body.version).toBe(2);
    expect((await put("loop", { horizon: 3 })).body.version).toBe(2);
    expect((await get("/v1/presets/loop?version=1")).body.config.horizon).toBe(2);
    expect((await act({ preset: "loop" })).body.action.steps).toHaveLength(3);
    expect((await act({ preset: "loop@1" })).body.action.steps).toHaveLength(2);
  });

  it("pages by name", async () => {
    const { key } = await app.caller(0);
    for (const name of ["c", "a", "b"]) await put(name, { horizon: 1 }, key);
    const first = (await get("/v1/presets?limit=2", key)).body;
    const second = (await get(`/v1/presets?limit=2&cursor=${first.next_cursor}`, key)).body;
    expect([...first.data, ...second.data].map(({ name }: { name: string }) => name)).toEqual(["a", "b", "c"]);
    expect([first.has_more, second.has_more]).toEqual([true, false]);
  });

  it("fills in what an act omits and nothing else", async () => {
    await put("near", { horizon: 4, provider: { only: [named.acme] }, instruction: "dock" });
    const { status, body } = await act({ preset: "near" });
    expect([status, body.action.steps.length, body.route.provider]).toEqual([200, 4, named.acme]);
    expect(model.acts.at(-1)?.instruction).toBe("dock");
    const own = await act({ preset: "near", horizon: 2, instruction: "leave", provider: { only: [named.bolt] } });
    expect([own.body.action.steps.length, own.body.route.provider]).toEqual([2, named.bolt]);
    expect(model.acts.at(-1)?.instruction).toBe("leave");
  });

  it("replaces the preset's complete provider by the request's", async () => {
    await put("strict", { provider: { only: [named.acme], region: ["eu"] } });
    const { body } = await act({ preset: "strict", provider: { order: [named.bolt], allow_fallbacks: false } });
    expect(body.route.provider).toBe(named.bolt);
  });

  it("keeps its constraints if the request's provider has only session and deadline", async () => {
    await put("fenced", { provider: { only: [named.bolt], deadline_ms: 9_000 } });
    for (const provider of [{ session_id: "episode 7" }, { deadline_ms: 5_000 }, { session_id: "s", objective: {} }])
      expect((await act({ preset: "fenced", provider })).body.route?.provider, JSON.stringify(provider)).toBe(
        named.bolt,
      );
    await put("nowhere", { provider: { only: ["nobody"] } });
    const nowhere = { preset: "nowhere", provider: { session_id: "episode 8" } };
    expect((await act(nowhere)).body.error?.code).toBe("no_route_available");
  });

  it("respects an explicit false", async () => {
    await put("dreams", { return_prediction: true, provider: { require_parameters: true } });
    expect((await act({ preset: "dreams" })).status).toBe(409);
    expect((await act({ preset: "dreams", return_prediction: false })).status).toBe(200);
  });

  it("treats the fallback chain as one field, wherever the request has it", async () => {
    expect((await put("chain", { provider: { models: [`${named.other}/base`] } })).body.config.models).toEqual([
      `${named.other}/base`,
    ]);
    expect((await act({ preset: "chain", provider: { models: [`${named.acme}/base`] } })).status).toBe(200);
    expect((await act({ preset: "chain", models: [`${named.acme}/base`] })).status).toBe(200);
  });

  it("applies to predict, streamed predict, ground and previews", async () => {
    await put("film", { horizon: 2, action_space: "base_twist_2d" });
    const body = { model: `${named.acme}/world`, observations: BODY.observations, preset: "film" };
    expect((await app.call("/v1/predict", body, { key: caller.key })).body.frames).toHaveLength(2);
    const stream = await app.call("/v1/predict/stream", body, { key: caller.key });
    expect(stream.text.match(/^event: frame$/gm)).toHaveLength(2);
    const previewed = await app.call("/v1/routes/preview?contract=predict", body, { key: caller.key });
    expect(previewed.body.estimated_cost_usd.expected).toBe(0.002);
    await put("elsewhere", { provider: { only: [named.bolt] } });
    const ground = {
      model: `${named.acme}/world`,
      observations: BODY.observations,
      instruction: "the cup",
      preset: "elsewhere",
    };
    expect((await app.call("/v1/ground", ground, { key: caller.key })).body.error.details.excluded_by).toEqual([
      "not_in_only",
    ]);
  });

  it("works the same over gRPC", async () => {
    await put("near", { horizon: 3 });
    const { action } = await inference(app, "grpc").act(
      { model: `${named.acme}/base`, actionSpace: "base_twist_2d", observations: [{ proprio: [0.5] }], preset: "near" },
      bearer(caller.key),
    );
    expect(action?.steps).toHaveLength(3);
  });

  it("is recorded with the call", async () => {
    await put("noted", { horizon: 1 });
    const { body } = await act({ preset: "noted" });
    await eventually(async () => {
      const [row] = await app.sql`select log::json as log from request where request_id like ${`%${body.id.slice(4)}`}`;
      expect(row?.log.preset).toBe("noted");
    });
  });

  it("applies a change made on another replica", async () => {
    const other = await ownGateway({ database: app.database });
    try {
      await put("shared", { horizon: 1 });
      const there = (preset: string) => other.call("/v1/act", { ...BODY, preset }, { key: caller.key });
      expect((await there("shared")).body.action.steps).toHaveLength(1);
      await put("shared", { horizon: 2 });
      await eventually(async () => expect((await there("shared")).body.action.steps).toHaveLength(2));
    } finally {
      await other.close();
    }
  });
});

describe("403", () => {
  it("a preset widens nothing: its models are checked like the request's", async () => {
    await put("wide", { models: [`${named.other}/base`] });
    const narrow = await app.key(caller.org, { role: "owner", models: [`${named.acme}/*`] });
    const { status, body } = await act({ preset: "wide" }, narrow);
    expect([status, body.error.code, body.error.param]).toEqual([403, "model_not_in_scope", "models.0"]);
    const hardware = await app.key(caller.org, { role: "owner", environment: "hardware" });
    await app.catalog(`${named.acme}/idea`);
    await put("dreamy", { provider: { allow_simulated: true } });
    const dreamt = await app.call(
      "/v1/act",
      { ...BODY, model: `${named.acme}/idea`, preset: "dreamy" },
      { key: hardware },
    );
    expect(dreamt.status).toBe(409);
  });

  it("roles without the permission can neither write nor read", async () => {
    const [operator, supplier] = [
      await app.key(caller.org, { role: "operator" }),
      await app.key(caller.org, { role: "supplier" }),
    ];
    expect((await put("mine", { horizon: 1 }, operator)).body.error.code).toBe("permission_denied");
    expect((await get("/v1/presets", operator)).status).toBe(200);
    expect((await get("/v1/presets", supplier)).body.error.code).toBe("permission_denied");
  });
});

describe("404", () => {
  it("suggests presets near an unknown one", async () => {
    await put("warehouse", { horizon: 1 });
    const { status, body } = await act({ preset: "warehose" });
    expect([status, body.error.code, body.error.details.near, body.error.param]).toEqual([
      404,
      "preset_not_found",
      ["warehouse"],
      "preset",
    ]);
    expect((await act({ preset: "warehouse@9" })).body.error.details.near).toContain("warehouse@1");
    const previewed = await app.call("/v1/routes/preview", { ...BODY, preset: "warehose" }, { key: caller.key });
    expect(previewed.body.error.code).toBe("preset_not_found");
  });

  it("returns 404 for another organization's preset", async () => {
    await put("secret-plan", { horizon: 1 });
    const other = await app.caller(10);
    for (const answer of [
      await get("/v1/presets/secret-plan", other.key),
      await remove("secret-plan", other.key),
      await act({ preset: "secret-plan" }, other.key),
    ])
      expect([answer.status, answer.body.error.code, answer.body.error.details.near ?? []]).toEqual([
        404,
        "preset_not_found",
        [],
      ]);
    expect((await get("/v1/presets", other.key)).body.data).toEqual([]);
  });
});

describe("409", () => {
  it("an organization's default cannot be deleted, and applies to calls that name none", async () => {
    const { org, key } = await app.caller(10);
    await put("usual", { horizon: 3 }, key);
    const settle = (default_preset: string | null) =>
      app.call(`/v1/orgs/${org}/settings`, { default_preset }, { key, method: "PATCH" });
    expect((await settle("usual")).status).toBe(200);
    await eventually(async () => expect((await act({}, key)).body.action.steps).toHaveLength(3));
    expect((await act({ horizon: 2 }, key)).body.action.steps).toHaveLength(2);
    const { status, body } = await remove("usual", key);
    expect([status, body.error.code]).toEqual([409, "preset_in_use"]);
  });

  it("an organization has at most 200", async () => {
    const { key, org } = await app.caller(0);
    await app.sql`insert into preset (org_id, name, version, config) select ${org}, 'p' || n, 1, '{}'::jsonb from generate_series(1, 200) n`;
    expect((await put("one-more", { horizon: 1 }, key)).body.error.code).toBe("too_many");
    expect((await put("p7", { horizon: 1 }, key)).body.version).toBe(2);
  });
});

describe("422", () => {
  it("refuses unknown fields with the nearest name", async () => {
    const { status, body } = await put("typo", { horizn: 4, provider: { max_latency: 3 } });
    expect([status, body.error.code]).toEqual([422, "validation_failed"]);
    expect(body.error.details.violations.map(({ path }: { path: string }) => path).sort()).toEqual([
      "horizn",
      "provider.max_latency",
    ]);
    expect(body.detail[0].msg).toContain("horizon");
    for (const field of ["model", "observations", "preset", "stream", "idempotency_key"])
      expect((await put("typo", { [field]: "x" })).status, field).toBe(422);
  });

  it("refuses contradictions", async () => {
    const faults: [object, string][] = [
      [{ provider: { sort: "price", objective: { price: 1 } } }, "conflicting_preferences"],
      [{ models: ["a/b"], provider: { models: ["a/c"] } }, "conflicting_preferences"],
      [{ action_space: "arm_of_dreams" }, "validation_failed"],
      [{ horizon: 0 }, "validation_failed"],
      [{ preference: "best" }, "validation_failed"],
      [{ metadata: { note: "x".repeat(600) } }, "validation_failed"],
    ];
    for (const [config, code] of faults)
      expect((await put("odd", config)).body.error.code, JSON.stringify(config)).toBe(code);
  });

  it("refuses 1 MB of content, and names that are paths", async () => {
    const megabyte = "x".repeat(1 << 20);
    const large = [
      { instruction: megabyte },
      { metadata: { a: megabyte } },
      { provider: { only: [megabyte] } },
      { models: [megabyte] },
    ];
    for (const config of large) expect((await put("large", config)).status, Object.keys(config)[0]).toBe(422);
    for (const name of [
      "..%2F..%2Fetc%2Fpasswd",
      "%2Fetc",
      "a%2Fb",
      ".hidden",
      "a%5Cb",
      "a%00b",
      "%20",
      "n@1",
      "x".repeat(101),
    ])
      expect((await put(name, { horizon: 1 })).status, name).toBe(422);
    expect((await put("../../etc/passwd", { horizon: 1 })).status).toBe(404);
  });

  it("refuses bodies that are not objects", async () => {
    for (const body of ["[]", "null", '"x"', "3"]) expect((await put("shape", body)).status, body).toBe(422);
    expect((await put("shape", "{")).status).toBe(400);
  });
});

describe("401", () => {
  it("requires a key on every path", async () => {
    for (const [path, method] of [
      ["/v1/presets", "GET"],
      ["/v1/presets/x", "GET"],
      ["/v1/presets/x", "DELETE"],
    ])
      expect((await app.call(path!, undefined, { method: method! })).status).toBe(401);
    expect((await app.call("/v1/presets/x", { horizon: 1 }, { method: "PUT" })).status).toBe(401);
  });
});

describe("the schema", () => {
  it("declares each preset field with the same type in every request", () => {
    for (const request of [ActRequestSchema, PredictRequestSchema, GroundRequestSchema]) {
      for (const field of PresetConfigSchema.fields) {
        const twin = request.field[field.localName as never] as (typeof PresetConfigSchema.fields)[number] | undefined;
        if (!twin || (request === GroundRequestSchema && field.localName === "instruction")) continue;
        expect(
          [twin.fieldKind, twin.message?.typeName, twin.enum?.typeName, twin.scalar, twin.presence],
          field.name,
        ).toEqual([field.fieldKind, field.message?.typeName, field.enum?.typeName, field.scalar, field.presence]);
      }
    }
  });
});
