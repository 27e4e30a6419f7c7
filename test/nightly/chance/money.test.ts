/** Seeded operations on money, whatever happens: what callers were told is what the ledger holds. */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { replaceAmbient } from "../../support/ambient.ts";
import { type FreshDatabase, freshDatabase } from "../../support/database.ts";
import { brokenInvariants } from "../../support/invariants.ts";
import { makePayer } from "../../support/money.ts";
import { JumpyClock, World } from "./money-world.ts";

/** Each begins a world of its own; what fails names its seed and the operation. */
const SEEDS = [1, 2, 3, 4];
/** `CHANCE_OPERATIONS=20000 npm test -- test/nightly/chance` tries more of them. */
const OPERATIONS = Number(process.env.CHANCE_OPERATIONS ?? 8_000) / SEEDS.length;
const CHECK_EVERY = 500;

let db: FreshDatabase;
beforeEach(async () => {
  db = await freshDatabase();
});
afterEach(() => db.close());

/** Budgets of keys and workspaces that were exceeded in one of their intervals. */
const brokenBudgets = (): Promise<{ broken: string }[]> => db.sql<{ broken: string }[]>`
  select format('key %s: %s of %s', id, sum(taken_micro), budget_micro) as broken
  from key join key_day on key_id = id where budget_micro is not null
  group by id, budget_micro, budget_start(budget_interval, day) having sum(taken_micro) > budget_micro
  union all
  select format('workspace %s: %s of %s', id, sum(taken_micro), budget_micro)
  from workspace join workspace_day on workspace_id = id where budget_micro is not null
  group by id, budget_micro, budget_start(budget_interval, day) having sum(taken_micro) > budget_micro`;

const broken = async (): Promise<string[]> => [
  ...(await brokenInvariants(db.sql)),
  ...(await brokenBudgets()).map(({ broken }) => broken),
];

describe(`money in ${OPERATIONS * SEEDS.length} random operations`, () => {
  let restore = (): void => {};
  afterEach(() => restore());

  it.each(SEEDS)("adds up, and callers received correct reports (seed %i)", { timeout: 300_000 }, async (seed) => {
    const clock = new JumpyClock();
    restore = replaceAmbient({ clock });
    const world = new World(db, seed, clock);
    await world.begin();
    for (let done = 1; done <= OPERATIONS; done++) {
      await world.operate();
      if (done % CHECK_EVERY === 0) expect(await broken(), `seed ${seed}, after operation ${done}`).toEqual([]);
    }
    await world.end(OPERATIONS);
    expect(await broken(), `seed ${seed}, at the end`).toEqual([]);
  });

  it("has a checker that detects errors", async () => {
    const { orgId } = await makePayer(db.sql, 1_000);
    await db.sql`update account set available_micro = available_micro + 1 where org_id = ${orgId}`;
    expect(await brokenInvariants(db.sql)).toHaveLength(2);
    await db.sql`update account set available_micro = available_micro - 1 where org_id = ${orgId}`;
  });
});
