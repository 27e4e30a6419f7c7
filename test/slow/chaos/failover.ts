/** `npm run chaos failover TIMES`: the primary of two PostgreSQL servers is killed and its standby promoted, under load. It ends with 1 where something was lost. */
import { failOver } from "./failover/failover.ts";
import { tell } from "./findings.ts";

const times = Number(process.argv[2] ?? 20);
if (!Number.isSafeInteger(times) || times < 1) {
  console.error("usage: npm run chaos failover [TIMES]");
  process.exit(2);
}
const { wrong, ...figures } = await failOver(times, (line) => console.error(line));
process.exit(tell("failover", times, figures, wrong));
