import { crc32 } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { KeyCache } from "../../src/store/account/caches.ts";
import {
  createKey,
  DEFAULT_RATE_LIMIT,
  findKey,
  findKeyByHash,
  listKeys,
  setKeyDisabled,
  spendingOf,
} from "../../src/store/account/keys.ts";
import { createOrg, findOrg, setOrgStatus } from "../../src/store/account/orgs.ts";
import { hashSecret, isSecret, newSecret } from "../../src/store/account/secret.ts";
import { Notifications } from "../../src/store/database/notifications.ts";
import { setClock } from "../support/clocks.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { call, estimate, makePayer, openReplica, SettableWall } from "../support/money.ts";

let db: FreshDatabase;
beforeAll(async () => {
  db = await freshDatabase();
});
afterAll(() => db.close());

const newOrg = async (): Promise<string> => (await createOrg(db.sql, { name: "test" })).id;

describe("a key's secret", () => {
  it("has the brand's prefix, 12 letters that identify it, 30 random letters and a checksum", () => {
    const { secret, prefix } = newSecret();
    expect(secret).toMatch(/^lmb_sk_[0-9A-Za-z]{12}_[0-9A-Za-z]{36}$/);
    expect(secret.startsWith(`${prefix}_`)).toBe(true);
    expect(prefix).toHaveLength("lmb_sk_".length + 12);
  });

  it("is unique, and uses every letter of its alphabet", () => {
    const secrets = Array.from({ length: 2_000 }, () => newSecret().secret);
    expect(new Set(secrets).size).toBe(secrets.length);
    expect(new Set(secrets.join("").replaceAll("lmb_sk_", "").replaceAll("_", "")).size).toBe(62);
  });

  it("is validated without the database: no letter of it can be changed", () => {
    const { secret } = newSecret();
    expect(isSecret(secret)).toBe(true);
    for (let at = 0; at < secret.length; at++) {
      expect(isSecret(secret.slice(0, at) + (secret[at] === "A" ? "B" : "A") + secret.slice(at + 1))).toBe(false);
    }
    for (const garbage of ["", "lmb_sk_", `${secret}A`, secret.slice(1), `${secret}\n`, "x".repeat(100_000)]) {
      expect(isSecret(garbage)).toBe(false);
    }
  });

  it("contains its CRC32 in base 62", () => {
    const { secret } = newSecret();
    const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const check = [...secret.slice(-6)].reduce((sum, letter) => sum * 62 + letters.indexOf(letter), 0);
    expect(check).toBe(crc32(secret.slice(0, -6)));
  });
});

describe("a key", () => {
  it("has the gateway's defaults without settings", async () => {
    const { key } = await createKey(db.sql, { orgId: await newOrg() });
    expect(key).toMatchObject({
      role: "developer",
      scopes: [],
      models: [],
      environment: "simulation",
      disabled: false,
      orgSuspended: false,
      expiresAt: undefined,
      budget: undefined,
      rateLimit: { requests: 6_000, windowS: 60, burst: 600, concurrency: 64 },
    });
  });

  it("is read from the store unchanged, by its secret's hash and by its name", async () => {
    const orgId = await newOrg();
    const { key, secret } = await createKey(db.sql, {
      orgId,
      name: "arm 7",
      role: "operator",
      scopes: ["act", "ground"],
      models: ["o/n", 'p/*", {}'],
      environment: "hardware",
      expiresAt: 2_000_000_000,
      budget: { limitMicro: 5_000_000, interval: "weekly" },
      rateLimit: { requests: 10, burst: 2 },
    });
    expect(key).toMatchObject({ scopes: ["act", "ground"], models: ["o/n", 'p/*", {}'], expiresAt: 2_000_000_000 });
    expect(key.rateLimit).toEqual({ ...DEFAULT_RATE_LIMIT, requests: 10, burst: 2 });
    expect(await findKeyByHash(db.sql, hashSecret(secret))).toEqual(key);
    expect(await findKey(db.sql, key.id)).toEqual(key);
    expect(await listKeys(db.sql, orgId, { limit: 10 })).toEqual([key]);
    expect(await findKeyByHash(db.sql, hashSecret(newSecret().secret))).toBeUndefined();
  });

  it("is stored without its secret", async () => {
    const { secret } = await createKey(db.sql, { orgId: await newOrg() });
    const rows = await db.sql<{ text: string }[]>`select key::text as text from key`;
    const random = secret.slice(-36);
    for (const { text } of rows) {
      for (const form of [random, Buffer.from(secret).toString("hex"), Buffer.from(secret).toString("base64")]) {
        expect(text).not.toContain(form);
      }
    }
  });

  it("shows its spending by interval, and the remainder of its budget", async () => {
    const tuesday = new SettableWall(Date.UTC(2026, 4, 12, 12));
    setClock(tuesday);
    const payer = await makePayer(db.sql, 1_000_000, { limitMicro: 100_000, interval: "weekly" });
    const { leaser, close } = await openReplica(db.url, "one");
    await call(leaser, payer, 1_000);
    await close();
    const at = (month: number, day: number) => spendingOf(db.sql, payer.keyId, Date.UTC(2026, month, day, 23));
    expect(await at(4, 12)).toEqual({
      dayMicro: 1_000,
      weekMicro: 1_000,
      monthMicro: 1_000,
      totalMicro: 1_000,
      heldMicro: 0,
      budget: { limitMicro: 100_000, interval: "weekly", spentMicro: 1_000, resetsAt: Date.UTC(2026, 4, 18) / 1000 },
    });
    expect(await at(4, 13)).toMatchObject({ dayMicro: 0, weekMicro: 1_000 });
    expect(await at(4, 18)).toMatchObject({ weekMicro: 0, monthMicro: 1_000, budget: { spentMicro: 0 } });
    expect(await at(5, 1)).toMatchObject({ monthMicro: 0, totalMicro: 1_000 });
  });

  it("distinguishes the credit reserved for running calls from its spending", async () => {
    const payer = await makePayer(db.sql, 1_000_000);
    const { leaser, close } = await openReplica(db.url, "one");
    const hold = await leaser.hold(payer, 5_000, estimate(5_000));
    expect(await spendingOf(db.sql, payer.keyId, Date.now())).toMatchObject({
      totalMicro: 0,
      heldMicro: 5_000,
      budget: undefined,
    });
    await hold.release();
    await close();
  });
});

describe("keys in memory", () => {
  const openCache = async () => {
    const notifications = await Notifications.open(db.url);
    let queries = 0;
    const sql = new Proxy(db.sql, {
      apply: (target, self, args) => {
        queries += 1;
        return Reflect.apply(target, self, args);
      },
    });
    const cache = new KeyCache(sql, notifications);
    const close = async (): Promise<void> => {
      cache.close();
      await notifications.close();
    };
    return { cache, close, queries: () => queries };
  };

  it("are found at once and without the database from the second call on", async () => {
    // Before the cache listens: a notice of the key's own making would let it be forgotten.
    const { key, secret } = await createKey(db.sql, { orgId: await newOrg() });
    const { cache, close, queries } = await openCache();
    expect((await cache.find(secret))?.id).toBe(key.id);
    const before = queries();
    expect(await cache.find(secret)).toEqual(key);
    expect(queries()).toBe(before);
    await close();
  });

  it("refuse invalid secrets without a database query", async () => {
    const { cache, close, queries } = await openCache();
    const { secret } = newSecret();
    expect(await cache.find(`${secret.slice(0, -1)}${secret.endsWith("A") ? "B" : "A"}`)).toBeUndefined();
    expect(queries()).toBe(0);
    await close();
  });

  it("query an unknown key once, and include it as soon as it is created", async () => {
    const { cache, close, queries } = await openCache();
    const { secret } = newSecret();
    expect(await cache.find(secret)).toBeUndefined();
    const before = queries();
    expect(await cache.find(secret)).toBeUndefined();
    expect(queries()).toBe(before);
    const org = await newOrg();
    await db.sql`
      insert into key (id, org_id, name, prefix, hash, role, rate_requests, rate_window_s, rate_burst, rate_concurrency)
      values ('key_known', ${org}, '', '', ${hashSecret(secret)}, 'viewer', 1, 1, 1, 1)`;
    await expect.poll(async () => (await cache.find(secret))?.id).toBe("key_known");
    await close();
  });

  it("reflect a disabled key and a suspended organization", async () => {
    const { cache, close } = await openCache();
    const orgId = await newOrg();
    const { key, secret } = await createKey(db.sql, { orgId });
    await cache.find(secret);
    expect(await setKeyDisabled(db.sql, key.id, true)).toBe(true);
    await expect.poll(async () => (await cache.find(secret))?.disabled).toBe(true);
    await setKeyDisabled(db.sql, key.id, false);
    expect(await setOrgStatus(db.sql, orgId, "suspended")).toBe(true);
    expect(await findOrg(db.sql, orgId)).toMatchObject({ status: "suspended" });
    await expect.poll(async () => (await cache.find(secret))?.orgSuspended).toBe(true);
    await close();
  });

  // Each where a notice was lost.
  it.each([
    { order: "behind", wantedFor: "call", ageMs: 6_000 },
    { order: "before", wantedFor: "call", ageMs: 20_000 },
    { order: "before", wantedFor: "stop", ageMs: 20_000 },
    { order: "behind", wantedFor: "urgentStop", ageMs: 299_000 },
    { order: "before", wantedFor: "urgentStop", ageMs: 301_000 },
  ] as const)("are read again $order a use as $wantedFor after $ageMs ms", async ({ order, wantedFor, ageMs }) => {
    const clock = new ManualClock();
    setClock(clock);
    const { secret, key } = await createKey(db.sql, { orgId: await newOrg() });
    const { cache, close, queries } = await openCache();
    expect((await cache.find(secret))?.id).toBe(key.id);
    await clock.advance(ageMs);
    const before = queries();
    const told: unknown[] = [];
    const finding = cache.find(secret, wantedFor).then((found) => told.push(found));
    // The database can't have said anything after these.
    for (let turn = 0; turn < 10; turn++) await Promise.resolve();
    expect(told).toEqual(order === "behind" ? [key] : []);
    await finding;
    expect(told).toEqual([key]);
    expect(queries()).toBeGreaterThan(before);
    await close();
  });
});
