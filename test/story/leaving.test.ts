/** An organisation takes everything along and goes: what the export has, and that nothing but the ledger stays, without a name. */
import { beforeAll, describe, expect, it } from "vitest";
import { newId } from "../../src/ids.ts";
import { EMPTIED, EMPTIED_LATER, KEPT } from "../../src/store/account/delete-org.ts";
import { forgetLogs } from "../../src/store/history/partitions.ts";
import { EXPORT_FILES } from "../../src/store/jobs/exports.ts";
import { ADMIN_TOKEN, type Answer, type App, type Caller } from "../support/app.ts";
import { belongings } from "../support/belongings.ts";
import { eventually } from "../support/eventually.ts";
import { brokenInvariants } from "../support/invariants.ts";
import { person } from "../support/members.ts";
import type { Model } from "../support/model.ts";
import { openModel, ownGateway } from "../support/world.ts";

let next = 0;
/** It stands in every text that this organisation has. */
const MARK = "zinnober";
const SECRET = "sk-rosenquarz";

let app: App;
let model: Model;
beforeAll(async () => {
  [app, model] = await Promise.all([ownGateway({ roles: new Set(["api", "worker"]) }), openModel()]);
  await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
});

const ACT = { model: "acme/base", action_space: "base_twist_2d", horizon: 2, observations: [{ proprio: [0.5] }] };

/** An organisation with one of everything, its mark wherever a text can be. */
async function furnished(): Promise<Caller & { mark: string }> {
  const mark = `${MARK}${next++}x`;
  const { id: org } = await app.admin("/v1/orgs", { name: `lab ${mark}`, email: `boss@${mark}.example` });
  await app.admin(`/v1/orgs/${org}/credits`, { amount_usd: 10, reason: `contract ${mark}` });
  const caller = { org, key: await app.key(org, { name: `first ${mark}`, role: "owner" }) };
  await belongings(app, caller, mark);
  const issuer = { id: newId("iss"), org_id: org, name: mark, issuer: "https://accounts.example", client_id: mark };
  await app.sql`insert into issuer ${app.sql(issuer)}`;
  const more: readonly [path: string, body: object, method?: string][] = [
    ["/v1/credentials/acme", { secret: SECRET, label: mark }, "PUT"],
    [`/v1/orgs/${org}/settings`, { retention_days: 7 }, "PATCH"],
    [`/v1/orgs/${org}/keys`, { name: `robot ${mark}`, robot_id: mark }],
    ["/v1/act", { ...ACT, metadata: { who: mark } }],
  ];
  for (const [path, body, method = "POST"] of more) {
    const { status, text } = await app.call(path, body, { key: caller.key, method });
    if (status >= 300) throw new Error(`${path} ${status} ${text}`);
  }
  await eventually(async () => {
    const { body } = await app.call("/v1/logs", undefined, caller);
    expect(JSON.stringify(body.data)).toContain(mark);
  });
  // The batch is charged before it ends.
  await eventually(async () =>
    expect(await app.sql`select from job where org_id = ${org} and kind = 'batch' and rank < 9`).toEqual([]),
  );
  return { ...caller, mark };
}

const files = async ({ org, key }: Caller) => {
  const begun = await app.call(`/v1/orgs/${org}/export`, {}, { key });
  expect([begun.status, begun.body.object]).toEqual([202, "export"]);
  const path = `/v1/orgs/${org}/export/${begun.body.id}`;
  const whole = await eventually(
    async () => {
      const { body } = await app.call(path, undefined, { key });
      expect(body.status).toBe("completed");
      return body;
    },
    { timeout: 30_000 },
  );
  return { path, whole };
};

/** Every table, and how many of its rows have this text in any column, as text or as bytes. */
async function tracesOf(text: string): Promise<Record<string, number>> {
  const tables = await app.sql<{ name: string }[]>`
    select table_name as name from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE'`;
  const found: Record<string, number> = {};
  const like = [`%${text}%`, `%${Buffer.from(text).toString("hex")}%`];
  for (const { name } of tables) {
    const [row] = await app.sql<{ n: number }[]>`
      select count(*)::int as n from ${app.sql(name)} as t where t::text ilike any (${like}::text[])`;
    if (row && row.n > 0) found[name] = row.n;
  }
  return found;
}

const ofOrg = async (): Promise<string[]> =>
  (
    await app.sql<{ name: string }[]>`
      select c.table_name as name from information_schema.columns as c join information_schema.tables as t using (table_name, table_schema)
      where c.table_schema = 'public' and t.table_type = 'BASE TABLE' and c.column_name = 'org_id'
        and not exists (select from pg_class where relname = c.table_name and relispartition) order by 1`
  ).map(({ name }) => name);

describe("the lists of tables", () => {
  it("list each table with an organization: deleted with it, or kept without names", async () => {
    expect([...EMPTIED, ...EMPTIED_LATER, ...KEPT].sort()).toEqual([...(await ofOrg())].sort());
  });

  it("export each such table, or state the reason why not", async () => {
    const exported = new Set(EXPORT_FILES.map(({ table }) => table));
    const left: Record<string, string> = {
      oauth_code: "lives for minutes, and is a secret",
      session: "who is signed in at this moment",
      sign_in_link: "lives for minutes, and is a secret",
      idempotency: "answers of a day, which the callers have",
      outbox: "events on their way",
      mail: "the same, to people",
      lease: "how replicas hold credit",
      recall: "how replicas hold credit",
      key_day: "sums of requests.jsonl",
      workspace_day: "sums of requests.jsonl",
      key_descendants_day: "sums of requests.jsonl",
      series_line: "sums of requests.jsonl",
      margin_hour: "sums of requests.jsonl and the operator's costs",
      request_outcome: "is in the view `request`",
      request_log: "is in the view `request`",
      audit_head: "the last of audit.jsonl",
      hedge_loser: "to whom the hedges of requests.jsonl were paid",
    };
    const missing = (await ofOrg()).filter((name) => !exported.has(name) && !(name in left));
    expect(missing).toEqual([]);
  });

  it("export no binary columns, which hold secrets and hashes", async () => {
    for (const { table, columns, times = [], texts = [] } of EXPORT_FILES) {
      const rows = await app.sql<{ name: string; type: string }[]>`
        select column_name as name, data_type as type from information_schema.columns where table_name = ${table}`;
      const types = new Map(rows.map(({ name, type }) => [name, type]));
      for (const name of [...columns, ...times, ...texts]) {
        expect([table, name, types.has(name)]).toEqual([table, name, true]);
        expect([table, name, types.get(name)]).not.toEqual([table, name, "bytea"]);
      }
    }
  });
});

describe("POST /v1/orgs/{org_id}/export", () => {
  it("exports everything of the organization as one record per line, without secrets", async () => {
    const caller = await furnished();
    const { path, whole } = await files(caller);
    expect(whole.files.map(({ name }: { name: string }) => name)).toEqual(EXPORT_FILES.map(({ file }) => file));
    const all: Record<string, Answer["body"][]> = {};
    for (const { name, ready, records } of whole.files) {
      const { status, headers, text } = await app.call(`${path}/${name}`, undefined, caller);
      expect([name, ready, status, headers.get("content-type")]).toEqual([
        name,
        true,
        200,
        "text/plain; charset=utf-8",
      ]);
      const lines = text.split("\n").filter((line) => line !== "");
      all[name] = lines.map((line) => JSON.parse(line));
      expect([name, lines.length]).toEqual([name, records]);
    }
    const text = JSON.stringify(all);
    for (const secret of [SECRET, caller.key]) expect(text).not.toContain(secret);
    expect(all["organisation.jsonl"]).toMatchObject([{ id: caller.org, name: `lab ${caller.mark}` }]);
    expect(all["ledger.jsonl"]).toContainEqual(
      expect.objectContaining({ kind: "grant", amount_micro: 10_000_000, note: `contract ${caller.mark}` }),
    );
    expect(all["requests.jsonl"]).toContainEqual(
      expect.objectContaining({
        contract: "act",
        log: expect.objectContaining({ metadata: { who: caller.mark } }),
      }),
    );
    for (const { file } of EXPORT_FILES.filter(({ file }) => !MAY_BE_EMPTY.has(file)))
      expect([file, all[file]?.length]).not.toEqual([file, 0]);
    const { body: audit } = await app.call("/v1/audit?action=org.exported", undefined, caller);
    expect(audit.data).toHaveLength(1);
  });
  const MAY_BE_EMPTY = new Set([
    "group_members.jsonl",
    "closing_entries.jsonl",
    "payment_reversals.jsonl",
    "sign_in_identities.jsonl",
    "mail_preferences.jsonl",
    "automatic_topup.jsonl",
    "commitment.jsonl",
    "commitment_months.jsonl",
    "model_owners.jsonl",
    "maker_keys.jsonl",
  ]);

  it("is restricted to its owner and the operator", async () => {
    const caller = await furnished();
    const { path } = await files(caller);
    const stranger = await app.caller(0);
    const admin = await app.key(caller.org, { role: "admin" });
    for (const place of [path, `${path}/members.jsonl`]) {
      expect((await app.call(place, undefined, { key: stranger.key })).status).toBe(404);
      expect((await app.call(place, undefined, { key: admin })).status).toBe(403);
      expect((await app.call(place, undefined, { admin: ADMIN_TOKEN })).status).toBe(200);
      const elsewhere = place.replace(caller.org, stranger.org);
      expect((await app.call(elsewhere, undefined, { key: stranger.key })).status).toBe(404);
    }
    expect((await app.call(`/v1/orgs/${caller.org}/export`, {}, { key: admin })).status).toBe(403);
    for (const name of ["nothing.jsonl", "../members.jsonl", "job"])
      expect((await app.call(`${path}/${encodeURIComponent(name)}`, undefined, caller)).status).toBe(404);
  });
});

describe("DELETE /v1/orgs/{org_id}", () => {
  const remove = ({ org, key }: Caller, query: string, more: object = { key }) =>
    app.call(`/v1/orgs/${org}${query}`, undefined, { method: "DELETE", ...more });

  it("requires a confirmation and lists what would be lost", async () => {
    const caller = await furnished();
    expect((await remove(caller, "")).body.error).toMatchObject({ code: "validation_failed", param: "confirm" });
    expect((await remove(caller, "?confirm=org_other")).status).toBe(422);
    const kept = await remove(caller, `?confirm=${caller.org}`);
    expect([kept.status, kept.body.error.code]).toEqual([409, "org_not_empty"]);
    expect(kept.body.error.message).toMatch(/credit of 9\.9\d+ US dollars/);
    await app.admin(`/v1/orgs/${caller.org}/commitment`, { min_monthly_usd: 5 });
    expect((await remove(caller, `?confirm=${caller.org}&force=true`)).status).toBe(409);
    const admin = await app.key(caller.org, { role: "admin" });
    const foreign = await app.caller(0);
    for (const [key, status] of [
      [admin, 403],
      [foreign.key, 404],
    ] as const)
      expect((await remove(caller, `?confirm=${caller.org}&force=true`, { key })).status).toBe(status);
    expect((await app.call("/v1/key", undefined, caller)).status).toBe(200);
    expect((await remove(caller, `?confirm=${caller.org}&force=true`, { admin: ADMIN_TOKEN })).status).toBe(200);
  });

  it("keeps the ledger and deletes all texts of the organization and its members", async () => {
    const caller = await furnished();
    const someone = await person(app, caller.org, "developer");
    await files(caller);
    expect(Object.keys(await tracesOf(caller.mark)).length).toBeGreaterThan(12);
    const sums = () => app.sql`
      select sum(amount_micro)::int8 as amount, count(*) as n from entry where org_id = ${caller.org} and kind in ('grant', 'charge')`;
    const ledger = await sums();
    const chain = await app.sql<{ seq: number; hash: Buffer }[]>`select * from audit_head where org_id = ${caller.org}`;

    const { body: balance } = await app.call("/v1/billing/balance", undefined, caller);
    const gone = await remove(caller, `?confirm=${caller.org}&force=true`);
    expect([gone.status, gone.body.org]).toEqual([
      200,
      expect.objectContaining({ id: caller.org, name: "", status: "deleted" }),
    ]);
    expect(gone.body.forfeited_usd).toBe(balance.balance_usd);
    await eventually(async () => expect((await app.call("/v1/key", undefined, caller)).status).toBe(401));
    await forgetLogs(app.sql);
    expect(await tracesOf(caller.mark)).toEqual({});
    expect(await tracesOf(someone.userId)).toEqual({});
    for (const table of EMPTIED)
      expect([table, await app.sql`select 1 from ${app.sql(table)} where org_id = ${caller.org}`]).toEqual([table, []]);

    expect(await sums()).toEqual(ledger);
    const audit = await app.sql`select action, details from audit where org_id = ${caller.org}`;
    expect(audit).toMatchObject([
      {
        action: "org.deleted",
        details: { audit_records: chain[0]?.seq, audit_hash: chain[0]?.hash.toString("hex") },
      },
    ]);
    expect(await app.sql`select * from audit_faults(${caller.org})`).toEqual([]);
    expect(await brokenInvariants(app.sql)).toEqual([]);
  });

  it("returns 404 from then on", async () => {
    const caller = await app.caller(0);
    expect((await remove(caller, `?confirm=${caller.org}`)).status).toBe(200);
    const admin = { admin: ADMIN_TOKEN };
    const { org } = caller;
    const calls: readonly [path: string, body?: object | undefined, method?: string][] = [
      [`/v1/orgs/${org}?confirm=${org}`, undefined, "DELETE"],
      [`/v1/orgs/${org}/keys`, {}],
      [`/v1/orgs/${org}/credits`, { amount_usd: 1 }],
      [`/v1/orgs/${org}/commitment`, { min_monthly_usd: 1 }],
      [`/v1/orgs/${org}/export`, {}],
      [`/v1/orgs/${org}/keys`],
      [`/v1/orgs/${org}/settings`],
      [`/v1/orgs/${org}/settings`, { zdr: true }, "PATCH"],
      [`/v1/orgs/${org}/members`],
      [`/v1/orgs/${org}/members`, { email: "x@example.com", role: "viewer" }],
      [`/v1/orgs/${org}/workspaces`, { name: "x" }],
      [`/v1/orgs/${org}/workspaces`],
    ];
    for (const [path, body, method] of calls) {
      const { status, text } = await app.call(path, body, { ...admin, ...(method !== undefined && { method }) });
      expect([path, method, status, text]).toEqual([
        path,
        method,
        expect.toSatisfy((s) => s === 404 || s === 401),
        text,
      ]);
    }
    expect(await app.sql`select id from member where org_id = ${org}`).toEqual([]);
  });
});
