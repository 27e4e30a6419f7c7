/**
 * `npm run chaos loops [SECONDS] [EVERY]`: the two example robots in their loops at 50 Hz, in TypeScript and in Python, while one of the
 * two equal providers that serve them is killed every so many seconds. It ends with 1 where a stale chunk came, or a robot gave up.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startReference } from "../../../src/reference/launch.ts";
import { descendants, start } from "../../bench/support/processes.ts";
import { tell } from "./findings.ts";

const seconds = Number(process.argv[2] ?? 300);
const everyS = Number(process.argv[3] ?? 20);
if (!(seconds > 0) || !(everyS > 0)) {
  console.error("usage: npm run chaos loops [SECONDS] [EVERY]");
  process.exit(2);
}
const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const PLUGIN = "/usr/bin/grpc_python_plugin";
const HAS_PYTHON = ["/usr/bin/protoc", PLUGIN, "/usr/lib/python3/dist-packages/grpc"].every((path) => existsSync(path));

/** What a robot prints once a second. */
const SHOWN = /^(\d+) Hz, age ([\d.]+) ms, (\d+) holds, (\d+) steps without a valid chunk, (\d+) stale chunks/;

process.chdir(ROOT);
const folder = mkdtempSync(join(tmpdir(), "limber-loops-"));
const began = performance.now();
const wrong: string[] = [];

const gateway = await start("src/main.ts", [], (line) => line.startsWith("export LIMBER_KEY="), {
  env: { PORT: "0", DATA_DIR: join(folder, "data") },
  log: join(folder, "log"),
});
const url = gateway.lines.find((line) => line.startsWith("limber ready "))!.slice("limber ready ".length);
const env = { LIMBER_URL: url, LIMBER_KEY: gateway.line.slice("export LIMBER_KEY=".length) };

// Both start again by themselves, on the port that they had.
const second = await startReference();
await run("register", [
  "tools/provider.ts",
  ...["register", "--provider", "second", "--model", "reference/potential-nav", "--runtime", "limber-policy"],
  ...["--endpoint", second.grpc, "--action-space", "base_twist_2d", "--dt-ms", "100", "--price", "0.0001"],
]);

const robots = [robot("TypeScript", process.execPath, ["examples/robot-loop.ts", String(seconds), url], {})];
if (HAS_PYTHON) {
  const stubs = join(folder, "stubs");
  await made(stubs);
  const args = ["examples/robot_loop.py", String(seconds), new URL(url).host];
  robots.push(robot("Python", "/usr/bin/python3", args, { PYTHONPATH: stubs }));
}
let kills = 0;
const killing = setInterval(kill, everyS * 1000);
const figures = await Promise.all(robots);
clearInterval(killing);
await Promise.all([gateway.stop(), second.stop()]);
rmSync(folder, { recursive: true, force: true });
if (kills < Math.floor(seconds / everyS) - 1) wrong.push(`only ${kills} providers were killed`);
process.exit(tell("loops", everyS, { seconds, kills, ...Object.fromEntries(figures) }, wrong));

/** Kills one provider after the other: the gateway's own, and the second one. */
function kill(): void {
  kills += 1;
  const first = kills % 2 === 1;
  const pid = first ? descendants(gateway.pid).find(isProvider) : second.pid;
  if (pid !== undefined) process.kill(pid, "SIGKILL");
  console.log(
    `${((performance.now() - began) / 1000).toFixed(0)} s: killed the ${first ? "first" : "second"} provider`,
  );
}

function isProvider(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("reference/main.ts");
  } catch {
    return false;
  }
}

/** Runs a program to its end; every line that it prints. */
async function run(name: string, args: readonly string[], program = process.execPath, more = {}): Promise<string[]> {
  const child: ChildProcess = spawn(program, args, { env: { ...process.env, ...env, ...more } });
  let text = "";
  for (const stream of [child.stdout!, child.stderr!])
    stream.setEncoding("utf8").on("data", (part: string) => {
      text += part;
      if (name.startsWith("robot")) process.stdout.write(part);
    });
  const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
  if (code !== 0) wrong.push(`${name} ended with ${code}: ${text.slice(-500)}`);
  return text.split("\n");
}

/** Makes the stubs that the example in Python says it needs. */
async function made(stubs: string): Promise<void> {
  const script = `mkdir -p ${stubs} && node_modules/.bin/buf build --as-file-descriptor-set -o ${stubs}/limber.binpb &&
    protoc --descriptor_set_in=${stubs}/limber.binpb --python_out=${stubs} --grpc_python_out=${stubs} \
      --plugin=protoc-gen-grpc_python=${PLUGIN} $(cd proto && find limber/v1 limber/edge -name '*.proto') \
      buf/validate/validate.proto google/api/annotations.proto google/api/http.proto`;
  await run("stubs", ["-c", script], "/bin/sh");
}

/** Runs a robot; what it came to, by its name. */
async function robot(name: string, program: string, args: readonly string[], more: object): Promise<[string, object]> {
  const lines = await run(`robot in ${name}`, args, program, more);
  const shown = lines.flatMap((line) => SHOWN.exec(line)?.slice(1).map(Number) ?? []);
  const [chunks, , holds, without, stale] = [0, 1, 2, 3, 4].map((column) =>
    shown.filter((_, i) => i % 5 === column).reduce((sum, value) => sum + value, 0),
  );
  const moves = lines.filter((line) => line.startsWith("served by ")).length;
  if (stale! > 0) wrong.push(`the robot in ${name} got ${stale} stale chunks`);
  // Killed every so often, it has to be served for nearly all of the time all the same.
  if (chunks! < seconds * 50 * 0.5) wrong.push(`the robot in ${name} got only ${chunks} chunks in ${seconds} s`);
  return [name, { chunks, holds, without, stale, moves }];
}
