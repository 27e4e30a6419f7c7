/** Looking after supply: lists, changes of the cost basis, withdrawal, hardware, reports. */
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { DescribeResponseSchema, type ServedModelSchema } from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import { ACT_DECLARATION, ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { honestSteps, type Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import type { Served } from "../../support/policy-server.ts";
import { openModel, openWorld, ownGateway } from "../../support/world.ts";

const named = uniqueNames("acme", "theirs");

let app: App;
let model: Model;
let supplier: Caller;
let robot: Caller;
let next = 0;

beforeAll(async () => {
  [app, model] = await Promise.all([openWorld(), openModel()]);
  supplier = await app.caller(0, { role: "supplier" });
  robot = await app.caller(10);
  await app.call(
    "/v1/supply/providers",
    { name: named.acme, contact_email: "ops@acme.example" },
    { key: supplier.key },
  );
});

const get = (path: string, { key } = supplier) => app.call(path, undefined, { key });
const patch = (path: string, body: unknown, { key } = supplier) => app.call(path, body, { key, method: "PATCH" });
const remove = (id: string, query = "", { key } = supplier) =>
  app.call(`/v1/supply/offerings/${id}${query}`, undefined, { key, method: "DELETE" });
const declare = async (more: object = {}) => {
  const body = { ...ACT_DECLARATION, model: `${named.acme}/m${next++}`, endpoint: model.endpoint, ...more };
  const {
    status,
    body: offering,
    text,
  } = await app.call(`/v1/supply/providers/${named.acme}/models`, body, { key: supplier.key });
  if (status !== 201) throw new Error(text);
  return offering;
};
const verify = async (id: string) =>
  (await app.call(`/v1/supply/offerings/${id}/verify`, {}, { key: supplier.key })).body;
const live = async (more: object = {}) => {
  const { id } = await declare(more);
  const { offering, report } = await verify(id);
  if (offering.status !== "live") throw new Error(JSON.stringify(report));
  return offering;
};
const act = (name: string, more: object = {}) =>
  app.call(
    "/v1/act",
    { model: name, action_space: "base_twist_2d", horizon: 2, observations: [{ proprio: [0] }], ...more },
    { key: robot.key },
  );
const actions = async (id: string) =>
  (await app.sql`select action from audit where subject = ${id} order by seq`).map(({ action }) => action);
const events = async (id: string) =>
  (
    await app.sql`select name from outbox where "position"(payload, convert_to(${id}, 'UTF8')) > 0 order by outbox.position`
  ).map(({ name }) => name);

describe("POST /v1/supply/offerings/{offering_id}/pause and resume", () => {
  const move = (id: string, how: "pause" | "resume", who: { key?: string; admin?: string } = supplier) =>
    app.call(`/v1/supply/offerings/${id}/${how}`, {}, who);

  it("takes a live offering out of routing and back under its id, with an event and a record each", async () => {
    const { id, model: name } = await live();
    expect((await act(name)).status).toBe(200);
    const paused = await move(id, "pause");
    expect([paused.status, paused.body.status]).toEqual([200, "paused"]);
    expect((await move(id, "pause")).body.status).toBe("paused");
    await eventually(async () => expect((await act(name)).status).toBe(409));
    expect((await get(`/v1/supply/offerings/${id}`, robot)).status).toBe(404);
    const verified = await app.call(`/v1/supply/offerings/${id}/verify`, {}, { key: supplier.key });
    expect([verified.status, verified.body.error.message]).toEqual([409, expect.stringContaining("resume it first")]);
    expect((await move(id, "resume")).body.status).toBe("live");
    await eventually(async () => expect((await act(name)).status).toBe(200));
    expect((await events(id)).filter((each) => /paused|resumed/.test(each))).toEqual([
      "offering.paused",
      "offering.resumed",
    ]);
    expect((await actions(id)).filter((each) => /paused|resumed/.test(each))).toEqual([
      "offering.paused",
      "offering.resumed",
    ]);
  });

  it("works only for live offerings and their owners", async () => {
    const { id } = await declare();
    for (const how of ["pause", "resume"] as const) {
      const { status, body } = await move(id, how);
      expect([status, body.error.code]).toEqual([409, "offering_not_live"]);
    }
    const other = await live();
    expect((await move(other.id, "pause", robot)).status).toBe(404);
    expect((await move(other.id, "resume")).status).toBe(200);
    expect((await move(other.id, "pause", { admin: ADMIN_TOKEN })).body.status).toBe("paused");
    const gone = await remove(other.id);
    expect([gone.status, gone.body.status]).toEqual([200, "removed"]);
  });
});

describe("what a server of the native wire says of itself", () => {
  const says = (served: Served, models: MessageInitShape<typeof ServedModelSchema>[]): void => {
    const whole = models.map(
      (each) => ({ ...each, proprioNames: ["x"] }) as MessageInitShape<typeof ServedModelSchema>,
    );
    served.send(toBinary(DescribeResponseSchema, create(DescribeResponseSchema, { models: whole })));
    served.end();
  };
  afterEach(() => {
    model.script.describe = undefined;
  });
  const shownOf = async (id: string) => (await get(`/v1/supply/offerings/${id}`)).body;

  it("fills in what the declaration omits, including the model's summary, and overrides nothing", async () => {
    const slug = `${named.acme}/m${next}`;
    const said = {
      ...{ slug, summary: "Turns wheels.\n\u202eIn two numbers.", limits: "None on stairs.", dtMs: 20, maxHorizon: 8 },
      ...{ embodiments: ["mobile-base", "teapot"], parameters: ["seed", "rm -rf"] },
    };
    model.script.describe = (served) => says(served, [{ slug: `${named.acme}/other`, dtMs: 7 }, said]);
    const first = await live({ dt_ms: undefined });
    expect(await shownOf(first.id)).toMatchObject({
      ...{ dt_ms: 20, max_horizon: 8, embodiments: ["mobile-base"], parameters: ["seed"] },
    });
    await eventually(async () => {
      const { body } = await get(`/v1/models/${slug}`);
      expect(body).toMatchObject({ summary: "Turns wheels. In two numbers.", limits: "None on stairs." });
    });
    model.script.describe = (served) => says(served, [{ slug: `${named.acme}/m${next}`, dtMs: 20, maxHorizon: 8 }]);
    const second = await live({ dt_ms: 50, max_horizon: 4 });
    expect(await shownOf(second.id)).toMatchObject({ dt_ms: 50, max_horizon: 4 });
  });

  it("is trusted no further than a declaration, and not for a model that others serve", async () => {
    model.script.describe = (served) =>
      says(served, [{ slug: `${named.acme}/m${next}`, dtMs: 4e9, maxHorizon: 100_000 }]);
    const wild = await live({ dt_ms: undefined });
    expect(await shownOf(wild.id)).toMatchObject({ dt_ms: 100, max_horizon: 256 });
    model.script.describe = (served) => served.end(16);
    const { offering } = await verify((await declare()).id);
    expect(offering.status).toBe("rejected");

    model.script.describe = undefined;
    const theirs = await app.supply({
      provider: named.theirs,
      model: `${named.theirs}/base`,
      endpoint: model.endpoint,
    });
    expect(theirs).toMatch(/^off_/);
    model.script.describe = (served) => says(served, [{ slug: `${named.theirs}/base`, summary: "Ours now." }]);
    await live({ model: `${named.theirs}/base` });
    expect((await get(`/v1/models/${named.theirs}/base`)).text).not.toContain("Ours now.");
  });
});

describe("GET /v1/supply/providers", () => {
  it("lists and shows only the organization's own", async () => {
    expect((await get("/v1/supply/providers")).body).toMatchObject({
      object: "list",
      data: [{ name: named.acme, contact_email: "ops@acme.example" }],
      has_more: false,
    });
    expect((await get(`/v1/supply/providers/${named.acme}`)).body.name).toBe(named.acme);
    expect((await get(`/v1/supply/providers/${named.acme}`, robot)).status).toBe(404);
    expect((await get("/v1/supply/providers", robot)).body.data).toEqual([]);
  });
});

describe("PATCH /v1/supply/providers/{provider}", () => {
  it("changes only the given fields; data collection applies to routing", async () => {
    const { model: name } = await live();
    const deny = { provider: { data_collection: "deny" } };
    expect((await act(name, deny)).status).toBe(409);
    const changed = await patch(`/v1/supply/providers/${named.acme}`, {
      display_name: "Acme Labs",
      data_collection: "deny",
    });
    expect(changed.body).toMatchObject({
      display_name: "Acme Labs",
      retains_frames: false,
      contact_email: "ops@acme.example",
    });
    expect((await act(name, deny)).status).toBe(200);
    expect((await patch(`/v1/supply/providers/${named.acme}`, { name: "other" })).status).toBe(422);
    expect((await patch(`/v1/supply/providers/${named.acme}`, { display_name: "x" }, robot)).status).toBe(404);
    await patch(`/v1/supply/providers/${named.acme}`, { data_collection: "allow" });
  });

  it("is overridden by an offering's own declaration", async () => {
    const { model: name } = await live({ data_collection: "deny" });
    expect((await act(name, { provider: { data_collection: "deny" } })).status).toBe(200);
  });
});

describe("GET /v1/supply/offerings", () => {
  it("lists the organization's own with their terms, by page, newest first", async () => {
    const ids = [(await declare()).id, (await live()).id, (await declare()).id];
    const pages: { id: string; terms?: { endpoint: string } }[] = [];
    let cursor = "";
    do {
      const { body } = await get(`/v1/supply/offerings?limit=2${cursor && `&cursor=${cursor}`}`);
      pages.push(...body.data);
      cursor = body.next_cursor ?? "";
    } while (cursor !== "");
    expect(pages.map(({ id }) => id).slice(0, 3)).toEqual(ids.toReversed());
    expect(pages.every(({ terms }) => terms?.endpoint === model.endpoint)).toBe(true);
    expect(new Set(pages.map(({ id }) => id)).size).toBe(pages.length);
    expect((await get("/v1/supply/offerings?status=pending&limit=1")).body.data[0].status).toBe("pending");
  });

  it("shows its owner every declared field, and others only public ones", async () => {
    const declared = {
      advertised: { p50_ms: 12, p95_ms: 40, frames_per_s: 25, uptime_30d: 0.99 },
      data_collection: "deny",
      note: "metres and radians, in the base frame",
      bounds: { lowest: [-9, -9], highest: [9, 9] },
      profile: { proprio_dim: 1 },
    };
    const { id } = await live(declared);
    const own = (await get(`/v1/supply/offerings/${id}`)).body;
    expect(own.terms).toMatchObject(declared);
    const bare = (await get(`/v1/supply/offerings/${(await live()).id}`)).body.terms;
    for (const name of ["advertised", "data_collection", "note", "bounds", "profile"])
      expect(bare).not.toHaveProperty(name);
    const theirs = await get(`/v1/supply/offerings/${id}`, robot);
    for (const word of ["advertised", "proprio_dim", "lowest", "data_collection"])
      expect(theirs.text).not.toContain(word);
  });

  it("shows others only live offerings without terms; the operator sees all", async () => {
    const { id } = await live();
    const pending = await declare();
    expect((await get("/v1/supply/offerings", robot)).body.data).toEqual([]);
    const { body, text } = await get("/v1/supply/offerings?mine=false&limit=500", robot);
    const ids = body.data.map((offering: { id: string }) => offering.id);
    expect([ids.includes(id), ids.includes(pending.id), text.includes(model.endpoint)]).toEqual([true, false, false]);
    const all = await app.call("/v1/supply/offerings?limit=500", undefined, { admin: ADMIN_TOKEN });
    expect(all.body.data.map((offering: { id: string }) => offering.id)).toEqual(
      expect.arrayContaining([id, pending.id]),
    );
  });

  it("shows one offering; others see it while it is live", async () => {
    const [{ id }, pending] = [await live(), await declare()];
    expect((await get(`/v1/supply/offerings/${id}`)).body.terms.timeout_s).toBe(ACT_DECLARATION.timeout_s);
    expect((await get(`/v1/supply/offerings/${id}`, robot)).body).not.toHaveProperty("terms");
    expect((await get(`/v1/supply/offerings/${pending.id}`, robot)).status).toBe(404);
    expect((await get("/v1/supply/offerings/off_nobody")).status).toBe(404);
  });

  it("refuses unknown limits and states", async () => {
    for (const query of ["limit=0", "limit=501", "status=dreaming", "mine=perhaps"])
      expect((await get(`/v1/supply/offerings?${query}`)).status, query).toBe(422);
  });
});

describe("GET /v1/supply/offerings/{id}/report", () => {
  it("shows the last probe's results to the owner only", async () => {
    const { id } = await declare();
    expect((await get(`/v1/supply/offerings/${id}/report`)).status).toBe(404);
    const { report } = await verify(id);
    expect((await get(`/v1/supply/offerings/${id}/report`)).body).toEqual(report);
    expect((await get(`/v1/supply/offerings/${id}/report`, robot)).status).toBe(404);
  });

  it("shows the running probe's results through any replica, then the final report", async () => {
    const { id } = await declare();
    const other = await ownGateway({ database: app.database });
    const running = (key = supplier.key) =>
      other.call(`/v1/supply/offerings/${id}/report?running=true`, undefined, { key });
    const { promise: seen, resolve: goOn } = Promise.withResolvers<void>();
    model.script.act = (call, answer) => void seen.then(() => answer(honestSteps(call, 2)));
    const verified = verify(id);
    try {
      await eventually(async () =>
        expect((await running()).body?.checks?.map(({ name }: { name: string }) => name)).toEqual([
          "reachable",
          "region",
        ]),
      );
      expect((await running()).body).toMatchObject({ passed: false, finished_at: 0 });
      expect((await running(robot.key)).status).toBe(404);
      expect((await get(`/v1/supply/offerings/${id}/report`)).status).toBe(404);
    } finally {
      model.script.act = undefined;
      goOn();
    }
    const { offering, report } = await verified;
    expect([offering.status, (await running()).body]).toEqual(["live", report]);
    await other.close();
  });
});

describe("PATCH /v1/supply/offerings/{id}", () => {
  it("changes the cost basis", async () => {
    const { id } = await live();
    const { terms } = (await get(`/v1/supply/offerings/${id}`)).body;
    expect(terms).toMatchObject({ scaledown_s: 60, scaledown_assumed: true });
    expect(terms).not.toHaveProperty("cold_timeout_s");
    const basis = {
      hardware: "a100 40gb",
      cost_usd_per_second: 0.002,
      scaledown_s: 60,
      timeout_s: 7,
      cold_timeout_s: 90,
    };
    const { status, body } = await patch(`/v1/supply/offerings/${id}`, basis);
    expect([status, body.hardware, body.status]).toEqual([200, "A100-40GB", "live"]);
    expect(body.terms).toMatchObject({ cost_usd_per_second: 0.002, scaledown_s: 60, timeout_s: 7, cold_timeout_s: 90 });
    expect(body.terms).not.toHaveProperty("scaledown_assumed");
    expect(await actions(id)).toContain("offering.changed");
    expect(await events(id)).toContain("offering.changed");
  });

  it("refuses all other fields by name", async () => {
    const { id } = await declare();
    const fields = {
      price_per_action_step: 1,
      endpoint: "grpc://elsewhere:1",
      contracts: ["predict"],
      action_spaces: ["joint_pos_7"],
      model: `${named.acme}/other`,
      auth: { type: "bearer", secret: "x" },
      profile: {},
      status: "live",
      region: "eu",
    };
    for (const [field, value] of Object.entries(fields)) {
      const { status, body } = await patch(`/v1/supply/offerings/${id}`, { timeout_s: 9, [field]: value });
      expect([status, body.error.code, body.error.param], field).toEqual([422, "immutable_field", field]);
    }
    expect((await get(`/v1/supply/offerings/${id}`)).body.terms.timeout_s).toBe(ACT_DECLARATION.timeout_s);
    const unknown = await patch(`/v1/supply/offerings/${id}`, { hardwear: "H100" });
    expect([unknown.status, unknown.body.error.code]).toEqual([422, "validation_failed"]);
    for (const bad of [
      { timeout_s: 0 },
      { timeout_s: -1 },
      { scaledown_s: 1e9 },
      { cost_usd_per_second: -1 },
      { hardware: "" },
    ])
      expect((await patch(`/v1/supply/offerings/${id}`, bad)).status, JSON.stringify(bad)).toBe(422);
  });

  it("is restricted to the owner", async () => {
    const { id } = await live();
    const owner = await app.caller(0);
    expect((await patch(`/v1/supply/offerings/${id}`, { timeout_s: 9 }, owner)).status).toBe(404);
  });
});

describe("GET /v1/supply/hardware", () => {
  it("lists accelerators without rates; spelling variants are equal, and unknown ones are priced highest", async () => {
    const { body, text } = await get("/v1/supply/hardware");
    expect(body.data).toEqual(expect.arrayContaining(["A100-40GB", "H100", "L4"]));
    expect(text).not.toMatch(/usd|nano|\d\.\d/);
    for (const hardware of ["A100-40GB", "a100 40gb", "A100_40GB"])
      expect((await declare({ hardware })).hardware).toBe("A100-40GB");
    const costOf = async (hardware: string) => {
      const { id } = await declare({ hardware });
      return (await get(`/v1/supply/offerings/${id}`)).body.terms.cost_usd_per_second;
    };
    const known = await Promise.all(["CPU", "H100", "B200"].map(costOf));
    expect(await costOf("dream-gpu 9000")).toBeGreaterThanOrEqual(Math.max(...known));
    expect(await costOf("GB200")).toBe(await costOf("dream-gpu 9000"));
  });

  it("is a required field of a declaration", async () => {
    const body = { ...ACT_DECLARATION, model: `${named.acme}/bare`, endpoint: model.endpoint, hardware: undefined };
    const { status, body: answer } = await app.call(`/v1/supply/providers/${named.acme}/models`, body, {
      key: supplier.key,
    });
    expect([status, answer.error.param]).toEqual([422, "hardware"]);
  });
});

describe("DELETE /v1/supply/offerings/{id}", () => {
  it("requires force if calls are routed to it, and reports how many run", async () => {
    const { id, model: name } = await live();
    const { status, body } = await remove(id);
    expect([status, body.error.code, body.error.details.in_flight]).toEqual([409, "offering_live", 0]);
    const gone = await remove(id, "?force=true");
    expect([gone.status, gone.body.status]).toEqual([200, "removed"]);
    expect((await act(name)).body.error.code).toBe("model_not_found");
    expect([(await remove(id, "?force=true")).status, (await get(`/v1/supply/offerings/${id}`)).body.status]).toEqual([
      404,
      "removed",
    ]);
    expect(
      (await get("/v1/supply/offerings?limit=500")).body.data.map((offering: { id: string }) => offering.id),
    ).not.toContain(id);
    expect(await events(id)).toEqual(["offering.verified", "offering.removed"]);
    expect(await actions(id)).toEqual(["offering.declared", "offering.verified", "offering.removed"]);
  });

  it("counts only running calls", async () => {
    const { id, model: name } = await live();
    const waiting: (() => void)[] = [];
    model.script.act = (call, answer) => void waiting.push(() => answer(honestSteps(call, 2)));
    const running = Array.from({ length: 3 }, () => act(name));
    const inFlight = async () => (await remove(id)).body.error.details.in_flight;
    await eventually(async () => expect([waiting.length, await inFlight()]).toEqual([3, 3]));
    waiting[0]?.();
    expect((await Promise.race(running)).status).toBe(200);
    await eventually(async () => expect(await inFlight()).toBe(2));
    for (const end of waiting) end();
    model.script.act = undefined;
    await Promise.all(running);
    await eventually(async () => expect(await inFlight()).toBe(0));
  });

  it("lets running calls finish and accepts no new ones", async () => {
    const { id, model: name } = await live();
    const asked = Promise.withResolvers<void>();
    const release = Promise.withResolvers<void>();
    model.script.act = (call, answer) => {
      asked.resolve();
      void release.promise.then(() => answer(honestSteps(call, 2)));
    };
    const running = act(name);
    await asked.promise;
    await eventually(async () => expect((await remove(id)).body.error.details.in_flight).toBe(1));
    const removing = remove(id, "?force=true");
    await eventually(async () => expect((await get(`/v1/supply/offerings/${id}`)).body.status).toBe("draining"));
    const hasty = { provider: { deadline_ms: 200 } };
    await eventually(async () => expect((await act(name, hasty)).body.error.code).toBe("no_live_deployment"));
    release.resolve();
    expect((await running).status).toBe(200);
    expect((await removing).body.status).toBe("removed");
    model.script.act = undefined;
  });

  it("deletes rejected and unverified offerings at once", async () => {
    model.script.act = (_, answer) => answer([]);
    const { id } = await declare();
    expect((await verify(id)).offering.status).toBe("rejected");
    model.script.act = undefined;
    const pending = (await declare()).id;
    for (const each of [id, pending]) {
      const { status, body } = await remove(each);
      expect([status, body.status]).toEqual([200, "removed"]);
      expect((await get(`/v1/supply/offerings/${each}`)).status).toBe(404);
      expect((await app.sql`select 1 from offering where id = ${each}`).length).toBe(0);
      expect(await events(each)).toContain("offering.removed");
    }
  });

  it("creates a new, unverified offering when declared again", async () => {
    const first = await live();
    await remove(first.id, "?force=true");
    const second = await declare({ model: first.model, price_per_action_step: undefined });
    expect([second.id === first.id, second.status, second.price_per_action_step]).toEqual([false, "pending", 0.0001]);
    expect((await act(first.model)).body.error.code).toBe("model_not_found");
    await verify(second.id);
    expect((await act(first.model)).status).toBe(200);
  });

  it("is restricted to the owner and the operator", async () => {
    const { id } = await live();
    const owner = await app.caller(0);
    expect((await remove(id, "?force=true", owner)).status).toBe(404);
    const byAdmin = await app.call(`/v1/supply/offerings/${id}?force=true`, undefined, {
      admin: ADMIN_TOKEN,
      method: "DELETE",
    });
    expect(byAdmin.body.status).toBe("removed");
  });
});
