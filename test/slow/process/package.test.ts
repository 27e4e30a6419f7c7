/** The gateway as a package: packed, installed into an empty folder, and called. */

import { execFile, execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";
import { isTooOld } from "../../../src/app/brought-node.ts";
import { START_FLAGS } from "../../../src/app/collector.ts";
import { API_VERSION } from "../../../src/brand.ts";
import { build } from "../../../tools/build.ts";
import { licencesOf, packSources, versionsOf } from "../../../tools/release.ts";
import { type DemoGateway, startDemo } from "../../support/demo-gateway.ts";
import { scratchDir } from "../../support/gateway.ts";

const ROOT = join(import.meta.dirname, "../../..");
const scratch = scratchDir();
const at = (name: string): string => join(scratch.path, name);
const run = promisify(execFile);

/** A Node.js of the system that is too old for the gateway; undefined where there is none. */
const OLD_NODE = ["/usr/bin/node", "/usr/local/bin/node"].find(
  (file) => existsSync(file) && isTooOld(execFileSync(file, ["-p", "process.versions.node"], { encoding: "utf8" })),
);

/** Runs the installed command; resolves with how it ended and all that it said. */
async function limber(...args: readonly string[]): Promise<{ code: number; said: string }> {
  const env = { ...process.env, LIMBER_URL: url, LIMBER_KEY: key };
  const options = { cwd: at("empty"), env };
  return run(at("empty/node_modules/.bin/limber"), args, options).then(
    ({ stdout, stderr }) => ({ code: 0, said: stdout + stderr }),
    ({ code, stdout, stderr }) => ({ code, said: stdout + stderr }),
  );
}

let gateway: DemoGateway;
let url = "";
let key = "";

beforeAll(async () => {
  const folder = build(at("dist"));
  await run("mkdir", [at("empty")]);
  await run("npm", ["pack", folder, "--pack-destination", scratch.path, "--silent"]);
  const tarball = readdirSync(scratch.path).find((name) => name.endsWith(".tgz"))!;
  const quiet = ["--prefer-offline", "--no-audit", "--no-fund", "--silent"];
  await run("npm", ["install", ...quiet, at(tarball)], { cwd: at("empty") });
  gateway = await startDemo(at("empty/node_modules/.bin/limber"), ["start"], { cwd: at("empty"), data: at("data") });
  ({ url, key } = gateway);
}, 240_000);
afterAll(async () => {
  await gateway?.stop();
  scratch.remove();
});

it("the package serves a first call from an empty folder", async () => {
  const proprio = { x: 0, y: 0, yaw: 0, goal_x: 2, goal_y: 1, goal_yaw: 0 };
  const observations = [{ proprio: Object.values(proprio), proprio_names: Object.keys(proprio) }];
  const answer = await fetch(`${url}/v1/act`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "service/auto", action_space: "base_twist_2d", observations }),
  });
  expect(answer.status, await answer.clone().text()).toBe(200);
  expect(await answer.json()).toMatchObject({ action: { space: "base_twist_2d" } });
});

it.runIf(process.platform === "linux")("the package runs in the started process, with the gateway's V8 flags", () => {
  const words = readFileSync(`/proc/${gateway.pid}/cmdline`, "utf8").split("\0");
  expect(words.slice(1, 1 + START_FLAGS.length)).toEqual(START_FLAGS);
  expect(words).toContainEqual(expect.stringMatching(/\/src\/main\.js$/));
});

it.runIf(OLD_NODE !== undefined)(
  "the package runs on its bundled Node.js if the one on the path is older",
  async () => {
    const { stderr } = await run(OLD_NODE!, [at("empty/node_modules/limber/src/cli.js"), "provider", "--help"]);
    expect(stderr).toBe("");
    const wrong = run(OLD_NODE!, [at("empty/node_modules/limber/src/cli.js"), "lerobot", "--nonsense"]);
    await expect(wrong).rejects.toMatchObject({ code: 1, stderr: expect.stringContaining("--nonsense") });
  },
);

it("the package contains its catalog, its documents and its API description", async () => {
  const models = (await (await fetch(`${url}/v1/models?limit=1`)).json()) as { total: number };
  expect(models.total).toBeGreaterThan(1000);
  expect((await fetch(`${url}/docs`)).status).toBe(200);
  const description = (await (await fetch(`${url}/openapi.json`)).json()) as { info: object };
  expect(description.info).toMatchObject({ version: API_VERSION });
});

it("the package's command evaluates a policy in a worker of its own", async () => {
  const { code, said } = await limber(
    "evaluate",
    "--policy",
    "service/auto",
    "--scenario",
    "arm-reach",
    "--episodes=1",
  );
  expect({ code, said }).toMatchObject({ code: 0, said: expect.stringMatching(/episode 0 {2}success.*completed\n$/s) });
});

it("the package's commands report errors with the exit codes of their help", async () => {
  expect(await limber("evaluate", "--scenario", "base-nav")).toMatchObject({ code: 2 });
  expect(await limber("evaluate", "--policy", "no/such", "--scenario", "base-nav")).toMatchObject({ code: 3 });
  expect(await limber("provider", "--help")).toMatchObject({ code: 0 });
  expect(await limber("lerobot", "--nonsense")).toMatchObject({ code: 1 });
});

it("the package replays a routing case from a file", async () => {
  writeFileSync(
    at("empty/case.yaml"),
    "contract: act\nrequest: {model: service/auto, observations: [{proprio: [0]}]}\n",
  );
  const { said } = await limber("plan", "case.yaml");
  expect(JSON.parse(said)).toHaveProperty("plan");
});

it("the client package calls the installed gateway, and its types compile in strict mode", async () => {
  const folder = join(ROOT, "clients/typescript");
  await run("npm", ["run", "build", "--silent"], { cwd: folder });
  await run("npm", ["pack", folder, "--pack-destination", scratch.path, "--silent"]);
  const tarball = readdirSync(scratch.path).find((name) => name.startsWith("limber-client"))!;
  await run("npm", ["install", "--prefer-offline", "--no-audit", "--no-fund", "--silent", at(tarball)], {
    cwd: at("empty"),
  });
  const program = `import { Limber, observationOf, type Refused } from "@limber/client";
    const limber = new Limber({ url: ${JSON.stringify(url)}, key: ${JSON.stringify(key)} });
    const state = { x: 0, y: 0, yaw: 0, goal_x: 2, goal_y: 1, goal_yaw: 0 };
    const request = { model: "service/auto", actionSpace: "base_twist_2d", observations: [observationOf({ state })] };
    const { action } = await limber.act(request);
    const refused: string = await limber.model("no/such").then(() => "", (thrown: Refused) => thrown.code);
    console.log(action?.space, refused);
    process.exit(0);\n`;
  writeFileSync(at("empty/call.mts"), program);
  const strict = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2024", "--types", "node"];
  const typeRoots = ["--typeRoots", join(ROOT, "node_modules/@types")];
  await run(join(ROOT, "node_modules/.bin/tsc"), [...strict, ...typeRoots, "call.mts"], { cwd: at("empty") });
  const { stdout } = await run(join(ROOT, "node_modules/.bin/node"), ["call.mts"], { cwd: at("empty") });
  expect(stdout).toBe("base_twist_2d model_not_found\n");
}, 120_000);

it("all released artifacts have the package's version", () => {
  const versions = versionsOf(ROOT);
  expect(versions.size).toBeGreaterThan(1);
  expect(new Set(versions.values()).size, JSON.stringify(Object.fromEntries(versions))).toBe(1);
});

it("source clients are single folders with their license and everything that their tests read", () => {
  const [version] = versionsOf(ROOT).values();
  const lists = packSources(version!, scratch.path).map((archive) =>
    execFileSync("tar", ["-tzf", archive], { encoding: "utf8" }).trim().split("\n"),
  );
  const [cpp = [], ros2 = []] = lists;
  const within = (name: string, files: readonly string[]) => files.map((file) => `limber-${name}-${version}/${file}`);
  const traces = readdirSync(join(ROOT, "clients/conformance/traces")).map((name) => `test/traces/${name}`);
  expect(cpp).toEqual(expect.arrayContaining(within("cpp", ["LICENSE", "CMakeLists.txt", "test/fake.cpp", ...traces])));
  const tests = ["test/test_ros2.py", "test/conftest.py"];
  expect(ros2).toEqual(expect.arrayContaining(within("ros2", ["LICENSE", "limber_ros2/package.xml", ...tests])));
  expect(new Set(lists.flat().map((path) => path.split("/")[0]))).toEqual(
    new Set([`limber-cpp-${version}`, `limber-ros2-${version}`]),
  );
});

it("the package contains the licenses of what it ships, and not of its build tools", () => {
  const text = licencesOf(ROOT);
  expect(text).toMatch(/^fastify \d/m);
  expect(text).not.toMatch(/^vitest \d/m);
});
