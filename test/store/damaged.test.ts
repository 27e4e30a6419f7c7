/** A gateway on a store that lost what the gateway keeps there. */
import { expect, it, onTestFinished } from "vitest";
import { freshDatabase } from "../support/database.ts";
import { ownGateway } from "../support/world.ts";

it.each(["offering", "hash_key"])(
  "the gateway stays up on a store without its table `%s`, and reports that it is not ready",
  async (table) => {
    const database = await freshDatabase();
    onTestFinished(() => database.close());
    await database.sql`alter table ${database.sql(table)} rename to lost`;
    const app = await ownGateway({ database });
    onTestFinished(() => app.close());
    const [health, ready] = [await app.call("/health"), await app.call("/ready")];
    expect([health.status, health.body.status], health.text).toEqual([200, "ok"]);
    expect([ready.status, ready.body.error?.code], ready.text).toEqual([503, "state_unloaded"]);
    expect(ready.body.error.message).toContain("state unloaded");
  },
);
