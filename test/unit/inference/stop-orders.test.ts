/** Emergency stops on their way into the database: merged by target, a few of an organization at a time, and in force all the while. */
import { expect, it } from "vitest";
import { newId } from "../../../src/ids.ts";
import { ActiveStops, type StopOrder, StopOrders } from "../../../src/inference/stops.ts";
import type { StopRecord } from "../../../src/store/robots.ts";

const BY = { actor: "key_one", requestId: "req_one" };

/** Orders over a database that writes when it is told to. */
function openOrders() {
  const stops = new ActiveStops(undefined as never, { on: () => () => {} } as never, () => () => {});
  const writes: { order: StopOrder; end(): void }[] = [];
  const orders = new StopOrders({
    stops,
    replica: "here",
    write: (order) =>
      new Promise<StopRecord>((resolve) => {
        writes.push({ order, end: () => resolve(order) });
      }),
    tell: () => new Set(),
    warn: () => {},
  });
  const orgId = newId("org");
  const robot = (subject: string) =>
    orders.place({ orgId, workspaceId: null, scope: "robot", subject, reason: "" }, BY);
  const isStopped = (robotId: string): boolean =>
    stops.refusalOf({
      key: { keyId: "k", orgId, workspaceId: undefined },
      sessionId: undefined,
      robotIds: [robotId],
    }) !== undefined;
  return { writes, robot, isStopped, orders, orgId };
}

it("a flood of stops of one robot causes two writes at most: the running one, and one for all later stops", async () => {
  const { writes, robot, isStopped, orders } = openOrders();
  const first = robot("arm");
  const others = Array.from({ length: 1_000 }, () => robot("arm"));
  expect(new Set(others.map(({ order }) => order.id)).size).toBe(1);
  expect([writes.length, orders.size, isStopped("arm")]).toEqual([1, 2, true]);
  writes[0]!.end();
  await first.written;
  await expect.poll(() => writes.length).toBe(2);
  expect(isStopped("arm")).toBe(true);
  writes[1]!.end();
  expect((await others[0]!.written).id).toBe(others[0]!.order.id);
  await expect.poll(() => orders.size).toBe(0);
  expect(writes.length).toBe(2);
});

it("a stop after a written one is written again, because a release might have come between", async () => {
  const { writes, robot } = openOrders();
  const first = robot("arm");
  writes[0]!.end();
  await first.written;
  const second = robot("arm");
  await expect.poll(() => writes.length).toBe(2);
  expect(second.order.id).not.toBe(first.order.id);
});

it("stops of one organization are written few at a time, and all apply at once", async () => {
  const { writes, robot, isStopped } = openOrders();
  const placed = Array.from({ length: 100 }, (_, i) => robot(`robot-${i}`));
  expect([writes.length, isStopped("robot-0"), isStopped("robot-99")]).toEqual([4, true, true]);
  let ended = 0;
  const all = Promise.all(placed.map(({ written }) => written));
  while (ended < placed.length) {
    await expect.poll(() => writes.length).toBeGreaterThan(ended);
    writes[ended++]!.end();
  }
  expect((await all).length).toBe(100);
});

it("an organization cannot have more than ten thousand unwritten stops, except the stop of the entire organization", () => {
  const { robot, orders, orgId } = openOrders();
  for (let i = 0; i < 10_000; i++) robot(`robot-${i}`);
  expect(() => robot("one more")).toThrow("stop the workspace or the organization instead");
  const all = { orgId, workspaceId: null, scope: "org" as const, subject: orgId, reason: "" };
  expect(orders.place(all, BY).order.scope).toBe("org");
});
