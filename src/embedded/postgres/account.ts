/**
 * Whom PostgreSQL runs as. It refuses to be root, so a gateway that is root hands it to an account without rights.
 */
import { type ChildProcess, type SpawnOptions, spawn } from "node:child_process";
import { existsSync, readFileSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { StoreUnavailable } from "../../store/database/client.ts";

/** A user and group of this machine. */
export interface Account {
  uid: number;
  gid: number;
}

/** What to run, as whom, and what it has to reach. */
export interface Launch {
  program: string;
  args: readonly string[];
  /** Undefined: as ourselves. */
  account: Account | undefined;
  /** Files and directories whose parents the account has to be able to enter. */
  reaches: readonly string[];
  env: Record<string, string>;
}

const SETPRIV = ["/usr/bin/setpriv", "/bin/setpriv"].find(existsSync);

/** The account that owns `cluster` or shall own it; undefined when this process may run PostgreSQL as itself. */
export function accountFor(cluster: string): Account | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const owner = statSync(cluster, { throwIfNoEntry: false });
  return owner && owner.uid !== 0 ? { uid: owner.uid, gid: owner.gid } : nobody();
}

function nobody(): Account {
  const entry = readFileSync("/etc/passwd", "utf8").match(/^nobody:[^:]*:(-?\d+):(-?\d+):/m);
  if (!entry)
    throw new StoreUnavailable("PostgreSQL can't run as root, and this machine has no user nobody. Set DATABASE_URL");
  return { uid: Number(entry[1]), gid: Number(entry[2]) };
}

/**
 * Starts a program that ends when this process does, however it dies (where `setpriv` can arrange that), that a
 * Ctrl-C in our terminal doesn't reach, and that sees none of our environment. Its standard error is piped.
 */
export function launch({ program, args, account, reaches, env }: Launch): ChildProcess {
  const options: SpawnOptions = {
    cwd: "/",
    detached: true,
    env: { PATH: "/usr/bin:/bin", LC_ALL: "C", TZ: "UTC", ...env },
    stdio: ["ignore", "ignore", "pipe"],
  };
  const barred = account && reaches.find((path) => !canReach(path, account));
  if (SETPRIV === undefined) {
    if (barred !== undefined) throw unreachable(barred);
    return spawn(program, args, account ? { ...options, ...account } : options);
  }
  const rights = account ? ["--reuid", `${account.uid}`, "--regid", `${account.gid}`, "--clear-groups"] : [];
  const reach = barred === undefined ? [] : enterAnyDirectory(barred);
  return spawn(SETPRIV, [...rights, ...reach, "--pdeathsig", "INT", "--", program, ...args], options);
}

/** Whether every directory above `path` lets the account through, as far as modes tell. */
function canReach(path: string, { uid, gid }: Account): boolean {
  const directory = dirname(path);
  const { mode, uid: owner, gid: group } = statSync(directory);
  const enter = owner === uid ? 0o100 : group === gid ? 0o010 : 0o001;
  if ((mode & enter) === 0) return false;
  return directory === "/" || canReach(directory, { uid, gid });
}

const CAPABILITIES = [
  { name: "dac_read_search", bit: 2n },
  { name: "dac_override", bit: 1n },
];

/**
 * A checkout under /root is closed to everyone else. The one right to pass closed directories opens it without a
 * copy of the data or a change to directories that are not ours; containers often withhold the smaller of the two
 * that grant it.
 */
function enterAnyDirectory(path: string): string[] {
  const held = readFileSync("/proc/self/status", "utf8").match(/^CapEff:\s*([0-9a-f]+)/m)?.[1] ?? "0";
  const right = CAPABILITIES.find(({ bit }) => (BigInt(`0x${held}`) >> bit) & 1n);
  if (!right) throw unreachable(path);
  // Without the securebit, access(2) would ignore the right, and initdb takes its word.
  return ["--securebits", "+no_setuid_fixup", "--inh-caps", `+${right.name}`, "--ambient-caps", `+${right.name}`];
}

const unreachable = (path: string): StoreUnavailable =>
  new StoreUnavailable(
    `PostgreSQL can't run as root, and user nobody can't reach ${path}: set DATA_DIR to an open place, or DATABASE_URL`,
  );
