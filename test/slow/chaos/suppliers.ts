/** `npm run chaos suppliers [CALLS] [SEED]`: six organisations and eight providers, some of them hostile: who reached whom, and who paid what. */
import { tell } from "./findings.ts";
import { tradeThrough } from "./suppliers/season.ts";

const calls = Number(process.argv[2] ?? 10_000);
const seed = Number(process.argv[3] ?? 7);
if (!Number.isSafeInteger(calls) || calls < 1 || !Number.isSafeInteger(seed)) {
  console.error("usage: npm run chaos suppliers [CALLS] [SEED]");
  process.exit(2);
}
const { wrong, ...figures } = await tradeThrough({ calls, seed, progress: (line) => console.log(line) });
process.exit(tell("suppliers", seed, figures, wrong));
