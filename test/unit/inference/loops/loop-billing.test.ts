/** The tab of a control loop when its bill's time is over and the ledger takes its own. */
import { afterEach, expect, it } from "vitest";
import { replaceAmbient } from "../../../../src/ambient.ts";
import type { Batch, LedgerPort } from "../../../../src/billing/ledger-port.ts";
import { Till } from "../../../../src/billing/credit-leaser.ts";
import { planFor } from "../../../../src/routing/index.ts";
import { Tab } from "../../../../src/inference/loops/loop-billing.ts";
import type { IntentRecord, RequestRecord } from "../../../../src/store/billing/ledger.ts";
import { keyCall } from "../../../support/key-call.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { offering, planArgs, supplyOf } from "../../../support/supply.ts";

const restore: (() => void)[] = [];
afterEach(() => {
  for (const put of restore.splice(0)) put();
});

const call = keyCall();

/** A ledger that grants every take, and answers nothing while it is silent. */
async function open() {
  const clock = new ManualClock();
  restore.push(replaceAmbient({ clock }));
  let silence: PromiseWithResolvers<void> | undefined;
  const ledger: LedgerPort<IntentRecord, RequestRecord> = {
    open: async () => "test/1",
    async commit(_till: string, { moves }: Batch<IntentRecord, RequestRecord>) {
      await silence?.promise;
      const takes = moves.flatMap((move) =>
        move.kind === "take" ? [{ entry: move.entry, grantedMicro: move.want }] : [],
      );
      return { kind: "done", takes, recalled: [] };
    },
    recall: async () => {},
    recover: async () => {},
    listen: () => () => {},
  };
  const till = await Till.open(ledger);
  const tab = new Tab(till, call, { modelRequested: "a" });
  const speaks = (): void => silence?.resolve();
  return { clock, till, tab, falls: () => (silence = Promise.withResolvers<void>()), speaks };
}

const plan = planFor(planArgs(supplyOf([offering("a")]), { now: 0, arrivedAt: 0 }));
const charge = { step: plan.steps[0]!, units: 1, costMicro: 1, hedgeMicro: undefined };

it("no chunk waits for the ledger while its bill has credit left, though its time is over; half a second later it does", async () => {
  const { clock, till, tab, falls, speaks } = await open();
  const begun = tab.cover(plan);
  await clock.advance(10);
  await begun;
  await tab.ready(charge, plan);
  tab.add(charge, undefined, clock.steady());
  falls();

  // A robot that stood still for a moment: its bill was good until the last whole second.
  await clock.advance(1_200);
  expect(tab.cover(plan)).toBeUndefined();
  expect(tab.covers(plan, 2)).toBe(true);
  await clock.advance(400);
  expect(tab.covers(plan, 2)).toBe(false);
  const waits = tab.cover(plan);
  expect(waits).toBeInstanceOf(Promise);

  speaks();
  await clock.advance(100);
  await waits;
  tab.close(undefined);
  await clock.advance(1_000);
  await till.close();
});
