/** The page that follows an act over REST names every file that one enters, by V8's own count of functions. */
import { readFileSync } from "node:fs";
import { afterAll, describe, expect, it } from "vitest";
import { redSquare } from "../../../src/upstream/pictures/test-picture.ts";
import { entries } from "../../bench/support/profiler.ts";
import { ADMIN_TOKEN, callRest } from "../../support/app.ts";
import { closing } from "../../support/closing.ts";
import { type FreshDatabase, freshDatabase } from "../../support/database.ts";
import { launchGateway } from "../../support/gateway.ts";
import { f4, startOpenpiServer } from "../../support/openpi-server.ts";
import { BOUNDLESS } from "../../support/pair.ts";
import { pack } from "../../support/plain-msgpack.ts";

const CALLS = 50;
const PAGE = readFileSync(new URL("../../../docs/architecture/act-over-rest.md", import.meta.url), "utf8");
const named = [...PAGE.matchAll(/`([\w./-]+\.ts)`/g)].map(([, name = ""]) => name);

/** Goes on beside calls, and looks through a hundred buckets at a time. */
const BESIDE = new Set(["supply/gossip.ts"]);

const { closers, kept, closeAll } = closing();
afterAll(closeAll);

/** A server of openpi's protocol whose answers change, as those of a model do. */
async function startModel(): Promise<string> {
  let count = 0;
  const answer = (): Buffer => pack(new Map([["actions", f4(Array.from({ length: 4 }, () => [0, ++count / 1_000]))]]));
  const server = kept(await startOpenpiServer({ answer }));
  server.behave({ kind: "steps", steps: [] });
  return server.endpoint;
}

/** The files of `src/` that a warm call enters, each at every call. */
async function enteredFiles(fast: "on" | "off", database: FreshDatabase): Promise<string[]> {
  const env = {
    SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
    LIMBER_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
    LIMBER_ALLOW_PRIVATE_ADDRESSES: "true",
    LIMBER_REFERENCE_SUPPLY: "false",
    LIMBER_FAST: fast,
    LOG_LEVEL: "info",
    DATABASE_URL: database.url,
  };
  const launched = launchGateway(env, undefined, ["--inspect=127.0.0.1:0"]);
  const gateway = await launched.ready;
  closers.push(() => gateway.end("SIGKILL"));
  const well = async (path: string, body: object, as: object) => {
    const { status, text, body: answer } = await callRest(gateway.url, path, body, as);
    if (status >= 300) throw new Error(`${path} answered ${status}: ${text}`);
    return answer;
  };
  const { id: org } = await well("/v1/orgs", { name: "entered" }, { admin: ADMIN_TOKEN });
  await well(`/v1/orgs/${org}/credits`, { amount_usd: 1_000 }, { admin: ADMIN_TOKEN });
  const { key } = await well(`/v1/orgs/${org}/keys`, { role: "owner", rate_limit: BOUNDLESS }, { admin: ADMIN_TOKEN });
  await well("/v1/supply/providers", { name: "acme" }, { key });
  const declaration = {
    model: "acme/arm",
    runtime: "openpi-ws",
    endpoint: await startModel(),
    hardware: "cpu",
    contracts: ["act"],
    action_spaces: ["base_twist_2d"],
    price_per_action_step: 0.0001,
    dt_ms: 50,
    profile: { frames: [{ key: "observation/image", camera: "front", width: 224, height: 224 }] },
  };
  const { id } = await well("/v1/supply/providers/acme/models", declaration, { key });
  await well(`/v1/supply/offerings/${id}/verify`, {}, { key });

  const url = `data:image/png;base64,${(await redSquare(0.7, 0.3, 64)).toString("base64")}`;
  const body = {
    model: "acme/arm",
    action_space: "base_twist_2d",
    observations: [{ frames: [{ camera: "front", url }], proprio: [0, 1] }],
  };
  const inspector = /ws:\/\/\S+/.exec(launched.stderr())?.[0] ?? "";
  const { since, close } = await entries(inspector);
  for (let i = 0; i < CALLS; i++) await well("/v1/act", body, { key });
  await since();
  for (let i = 0; i < CALLS; i++) await well("/v1/act", body, { key });
  const counts = await since();
  close();
  await gateway.end("SIGTERM");
  return [...counts].filter(([file, count]) => count >= CALLS && !BESIDE.has(file)).map(([file]) => file);
}

describe("docs/architecture/act-over-rest.md", () => {
  it.each(["off", "on"] as const)("names every file that a warm call enters with LIMBER_FAST=%s", async (fast) => {
    const entered = await enteredFiles(fast, kept(await freshDatabase()));
    // What every such call surely enters: without it nothing was counted.
    expect(entered).toEqual(expect.arrayContaining(["services/inference.ts", "upstream/openpi-ws/exchange.ts"]));
    expect(entered.filter((file) => !named.some((name) => `/${file}`.endsWith(`/${name}`))).sort()).toEqual([]);
  });
});
