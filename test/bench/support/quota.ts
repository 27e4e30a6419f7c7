/** Processes that are held to a part of a core. */
import { mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const GROUPS = "/sys/fs/cgroup/cpu";
const PERIOD_US = 100_000;

/** Processes that are held. */
export interface HeldProcesses {
  /** Milliseconds for which their quotas were used up so far, of all together. */
  stoodMs(): number;
  /** Holds them no more. */
  release(): void;
}

/** Holds each process to that part of a core by the kernel's own quota (cgroups, version 1); undefined where nothing can. */
export function holdEach(pids: readonly number[], part: number): HeldProcesses | undefined {
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
      // Among groups the priority of a process counts for nothing: these go before what else runs on the machine.
      writeFileSync(join(group, "cpu.shares"), "100000");
      writeFileSync(join(group, "cpu.cfs_period_us"), String(PERIOD_US));
      writeFileSync(join(group, "cpu.cfs_quota_us"), String(Math.round(PERIOD_US * part)));
      writeFileSync(join(group, "cgroup.procs"), String(pid));
    }
  } catch {
    release();
    return undefined;
  }
  return { stoodMs: () => held.reduce((sum, { group }) => sum + stoodMsOf(group), 0), release };
}

const stoodMsOf = (group: string): number =>
  Number(/throttled_time (\d+)/.exec(readFileSync(join(group, "cpu.stat"), "utf8"))?.[1]) / 1e6;
