/** What goes wrong around a gateway: it says so in one clear line, loses nothing, and recovers by itself. */
import { spawnSync } from "node:child_process";
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { startPostgres } from "../../../src/embedded/postgres.ts";
import { connect, type Sql } from "../../../src/store/database/tx.ts";
import { ADMIN_TOKEN, callRest } from "../../support/app.ts";
import { closing } from "../../support/closing.ts";
import { eventually } from "../../support/eventually.ts";
import { failToStart, launchGateway, scratchDir, startGateway } from "../../support/gateway.ts";
import { brokenInvariants } from "../../support/invariants.ts";
import { Pair } from "../../support/pair.ts";

const ENV = {
  SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
  LIMBER_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
  LIMBER_REFERENCE_SUPPLY: "false",
  LOG_LEVEL: "warn",
};
const ADMIN = { admin: ADMIN_TOKEN };

const { closers, closeAll } = closing();
afterEach(closeAll);

/** A file system of its own in memory, `options` as mount takes them; undefined where this account may mount none. */
function mounted(options: string): string | undefined {
  const dir = scratchDir();
  const path = join(dir.path, "disk");
  mkdirSync(path);
  if (spawnSync("mount", ["-t", "tmpfs", "-o", options, "tmpfs", path]).status !== 0) {
    dir.remove();
    return undefined;
  }
  closers.push(() => {
    spawnSync("umount", ["-l", path]);
    dir.remove();
  });
  return path;
}
const mayMount = ((): boolean => {
  const path = mounted("size=1m");
  for (const close of closers.splice(0).reverse()) close();
  return path !== undefined;
})();

it("the gateway reports that PostgreSQL is at max_connections, and starts when a connection is free", async () => {
  const dir = scratchDir();
  closers.push(() => dir.remove());
  const postgres = await startPostgres({ dataDir: join(dir.path, "full"), settings: { max_connections: "30" } });
  closers.push(() => postgres.stop());
  const others: Sql[] = [];
  const free = (): Promise<unknown> => Promise.all(others.splice(0).map((sql) => sql.end()));
  closers.push(free);
  for (let i = 0; i < 30; i++) {
    const sql = connect(postgres.url, { max: 1 });
    others.push(sql);
    await sql`select 1`;
  }
  const gateway = launchGateway({ ...ENV, DATABASE_URL: postgres.url });
  closers.push(async () => {
    gateway.child.kill("SIGKILL");
    await gateway.ended;
  });
  await eventually(() => expect(gateway.stderr()).toMatch(/waiting for the database: .*too many connections/));
  await free();
  const { url, end } = await gateway.ready;
  expect((await callRest(url, "/health")).status).toBe(200);
  expect((await end("SIGTERM")).code).toBe(0);
});

it("no call gets a 500 while other clients hold PostgreSQL's last connections, and all calls succeed afterwards", async () => {
  const dir = scratchDir();
  closers.push(() => dir.remove());
  const postgres = await startPostgres({ dataDir: join(dir.path, "full"), settings: { max_connections: "30" } });
  closers.push(() => postgres.stop());
  const gateway = await startGateway({ ...ENV, DATABASE_URL: postgres.url });
  closers.push(() => gateway.end("SIGKILL"));
  const make = async (): Promise<number> => (await callRest(gateway.url, "/v1/orgs", { name: "full" }, ADMIN)).status;
  expect(await make()).toBe(201);
  const others: Sql[] = [];
  const free = (): Promise<unknown> => Promise.all(others.splice(0).map((sql) => sql.end()));
  closers.push(free);
  for (let room = true; room; ) {
    const sql = connect(postgres.url, { max: 1 });
    others.push(sql);
    room = await sql`select 1`.then(
      () => true,
      () => false,
    );
  }
  // More at one time than it has connections for.
  const met = new Set(await Promise.all(Array.from({ length: 60 }, make)));
  expect([201, 503]).toEqual(expect.arrayContaining([...met]));
  expect((await callRest(gateway.url, "/health")).status).toBe(200);
  await free();
  await eventually(async () =>
    expect(new Set(await Promise.all(Array.from({ length: 60 }, make)))).toEqual(new Set([201])),
  );
  expect((await gateway.end("SIGTERM")).code).toBe(0);
});

describe.runIf(mayMount)("a gateway with its own disk", () => {
  it("exits in one line if DATA_DIR is read-only", async () => {
    const path = mounted("size=1m,ro")!;
    const { code, stdout, stderr } = await failToStart({
      DATA_DIR: join(path, "data"),
      LIMBER_REFERENCE_SUPPLY: "false",
    });
    expect([code, stdout, stderr.trim().split("\n")]).toEqual([
      1,
      "",
      [expect.stringMatching(/^limber: DATA_DIR .* can't hold the database: EROFS: read-only file system/)],
    ]);
  });

  it("refuses calls while the embedded database's disk is full, loses nothing, and continues when there is space", async () => {
    const path = mounted("size=220m")!;
    const dataDir = join(path, "data");
    const gateway = await startGateway({
      DATA_DIR: dataDir,
      SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
      LIMBER_REFERENCE_SUPPLY: "false",
      LOG_LEVEL: "warn",
    });
    closers.push(() => gateway.end("SIGKILL"));
    const give = async (org: string) => callRest(gateway.url, `/v1/orgs/${org}/credits`, { amount_usd: 1 }, ADMIN);
    const { body } = await callRest(gateway.url, "/v1/orgs", { name: "full" }, ADMIN);
    let given = 0;
    const filler = join(path, "filler");
    spawnSync("dd", ["if=/dev/zero", `of=${filler}`, "bs=1M"]);
    // The log of changes has room ahead; names that are long use it up.
    await eventually(
      async () => {
        const { status } = await callRest(gateway.url, "/v1/orgs", { name: "n".repeat(200) }, ADMIN);
        const answers = await Promise.all(Array.from({ length: 50 }, () => give(body.id)));
        given += answers.filter((answer) => answer.status < 300).length;
        expect([status, ...answers.map((answer) => answer.status)]).toContain(503);
      },
      { timeout: 60_000 },
    );
    rmSync(filler);
    await eventually(async () => expect((await give(body.id)).status).toBeLessThan(300), { timeout: 60_000 });
    given += 1;
    expect((await callRest(gateway.url, "/health")).status).toBe(200);
    expect((await gateway.end("SIGTERM")).code).toBe(0);
    const postgres = await startPostgres({ dataDir });
    const sql = connect(postgres.url, { max: 1 });
    closers.push(() => postgres.stop());
    closers.push(() => sql.end());
    expect(await brokenInvariants(sql)).toEqual([]);
    const [row] = await sql<{ micro: number }[]>`select granted_micro as micro from account where org_id = ${body.id}`;
    // What was answered with success is there; one whose answer was lost may be too.
    expect(row!.micro).toBeGreaterThanOrEqual(given * 1_000_000);
  }, 180_000);
});

it("resumes a frozen replica: the other served meanwhile, its credit returned, and nothing is charged twice", async () => {
  const pair = await Pair.open();
  closers.push(() => pair.close());
  const { key, org } = await pair.caller(100);
  const body = { model: "acme/base", action_space: "base_twist_2d", horizon: 1, observations: [{ proprio: [1] }] };
  const act = (place: number) => pair.call(place, "/v1/act", body, { key });
  let answered = 0;
  for (const place of [0, 1, 0, 1])
    await eventually(async () => {
      expect((await act(place)).status).toBe(200);
      answered += 1;
    });
  const goOn = pair.pause(1);
  closers.push(goOn);
  // Its leases are taken back once it was not heard of for as long as they live.
  await eventually(
    async () => {
      expect((await act(0)).status).toBe(200);
      answered += 1;
      expect(await pair.sql`select 1 from leaser where fenced_at is not null`).not.toEqual([]);
    },
    { timeout: 60_000 },
  );
  goOn();
  await eventually(
    async () => {
      expect((await act(1)).status).toBe(200);
      answered += 1;
    },
    { timeout: 30_000 },
  );
  expect(pair.mishaps).toEqual([]);
  for (const { code } of await pair.stop()) expect(code).toBe(0);
  expect(await brokenInvariants(pair.sql)).toEqual([]);
  const [row] = await pair.sql<{ spent: number }[]>`
    select coalesce(sum(cost_micro), 0) as spent from request where org_id = ${org}`;
  expect(row!.spent).toBeLessThanOrEqual(answered * 100);
}, 180_000);
