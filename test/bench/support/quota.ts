/** Processes that are held to a part of a core. */
import { mkdirSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const GROUPS = "/sys/fs/cgroup/cpu";
const PERIOD_US = 100_000;

/** Holds each process to that part of a core by the kernel's own quota (cgroups, version 1); undefined where nothing can. The returned function ends it. */
export function holdEach(pids: readonly number[], part: number): (() => void) | undefined {
  const held: { pid: number; group: string }[] = [];
  const release = (): void => {
    for (const { pid, group } of held.splice(0)) {
      writeFileSync(join(GROUPS, "cgroup.procs"), String(pid));
      rmdirSync(group);
    }
  };
  try {
    for (const pid of pids) {
      const group = join(GROUPS, `limber-quota-${pid}`);
      mkdirSync(group);
      held.push({ pid, group });
      writeFileSync(join(group, "cpu.cfs_period_us"), String(PERIOD_US));
      writeFileSync(join(group, "cpu.cfs_quota_us"), String(Math.round(PERIOD_US * part)));
      writeFileSync(join(group, "cgroup.procs"), String(pid));
    }
    return release;
  } catch {
    release();
    return undefined;
  }
}
