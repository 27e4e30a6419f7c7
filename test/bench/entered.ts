/**
 * `npm run bench entered`: prints every file of `src/` that a warm act over REST enters on the `openpi-ws` wire, by V8's own count of functions.
 * `docs/architecture/act-over-rest.md` describes them.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { redSquare } from "../../src/upstream/pictures/test-picture.ts";
import { ADMIN_TOKEN, callRest } from "../support/app.ts";
import { launchGateway } from "../support/gateway.ts";
import { f4, startOpenpiServer } from "../support/openpi-server.ts";
import { BOUNDLESS } from "../support/pair.ts";
import { pack } from "../support/plain-msgpack.ts";
import { entries } from "./support/profiler.ts";

const CALLS = 50;
/** Runs beside calls, and looks through a hundred buckets at a time. */
const BESIDE = new Set(["supply/gossip.ts"]);

/** An openpi server whose answers change. */
async function startModel() {
  let count = 0;
  const answer = (): Buffer => pack(new Map([["actions", f4(Array.from({ length: 4 }, () => [0, ++count / 1_000]))]]));
  const server = await startOpenpiServer({ answer });
  server.behave({ kind: "steps", steps: [] });
  return server;
}

/** The files of `src/` that every warm call enters. */
async function enteredFiles(dataDir: string, endpoint: string): Promise<string[]> {
  const env = {
    SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
    LIMBER_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
    LIMBER_ALLOW_PRIVATE_ADDRESSES: "true",
    LIMBER_REFERENCE_SUPPLY: "false",
    LOG_LEVEL: "info",
    DATA_DIR: dataDir,
  };
  const launched = launchGateway(env, ["--inspect=127.0.0.1:0"], { fromSources: true });
  const gateway = await launched.ready;
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
    endpoint,
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

const dataDir = mkdtempSync(join(tmpdir(), "limber-entered-"));
const model = await startModel();
try {
  const files = await enteredFiles(dataDir, model.endpoint);
  console.log(files.sort().join("\n"));
  console.log(`${files.length} files`);
} finally {
  await model.close();
  rmSync(dataDir, { recursive: true, force: true });
}
