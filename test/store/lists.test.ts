/** Lists of what grows with use: a page reads a bounded number of rows, whatever its filter, and pages together find every match. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { listAudit } from "../../src/store/account/audit.ts";
import { type Sql, tx } from "../../src/store/database/tx.ts";
import { type Bounded, MOST_SCANNED } from "../../src/store/history/bounded.ts";
import { listActs, listCalls } from "../../src/store/history/logs.ts";
import { listUsage } from "../../src/store/history/usage.ts";
import { listJobs } from "../../src/store/jobs/jobs.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";

/** Two pages of rows, as many as a page may read; the oldest one alone is rare. */
const ROWS = 2 * MOST_SCANNED - 1;
const LIMIT = 50;
const ORG = "org_1";

let db: FreshDatabase;
beforeAll(async () => {
  db = await freshDatabase();
  const { sql } = db;
  const kind = (
    provider: string,
  ) => sql`(request_kinds(array['key_1', 'settled', 'act', ${`${provider}/m`}, ${provider}, 'off_1',
    'action_step', '0', null, 'false', 'false', '200', null, null]))[1]`;
  await sql`insert into org (id, name) values (${ORG}, 'a')`;
  const [kinds] = await sql<
    { common: number; rare: number }[]
  >`select ${kind("common")} as common, ${kind("rare")} as rare`;
  const rows = sql`generate_series(1, ${ROWS}) as n, lateral (
    select now() - make_interval(secs => n) as at, lpad((${ROWS} - n)::text, 26, '0') as place, n = ${ROWS} as is_rare) as each`;
  await sql`
    insert into request_outcome (org_id, request_id, kind, created)
    select ${ORG}, request_mark(at) || right(place, 16), case when is_rare then ${kinds!.rare}::int8 else ${kinds!.common}::int8 end, at from ${rows}`;
  await sql`
    insert into job (id, kind, org_id, key_id, workspace_id, status, rank, request, total, created, expires)
    select 'job_' || place, case when is_rare then 'evaluation' else 'batch' end, ${ORG}, 'key_1', 'ws_1', 'completed', 9, '{}', 1, at, at
    from ${rows}`;
  await sql`
    insert into audit (org_id, seq, id, actor, action, subject, details, request_id, created, previous, hash)
    select ${ORG}, ${ROWS + 1} - n, 'aud_' || place, case when is_rare then 'rare' else 'common' end,
      case when is_rare then 'offering.created' else 'key.created' end, case when is_rare then 'rare' else 'common' end, '{}',
      case when is_rare then 'req_rare' end, at, '', ''
    from ${rows}`;
  await sql.unsafe("analyze");
});
afterAll(() => db.close());

/** A list from a cursor on, of all rows or of the rare ones. */
type List = (sql: Sql, cursor: string | undefined) => Promise<Bounded<object>>;

const auditOf =
  (filter: object): List =>
  (sql, cursor) =>
    listAudit(sql, ORG, { ...filter, limit: LIMIT, before: cursor === undefined ? undefined : Number(cursor) });
const callsOf =
  (filter: object): List =>
  (sql, cursor) =>
    listCalls(sql, ORG, { ...filter, limit: LIMIT, cursor });
const usageOf =
  (filter: object): List =>
  (sql, cursor) =>
    listUsage(sql, ORG, { ...filter, limit: LIMIT, cursor });
const jobsOf =
  (kind: "evaluation" | undefined, workspaceId?: string): List =>
  (sql, cursor) =>
    listJobs(sql, { orgId: ORG, workspaceId }, { kind, limit: LIMIT, cursor });
const actsOf =
  (kind: "admin" | "supply", filter: object = {}): List =>
  (sql, cursor) =>
    listActs(sql, ORG, { ...filter, kind, limit: LIMIT, cursor });

const ALL: Readonly<Record<string, List>> = {
  calls: callsOf({}),
  "calls of a provider": callsOf({ provider: "common" }),
  usage: usageOf({}),
  "usage of a key": usageOf({ keyId: "key_1" }),
  jobs: jobsOf(undefined),
  "jobs of a workspace": jobsOf(undefined, "ws_1"),
  audit: auditOf({}),
  "administrative acts": actsOf("admin"),
};
const RARE: Readonly<Record<string, List>> = {
  "calls by provider": callsOf({ provider: "rare" }),
  "calls by model": callsOf({ model: "rare/m" }),
  "usage by provider": usageOf({ provider: "rare" }),
  "usage by model": usageOf({ model: "rare/m" }),
  "jobs by kind": jobsOf("evaluation"),
  "jobs of a workspace by kind": jobsOf("evaluation", "ws_1"),
  "audit by action": auditOf({ action: "offering.created" }),
  "audit by actor": auditOf({ actor: "rare" }),
  "audit by subject": auditOf({ subject: "rare" }),
  "audit by request": auditOf({ requestId: "req_rare" }),
  "acts by kind": actsOf("supply"),
  "acts by request": actsOf("supply", { requestId: "req_rare" }),
};

/** Reads a page; `read` is the number of rows that this took from all tables. */
async function page(list: List, cursor?: string): Promise<Bounded<object> & { read: number }> {
  return tx(db.sql, async (tx) => {
    const total = async (): Promise<number> => {
      const [row] = await tx<{ n: number }[]>`
        select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::int8 as n from pg_stat_xact_user_tables`;
      return row!.n;
    };
    const before = await total();
    const found = await list(tx as unknown as Sql, cursor);
    return { ...found, read: (await total()) - before };
  });
}

describe("a page", () => {
  it.for(Object.entries(ALL))("reads about as many rows as it has: %s", async ([, list]) => {
    const { rows, until, read } = await page(list);
    expect(rows).toHaveLength(LIMIT);
    expect(until).toBeUndefined();
    expect(read).toBeLessThan(10 * LIMIT);
  });

  it.for(Object.entries(RARE))(
    "ends after a bounded number of rows, and the next one continues there: %s",
    async ([, list]) => {
      const first = await page(list);
      expect(first.rows).toEqual([]);
      expect(first.until).toBeDefined();
      // Once for the page, and once for the place at which it ended.
      expect(first.read).toBeLessThan(2 * MOST_SCANNED + 10 * LIMIT);
      const second = await page(list, first.until);
      expect(second.rows).toHaveLength(1);
      expect(second.until).toBeUndefined();
    },
  );
});
