/** Exclusive ownership of a data directory. */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { StoreUnavailable } from "../../store/database/unavailable.ts";

const SQLITE_BUSY = 5;

/**
 * Makes this process the only owner of `dataDir` until it calls the returned function or dies. Throws `StoreUnavailable` while another
 * process, or another part of this one, is the owner.
 *
 * A pid file is unreliable after a crash, and Node.js has no file locks except SQLite's. Such a lock belongs to the kernel, ends with its
 * process, and also works between containers that share the directory.
 */
export function claim(dataDir: string): () => void {
  const owner = join(dataDir, "limber.pid");
  const lock = new DatabaseSync(join(dataDir, "limber.lock"));
  try {
    lock.exec("PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE");
  } catch (cause) {
    lock.close();
    if (!(cause instanceof Error && "errcode" in cause && cause.errcode === SQLITE_BUSY)) throw cause;
    const pid = existsSync(owner) ? ` (pid ${readFileSync(owner, "utf8").trim()})` : "";
    throw new StoreUnavailable(`Another Limber already runs on ${dataDir}${pid}`, { cause });
  }
  writeFileSync(owner, `${process.pid}\n`);
  return () => lock.close();
}
