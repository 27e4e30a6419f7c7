/** The archive of the request history: what is folded was written, read back and verified, and every sum stays as it was. */
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import S3rver from "s3rver";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { newId } from "../../src/ids.ts";
import { type ArchiveBucket, type ArchiveFolder, openFolder } from "../../src/jobs/archive/folder.ts";
import { archiveHistory, openArchive, verifyArchive } from "../../src/jobs/archive.ts";
import { audit, verifyAuditChain } from "../../src/store/account/audit.ts";
import { reverse } from "../../src/store/billing/payments.ts";
import { tx } from "../../src/store/database/tx.ts";
import { archivedUntil, isArchived } from "../../src/store/history/archive.ts";
import { extendHistory } from "../../src/store/history/partitions.ts";
import { usageTotals } from "../../src/store/history/usage.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";
import { brokenInvariants } from "../support/invariants.ts";

const AFTER = 13;
/** Fewer than the requests of a week, so that each month has several files. */
const FILE_ROWS = 5;
const CALLS = 24;
const COST = 1_000;

let db: FreshDatabase;
let root: string;
let folder: ArchiveFolder;
let at: Date;
beforeAll(async () => {
  [db, root] = await Promise.all([freshDatabase(), mkdtemp(join(tmpdir(), "limber-archive-"))]);
  const [row] = await db.sql<{ at: Date }[]>`select now() as at`;
  at = row!.at;
});
beforeEach(() => {
  folder = openFolder(root);
});
afterEach(async () => {
  await rm(root, { recursive: true, force: true });
  await db.close();
  db = await freshDatabase();
});
afterAll(async () => {
  await db.close();
  await rm(root, { recursive: true, force: true });
});

const archive = (to: ArchiveFolder = folder): Promise<number> =>
  archiveHistory({ sql: db.sql, folder: to, afterMonths: AFTER, fileRows: FILE_ROWS }, at);

/** An organization with charged, hedged, failed and unmetered calls between 14 and 17 months ago, by one lease a day that has ended. */
async function past(): Promise<string> {
  const org = newId("org");
  const kind = async (status: string, hedge: string | null): Promise<number> => {
    const fields = [
      "key_1",
      status,
      "act",
      "a/m",
      "p",
      "off_1",
      "action_step",
      "0",
      hedge,
      "false",
      "false",
      "200",
      null,
      null,
    ];
    const [row] = await db.sql<{ kinds: number[] }[]>`select request_kinds(${fields as string[]}::text[]) as kinds`;
    return row!.kinds[0]!;
  };
  const [settled, hedged, failed, unmetered] = [
    await kind("settled", null),
    await kind("settled", "300"),
    await kind("failed", null),
    await kind("unmetered", null),
  ];
  const granted = 1_000_000;
  const spent = COST * CALLS * 2;
  await db.sql`insert into org (id, name) values (${org}, 'a')`;
  await db.sql`
    insert into account (org_id, granted_micro, available_micro, requests) values (${org}, ${granted}, ${granted - spent}, ${3 * CALLS})`;
  await db.sql`
    insert into transfer (cause, kind, org_id, debit, credit, amount_micro) values (${newId("entry")}, 'grant', ${org}, 'granted', 'available', ${granted})`;
  await db.sql`
    with day as (
      select n, now() - make_interval(months => 14, days => 3 * n) as at, ${org} || '/' || n as lease from generate_series(1, ${CALLS}) as n
    ), call as (
      select day.*, c.kind, c.cost, request_mark(at) || lpad(c.place::text, 16, '0') as id
      from day, (values (${settled}::int8, ${COST}::int8, 1), (${hedged}, ${COST}, 2), (${failed}, 0, 3), (${unmetered}, 0, 4)) as c (kind, cost, place)
    ), taken as (
      insert into transfer (cause, kind, org_id, debit, credit, amount_micro, created)
      select lease || '/taken', 'lease'::transfer_kind, ${org}, 'available', lease, ${3 * COST}::int8, at from day
      union all select lease, 'return'::transfer_kind, ${org}, lease, 'available', ${COST}::int8, at from day
    ), counted as (
      insert into key_day (key_id, day, org_id, taken_micro) select 'key_1', (at at time zone 'UTC')::date, ${org}, ${2 * COST}::int8 from day
      on conflict (key_id, day) do update set taken_micro = key_day.taken_micro + excluded.taken_micro
    ), lost as (
      insert into hedge_loser (org_id, request_id, place, offering_id, provider, model, earns, cost_micro, created)
      select ${org}, id, 0, 'off_2', 'q', 'a/m', true, 300, at from call where kind = ${hedged}
    )
    insert into request_outcome (org_id, request_id, kind, cost_micro, lease, units, latency_ms, created)
    select ${org}, id, kind, cost, case when cost > 0 then lease end, 1, 12.5, at from call`;
  await extendHistory(db.sql);
  await addUp(2);
  return org;
}

/** Adds up the calls until some hours ago, which takes the gateway's steps too long for two years. */
async function addUp(hours: number): Promise<void> {
  const until = db.sql`date_trunc('hour', now()) - make_interval(hours => ${hours})`;
  await db.sql`select series_put((select at from series_until), ${until})`;
  await db.sql`insert into margin_hour select * from margin_between((select at from margin_until), ${until}, 60)`;
  for (const watermark of ["series_until", "margin_until"]) await db.sql`update ${db.sql(watermark)} set at = ${until}`;
}

const rowsLeft = async (org: string): Promise<number> =>
  (
    await db.sql<{ n: number }[]>`
    select count(*) + (select count(*) from hedge_loser where org_id = ${org}) as n from request_outcome where org_id = ${org}`
  )[0]!.n;
const balances = () => db.sql`select org_id, granted_micro, available_micro, requests from account order by org_id`;
const folders = () => db.sql<{ name: string }[]>`select name from archive_file order by name`;

describe("months past the age", () => {
  it("fold into one entry for each account and day, with every balance, total and statement unchanged", async () => {
    const org = await past();
    await tx(db.sql, (tx) => audit(tx, { orgId: org, actor: "admin", action: "org.created", subject: org }));
    const sums = async () => [
      await balances(),
      await verifyAuditChain(db.sql),
      await usageTotals(db.sql, org),
      await db.sql`select * from earning order by day, offering_id`,
      await db.sql`select org_id, sum(amount_micro)::bigint as micro, credit = 'spent' as spent from entry group by 1, 3 order by 3`,
    ];
    expect(await brokenInvariants(db.sql)).toEqual([]);
    const before = await sums();
    const [{ id } = { id: "" }] = await db.sql<{ id: string }[]>`select request_id as id from request_outcome limit 1`;
    expect(await isArchived(db.sql, org, id)).toBe(false);
    expect(await archivedUntil(db.sql, org)).toBeUndefined();

    expect(await archive()).toBe(4 * CALLS);
    expect(await rowsLeft(org)).toBe(0);
    expect(await sums()).toEqual(before);
    expect(await brokenInvariants(db.sql)).toEqual([]);
    expect(await db.sql`select * from closing_entry where records > 3`).toEqual([]);
    expect([await isArchived(db.sql, org, id), await isArchived(db.sql, org, newId("req"))]).toEqual([true, false]);
    // Lists say until when requests are archived, if they were asked for such a time.
    const until = (await archivedUntil(db.sql, org))!;
    expect(new Date(until * 1000).toISOString()).toMatch(/-01T00:00:00.000Z$/);
    expect(at.getTime() / 1000 - until).toBeGreaterThan(AFTER * 28 * 86_400);
    expect(await archivedUntil(db.sql, org, until)).toBeUndefined();
    const names = await folders();
    expect(names.length).toBeGreaterThan((4 * CALLS) / FILE_ROWS);
    const report = await verifyArchive({ sql: db.sql, folder });
    expect(report).toEqual({ files: names.length, closings: 2 * CALLS, faults: [] });

    // There is nothing left to do, and what was emptied is dropped.
    expect(await archive()).toBe(0);
    const [parts] = await db.sql<{ n: number }[]>`
      select count(*) as n from pg_inherits where inhparent = 'request_outcome'::regclass and inhrelid::regclass::text < ${`request_outcome_${at.getUTCFullYear() - 1}0901`}`;
    expect(parts?.n).toBe(0);
  });

  it("do not matter to the refund of a payment that paid for them", async () => {
    const org = await past();
    await db.sql`
      insert into payment (id, org_id, key_id, amount_micro, status, success_url, cancel_url, expires_at, created)
      values ('pay_1', ${org}, 'key_1', 1000000, 'succeeded', '', '', now(), now() - interval '18 months')`;
    await archive();
    const fact = { kind: "reversal", id: "re_1", of: "refund", state: "taken", amount: { micro: 1_000_000 } } as const;
    const reversed = await tx(db.sql, (tx) => reverse(tx, "pay_1", { ...fact, intentId: "pi_1" }));
    // What was spent in folded months cannot be taken, and is owed.
    expect(reversed).toMatchObject({ movedMicro: 1_000_000, owes: true });
    expect((await verifyArchive({ sql: db.sql, folder })).faults).toEqual([]);
  });

  it("stay while a lease or an intent of such a month is open, and for organizations whose logs are kept longer", async () => {
    const org = await past();
    await db.sql`insert into leaser (id, replica, epoch, alive_until) values ('r/1', 'r', 1, now())`;
    await db.sql`
      insert into lease (id, leaser_id, org_id, key_id, day) values ('open', 'r/1', ${org}, 'key_1', current_date - interval '20 months')`;
    expect(await archive()).toBe(0);
    await db.sql`delete from lease`;
    await db.sql`insert into intent (leaser_id, batch, promised, created) values ('r/1', 1, '{}', now() - interval '20 months')`;
    expect(await archive()).toBe(0);
    await db.sql`delete from intent`;
    await db.sql`insert into org_settings (org_id, retention_days) values (${org}, 3650)`;
    expect(await archive()).toBe(0);
    expect(await rowsLeft(org)).toBe(5 * CALLS);
  });

  it("take in a charge that arrives for a folded month, with the next run", async () => {
    const org = await past();
    await archive();
    const [late] = await db.sql<{ id: string }[]>`
      insert into request_outcome (org_id, request_id, kind, created)
      select ${org}, request_mark(now() - interval '15 months') || 'late000000000000', id, date_trunc('hour', now()) - interval '90 minutes'
      from request_kind where status = 'unmetered' returning request_id as id`;
    await db.sql`update account set requests = requests + 1 where org_id = ${org}`;
    expect(await brokenInvariants(db.sql)).toEqual([]);
    await extendHistory(db.sql);
    await addUp(1);
    expect(await archive()).toBe(1);
    expect(await db.sql`select from request_outcome where request_id = ${late!.id}`).toEqual([]);
    expect(await brokenInvariants(db.sql)).toEqual([]);
    expect((await verifyArchive({ sql: db.sql, folder })).faults).toEqual([]);
  });
});

describe("a run that fails", () => {
  it("loses nothing and doubles nothing, whether it ends before a file, after it, or after the fold", async () => {
    const org = await past();
    const before = await balances();
    let calls = 0;
    const broken: readonly Partial<ArchiveFolder>[] = [
      { write: () => Promise.reject(new Error("no space left on device")) },
      { read: () => Promise.reject(new Error("stale file handle")) },
      { read: async (name) => flipped(await folder.read(name)) },
      // The connection dies with the file on disk, in the third transaction.
      {
        read: async (name) => {
          calls += 1;
          if (calls === 3)
            await db.sql`
              select pg_terminate_backend(pid) from pg_stat_activity
              where datname = current_database() and state = 'idle in transaction'`;
          return folder.read(name);
        },
      },
    ];
    for (const fault of broken) {
      await expect(archive({ ...folder, ...fault })).rejects.toThrow();
      expect(await brokenInvariants(db.sql)).toEqual([]);
      expect(await balances()).toEqual(before);
    }
    const [done] = await db.sql<
      { records: number }[]
    >`select count(*) as files, sum(records)::int8 as records from archive_file`;
    expect(done).toMatchObject({ files: 2 });
    // After the fold, before the file is on record.
    await db.sql`create function stop() returns trigger language plpgsql as $$ begin raise exception 'stop'; end $$`;
    await db.sql`create trigger stop before insert on archive_file for each row execute function stop()`;
    await expect(archive()).rejects.toThrow("stop");
    await db.sql`drop trigger stop on archive_file`;
    expect(await brokenInvariants(db.sql)).toEqual([]);
    // Two replicas at once.
    const [one, other] = await Promise.all([archive(), archive()]);
    expect(one + other).toBe(4 * CALLS - done!.records);
    expect(await rowsLeft(org)).toBe(0);
    expect(await balances()).toEqual(before);
    expect(await brokenInvariants(db.sql)).toEqual([]);
    expect((await verifyArchive({ sql: db.sql, folder })).faults).toEqual([]);
  });

  it("stops a replica that does not have the archive's folder", async () => {
    await past();
    await archive();
    const org = await past();
    const elsewhere = openFolder(join(root, "elsewhere"));
    await expect(archive(elsewhere)).rejects.toThrow("every worker needs the same archive");
    expect(await rowsLeft(org)).toBe(5 * CALLS);
  });
});

describe("an archive in a bucket", () => {
  const keys = { accessKeyId: "S3RVER", secretAccessKey: "S3RVER" };
  let store: S3rver;
  let bucket: ArchiveBucket;
  beforeEach(async () => {
    const configureBuckets = [{ name: "acme-archive" }];
    store = new S3rver({ port: 0, address: "127.0.0.1", silent: true, directory: root, configureBuckets });
    const { port } = await store.run();
    const endpoint = `http://127.0.0.1:${port}`;
    bucket = { bucket: "acme-archive", prefix: "limber/", endpoint, region: "us-east-1", credentials: keys };
  });
  afterEach(() => store.close());

  it("keeps every sum, and is verified as a folder is", async () => {
    const org = await past();
    const before = await balances();
    expect(await archive(openArchive(bucket))).toBe(4 * CALLS);
    expect([await rowsLeft(org), await balances()]).toEqual([0, before]);
    const names = await folders();
    const report = await verifyArchive({ sql: db.sql, folder: openArchive(bucket) });
    expect(report).toEqual({ files: names.length, closings: 2 * CALLS, faults: [] });
    await openArchive(bucket).write(names[0]!.name, Buffer.from("changed"));
    const { faults } = await verifyArchive({ sql: db.sql, folder: openArchive(bucket) });
    expect(faults[0]).toContain("does not match its SHA-256");
  });

  it.each([
    ["does not exist", { bucket: "no-archive" }, "the bucket no-archive answered 404 NoSuchBucket"],
    [
      "does not know the key",
      { credentials: { ...keys, accessKeyId: "another" } },
      "the bucket acme-archive answered 403 InvalidAccessKeyId",
    ],
  ])("that %s drops nothing, and the error says so", async (_, change, sentence) => {
    const org = await past();
    await expect(archive(openArchive({ ...bucket, ...change }))).rejects.toThrow(sentence);
    expect(await rowsLeft(org)).toBe(5 * CALLS);
  });
});

describe("a verification", () => {
  it("names the month and the accounts of a file with a changed byte, and of a closing entry that was changed", async () => {
    await past();
    await archive();
    const [{ name } = { name: "" }] = await folders();
    const path = join(root, name);
    const bytes = await readFile(path);
    await writeFile(path, flipped(bytes));
    const { faults } = await verifyArchive({ sql: db.sql, folder }, name.slice(0, 7));
    expect(faults[0]).toBe(`${name.slice(0, 7)}: archive file ${name} does not match its SHA-256`);
    expect(faults[1]).toMatch(
      /^\d{4}-\d{2}: account (without a lease|org_\S+) of org_\S+ \(key_1\) on \d{4}-\d{2}-\d{2}: the closing entry has \d requests of \d+ micro-dollars, the archive (nothing|\d requests of \d+ micro-dollars)$/,
    );
    await writeFile(path, bytes);
    await db.sql`update closing_entry set cost_micro = cost_micro + 1 where (org_id, day, lease) = (
      select org_id, day, lease from closing_entry where cost_micro > 0 order by day limit 1)`;
    const after = (await verifyArchive({ sql: db.sql, folder })).faults;
    expect(after).toEqual([
      expect.stringContaining(
        ": the closing entry has 2 requests of 2001 micro-dollars, the archive 2 requests of 2000 micro-dollars",
      ),
      expect.stringMatching(/^org_\S+: the balance is 952000 micro-dollars, the entries sum to 951999$/),
    ]);
  });
});

function flipped(bytes: Uint8Array): Uint8Array {
  return bytes.with(bytes.length >> 1, bytes[bytes.length >> 1]! ^ 1);
}
