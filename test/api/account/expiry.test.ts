/** The event `key.expiring`. */
import { fromBinary } from "@bufbuild/protobuf";
import { beforeAll, expect, it } from "vitest";
import { EventSchema } from "../../../gen/limber/v1/event_pb.ts";
import { notifyExpiringKeys } from "../../../src/services/keys.ts";
import type { App } from "../../support/app.ts";
import { openWorld } from "../../support/world.ts";

let app: App;
beforeAll(async () => {
  app = await openWorld();
});

const DAY_S = 86_400;
const told = async (org: string) =>
  (await app.sql`select payload from outbox where org_id = ${org} and name = 'key.expiring' order by position`).map(
    ({ payload }) => fromBinary(EventSchema, payload).data.value,
  );

it("reports each expiring key once, seven days before, with any number of replicas", async () => {
  const { org } = await app.caller(0);
  const now = Math.floor(Date.now() / 1000);
  const make = async (facts: object): Promise<string> => (await app.admin(`/v1/orgs/${org}/keys`, facts)).id;
  const soon = await make({ expires_at: now + 6 * DAY_S });
  const late = await make({ expires_at: now + 8 * DAY_S });
  const short = await make({ expires_at: now + 2 * DAY_S });
  const over = await make({ expires_at: now + 6 * DAY_S });
  const revoked = await make({ expires_at: now + 6 * DAY_S });
  await make({});
  const past = app.sql`now() - interval '90 days'`;
  await app.sql`update key set created = ${past} where org_id = ${org} and id <> ${short}`;
  await app.sql`update key set expires_at = now() - interval '1 s' where id = ${over}`;
  await app.sql`update key set disabled = true where id = ${revoked}`;

  await Promise.all(Array.from({ length: 8 }, () => notifyExpiringKeys(app.sql)));
  expect(await told(org)).toMatchObject([{ keyId: soon, expiresAt: now + 6 * DAY_S }]);
  await notifyExpiringKeys(app.sql);
  expect(await told(org)).toHaveLength(1);

  await app.sql`update key set expires_at = expires_at - interval '1 day' where id in (${soon}, ${late})`;
  await notifyExpiringKeys(app.sql);
  const ends = (await told(org)).map((each) => each as { keyId: string; expiresAt: number });
  expect(ends.map(({ keyId, expiresAt }) => [keyId, expiresAt - now]).sort()).toEqual(
    [
      [soon, 6 * DAY_S],
      [soon, 5 * DAY_S],
      [late, 7 * DAY_S],
    ].sort(),
  );
});

it("reports more keys than one query reads", async () => {
  const { org } = await app.caller(0);
  const { id } = await app.admin(`/v1/orgs/${org}/keys`, {});
  await app.sql`
    insert into key select (jsonb_populate_record(key, jsonb_build_object(
      'id', 'key_many_' || n, 'hash', '\\x' || encode(sha256(('many ' || n)::bytea), 'hex'),
      'created', now() - interval '30 days', 'expires_at', now() + interval '1 day'))).*
    from key, generate_series(1, 450) as n where id = ${id}`;
  await notifyExpiringKeys(app.sql);
  expect(await told(org)).toHaveLength(450);
});
