/** Register, declare, verify. */
import { beforeAll, describe, expect, it } from "vitest";
import { ACT_DECLARATION, type App, type Caller } from "../../support/app.ts";
import type { Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import { startPolicyServer } from "../../support/policy-server.ts";
import { openModel, openWorld, ownGateway } from "../../support/world.ts";

const named = uniqueNames("inside");

let app: App;
let model: Model;
let supplier: Caller;
let robot: Caller;
let next = 0;

beforeAll(async () => {
  [app, model] = await Promise.all([openWorld(), openModel()]);
  supplier = await app.caller(0, { role: "supplier" });
  robot = await app.caller(10);
});

const freshName = (): string => `provider-${next++}`;
const register = (body: object, { key } = supplier) => app.call("/v1/supply/providers", body, { key });
const declare = (provider: string, more: object = {}, { key } = supplier) =>
  app.call(
    `/v1/supply/providers/${provider}/models`,
    { ...ACT_DECLARATION, model: `${provider}/base`, endpoint: model.endpoint, ...more },
    { key },
  );
const verify = (id: string, { key } = supplier) => app.call(`/v1/supply/offerings/${id}/verify`, {}, { key });
const registered = async (): Promise<string> => (await register({ name: freshName() })).body.name;
const act = (name: string) =>
  app.call(
    "/v1/act",
    { model: name, action_space: "base_twist_2d", horizon: 2, observations: [{ proprio: [0] }] },
    { key: robot.key },
  );

const checkOf = ({ checks }: { checks: { name: string }[] }, wanted: string) =>
  checks.find(({ name }) => name === wanted);

describe("POST /v1/supply/providers", () => {
  it("creates a provider for the calling organization", async () => {
    const name = freshName();
    const body = {
      name,
      display_name: "Acme",
      contact_email: "ops@acme.example",
      regions: ["eu", "us"],
      data_collection: "deny",
      homepage: "https://acme.example",
    };
    const answer = await register(body);
    expect([answer.status, answer.body]).toEqual([
      201,
      {
        id: expect.stringMatching(/^prov_/),
        name,
        display_name: "Acme",
        standing: "community",
        regions: ["eu", "us"],
        retains_frames: false,
        created: expect.any(Number),
      },
    ]);
  });

  it("assigns a name once", async () => {
    const name = await registered();
    const other = await app.caller(0);
    for (const who of [supplier, other]) {
      const { status, body } = await register({ name }, who);
      expect([status, body.error.code, body.error.type]).toEqual([409, "already_exists", "conflict_error"]);
    }
  });

  it("requires a name that fits into a path, and the permission", async () => {
    for (const name of ["A", "a b", "ümlaut", "-x", "x/y", "x".repeat(65), ""])
      expect((await register({ name })).status, name).toBe(422);
    const developer = await app.key(supplier.org, { role: "developer" });
    const { status, body } = await register({ name: freshName() }, { ...supplier, key: developer });
    expect([status, body.error.code]).toEqual([403, "permission_denied"]);
    expect((await app.call("/v1/supply/providers", { name: freshName() })).status).toBe(401);
  });
});

describe("POST /v1/supply/providers/{provider}/models", () => {
  it("declares a pending, unroutable offering without showing its secret", async () => {
    const provider = await registered();
    const secret = "sk-very-secret-token";
    const { status, body, text } = await declare(provider, {
      precision: "bf16",
      region: "eu",
      embodiments: ["mobile-base"],
      max_horizon: 64,
      parameters: ["seed"],
      auth: { type: "bearer", secret },
    });
    expect(status).toBe(201);
    expect(body).toEqual({
      id: expect.stringMatching(/^off_/),
      model: `${provider}/base`,
      provider,
      runtime: "limber-policy",
      status: "pending",
      contracts: ["act"],
      action_spaces: ["base_twist_2d"],
      embodiments: ["mobile-base"],
      precision: "bf16",
      region: "eu",
      hardware: "CPU",
      price_per_action_step: 0.0001,
      max_horizon: 64,
      dt_ms: ACT_DECLARATION.dt_ms,
      parameters: ["seed"],
      created: expect.any(Number),
    });
    expect(text).not.toContain(secret);
    expect(text).not.toContain(model.endpoint);
    const [row] = await app.sql`select row_to_json(offering)::text as text from offering where id = ${body.id}`;
    expect(row?.text).not.toContain(secret);
    expect((await act(`${provider}/base`)).body.error.code).toBe("model_not_found");
  });

  it("uses the default price per step", async () => {
    const provider = await registered();
    const { body } = await declare(provider, { price_per_action_step: undefined });
    expect(body.price_per_action_step).toBe(0.0001);
  });

  it("refuses impossible declarations by field", async () => {
    const provider = await registered();
    for (const [more, path] of [
      [{ hardware: undefined }, "hardware"],
      [{ model: "no-owner" }, "model"],
      [{ runtime: "telepathy" }, "runtime"],
      [{ runtime: "simulated" }, "runtime"],
      [{ contracts: [] }, "contracts"],
      [{ contracts: ["act", "act"] }, "contracts"],
      [{ contracts: ["evaluate"] }, "contracts"],
      [{ contracts: ["predict"], runtime: "openpi-ws", endpoint: "ws://127.0.0.1:1", price_per_frame: 1 }, "contracts"],
      [{ action_spaces: [] }, "action_spaces"],
      [{ action_spaces: ["legs_9"] }, "action_spaces.0"],
      [{ embodiments: ["arm", "mobile_base"] }, "embodiments.1"],
      [{ action_spaces: ["continuous_nd"] }, "action_dim"],
      [{ action_dim: 3 }, "action_dim"],
      [{ contracts: ["predict"] }, "price_per_frame"],
      [{ contracts: ["ground"] }, "price_per_1k_tokens"],
      [{ price_per_action_step: -1 }, "price_per_action_step"],
      [{ timeout_s: 0 }, "timeout_s"],
      [{ colour: "red" }, "colour"],
    ] as const) {
      const { status, body } = await declare(provider, more);
      expect([status, body.error?.param], JSON.stringify(more)).toEqual([422, path]);
    }
  });

  it("refuses addresses that the wire cannot dial", async () => {
    const provider = await registered();
    for (const endpoint of [
      "http://127.0.0.1:1",
      "grpc://",
      "file:///etc/passwd",
      "grpc://user:secret@host:1",
      "nonsense",
    ]) {
      const { status, body, text } = await declare(provider, { endpoint });
      expect([status, body.error.code, body.error.param], endpoint).toEqual([422, "address_refused", "endpoint"]);
      expect(text).not.toContain("secret@");
    }
  });

  it("returns 404 for another organization's provider", async () => {
    const provider = await registered();
    const stranger = await app.caller(0);
    for (const name of [provider, "nobody"]) {
      const { status, body } = await declare(name, {}, stranger);
      expect([status, body.error.code]).toEqual([404, "not_found"]);
    }
  });
});

describe("POST /v1/supply/offerings/{offering_id}/verify", () => {
  it("makes a passing offering routable at once and reports the checks", async () => {
    for (let round = 0; round < 5; round++) {
      const provider = await registered();
      const { body: offering } = await declare(provider);
      const { status, body } = await verify(offering.id);
      expect([status, body.offering.status]).toEqual([200, "live"]);
      expect((await act(`${provider}/base`)).status).toBe(200);
      expect(body.report).toMatchObject({
        id: expect.stringMatching(/^rep_/),
        offering_id: offering.id,
        passed: true,
        started_at: expect.any(Number),
        finished_at: expect.any(Number),
        measured: {
          action_dim: 2,
          p50_ms: expect.any(Number),
          p95_ms: expect.any(Number),
          cold_ms: expect.any(Number),
        },
      });
      expect(body.report.checks.map(({ name }: { name: string }) => name)).toEqual([
        "reachable",
        "region",
        "action_shape",
        "answers_differ",
        "steady",
        "longest_horizon",
        "large_picture",
        "wrong_input_refused",
        "latency",
      ]);
    }
  });

  it("keeps a live offering live while it is verified again", async () => {
    const provider = await registered();
    const { body: offering } = await declare(provider);
    await verify(offering.id);
    expect((await verify(offering.id)).body.offering.status).toBe("live");
  });

  it("lets a bang-bang policy live, which returns the same action for near states", async () => {
    const { endpoint } = await openModel({
      act({ horizon, observations }, answer) {
        const force = (observations.at(-1)?.proprio ?? []).slice(0, 2).every((value) => value > 0) ? 1 : -1;
        answer(Array.from({ length: horizon }, () => [force, 0]));
      },
    });
    const { body: offering } = await declare(await registered(), { endpoint });
    const { status, body, text } = await verify(offering.id);
    expect([status, body.offering.status], text).toEqual([200, "live"]);
  });

  it("rejects a failing offering for good, with a report on what to fix", async () => {
    const provider = await registered();
    const server = await startPolicyServer();
    const good = [
      [0, 0],
      [0, 0],
      [0, 0],
      [0, 0],
    ];
    for (const [steps, check, words] of [
      [good.map((step) => [...step, 0]), "action_shape", /3 numbers per step.* 2/],
      [good.map(() => [Number.NaN, 0]), "action_shape", /not finite/],
      [[...good, [0, 0]], "action_shape", /another number/],
      [good, "answers_differ", /stub/],
    ] as const) {
      server.behave({ kind: "steps", steps });
      const { body: offering } = await declare(provider, { endpoint: server.endpoint });
      const { status, body } = await verify(offering.id);
      expect([status, body.offering.status, body.report.passed]).toEqual([200, "rejected", false]);
      expect(body.report.checks.find(({ name }: { name: string }) => name === check)).toMatchObject({
        passed: false,
        required: true,
        detail: expect.stringMatching(words),
      });
      const again = await verify(offering.id);
      expect([again.status, again.body.error.code]).toEqual([409, "offering_not_verifiable"]);
    }
    expect((await act(`${provider}/base`)).body.error.code).toBe("model_not_found");
    await server.close();
  });

  it("sends the secret only to the model's server", async () => {
    const provider = await registered();
    const server = await startPolicyServer();
    const [one, other] = [Array(4).fill([0, 0]), Array(4).fill([1, 0])];
    server.behave({ kind: "steps", steps: one }, { kind: "steps", steps: other }, { kind: "steps", steps: one });
    const auth = { type: "api_key", secret: "sk-very-secret-token" };
    const { body: offering } = await declare(provider, { endpoint: server.endpoint, auth });
    const { body, text } = await verify(offering.id);
    expect(body.offering.status).toBe("live");
    const shown = new Set(server.acts.map(({ headers }) => headers.authorization));
    expect([...shown]).toEqual(["Api-Key sk-very-secret-token", expect.stringMatching(/^Api-Key not-req_/)]);
    expect(checkOf(body.report, "auth_enforced")).toMatchObject({
      passed: false,
      required: false,
      next_step: expect.stringMatching(/401/),
    });
    expect(text).not.toContain("sk-very-secret-token");
    await server.close();
  });

  it("returns 404 for another organization's offering", async () => {
    const { body: offering } = await declare(await registered());
    const stranger = await app.caller(0);
    for (const id of [offering.id, "off_nobody", "%00", "x".repeat(900)]) {
      const { status, body } = await verify(id, stranger);
      expect([404, 422], `${id} ${body?.error?.code}`).toContain(status);
    }
  });
});

describe("where private addresses are not allowed", () => {
  it("supply at one is refused before a connection is made", async () => {
    const strict = await ownGateway({ allowPrivateAddresses: false });
    const { key } = await strict.caller(0);
    await strict.call("/v1/supply/providers", { name: named.inside }, { key });
    for (const host of [
      "127.0.0.1:1",
      "localhost:1",
      "[::1]:1",
      "10.0.0.1:1",
      "169.254.169.254",
      "192.168.1.1:50051",
      "[fd00::1]:1",
    ]) {
      const body = { ...ACT_DECLARATION, model: `${named.inside}/base`, endpoint: `grpc://${host}` };
      const answer = await strict.call(`/v1/supply/providers/${named.inside}/models`, body, { key });
      if (answer.status === 201) {
        const verified = await strict.call(`/v1/supply/offerings/${answer.body.id}/verify`, {}, { key });
        expect(verified.body.report, host).toMatchObject({
          passed: false,
          checks: [{ name: "reachable", passed: false }],
        });
      } else expect([answer.status, answer.body.error.code], host).toEqual([422, "address_refused"]);
    }
    await strict.close();
  });
});
