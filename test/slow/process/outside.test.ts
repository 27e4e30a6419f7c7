/** A gateway on an outside database: what its first start brings, what it notices there, and what a worker serves. */
import { execFile } from "node:child_process";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";
import { startPostgres } from "../../../src/embedded/postgres.ts";
import { importCatalog } from "../../../src/store/supply/catalog.ts";
import { ADMIN_TOKEN, callRest, openApp } from "../../support/app.ts";
import { type FreshDatabase, freshDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { failToStart, scratchDir, startGateway } from "../../support/gateway.ts";

const run = promisify(execFile);
const KEY = Buffer.alloc(32, 1);
const LAST_KEY = Buffer.alloc(32, 3);
const OTHER_KEY = Buffer.alloc(32, 2);
const ENV = { SERVICE_ADMIN_TOKEN: ADMIN_TOKEN, LIMBER_MASTER_KEY: KEY.toString("base64"), LOG_LEVEL: "warn" };

let database: FreshDatabase;
beforeAll(async () => {
  database = await freshDatabase();
});
afterAll(() => database.close());

it("a gateway on a fresh database is ready with the shipped catalog, without another command", async () => {
  const env = { ...ENV, DATABASE_URL: database.url, LIMBER_IMPORT_CATALOG: "true", LIMBER_REFERENCE_SUPPLY: "false" };
  const [first, second] = await Promise.all([startGateway(env), startGateway(env)]);
  for (const gateway of [first, second]) {
    expect((await callRest(gateway.url, "/ready")).status).toBe(200);
    const { body } = await callRest(gateway.url, "/v1/models?limit=1");
    expect(body.total).toBeGreaterThan(1_000);
    expect(gateway.stderr()).toBe("");
    expect((await gateway.end("SIGTERM")).code).toBe(0);
  }
});

it("a gateway keeps a catalog that an operator imported, and imports none if that is disabled", async () => {
  const folder = mkdtempSync(join(tmpdir(), "limber-catalog-"));
  const shipped = join(import.meta.dirname, "../../../data");
  copyFileSync(join(shipped, "taxonomy.json"), join(folder, "taxonomy.json"));
  for (const name of ["models.jsonl", "scenarios.jsonl", "literature.jsonl"]) {
    const [line = ""] = readFileSync(join(shipped, name), "utf8").split("\n", 1);
    writeFileSync(join(folder, name), `${line}\n`);
  }
  const own = await freshDatabase();
  const { version } = await importCatalog(own.sql, folder);
  await (await openApp({ database: own, importCatalog: true })).close();
  expect(await own.sql`select version from catalog`).toMatchObject([{ version }]);
  await own.close();
  rmSync(folder, { recursive: true });

  const empty = await freshDatabase();
  await (await openApp({ database: empty, importCatalog: false })).close();
  expect(await empty.sql`select version from catalog`).toHaveLength(0);
  await empty.close();
});

it("a gateway does not start with another master key than the one that sealed the database's secrets", async () => {
  const own = await freshDatabase();
  const open = (masterKey: Buffer, otherMasterKeys: Buffer[] = []) =>
    openApp({ database: own, masterKey, otherMasterKeys });
  await (await open(KEY)).close();
  await expect(open(OTHER_KEY)).rejects.toThrow(/^neither LIMBER_MASTER_KEY nor/);
  const { code, stdout, stderr } = await failToStart({
    ...ENV,
    DATABASE_URL: own.url,
    LIMBER_MASTER_KEY: OTHER_KEY.toString("base64"),
  });
  expect([code, stdout, stderr.trim().split("\n")]).toEqual([
    1,
    "",
    [expect.stringMatching(/^limber: neither LIMBER_MASTER_KEY nor /)],
  ]);

  // A rotation as the documents tell it, and its first half undone too early.
  await (await open(KEY, [OTHER_KEY])).close();
  await (await open(OTHER_KEY, [KEY])).close();
  const early = await open(OTHER_KEY);
  const { detail } = (await early.call("/health", undefined, { admin: ADMIN_TOKEN })).body;
  expect(detail.warnings).toEqual([expect.stringContaining("LIMBER_MASTER_KEY_PREVIOUS lacks")]);
  await early.close();

  const rotate = fileURLToPath(new URL("../../../tools/vault-rotate.ts", import.meta.url));
  const env = { ...ENV, PATH: process.env.PATH, DATABASE_URL: own.url, LIMBER_MASTER_KEY: LAST_KEY.toString("base64") };
  await expect(open(LAST_KEY)).rejects.toThrow(/--lost/);
  await run(process.execPath, [rotate, "--lost"], { env });
  await (await open(LAST_KEY)).close();
  await expect(open(KEY)).rejects.toThrow(/^neither LIMBER_MASTER_KEY nor/);
  await own.close();
});

it("a gateway warns the operator while PostgreSQL is stopped, and stops warning when it returns", async () => {
  const dir = scratchDir();
  const options = { dataDir: join(dir.path, "postgres") };
  const first = await startPostgres(options);
  const gateway = await startGateway({ ...ENV, DATABASE_URL: first.url });
  const warnings = async (): Promise<string[]> =>
    (await callRest(gateway.url, "/health", undefined, { admin: ADMIN_TOKEN })).body.detail.warnings;
  expect(await warnings()).toEqual([]);
  await first.stop();
  await eventually(async () => expect(await warnings()).toContain("the database does not respond"));
  expect((await callRest(gateway.url, "/health")).body).not.toHaveProperty("detail");
  const second = await startPostgres(options);
  await eventually(async () => expect(await warnings()).toEqual([]), { timeout: 30_000 });
  await gateway.end("SIGTERM");
  await second.stop();
  dir.remove();
});

it("a worker serves health, readiness and metrics on the operations port, and no calls", async () => {
  const worker = await startGateway({
    ...ENV,
    DATABASE_URL: database.url,
    LIMBER_IMPORT_CATALOG: "true",
    LIMBER_ROLES: "worker",
    LIMBER_OPERATIONS_PORT: "0",
  });
  expect(worker.url).toBe("");
  await expect.poll(() => worker.stdout()).toContain("operations at port");
  const [, port] = /^operations at port (\d+)$/m.exec(worker.stdout()) ?? [];
  const url = `http://127.0.0.1:${port}`;
  expect(await callRest(url, "/health")).toMatchObject({ status: 200, body: { status: "ok" } });
  expect((await callRest(url, "/ready")).status).toBe(200);
  const metrics = await callRest(url, "/metrics", undefined, { admin: ADMIN_TOKEN });
  expect([metrics.status, metrics.text.includes("limber_concurrency_limit")]).toEqual([200, true]);
  expect((await callRest(url, "/v1/act", {})).status).toBe(404);
  expect((await worker.end("SIGTERM")).code).toBe(0);
});

it("a gateway warns of unknown variables with a setting's prefix, with the nearest setting", async () => {
  const gateway = await startGateway({
    ...ENV,
    DATABASE_URL: database.url,
    LIMBER_DRAIN_DELAY: "0",
    LIMBER_ZZYZX: "1",
    LIMBER_PORT_8080_TCP_ADDR: "10.0.0.1",
  });
  expect(gateway.stderr().trim().split("\n")).toEqual([
    "limber: LIMBER_DRAIN_DELAY is not a setting; did you mean LIMBER_DRAIN_DELAY_S?",
    "limber: LIMBER_ZZYZX is not a setting",
  ]);
  await gateway.end("SIGTERM");
});

it("a gateway names the setting whose address, port or folder is unusable", async () => {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const taken = String((server.address() as AddressInfo).port);
  const cases: readonly [Record<string, string>, RegExp][] = [
    [{ PORT: taken }, /^limber: cannot listen on PORT \d+ of 127\.0\.0\.1: the port is already in use$/],
    [{ LIMBER_OPERATIONS_PORT: taken }, /^limber: cannot listen on LIMBER_OPERATIONS_PORT \d+ of 127/],
    [{ LIMBER_GR00T_PORT: taken }, /^limber: cannot listen on LIMBER_GR00T_PORT \d+ of 127/],
    [{ HOST: "192.0.2.1" }, /^limber: cannot listen on HOST 192\.0\.2\.1: this machine does not have the address$/],
    [{ HOST: "nowhere.invalid" }, /^limber: cannot listen on HOST nowhere\.invalid: /],
    [{ LIMBER_SCENARIO_PACKS: "/nowhere/at/all" }, /^limber: LIMBER_SCENARIO_PACKS names an unreadable folder/],
  ];
  for (const [env, words] of cases) {
    const { code, stdout, stderr } = await failToStart({ ...ENV, DATABASE_URL: database.url, ...env });
    expect([env, code, stdout]).toEqual([env, 1, ""]);
    expect(stderr.trim()).toMatch(words);
  }
  server.close();
});
