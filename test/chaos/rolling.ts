/** `npm run chaos:rolling -- RESTARTS [DELAY_S]`: rolling restarts of three gateways behind haproxy, in both of its modes. It ends with 1 where a call failed. */
import { tell } from "./findings.ts";
import { HAPROXY } from "./rolling/haproxy.ts";
import { roll } from "./rolling/roll.ts";

const restarts = Number(process.argv[2] ?? 6);
const delayS = Number(process.argv[3] ?? 5);
if (!Number.isSafeInteger(restarts) || restarts < 1 || !(delayS >= 0)) {
  console.error("usage: npm run chaos:rolling -- [RESTARTS] [DELAY_S]");
  process.exit(2);
}
if (HAPROXY === undefined) {
  console.error("haproxy is not installed");
  process.exit(2);
}
const progress = (line: string): void => console.error(line);
const figures = [];
const wrong: string[] = [];
for (const mode of ["tcp", "http"] as const) {
  const { wrong: found, ...came } = await roll({ mode, restarts, delayS, nats: true, progress });
  figures.push(came);
  wrong.push(...found.map((finding) => `${mode}: ${finding}`));
}
process.exit(tell("rolling", restarts, { delayS, figures }, wrong));
