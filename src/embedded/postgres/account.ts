/**
 * The account that runs PostgreSQL, which refuses to run as root: a gateway with root uses an unprivileged account.
 */
import { type ChildProcess, type SpawnOptions, spawn } from "node:child_process";
import { existsSync, readFileSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { StoreUnavailable } from "../../store/database/unavailable.ts";

/** A user and group of this machine. */
export interface Account {
  uid: number;
  gid: number;
}

/** A program, its account, and the paths that it needs. */
export interface Launch {
  program: string;
  args: readonly string[];
  /** Undefined runs it as the current user. */
  account: Account | undefined;
  /** Files and directories whose parents the account must be able to traverse. */
  reaches: readonly string[];
  env: Record<string, string>;
}

const SETPRIV = ["/usr/bin/setpriv", "/bin/setpriv"].find(existsSync);

/** The account that owns `cluster` or will own it; undefined if this process can run PostgreSQL as itself. */
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
 * Starts a program that exits with this process in any case (if `setpriv` supports that), ignores Ctrl-C in our terminal, and does not inherit
 * our environment. Its standard error is piped.
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

/** Whether the account can traverse every directory above `path`, according to their modes. */
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
 * A checkout under /root is closed to other accounts. A capability to bypass directory permissions opens it without copying data or changing
 * directories that are not ours; containers often withhold the smaller of the two capabilities that allow it.
 */
function enterAnyDirectory(path: string): string[] {
  const held = readFileSync("/proc/self/status", "utf8").match(/^CapEff:\s*([0-9a-f]+)/m)?.[1] ?? "0";
  const right = CAPABILITIES.find(({ bit }) => (BigInt(`0x${held}`) >> bit) & 1n);
  if (!right) throw unreachable(path);
  // Without the securebit, access(2) ignores the capability, and initdb relies on access(2).
  return ["--securebits", "+no_setuid_fixup", "--inh-caps", `+${right.name}`, "--ambient-caps", `+${right.name}`];
}

const unreachable = (path: string): StoreUnavailable =>
  new StoreUnavailable(
    `PostgreSQL can't run as root, and user nobody can't reach ${path}: set DATA_DIR to an open place, or DATABASE_URL`,
  );
