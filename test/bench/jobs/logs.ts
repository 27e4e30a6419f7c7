/** The export of the log: rows a second, at constant memory. */
import { readFileSync } from "node:fs";
import { actJson } from "../support/act-call.ts";
import { restLoad } from "../support/load.ts";
import { openBenchHouse, seconds } from "./house.ts";

const CALLS = 20_000;
/** Exports, one after the other. */
const ROUNDS = 30;

/** Prints rows a second, and the memory of the gateway before and during the first export and every tenth. */
export async function exportLogs(): Promise<void> {
  const { gateway, url, call, close } = await openBenchHouse("0");
  await restLoad(`${url}/v1/act`, actJson, gateway.key, 32, CALLS);
  const memory = (): number =>
    Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${gateway.pid}/status`, "utf8"))?.[1]) / 1024;
  for (let round = 0; round < ROUNDS; round++) {
    const before = memory();
    let [lines, most, next] = [0, 0, 0];
    const began = performance.now();
    for await (const chunk of (await call("/v1/logs/export")).body!) {
      for (const byte of chunk) if (byte === 10) lines++;
      if (performance.now() > next) {
        most = Math.max(most, memory());
        next = performance.now() + 50;
      }
    }
    if (round === 0 || round % 10 === 9)
      console.log(
        `log export ${round + 1}: ${lines} rows, ${(lines / seconds(began)).toFixed(0)} a second; memory ${before.toFixed(0)} MiB, at most ${most.toFixed(0)}`,
      );
  }
  await close();
}
