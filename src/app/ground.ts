/** What a process stands on: the database, the vault, and how it hears of what others did. */
import { join } from "node:path";
import type { Logger } from "pino";
import type { Config } from "../config.ts";
import { type DevelopmentSecrets, developmentSecrets } from "../development.ts";
import { startEmbeddedNats } from "../events/embedded.ts";
import { Relay } from "../events/relay.ts";
import { type EmbeddedPostgres, startPostgres } from "../store/database/embedded.ts";
import { migrate } from "../store/database/migrate.ts";
import { Notices } from "../store/database/notices.ts";
import { connect, databaseReachable, type Sql } from "../store/database/tx.ts";
import { importCatalog } from "../store/supply/catalog.ts";
import { createVault, type Vault } from "../vault.ts";
import type { Closers } from "./closers.ts";

const MIGRATIONS = join(import.meta.dirname, "..", "store", "migrations");
const CATALOG = join(import.meta.dirname, "..", "..", "data");
const POOL = 10;

/** What everything else stands on. */
export interface Ground {
  sql: Sql;
  /** A connection for the ledger alone. */
  line: Sql;
  notices: Notices;
  /** NATS, where there is one. */
  natsUrl: string | undefined;
  vault: Vault;
  adminToken: string;
  /** Of an embedded database: what this process made up itself. */
  secrets: DevelopmentSecrets | undefined;
}

/** Reaches the database, or starts it; brings it up to date; opens the vault and the ways to be told of changes. */
export async function openGround(config: Config, closers: Closers, log: Logger): Promise<Ground> {
  const url =
    config.databaseUrl ?? (await openDatabase(config, closers, (line) => log.debug({ from: "postgres" }, line))).url;
  await databaseReachable(url);
  const sql = connect(url, { max: POOL });
  closers.add(() => sql.end());
  const line = connect(url, { max: 1, plansOnce: true });
  closers.add(() => line.end());
  await migrate(sql, MIGRATIONS);
  // A database that others share is their operator's to fill.
  if (config.databaseUrl === undefined) await importCatalog(sql, CATALOG);

  const secrets = config.databaseUrl === undefined ? developmentSecrets(config.dataDir) : undefined;
  const adminToken = config.adminToken ?? secrets?.adminToken ?? "";
  const masterKey = config.masterKey ?? Buffer.from(secrets?.masterKey ?? "", "base64");
  const vault = createVault(masterKey, config.otherMasterKeys);

  const notices = await Notices.open(url);
  closers.add(() => notices.close());
  const natsUrl = config.natsUrl ?? (await openNats(config, closers, (text) => log.warn(text)));
  if (natsUrl !== undefined) {
    const relay = new Relay({ sql, notices, url: natsUrl, warn: (text) => log.warn(text) });
    closers.add(() => relay.close());
  }
  return { sql, line, notices, natsUrl, vault, adminToken, secrets };
}

async function openDatabase(config: Config, closers: Closers, log: (line: string) => void): Promise<EmbeddedPostgres> {
  const database = await startPostgres({ dataDir: config.dataDir, log });
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
