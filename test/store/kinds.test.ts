/** Requests name their kind: what they share from call to call is kept once. */
import { describe, expect, it } from "vitest";
import { useLedger } from "../support/ledger.ts";
import { call, endOf, estimate, intentOf, makePayer, type TestLeaser } from "../support/money.ts";

const ledger = useLedger();
const PRICE = 1_600;

const kinds = async (keyId: string): Promise<number> => {
  const [row] = await ledger.db.sql<{ count: number }[]>`select count(*) from request_kind where key_id = ${keyId}`;
  return row!.count;
};

/** A call that ends as a model that is named so. */
async function callModel(
  leaser: TestLeaser,
  payer: Awaited<ReturnType<typeof makePayer>>,
  model: string,
): Promise<void> {
  const hold = await leaser.hold(payer, PRICE, estimate(PRICE));
  const intent = { ...intentOf(payer), model };
  hold.intend(intent);
  await hold.settle(endOf(intent, PRICE));
}

describe("a record's kind", () => {
  it("is stored once, however many requests, batches and credit leasers use it", async () => {
    const payer = await makePayer(ledger.db.sql, 100 * PRICE);
    const [one, two] = [await ledger.replica("one"), await ledger.replica("two")];
    for (let round = 0; round < 3; round++)
      await Promise.all([one, two, one, two].map(({ leaser }) => call(leaser, payer, PRICE)));
    expect(await kinds(payer.keyId)).toBe(1);
    expect(await ledger.statuses(payer)).toEqual(Array(12).fill("settled"));
  });

  it("differs by every field, and is found among many", async () => {
    const payer = await makePayer(ledger.db.sql, 100 * PRICE);
    const { leaser } = await ledger.replica("one");
    const models = ["a", "b", "", "a b", "a,b", '"a"', "{a}", "\u001f", "null", "NULL", "\\", "b"];
    await Promise.all(models.map((model) => callModel(leaser, payer, model)));
    await Promise.all(models.map((model) => callModel(leaser, payer, model)));
    const rows = await ledger.db.sql<{ model: string; count: number }[]>`
      select model, count(*) from request where org_id = ${payer.orgId} group by model`;
    const expected = new Map<string, number>();
    for (const model of models) {
      const kept = model.replace("\u001f", "\ufffd");
      expected.set(kept, (expected.get(kept) ?? 0) + 2);
    }
    expect(new Map(rows.map(({ model, count }) => [model, count]))).toEqual(expected);
  });

  it("is created once by many concurrent credit leasers, in any order", async () => {
    const payer = await makePayer(ledger.db.sql, 1_000 * PRICE);
    const leasers = await Promise.all(["one", "two", "three"].map((name) => ledger.replica(name)));
    const models = Array.from({ length: 20 }, (_, i) => `model-${i}`);
    await Promise.all(
      leasers.flatMap(({ leaser }, at) => {
        const order = at === 1 ? models.toReversed() : models;
        return order.map((model) => callModel(leaser, payer, model));
      }),
    );
    expect(await kinds(payer.keyId)).toBe(models.length);
    expect(await ledger.statuses(payer)).toHaveLength(60);
  });

  it("is not lost if its first batch is refused: the next one creates it", async () => {
    const payer = await makePayer(ledger.db.sql, 100 * PRICE);
    const { leaser } = await ledger.replica("one");
    const hold = await leaser.hold(payer, PRICE, estimate(PRICE));
    const intent = intentOf(payer);
    hold.intend(intent);
    await expect(hold.settle(endOf(intent, PRICE, { units: 1e300 }))).rejects.toThrow();
    expect(await kinds(payer.keyId)).toBe(0);
    await call(leaser, payer, PRICE);
    expect(await kinds(payer.keyId)).toBe(1);
  });
});
