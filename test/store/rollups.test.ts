import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import {
  loadLatencies,
  loadUptimes,
  type MinuteRecord,
  pruneRollups,
  putMinutes,
  rollUp,
} from "../../src/store/history/series.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";

let database: FreshDatabase;

beforeAll(async () => {
  database = await freshDatabase();
});
afterAll(() => database.close());
beforeEach(async () => {
  await database.sql`truncate offering_minute, offering_hour, offering_uptime`;
});

/** The first minute of an hour. */
const NOON = 29_000_040;
const minute = (facts: Partial<MinuteRecord> = {}): MinuteRecord => ({
  minute: NOON,
  offeringId: "off_a",
  calls: 10,
  failures: 1,
  restedMs: 0,
  latency: [0, 9, 1],
  ...facts,
});
const uptimeOf = async (id = "off_a") =>
  (await loadUptimes(database.sql, Math.floor(NOON / 60))).find(({ offeringId }) => offeringId === id);

describe("uptime minutes", () => {
  it("of all replicas sum to one uptime, however often each is written and rolled up", async () => {
    const { sql } = database;
    for (let i = 0; i < 3; i++) {
      await putMinutes(sql, "one", [minute()]);
      await putMinutes(sql, "two", [minute({ calls: 30, failures: 9, latency: [0, 0, 30] })]);
      expect(await rollUp(sql, NOON)).toBe(true);
    }
    const uptime = await uptimeOf();
    expect(uptime).toMatchObject({ last5m: 0.75, last1d: 0.75, last30d: 0.75, calls: 40, hours: 1 });
    expect(await loadLatencies(sql, NOON)).toEqual([
      { offeringId: "off_a", minute: NOON, latency: [undefined, 9, 31] },
    ]);
    const [hour] = await sql`select calls, failures, latency from offering_hour`;
    expect(hour).toEqual({ calls: 40, failures: 10, latency: [0, 9, 31] });
  });

  it("that grew replace their previous values", async () => {
    await putMinutes(database.sql, "one", [minute()]);
    await rollUp(database.sql, NOON);
    await putMinutes(database.sql, "one", [minute({ calls: 20, failures: 10 })]);
    await rollUp(database.sql, NOON);
    expect(await uptimeOf()).toMatchObject({ last30d: 0.5, calls: 20 });
  });

  it("of a month, a day and five minutes count in each window that covers them", async () => {
    const { sql } = database;
    const day = 24 * 60;
    const written: [number, number][] = [
      [31 * day, 100],
      [20 * day, 40],
      [600, 20],
      [2, 10],
    ];
    for (const [ago, failures] of written) {
      const at = NOON - ago;
      await putMinutes(sql, "one", [minute({ minute: at, calls: 100, failures })]);
      await rollUp(sql, at);
    }
    await rollUp(sql, NOON);
    const uptime = await uptimeOf();
    expect(uptime?.calls).toBe(300);
    expect(uptime?.last5m).toBeCloseTo(0.9);
    expect(uptime?.last1d).toBeCloseTo(0.85);
    expect(uptime?.last30d).toBeCloseTo(1 - 70 / 300);
  });

  it("with an open breaker count against uptime, once for all replicas with an open breaker at the same time", async () => {
    const { sql } = database;
    for (const replica of ["one", "two"]) {
      const rested = Array.from({ length: 5 }, (_, i) =>
        minute({ minute: NOON - i, calls: 0, failures: 0, restedMs: 30_000, latency: [] }),
      );
      await putMinutes(sql, replica, rested);
    }
    await rollUp(sql, NOON);
    expect((await uptimeOf())?.last5m).toBeCloseTo(0.5);
  });

  it("are rolled up by one replica at a time", async () => {
    const outcomes = await Promise.all(Array.from({ length: 4 }, () => rollUp(database.sql, NOON)));
    expect(outcomes).toContain(true);
  });

  it("beyond every window are deleted", async () => {
    const { sql } = database;
    await putMinutes(sql, "one", [minute(), minute({ minute: NOON - 40 * 24 * 60 })]);
    await rollUp(sql, NOON - 40 * 24 * 60);
    await rollUp(sql, NOON);
    expect(await pruneRollups(sql, NOON)).toBe(2);
    expect((await sql`select minute from offering_minute`).length).toBe(1);
    expect((await sql`select hour from offering_hour`).length).toBe(1);
  });
});
