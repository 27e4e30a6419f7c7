/** Who may call inference: 401, 403 and 429, and what a key's own limits change. */
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { RetryInfoSchema } from "../../../gen/google/rpc/error_details_pb.ts";
import { setKeyDisabled } from "../../../src/store/account/keys.ts";
import { setOrgStatus } from "../../../src/store/account/orgs.ts";
import type { App, Caller } from "../../support/app.ts";
import { bearer, inference, refusalIn } from "../../support/clients.ts";
import { type Market, openMarket } from "../../support/market.ts";
import type { Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import { inWaves } from "../../support/waves.ts";
import { ownGateway } from "../../support/world.ts";

const named = uniqueNames("acme", "other");

let market: Market;
let app: App;
let model: Model;
let caller: Caller;
let arm: string;

beforeAll(async () => {
  market = await openMarket([
    { provider: named.acme, model: `${named.acme}/base` },
    { provider: named.acme, model: `${named.other}/base` },
    {
      provider: named.acme,
      model: `${named.acme}/world`,
      contracts: ["predict", "ground"],
      price_per_frame: 0.001,
      price_per_1k_tokens: 0.01,
    },
  ]);
  ({ app, model, caller } = market);
  arm = market.offerings[1]!;
});
afterEach(() => {
  model.script.act = undefined;
});

const BODY = {
  model: `${named.acme}/base`,
  action_space: "base_twist_2d",
  horizon: 2,
  observations: [{ proprio: [0.5] }],
};
const act = (key: string | undefined, more: object = {}, headers: Record<string, string> = {}) =>
  app.call("/v1/act", { ...BODY, ...more }, { key, headers });

describe("401", () => {
  it("reports a missing key and how to send one", async () => {
    const { status, body, headers } = await act(undefined);
    expect([status, headers.get("www-authenticate")]).toEqual([401, "Bearer"]);
    expect(body.error).toMatchObject({
      code: "missing_api_key",
      type: "authentication_error",
      status: 401,
      param: null,
    });
    expect(body.detail).toBe(body.error.message);
    expect(headers.get("x-request-id")).toBe(body.error.request_id);
  });

  const textOf = async (authorization: string): Promise<string> => {
    const { status, body } = await act(undefined, {}, { authorization });
    expect([status, body.error.code], authorization).toEqual([401, "invalid_api_key"]);
    return body.error.message;
  };

  it("returns the same error for every unknown key", async () => {
    const forged = `${caller.key.slice(0, -1)}${caller.key.endsWith("x") ? "y" : "x"}`;
    expect(await textOf(`Bearer ${forged}`)).toBe(await textOf("Bearer lmb_sk_nobody"));
  });

  it.each(["Bearer ", "Basic abc", "a key alone"])("names the header's form for %j", async (given) => {
    const text = await textOf(given === "a key alone" ? caller.key : given);
    expect(text).toBe("the header must be Authorization: Bearer <key>");
  });

  it("distinguishes disabled and expired keys and suspended organizations", async () => {
    const key = await app.key(caller.org, { expires_at: Math.floor(Date.now() / 1000) + 1000 });
    expect((await act(key)).status).toBe(200);
    const [row] =
      await app.sql`update key set expires_at = now() where org_id = ${caller.org} and expires_at is not null returning id`;
    await expect.poll(async () => (await act(key)).body.error?.code).toBe("key_expired");
    await app.sql`update key set expires_at = null where id = ${row?.id}`;
    await expect.poll(async () => (await act(key)).status).toBe(200);
    await setKeyDisabled(app.sql, row?.id, true);
    await expect.poll(async () => (await act(key)).body.error?.code).toBe("key_disabled");
    const org = await app.caller(1);
    expect((await act(org.key)).status).toBe(200);
    await setOrgStatus(app.sql, org.org, "suspended");
    await expect.poll(async () => (await act(org.key)).body.error?.code).toBe("key_disabled");
  });

  it("returns the same sentence for every malformed key", async () => {
    const facts = { expires_at: Math.floor(Date.now() / 1000) + 1000 };
    const expired = await app.key(caller.org, facts);
    await app.sql`update key set expires_at = now() - interval '1 s' where expires_at = to_timestamp(${facts.expires_at})`;
    const revoked = await app.call(`/v1/orgs/${caller.org}/keys`, {}, { key: caller.key });
    await app.call(`/v1/orgs/${caller.org}/keys/${revoked.body.id}`, undefined, { key: caller.key, method: "DELETE" });
    const forged = `${caller.key.slice(0, -1)}${caller.key.endsWith("x") ? "y" : "x"}`;
    const wrong = [forged, "lmb_sk_", "nonsense", "x".repeat(4000), expired, revoked.body.key];
    const answers = await Promise.all(wrong.map((key) => act(key)));
    expect(answers.map(({ status }) => status)).toEqual(wrong.map(() => 401));
    expect(new Set(answers.map(({ body }) => body.error.message)).size).toBe(1);
    expect(answers.map(({ headers }) => headers.get("www-authenticate"))).toEqual(wrong.map(() => "Bearer"));
    expect(answers.slice(-2).map(({ body }) => body.error.code)).toEqual(["key_expired", "key_disabled"]);
  });

  it("is returned before the body is read", async () => {
    expect((await app.call("/v1/act", "{{{", {})).status).toBe(401);
    expect((await app.call("/v1/act", "x", { headers: { "content-type": "text/plain" } })).status).toBe(401);
  });
});

describe("403", () => {
  it("limits keys to their scopes", async () => {
    const key = await app.key(caller.org, { scopes: ["predict"] });
    const { status, body } = await act(key);
    expect([status, body.error.code, body.error.type]).toEqual([403, "scope_denied", "permission_error"]);
    expect(body.error.details.needed).toEqual(["act"]);
    const predict = { model: `${named.acme}/world`, horizon: 1, observations: [{ proprio: [0] }] };
    expect((await app.call("/v1/predict", predict, { key })).status).toBe(200);
    const ground = { instruction: "a cube", observations: [{ proprio: [0] }] };
    expect((await app.call("/v1/ground", ground, { key })).body.error.code).toBe("scope_denied");
    expect(await refusalIn(inference(app, "grpc").act({ model: `${named.acme}/base` }, bearer(key)))).toMatchObject({
      code: "PermissionDenied",
      reason: "scope_denied",
    });
  });

  it("limits keys to their role", async () => {
    for (const role of ["billing", "viewer", "supplier"]) {
      const { status, body } = await act(await app.key(caller.org, { role }));
      expect([status, body.error.code], role).toEqual([403, "permission_denied"]);
      expect(body.error.details.needed).toEqual(["inference.run"]);
    }
    for (const role of ["owner", "admin", "developer", "operator"])
      expect((await act(await app.key(caller.org, { role }))).status, role).toBe(200);
  });

  it("limits keys to their models without naming those", async () => {
    const key = await app.key(caller.org, { models: [`${named.acme}/*`] });
    expect((await act(key)).status).toBe(200);
    const { status, body, text } = await act(key, { model: `${named.other}/base` });
    expect([status, body.error.code]).toEqual([403, "model_not_in_scope"]);
    expect(text).not.toContain(named.acme);
    expect((await act(key, { models: [`${named.other}/base`] })).body.error).toMatchObject({
      code: "model_not_in_scope",
      param: "models.0",
    });
    const one = await app.key(caller.org, { models: [`${named.other}/base`] });
    expect((await act(one, { model: `${named.other}/base` })).status).toBe(200);
    expect((await act(one)).status).toBe(403);
  });

  it("applies to suffixes, presets and default presets", async () => {
    const key = await app.key(caller.org, { models: [`${named.acme}/*`] });
    for (const suffix of ["nitro", "turbo", "floor", "quality"]) {
      expect((await act(key, { model: `${named.other}/base:${suffix}` })).body.error.code, suffix).toBe(
        "model_not_in_scope",
      );
      expect((await act(key, { model: `${named.acme}/base:${suffix}` })).status, suffix).toBe(200);
    }
    const org = await app.caller(1);
    const inside = await app.key(org.org, { models: [`${named.acme}/*`] });
    const preset = { models: [`${named.other}/base`], provider: { allow_simulated: true } };
    await app.call("/v1/presets/wide", preset, { key: org.key, method: "PUT" });
    expect((await act(inside, { preset: "wide" })).body.error.code).toBe("model_not_in_scope");
    expect((await act(inside)).status).toBe(200);
    await app.call(`/v1/orgs/${org.org}/settings`, { default_preset: "wide" }, { key: org.key, method: "PATCH" });
    expect((await act(inside)).body.error.code).toBe("model_not_in_scope");
    expect((await act(org.key)).status).toBe(200);
  });

  it("applies to every model of an alias", async () => {
    const key = await app.key(caller.org, { models: [`${named.other}/base`] });
    for (let i = 0; i < 5; i++)
      expect((await act(key, { model: "service/auto" })).body.model).toBe(`${named.other}/base`);
    const narrow = await app.key(caller.org, { models: [`${named.acme}/world`] });
    const { status, body } = await act(narrow, { model: "service/auto" });
    expect(status).toBe(409);
    const drop = body.error.details.dropped.find((each: { offering_id: string }) => each.offering_id === arm);
    expect(drop?.reason).toBe("key_scope");
  });
});

describe("429", () => {
  it("refuses calls above the key's rate and says when to retry", async () => {
    const key = await app.key(caller.org, { rate_limit: { requests: 1, window_s: 60, burst: 3 } });
    for (let left = 2; left >= 0; left--) {
      const { status, headers } = await act(key);
      expect([status, headers.get("x-ratelimit-remaining")]).toEqual([200, String(left)]);
    }
    const before = model.acts.length;
    const { status, body, headers } = await act(key);
    expect([status, body.error.code, body.error.type, body.error.retryable]).toEqual([
      429,
      "rate_limit_exceeded",
      "rate_limit_error",
      true,
    ]);
    expect(Number(headers.get("retry-after"))).toBeGreaterThan(30);
    expect(body.error.retry_after).toBe(Number(headers.get("retry-after")));
    expect(Object.fromEntries([...headers].filter(([name]) => name.includes("ratelimit")))).toEqual({
      "ratelimit-policy": '"key";q=1;w=60',
      ratelimit: expect.stringMatching(/^"key";r=0;t=\d+$/),
      "x-ratelimit-limit": "1",
      "x-ratelimit-remaining": "0",
      "x-ratelimit-reset": expect.stringMatching(/^\d{10}$/),
    });
    expect(model.acts.length).toBe(before);
    expect(await refusalIn(inference(app, "grpc").act({ model: `${named.acme}/base` }, bearer(key)))).toMatchObject({
      code: "ResourceExhausted",
      reason: "rate_limit_exceeded",
    });
  });

  it("returns the remaining limit on every transport and status, and when to retry", async () => {
    const key = await app.key(caller.org, { rate_limit: { requests: 1, window_s: 3600, burst: 4 } });
    for (const transport of ["grpc", "connect", "grpc-web"] as const) {
      let head: Headers | undefined;
      await inference(app, transport).act(
        { model: `${named.acme}/base`, actionSpace: "base_twist_2d", horizon: 1, observations: [{ proprio: [0] }] },
        {
          ...bearer(key),
          onHeader: (headers) => {
            head = headers;
          },
        },
      );
      expect(head?.get("x-ratelimit-limit"), transport).toBe("1");
      expect(head?.get("ratelimit-policy"), transport).toBe('"key";q=1;w=3600');
    }
    const wrong = await act(key, { horizon: 1000 });
    expect([wrong.status, wrong.headers.get("x-ratelimit-remaining")]).toEqual([422, "0"]);
    for (const transport of ["grpc", "connect", "grpc-web"] as const) {
      const thrown = await inference(app, transport)
        .act({ model: `${named.acme}/base` }, bearer(key))
        .catch((error) => error);
      expect(thrown.metadata.get("x-ratelimit-remaining"), transport).toBe("0");
      const [info] = thrown.findDetails(RetryInfoSchema);
      expect(Number(info?.retryDelay?.seconds), transport).toBeGreaterThan(60);
    }
  });

  it("counts refused calls, and returns the remaining limit with the refusal", async () => {
    const rate_limit = { requests: 1, window_s: 3600, burst: 4 };
    const key = await app.key(caller.org, { role: "viewer", rate_limit });
    const narrow = await app.key(caller.org, { scopes: ["ground"], rate_limit });
    for (const [each, code] of [
      [key, "permission_denied"],
      [narrow, "scope_denied"],
    ] as const) {
      const { status, body, headers } = await act(each);
      expect([status, body.error.code, headers.get("x-ratelimit-remaining")]).toEqual([403, code, "3"]);
      for (const transport of ["grpc", "connect", "grpc-web"] as const) {
        const thrown = await inference(app, transport)
          .act({ model: `${named.acme}/base` }, bearer(each))
          .catch((error) => error);
        expect(thrown.metadata.get("ratelimit-policy"), transport).toBe('"key";q=1;w=3600');
      }
      expect((await act(each)).status).toBe(429);
    }
  });

  it("cannot be bypassed by other key spellings, made-up addresses, many streams or a second replica", async () => {
    const two = await ownGateway({ database: app.database });
    const key = await app.key(caller.org, { rate_limit: { requests: 1, window_s: 3600, burst: 20 } });
    const grpc = [inference(app, "grpc"), inference(two, "grpc")];
    const body = {
      model: `${named.acme}/base`,
      actionSpace: "base_twist_2d",
      horizon: 1,
      observations: [{ proprio: [0] }],
    };
    const rest = { ...body, actionSpace: undefined, action_space: "base_twist_2d" };
    const answers = await inWaves(1000, async (i) => {
      if (i % 3 === 0)
        return grpc[i % 2]!.act(body, bearer(key)).then(
          () => 200,
          () => 429,
        );
      const authorization = [`Bearer ${key}`, `bearer ${key}`, `BEARER   ${key}  `][i % 3]!;
      const spoofed = {
        "x-forwarded-for": `10.0.${i % 256}.1`,
        forwarded: `for=10.0.0.${i % 256}`,
        "x-real-ip": `10.1.1.${i % 256}`,
      };
      return (await (i % 2 ? two : app).call("/v1/act", rest, { headers: { authorization, ...spoofed } })).status;
    });
    const inside = answers.filter((status) => status === 200).length;
    expect(inside).toBeLessThanOrEqual(21);
    expect(inside).toBeGreaterThanOrEqual(10);
    expect(answers.filter((status) => status !== 200 && status !== 429)).toEqual([]);
    await two.close();
  });

  it("refuses calls above the key's concurrency and accepts the next when one ends", async () => {
    const key = await app.key(caller.org, { rate_limit: { requests: 6000, window_s: 60, concurrency: 2 } });
    const finish = Promise.withResolvers<void>();
    let inside = 0;
    model.script.act = async (_call, answer) => {
      inside++;
      await finish.promise;
      answer([
        [0, 0],
        [0, 0],
      ]);
    };
    const running = [act(key), act(key)];
    await expect.poll(() => inside).toBe(2);
    const { status, body, headers } = await act(key);
    expect([status, body.error.code]).toEqual([429, "concurrency_limit_exceeded"]);
    expect(Number(headers.get("retry-after"))).toBeGreaterThan(0);
    finish.resolve();
    expect((await Promise.all(running)).map((answer) => answer.status)).toEqual([200, 200]);
    expect((await act(key)).status).toBe(200);
  });
});
