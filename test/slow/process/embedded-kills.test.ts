import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, test, vi } from "vitest";
import { startPostgres } from "../../../src/embedded/postgres.ts";
import { connect, tx } from "../../../src/store/database/tx.ts";
import { isOutage } from "../../../src/store/database/unavailable.ts";
import { eventually } from "../../support/eventually.ts";
import {
  cleanUp,
  cleanups,
  closedDirectory,
  countRows,
  LINUX,
  makeRows,
  NOBODY,
  own,
  ROOT,
  servers,
  startOwner,
} from "../../support/owners.ts";

afterEach(cleanUp);

vi.setConfig({ testTimeout: 120_000 });

describe("kill -9 of the process that owns the embedded database", () => {
  test("leaves no server behind, and the next start finds every acknowledged row", async () => {
    const dataDir = closedDirectory();
    const owner = await own(dataDir);
    const sql = connect(owner.said.url, { max: 4 });
    await sql`create table kept (n int)`;
    let acknowledged = 0;
    const write = async (): Promise<void> => {
      for (;;) {
        await sql`insert into kept values (1)`;
        acknowledged += 1;
      }
    };
    const writers = Promise.allSettled([write(), write(), write(), write()]);
    await eventually(() => expect(acknowledged).toBeGreaterThan(100));
    await owner.kill();
    await writers;
    await sql.end();
    if (LINUX) await eventually(() => expect(servers(dataDir)).toEqual([]));

    const next = await own(dataDir);
    expect(await countRows(next.said.url)).toBeGreaterThanOrEqual(acknowledged);
    await next.stop();
  });

  test("makes the next start wait for the server that still runs, and end it", async () => {
    const dataDir = closedDirectory();
    const owner = await own(dataDir);
    await makeRows(owner.said.url);
    process.kill(owner.said.pid, "SIGSTOP");
    await owner.kill();
    const next = own(dataDir);
    await eventually(() =>
      expect(readFileSync(join(dataDir, "limber.pid"), "utf8")).not.toBe(`${owner.process.pid}\n`),
    );
    process.kill(owner.said.pid, "SIGCONT");
    const { said, stop } = await next;
    expect(said.pid).not.toBe(owner.said.pid);
    expect(await countRows(said.url)).toBe(1000);
    await stop();
  });

  test("during initialization makes the next start initialize again", async () => {
    const dataDir = closedDirectory();
    const owner = startOwner(dataDir);
    const unfinished = (): string[] => readdirSync(dataDir).filter((name) => name.startsWith("postgres.new-"));
    await eventually(() => expect(readdirSync(join(dataDir, unfinished()[0]!))).not.toEqual([]), { interval: 2 });
    owner.kill("SIGKILL");
    await once(owner, "exit");
    expect(existsSync(join(dataDir, "postgres"))).toBe(false);

    const next = await own(dataDir);
    await makeRows(next.said.url);
    expect(unfinished()).toEqual([]);
    await next.stop();
  });

  test("leaves alone an unrelated process that reuses its id, which does not hinder the start", async () => {
    const dataDir = closedDirectory();
    const first = await own(dataDir);
    await first.stop();
    const bystander = spawn(
      process.execPath,
      ["-e", "setInterval(() => {}, 1000)"],
      ROOT ? { uid: NOBODY, gid: NOBODY } : {},
    );
    cleanups.push(() => bystander.kill("SIGKILL"));
    writeFileSync(
      join(dataDir, "postgres/postmaster.pid"),
      `${bystander.pid}\n${join(dataDir, "postgres")}\n1\n5432\n\n\n`,
    );
    const next = await own(dataDir);
    expect(next.said.problem).toBeUndefined();
    expect(bystander.exitCode ?? bystander.signalCode).toBeNull();
    await next.stop();
  });
});

describe("kill -9 of the embedded server", () => {
  test("loses no acknowledged row under load, leaves no partial transaction and leaks nothing", async () => {
    const exits: unknown[] = [];
    const database = await startPostgres({ dataDir: closedDirectory(), onExit: (exit) => exits.push(exit) });
    cleanups.push(() => database.stop());
    const max = 4;
    const sql = connect(database.url, { max });
    await sql`create table alone (n int)`;
    await sql`create table pairs (half int)`;

    let running = true;
    const done = { alone: 0, pairs: 0 };
    const strange: unknown[] = [];
    const again = async (kind: keyof typeof done, once: () => Promise<unknown>): Promise<void> => {
      while (running) {
        // Statements that begin in this phase of the event loop are those that the driver's own pool can't survive.
        await new Promise(setImmediate);
        await once().then(
          () => (done[kind] += 1),
          (error) => isOutage(error) || strange.push(error),
        );
      }
    };
    const pair = (): Promise<unknown> =>
      tx(sql, async (tx) => {
        await tx`insert into pairs values (1)`;
        await new Promise(setImmediate);
        await Promise.all([tx`insert into pairs values (2)`, tx`select ${"x"} as x`]);
      });
    const load = [
      ...Array.from({ length: 12 }, () => again("alone", () => sql`insert into alone values (1)`)),
      ...Array.from({ length: 8 }, () => again("pairs", pair)),
    ];

    for (let kill = 1; kill <= 4; kill++) {
      const before = { ...done };
      await eventually(() => expect(done.alone > before.alone + 50 && done.pairs > before.pairs + 50).toBe(true));
      process.kill(database.pid, "SIGKILL");
      await eventually(() => expect(database.restarts).toBe(kill));
    }
    const before = { ...done };
    await eventually(() => expect(done.alone > before.alone + 50 && done.pairs > before.pairs + 50).toBe(true));
    running = false;
    await Promise.all(load);

    expect(strange).toEqual([]);
    expect(exits).toEqual(Array(4).fill({ code: null, signal: "SIGKILL" }));
    const [kept] = await sql<{ alone: number; first: number; second: number; connections: number }[]>`
      select (select count(*) from alone) as alone, count(*) filter (where half = 1) as first,
        count(*) filter (where half = 2) as second,
        (select count(*) from pg_stat_activity where application_name = 'limber') as connections from pairs`;
    expect(kept!.alone).toBeGreaterThanOrEqual(done.alone);
    expect(kept!.first).toBeGreaterThanOrEqual(done.pairs);
    expect(kept!.first).toBe(kept!.second);
    expect(kept!.connections).toBeLessThanOrEqual(2 * max);
    await sql.end();
  }, 60_000);

  test("leaves a server that is stopped during its restart stopped", async () => {
    const dataDir = closedDirectory();
    const exited = Promise.withResolvers<void>();
    const database = await startPostgres({ dataDir, onExit: () => exited.resolve() });
    process.kill(database.pid, "SIGKILL");
    await exited.promise;
    await database.stop();
    // Processes of a killed server notice its end by themselves, some milliseconds later.
    if (LINUX) await eventually(() => expect(servers(dataDir)).toEqual([]));
  });
});
