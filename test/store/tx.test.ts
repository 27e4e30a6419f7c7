/** Transactions, and the end of a client. */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import postgres from "postgres";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { ioClock } from "../../src/clock.ts";
import { connect, type Sql, type Tx, tx } from "../../src/store/database/tx.ts";
import { isOutage } from "../../src/store/database/unavailable.ts";
import { eventually } from "../support/eventually.ts";
import { begin, count, database, end, endEach, insert, sql, withOneLane } from "./kept.ts";

beforeAll(begin);
afterEach(endEach);
afterAll(end);

/** Collects garbage. */
function collect(): void {
  setFlagsFromString("--expose-gc");
  runInNewContext("gc")();
}

describe("a transaction", () => {
  test("retains nothing of ended transactions, however long their connection lives", () =>
    withOneLane(async (narrow) => {
      const outcomes: WeakRef<object>[] = [];
      const run = async (number: number): Promise<void> => {
        const kept = { number };
        outcomes.push(new WeakRef(kept));
        await tx(narrow, async () => {
          if (number % 2 === 1) throw Object.assign(new Error("refused"), { kept });
          return kept;
        }).catch(() => {});
      };
      for (let number = 0; number < 20; number++) await run(number);
      await eventually(() => {
        collect();
        // The engine may hold on to the last error that was thrown.
        expect(outcomes.filter((each) => each.deref() !== undefined).length).toBeLessThanOrEqual(1);
      });
    }));

  test("commits everything when its work resolves, and resolves with the same value", async () => {
    const result = await tx(sql, async (tx) => {
      await insert(tx);
      await insert(tx);
      return "done";
    });
    expect([result, await count()]).toEqual(["done", 2]);
  });

  test("commits nothing when its work throws, and the next one uses the same connection", () =>
    withOneLane(async (narrow) => {
      const pid = (tx: Tx): Promise<number> =>
        tx<{ pid: number }[]>`select pg_backend_pid() as pid`.then(([row]) => row!.pid);
      let first = 0;
      const failing = tx(narrow, async (tx) => {
        first = await pid(tx);
        await insert(tx);
        throw new Error("mine");
      });
      await expect(failing).rejects.toThrow("mine");
      expect([await count(), await tx(narrow, pid)]).toEqual([0, first]);
    }));

  test("commits nothing, and reports it, if its work ignored a failed statement", async () => {
    const swallowing = tx(sql, async (tx) => {
      await insert(tx);
      await tx`select 1 / 0`.catch(() => {});
    });
    await expect(swallowing).rejects.toThrow("one of its statements failed");
    expect(await count()).toBe(0);
  });

  test("hides its rows from others before it ends", async () => {
    await tx(sql, async (tx) => {
      await insert(tx);
      expect(await count()).toBe(0);
    });
    expect(await count()).toBe(1);
  });

  test("refuses a statement after its end, which would run in another transaction", async () => {
    let late: Tx | undefined;
    await tx(sql, async (tx) => {
      late = tx;
    });
    await expect(async () => insert(late!)).rejects.toThrow("ended");
    expect(() => late!.unsafe("insert into kept values (1)")).toThrow("ended");

    const slow = Promise.withResolvers<void>();
    let sibling: Promise<unknown> | undefined;
    const failing = tx(sql, async (tx) => {
      sibling = slow.promise.then(() => insert(tx));
      throw new Error("mine");
    });
    await expect(failing).rejects.toThrow("mine");
    slow.resolve();
    await expect(sibling).rejects.toThrow("ended");
    expect(await count()).toBe(0);
  });

  test("loses nothing beside many other transactions and plain statements", async () => {
    for (let round = 0; round < 10; round++) {
      await Promise.all([
        ...Array.from({ length: 40 }, () => insert(sql, 1)),
        ...Array.from({ length: 20 }, () => tx(sql, (tx) => Promise.all([insert(tx, 2), insert(tx, 3)]))),
        ...Array.from({ length: 6 }, () => sql`select pg_sleep(0.001)`),
      ]);
    }
    const rows = await sql`select n, count(*) as times from kept group by n order by n`;
    expect(rows).toEqual([
      { n: 1, times: 400 },
      { n: 2, times: 200 },
      { n: 3, times: 200 },
    ]);
    expect(
      await sql`select 1 from pg_stat_activity where datname = current_database() and state like 'idle in%'`,
    ).toEqual([]);
  });

  test("repeats its work after a deadlock", async () => {
    await sql`insert into kept values (1), (2)`;
    let runs = 0;
    const bothHold = Promise.withResolvers<void>();
    let holding = 0;
    const lockInOrder = (...order: number[]): Promise<void> =>
      tx(sql, async (tx) => {
        runs += 1;
        for (const n of order) {
          await tx`update kept set n = n where n = ${n}`;
          holding += 1;
          if (holding === 2) bothHold.resolve();
          await bothHold.promise;
        }
      });
    await Promise.all([lockInOrder(1, 2), lockInOrder(2, 1)]);
    expect(runs).toBeGreaterThanOrEqual(3);
  });

  test("runs its work at most five times, and rejects with the server's reason", async () => {
    let runs = 0;
    const conflicting = tx(sql, async (tx) => {
      runs += 1;
      await tx.unsafe("do $$ begin raise exception 'conflict' using errcode = '40001'; end $$");
    });
    await expect(conflicting).rejects.toMatchObject({ code: "40001" });
    expect(runs).toBe(5);
  });

  test("waits for a connection if all are in use, and is refused if none returns in time", () =>
    withOneLane(async (narrow) => {
      const holding = Promise.withResolvers<void>();
      const release = Promise.withResolvers<void>();
      const holder = tx(narrow, async () => {
        holding.resolve();
        await release.promise;
      });
      await holding.promise;

      // Connections wait by the machine's own clock, which no test moves: here the wait of one is ended by hand.
      const timers: (() => void)[] = [];
      const setting = vi.spyOn(ioClock, "after").mockImplementation((_, run) => {
        timers.push(run);
        return () => {};
      });
      const impatient = tx(narrow, insert);
      setting.mockRestore();
      const patient = tx(narrow, insert);
      timers[0]!();
      await expect(impatient).rejects.toSatisfy(isOutage);
      release.resolve();
      await Promise.all([holder, patient]);
      expect(await count()).toBe(1);
    }));

  test("accepts only a client from connect()", async () => {
    const foreign = postgres(database.url) as unknown as Sql;
    await expect(tx(foreign, insert)).rejects.toThrow(TypeError);
    await foreign.end();
  });
});

describe("closing the database client", () => {
  test("rolls back an open transaction, refuses the next, and leaves no connection", async () => {
    const closing = connect(database.url, { max: 2 });
    const open = Promise.withResolvers<void>();
    const pids: number[] = [];
    const broken = tx(closing, async (tx) => {
      pids.push((await tx<{ pid: number }[]>`select pg_backend_pid() as pid`)[0]!.pid);
      await insert(tx);
      open.resolve();
      await new Promise(() => {});
    });
    const outcome = expect(broken).rejects.toSatisfy(isOutage);
    pids.push((await closing<{ pid: number }[]>`select pg_backend_pid() as pid`)[0]!.pid);
    await open.promise;
    await closing.end();
    await outcome;
    await expect(tx(closing, insert)).rejects.toSatisfy(isOutage);
    await expect(closing`select 1`).rejects.toSatisfy(isOutage);
    await eventually(async () =>
      expect(await sql`select 1 from pg_stat_activity where pid = any(${pids})`).toEqual([]),
    );
    expect(await count()).toBe(0);
  });
});
