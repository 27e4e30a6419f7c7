/** Emergency stops on their way to the database, where words between replicas are lost. */

import { create } from "@bufbuild/protobuf";
import { afterAll, beforeAll, expect, it } from "vitest";
import { StopRobotsRequestSchema } from "../../../gen/limber/v1/robot_service_pb.ts";
import { after } from "../../../src/clock.ts";
import { principalOf } from "../../../src/edge/gate/authenticate.ts";
import { newId } from "../../../src/ids.ts";
import { ActiveStops, type StopOrder, StopOrders } from "../../../src/inference/stops.ts";
import { robotService, writeStop } from "../../../src/services/robot.ts";
import { findKeyByHash, type KeyRecord } from "../../../src/store/account/keys.ts";
import { hashSecret } from "../../../src/store/account/secret.ts";
import { Notifications } from "../../../src/store/database/notifications.ts";
import { tx } from "../../../src/store/database/tx.ts";
import { releaseStop } from "../../../src/store/robots.ts";
import type { App, Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { openWorld } from "../../support/world.ts";

let app: App;
let owner: Caller;
let notifications: Notifications;
let book: ActiveStops;
let orders: StopOrders;
const faults: unknown[] = [];

/** Another replica, as far as stops go, which nobody hears. */
beforeAll(async () => {
  app = await openWorld();
  owner = await app.caller(0);
  notifications = await Notifications.open(app.database.url);
  book = new ActiveStops(app.sql, notifications, after);
  orders = new StopOrders({
    stops: book,
    replica: "other",
    write: (order) => writeStop(app.sql, order),
    tell: () => new Set(),
    warn: (_text, cause) => faults.push(cause),
  });
  await book.load();
});
afterAll(async () => {
  orders.close();
  book.close();
  await notifications.close();
});

const orderOf = (more: Partial<StopOrder> = {}): StopOrder => ({
  id: newId("stop"),
  orgId: owner.org,
  workspaceId: null,
  scope: "robot",
  subject: "r1",
  reason: "",
  created: 1,
  createdBy: "admin",
  released: null,
  releasedBy: null,
  requestId: newId("req"),
  ...more,
});

const stopsR1 = (): boolean =>
  book.refusalOf({
    key: { orgId: owner.org, keyId: "key", workspaceId: undefined },
    sessionId: undefined,
    robotIds: ["r1"],
  }) !== undefined;

it("a released stop does not stay active on a replica that missed the release", async () => {
  const order = orderOf();
  orders.hear(JSON.stringify({ hold: order }));
  expect(stopsR1()).toBe(true);
  await writeStop(app.sql, order);
  await tx(app.sql, (tx) => releaseStop(tx, order.id, "admin"));
  await eventually(() => expect([orders.size, stopsR1()]).toEqual([0, false]));
});

it("a stop that cannot be stored stays active and is logged once", async () => {
  const order = orderOf({ createdBy: "\0" });
  orders.hear(JSON.stringify({ hold: order }));
  await eventually(() => expect(faults).toHaveLength(1));
  expect(stopsR1()).toBe(true);
  orders.hear(JSON.stringify({ refused: order.id }));
  expect(stopsR1()).toBe(false);
});

it("a stop of another organization's target has no effect and is dropped", async () => {
  const recordOf = async ({ key }: Caller): Promise<KeyRecord> => (await findKeyByHash(app.sql, hashSecret(key)))!; // as was just made
  const [own, theirs] = [await recordOf(owner), await recordOf(await app.caller(0))];
  const { stopRobots } = robotService({ sql: app.sql, stops: book, orders });
  const target = { case: "keyId", value: theirs.id } as const;
  const call = {
    ...{ requestId: newId("req"), principal: principalOf(own), isUrgent: true },
    ...{ signal: new AbortController().signal, deadline: undefined, idempotency: undefined },
  };
  const { stop } = await stopRobots(create(StopRobotsRequestSchema, { target }), call);
  expect(stop).toMatchObject({ orgId: owner.org, subject: theirs.id, durable: false });
  const moves = { key: { ...theirs, keyId: theirs.id }, sessionId: undefined, robotIds: [] };
  expect([orders.size, book.refusalOf(moves)]).toEqual([1, undefined]);
  await eventually(() => expect(orders.size).toBe(0));
  const { body } = await app.call("/v1/robots/stops?released=true", undefined, owner);
  expect(body.data.filter(({ subject }: { subject: string }) => subject === theirs.id)).toEqual([]);
});

it("refuses the 10,001st stop of a robot, but never one of a workspace or organization", async () => {
  const { org } = await app.caller(0);
  await app.sql`
    insert into robot_stop (id, org_id, scope, subject, reason, created_by)
    select ${newId("stop")} || n, ${org}, 'robot', 'many-' || n, '', 'admin' from generate_series(1, 10000) n`;
  await expect(writeStop(app.sql, orderOf({ orgId: org, subject: "one more" }))).rejects.toThrow(
    "10000 active emergency stops",
  );
  // The same stop again is none more.
  await expect(writeStop(app.sql, orderOf({ orgId: org, subject: "many-7" }))).resolves.toMatchObject({
    subject: "many-7",
  });
  await expect(writeStop(app.sql, orderOf({ orgId: org, scope: "org", subject: org }))).resolves.toMatchObject({
    subject: org,
  });
});
