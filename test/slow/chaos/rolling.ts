/**
 * `npm run chaos rolling RESTARTS [DELAY_S] [CALLS_A_SECOND LOOPS [MODE]]`: rolling restarts of three gateways behind haproxy, in both of its modes
 * or in one, tcp or http, with a load of that size where one is given, as 500 and 100. It ends with 1 where a call failed, and prints how soon loops got their next chunk.
 */
import { tell } from "./findings.ts";
import { HAPROXY } from "./rolling/haproxy.ts";
import { roll } from "./rolling/roll.ts";

const restarts = Number(process.argv[2] ?? 6);
const delayS = Number(process.argv[3] ?? 5);
const [callsASecond = 0, loops = 0] = process.argv.slice(4, 6).map(Number);
const load = process.argv.length > 4 ? { callsASecond, loops } : undefined;
const isLoad = load === undefined || (callsASecond >= 20 && Number.isSafeInteger(loops) && loops >= 1);
const modes = (["tcp", "http"] as const).filter((mode) => (process.argv[6] ?? mode) === mode);
if (modes.length === 0 || !Number.isSafeInteger(restarts) || restarts < 1 || !(delayS >= 0) || !isLoad) {
  console.error("usage: npm run chaos rolling [RESTARTS] [DELAY_S] [CALLS_A_SECOND LOOPS [MODE]]");
  process.exit(2);
}
if (HAPROXY === undefined) {
  console.error("haproxy is not installed");
  process.exit(2);
}
const progress = (line: string): void => console.error(line);
const figures = [];
const wrong: string[] = [];
for (const mode of modes) {
  const { wrong: found, ...came } = await roll({ mode, restarts, delayS, nats: true, ...(load && { load }), progress });
  figures.push(came);
  wrong.push(...found.map((finding) => `${mode}: ${finding}`));
}
process.exit(tell("rolling", restarts, { delayS, figures }, wrong));
