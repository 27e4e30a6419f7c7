/** Physics: control steps a second of every scenario in each of its action spaces. */
import { Arena } from "../../../src/scenarios/episode.ts";
import { BUILT_IN } from "../../../src/scenarios/index.ts";
import { cpuMicros } from "./gateway.ts";

/** Prints them by CPU time of one core. */
export async function physics(): Promise<void> {
  for (const { id, variants } of BUILT_IN) {
    for (const variant of variants) {
      const arena = await Arena.of(variant);
      const nothing = async () => ({ rows: [variant.fields.map(() => 0)], latencyMs: 0 });
      const before = process.cpuUsage();
      let steps = 0;
      for (let seed = 0; cpuMicros(before) < 1e6; seed++)
        steps += (await arena.run(seed, nothing, { mode: "sync", replanSteps: 1 })).steps;
      const rate = (steps * 1e6) / cpuMicros(before);
      const real = ((rate * variant.dtMs) / 1000).toFixed(0);
      console.log(
        `${`${id} in ${variant.actionSpace}`.padEnd(38)}${rate.toFixed(0).padStart(8)} control steps a second, ${real} times real time`,
      );
      arena.close();
    }
  }
}
