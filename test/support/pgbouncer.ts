/** Debian's PgBouncer 1.18 before a PostgreSQL, in transaction mode: the pooler that passes least on. */
import { type ChildProcess, spawn } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { installed } from "./programs.ts";

/** A running pooler. */
export interface PgBouncer {
  /** The address of one database behind it. */
  url(database: string): string;
  /** Ends it at once, and every session of its callers with it. */
  kill(): Promise<void>;
  /** Starts it again at the same port. */
  start(): Promise<void>;
  close(): Promise<void>;
}

/** The program; undefined where it is not installed. */
export const PGBOUNCER = installed("pgbouncer");

/** Starts it on `port` of loopback before the PostgreSQL at `postgresPort`, with five sessions for all callers; `more` is more of its configuration. */
export async function startPgBouncer(port: number, postgresPort: number, more = ""): Promise<PgBouncer> {
  const folder = mkdtempSync(join(tmpdir(), "limber-pgbouncer-"));
  chmodSync(folder, 0o755);
  const file = join(folder, "pgbouncer.ini");
  writeFileSync(
    file,
    `[databases]
* = host=127.0.0.1 port=${postgresPort} user=limber
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 5
max_client_conn = 200
${process.getuid?.() === 0 ? "user = nobody" : ""}
${more}
`,
  );
  let child = await launch(file);
  const kill = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await gone;
  };
  return {
    url: (database) => `postgres://limber@127.0.0.1:${port}/${database}`,
    kill,
    async start() {
      child = await launch(file);
    },
    async close() {
      await kill();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function launch(file: string): Promise<ChildProcess> {
  if (PGBOUNCER === undefined) throw new Error("pgbouncer is not installed");
  const child = spawn(PGBOUNCER, [file], { stdio: ["ignore", "ignore", "pipe"] });
  const orphan = (): void => void child.kill("SIGKILL");
  process.once("exit", orphan);
  child.once("exit", () => process.off("exit", orphan));
  let said = "";
  await new Promise<void>((resolve, reject) => {
    child.stderr!.setEncoding("utf8").on("data", (text: string) => {
      said = (said + text).slice(-4_000);
      if (said.includes("process up")) resolve();
    });
    child.once("error", reject);
    child.once("exit", () => reject(new Error(`pgbouncer ended: ${said}`)));
  });
  return child;
}
