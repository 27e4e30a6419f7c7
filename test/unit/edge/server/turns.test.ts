/** Requests that wait for a turn of the event loop. */

import { beforeEach, expect, it, onTestFinished } from "vitest";
import { countRequest, inLaterTurn, isTurnSpent } from "../../../../src/edge/server/turns.ts";
import { replaceAmbient } from "../../../support/ambient.ts";
import { ManualClock, settle } from "../../../support/manual-clock.ts";

let clock: ManualClock;
beforeEach(() => {
  clock = new ManualClock();
  onTestFinished(replaceAmbient({ clock }));
});

const spend = (): void => {
  while (!isTurnSpent()) countRequest();
};

it("starts the newest waiting requests first, and old ones as overdue, however many start", async () => {
  const order: string[] = [];
  const wait = (name: string): void =>
    inLaterTurn((isOverdue) => {
      order.push(isOverdue ? `${name} overdue` : name);
      if (!isOverdue) spend();
    });
  spend();
  for (const name of ["1", "2", "3"]) wait(name);
  expect(isTurnSpent()).toBe(true);
  await settle();
  expect(order).toEqual(["3"]);
  await clock.advance(250);
  wait("4");
  order.length = 0;
  await settle();
  expect(order).toEqual(["1 overdue", "4"]);
});
