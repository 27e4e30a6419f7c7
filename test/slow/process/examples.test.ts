/** The examples do what their own first lines say: robots close their loops on the reference provider, a subscriber hears events. */
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type App, type Caller, openApp } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { type Nats, startNats } from "../../support/nats.ts";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const SECONDS = "3";
/** One line a second of what a robot saw: chunks came, and were paid for. */
const SHOWN =
  /^[1-9]\d* Hz, age \d+\.\d ms, \d+ holds, \d+ steps without a valid chunk, .*\$0\.\d*[1-9]\d*, stream 1, at /m;

let nats: Nats;
let app: App;
let robot: Caller;

beforeAll(async () => {
  nats = await startNats();
  app = await openApp({ referenceSupply: true, natsUrl: nats.url });
  robot = await app.caller(10);
}, 120_000);
afterAll(async () => {
  await app.close();
  await nats.close();
});

/** Runs a program to its end; what it printed, and its exit code. */
async function run(
  program: string,
  args: readonly string[],
  env: object = {},
): Promise<{ out: string; code: number | null }> {
  const child = spawn(program, args, { cwd: ROOT, env: { ...process.env, LIMBER_KEY: robot.key, ...env } });
  const out: string[] = [];
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (text: string) => out.push(text));
  const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
  return { out: out.join(""), code };
}

it("the TypeScript robot example runs", async () => {
  const { out, code } = await run(process.execPath, ["examples/robot-loop.ts", SECONDS, app.url]);
  expect(out).toMatch(SHOWN);
  expect(code, out).toBe(0);
});

const PLUGIN = "/usr/bin/grpc_python_plugin";
const DEBIAN = ["/usr/bin/protoc", PLUGIN, "/usr/lib/python3/dist-packages/grpc"].every((path) => existsSync(path));

it.runIf(DEBIAN)("the Python robot example runs from stubs that Debian's own protoc makes of the schema", async () => {
  const stubs = mkdtempSync(join(tmpdir(), "limber-stubs-"));
  try {
    const generate = `npx buf build --as-file-descriptor-set -o ${stubs}/limber.binpb &&
      protoc --descriptor_set_in=${stubs}/limber.binpb --python_out=${stubs} --grpc_python_out=${stubs} \
        --plugin=protoc-gen-grpc_python=${PLUGIN} $(cd proto && find limber/v1 limber/edge -name '*.proto') \
        buf/validate/validate.proto google/api/annotations.proto google/api/http.proto`;
    const made = await run("sh", ["-c", generate]);
    expect(made.code, made.out).toBe(0);
    const { host } = new URL(app.url);
    const { out, code } = await run("/usr/bin/python3", ["examples/robot_loop.py", SECONDS, host], {
      PYTHONPATH: stubs,
    });
    expect(out).toMatch(SHOWN);
    expect(code, out).toBe(0);
  } finally {
    rmSync(stubs, { recursive: true });
  }
});

it("the NATS subscriber example runs", async () => {
  const child = spawn(process.execPath, ["examples/subscriber.ts", nats.url, robot.org], { cwd: ROOT });
  try {
    let heard = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      heard += text;
    });
    await eventually(() => expect(heard).toMatch(/^listening /));
    await app.key(robot.org);
    await eventually(() => expect(heard).toMatch(new RegExp(`^\\S+Z ${robot.org} key\\.created {"id":"evt_`, "m")));
  } finally {
    child.kill();
  }
});
