/** `npm run chaos jobs KILLS [SEED]`: kill -9 of workers in the middle of batches, and what became of every item. */
import { tell } from "./findings.ts";
import { besiegeJobs } from "./jobs/siege.ts";

const kills = Number(process.argv[2] ?? 50);
const seed = Number(process.argv[3] ?? 1);
if (!Number.isSafeInteger(kills) || kills < 1 || !Number.isSafeInteger(seed)) {
  console.error("usage: npm run chaos jobs KILLS [SEED]");
  process.exit(2);
}
let told = 0;
const progress = (line: string): void => {
  if (++told % 5 === 0 || told === kills) console.error(line);
};
const { wrong, ...figures } = await besiegeJobs({ kills, seed, progress });
process.exit(tell("jobs", seed, figures, wrong));
