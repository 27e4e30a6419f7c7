/** A gateway whose database is behind PgBouncer in transaction mode, where no session outlives a transaction. */
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type EmbeddedPostgres, startPostgres } from "../../../src/embedded/postgres.ts";
import { connect, type Sql, tx } from "../../../src/store/database/tx.ts";
import { ADMIN_TOKEN, type App, openApp } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { failToStart, scratchDir } from "../../support/gateway.ts";
import { brokenInvariants } from "../../support/invariants.ts";
import { startModel } from "../../support/model.ts";
import { freePort } from "../../support/owners.ts";
import { PGBOUNCER, type PgBouncer, startPgBouncer } from "../../support/pgbouncer.ts";

const ENV = { SERVICE_ADMIN_TOKEN: ADMIN_TOKEN, LIMBER_MASTER_KEY: Buffer.alloc(32, 7).toString("base64") };
const IGNORING = "ignore_startup_parameters = statement_timeout,idle_in_transaction_session_timeout,plan_cache_mode";

describe.skipIf(PGBOUNCER === undefined)("a gateway behind PgBouncer in transaction mode", () => {
  const dir = scratchDir();
  let postgres: EmbeddedPostgres;
  let pooler: PgBouncer;
  /** PostgreSQL itself. */
  let direct: string;
  let postgresPort: number;
  let sql: Sql;

  beforeAll(async () => {
    postgresPort = await freePort();
    const settings = { listen_addresses: "127.0.0.1", port: `${postgresPort}`, fsync: "off" };
    postgres = await startPostgres({ dataDir: join(dir.path, "pooled"), settings });
    direct = `postgres://limber@127.0.0.1:${postgresPort}/postgres`;
    pooler = await startPgBouncer(await freePort(), postgresPort);
    sql = connect(direct, { max: 2 });
  });
  afterAll(async () => {
    await sql?.end();
    await pooler?.close();
    await postgres?.stop();
    dir.remove();
  });

  const open = (): Promise<App> =>
    openApp({
      database: { url: pooler.url("postgres"), sql, close: async () => {} },
      databaseDirectUrl: direct,
    });

  it("serves, charges exactly, receives other replicas' changes, and continues after a kill of the pooler", async () => {
    const model = await startModel();
    const [one, other] = [await open(), await open()];
    await one.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
    const { org, key } = await one.caller();
    const act = (app: App) =>
      app.call(
        "/v1/act",
        { model: "acme/base", action_space: "base_twist_2d", horizon: 2, observations: [{ proprio: [1] }] },
        { key },
      );
    await eventually(async () => expect((await act(other)).status).toBe(200));
    const answers = await Promise.all(Array.from({ length: 60 }, (_, i) => act(i % 2 ? one : other)));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));

    // A notification: the other replica forgets a key that was revoked here.
    const revoked = await one.key(org, { role: "owner" });
    expect((await other.call("/v1/key", undefined, { key: revoked })).status).toBe(200);
    const { body } = await one.call("/v1/key", undefined, { key: revoked });
    await one.call(`/v1/orgs/${org}/keys/${body.id}`, undefined, { key, method: "DELETE" });
    await eventually(async () => expect((await other.call("/v1/key", undefined, { key: revoked })).status).toBe(401));

    await pooler.kill();
    await pooler.start();
    await eventually(async () => expect((await act(one)).status).toBe(200));
    await eventually(async () => expect((await act(other)).status).toBe(200));
    await Promise.all([one.close(), other.close()]);
    expect(await brokenInvariants(sql)).toEqual([]);
    await model.close();
  });

  it("sets limits per transaction, and leaves none in the session that other clients get", async () => {
    const pooled = connect(pooler.url("postgres"), { max: 2, pooled: true });
    const limits = await tx(
      pooled,
      (tx) => tx`select current_setting('statement_timeout') as statement,
      current_setting('idle_in_transaction_session_timeout') as idle`,
    );
    expect(limits).toEqual([{ statement: "30s", idle: "15s" }]);
    const [after] = await pooled`select current_setting('statement_timeout') as statement`;
    expect(after).toEqual({ statement: "0" });
    await pooled.end();
  });

  it("does not start without PostgreSQL's direct address, and names the missing setting", async () => {
    const careless = await startPgBouncer(await freePort(), postgresPort, IGNORING);
    const wanted =
      /^limber: DATABASE_URL 127\.0\.0\.1:\d+\/postgres: this is a pooler .*; set LIMBER_DATABASE_DIRECT_URL /;
    for (const url of [pooler.url("postgres"), careless.url("postgres")]) {
      const { code, stderr } = await failToStart({ ...ENV, DATABASE_URL: url });
      expect([code, stderr.trim()]).toEqual([1, expect.stringMatching(wanted)]);
    }
    const twice = await failToStart({
      ...ENV,
      DATABASE_URL: pooler.url("postgres"),
      LIMBER_DATABASE_DIRECT_URL: careless.url("postgres"),
    });
    expect(twice.stderr).toMatch(/^limber: LIMBER_DATABASE_DIRECT_URL .*: this is a pooler; use /);
    await careless.close();
  });

  it("does not start if the two addresses lead to different databases", async () => {
    await sql.unsafe("create database elsewhere");
    const { code, stderr } = await failToStart({
      ...ENV,
      DATABASE_URL: pooler.url("elsewhere"),
      LIMBER_DATABASE_DIRECT_URL: direct,
    });
    expect([code, stderr.trim()]).toEqual([
      1,
      "limber: DATABASE_URL and LIMBER_DATABASE_DIRECT_URL point to different databases",
    ]);
  });
});
