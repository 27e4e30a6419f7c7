/** The short form of `npm run chaos cluster`: the leader of a cluster of NATS is killed under work. */
import { expect, it } from "vitest";
import { freshDatabase } from "../../support/database.ts";
import { drill } from "./cluster/drill.ts";

it("loses no job or delivery when the leader of three nats-servers is killed under load, also behind a leaf node", async () => {
  const database = await freshDatabase({ max: 20 });
  try {
    const { wrong, jobs, deliveries } = await drill({ sql: database.sql, databaseUrl: database.url, kills: 1 });
    expect(wrong).toEqual([]);
    expect(Math.min(jobs, deliveries)).toBeGreaterThan(40);
  } finally {
    await database.close();
  }
}, 240_000);
