/** POST /v1/models/{owner}/{name}/deprecation, and the event `model.deprecated`. */
import { fromBinary } from "@bufbuild/protobuf";
import { beforeAll, expect, it } from "vitest";
import { EventSchema } from "../../../gen/limber/v1/event_pb.ts";
import { ADMIN_TOKEN, type App } from "../../support/app.ts";
import type { Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import { openModel, openWorld } from "../../support/world.ts";

const named = uniqueNames("acme");

let app: App;
let model: Model;
beforeAll(async () => {
  [app, model] = await Promise.all([openWorld(), openModel()]);
  await app.supply({ provider: named.acme, model: `${named.acme}/base`, endpoint: model.endpoint });
});

const announce = (slug: string, sunset_at: unknown, admin: string | undefined = ADMIN_TOKEN) =>
  app.call(`/v1/models/${slug}/deprecation`, { sunset_at }, { admin });
const told = async (org: string) =>
  (await app.sql`select payload from outbox where org_id = ${org} and name = 'model.deprecated' order by position`).map(
    ({ payload }) => fromBinary(EventSchema, payload).data.value,
  );

it("announces a model's end once to its recent callers, and to no other organization", async () => {
  const [user, other] = [await app.caller(1), await app.caller(1)];
  const body = { model: `${named.acme}/base`, action_space: "base_twist_2d", observations: [{ proprio: [0.5] }] };
  expect((await app.call("/v1/act", body, { key: user.key })).status).toBe(200);
  await expect.poll(async () => (await app.sql`select from request where org_id = ${user.org}`).count).toBe(1);
  const now = Math.floor(Date.now() / 1000);
  const end = now + 100 * 86_400;
  const { status, body: said } = await announce(`${named.acme}/base`, end);
  expect([status, said]).toEqual([
    200,
    { model: `${named.acme}/base`, deprecated_at: expect.any(Number), sunset_at: end, told: 1 },
  ]);
  expect((await announce(`${named.acme}/base`, end)).body).toEqual({ ...said, told: 0 });
  expect(await told(user.org)).toMatchObject([{ model: `${named.acme}/base`, sunsetAt: end }]);
  expect(await told(other.org)).toEqual([]);
  await expect
    .poll(async () => (await app.call(`/v1/models/${named.acme}/base`)).body)
    .toMatchObject({ deprecated_at: said.deprecated_at, sunset_at: end });

  const later = await announce(`${named.acme}/base`, end + 86_400);
  expect(later.body).toMatchObject({ deprecated_at: said.deprecated_at, sunset_at: end + 86_400, told: 1 });
  expect((await announce(`${named.acme}/base`, end)).body.error).toMatchObject({
    code: "validation_failed",
    param: "sunset_at",
  });
  expect((await app.call(`/v1/models/${named.acme}/base`)).status).toBe(200);
  expect(await told(user.org)).toHaveLength(2);
});

it("refuses ends that are too near, unknown models, and callers other than the operator", async () => {
  const now = Math.floor(Date.now() / 1000);
  for (const at of [0, -1, 1.5, "soon", now, now + 89 * 86_400, 2 ** 33])
    expect((await announce(`${named.acme}/base`, at)).status, String(at)).toBe(422);
  const unknown = await announce(`${named.acme}/none`, now + 100 * 86_400);
  expect([unknown.status, unknown.body.error.code]).toEqual([404, "model_not_found"]);
  const { key } = await app.caller(0);
  const byKey = await app.call(`/v1/models/${named.acme}/base/deprecation`, { sunset_at: now + 100 * 86_400 }, { key });
  expect(byKey.status).toBe(401);
});
