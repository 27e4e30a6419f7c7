/** Transactions whose connection is lost, and servers that are none. */
import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { listen } from "../../src/store/database/notifications.ts";
import { connect, databaseReachable, type Tx, tx } from "../../src/store/database/tx.ts";
import { isOutage } from "../../src/store/database/unavailable.ts";
import { databaseUrl } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { begin, count, database, end, endEach, insert, sql, withOneLane } from "./kept.ts";

beforeAll(begin);
afterEach(endEach);
afterAll(end);

describe("a lost connection", () => {
  /** Ends the server process that serves a transaction. */
  const cut = async (tx: Tx): Promise<void> => {
    const [row] = await tx<{ pid: number }[]>`select pg_backend_pid() as pid`;
    await sql`select pg_terminate_backend(${row!.pid}, 5000)`;
  };

  test("rolls its transaction back: nothing of it is kept or runs outside, and the next one works", () =>
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

  test("ends its transaction, and statements queued after the loss do not run outside of it", () =>
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

  test("closes its pool, and leaves no other connection", () =>
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

  test("of a listener makes it join again, and it receives later notifications", async () => {
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

describe("a database server that fails", () => {
  const GREETING = Buffer.from("5200000008000000005a0000000549", "hex"); // authenticated, and ready for a query

  test.each([
    { what: "closes at once", serve: (socket: Socket) => socket.destroy() },
    { what: "closes after the first bytes", serve: (socket: Socket) => socket.once("data", () => socket.destroy()) },
    {
      what: "resets after the first bytes",
      serve: (socket: Socket) => socket.once("data", () => socket.resetAndDestroy()),
    },
    {
      what: "sends its greeting, and resets at the first statement",
      serve: (socket: Socket) =>
        socket.once("data", () => {
          socket.write(GREETING);
          socket.once("data", () => socket.resetAndDestroy());
        }),
    },
    { what: "speaks another protocol", serve: (socket: Socket) => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n") },
  ])(
    "and $what: the statement, the transaction and the start are refused, and no second attempt is made",
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

describe("databaseReachable", () => {
  const SECRET = "hunter2-hunter2";
  const problem = (url: string): Promise<string> =>
    databaseReachable(url).then(
      () => "none",
      (error: Error) => `${error.name}: ${error.message}`,
    );

  test("does not complain about a reachable database", async () => {
    expect(await problem(database.url)).toBe("none");
  });

  test.each([
    {
      what: "no listener",
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
      says: "/nowhere/limber: the socket does not exist",
    },
    { what: "no such database", url: () => databaseUrl(database.url, "absent"), says: "the database does not exist" },
    {
      what: "no such user",
      url: () => database.url.replace("limber@", `stranger:${SECRET}@`),
      says: "the server rejects the user",
    },
    { what: "no address", url: () => `me:${SECRET}@`, says: "DATABASE_URL is not an address" },
  ])("reports in one line, without the password: $what", async ({ url, says }) => {
    const said = await problem(url());
    expect(said).toMatch(says);
    expect(said).toMatch(/^StoreUnavailable: DATABASE_URL [^\n]*$/);
    expect(said).not.toContain(SECRET);
  });
});
