/** More callers than a gateway can serve: what it refuses, what it goes on to serve, and that it is as before when they have left. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { Pool } from "undici";
import { afterAll, beforeAll, expect, it } from "vitest";
import { ACT_DECLARATION, ADMIN_TOKEN, callRest } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { type Gateway, scratchDir, startGateway } from "../../support/gateway.ts";
import { honestSteps, type Model, startModel } from "../../support/model.ts";

const dir = scratchDir();
let model: Model;
let gateway: Gateway;

beforeAll(async () => {
  model = await startModel();
  gateway = await startGateway({
    LOG_LEVEL: "error",
    DATA_DIR: dir.path,
    SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
    LIMBER_REFERENCE_SUPPLY: "false",
  });
});
afterAll(async () => {
  await gateway?.end("SIGKILL");
  await model.close();
  dir.remove();
});

const admin = async (path: string, body: object) =>
  (await callRest(gateway.url, path, body, { admin: ADMIN_TOKEN })).body;

/** A key of an organisation of its own, with credit and without a limit. */
async function organisation(name: string): Promise<string> {
  const { id } = await admin("/v1/orgs", { name });
  await admin(`/v1/orgs/${id}/credits`, { amount_usd: 1000 });
  const rate_limit = { requests: 1_000_000, window_s: 1, burst: 1_000_000, concurrency: 10_000 };
  return (await admin(`/v1/orgs/${id}/keys`, { role: "owner", rate_limit })).key;
}

async function supply(key: string): Promise<void> {
  const call = async (path: string, body: object) => (await callRest(gateway.url, path, body, { key })).body;
  await call("/v1/supply/providers", { name: "acme" });
  const declaration = { ...ACT_DECLARATION, model: "acme/base", endpoint: model.endpoint };
  const offering = await call("/v1/supply/providers/acme/models", declaration);
  const verified = await call(`/v1/supply/offerings/${offering.id}/verify`, {});
  if (verified.offering?.status !== "live") throw new Error(JSON.stringify(verified));
  model.script.act = (act, answer) => answer(honestSteps(act, 2));
}

/** What callers were answered. */
interface Seen {
  served: number;
  refused: number;
  /** Answers that are neither, and refusals that do not say when to come again. */
  odd: string[];
}

const body = JSON.stringify({
  model: "acme/base",
  action_space: "base_twist_2d",
  horizon: 2,
  observations: [{ proprio: [0.5] }],
});

/** So many callers who call again as soon as they are answered, until `leave` is called. */
function crowd(key: string, callers: number) {
  const seen: Seen = { served: 0, refused: 0, odd: [] };
  const pool = new Pool(gateway.url, { connections: callers, pipelining: 1 });
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  let isOver = false;
  const caller = async (): Promise<void> => {
    while (!isOver) {
      const answer = await pool.request({ method: "POST", path: "/v1/act", headers, body });
      const text = await answer.body.text();
      const { "retry-after": after, ratelimit } = answer.headers;
      if (answer.statusCode === 200) seen.served++;
      else if (answer.statusCode !== 503 || after === undefined || ratelimit === undefined) seen.odd.push(text);
      else if (JSON.parse(text).error.code !== "overloaded") seen.odd.push(text);
      else seen.refused++;
    }
  };
  const all = Array.from({ length: callers }, caller);
  // One that fails is told of when they leave.
  for (const each of all) each.catch(() => {});
  return {
    seen,
    async leave() {
      isOver = true;
      await Promise.all(all);
      await pool.close();
    },
  };
}

/** Leaves a process a fifth of a core: on all of one, a quick machine serves more callers than a test can be. Gives it back when it is called. */
function throttle(pid: number): () => Promise<void> {
  const rhythm = `while kill -STOP ${pid}; do sleep 0.04; kill -CONT ${pid}; sleep 0.01; done`;
  const shell = spawn("bash", ["-c", rhythm], { stdio: "ignore" });
  return async () => {
    const ended = once(shell, "exit");
    shell.kill("SIGKILL");
    await ended;
    process.kill(pid, "SIGCONT");
  };
}

const figures = async (): Promise<string> => {
  const { status, text } = await callRest(gateway.url, "/metrics", undefined, { admin: ADMIN_TOKEN });
  expect(status).toBe(200);
  return text;
};

it("refuses part of a flood, serves the rest and modest callers, and answers health, metrics and emergency stops", async () => {
  const [flooding, modest] = [await organisation("flooding"), await organisation("modest")];
  await supply(flooding);
  const release = throttle(gateway.pid);
  const flood = crowd(flooding, 700);
  const few = crowd(modest, 4);
  try {
    // Which only says that it sheds; how much of it follows.
    await eventually(async () => expect(await figures()).toMatch(/^limber_shedding 1$/m), { timeout: 30_000 });
    for (let asked = 0; asked < 20 || flood.seen.refused < 500 || flood.seen.served < 100; asked++) {
      for (const path of ["/health", "/ready"])
        expect((await callRest(gateway.url, path, undefined, { headers: { connection: "close" } })).status).toBe(200);
      if (asked % 10 !== 0) continue;
      const stop = await callRest(gateway.url, "/v1/robots/stop", { robot_id: "r-1" }, { key: modest });
      expect([stop.status, stop.body.error]).toEqual([200, undefined]);
    }
  } finally {
    await release();
    await Promise.all([flood.leave(), few.leave()]);
  }
  expect([...flood.seen.odd, ...few.seen.odd]).toEqual([]);
  expect(few.seen.served).toBeGreaterThan(0);
  const share = ({ served, refused }: Seen): number => refused / (served + refused);
  expect(share(few.seen)).toBeLessThan(share(flood.seen) / 2);
  expect(await figures()).toMatch(/limber_calls_shed_total\{priority="act",reason="queue_full"\} [1-9]/);

  await eventually(async () => expect(await figures()).toMatch(/^limber_shedding 0$/m));
  const after = await callRest(gateway.url, "/v1/act", body, { key: modest });
  expect([after.status, after.body.error]).toEqual([200, undefined]);
  expect(await figures()).toMatch(/^limber_calls_in_flight 0$/m);
  expect(gateway.stderr()).toBe("");
}, 240_000);
