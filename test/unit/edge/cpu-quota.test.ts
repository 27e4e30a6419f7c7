/** Where a CPU quota is found: in the files that the kernel shows of control groups, as several set-ups have them. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { findCpuQuota } from "../../../src/edge/cpu-quota.ts";

/** A folder with these files, in place of the machine's root. */
function machine(files: Readonly<Record<string, string>>): {
  readonly root: string;
  write(name: string, text: string): void;
} {
  const root = mkdtempSync(join(tmpdir(), "limber-quota-"));
  onTestFinished(() => rmSync(root, { recursive: true, force: true }));
  const write = (name: string, text: string): void => {
    mkdirSync(dirname(join(root, name)), { recursive: true });
    writeFileSync(join(root, name), text);
  };
  for (const [name, text] of Object.entries(files)) write(name, text);
  return { root, write };
}

const V2 = "31 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
const V1 =
  "30 23 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n" +
  "31 23 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";

it("is read of cgroup v2, with the usage of its group", () => {
  const { root, write } = machine({
    "proc/self/cgroup": "0::/\n",
    "proc/self/mountinfo": V2,
    "sys/fs/cgroup/cpu.max": "50000 100000\n",
    "sys/fs/cgroup/cpu.stat": "usage_usec 2500\nuser_usec 2000\n",
  });
  const quota = findCpuQuota(root);
  expect(quota?.cores).toBe(0.5);
  expect(quota?.readUsedMs()).toBe(2.5);
  write("sys/fs/cgroup/cpu.stat", "usage_usec 4500\nuser_usec 2000\n");
  expect(quota?.readUsedMs()).toBe(4.5);
  quota?.close();
});

it("is the tightest of the group's own and those around it", () => {
  const { root } = machine({
    "proc/self/cgroup": "0::/pods/one/gateway\n",
    "proc/self/mountinfo": `29 1 0:1 / / rw - ext4 /dev/vda rw\n${V2}`,
    "sys/fs/cgroup/pods/one/gateway/cpu.max": "max 100000\n",
    "sys/fs/cgroup/pods/one/cpu.max": "20000 100000\n",
    "sys/fs/cgroup/pods/one/cpu.stat": "usage_usec 1000\n",
    "sys/fs/cgroup/pods/cpu.max": "400000 100000\n",
  });
  const quota = findCpuQuota(root);
  expect([quota?.cores, quota?.place]).toEqual([0.2, join(root, "sys/fs/cgroup/pods/one")]);
  expect(quota?.readUsedMs()).toBe(1);
  quota?.close();
});

it("is read of cgroup v1 where a container sees its own group at the mount", () => {
  const { root } = machine({
    "proc/self/cgroup": "4:cpu,cpuacct:/docker/abc\n3:cpuset:/docker/abc\n0::/\n",
    "proc/self/mountinfo": `${V1}32 23 0:28 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n`,
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "12500\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpu,cpuacct/cpuacct.usage": "7000000\n",
  });
  const quota = findCpuQuota(root);
  expect([quota?.cores, quota?.readUsedMs()]).toEqual([0.125, 7]);
  quota?.close();
});

it("has no usage where the kernel counts that of another group", () => {
  const { root } = machine({
    "proc/self/cgroup": "2:cpuacct:/\n1:cpu:/held\n",
    "proc/self/mountinfo": `${V1}32 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n33 23 0:29 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n`,
    "sys/fs/cgroup/cpu/held/cpu.cfs_quota_us": "50000\n",
    "sys/fs/cgroup/cpu/held/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpuacct/cpuacct.usage": "7000000\n",
  });
  const quota = findCpuQuota(root);
  expect([quota?.cores, quota?.readUsedMs()]).toEqual([0.5, undefined]);
});

it.each([
  ["there are no such files", {}],
  [
    "the group has none",
    { "proc/self/cgroup": "0::/\n", "proc/self/mountinfo": V2, "sys/fs/cgroup/cpu.max": "max 100000\n" },
  ],
  [
    "v1 says -1",
    {
      "proc/self/cgroup": "1:cpu:/\n",
      "proc/self/mountinfo": "32 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n",
      "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
      "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    },
  ],
  [
    "the files say nonsense",
    {
      "proc/self/cgroup": "\n:\n0::/a/../b",
      "proc/self/mountinfo": `x\n - \n${V2}`,
      "sys/fs/cgroup/cpu.max": "soon later\n",
    },
  ],
  [
    "the period is none",
    { "proc/self/cgroup": "0::/\n", "proc/self/mountinfo": V2, "sys/fs/cgroup/cpu.max": "50000 0\n" },
  ],
])("is none where %s", (_, files: Readonly<Record<string, string>>) => {
  expect(findCpuQuota(machine(files).root)).toBe(undefined);
});

it("has no usage any more once its group is gone", () => {
  const { root } = machine({
    "proc/self/cgroup": "0::/\n",
    "proc/self/mountinfo": V2,
    "sys/fs/cgroup/cpu.max": "50000 100000\n",
  });
  expect(findCpuQuota(root)?.readUsedMs()).toBe(undefined);
});
