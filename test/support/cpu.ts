/** CPU time in seconds. */
import { readFileSync } from "node:fs";

/** CPU time of this process. */
export function ownSeconds(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

/** CPU time of the children that this process has waited for, theirs included; 0 where the system does not report it (it needs Linux's /proc). */
export function childSeconds(): number {
  if (process.platform !== "linux") return 0;
  // The fields cutime and cstime, in ticks of 10 ms.
  const fields = readFileSync("/proc/self/stat", "utf8").split(") ")[1]!.split(" ");
  return (Number(fields[13]) + Number(fields[14])) / 100;
}
