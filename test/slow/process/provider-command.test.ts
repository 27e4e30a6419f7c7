/** A partner brings a server with one command: `npx limber provider register`. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type App, type Caller, openApp } from "../../support/app.ts";
import { honestSteps, type Model, startModel } from "../../support/model.ts";
import { type OpenpiServer, startOpenpiServer } from "../../support/openpi-server.ts";

const TOOL = fileURLToPath(new URL("../../../tools/provider.ts", import.meta.url));
/** What Node made of its sources: to read them anew is most of what a command costs. */
const NODE_COMPILE_CACHE = fileURLToPath(new URL("../../../node_modules/.cache/commands", import.meta.url));
let app: App;
let model: Model;
let supplier: Caller;

beforeAll(async () => {
  [app, model] = await Promise.all([openApp(), startModel()]);
  supplier = await app.caller(0, { role: "supplier" });
});
afterAll(async () => {
  await app.close();
  await model.close();
});

async function provider(args: readonly string[], env: Record<string, string> = {}, heard = (_: string) => {}) {
  const { PATH = "" } = process.env;
  const child = spawn(process.execPath, [TOOL, ...args], {
    env: { PATH, NODE_COMPILE_CACHE, LIMBER_URL: app.url, LIMBER_KEY: supplier.key, ...env },
  });
  let text = "";
  child.stdout.on("data", (part) => {
    text += part;
    heard(text);
  });
  child.stderr.on("data", (part) => (text += part));
  const [code] = (await once(child, "close")) as [number];
  return { code, text };
}

const plain = (name: string) => [
  "register",
  "--model",
  name,
  "--runtime",
  "limber-policy",
  "--endpoint",
  model.endpoint,
];

describe("register", () => {
  it("registers, declares and verifies, and prints every check as a table", async () => {
    const { code, text } = await provider([
      ...plain("acme/base"),
      "--action-space",
      "base_twist_2d",
      "--price",
      "0.0002",
    ]);
    expect(text).toMatch(/provider {2}acme is registered\ndeclared {2}acme\/base as off_\w+\nprobing/);
    expect(text).toMatch(/ {2}passed {2}action_shape\n/);
    expect(text).toMatch(/check +result +time +seen\n-+/);
    expect(text).toMatch(/median [\d.]+ ms/);
    expect([code, text.trimEnd().endsWith("acme/base is live")]).toEqual([0, true]);
    const robot = await app.caller(1);
    const body = { model: "acme/base", action_space: "base_twist_2d", horizon: 1, observations: [{ proprio: [0] }] };
    expect((await app.call("/v1/act", body, { key: robot.key })).body.usage.cost_usd).toBe(0.0002);
    const again = await provider([...plain("acme/more"), "--action-space", "base_twist_2d"]);
    expect(again.text).toContain("provider  acme is yours already");
  });

  it("prints a line for each check during the probe", async () => {
    const { promise: seen, resolve: goOn } = Promise.withResolvers<void>();
    model.script.act = (call, answer) => void seen.then(() => answer(honestSteps(call, 2)));
    let before = "";
    const args = [...plain("acme/patient"), "--action-space", "base_twist_2d"];
    const { code, text } = await provider(args, {}, (soFar) => {
      if (before !== "" || !soFar.includes("reachable")) return;
      before = soFar;
      model.script.act = undefined;
      goOn();
    });
    expect([code, before]).toEqual([0, expect.stringMatching(/probing .*\n {2}passed {2}reachable\n/)]);
    expect(before).not.toContain("action_shape");
    const lines = text.split("\n").filter((line) => /^ {2}(passed|warned|FAILED) /.test(line));
    expect(new Set(lines).size).toBe(lines.length);
    expect(text).toMatch(/ {2}passed {2}reachable\n.* {2}passed {2}action_shape\n/s);
  });

  it("tells the owner of a failing server what to fix", async () => {
    model.script.act = (_, answer) => answer([[1, 2, 3]]);
    const { code, text } = await provider([...plain("acme/bad"), "--action-space", "base_twist_2d"]);
    model.script.act = undefined;
    expect([code, text]).toEqual([
      1,
      expect.stringMatching(
        /FAILED {2}action_shape.*3 numbers per step.*what to do:.*action_shape: return exactly.*was rejected/s,
      ),
    ]);
    const nobody = await provider([
      "register",
      "--model",
      "acme/gone",
      "--runtime",
      "limber-policy",
      "--endpoint",
      "grpc://127.0.0.1:59999",
    ]);
    expect(nobody.text).toMatch(/reachable: check that the server runs/);
  });

  it("registers an unmodified openpi server", async () => {
    const server: OpenpiServer = await startOpenpiServer();
    const [one, other] = [0, 1].map((value) => Array.from({ length: 16 }, () => Array(7).fill(value)));
    server.behave({ kind: "steps", steps: one! }, { kind: "steps", steps: other! }, { kind: "steps", steps: one! });
    const more = ["--endpoint", server.endpoint, "--max-horizon", "16", "--profile", "openpi/libero"];
    const { code, text } = await provider(["register", "--model", "lab/pi0", "--runtime", "openpi-ws", ...more]);
    expect([code, text]).toEqual([0, expect.stringContaining("lab/pi0 is live")]);
    await server.close();
  });

  it("never prints a secret", async () => {
    const env = { LIMBER_PROVIDER_SECRET: "sk-a-providers-secret" };
    const { text } = await provider([...plain("acme/shy"), "--action-space", "base_twist_2d", "--auth", "bearer"], env);
    expect(text).toContain("is live");
    expect(text).not.toMatch(new RegExp(`sk-a-providers-secret|${supplier.key}`));
  });
});

describe("an error of npx limber provider", () => {
  it("in the command exits with 2 and a message", async () => {
    for (const [args, words] of [
      [["register"], "--model is required"],
      [["register", "--model", "a/b", "--colour", "red"], "colour"],
      [["dance"], "no command dance"],
      [[...plain("a/b"), "--price", "much"], "--price must be a number"],
      [[...plain("a/b"), "--contract", "dance"], "act, predict or ground"],
      [[...plain("a/b"), "--json", "[]"], "--json must be an object"],
      [[...plain("a/b"), "--auth", "bearer"], "LIMBER_PROVIDER_SECRET"],
    ] as const) {
      const { code, text } = await provider(args);
      expect([code, text], args.join(" ")).toEqual([2, expect.stringContaining(words)]);
      expect(text).not.toMatch(/ at .*\.ts:/);
    }
    expect(await provider(["--help"])).toEqual({ code: 0, text: expect.stringContaining("--endpoint") });
    expect((await provider([], {})).code).toBe(2);
    expect((await provider(plain("a/b"), { LIMBER_KEY: "" })).text).toContain("LIMBER_KEY");
  });

  it("from the gateway exits with 3 and the gateway's own text", async () => {
    for (const [args, env, words] of [
      [
        ["register", "--model", "acme/x", "--runtime", "openpi", "--endpoint", "ws://x"],
        {},
        /`runtime` must be one of .*openpi-ws/,
      ],
      [plain("acme/x"), { LIMBER_KEY: "lmb_sk_nobody" }, /key/],
      [plain("acme/x"), { LIMBER_URL: "http://127.0.0.1:1" }, /no gateway answers/],
      [[...plain("acme/x"), "--action-space", "arm"], {}, /action_space/],
    ] as const) {
      const { code, text } = await provider(args, env);
      expect([code, text]).toEqual([3, expect.stringMatching(words)]);
    }
    const stranger = await app.caller(0, { role: "supplier" });
    const taken = await provider(plain("acme/x"), { LIMBER_KEY: stranger.key });
    expect([taken.code, taken.text]).toEqual([3, expect.stringContaining("a provider named acme already exists")]);
  });
});
