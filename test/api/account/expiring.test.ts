/** Keys that end soon: their organisation hears of it a week before, once. */
import { afterAll, beforeAll, expect, it } from "vitest";
import { tellExpiring } from "../../../src/services/account/expiring.ts";
import { type App, openApp } from "../../support/app.ts";

let app: App;
beforeAll(async () => {
  app = await openApp();
});
afterAll(() => app.close());

const DAY_S = 86_400;
const inDays = (days: number): number => Math.floor(Date.now() / 1000) + days * DAY_S;
const told = async (org: string): Promise<string[]> =>
  (
    await app.sql<{ payload: Buffer }[]>`
      select payload from outbox where org_id = ${org} and name = 'key.expiring' order by position`
  ).map(({ payload }) => /key_[0-9A-Z]+/.exec(payload.toString("latin1"))![0]);

it("tells of a key that ends within a week, once however many workers look, and anew when its end is moved", async () => {
  const { org, key } = await app.caller();
  const make = async (body: object) => (await app.admin(`/v1/orgs/${org}/keys`, body)).id as string;
  const [soon] = [await make({ expires_at: inDays(3) }), await make({ expires_at: inDays(30) }), await make({})];
  const revoked = await make({ expires_at: inDays(2) });
  await app.call(`/v1/orgs/${org}/keys/${revoked}`, undefined, { key, method: "DELETE" });
  await Promise.all([1, 2, 3].map(() => tellExpiring(app.sql)));
  await tellExpiring(app.sql);
  expect(await told(org)).toEqual([soon]);
  await app.sql`update key set expires_at = now() + interval '5 days' where id = ${soon}`;
  await tellExpiring(app.sql);
  expect(await told(org)).toEqual([soon, soon]);
});
