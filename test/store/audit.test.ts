/** The audit log: a chain that shows every change. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { audit, listAudit, verifyAuditChain } from "../../src/store/account/audit.ts";
import { createOrg } from "../../src/store/account/orgs.ts";
import { type Tx, tx } from "../../src/store/database/tx.ts";
import { seeded } from "../support/chance.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";
import { runs } from "../support/runs.ts";

let database: FreshDatabase;

beforeAll(async () => {
  database = await freshDatabase();
});
afterAll(() => database.close());

const org = async (): Promise<string> => (await createOrg(database.sql, { name: "test" })).id;
const act = (orgId: string, subject: string) =>
  tx(database.sql, (tx) => audit(tx, { orgId, actor: "admin", action: "thing.done", subject, details: { subject } }));

/** Runs `spoil` past the triggers, looks at the chain, and undoes it all. */
async function faultsAfter(orgId: string, spoil: (tx: Tx) => Promise<unknown>): Promise<string[]> {
  class Undo extends Error {}
  let faults: string[] = [];
  await tx(database.sql, async (tx) => {
    await tx`set local session_replication_role = replica`;
    await spoil(tx);
    const rows = await tx<{ fault: string }[]>`select fault from audit_faults(${orgId})`;
    faults = rows.map(({ fault }) => fault);
    throw new Undo();
  }).catch((thrown) => {
    if (!(thrown instanceof Undo)) throw thrown;
  });
  return faults;
}

describe("an audit chain", () => {
  it("has one complete record for each act, in order", async () => {
    const orgId = await org();
    for (const subject of ["a", "b", "c"]) await act(orgId, subject);
    const { rows: records } = await listAudit(database.sql, orgId, { limit: 10 });
    expect(records.map(({ seq, subject }) => [seq, subject])).toEqual([
      [3, "c"],
      [2, "b"],
      [1, "a"],
    ]);
    expect(records[0]?.previous).toBe(records[1]?.hash);
    expect(records[2]?.previous).toBe("");
    expect(await verifyAuditChain(database.sql, orgId)).toEqual([]);
  });

  it("remains one chain under concurrent acts", async () => {
    const orgId = await org();
    await Promise.all(Array.from({ length: 40 }, (_, i) => act(orgId, `s${i}`)));
    const { rows: records } = await listAudit(database.sql, orgId, { limit: 100 });
    expect(records.map(({ seq }) => seq)).toEqual(Array.from({ length: 40 }, (_, i) => 40 - i));
    expect(await verifyAuditChain(database.sql, orgId)).toEqual([]);
  });

  it("has no record of an act that was rolled back", async () => {
    const orgId = await org();
    const failed = tx(database.sql, async (tx) => {
      await audit(tx, { orgId, actor: "admin", action: "thing.done", subject: "x" });
      throw new Error("changed my mind");
    });
    await expect(failed).rejects.toThrow("changed my mind");
    expect((await listAudit(database.sql, orgId, { limit: 10 })).rows).toEqual([]);
  });

  it("is reported broken if its last records were removed", async () => {
    const orgId = await org();
    await act(orgId, "a");
    expect(await faultsAfter(orgId, (tx) => tx`delete from audit_head where org_id = ${orgId}`)).toEqual([
      "the chain has no end on record",
    ]);
  });

  it("cannot be changed in the database", async () => {
    const orgId = await org();
    await act(orgId, "a");
    const { sql } = database;
    await expect(sql`update audit set actor = 'nobody' where org_id = ${orgId}`).rejects.toThrow("append-only");
    await expect(sql`delete from audit where org_id = ${orgId}`).rejects.toThrow("append-only");
    await expect(sql`truncate audit`).rejects.toThrow("append-only");
    await expect(sql`update audit_head set seq = 0 where org_id = ${orgId}`).rejects.toThrow("only moves on");
    await expect(sql`delete from audit_head where org_id = ${orgId}`).rejects.toThrow("only moves on");
    await expect(sql`truncate audit_head`).rejects.toThrow("append-only");
    expect(await verifyAuditChain(sql, orgId)).toEqual([]);
  });
});

describe("an audit chain of thousands of records", () => {
  const MANY = runs(4_000);

  it("reveals each changed, removed or inserted record, even one that bypassed the triggers", async () => {
    const orgId = await org();
    for (let from = 1; from <= MANY; from += 1000)
      await database.sql`
        select count(audit_append(${orgId}, 'aud_' || i, 'admin', 'thing.done', 's' || i, '{"n": 1}', null, now()))
        from generate_series(${from}::int, ${from + 999}::int) as i`;
    expect(await verifyAuditChain(database.sql, orgId)).toEqual([]);
    const random = seeded(7);
    const any = (): number => 1 + Math.floor(random() * MANY);
    const [changed, removed, hashed] = [any(), any(), any()];
    expect(
      await faultsAfter(orgId, (tx) => tx`update audit set actor = 'x' where org_id = ${orgId} and seq = ${changed}`),
    ).toEqual(["the record was changed"]);
    for (const seq of [removed, MANY])
      expect(
        await faultsAfter(orgId, (tx) => tx`delete from audit where org_id = ${orgId} and seq = ${seq}`),
        `${seq} removed`,
      ).toHaveLength(1);
    const rehashed = async (tx: Tx): Promise<void> => {
      await tx`update audit set details = '{}' where org_id = ${orgId} and seq = ${hashed}`;
      await tx`update audit as a set hash = audit_hash(a) where org_id = ${orgId} and seq = ${hashed}`;
    };
    expect(await faultsAfter(orgId, rehashed)).toEqual(["a record before it is missing or another"]);
  });
});
