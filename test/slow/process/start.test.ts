/** `npm start`, as whoever cloned the repository meets it. */
import { execFile } from "node:child_process";
import { chmodSync, writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { createServer } from "node:net";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, describe, expect, inject, it } from "vitest";
import { ACT_DECLARATION, callRest } from "../../support/app.ts";
import { Browser } from "../../support/browser.ts";
import { freshDatabase } from "../../support/database.ts";
import {
  descendantsOf,
  type Ended,
  failToStart,
  type Gateway,
  scratchDir,
  startGateway,
  stillRunning,
} from "../../support/gateway.ts";

const run = promisify(execFile);
const dir = scratchDir();
const env = { DATA_DIR: dir.path, LOG_LEVEL: "warn" };
let gateway: Gateway;
let key: string;

afterAll(async () => {
  await gateway?.end("SIGKILL");
  dir.remove();
});

const lineAfter = (text: string, start: string): string =>
  text
    .split("\n")
    .find((line) => line.startsWith(start))
    ?.slice(start.length) ?? "";
const linkIn = (text: string): string => /\S+\/sign-in#token=\S+/.exec(text)?.[0] ?? "";
let linkBefore = "";
const get = (path: string) => callRest(gateway.url, path, undefined, { key });
const allGone = (pids: readonly number[]) => expect.poll(() => stillRunning(pids)).toEqual([]);

// One tale: each chapter goes on where the last one ended.
describe("a gateway on an empty directory", () => {
  it("reports that it is ready, and prints a key, a token and a curl line that works as pasted", async () => {
    gateway = await startGateway(env);
    expect(gateway.url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    await expect.poll(() => gateway.stdout()).toContain("curl ");
    key = lineAfter(gateway.stdout(), "export LIMBER_KEY=");
    expect(key).toMatch(/^lmb_sk_/);
    expect(lineAfter(gateway.stdout(), "export SERVICE_ADMIN_TOKEN=").length).toBeGreaterThan(16);
    const lines = gateway.stdout().split("\n");
    const settings = lines.filter((each) => each.startsWith("export "));
    expect(settings[0]).toBe(`export LIMBER_URL=${gateway.url}`);
    const line = lines.find((each) => each.startsWith("curl "));
    expect(Math.max(...lines.map(({ length }) => length))).toBeLessThan(260);
    const { stdout } = await run("bash", ["-c", [...settings, line].join("\n")]);
    const answer = JSON.parse(stdout);
    expect(answer).toMatchObject({ object: "world.action", route: { simulated: false, attempts: [{ status: "ok" }] } });
    expect(answer.action.steps.flat().every(Number.isFinite)).toBe(true);
    expect(answer.action.steps.flat().some((value: number) => value !== 0)).toBe(true);

    await expect.poll(async () => (await get("/v1/usage")).body.data.length).toBe(1);
    const { body: usage } = await get("/v1/usage");
    const { body: balance } = await get("/v1/billing/balance");
    expect(usage.data[0].cost_usd).toBe(answer.usage.cost_usd);
    expect(balance).toMatchObject({ spent_usd: answer.usage.cost_usd, held_usd: 0 });
    expect(Math.round((balance.granted_usd - balance.spent_usd) * 1e6)).toBe(Math.round(balance.balance_usd * 1e6));
    expect(gateway.stderr()).toBe("");
  });

  it("prints a link that signs the first user in, once", async () => {
    const link = linkIn(gateway.stdout());
    expect(link.startsWith(`${gateway.url}/sign-in#token=lmb_in_`)).toBe(true);
    const browser = new Browser(gateway.url);
    const token = link.split("token=")[1];
    const { status, body } = await browser.call("/v1/session", { token });
    expect([status, body.org_name, body.role]).toEqual([201, "demo", "owner"]);
    expect((await browser.call("/v1/usage")).status).toBe(200);
    expect((await new Browser(gateway.url).call("/v1/session", { token })).status).toBe(401);
    linkBefore = link;
  });

  it("answers buf curl over gRPC without the protos", async () => {
    const line =
      gateway
        .stdout()
        .split("\n")
        .find((each) => each.startsWith("curl ")) ?? "";
    const body = /-d '(.*)'$/.exec(line)?.[1] ?? "";
    const { stdout } = await run(join(import.meta.dirname, "../../../node_modules/.bin/buf"), [
      "curl",
      ...["--protocol", "grpc", "--http2-prior-knowledge"],
      ...["-H", `authorization: Bearer ${key}`, "-d", body],
      `${gateway.url}/limber.v1.InferenceService/Act`,
    ]);
    const answer = JSON.parse(stdout);
    expect(answer.object).toBe("world.action");
    expect(answer.route.simulated ?? false).toBe(false);
    expect(answer.action.steps.length).toBe(16);
  });

  it("exits with 0 after Ctrl-C and leaves no process", async () => {
    const pids = descendantsOf(gateway.pid);
    expect(pids.length).toBeGreaterThan(1);
    const { code, stderr } = await gateway.end("SIGINT");
    expect([code, stderr]).toEqual([0, ""]);
    await allGone(pids);
  });

  it("starts again with the same key and the same balance", async () => {
    gateway = await startGateway(env);
    await expect.poll(() => lineAfter(gateway.stdout(), "export LIMBER_KEY=")).toBe(key);
    const { status, body } = await get("/v1/billing/balance");
    expect([status, body.held_usd]).toEqual([200, 0]);
    expect(body.spent_usd).toBeGreaterThan(0);
    await expect.poll(() => linkIn(gateway.stdout())).toContain("#token=");
    expect(linkIn(gateway.stdout())).not.toBe(linkBefore);
    expect((await get("/ready")).status).toBe(200);
  });

  it("leaves no orphan after kill -9, and the next start recovers at once", async () => {
    const pids = descendantsOf(gateway.pid);
    await gateway.end("SIGKILL");
    gateway = await startGateway(env);
    await allGone(pids);
    expect((await get("/ready")).status).toBe(200);
    const body = {
      model: "service/auto",
      action_space: "joint_pos_7",
      observations: [{ proprio: Array(10).fill(0.1) }],
    };
    const { status, text } = await callRest(gateway.url, "/v1/act", body, { key });
    expect(status, text).toBe(200);
  });

  it("refuses a second gateway on the same directory in one line", async () => {
    const { code, stderr } = await failToStart(env);
    expect([code, stderr.trim().split("\n").length]).toEqual([1, 1]);
    expect((await get("/ready")).status).toBe(200);
  });

  it("starts if another program took its reference provider's ports meanwhile", async () => {
    const token = { "x-service-admin-token": lineAfter(gateway.stdout(), "export SERVICE_ADMIN_TOKEN=") };
    const { body } = await callRest(gateway.url, "/health", undefined, { headers: token });
    const ports = new Set<number>(body.detail.upstreams.map((address: string) => Number(new URL(address).port)));
    await gateway.end("SIGTERM");
    const squatters = await Promise.all(
      [...ports].map(async (port) => {
        const server = createServer();
        await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
        return server;
      }),
    );
    gateway = await startGateway(env);
    const request = {
      model: "service/auto",
      action_space: "joint_pos_7",
      observations: [{ proprio: Array(10).fill(0.1) }],
    };
    const { status, text } = await callRest(gateway.url, "/v1/act", request, { key });
    expect(status, text).toBe(200);
    for (const server of squatters) server.close();
  });

  it("exits on SIGTERM as on Ctrl-C", async () => {
    const pids = descendantsOf(gateway.pid);
    expect((await gateway.end("SIGTERM")).code).toBe(0);
    await allGone(pids);
  });
});

describe("a gateway that listens on every address of the machine", () => {
  it("starts, prints its address, and uses its reference provider while callers cannot name private addresses", async () => {
    const own = scratchDir();
    const started = await startGateway({ DATA_DIR: own.path, LOG_LEVEL: "warn", HOST: "0.0.0.0" });
    await expect.poll(() => started.stdout()).toContain("curl ");
    expect(started.url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    const outside = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
    const { port } = new URL(started.url);
    for (const { address } of outside.filter(({ family, internal }) => family === "IPv4" && !internal)) {
      expect(started.stdout()).toContain(`also at http://${address}:${port}\n`);
      expect((await callRest(`http://${address}:${port}`, "/ready")).status).toBe(200);
    }
    const key = lineAfter(started.stdout(), "export LIMBER_KEY=");
    const admin = lineAfter(started.stdout(), "export SERVICE_ADMIN_TOKEN=");
    const arm = {
      model: "service/auto",
      action_space: "joint_pos_7",
      observations: [{ proprio: Array(10).fill(0.1) }],
    };
    const answer = await callRest(started.url, "/v1/act", arm, { key });
    expect(answer.body, answer.text).toMatchObject({ route: { simulated: false, provider: "reference" } });

    const { body } = await callRest(started.url, "/health", undefined, { admin });
    const [endpoint] = body.detail.upstreams.filter((address: string) => address.startsWith("grpc:"));
    const declared = { model: "acme/arm", runtime: "limber-policy", hardware: "cpu", contracts: ["act"], endpoint };
    await callRest(started.url, "/v1/supply/providers", { name: "acme" }, { key });
    const foreign = await callRest(
      started.url,
      "/v1/supply/providers/acme/models",
      { ...ACT_DECLARATION, ...declared },
      { key },
    );
    expect([foreign.status, foreign.body.error.code]).toEqual([422, "address_refused"]);
    expect((await started.end("SIGINT")).code).toBe(0);
    own.remove();
  });
});

describe("a gateway that cannot run exits with 1 and one clear line", () => {
  const PASSWORD = "hunter2hunter2";
  const OUTSIDE = {
    SERVICE_ADMIN_TOKEN: "an-operators-token-for-tests",
    LIMBER_MASTER_KEY: Buffer.alloc(32).toString("base64"),
  };

  const expectOneLine = ({ code, stdout, stderr }: Ended, words: RegExp): void => {
    expect(stderr.trim()).toMatch(words);
    expect([code, stdout, stderr.trim().split("\n").length]).toEqual([1, "", 1]);
    expect(stderr).toMatch(/^limber: /);
    expect(stderr).not.toMatch(/\n\s+at |node:|\.ts:/);
    expect(stderr).not.toContain(PASSWORD);
  };

  it("on an occupied port", async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    const own = scratchDir();
    expectOneLine(
      await failToStart({ DATA_DIR: own.path, PORT: String(port), LIMBER_REFERENCE_SUPPLY: "false" }),
      new RegExp(`${port}`),
    );
    own.remove();
    server.close();
  });

  it("on a directory that is not writable", async () => {
    const own = scratchDir();
    const file = join(own.path, "file");
    writeFileSync(file, "");
    expectOneLine(await failToStart({ DATA_DIR: join(file, "data") }), /DATA_DIR|file/);
    if (process.getuid?.() !== 0) {
      chmodSync(own.path, 0o500);
      expectOneLine(await failToStart({ DATA_DIR: join(own.path, "data") }), /DATA_DIR|data/);
      chmodSync(own.path, 0o700);
    }
    own.remove();
  });

  it("on an unreachable database", async () => {
    const { url } = inject("postgres");
    const elsewhere = new URL(url);
    elsewhere.pathname = "nowhere";
    expectOneLine(await failToStart({ ...OUTSIDE, DATABASE_URL: elsewhere.href }), /nowhere|database|DATABASE_URL/i);
  });

  it("on an external database without the operator's token and a master key, naming each", async () => {
    const url = `postgres://limber:${PASSWORD}@127.0.0.1:1/limber`;
    const { code, stderr } = await failToStart({ DATABASE_URL: url });
    expect(code).toBe(1);
    expect(stderr.trim().split("\n")).toEqual([
      "limber: SERVICE_ADMIN_TOKEN must be set when DATABASE_URL is",
      "limber: LIMBER_MASTER_KEY must be set when DATABASE_URL is",
    ]);
    const { LIMBER_MASTER_KEY } = OUTSIDE;
    expectOneLine(await failToStart({ DATABASE_URL: url, LIMBER_MASTER_KEY }), /SERVICE_ADMIN_TOKEN/);
  });

  it.each([
    ["PORT", "http"],
    ["PORT", "70000"],
    ["DATABASE_URL", "mysql://localhost/limber"],
    ["NATS_URL", "localhost"],
    ["LIMBER_ROLES", "api,chef"],
    ["LIMBER_PUBLIC_SIGNUP", "maybe"],
    ["LIMBER_MASTER_KEY", "dG9vIHNob3J0"],
    ["SERVICE_ADMIN_TOKEN", "short"],
    ["LIMBER_TRUSTED_PROXIES", "10.0.0.0/33"],
    ["LOG_LEVEL", "loud"],
  ])("on an invalid %s=%s", async (name, value) => {
    const { code, stderr, stdout } = await failToStart({ ...OUTSIDE, [name]: value });
    expect([code, stdout]).toEqual([1, ""]);
    expect(stderr.trim().split("\n")).toEqual([expect.stringMatching(new RegExp(`^limber: ${name} must be `))]);
  });

  it("on an unreadable certificate, or without its key", async () => {
    const own = scratchDir();
    expect((await failToStart({ DATA_DIR: own.path, TLS_CERT: join(own.path, "none.pem") })).stderr).toMatch(
      /TLS_CERT/,
    );
    const nonsense = join(own.path, "nonsense.pem");
    writeFileSync(nonsense, "nonsense");
    const { url, close } = await freshDatabase();
    expectOneLine(await failToStart({ ...OUTSIDE, DATABASE_URL: url, TLS_CERT: nonsense, TLS_KEY: nonsense }), /TLS/);
    await close();
    own.remove();
  });
});
