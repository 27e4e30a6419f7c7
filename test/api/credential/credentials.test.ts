/** /v1/credentials: storing, listing, verifying and forgetting an organisation's own keys at providers. */
import { beforeAll, describe, expect, it } from "vitest";
import type { App, Caller } from "../../support/app.ts";
import type { Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import { openModel, openWorld } from "../../support/world.ts";

const named = uniqueNames("acme");

let app: App;
let model: Model;
let caller: Caller;

beforeAll(async () => {
  [app, model] = await Promise.all([openWorld(), openModel()]);
  await app.supply({ provider: named.acme, model: `${named.acme}/base`, endpoint: model.endpoint });
  caller = await app.caller(10);
});

const SECRET = "sk-acme-0123456789-wxyz";
const put = (provider: string, body: unknown, key = caller.key) =>
  app.call(`/v1/credentials/${provider}`, body, { key, method: "PUT" });
const list = async (key = caller.key) => (await app.call("/v1/credentials", undefined, { key })).body.data;
const verify = (provider: string, key = caller.key) =>
  app.call(`/v1/credentials/${provider}/verify`, undefined, { key, method: "POST" });
const remove = (provider: string, key = caller.key) =>
  app.call(`/v1/credentials/${provider}`, undefined, { key, method: "DELETE" });

describe("200", () => {
  it("seals a key and shows its last four characters", async () => {
    const { status, body, text } = await put(named.acme, { secret: SECRET, label: "lab", mode: "require" });
    expect([status, body]).toEqual([
      200,
      {
        provider: named.acme,
        label: "lab",
        fingerprint: "wxyz",
        mode: "require",
        created_at: expect.any(Number),
        updated_at: expect.any(Number),
        provider_known: true,
      },
    ]);
    expect(text).not.toContain(SECRET);
    expect(await list()).toEqual([body]);
    const [row] = await app.sql`select * from credential where org_id = ${caller.org}`;
    expect(JSON.stringify(row)).not.toContain(SECRET);
    expect(row?.sealed.includes(SECRET)).toBe(false);
  });

  it("never shows more than a third of a short key", async () => {
    expect((await put("short", { secret: "abcdef" })).body.fingerprint).toBe("ef");
    expect((await put("short", { secret: "ab" })).body.fingerprint).toBe("");
  });

  it("reports that a key for an unknown provider is not used", async () => {
    expect((await put("nobody-yet", { secret: SECRET })).body.provider_known).toBe(false);
  });

  it("verifies that a stored key opens, and records when", async () => {
    await put(named.acme, { secret: SECRET });
    const { status, body } = await verify(named.acme);
    expect([status, body]).toEqual([200, { provider: named.acme, ok: true, checked_at: expect.any(Number) }]);
    expect((await list()).find(({ provider }: { provider: string }) => provider === named.acme).verified_at).toBe(
      body.checked_at,
    );
  });

  it("reports why a key no longer opens", async () => {
    const { key, org } = await app.caller(0);
    await put(named.acme, { secret: SECRET }, key);
    await app.sql`update credential set sealed = set_byte(sealed, length(sealed) - 1, get_byte(sealed, length(sealed) - 1) # 1) where org_id = ${org}`;
    expect((await verify(named.acme, key)).body).toMatchObject({ ok: false, reason: "changed" });
    await app.sql`update credential set sealed = set_byte(sealed, 1, get_byte(sealed, 1) # 1) where org_id = ${org}`;
    expect((await verify(named.acme, key)).body).toMatchObject({ ok: false, reason: "unknown_master_key" });
  });

  it("replaces and deletes a key", async () => {
    const { key, org } = await app.caller(0);
    await put(named.acme, { secret: SECRET }, key);
    await put(named.acme, { secret: "another-key-0123" }, key);
    expect((await list(key)).map(({ fingerprint }: { fingerprint: string }) => fingerprint)).toEqual(["0123"]);
    expect((await remove(named.acme, key)).body).toEqual({ object: "credential", provider: named.acme, deleted: true });
    expect([await list(key), (await remove(named.acme, key)).status]).toEqual([[], 404]);
    const acts = await app.sql`select action from audit where org_id = ${org} and subject = ${named.acme} order by seq`;
    expect(acts.map(({ action }) => action)).toEqual(["credential.stored", "credential.stored", "credential.deleted"]);
  });
});

describe("403 and 404", () => {
  it("refuses the role operator, and returns 404 for another organization's key", async () => {
    await put(named.acme, { secret: SECRET });
    const operator = await app.key(caller.org, { role: "operator" });
    expect((await put(named.acme, { secret: SECRET }, operator)).body.error.code).toBe("permission_denied");
    expect((await list(operator)).length).toBeGreaterThan(0);
    const other = await app.caller(0);
    for (const answer of [await verify(named.acme, other.key), await remove(named.acme, other.key)])
      expect([answer.status, answer.body.error.code]).toEqual([404, "not_found"]);
    expect(await list(other.key)).toEqual([]);
  });
});

describe("422", () => {
  it("refuses an invalid key without echoing it", async () => {
    const faults = [
      { secret: "" },
      { secret: "with space" },
      { secret: "line\nbreak-canary" },
      { secret: "x".repeat(5000) },
      { secret: 5 },
      { api_key: "canary-in-the-wrong-field" },
      { secret: SECRET, mode: "canary-mode" },
      { secret: SECRET, label: { canary: 1 } },
      {},
    ];
    for (const body of faults) {
      const { status, text } = await put(named.acme, body);
      expect(status, JSON.stringify(body)).toBe(422);
      expect(text).not.toMatch(/canary-in|break-canary|canary-mode|with space/);
    }
  });

  it("refuses names that are paths", async () => {
    for (const name of ["..%2Fx", "a%2Fb", "%20", "a%00"])
      expect((await put(name, { secret: SECRET })).status).toBe(422);
  });
});

describe("sealed bytes in the database", () => {
  it("open only in their row, for their organization and provider, and not if an older version is restored", async () => {
    const [a, b] = [await app.caller(0), await app.caller(0)];
    await put(named.acme, { secret: SECRET }, a.key);
    await put(named.acme, { secret: SECRET }, b.key);
    await put("other", { secret: SECRET }, a.key);
    const sealedOf = async (org: string, provider: string): Promise<Buffer> =>
      (await app.sql`select sealed from credential where org_id = ${org} and provider = ${provider}`)[0]!.sealed;
    const first = await sealedOf(a.org, named.acme);
    const plant = (sealed: Buffer, org: string, provider: string) =>
      app.sql`update credential set sealed = ${sealed} where org_id = ${org} and provider = ${provider}`;

    await plant(first, b.org, named.acme);
    expect((await verify(named.acme, b.key)).body.reason).toBe("changed");
    await plant(first, a.org, "other");
    expect((await verify("other", a.key)).body.reason).toBe("changed");
    await put(named.acme, { secret: "a-newer-secret-wxyz" }, a.key);
    await plant(first, a.org, named.acme);
    expect((await verify(named.acme, a.key)).body.reason).toBe("changed");
    await remove(named.acme, a.key);
    await put(named.acme, { secret: "after-the-removal-wxyz" }, a.key);
    await plant(first, a.org, named.acme);
    expect((await verify(named.acme, a.key)).body.reason).toBe("changed");
  });
});
