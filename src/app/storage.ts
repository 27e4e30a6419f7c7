/** What a process stands on: the database, the vault, and how it hears of what others did. */

import { join } from "node:path";
import type { Logger } from "pino";
import { sleep } from "../clock.ts";
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
import { mayPass, Pulse } from "../store/database/client.ts";
import { migrate } from "../store/database/migrate.ts";
import { Notifications } from "../store/database/notifications.ts";
import { connect, databaseReachable, type Sql, sameDatabase } from "../store/database/tx.ts";
import { hasCatalog, importCatalog } from "../store/supply/catalog.ts";
import { createVault, type Vault, VaultError } from "../vault.ts";
import type { AppContext, Closers } from "./context.ts";

const CATALOG = join(import.meta.dirname, "..", "..", "data");
const POOL = 10;
const CONNECTIONS_OF_A_PROCESS = 30;

/** What everything else stands on. */
export interface Storage {
  sql: Sql;
  /** The database's address. */
  url: string;
  /** A connection for the ledger alone. */
  line: Sql;
  /** Whether the database answers. */
  pulse: Pulse;
  notifications: Notifications;
  /** NATS, where there is one. */
  natsUrl: string | undefined;
  /** What replicas say to one another over it, emergency stops apart. */
  replicaLine: ReplicaLine | undefined;
  vault: Vault;
  adminToken: string;
  /** Of an embedded database: what this process made up itself. */
  secrets: DevelopmentSecrets | undefined;
  /** What the operator should look at now. */
  warnings(): string[];
  /** NATS takes no events: they wait in the outbox. */
  doEventsWait(): boolean;
}

/**
 * Reaches the database, or starts it; brings it up to date; opens the vault and the change notifications. A database that is away
 * is waited for.
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
  };
}

/** A connection to NATS between replicas; undefined where there is no NATS. `hasOtherWay` is the line's own. */
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

/** The embedded database has the catalog of this release. One that others share gets it once; from then on it is its operator's to change. */
async function bringCatalog({ importCatalog: isWanted, databaseUrl }: Config, sql: Sql, log: Logger): Promise<void> {
  if (!isWanted || (databaseUrl !== undefined && (await hasCatalog(sql)))) return;
  const { version, changed } = await importCatalog(sql, CATALOG);
  if (changed && databaseUrl !== undefined) log.info({ version }, "the catalog was imported");
}

/**
 * Throws a `ConfigError` where this database's secrets were sealed under master keys of which none is loaded: what this process sealed
 * would open nowhere else. Returns the warning where some are missing.
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
 * The key of request hashes. Where it does not open, this process has one of its own: calls that were made under an idempotency key elsewhere
 * are refused here as other calls, and never run twice.
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

/** How long to wait until a database that is away is looked for again, in milliseconds. */
const RETRY_MS = { first: 250, most: 5_000 };

/** Does `work`, again and again while the database is away, and says in the log what is waited for. Anything else that fails is thrown. */
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
  // Each process holds 23 connections; operators and tools need some, too.
  const max_connections = String(Math.max(100, CONNECTIONS_OF_A_PROCESS * (config.processes + 1)));
  const database = await startPostgres({ dataDir: config.dataDir, log, settings: { max_connections } });
  closers.add(() => database.stop());
  return database;
}

/** The nats-server of the embedded default; one that doesn't start is done without. */
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
