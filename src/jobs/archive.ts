/**
 * The archive of the request history: months past an age are written to Parquet files, and their rows are folded into closing entries. Each file
 * is one transaction, which writes it, reads it back, and deletes exactly the rows that were read.
 */
import { createHash } from "node:crypto";
import { addUpServed } from "../store/billing/earnings.ts";
import type { Sql, Tx } from "../store/database/tx.ts";
import {
  type ArchivedRequest,
  type ArchiveFile,
  type ClosingEntry,
  closingsOf,
  type DuePosition,
  type DueRange,
  dueRanges,
  foldFile,
  listFiles,
  newestFile,
  readDue,
  whileArchiving,
  wrongBalances,
} from "../store/history/archive.ts";
import { dropArchived } from "../store/history/partitions.ts";
import { openBucket } from "./archive/bucket.ts";
import { type ArchiveFolder, type ArchivePlace, openFolder } from "./archive/folder.ts";
import { GROUP_ROWS, type ParquetColumn, type ParquetRow, readParquet, writeParquet } from "./archive/parquet.ts";

/** Requests of a file: its transaction takes about a second. */
const FILE_ROWS = 20_000;

const columns = (type: ParquetColumn["type"], names: string, nullable = false): ParquetColumn[] =>
  names.split(" ").map((name) => ({ name, type, nullable }));

const COLUMNS: readonly ParquetColumn[] = [
  ...columns("STRING", "org_id request_id key_id status contract model provider offering_id unit batch_id"),
  ...columns("INT64", "created_us units cost_micro wake_up_micro"),
  ...columns("BOOLEAN", "simulated byok"),
  ...columns("STRING", "lease error_code losers", true),
  ...columns("INT64", "hedge_cost_micro http_status", true),
  ...columns("DOUBLE", "latency_ms", true),
];

/** Dependencies of the archive. */
export interface ArchiveDeps {
  readonly sql: Sql;
  readonly folder: ArchiveFolder;
  /** Whole months after the end of a month before it is archived. */
  readonly afterMonths: number;
  /** Requests of a file; 20,000 by default. */
  readonly fileRows?: number;
  /** Whether to stop after the current file. */
  readonly isClosing?: () => boolean;
}

/**
 * Archives and folds every month that is due at `at`; returns the number of requests. Does nothing more once another replica does it. If a file
 * cannot be written or read back, throws, and its rows stay.
 */
export async function archiveHistory(deps: ArchiveDeps, at: Date): Promise<number> {
  const { sql, folder, afterMonths, fileRows = FILE_ROWS, isClosing = () => false } = deps;
  const ranges = await dueRanges(sql, at, afterMonths);
  if (ranges.length === 0) return 0;
  const newest = await newestFile(sql);
  // A replica that lacks its predecessor's folder would begin another archive.
  if (newest !== undefined) await readVerified(folder, newest);
  await addUpServed(sql);
  let all = 0;
  for (const range of ranges) {
    let after: DuePosition | undefined;
    for (;;) {
      if (isClosing()) return all;
      const done = await whileArchiving(sql, (tx) => archiveFile(tx, folder, { range, after, most: fileRows }));
      if (done === undefined) return all;
      all += done.records;
      if (done.records < fileRows) break;
      after = done.last;
    }
  }
  for (const table of ["hedge_loser", "request_outcome"] as const)
    await dropArchived(sql, table, cutOf(at, afterMonths));
  return all;
}

/** Opens the archive at a place. */
export const openArchive = (place: ArchivePlace): ArchiveFolder =>
  "folder" in place ? openFolder(place.folder) : openBucket(place);

/** The beginning of the first month that is not due. */
const cutOf = (at: Date, months: number): Date => new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth() - months, 1));

/** Archives and folds the next file of a range; it is the last one if it has fewer than `most` requests. */
async function archiveFile(
  tx: Tx,
  folder: ArchiveFolder,
  { range, after, most }: { range: DueRange; after: DuePosition | undefined; most: number },
): Promise<{ records: number; last: DuePosition | undefined }> {
  let [count, last] = [0, after];
  async function* due(): AsyncGenerator<readonly ParquetRow[]> {
    while (count < most) {
      const rows = await readDue(tx, range, last, Math.min(GROUP_ROWS, most - count));
      const final = rows.at(-1);
      if (final === undefined) return;
      count += rows.length;
      last = { org_id: final.org_id, request_id: final.request_id };
      yield rows.map((row) => ({ ...row }));
    }
  }
  const bytes = await writeParquet(COLUMNS, due());
  if (count === 0) return { records: 0, last };
  const sha256 = hashOf(bytes);
  const file: ArchiveFile = {
    name: `${range.month}/${range.week}-${sha256.slice(0, 16)}.parquet`,
    month: range.month,
    sha256,
    bytes: bytes.byteLength,
    records: 0,
    costMicro: 0,
  };
  await folder.write(file.name, bytes);
  const requests: DuePosition[] = [];
  for await (const rows of readParquet(await readVerified(folder, file))) {
    for (const { org_id, request_id, cost_micro } of rows as unknown as ArchivedRequest[]) {
      requests.push({ org_id, request_id });
      file.costMicro += cost_micro;
    }
  }
  file.records = requests.length;
  if (file.records !== count) throw new Error(`${file.name} has ${file.records} requests instead of ${count}`);
  await foldFile(tx, range, file, requests);
  return { records: count, last };
}

const hashOf = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

/** Reads a file; throws one clear sentence if it is missing or not what was written. */
async function readVerified(folder: ArchiveFolder, { name, sha256 }: ArchiveFile): Promise<Uint8Array> {
  const bytes = await folder.read(name).catch((cause: unknown) => {
    throw new Error(`archive file ${name} cannot be read; every worker needs the same archive`, { cause });
  });
  if (hashOf(bytes) !== sha256) throw new Error(`archive file ${name} does not match its SHA-256`);
  return bytes;
}

/** The outcome of a verification. */
export interface ArchiveReport {
  readonly files: number;
  readonly closings: number;
  /** One sentence each; empty if everything matches. */
  readonly faults: readonly string[];
}

/** Recomputes closing entries from the archive, of one month or of all, and balances from the entries. */
export async function verifyArchive(
  { sql, folder }: Pick<ArchiveDeps, "sql" | "folder">,
  month?: string,
): Promise<ArchiveReport> {
  const files = Map.groupBy(await listFiles(sql, month), (file) => file.month);
  const faults: string[] = [];
  let [read, closings] = [0, 0];
  for (const each of month === undefined ? [...files.keys()].sort() : [month]) {
    const found = new Map<string, ClosingEntry>();
    for (const file of files.get(each) ?? []) {
      read += 1;
      try {
        const bytes = await readVerified(folder, file);
        for await (const rows of readParquet(bytes))
          for (const row of rows) addTo(found, row as unknown as ArchivedRequest);
      } catch (thrown) {
        faults.push(`${each}: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
      }
    }
    for (const entry of await closingsOf(sql, each)) {
      closings += 1;
      const known = found.get(placeOf(entry));
      found.delete(placeOf(entry));
      if (known === undefined || FIGURES.some((figure) => known[figure] !== entry[figure]))
        faults.push(`${each}: ${nameOf(entry)}: the closing entry has ${shown(entry)}, the archive ${shown(known)}`);
    }
    for (const entry of found.values())
      faults.push(`${each}: ${nameOf(entry)}: no closing entry, the archive has ${shown(entry)}`);
  }
  for (const { orgId, ledgerMicro, shownMicro } of await wrongBalances(sql))
    faults.push(`${orgId}: the balance is ${shownMicro} micro-dollars, the entries sum to ${ledgerMicro}`);
  return { files: read, closings, faults };
}

const FIGURES = ["records", "requests", "costMicro"] as const;

const placeOf = ({ orgId, day, lease, keyId }: ClosingEntry): string => [orgId, day, lease, keyId].join(" ");

const nameOf = ({ orgId, day, lease, keyId }: ClosingEntry): string =>
  `account ${lease === "" ? "without a lease" : lease} of ${orgId} (${keyId}) on ${day}`;

const shown = (entry: ClosingEntry | undefined): string =>
  entry === undefined ? "nothing" : `${entry.records} requests of ${entry.costMicro} micro-dollars`;

function addTo(found: Map<string, ClosingEntry>, row: ArchivedRequest): void {
  const day = new Date(row.created_us / 1000).toISOString().slice(0, 10);
  const zero = {
    orgId: row.org_id,
    day,
    lease: row.lease ?? "",
    keyId: row.key_id,
    records: 0,
    requests: 0,
    costMicro: 0,
  };
  const entry = found.get(placeOf(zero)) ?? zero;
  entry.records += 1;
  if (row.status === "settled" || row.status === "unmetered") entry.requests += 1;
  entry.costMicro += row.cost_micro;
  found.set(placeOf(entry), entry);
}
