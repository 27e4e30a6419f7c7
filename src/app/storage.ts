/** The storage of a process: the database, the vault, and notifications from other processes. */

import { join } from "node:path";
import type { Logger } from "pino";
import { every, sleep } from "../clock.ts";
import { type Config, ConfigError } from "../config.ts";
import { type DevelopmentSecrets, developmentSecrets } from "../embedded/demo.ts";
import { startEmbeddedNats } from "../embedded/nats.ts";
import { type EmbeddedPostgres, startPostgres } from "../embedded/postgres.ts";
import { ReplicaLine } from "../events/nats/replicas.ts";
import { Relay } from "../events/relay.ts";
import { secretBytes } from "../random.ts";
import { keepOrgCaps } from "../store/account/org-caps.ts";
import { HASH_KEY_CONTEXT, keepHashKey, nameMasterKey } from "../store/account/sealed.ts";
import { databaseAddress } from "../store/database/address.ts";
import { Pulse } from "../store/database/client.ts";
import { migrate } from "../store/database/migrate.ts";
import { Notifications } from "../store/database/notifications.ts";
import { connect, databaseReachable, type Sql, sameDatabase } from "../store/database/tx.ts";
import { mayPass } from "../store/database/unavailable.ts";
import { extendHistory, historyAheadDays } from "../store/history/partitions.ts";
import { hasCatalog, importCatalog } from "../store/supply/catalog.ts";
import { createVault, type Vault, VaultError } from "../vault.ts";
import type { AppContext, Closers } from "./context.ts";

const CATALOG = join(import.meta.dirname, "..", "..", "data");
const POOL = 10;
/** How often each process looks for missing partitions. */
const EXTEND_MS = 3_600_000;
const CONNECTIONS_OF_A_PROCESS = 30;

/** The opened storage. */
export interface Storage {
  sql: Sql;
  /** The database's address. */
  url: string;
  /** A connection only for the ledger. */
  line: Sql;
  /** Whether the database responds. */
  pulse: Pulse;
  notifications: Notifications;
  /** NATS, if configured. */
  natsUrl: string | undefined;
  /** Messages between replicas over NATS, except emergency stops. */
  replicaLine: ReplicaLine | undefined;
  vault: Vault;
  adminToken: string;
  /** For an embedded database, the generated secrets. */
  secrets: DevelopmentSecrets | undefined;
  /** Current warnings for the operator. */
  warnings(): string[];
  /** Whether NATS does not accept events, so that they wait in the outbox. */
  doEventsWait(): boolean;
  /** How many days ahead the request history has partitions; undefined until known. */
  historyAheadDays(): number | undefined;
}

/**
 * Connects to the database, or starts it; migrates it; opens the vault and the change notifications. Waits while the database is unavailable.
 */
export async function openStorage({ config, closers, log, replica }: AppContext): Promise<Storage> {
  const url =
    config.databaseUrl ?? (await openDatabase(config, closers, (line) => log.debug({ from: "postgres" }, line))).url;
  const { databaseDirectUrl } = config;
  const direct = databaseDirectUrl ?? url;
  const pooled = databaseDirectUrl !== undefined;
  await whenDatabaseAnswers(log, async () => {
    if (pooled) await databaseReachable(direct, { setting: "LIMBER_DATABASE_DIRECT_URL" });
    await databaseReachable(url, { pooled });
    if (pooled) await sameDatabase(url, direct);
    const setup = connect(direct, { max: 1, unbounded: true });
    await migrate(setup).finally(() => setup.end());
  });
  for (const address of new Set([url, direct]))
    for (const name of databaseAddress(address).withoutEffect)
      log.info(`the database URL's parameter ${name} is for other clients and has no effect here`);
  const pulse = new Pulse();
  closers.add(async () => pulse.close());
  const sql = connect(url, { max: POOL, pulse, pooled });
  closers.add(() => sql.end());
  const line = connect(url, { max: 1, plansOnce: true, pulse, pooled });
  closers.add(() => line.end());
  await whenDatabaseAnswers(log, () => bringCatalog(config, sql, log));
  await whenDatabaseAnswers(log, () => keepOrgCaps(sql, config.orgCaps));

  let historyAhead: number | undefined;
  const extend = async (): Promise<void> => {
    await extendHistory(sql);
    historyAhead = await historyAheadDays(sql);
  };
  await whenDatabaseAnswers(log, extend);
  const extending = every(EXTEND_MS, () =>
    extend().catch((cause) => log.warn({ err: cause }, "partitions of the request history could not be made")),
  );
  closers.add(async () => extending());

  const secrets = config.databaseUrl === undefined ? developmentSecrets(config.dataDir) : undefined;
  const adminToken = config.adminToken ?? secrets?.adminToken ?? "";
  const masterKey = config.masterKey ?? Buffer.from(secrets?.masterKey ?? "", "base64");
  const keys = createVault(masterKey, config.otherMasterKeys);
  const missingKeys = await whenDatabaseAnswers(log, () => checkMasterKey(sql, keys));
  const hashKey = await whenDatabaseAnswers(log, () => hashKeyOf(sql, keys));
  const vault = createVault(masterKey, config.otherMasterKeys, hashKey);
  if (missingKeys !== undefined) log.warn(missingKeys);

  const notifications = await Notifications.open(direct, pulse);
  closers.add(() => notifications.close());
  const natsUrl = config.natsUrl ?? (await openNats(config, closers, (text) => log.warn(text)));
  const replicaLine = openReplicaLine({ log, closers }, natsUrl, true);
  let relay: Relay | undefined;
  if (natsUrl !== undefined) {
    const opened = new Relay({ sql, notifications, url: natsUrl, replica, warn: (text) => log.warn(text) });
    closers.add(() => opened.close());
    relay = opened;
  }
  const doEventsWait = (): boolean => relay?.isWaiting ?? false;
  const warnings = (): string[] => [
    ...(pulse.silent ? ["the database does not respond"] : []),
    ...(doEventsWait() ? ["NATS does not accept events; they wait in the outbox"] : []),
    ...(missingKeys === undefined ? [] : [missingKeys]),
  ];
  return {
    sql,
    url,
    line,
    pulse,
    notifications,
    natsUrl,
    replicaLine,
    vault,
    adminToken,
    secrets,
    warnings,
    doEventsWait,
    historyAheadDays: () => historyAhead,
  };
}

/** A connection between replicas over NATS; undefined without NATS. `hasOtherWay` is passed through. */
export function openReplicaLine(
  { log, closers }: Pick<AppContext, "log" | "closers">,
  url: string | undefined,
  hasOtherWay: boolean,
): ReplicaLine | undefined {
  if (url === undefined) return undefined;
  const line = new ReplicaLine({ url, hasOtherWay, warn: (text, cause) => log.warn({ err: cause }, text) });
  closers.add(() => line.close());
  return line;
}

/** Imports the release's catalog: always into the embedded database, but only once into a shared one, which its operator can then change. */
async function bringCatalog({ importCatalog: isWanted, databaseUrl }: Config, sql: Sql, log: Logger): Promise<void> {
  if (!isWanted || (databaseUrl !== undefined && (await hasCatalog(sql)))) return;
  const { version, changed } = await importCatalog(sql, CATALOG);
  if (changed && databaseUrl !== undefined) log.info({ version }, "the catalog was imported");
}

/**
 * Throws a `ConfigError` if no loaded master key sealed this database's secrets: other processes could not open what this one seals. Returns
 * a warning if some keys are missing.
 */
async function checkMasterKey(sql: Sql, vault: Vault): Promise<string | undefined> {
  const { known, missing } = await nameMasterKey(sql, vault.heads);
  if (missing === 0) return undefined;
  if (known > 0)
    return "LIMBER_MASTER_KEY_PREVIOUS lacks a master key that sealed some secrets; they stay unreadable until npm run vault:rotate succeeds with it";
  throw new ConfigError([
    "neither LIMBER_MASTER_KEY nor LIMBER_MASTER_KEY_PREVIOUS contains the key that sealed this database's secrets (if it is lost: npm run vault:rotate -- --lost)",
  ]);
}

/**
 * The key of request hashes. If it cannot be opened, this process generates its own: calls that used an idempotency key elsewhere are then
 * refused here as different calls, and never run twice.
 */
async function hashKeyOf(sql: Sql, vault: Vault): Promise<Buffer> {
  const fresh = secretBytes(32);
  const sealed = await keepHashKey(sql, vault.seal(fresh, HASH_KEY_CONTEXT));
  try {
    return vault.openBytes(sealed, HASH_KEY_CONTEXT);
  } catch (thrown) {
    if (thrown instanceof VaultError) return fresh;
    throw thrown;
  }
}

/** The delay before an unavailable database is retried, in milliseconds. */
const RETRY_MS = { first: 250, most: 5_000 };

/** Retries `work` while the database is unavailable, and logs what it waits for. Throws any other error. */
export async function whenDatabaseAnswers<T>(log: Logger, work: () => Promise<T>): Promise<T> {
  for (let waitMs = RETRY_MS.first; ; waitMs = Math.min(waitMs * 2, RETRY_MS.most)) {
    try {
      return await work();
    } catch (thrown) {
      if (!mayPass(thrown)) throw thrown;
      const why = thrown instanceof Error ? thrown.message : String(thrown);
      log.warn({ retryMs: waitMs }, `waiting for the database: ${why}`);
      await sleep(waitMs);
    }
  }
}

async function openDatabase(config: Config, closers: Closers, log: (line: string) => void): Promise<EmbeddedPostgres> {
  // Each process holds 23 connections; leave some for operators and tools.
  const max_connections = String(Math.max(100, CONNECTIONS_OF_A_PROCESS * (config.processes + 1)));
  const database = await startPostgres({ dataDir: config.dataDir, log, settings: { max_connections } });
  closers.add(() => database.stop());
  return database;
}

/** Starts the nats-server of the embedded default; if it does not start, continues without it. */
async function openNats({ natsServer, dataDir }: Config, closers: Closers, warn: (text: string) => void) {
  if (natsServer === undefined) return undefined;
  try {
    const nats = await startEmbeddedNats({ program: natsServer, dataDir, warn });
    closers.add(() => nats.stop());
    return nats.url;
  } catch (error) {
    warn(`events stay in the outbox: ${error instanceof Error ? error.message : String(error)}`);
    return undefined;
  }
}
