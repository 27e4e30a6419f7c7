/** A gateway whose database is not there yet, and one whose machine has the wrong time. */
import { createServer } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { startPostgres } from "../../../src/embedded/postgres.ts";
import { ADMIN_TOKEN, callRest } from "../../support/app.ts";
import { type FreshDatabase, freshDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { launchGateway, scratchDir, startGateway } from "../../support/gateway.ts";

const ENV = {
  SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
  LIMBER_MASTER_KEY: Buffer.alloc(32).toString("base64"),
  LIMBER_REFERENCE_SUPPLY: "false",
};

let database: FreshDatabase;
beforeAll(async () => {
  database = await freshDatabase();
});
afterAll(() => database.close());

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === "string") throw new Error("the server listens on no port");
  return address.port;
}

it("a gateway without its database at startup lives, is not ready, logs what it waits for, and serves once it connects", async () => {
  const dir = scratchDir();
  const first = await startPostgres({ dataDir: join(dir.path, "late") });
  await first.stop();
  const port = await freePort();
  const launched = launchGateway({ ...ENV, DATABASE_URL: first.url, PORT: String(port) });
  const url = `http://127.0.0.1:${port}`;
  const call = (path: string, body?: unknown) => callRest(url, path, body, { key: "lmb_sk_nobody" });
  await eventually(() => expect(launched.stderr()).toContain("waiting for the database: DATABASE_URL"));

  expect(await call("/health")).toMatchObject({ status: 200, body: { status: "ok" } });
  for (const [path, body] of [["/ready"], ["/v1/models"], ["/v1/act", {}], ["/v1/predict/stream", {}]] as const) {
    const { status, headers, body: answer } = await call(path, body);
    expect([path, status, answer.error.code, answer.error.retryable]).toEqual([path, 503, "not_ready", true]);
    expect(headers.get("retry-after")).toBe("1");
  }

  const postgres = await startPostgres({ dataDir: join(dir.path, "late") });
  const gateway = await launched.ready;
  expect(gateway.url).toBe(url);
  await eventually(async () => expect((await call("/v1/act", {})).body.error.code).toBe("invalid_api_key"));
  expect((await gateway.end("SIGTERM")).code).toBe(0);
  await postgres.stop();
  dir.remove();
});

it("keys expire on time if the machine's clock is two hours off or jumps", async () => {
  const keyOf = async (url: string, org: string, expiresAt: number): Promise<string> => {
    const facts = { role: "owner", expires_at: expiresAt };
    const { body } = await callRest(url, `/v1/orgs/${org}/keys`, facts, { admin: ADMIN_TOKEN });
    return body.key;
  };
  // Two hours ahead at the start, then two behind, then ahead again.
  const skew = `const real = Date.now; let by = 7_200_000; Date.now = () => real() + by; process.on("SIGUSR2", () => { by = -by; });`;
  const gateway = await startGateway({
    ...ENV,
    DATABASE_URL: database.url,
    NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(skew)}`,
  });
  const earlier: string[] = [];
  for (const jumps of [false, true, true]) {
    if (jumps) process.kill(gateway.pid, "SIGUSR2");
    const org = await callRest(gateway.url, "/v1/orgs", { name: "late" }, { admin: ADMIN_TOKEN });
    const { id } = org.body;
    const seconds = Math.floor(Date.now() / 1000);
    const good = await keyOf(gateway.url, id, seconds + 3_600);
    earlier.push(good);
    for (const key of earlier) expect((await callRest(gateway.url, "/v1/key", undefined, { key })).status).toBe(200);
    const over = await keyOf(gateway.url, id, seconds + 3_600);
    await database.sql`update key set expires_at = now() - interval '1 minute' where org_id = ${id} and expires_at is not null and id <> (
      select id from key where org_id = ${id} and expires_at is not null order by id limit 1)`;
    await eventually(async () => {
      const { status, body } = await callRest(gateway.url, "/v1/key", undefined, { key: over });
      expect([status, body.error?.code]).toEqual([401, "key_expired"]);
    });
  }
  await gateway.end("SIGTERM");
});
