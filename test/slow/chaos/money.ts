/** `npm run chaos money KILLS [SEED]`: kill -9 of one of two gateways, or of PostgreSQL, and what became of the money. */
import { tell } from "./findings.ts";
import { besiege } from "./money/siege.ts";

const kills = Number(process.argv[2] ?? 50);
const seed = Number(process.argv[3] ?? 1);
if (!Number.isSafeInteger(kills) || kills < 1 || !Number.isSafeInteger(seed)) {
  console.error("usage: npm run chaos money KILLS [SEED]");
  process.exit(2);
}
const tty = process.stderr.isTTY;
let told = 0;
const progress = (line: string): void => {
  told++;
  if (tty) process.stderr.write(`\r${line}`);
  else if (told % 25 === 0 || told === kills) console.error(line);
};
// Who has no more patience asks once, and hears what came until then.
const enough = new AbortController();
process.once("SIGTERM", () => enough.abort());
const { wrong, ...figures } = await besiege({ kills, seed, progress, enough: enough.signal });
if (tty) process.stderr.write("\n");
process.exit(tell("money", seed, figures, wrong));
