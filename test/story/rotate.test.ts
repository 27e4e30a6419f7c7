/** A change of the master key while calls run, as an operator makes it. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, it } from "vitest";
import { rotate } from "../../src/services/credential/rotate.ts";
import { credentialContext } from "../../src/store/account/credentials.ts";
import { createVault } from "../../src/vault.ts";
import { ADMIN_TOKEN, type App, openApp } from "../support/app.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";
import { honestSteps, type Model, startModel } from "../support/model.ts";

const [OLD, NEW] = [Buffer.alloc(32, 1), Buffer.alloc(32, 2)];
const ROWS = 5_000;
const TOOL = fileURLToPath(new URL("../../tools/vault-rotate.ts", import.meta.url));

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
async function command(until?: string): Promise<{ code: number | null; text: string }> {
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
  let text = "";
  const hear = (part: Buffer): void => {
    text += part.toString();
    if (until !== undefined && text.includes(until)) child.kill("SIGKILL");
  };
  child.stdout.on("data", hear);
  child.stderr.on("data", hear);
  const [code] = (await once(child, "close")) as [number | null];
  return { code, text };
}

it("loses no call, takes up where it was killed, and leaves nothing that only the old key opens", async () => {
  const before = await open(OLD, [NEW]); // every replica knows the new key before any uses it
  const auth = { type: "bearer", secret: "the-gateways-own" };
  await before.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint, auth });
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
  expect(killed.text).toMatch(/^credentials 0 of 500\d\ncredentials 200 of/);
  const whole = await command();
  running = false;
  await Promise.all([...load, writes]);

  expect([whole.code, whole.text]).toEqual([
    0,
    expect.stringContaining("every secret is sealed under LIMBER_MASTER_KEY"),
  ]);
  expect(outcomes.filter((outcome) => outcome !== "good")).toEqual([]);
  expect(outcomes.length).toBeGreaterThan(20);
  // The second run had less to do than the first.
  expect(Number(/credentials 0 of (\d+)/.exec(whole.text)?.[1])).toBeLessThan(ROWS);

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

it("names what doesn't open under any key, and leaves it", async () => {
  await database.sql`update credential set sealed = set_byte(sealed, 2, 0) where provider = 'p7'`;
  const { code, text } = await command();
  expect([code, text]).toEqual([
    1,
    expect.stringMatching(/credentials: cred_7 does not open.*1 secrets are not sealed/s),
  ]);
});

it("rotates back as easily", async () => {
  const vault = createVault(OLD, [NEW]);
  const [credentials] = await rotate(database.sql, vault, () => {});
  expect(credentials).toMatchObject({ rewrapped: ROWS, faulty: ["cred_7"] });
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
