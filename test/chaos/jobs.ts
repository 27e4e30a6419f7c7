/** `npm run chaos:jobs -- KILLS [SEED]`: kill -9 of workers in the middle of batches, and what became of every item. */
import { besiegeJobs } from "./jobs/siege.ts";

const kills = Number(process.argv[2] ?? 50);
const seed = Number(process.argv[3] ?? 1);
if (!Number.isSafeInteger(kills) || kills < 1 || !Number.isSafeInteger(seed)) {
  console.error("usage: npm run chaos:jobs -- KILLS [SEED]");
  process.exit(2);
}
let told = 0;
const progress = (line: string): void => {
  if (++told % 5 === 0 || told === kills) console.error(line);
};
const { wrong, ...figures } = await besiegeJobs({ kills, seed, progress });
for (const line of wrong.slice(0, 50)) console.log(line);
console.log(JSON.stringify({ seed, ...figures, wrong: wrong.length }));
process.exit(wrong.length === 0 ? 0 : 1);
