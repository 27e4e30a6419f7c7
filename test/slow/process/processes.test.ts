/** Several processes on one port: a parent that supervises them, and what happens to calls when one of them goes. */

import { once } from "node:events";
import { readFileSync } from "node:fs";
import { type ClientHttp2Session, connect as connectHttp2 } from "node:http2";
import { type AddressInfo, connect, createServer } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { START_FLAGS } from "../../../src/app/collector.ts";
import { ACT_DECLARATION, ADMIN_TOKEN, callRest } from "../../support/app.ts";
import { closing } from "../../support/closing.ts";
import { type FreshDatabase, freshDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import {
  descendantsOf,
  failToStart,
  type Gateway,
  scratchDir,
  startGateway,
  stillRunning,
} from "../../support/gateway.ts";
import { startModel } from "../../support/model.ts";
import { freePort } from "../../support/owners.ts";
import { BOUNDLESS } from "../../support/pair.ts";
import { callGrpc, callRest as callOverRest, emptyTally, loop } from "../chaos/rolling/callers.ts";

const ENV = {
  SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
  LIMBER_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
  LIMBER_ALLOW_PRIVATE_ADDRESSES: "true",
  LIMBER_REFERENCE_SUPPLY: "false",
  LOG_LEVEL: "error",
};
const ADMIN = { admin: ADMIN_TOKEN };
/** Stops the event loop of the process that gets SIGUSR2, as a call without an end would. */
const HANG = `data:text/javascript,${encodeURIComponent('process.on("SIGUSR2", () => { for (;;); })')}`;

const { closers, closeAll } = closing();
afterEach(closeAll);

/** Two processes, unless `env` says otherwise. */
async function start(env: Record<string, string> = {}): Promise<Gateway & { database: FreshDatabase }> {
  const database = await freshDatabase();
  closers.push(() => database.close());
  const gateway = await startGateway({ ...ENV, DATABASE_URL: database.url, LIMBER_PROCESSES: "2", ...env });
  closers.push(() => gateway.end("SIGKILL"));
  return Object.assign(gateway, { database });
}

/** The processes below a parent, in the order of their places. */
const processesOf = (gateway: Gateway): number[] =>
  descendantsOf(gateway.pid)
    .map((pid) => ({ pid, said: /--process=\{"index":(\d+)/.exec(readFileSync(`/proc/${pid}/cmdline`, "utf8"))?.[1] }))
    .filter(({ said }) => said !== undefined)
    .sort((a, b) => Number(a.said) - Number(b.said))
    .map(({ pid }) => pid);

const metricsOf = async (gateway: Gateway): Promise<string> =>
  (await callRest(gateway.url, "/metrics", undefined, ADMIN)).text;

const sampleOf = (text: string, name: string, labels = ""): number =>
  Number(new RegExp(`^${name}${labels && `\\{${labels}\\}`} (\\S+)$`, "m").exec(text)?.[1] ?? Number.NaN);

/** A key, and a model that every process knows. */
async function openMarket(gateway: Gateway): Promise<string> {
  const model = await startModel();
  closers.push(() => model.close());
  const well = async (path: string, body: object, as: object) => {
    const { status, text, body: answer } = await callRest(gateway.url, path, body, as);
    if (status >= 300) throw new Error(`${path} answered ${status}: ${text}`);
    return answer;
  };
  const { id: org } = await well("/v1/orgs", { name: "processes" }, ADMIN);
  await well(`/v1/orgs/${org}/credits`, { amount_usd: 1_000 }, ADMIN);
  const limits = { ...BOUNDLESS, streams: 100 };
  const { key } = await well(`/v1/orgs/${org}/keys`, { role: "owner", rate_limit: limits }, ADMIN);
  await well("/v1/supply/providers", { name: "acme" }, { key });
  const declaration = { ...ACT_DECLARATION, model: "acme/base", endpoint: model.endpoint };
  const { id } = await well("/v1/supply/providers/acme/models", declaration, { key });
  await well(`/v1/supply/offerings/${id}/verify`, {}, { key });
  const body = { model: "acme/base", action_space: "base_twist_2d", horizon: 1, observations: [{ proprio: [0] }] };
  // Connections are spread, so several calls reach every process.
  await eventually(async () => {
    for (let i = 0; i < 12; i++) await well("/v1/act", body, { key, headers: { connection: "close" } } as object);
  });
  return key;
}

describe("several processes on one port", () => {
  it("return the metrics of all processes in one scrape, share connections evenly, and exit together", async () => {
    const gateway = await start({ LIMBER_PROCESSES: "3" });
    const processes = processesOf(gateway);
    expect(processes).toHaveLength(3);
    for (const pid of processes)
      expect(readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0")).toEqual(
        expect.arrayContaining([...START_FLAGS]),
      );
    expect(gateway.stdout()).toMatch(/^limber ready http:\/\/127\.0\.0\.1:\d+\n3 processes\n$/);

    const sessions: ClientHttp2Session[] = [];
    closers.push(() => {
      for (const session of sessions) session.destroy();
    });
    // One after the other: of connections that come together, a process that is quicker to take them gets more.
    for (let i = 0; i < 40; i++) {
      const session = connectHttp2(gateway.url);
      sessions.push(session);
      await once(session, "remoteSettings");
    }
    await eventually(async () => {
      const text = await metricsOf(gateway);
      const counts = [0, 1, 2].map((i) => sampleOf(text, "limber_process_connections", `process="${i}"`));
      expect(Math.max(...counts) / Math.min(...counts), `${counts}`).toBeLessThanOrEqual(1.5);
      expect(counts.reduce((sum, count) => sum + count, 0)).toBeGreaterThanOrEqual(40);
    });
    const text = await metricsOf(gateway);
    for (const i of [0, 1, 2]) expect(sampleOf(text, "limber_loops_open", `process="${i}"`)).toBe(0);
    expect(text.match(/^# TYPE limber_loops_open gauge$/gm)).toHaveLength(1);
    expect(sampleOf(text, "limber_processes", 'state="ready"')).toBe(3);

    for (const session of sessions) session.destroy();
    expect((await gateway.end("SIGTERM")).code).toBe(0);
    expect(stillRunning(processes)).toEqual([]);
  });

  it("are replaced when they crash, and all exit when their parent is killed", async () => {
    const gr00t = await freePort();
    const gateway = await start({ LIMBER_GR00T_PORT: String(gr00t) });
    const [first = 0, ...others] = processesOf(gateway);
    process.kill(first, "SIGKILL");
    await eventually(async () => {
      const now = processesOf(gateway);
      expect([now.length, now.slice(1)]).toEqual([2, others]);
      expect(now[0]).not.toBe(first);
      expect(sampleOf(await metricsOf(gateway), "limber_processes", 'state="ready"')).toBe(2);
    });
    expect(sampleOf(await metricsOf(gateway), "limber_process_restarts_total", 'reason="crashed"')).toBe(1);
    expect(gateway.stderr()).toContain('"how":"SIGKILL"');
    // Only the first listens there, and the one in its place does, too.
    const client = connect(gr00t, "127.0.0.1");
    await once(client, "connect");
    client.destroy();
    const all = processesOf(gateway);
    await gateway.end("SIGKILL");
    await eventually(() => expect(stillRunning(all)).toEqual([]));
  });

  it("serve operations on a port of the primary, which reports for all", async () => {
    const port = await freePort();
    const gateway = await start({ LIMBER_OPERATIONS_PORT: String(port) });
    expect(gateway.stdout()).toContain(`\noperations at port ${port}\n`);
    const key = await openMarket(gateway);
    const closing = { headers: { connection: "close" } };
    const ask = (path: string, body?: object, as: object = {}) =>
      callRest(`http://127.0.0.1:${port}`, path, body, { ...as, ...closing });
    for (let i = 0; i < 4; i++) {
      expect((await ask("/health")).body.status).toBe("ok");
      expect((await ask("/ready")).body.status).toBe("ready");
      expect(sampleOf((await ask("/metrics", undefined, ADMIN)).text, "limber_processes", 'state="ready"')).toBe(2);
      expect((await ask("/metrics")).status).toBe(401);
      expect((await ask("/v1/act", {}, { key })).status).toBe(404);
      const stopped = await ask("/v1/robots/stop", { robot_id: `robot-${i}` }, { key });
      expect([stopped.status, stopped.body.subject]).toEqual([200, `robot-${i}`]);
    }
    const act = { model: "acme/base", action_space: "base_twist_2d", horizon: 1, observations: [{ proprio: [0] }] };
    // Both obey what the primary ordered.
    await eventually(async () => {
      for (let i = 0; i < 8; i++) {
        const { body } = await callRest(
          gateway.url,
          "/v1/act",
          { ...act, robot_id: `robot-${i % 4}` },
          { key, ...closing },
        );
        expect(body.error?.code).toBe("robot_stopped");
      }
    });
    expect((await callRest(gateway.url, "/v1/act", { ...act, robot_id: "another" }, { key })).status).toBe(200);
    const [first = 0] = processesOf(gateway);
    process.kill(first, "SIGSTOP");
    closers.push(() => stillRunning([first]).length > 0 && process.kill(first, "SIGCONT"));
    // The metrics of a process that hangs are left out, and the scrape succeeds.
    const { status, text } = await ask("/metrics", undefined, ADMIN);
    expect([status, sampleOf(text, "limber_loops_open", 'process="1"')]).toEqual([200, 0]);
    expect(sampleOf(text, "limber_loops_open", 'process="0"')).toBeNaN();
  });

  it("are replaced when one freezes, and the others serve meanwhile", async () => {
    const gateway = await start({ NODE_OPTIONS: `--import=${HANG}` });
    const [first = 0] = processesOf(gateway);
    process.kill(first, "SIGUSR2");
    await eventually(
      async () => {
        expect(processesOf(gateway)).not.toContain(first);
        expect(processesOf(gateway)).toHaveLength(2);
      },
      { timeout: 40_000 },
    );
    await eventually(async () =>
      expect(sampleOf(await metricsOf(gateway), "limber_process_restarts_total", 'reason="hung"')).toBe(1),
    );
    expect(gateway.stderr()).toContain("killing a process that hangs");
  });

  it("are replaced one after the other on SIGHUP, without a failed call or a lost loop", async () => {
    const gateway = await start({ LIMBER_DRAIN_DELAY_S: "1", LIMBER_PROCESSES: "3" });
    const before = processesOf(gateway);
    const key = await openMarket(gateway);
    const over = new AbortController();
    const tally = emptyTally();
    const calling = { url: gateway.url, key, tally, over: over.signal };
    const callers = [
      ...[10, 20, 50, 200].map((ms) => callOverRest(calling, ms)),
      ...[10, 50, 200].map((ms) => callGrpc(calling, ms)),
      ...[20, 20, 50].map((ms, i) => loop(calling, `robot-${i}`, ms)),
    ];
    await eventually(() => expect(tally.rest > 50 && tally.grpc > 20 && tally.chunks > 20).toBe(true));
    process.kill(gateway.pid, "SIGHUP");
    await eventually(() => expect(processesOf(gateway).some((pid) => before.includes(pid))).toBe(false), {
      timeout: 120_000,
    });
    const then = { ...tally };
    await eventually(() => expect(tally.rest > then.rest + 50 && tally.chunks > then.chunks + 20).toBe(true));
    over.abort();
    await Promise.all(callers);
    expect(tally.failed).toEqual([]);
    expect(tally.moved).toBeGreaterThanOrEqual(3);
    expect(tally.resumed).toBe(tally.moved);
    expect(processesOf(gateway)).toHaveLength(3);
    expect(sampleOf(await metricsOf(gateway), "limber_process_restarts_total", 'reason="replaced"')).toBe(3);
    expect((await gateway.end("SIGTERM")).code).toBe(0);
  }, 180_000);

  it("run on the embedded database and the reference provider, which exit with them", async () => {
    const dir = scratchDir();
    closers.push(() => dir.remove());
    const gateway = await startGateway({ DATA_DIR: dir.path, LIMBER_PROCESSES: "2", LOG_LEVEL: "error" });
    closers.push(() => gateway.end("SIGKILL"));
    await eventually(() => expect(gateway.stdout()).toContain("curl "));
    const [, key] = /^export LIMBER_KEY=(.*)$/m.exec(gateway.stdout()) ?? [];
    const body = {
      model: "service/auto",
      action_space: "joint_pos_7",
      observations: [{ proprio: Array(10).fill(0.1) }],
    };
    await eventually(async () => {
      for (let i = 0; i < 4; i++) {
        const answer = await callRest(gateway.url, "/v1/act", body, { key, headers: { connection: "close" } });
        expect(answer.status, answer.text).toBe(200);
      }
    });
    const all = descendantsOf(gateway.pid);
    expect((await gateway.end("SIGTERM")).code).toBe(0);
    expect(stillRunning(all)).toEqual([]);
  });

  it("report an error once", async () => {
    const elsewhere = "postgres://limber@127.0.0.1:5432/limber?sslmode=maybe";
    const { stderr } = await failToStart({ ...ENV, LIMBER_PROCESSES: "2", DATABASE_URL: elsewhere });
    expect(stderr.trim().split("\n")).toEqual([
      expect.stringMatching(/^limber: DATABASE_URL must be an address whose sslmode/),
    ]);
    const database = await freshDatabase();
    closers.push(() => database.close());
    const missing = database.url.replace(/\/test_\w+/, "/nowhere");
    const late = await failToStart({ ...ENV, LIMBER_PROCESSES: "2", DATABASE_URL: missing });
    expect(late.stderr.trim().split("\n")).toEqual([
      expect.stringMatching(/^limber: DATABASE_URL .*the database does not exist/),
    ]);
    expect(late.code).toBe(1);
    const taken = createServer().listen(0, "127.0.0.1");
    await once(taken, "listening");
    closers.push(() => void taken.close());
    const { port } = taken.address() as AddressInfo;
    for (const setting of ["PORT", "LIMBER_GR00T_PORT", "LIMBER_OPERATIONS_PORT"]) {
      const env = { ...ENV, LIMBER_PROCESSES: "2", DATABASE_URL: database.url, [setting]: String(port) };
      const { code, stderr } = await failToStart(env);
      expect([code, stderr.trim()]).toEqual([
        1,
        `limber: cannot listen on ${setting} ${port} of 127.0.0.1: the port is already in use`,
      ]);
    }
  });
});
