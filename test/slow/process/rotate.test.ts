/** A change of the master key while calls run, as an operator makes it. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, it } from "vitest";
import { rotate } from "../../../src/services/credential.ts";
import { credentialContext } from "../../../src/store/account/settings.ts";
import { createVault } from "../../../src/vault.ts";
import { ADMIN_TOKEN, type App, openApp } from "../../support/app.ts";
import { type FreshDatabase, freshDatabase } from "../../support/database.ts";
import { robot } from "../../support/loop-client.ts";
import { honestSteps, type Model, startModel } from "../../support/model.ts";

const [OLD, NEW] = [Buffer.alloc(32, 1), Buffer.alloc(32, 2)];
const AUTH = { type: "bearer", secret: "the-gateways-own" };
const ROWS = 5_000;
const TOOL = fileURLToPath(new URL("../../../tools/vault-rotate.ts", import.meta.url));

let database: FreshDatabase;
let model: Model;
const apps: App[] = [];

beforeAll(async () => {
  [database, model] = await Promise.all([freshDatabase(), startModel()]);
  model.script.act = (call, answer, served) => {
    // The provider knows its own customers only.
    if (/^Bearer (own-key|the-gateways-own)$/.test(String(served.headers.authorization))) answer(honestSteps(call, 2));
    else served.end(16);
  };
});
afterAll(async () => {
  for (const app of apps) await app.close();
  await model.close();
  await database.close();
});

async function open(masterKey: Buffer, otherMasterKeys: Buffer[]): Promise<App> {
  const app = await openApp({ database, masterKey, otherMasterKeys });
  apps.push(app);
  return app;
}

/** Runs the operator's command; `until` ends it as soon as it has printed this. */
async function command(until?: string): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const { PATH = "" } = process.env;
  const child = spawn(process.execPath, [TOOL], {
    env: {
      PATH,
      DATABASE_URL: database.url,
      SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
      LIMBER_MASTER_KEY: NEW.toString("base64"),
      LIMBER_MASTER_KEY_PREVIOUS: OLD.toString("base64"),
    },
  });
  // Two pipes have no order between them.
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (part) => {
    stdout += part;
    if (until !== undefined && stdout.includes(until)) child.kill("SIGKILL");
  });
  child.stderr.on("data", (part) => {
    stderr += part;
  });
  const [code] = (await once(child, "close")) as [number | null];
  return { code, stdout, stderr };
}

it("key rotation loses no call, resumes after a kill, and leaves nothing that only the old key opens", async () => {
  const before = await open(OLD, [NEW]); // every replica knows the new key before any uses it
  await before.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint, auth: AUTH });
  const caller = await before.caller(100, {
    role: "owner",
    rate_limit: { requests: 1_000_000, window_s: 1, burst: 1_000_000 },
  });
  const secret = { secret: "own-key", mode: "require" };
  await before.call("/v1/credentials/acme", secret, { key: caller.key, method: "PUT" });
  await plant((await before.caller(0)).org);
  const after = await open(NEW, [OLD]);

  let running = true;
  const outcomes: unknown[] = [];
  const body = { model: "acme/base", action_space: "base_twist_2d", horizon: 1, observations: [{ proprio: [0.5] }] };
  const load = [before, after].flatMap((app) =>
    [1, 2].map(async () => {
      while (running) {
        const { status, body: answer } = await app.call("/v1/act", body, { key: caller.key });
        outcomes.push(status === 200 && answer.route.byok === true ? "good" : answer);
      }
    }),
  );
  const writes = (async () => {
    while (running) await after.call("/v1/credentials/acme", secret, { key: caller.key, method: "PUT" });
  })();

  const killed = await command(`credentials 1000 of`);
  expect(killed.stdout).toMatch(/^credentials 0 of 500\d\ncredentials 200 of/);
  const whole = await command();
  running = false;
  await Promise.all([...load, writes]);

  expect(whole).toEqual({
    code: 0,
    stdout: expect.stringContaining("every secret is sealed under LIMBER_MASTER_KEY"),
    stderr: "",
  });
  expect(outcomes.filter((outcome) => outcome !== "good")).toEqual([]);
  expect(outcomes.length).toBeGreaterThan(20);
  // The second run had less to do than the first.
  expect(Number(/credentials 0 of (\d+)/.exec(whole.stdout)?.[1])).toBeLessThan(ROWS);

  const alone = await open(NEW, []);
  const verified = await alone.call("/v1/credentials/acme/verify", undefined, { key: caller.key, method: "POST" });
  expect(verified.body.ok).toBe(true);
  const { body: answer } = await alone.call("/v1/act", body, { key: caller.key });
  expect(answer.route.byok).toBe(true);
  const vault = createVault(NEW);
  const rows = await database.sql`select id, org_id, provider, version, sealed from credential`;
  expect(rows).toHaveLength(ROWS + 1);
  for (const { id, orgId, provider, version, sealed } of rows)
    expect(vault.open(sealed, credentialContext({ id, orgId, provider, version }))).toBe("own-key");
});

it("key rotation names what no key opens, and leaves it", async () => {
  await database.sql`update credential set sealed = set_byte(sealed, 2, 0) where provider = 'p7'`;
  expect(await command()).toEqual({
    code: 1,
    stdout: expect.stringMatching(/\n1 secrets are not sealed/),
    stderr: expect.stringMatching(/^credentials: cred_7 does not open .*\n$/),
  });
});

it("key rotation can be reversed", async () => {
  const vault = createVault(OLD, [NEW]);
  const [credentials] = await rotate(database.sql, vault, () => {});
  expect(credentials).toMatchObject({ rewrapped: ROWS, faulty: ["cred_7"] });
});

it("key rotation keeps secrets of zero-retention calls: a repeat is replayed, and a loop continues", async () => {
  const own = await freshDatabase();
  const at = async (masterKey: Buffer, otherMasterKeys: Buffer[]) =>
    openApp({ database: own, masterKey, otherMasterKeys });
  const before = await at(OLD, [NEW]);
  const about = { data_collection: "deny" };
  await before.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint, auth: AUTH, about });
  const { org, key } = await before.caller(10, { role: "owner" });
  await before.call(`/v1/orgs/${org}/settings`, { zdr: true }, { key, method: "PATCH" });
  const body = { model: "acme/base", action_space: "base_twist_2d", horizon: 1, observations: [{ proprio: [0.5] }] };
  const keyed = { key, headers: { "idempotency-key": "once" } };
  const first = await before.call("/v1/act", body, keyed);
  expect(first.status, first.text).toBe(200);
  const open = {
    model: "acme/base",
    actionSpace: "base_twist_2d",
    horizon: 200,
    provider: { sessionId: "arm", deadlineMs: 10_000 },
  };
  const loop = robot(before, key, open);
  await loop.expect("opened");
  loop.observe(1);
  const { chunkId } = await loop.expect("chunk");
  loop.halfClose();
  await loop.rest();
  await expect.poll(() => own.sql`select from loop_session where chunk is not null`).toHaveLength(1);
  await before.close();
  await (await at(NEW, [OLD])).close();

  const rotations = await rotate(own.sql, createVault(NEW, [OLD]), () => {});
  const kinds = rotations.filter(({ rewrapped }) => rewrapped > 0);
  expect(kinds.map(({ name, rewrapped, faulty }) => [name, rewrapped, faulty])).toEqual([
    ["offerings", 1, []],
    ["answers under idempotency keys", 1, []],
    ["last chunks of loops", 1, []],
    ["key of request hashes", 1, []],
  ]);

  const after = await at(NEW, []);
  const again = await after.call("/v1/act", body, keyed);
  expect(again.body.id).toBe(first.body.id);
  const other = await after.call("/v1/act", { ...body, horizon: 2 }, keyed);
  expect([other.status, other.body.error?.code]).toEqual([409, "idempotency_conflict"]);
  const next = robot(after, key, open);
  expect(await next.expect("opened")).toMatchObject({ resumed: true, resumedStep: 1 });
  next.observe(1);
  expect(await next.expect("chunk")).toMatchObject({ replayed: true, chunkId });
  next.leave();
  await after.close();
  await own.close();
});

async function plant(org: string): Promise<void> {
  const vault = createVault(OLD);
  const rows = Array.from({ length: ROWS }, (_, i) => {
    const place = { id: `cred_${i}`, orgId: org, provider: `p${i}`, version: 1 };
    return {
      id: place.id,
      provider: place.provider,
      sealed: vault.seal("own-key", credentialContext(place)).toString("hex"),
    };
  });
  await database.sql`
    insert into credential (id, org_id, provider, sealed, fingerprint)
    select id, ${org}, provider, decode(sealed, 'hex'), '' from json_to_recordset(${JSON.stringify(rows)}::text::json)
      as r (id text, provider text, sealed text)`;
}
