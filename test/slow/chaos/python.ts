/**
 * `npm run chaos python [SECONDS] [EVERY]`: a robot in its loop at 100 Hz by the Python client, over two gateways of which one is killed in
 * turn every so many seconds. It ends with 1 where the robot was given a stale action or one of another episode, or was hardly served. Python
 * is the one of `clients/python/check.sh`, or that of `LIMBER_PYTHON`.
 */
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { connect, createServer, type Server } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Pair } from "../../support/pair.ts";
import { tell } from "./findings.ts";

const seconds = Number(process.argv[2] ?? 3600);
const everyS = Number(process.argv[3] ?? 20);
if (!(seconds > 0) || !(everyS > 0)) {
  console.error("usage: npm run chaos python [SECONDS] [EVERY]");
  process.exit(2);
}
const CLIENT = fileURLToPath(new URL("../../../clients/python", import.meta.url));
const VENV = fileURLToPath(new URL("../../../node_modules/.cache/python/bin/python", import.meta.url));
const python = process.env.LIMBER_PYTHON ?? (existsSync(VENV) ? VENV : "python3");

const pair = await Pair.open();
const wrong: string[] = [];
let kills = 0;
// A gateway that starts again has another port: robots know two addresses that stay.
const doors = await Promise.all([door(0), door(1)]);
const { key } = await pair.caller(Math.max(100, seconds));
const robot = spawn(python, ["endurance.py", doors.map(({ url }) => url).join(), key, String(seconds)], {
  cwd: CLIENT,
  env: { ...process.env, PYTHONPATH: CLIENT },
  stdio: ["ignore", "pipe", "inherit"],
});
let said = "";
robot.stdout.setEncoding("utf8").on("data", (text: string) => {
  said += text;
});
const ended = new Promise<number | null>((resolve) => robot.once("close", resolve));
const over = new AbortController();
void ended.then(() => over.abort());
for (let place = 0; !over.signal.aborted; place = 1 - place) {
  await sleep(everyS * 1000, undefined, { signal: over.signal }).catch(() => {});
  if (over.signal.aborted) break;
  kills += 1;
  await pair.kill(place);
  await pair.start(place);
}
const code = await ended;
const figures = JSON.parse(said || "{}");
if (code !== 0) wrong.push(`the robot ended with ${code}: ${(figures.faults ?? []).join("; ")}`);
if (!(figures.actions > seconds * 100 * 0.25))
  wrong.push(`the robot acted only ${figures.actions} times in ${seconds} s`);
if (kills < Math.floor(seconds / everyS / 2)) wrong.push(`only ${kills} gateways were killed`);
if (!(figures.streams > kills / 2)) wrong.push(`the robot opened only ${figures.streams} streams over ${kills} kills`);
wrong.push(...pair.mishaps);
for (const { server } of doors) server.close();
await pair.close();
process.exit(tell("python", everyS, { kills, ...figures }, wrong));

/** An address that stays, in front of a gateway that comes and goes. */
async function door(place: number): Promise<{ url: string; server: Server }> {
  const server = createServer((caller) => {
    const url = pair.urlOf(place);
    caller.on("error", () => {});
    if (url === undefined) {
      caller.destroy();
      return;
    }
    const gateway = connect(Number(new URL(url).port), "127.0.0.1").setNoDelay();
    gateway.on("error", () => {});
    caller.setNoDelay();
    caller.once("close", () => gateway.destroy());
    gateway.once("close", () => caller.destroy());
    caller.pipe(gateway).pipe(caller);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("it does not listen");
  return { url: `http://127.0.0.1:${address.port}`, server };
}
