/** The event `request.failed`: in the transaction that records the failure, once, and for webhooks that ask for it by name. */
import { fromBinary } from "@bufbuild/protobuf";
import { afterAll, beforeAll, expect, it } from "vitest";
import { EventSchema } from "../../gen/limber/v1/event_pb.ts";
import type { App } from "../support/app.ts";
import { type Model, startModel } from "../support/model.ts";
import { ownGateway } from "../support/world.ts";

let app: App;
let model: Model;
beforeAll(async () => {
  [app, model] = await Promise.all([ownGateway(), startModel()]);
  await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
});
afterAll(async () => {
  await app.close();
  await model.close();
});

const BODY = { model: "acme/base", action_space: "base_twist_2d", observations: [{ proprio: [0.5] }] };
const told = async (org: string) =>
  (await app.sql`select payload from outbox where org_id = ${org} and name = 'request.failed' order by position`).map(
    ({ payload }) => fromBinary(EventSchema, payload).data.value,
  );

it("a failed-request event is written once, with its record, for a call with an intent, and for no refused or answered call", async () => {
  const { org, key } = await app.caller(10);
  const hook = { url: `${app.url}/`, events: ["request.failed"] };
  const named = (await app.call("/v1/webhooks", hook, { key })).body.id;
  const all = (await app.call("/v1/webhooks", { ...hook, events: ["*"] }, { key })).body.id;
  expect((await app.call("/v1/act", BODY, { key })).status).toBe(200);
  expect((await app.call("/v1/act", { ...BODY, model: "acme/none" }, { key })).status).toBe(404);
  model.script.act = (_call, _answer, served) => served.end(13, "broken");
  const failed = await app.call("/v1/act", BODY, { key, headers: { "idempotency-key": "once" } });
  model.script.act = undefined;
  expect(failed.status).toBeGreaterThanOrEqual(500);
  await expect.poll(() => told(org)).toHaveLength(1);
  const { request_id, code } = failed.body.error;
  expect(await told(org)).toMatchObject([{ requestId: request_id, contract: "act", model: "acme/base", code }]);
  const [record] = await app.sql`select status, error_code from request where request_id = ${request_id}`;
  expect(record).toMatchObject({ status: "failed", errorCode: code });
  const sent = await app.sql`select hook_id from webhook_delivery where event = 'request.failed'`;
  expect(sent.map(({ hookId }) => hookId)).toEqual([named]);
  expect(sent).not.toContainEqual({ hookId: all });
});
