/** A backup that is made while calls are served, and restored elsewhere. */
import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as rest } from "node:timers/promises";
import { expect, it } from "vitest";
import { startPostgres } from "../../../src/embedded/postgres.ts";
import { connect, type Sql } from "../../../src/store/database/tx.ts";
import { type App, openApp } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { scratchDir } from "../../support/gateway.ts";
import { brokenInvariants } from "../../support/invariants.ts";
import { startModel } from "../../support/model.ts";

/** Copies the files of a running server and the write-ahead log that makes them consistent. */
async function backUp(sql: Sql, from: string, to: string): Promise<void> {
  const session = connect(urls.get(sql)!, { max: 1, unbounded: true });
  await session`select pg_backup_start('drill', true)`;
  mkdirSync(to);
  execFileSync("cp", ["-a", join(from, "postgres"), join(to, "postgres")]);
  const [row] = await session<{ labelfile: string }[]>`select labelfile from pg_backup_stop(false)`;
  await session.end();
  const cluster = join(to, "postgres");
  // The log until the end of the backup, as an archive would have it.
  rmSync(join(cluster, "pg_wal"), { recursive: true });
  execFileSync("cp", ["-a", join(from, "postgres", "pg_wal"), join(cluster, "pg_wal")]);
  for (const name of ["postmaster.pid", "postmaster.opts"]) rmSync(join(cluster, name), { force: true });
  writeFileSync(join(cluster, "backup_label"), row!.labelfile);
  execFileSync("chown", [`--reference=${cluster}`, join(cluster, "backup_label")]);
}

const urls = new WeakMap<Sql, string>();

it("a restored database has its keys, its money adds up, and a gateway serves on it", async () => {
  const dir = scratchDir();
  const model = await startModel();
  const [home, elsewhere] = [join(dir.path, "home"), join(dir.path, "elsewhere")];
  const first = await startPostgres({ dataDir: home });
  const open = (url: string): Promise<App> => {
    const sql = connect(url, { max: 2 });
    urls.set(sql, url);
    return openApp({ database: { url, sql, close: () => sql.end() } });
  };
  const app = await open(first.url);
  await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  const { org, key } = await app.caller(1_000);
  const body = { model: "acme/base", action_space: "base_twist_2d", horizon: 2, observations: [{ proprio: [1] }] };

  const over = new AbortController();
  const answered: string[] = [];
  const callers = Array.from({ length: 6 }, async () => {
    while (!over.signal.aborted) {
      const { status, headers } = await app.call("/v1/act", body, { key });
      expect(status).toBe(200);
      answered.push(headers.get("x-request-id") ?? "");
      await rest(2);
    }
  });
  await eventually(() => expect(answered.length).toBeGreaterThan(100));
  const before = new Set(answered);
  await backUp(app.sql, home, elsewhere);
  const during = answered.length;
  await eventually(() => expect(answered.length).toBeGreaterThan(during + 50));
  over.abort();
  await Promise.all(callers);
  await app.gateway.close(1_000);
  expect(await brokenInvariants(app.sql)).toEqual([]);
  await app.database.close();
  await first.stop();

  const second = await startPostgres({ dataDir: elsewhere });
  const restored = await open(second.url);
  expect(await brokenInvariants(restored.sql)).toEqual([]);
  // What was answered before the backup began is in it.
  const kept = new Set(
    (await restored.sql<{ id: string }[]>`select request_id as id from request where org_id = ${org}`).map(
      ({ id }) => id,
    ),
  );
  // A call is on record with the batch that settles it, at most moments after its answer.
  expect([...before].filter((id) => !kept.has(id)).length).toBeLessThanOrEqual(6);
  // The provider and the key as they were: nothing has to be given anew.
  await eventually(async () => expect((await restored.call("/v1/act", body, { key })).status).toBe(200));
  await restored.gateway.close(1_000);
  expect(await brokenInvariants(restored.sql)).toEqual([]);
  await restored.database.close();
  await second.stop();
  await model.close();
  dir.remove();
}, 120_000);
