/** Emergency stops on their way to the database, where words between replicas are lost. */
import { afterAll, beforeAll, expect, it } from "vitest";
import { after } from "../../../src/clock.ts";
import { newId } from "../../../src/ids.ts";
import { ActiveStops } from "../../../src/inference/stops/active-stops.ts";
import { type StopOrder, StopOrders } from "../../../src/inference/stops/stop-orders.ts";
import { writeStop } from "../../../src/services/robot.ts";
import { Notifications } from "../../../src/store/database/notifications.ts";
import { tx } from "../../../src/store/database/tx.ts";
import { releaseStop } from "../../../src/store/replicas/robot-stops.ts";
import { type App, type Caller, openApp } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";

let app: App;
let owner: Caller;
let notifications: Notifications;
let book: ActiveStops;
let orders: StopOrders;
const faults: unknown[] = [];

/** Another replica, as far as stops go, which nobody hears. */
beforeAll(async () => {
  app = await openApp();
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
  await app.close();
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

it("a stop that was written and released stands no more on a replica that was told to hold it, and heard nothing since", async () => {
  const order = orderOf();
  orders.hear(JSON.stringify({ hold: order }));
  expect(stopsR1()).toBe(true);
  await writeStop(app.sql, order);
  await tx(app.sql, (tx) => releaseStop(tx, order.id, "admin"));
  await eventually(() => expect(orders.size).toBe(0));
  expect(stopsR1()).toBe(false);
});

it("a stop that fails for another reason than an outage stays in force, and is complained of once", async () => {
  const order = orderOf({ createdBy: "\0" });
  orders.hear(JSON.stringify({ hold: order }));
  await eventually(() => expect(faults).toHaveLength(1));
  expect(stopsR1()).toBe(true);
  orders.hear(JSON.stringify({ refused: order.id }));
  expect(stopsR1()).toBe(false);
});

it("refuses the ten thousand and first stop of a robot, and never one of a workspace or of the organisation", async () => {
  const { org } = await app.caller(0);
  await app.sql`
    insert into robot_stop (id, org_id, scope, subject, reason, created_by)
    select ${newId("stop")} || n, ${org}, 'robot', 'many-' || n, '', 'admin' from generate_series(1, 10000) n`;
  await expect(writeStop(app.sql, orderOf({ orgId: org, subject: "one more" }))).rejects.toThrow(
    "10000 emergency stops",
  );
  // The same stop again is none more.
  await expect(writeStop(app.sql, orderOf({ orgId: org, subject: "many-7" }))).resolves.toMatchObject({
    subject: "many-7",
  });
  await expect(writeStop(app.sql, orderOf({ orgId: org, scope: "org", subject: org }))).resolves.toMatchObject({
    subject: org,
  });
});
