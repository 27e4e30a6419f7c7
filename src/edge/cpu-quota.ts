/**
 * The CPU quota that the operating system holds this process to: that of its control group on Linux (cgroup v1 or v2), as containers and
 * systemd's `CPUQuota` set it, and what the group has used. See the kernel's `cgroup-v2.rst` and `sched-bwc.rst`.
 */
import { closeSync, openSync, readFileSync, readSync } from "node:fs";
import { join } from "node:path";

/** A quota. */
export interface CpuQuota {
  /** Where it is set: another place is another quota. */
  readonly place: string;
  /** How many cores it is worth, such as 0.5. */
  readonly cores: number;
  /** Milliseconds that all processes under it have used so far; undefined where the kernel does not tell. */
  readUsedMs(): number | undefined;
  close(): void;
}

/** The folders of a control group and of all around it that can be seen, from the inside out. */
interface Levels {
  readonly version: 1 | 2;
  readonly cpu: readonly string[];
  /** Where usage is read, for each of them; the kernel mounts it apart from the quota where it likes to. */
  readonly usage: readonly (string | undefined)[];
}

/** The tightest quota that this process is under; undefined where there is none. `root` is where `/proc` and `/sys` are looked for. */
export function findCpuQuota(root = "/"): CpuQuota | undefined {
  const levels = levelsOf(root);
  let tightest: CpuQuota | undefined;
  levels?.cpu.forEach((folder, i) => {
    const cores = coresAt(folder, levels.version);
    const usage = levels.usage[i];
    if (cores !== undefined && cores < (tightest?.cores ?? Number.POSITIVE_INFINITY))
      tightest = new GroupQuota(folder, cores, usage, levels.version);
  });
  return tightest;
}

class GroupQuota implements CpuQuota {
  readonly place: string;
  readonly cores: number;
  readonly #file: string | undefined;
  readonly #version: 1 | 2;
  /** Kept open: to open it costs many times what reading does. */
  #handle: number | undefined;

  constructor(place: string, cores: number, usage: string | undefined, version: 1 | 2) {
    this.place = place;
    this.cores = cores;
    this.#file = usage && join(usage, version === 2 ? "cpu.stat" : "cpuacct.usage");
    this.#version = version;
  }

  readUsedMs(): number | undefined {
    if (this.#file === undefined) return undefined;
    try {
      this.#handle ??= openSync(this.#file, "r");
      const text = ROOM.toString("latin1", 0, readSync(this.#handle, ROOM, 0, ROOM.length, 0));
      const used = this.#version === 2 ? Number(/^usage_usec (\d+)/m.exec(text)?.[1]) / 1e3 : Number(text || "?") / 1e6;
      return Number.isFinite(used) ? used : undefined;
    } catch {
      // The group is gone, or was never readable.
      return undefined;
    }
  }

  close(): void {
    if (this.#handle !== undefined) closeSync(this.#handle);
    this.#handle = undefined;
  }
}

const ROOM = Buffer.alloc(4096);

function coresAt(folder: string, version: 1 | 2): number | undefined {
  const [quota, period] =
    version === 2
      ? (textOf(join(folder, "cpu.max")) ?? "").split(" ").map(Number)
      : [Number(textOf(join(folder, "cpu.cfs_quota_us"))), Number(textOf(join(folder, "cpu.cfs_period_us")))];
  // `max`, -1 and what is not there are no quota.
  const cores = Number(quota) / Number(period);
  return cores > 0 && Number.isFinite(cores) ? cores : undefined;
}

function levelsOf(root: string): Levels | undefined {
  const groups = linesOf(join(root, "proc/self/cgroup")).map((line) => line.split(":"));
  const mounts = linesOf(join(root, "proc/self/mountinfo")).map(mountOf);
  const pathOf = (controller: string): string | undefined =>
    groups
      .find(([, controllers = ""]) => controllers.split(",").includes(controller))
      ?.slice(2)
      .join(":");
  const foldersOf = (path: string | undefined, isIt: (mount: Mount) => boolean): string[] => {
    const mount = mounts.find(isIt);
    return path === undefined || mount === undefined ? [] : foldersWithin(root, mount, path);
  };
  const first = pathOf("cpu");
  if (first !== undefined) {
    const cpu = foldersOf(first, ({ type, options }) => type === "cgroup" && options.includes("cpu"));
    // Of another group the usage would be another's.
    const usage =
      pathOf("cpuacct") === first
        ? foldersOf(first, ({ type, options }) => type === "cgroup" && options.includes("cpuacct"))
        : [];
    return { version: 1, cpu, usage: usage.length === cpu.length ? usage : [] };
  }
  const second = groups
    .find(([id]) => id === "0")
    ?.slice(2)
    .join(":");
  const cpu = foldersOf(second, ({ type }) => type === "cgroup2");
  return { version: 2, cpu, usage: cpu };
}

/** Where a hierarchy is mounted, and which of its groups is seen there. */
interface Mount {
  readonly group: string;
  readonly at: string;
  readonly type: string;
  readonly options: readonly string[];
}

/** A line of `/proc/self/mountinfo`; see proc(5). */
function mountOf(line: string): Mount {
  const [before = "", after = ""] = line.split(" - ", 2);
  const [, , , group = "/", at = "/"] = before.split(" ").map(unescaped);
  const [type = "", , options = ""] = after.split(" ");
  return { group, at, type, options: options.split(",") };
}

/** Blanks and the like stand as octal numbers in mountinfo. */
const unescaped = (text: string): string =>
  text.replaceAll(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));

/** The folder of a group and those around it, up to the mount's own. In a container that sees its own group alone, that is the only one. */
function foldersWithin(root: string, mount: Mount, path: string): string[] {
  const top = mount.group === "/" ? "" : mount.group;
  const isBelow = path.startsWith(`${top}/`) && !path.includes("/..");
  const names = isBelow ? path.slice(top.length).split("/").filter(Boolean) : [];
  return Array.from({ length: names.length + 1 }, (_, i) => join(root, mount.at, ...names.slice(0, names.length - i)));
}

const linesOf = (file: string): string[] => textOf(file)?.split("\n").filter(Boolean) ?? [];

/** What a small file says; undefined where there is none, as everywhere but on Linux. */
function textOf(file: string): string | undefined {
  try {
    return readFileSync(file, "latin1");
  } catch {
    return undefined;
  }
}
