import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, it, onTestFinished } from "vitest";
import { openClient } from "../../../src/store/database/client.ts";
import { freshDatabase } from "../../support/database.ts";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

const CONNECTIONS = 4;
const BYTES = 8_000_000;

it("an idle connection keeps nothing of a large answer, and continues", async () => {
  const database = await freshDatabase();
  const sql = openClient(database.url, { max: CONNECTIONS });
  onTestFinished(async () => {
    await sql.end();
    await database.close();
  });
  const many = <T>(run: () => Promise<T>): Promise<T[]> => Promise.all(Array.from({ length: CONNECTIONS }, run));
  const held = (): number => {
    collect();
    return process.memoryUsage().arrayBuffers;
  };
  await many(async () => await sql`select pg_sleep(0.05)`);
  const before = held();
  const lengths = await many(async () => {
    const [row] = await sql<{ text: string }[]>`select repeat('x', ${BYTES}) as text`;
    return row!.text.length;
  });
  expect(lengths).toEqual(Array(CONNECTIONS).fill(BYTES));
  await expect.poll(() => held() - before).toBeLessThan(BYTES);
  expect(await many(async () => (await sql<{ one: number }[]>`select 1 as one`)[0]!.one)).toEqual([1, 1, 1, 1]);
});
