/** The export of the log: rows a second, at constant memory. */
import { readFileSync } from "node:fs";
import { actJson } from "../support/act-call.ts";
import { restLoad } from "../support/load.ts";
import { openBenchHouse, seconds } from "./gateway.ts";

const CALLS = 20_000;
/** Exports, one after the other. */
const ROUNDS = 60;
/** More old objects than this end the gateway: what stays between exports has to be garbage. */
const MOST_OLD_MIB = 160;
const MIB = 2 ** 20;

/** Prints rows a second, the memory of the gateway during the first export and every twentieth, and of what kind it is afterwards. */
export async function exportLogs(): Promise<void> {
  const { gateway, url, call, figures, close } = await openBenchHouse("0", [`--max-old-space-size=${MOST_OLD_MIB}`]);
  await restLoad(`${url}/v1/act`, actJson, gateway.key, 32, CALLS);
  const memory = (): number =>
    Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${gateway.pid}/status`, "utf8"))?.[1]) / 1024;
  for (let round = 0; round < ROUNDS; round++) {
    let [lines, most, next] = [0, 0, 0];
    const began = performance.now();
    for await (const chunk of (await call("/v1/logs/export")).body!) {
      for (const byte of chunk) if (byte === 10) lines++;
      if (performance.now() > next) {
        most = Math.max(most, memory());
        next = performance.now() + 50;
      }
    }
    if (round > 0 && round % 20 !== 19) continue;
    const rate = (lines / seconds(began)).toFixed(0);
    const text = await figures();
    const mib = (name: string): string => {
      const line = text.split("\n").find((each) => each.startsWith(`limber_nodejs_${name} `));
      return (Number(line?.split(" ").at(-1)) / MIB).toFixed(0);
    };
    console.log(
      `log export ${round + 1}: ${lines} rows, ${rate} a second; resident at most ${most.toFixed(0)} MiB; in use by objects ${mib("heap_size_used_bytes")}, of which old ${mib('heap_space_size_used_bytes{space="old"}')}, by buffers ${mib("external_memory_bytes")}`,
    );
  }
  await close();
}
