/** A database that stands still without closing anything. */
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { now, setWall, steadyNow } from "../../../src/clock.ts";
import { type EmbeddedPostgres, startPostgres } from "../../../src/embedded/postgres.ts";
import { Pulse } from "../../../src/store/database/client.ts";
import { Notifications } from "../../../src/store/database/notifications.ts";
import { connect, type Sql, tx } from "../../../src/store/database/tx.ts";
import { isOutage } from "../../../src/store/database/unavailable.ts";
import { eventually } from "../../support/eventually.ts";
import { freeze } from "../../support/freeze.ts";
import { scratchDir } from "../../support/gateway.ts";

const dir = scratchDir();
let postgres: EmbeddedPostgres;
let pulse: Pulse;
let notifications: Notifications;
let sql: Sql;

beforeAll(async () => {
  postgres = await startPostgres({ dataDir: join(dir.path, "pulse") });
  pulse = new Pulse();
  sql = connect(postgres.url, { max: 2, pulse });
  notifications = await Notifications.open(postgres.url, pulse);
});
afterAll(async () => {
  await notifications.close();
  await sql.end();
  pulse.close();
  await postgres.stop();
  dir.remove();
});

describe("a frozen database", () => {
  it("fails waiting calls, refuses new ones at once, and is used again afterwards", async () => {
    await sql`create table kept (n int)`;
    const thaw = freeze(postgres.pid);
    try {
      // More than there are connections, so that some wait for one.
      const statements = Array.from({ length: 6 }, () => sql`select 1`.then(() => "answered", isOutage));
      const transactions = Array.from({ length: 6 }, (_, n) =>
        tx(sql, (tx) => tx`insert into kept values (${n})`).then(() => "answered", isOutage),
      );
      expect(await Promise.all([...statements, ...transactions])).toEqual(Array(12).fill(true));
      expect(pulse.silent).toBe(true);
      await expect(sql`select 1`).rejects.toSatisfy(isOutage);
      await expect(tx(sql, (tx) => tx`select 1`)).rejects.toSatisfy(isOutage);
    } finally {
      thaw();
    }
    await eventually(async () => expect(await sql`select 1 as one`).toMatchObject([{ one: 1 }]));
    await tx(sql, (tx) => tx`insert into kept values (7)`);
    expect(await sql`select n from kept where n = 7`).toHaveLength(1);
  });

  it("is not confused with one that a long statement keeps busy", async () => {
    const slow = sql`select pg_sleep(4)`.then(() => "answered");
    expect(await slow).toBe("answered");
    expect(pulse.silent).toBe(false);
  });
});

it("teaches the process its time, which a wrong machine clock does not change", async () => {
  const [row] = await sql<{ ms: number }[]>`select extract(epoch from clock_timestamp())::float8 * 1000 as ms`;
  // As if the database were two hours ahead.
  const at = steadyNow();
  setWall(row!.ms + 7_200_000, at, at);
  expect(now() - Date.now()).toBeGreaterThan(7_000_000);
  // The next pulse knows better.
  await eventually(() => expect(Math.abs(now() - Date.now())).toBeLessThan(60_000));
});
