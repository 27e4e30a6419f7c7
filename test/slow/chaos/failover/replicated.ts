/** Two PostgreSQL servers on loopback, one the standby of the other, which waits for it with each commit. */
import { type ChildProcess, execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { accountFor, launch } from "../../../../src/embedded/postgres/account.ts";
import { findBinaries, libraryEnvironment } from "../../../../src/embedded/postgres/binaries.ts";
import { ensureCluster } from "../../../../src/embedded/postgres/cluster.ts";
import { connect } from "../../../../src/store/database/tx.ts";
import { descendantsOf } from "../../../support/gateway.ts";
import { freePort } from "../../../support/owners.ts";
import { until } from "../jobs/until.ts";

/** The two, of which one takes writes. */
export class Replicated {
  readonly #dir: string;
  readonly #ports: readonly [number, number];
  readonly #servers: (ChildProcess | undefined)[] = [];
  readonly #binaries = findBinaries();
  readonly #env: Record<string, string>;
  #primary = 0;

  private constructor(dir: string, ports: readonly [number, number]) {
    this.#dir = dir;
    this.#ports = ports;
    this.#env = libraryEnvironment(this.#binaries, join(dir, "lib"));
  }

  /** Makes and starts both in `dir`. */
  static async open(dir: string): Promise<Replicated> {
    const pair = new Replicated(dir, [await freePort(), await freePort()]);
    const cluster = pair.#cluster(0);
    mkdirSync(join(cluster, ".."));
    await ensureCluster(cluster, pair.#binaries, accountFor(cluster), pair.#env);
    await pair.#start(0);
    await pair.follow();
    return pair;
  }

  /** The address that names both. */
  get url(): string {
    const [a, b] = this.#ports;
    return `postgres://limber@127.0.0.1:${a},127.0.0.1:${b}/postgres?target_session_attrs=primary`;
  }

  /** The address of the one that takes writes now. */
  get primaryUrl(): string {
    return this.#urlOf(this.#primary);
  }

  /** Kills the primary with all its processes, and promotes the standby. */
  async failOver(): Promise<void> {
    await this.#kill(this.#primary);
    this.#primary = 1 - this.#primary;
    const sql = connect(this.#urlOf(this.#primary), { max: 1, unbounded: true });
    await sql`select pg_promote(true, 60)`.finally(() => sql.end());
  }

  /** Makes the server that is down a standby of the one that is up, from a fresh copy; resolves when commits wait for it. */
  async follow(): Promise<void> {
    const standby = 1 - this.#primary;
    const cluster = this.#cluster(standby);
    rmSync(join(cluster, ".."), { recursive: true, force: true });
    const sql = connect(this.#urlOf(this.#primary), { max: 1, unbounded: true });
    try {
      await sql`select pg_backup_start('copy', true)`;
      execFileSync("cp", ["-a", join(this.#cluster(this.#primary), ".."), join(cluster, "..")]);
      const [row] = await sql<{ labelfile: string }[]>`select labelfile from pg_backup_stop(false)`;
      for (const name of ["postmaster.pid", "postmaster.opts"]) rmSync(join(cluster, name), { force: true });
      for (const [name, text] of [
        ["backup_label", row!.labelfile],
        ["standby.signal", ""],
      ] as const) {
        writeFileSync(join(cluster, name), text);
        execFileSync("chown", [`--reference=${cluster}`, join(cluster, name)]);
      }
      await this.#start(standby, { primary_conninfo: `host=127.0.0.1 port=${this.#ports[this.#primary]} user=limber` });
      // After the copy: what is promoted waits for nobody until it has a standby of its own.
      await sql.unsafe("alter system set synchronous_commit = remote_apply");
      await sql.unsafe("alter system set synchronous_standby_names = '*'");
      await sql`select pg_reload_conf()`;
      await until("the standby to follow", async () => {
        const rows = await sql`select 1 from pg_stat_replication where state = 'streaming' and sync_state = 'sync'`;
        return rows.length === 1;
      });
    } finally {
      await sql.end();
    }
  }

  /** Ends both at once. */
  async close(): Promise<void> {
    await Promise.all([this.#kill(0), this.#kill(1)]);
  }

  readonly #cluster = (place: number): string => join(this.#dir, `pg${place}`, "postgres");
  readonly #urlOf = (place: number): string => `postgres://limber@127.0.0.1:${this.#ports[place]}/postgres`;

  async #start(place: number, more: Record<string, string> = {}): Promise<void> {
    const cluster = this.#cluster(place);
    const settings = {
      listen_addresses: "127.0.0.1",
      port: `${this.#ports[place]}`,
      unix_socket_directories: "",
      fsync: "off",
      ...more,
    };
    const child = launch({
      program: this.#binaries.postgres,
      args: ["-D", cluster, ...Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`])],
      account: accountFor(cluster),
      reaches: [this.#binaries.postgres, cluster],
      env: this.#env,
    });
    this.#servers[place] = child;
    let said = "";
    child.stderr!.setEncoding("utf8").on("data", (text: string) => {
      said = (said + text).slice(-2_000);
    });
    await until(`PostgreSQL to start: ${said}`, async () => {
      if (child.exitCode !== null) throw new Error(`PostgreSQL ended: ${said}`);
      const sql = connect(this.#urlOf(place), { max: 1 });
      return sql`select 1`
        .then(
          () => true,
          () => false,
        )
        .finally(() => sql.end());
    });
  }

  async #kill(place: number): Promise<void> {
    const child = this.#servers[place];
    this.#servers[place] = undefined;
    if (child?.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise((resolve) => child.once("exit", resolve));
    for (const pid of [child.pid, ...descendantsOf(child.pid)]) kill(pid);
    await gone;
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "ESRCH")) throw error;
  }
}
