import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import postgres from "postgres";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { replaceAmbient } from "../../src/ambient.ts";
import { listen } from "../../src/store/database/listen.ts";
import { connect, databaseReachable, type Sql, type Tx, tx } from "../../src/store/database/tx.ts";
import { isOutage } from "../../src/store/database/unavailable.ts";
import { databaseUrl, type FreshDatabase, freshDatabase } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";

let database: FreshDatabase;
let sql: Sql;
beforeAll(async () => {
  database = await freshDatabase({ max: 3, empty: true });
  sql = database.sql;
  await sql`create table kept (n int)`;
});
afterEach(() => sql`truncate kept`);
afterAll(() => database.close());

const count = async (): Promise<number> => (await sql<{ n: number }[]>`select count(*) as n from kept`)[0]!.n;
const insert = (into: Sql | Tx, n = 0): Promise<unknown> => into`insert into kept values (${n})`;

/** A client of the same database with one connection for transactions. */
async function withOneLane<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
  const narrow = connect(database.url, { max: 1 });
  return work(narrow).finally(() => narrow.end());
}

describe("tx", () => {
  test("keeps everything when its work resolves, and resolves to the same", async () => {
    const result = await tx(sql, async (tx) => {
      await insert(tx);
      await insert(tx);
      return "done";
    });
    expect([result, await count()]).toEqual(["done", 2]);
  });

  test("keeps nothing when its work throws, and serves the next with the same connection", () =>
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

  test("keeps nothing, and says so, when a statement failed and its work went on as if it hadn't", async () => {
    const swallowing = tx(sql, async (tx) => {
      await insert(tx);
      await tx`select 1 / 0`.catch(() => {});
    });
    await expect(swallowing).rejects.toThrow("one of its statements failed");
    expect(await count()).toBe(0);
  });

  test("shows its rows to nobody before it ends", async () => {
    await tx(sql, async (tx) => {
      await insert(tx);
      expect(await count()).toBe(0);
    });
    expect(await count()).toBe(1);
  });

  test("refuses a statement after its end, which would land in somebody else's transaction", async () => {
    let late: Tx | undefined;
    await tx(sql, async (tx) => {
      late = tx;
    });
    await expect(async () => insert(late!)).rejects.toThrow("over");
    expect(() => late!.unsafe("insert into kept values (1)")).toThrow("over");

    const slow = Promise.withResolvers<void>();
    let sibling: Promise<unknown> | undefined;
    const failing = tx(sql, async (tx) => {
      sibling = slow.promise.then(() => insert(tx));
      throw new Error("mine");
    });
    await expect(failing).rejects.toThrow("mine");
    slow.resolve();
    await expect(sibling).rejects.toThrow("over");
    expect(await count()).toBe(0);
  });

  test("many transactions beside many plain statements lose nothing", async () => {
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

  test("runs its work again after a deadlock", async () => {
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

  test("runs its work five times at most, and rejects with the server's reason", async () => {
    let runs = 0;
    const conflicting = tx(sql, async (tx) => {
      runs += 1;
      await tx.unsafe("do $$ begin raise exception 'conflict' using errcode = '40001'; end $$");
    });
    await expect(conflicting).rejects.toMatchObject({ code: "40001" });
    expect(runs).toBe(5);
  });

  test("waits for a connection when all are lent, and is refused when none comes back in time", () =>
    withOneLane(async (narrow) => {
      const holding = Promise.withResolvers<void>();
      const release = Promise.withResolvers<void>();
      const holder = tx(narrow, async () => {
        holding.resolve();
        await release.promise;
      });
      await holding.promise;

      const timers: (() => void)[] = [];
      const clock = {
        wall: Date.now,
        steady: () => performance.now(),
        after: (_: number, run: () => void) => {
          timers.push(run);
          return () => {};
        },
      };
      const restore = replaceAmbient({ clock });
      const impatient = tx(narrow, insert);
      await eventually(() => expect(timers).toHaveLength(1));
      restore();
      const patient = tx(narrow, insert);
      timers[0]!();
      await expect(impatient).rejects.toSatisfy(isOutage);
      release.resolve();
      await Promise.all([holder, patient]);
      expect(await count()).toBe(1);
    }));

  test("takes only a client that connect() made", async () => {
    const foreign = postgres(database.url) as unknown as Sql;
    await expect(tx(foreign, insert)).rejects.toThrow(TypeError);
    await foreign.end();
  });
});

describe("a lost connection", () => {
  /** Ends the server process that serves a transaction. */
  const cut = async (tx: Tx): Promise<void> => {
    const [row] = await tx<{ pid: number }[]>`select pg_backend_pid() as pid`;
    await sql`select pg_terminate_backend(${row!.pid}, 5000)`;
  };

  test("ends its transaction: nothing of it is kept, nothing after it runs outside, and the next one works", () =>
    withOneLane(async (narrow) => {
      const errors: unknown[] = [];
      const broken = tx(narrow, async (tx) => {
        await insert(tx);
        await cut(tx);
        for (let n = 0; n < 5; n++) {
          await (async () => insert(tx))().catch((error) => errors.push(error));
          await new Promise(setImmediate);
        }
      });
      await expect(broken).rejects.toSatisfy(isOutage);
      await eventually(() => expect(errors).toHaveLength(5));
      expect(await count()).toBe(0);
      await tx(narrow, insert);
      expect(await count()).toBe(1);
    }));

  test("ends its transaction at once, even while its work waits for something else", async () => {
    const broken = tx(sql, async (tx) => {
      await insert(tx);
      await cut(tx);
      await new Promise(() => {});
    });
    await expect(broken).rejects.toThrow("connection was lost");
    expect(await count()).toBe(0);
  });

  test("ends its transaction, and what was queued behind the loss does not run outside of it", () =>
    withOneLane(async (narrow) => {
      let queued: Promise<PromiseSettledResult<unknown>[]> | undefined;
      const broken = tx(narrow, (tx) => {
        const last = tx`select pg_terminate_backend(pg_backend_pid()), ${"a parameter"} as waits`;
        queued = Promise.allSettled([last, ...Array.from({ length: 5 }, () => insert(tx))]);
        return queued;
      });
      await expect(broken).rejects.toSatisfy(isOutage);
      expect((await queued!).map(({ status }) => status)).toEqual(Array(6).fill("rejected"));
      expect(await count()).toBe(0);
    }));

  test("takes its pool with it, and leaves no other connection behind", () =>
    withOneLane(async (narrow) => {
      const last = narrow`select pg_terminate_backend(pg_backend_pid()), ${"a parameter"} as waits`;
      await Promise.allSettled([last, ...Array.from({ length: 5 }, () => insert(narrow))]);
      await insert(narrow);
      const others = (): Promise<unknown> =>
        narrow`select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
          and query like 'insert%'`;
      await eventually(async () => expect(await others()).toEqual([]));
    }));

  test("of a plain statement rejects that statement, and the next one works", () =>
    withOneLane(async (narrow) => {
      await expect(narrow`select pg_terminate_backend(pg_backend_pid())`).rejects.toSatisfy(isOutage);
      await insert(narrow);
      expect(await count()).toBe(1);
    }));

  test("of a listener is told to it by joining again, and it hears what comes after", async () => {
    const heard: string[] = [];
    let joins = 0;
    const stop = listen(database.url, {
      channels: ["news", "gossip"],
      onNotify: (channel, payload) => heard.push(`${channel}: ${payload}`),
      onJoin: () => {
        joins += 1;
      },
    });
    await eventually(() => expect(joins).toBe(1));
    await sql.notify("news", "one");
    await sql.notify("gossip", "two");
    await eventually(() => expect(heard).toEqual(["news: one", "gossip: two"]));
    await sql`select pg_terminate_backend(pid, 5000) from pg_stat_activity
      where query like 'listen %' and datname = current_database()`;
    await eventually(() => expect(joins).toBe(2));
    await sql.notify("news", "three");
    await eventually(() => expect(heard).toHaveLength(3));
    await stop();
  });
});

describe("a server that is none", () => {
  const GREETING = Buffer.from("5200000008000000005a0000000549", "hex"); // authenticated, and ready for a query

  test.each([
    { what: "hangs up at once", serve: (socket: Socket) => socket.destroy() },
    { what: "hangs up at the first words", serve: (socket: Socket) => socket.once("data", () => socket.destroy()) },
    {
      what: "resets at the first words",
      serve: (socket: Socket) => socket.once("data", () => socket.resetAndDestroy()),
    },
    {
      what: "greets, and resets at the first statement",
      serve: (socket: Socket) =>
        socket.once("data", () => {
          socket.write(GREETING);
          socket.once("data", () => socket.resetAndDestroy());
        }),
    },
    { what: "speaks another protocol", serve: (socket: Socket) => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n") },
  ])(
    "and $what: the statement, the transaction and the start are refused, and no second call is made",
    async ({ serve }) => {
      let calls = 0;
      const server = createServer((socket) => {
        calls += 1;
        socket.on("error", () => {});
        serve(socket);
      });
      await once(server.listen(0, "127.0.0.1"), "listening");
      const { port } = server.address() as AddressInfo;
      const url = `postgres://limber@127.0.0.1:${port}/limber`;
      const client = connect(url, { max: 1 });
      await expect(client`select 1`).rejects.toSatisfy(isOutage);
      await expect(tx(client, insert)).rejects.toSatisfy(isOutage);
      await expect(databaseReachable(url)).rejects.toThrow(/^DATABASE_URL 127\.0\.0\.1:\d+\/limber: /);
      expect(calls).toBe(3);
      await client.end();
      server.close();
    },
  );
});

describe("end", () => {
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

describe("numbers", () => {
  test("bigint, its arrays and its sums come as numbers, exact to the last micro-dollar", async () => {
    const most = Number.MAX_SAFE_INTEGER;
    const [row] = await sql`
      select ${most}::bigint as one, array[1, ${most}]::bigint[] as several, sum(n) as total, avg(n) as mean
      from (values (${most - 2}::bigint), (2::bigint)) as t (n)`;
    expect(row).toEqual({ one: most, several: [1, most], total: most, mean: most / 2 });
  });

  test.each(["bigint", "numeric"])(
    "a %s beyond what a number holds exactly rejects, and the connection goes on",
    (type) =>
      withOneLane(async (narrow) => {
        const rows = narrow.unsafe(`select n::${type} from (values (9007199254740993), (9007199254740995)) as t (n)`);
        await expect(rows).rejects.toThrow(RangeError);
        const answers = await Promise.all([1, 2, 3].map((n) => narrow<{ n: number }[]>`select ${n}::bigint as n`));
        expect(answers.map(([row]) => row!.n)).toEqual([1, 2, 3]);
      }),
  );
});

describe("arrays", () => {
  test("of numbers are written in one statement", async () => {
    await sql`insert into kept select n from unnest(${[1, 2, 3]}::bigint[]) as n`;
    expect(await count()).toBe(3);
  });

  test("come back as they were written, whatever their texts hold", async () => {
    const texts = [
      "",
      "plain",
      "NULL",
      'a "quoted" word',
      "back\\slash",
      "{comma, brace}",
      "two\nlines",
      " padded ",
      "日本",
    ];
    const [row] =
      await sql`select ${texts}::text[] as texts, ${[]}::text[] as none, ${[null, "x", null]}::text[] as gaps`;
    expect(row).toEqual({ texts, none: [], gaps: [null, "x", null] });
  });

  test.each([
    { type: "boolean", element: 16, values: [true, false, null] },
    { type: "integer", element: 23, values: [1, -2] },
    { type: "double precision", element: 701, values: [0.1, -1e300] },
    { type: "numeric", element: 1700, values: [12.5, 3] },
    { type: "timestamptz", element: 1184, values: [new Date("2026-11-21T10:00:00.123Z")] },
    { type: "uuid", element: 2950, values: ["0198b0a5-9c1e-7c3e-8f5a-1b2c3d4e5f60"] },
    { type: "jsonb", element: 3802, values: [{ a: 'b "c"' }, [1], null] },
  ])("of $type come back as they were written", async ({ type, element, values }) => {
    const [row] = await sql`select ${sql.array(values as string[], element)}::${sql.unsafe(type)}[] as values`;
    expect(row).toEqual({ values });
  });

  test("of arrays, and with an undefined element, are refused rather than changed", async () => {
    await expect(sql`select array[[1, 2], [3, 4]]::integer[] as nested`).rejects.toThrow("Arrays of arrays");
    await expect(sql`select ${[1, undefined] as number[]}::bigint[]`).rejects.toThrow(TypeError);
    expect(await count()).toBe(0);
  });
});

describe("databaseReachable", () => {
  const SECRET = "hunter2-hunter2";
  const problem = (url: string): Promise<string> =>
    databaseReachable(url).then(
      () => "none",
      (error: Error) => `${error.name}: ${error.message}`,
    );

  test("is silent about a database that answers", async () => {
    expect(await problem(database.url)).toBe("none");
  });

  test.each([
    {
      what: "nothing listens",
      url: () => `postgres://me:${SECRET}@127.0.0.1:1/limber`,
      says: "127.0.0.1:1/limber: nothing listens there",
    },
    {
      what: "no host",
      url: () => `postgres://me:${SECRET}@no-such-host.invalid/limber`,
      says: /no-such-host\.invalid\/limber: .*host/,
    },
    {
      what: "no socket",
      url: () => `postgres://me:${SECRET}@localhost/limber?host=/nowhere`,
      says: "/nowhere/limber: there is no such socket",
    },
    { what: "no such database", url: () => databaseUrl(database.url, "absent"), says: "there is no such database" },
    {
      what: "no such user",
      url: () => database.url.replace("limber@", `stranger:${SECRET}@`),
      says: "the user is refused",
    },
    { what: "no address", url: () => `me:${SECRET}@`, says: "DATABASE_URL is not an address" },
  ])("says in one line, without the password: $what", async ({ url, says }) => {
    const said = await problem(url());
    expect(said).toMatch(says);
    expect(said).toMatch(/^StoreUnavailable: DATABASE_URL [^\n]*$/);
    expect(said).not.toContain(SECRET);
  });
});
