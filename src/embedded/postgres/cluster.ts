/** PostgreSQL's data directory. */
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  chownSync,
  closeSync,
  existsSync,
  fsyncSync,
  mkdtempSync,
  openSync,
  readdirSync,
  renameSync,
  statSync,
} from "node:fs";
import { rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import { StoreUnavailable } from "../../store/database/unavailable.ts";
import { type Account, launch } from "./account.ts";
import type { Binaries } from "./binaries.ts";

/** The superuser, and only user, of every embedded database. */
export const SUPERUSER = "limber";

const UNFINISHED = "postgres.new-";
/** Retries, because another process may still be writing or removing files. */
const REMOVAL = { recursive: true, force: true, maxRetries: 10, retryDelay: 50 };

/**
 * Creates a cluster at `path` if there is none. One that was left incomplete by a crash is created again.
 */
export async function ensureCluster(
  path: string,
  binaries: Binaries,
  account: Account | undefined,
  env: Record<string, string>,
): Promise<void> {
  const parent = dirname(path);
  for (const name of readdirSync(parent)) {
    if (name.startsWith(UNFINISHED)) await rm(join(parent, name), REMOVAL);
  }
  if (existsSync(path)) return adopt(path, account);
  const unfinished = mkdtempSync(join(parent, UNFINISHED));
  if (account) chownSync(unfinished, account.uid, account.gid);
  await initialise(unfinished, binaries, account, env);
  renameSync(unfinished, path);
  syncDirectory(parent);
}

/**
 * PostgreSQL rejects a directory that it does not own or that others can read; a copy restored by root can be both.
 */
function adopt(path: string, account: Account | undefined): void {
  chmodSync(path, 0o700);
  if (account === undefined || statSync(path).uid === account.uid) return;
  const { status, stderr } = spawnSync("chown", ["-R", `${account.uid}:${account.gid}`, path], { encoding: "utf8" });
  if (status !== 0)
    throw new StoreUnavailable(`${path} can't be given to the user that runs PostgreSQL: ${stderr.trim()}`);
}

async function initialise(path: string, binaries: Binaries, account: Account | undefined, env: Record<string, string>) {
  const args = [
    ...["-D", path, "-U", SUPERUSER, "--auth=trust", "--no-instructions"],
    ...["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"],
  ];
  const child = launch({ program: binaries.initdb, args, account, reaches: [binaries.initdb, path], env });
  const [errors, [code]] = await Promise.all([text(child.stderr!), once(child, "close")]);
  if (code === 0) return;
  await rm(path, REMOVAL);
  throw new StoreUnavailable(explain(errors, dirname(path)));
}

/** A rename is durable only once its directory is synced. */
function syncDirectory(path: string): void {
  const directory = openSync(path, "r");
  fsyncSync(directory);
  closeSync(directory);
}

const EXPLANATIONS: readonly { says: RegExp; text: (dataDir: string) => string }[] = [
  {
    says: /No space left on device|Disk quota exceeded|Check free disk space/,
    text: (dir) => `The disk that holds ${dir} is full`,
  },
  {
    says: /could not (?:access|change|create|open|write).*(?:Permission denied|Read-only file system)/,
    text: (dir) => `PostgreSQL may not write to ${dir}`,
  },
  {
    says: /initialized by PostgreSQL version/,
    text: (dir) =>
      `${dir} was made by another version of PostgreSQL: dump it with that version, or choose another DATA_DIR`,
  },
  {
    says: /not a valid data directory|incompatible with|control file|checkpoint record|could not (?:open|read) file/,
    text: (dir) => `The database in ${dir} is damaged: restore a copy of it, or choose another DATA_DIR`,
  },
];

/**
 * Why PostgreSQL failed, in one line: the known cause, else its last error message.
 */
export function explain(said: string, dataDir: string): string {
  const known = EXPLANATIONS.find(({ says }) => says.test(said));
  if (known) return known.text(dataDir);
  const lines = said
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
  const complaint =
    lines.findLast((line) => /FATAL|PANIC|error|failed/i.test(line)) ?? lines.at(-1) ?? "it said nothing";
  return `PostgreSQL did not start in ${dataDir}: ${complaint}`;
}
