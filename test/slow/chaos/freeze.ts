/** `npm run chaos freeze ROUNDS [SEED]`: PostgreSQL stands still again and again under load; what callers were told, and the money. */
import { tell } from "./findings.ts";
import { besiegeFrozen } from "./freeze/siege.ts";

const rounds = Number(process.argv[2] ?? 20);
const seed = Number(process.argv[3] ?? 1);
if (!Number.isSafeInteger(rounds) || rounds < 1 || !Number.isSafeInteger(seed)) {
  console.error("usage: npm run chaos freeze ROUNDS [SEED]");
  process.exit(2);
}
const { wrong, ...figures } = await besiegeFrozen({ rounds, seed, progress: (line) => console.error(line) });
process.exit(tell("freeze", seed, figures, wrong));
