/** Preferences that nobody should send: each has the status that the documents give it, and none is ever relaxed in silence. */
import { beforeAll, describe, expect, it } from "vitest";
import type { DataCollection, SortAxis } from "../../../gen/limber/v1/preferences_pb.ts";
import type { App, Caller } from "../../support/app.ts";
import { bearer, inference, refusalIn } from "../../support/clients.ts";
import type { Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import { openModel, openWorld } from "../../support/world.ts";

const named = uniqueNames("acme");

let app: App;
let model: Model;
let caller: Caller;

beforeAll(async () => {
  [app, model] = await Promise.all([openWorld(), openModel()]);
  await app.supply({
    provider: named.acme,
    model: `${named.acme}/base`,
    endpoint: model.endpoint,
    advertised: { p95_ms: 100 },
  });
  caller = await app.caller(10);
});

const BODY = {
  model: `${named.acme}/base`,
  action_space: "base_twist_2d",
  horizon: 2,
  observations: [{ proprio: [0.5] }],
};

/** Asks for an act, and holds that no upstream was called and that a preview answers the same way. */
async function refused(more: object) {
  const before = model.acts.length;
  const { status, body } = await app.call("/v1/act", { ...BODY, ...more }, { key: caller.key });
  expect(model.acts.length).toBe(before);
  const preview = await app.call("/v1/routes/preview?contract=act", { ...BODY, ...more }, { key: caller.key });
  expect(preview.status === status || preview.body.would_refuse?.code === body.error.code).toBe(true);
  const places = Array.isArray(body.detail)
    ? body.detail.map(({ loc }: { loc: unknown[] }) => loc.slice(1).join("."))
    : [];
  return {
    status,
    code: body.error.code,
    places,
    details: body.error.details,
    param: body.error.param,
    text: JSON.stringify(body),
  };
}

const WRONG: Readonly<Record<string, readonly unknown[]>> = {
  order: [named.acme, [1], { acme: 1 }, Array(65).fill(named.acme), ["x".repeat(129)]],
  only: [named.acme, [1], true, Array(65).fill(named.acme)],
  ignore: [named.acme, [null], 0, Array(65).fill(named.acme)],
  offerings: ["off_1", [1], Array(65).fill("off_1"), ["x".repeat(129)]],
  sort: ["speed", 1, ["price"], "PRICE", ""],
  objective: ["price", { speed: 1 }, { price: -1 }, { price: "1" }, { price: null }, [1], { price: null, latency: 1 }],
  session_id: ["", 7, ["a"], "x".repeat(257), "x".repeat(1_000_000)],
  max_latency_ms: [0, -1, 1.5, "100", 2 ** 32, true],
  deadline_ms: [0, -1, 1.5, "100", 3_600_001],
  max_cost_usd: [-0.01, "1", true, [1]],
  max_price_per_frame: [-1, "1"],
  max_price_per_action_step: [-1, {}],
  min_uptime_30d: [-0.1, 1.1, "0.9"],
  region: ["eu", [1], Array(65).fill("eu"), ["x".repeat(65)]],
  data_collection: ["never", 1, true, ["deny"]],
  require_parameters: ["yes", 1],
  allow_fallbacks: ["no", 0],
  hedge: [100, {}, { after_ms: 0 }, { after_ms: -1 }, { after_ms: "5" }, { after_ms: 3_600_001 }, { before_ms: 5 }],
  allow_simulated: ["yes", 1],
  models: [
    `${named.acme}/base`,
    [1],
    [""],
    Array(9).fill(`${named.acme}/base`),
    Array(10_000).fill(`${named.acme}/base`),
  ],
};

describe("422, with the field named and no upstream called", () => {
  const cases = Object.entries(WRONG).flatMap(([field, values]) =>
    values.map((value) => [field, JSON.stringify(value).slice(0, 40), value] as const),
  );
  it.each(cases)("%s: %s", async (field, _, value) => {
    const { status, code, places } = await refused({ provider: { [field]: value } });
    expect([status, code]).toEqual([422, "validation_failed"]);
    expect(
      places.some((place: string) => place.startsWith(`provider.${field}`) || place === "provider"),
      String(places),
    ).toBe(true);
  });

  it("refuses weights that are all zero", async () => {
    const { status, places } = await refused({ provider: { objective: { price: 0, latency: 0 } } });
    expect([status, places[0]]).toEqual([422, "provider.objective"]);
  });

  it("refuses sort together with objective, and two different fallback chains", async () => {
    for (const [more, codes] of [
      [{ provider: { sort: "price", objective: { price: 1 } } }, ["conflicting_preferences"]],
      [
        { models: [`${named.acme}/base`], provider: { models: [`${named.acme}/other`] } },
        ["conflicting_preferences", "validation_failed"],
      ],
    ] as const) {
      const { status, code } = await refused(more);
      expect(status).toBe(422);
      expect(codes).toContain(code);
    }
  });

  it("names a misspelled preference with the nearest one", async () => {
    for (const [misspelt, meant] of [
      ["max_latency", "max_latency_ms"],
      ["min_uptime", "min_uptime_30d"],
      ["regions", "region"],
      ["datacollection", "data_collection"],
    ] as const) {
      const { status, text } = await refused({ provider: { [misspelt]: 1 } });
      expect([misspelt, status, text.includes(meant)]).toEqual([misspelt, 422, true]);
    }
  });

  it("names an unknown provider in ignore with the nearest one", async () => {
    const { status, text } = await refused({ provider: { ignore: [`${named.acme}e`] } });
    expect([status, text.includes(named.acme)]).toEqual([422, true]);
  });
});

/** What ProtoJSON takes beside REST's own forms: a number as text, an enum by its number or its name. */
const TAKEN_BY_PROTOJSON = new Set(["sort 1", "data_collection 1"]);
const isTaken = (field: string, value: unknown): boolean =>
  TAKEN_BY_PROTOJSON.has(`${field} ${value}`) ||
  (["100", "1", "0.9"].includes(String(value)) && typeof value === "string") ||
  ['{"price":"1"}', '{"after_ms":"5"}'].includes(JSON.stringify(value));

describe("invalid_argument, and no upstream called", () => {
  it("refuses over Connect's JSON what REST refuses", async () => {
    const before = model.acts.length;
    const { observations, ...rest } = BODY;
    for (const [field, values] of Object.entries(WRONG)) {
      for (const value of values) {
        if (isTaken(field, value)) continue;
        const asked = { ...rest, observations, provider: { [field]: value } };
        const { status, body } = await app.call("/limber.v1.InferenceService/Act", asked, { key: caller.key });
        expect([field, JSON.stringify(value).slice(0, 40), status, body.code]).toEqual([
          field,
          JSON.stringify(value).slice(0, 40),
          400,
          "invalid_argument",
        ]);
      }
    }
    expect(model.acts.length).toBe(before);
  });

  it.each([
    ["order", { order: Array(65).fill(named.acme) }],
    ["order", { order: ["x".repeat(129)] }],
    ["ignore", { ignore: [`${named.acme}e`] }],
    ["sort", { sort: 99 as SortAxis }],
    ["objective", { objective: { speed: 1 } }],
    ["objective", { objective: { price: -1 } }],
    ["objective", { objective: { price: Number.NaN } }],
    ["objective", { objective: { price: Number.POSITIVE_INFINITY } }],
    ["objective", { objective: { price: 0, latency: 0 } }],
    ["session_id", { sessionId: "" }],
    ["session_id", { sessionId: "x".repeat(1_000_000) }],
    ["max_latency_ms", { maxLatencyMs: 0 }],
    ["deadline_ms", { deadlineMs: 3_600_001 }],
    ["max_cost_usd", { maxCostUsd: -1 }],
    ["max_cost_usd", { maxCostUsd: Number.NaN }],
    ["max_price_per_frame", { maxPricePerFrame: Number.NaN }],
    ["max_price_per_action_step", { maxPricePerActionStep: Number.POSITIVE_INFINITY }],
    ["min_uptime_30d", { minUptime30d: Number.NaN }],
    ["min_uptime_30d", { minUptime30d: 1.1 }],
    ["region", { region: Array(65).fill("eu") }],
    ["data_collection", { dataCollection: 7 as DataCollection }],
    ["hedge.after_ms", { hedge: { afterMs: 0 } }],
    ["models", { models: Array(10_000).fill(`${named.acme}/base`) }],
    ["models", { models: [""] }],
  ])("names the field over gRPC: %s", async (field, provider) => {
    const before = model.acts.length;
    const request = {
      model: `${named.acme}/base`,
      actionSpace: "base_twist_2d",
      observations: [{ proprio: [0.5] }],
      provider,
    };
    const refusal = await refusalIn(inference(app, "grpc").act(request, bearer(caller.key)));
    expect(refusal).toMatchObject({ code: "InvalidArgument", reason: "validation_failed" });
    expect(refusal.details?.violations?.[0]?.path).toContain(`provider.${field}`);
    expect(model.acts.length).toBe(before);
  });
});

describe("409", () => {
  it.each([
    ["only and ignore of the same provider", { only: [named.acme], ignore: [named.acme] }, ["in_ignore"]],
    ["only an unknown provider", { only: ["nobody"] }, ["not_in_only"]],
    ["only an unknown offering", { offerings: ["nobody"] }, ["not_in_offerings"]],
    ["a strict order of unknown providers", { order: ["nobody"], allow_fallbacks: false }, ["not_in_order"]],
    ["a region that nobody runs in", { region: ["mars"] }, ["region"]],
    ["a latency that nobody advertises", { max_latency_ms: 1 }, ["max_latency_ms"]],
    ["a cost of nothing", { max_cost_usd: 0 }, ["max_cost_usd"]],
  ])("%s leaves no offering and lists every drop reason", async (_, provider, reasons) => {
    const { status, code, details } = await refused({ provider });
    expect([status, code, details.excluded_by]).toEqual([409, "no_route_available", reasons]);
    expect(details.dropped.length).toBe(1);
  });
});

it("names near providers if all admitted ones are unknown", async () => {
  for (const provider of [{ only: [`${named.acme}e`] }, { order: [`${named.acme}e`], allow_fallbacks: false }]) {
    const { status, details, text } = await refused({ provider });
    expect([status, details.near]).toEqual([409, expect.arrayContaining([named.acme])]);
    expect(text).toContain(`provider \\"${named.acme}e\\" not found`);
  }
  const { details } = await refused({ provider: { only: [named.acme], max_cost_usd: 0 } });
  expect(details.near).toBeUndefined();
});

describe("404", () => {
  it.each([
    "service/auto:fast",
    "service/quickest",
    "service/auto:vla:warp",
    "service/auto:turbo:floor",
    `${named.acme}/base:warp`,
    `${named.acme}/bas`,
  ])("%s is neither model nor alias; near names are suggested", async (name) => {
    const { status, code, details } = await refused({ model: name });
    expect([status, code]).toEqual([404, "model_not_found"]);
    expect(details.near?.length ?? 0).toBeGreaterThan(0);
  });

  it("names an unknown model in the fallback chain by its position", async () => {
    const { status, param } = await refused({ models: [`${named.acme}/base`, `${named.acme}/nothing`] });
    expect([status, param]).toEqual([404, "models.1"]);
  });
});
