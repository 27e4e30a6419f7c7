/** The tab of a control loop when its bill's time is over and the ledger takes its own. */
import { afterEach, expect, it } from "vitest";
import { CreditLeaser } from "../../../../src/billing/credit-leaser.ts";
import type { CommitBatch, LedgerPort } from "../../../../src/billing/group-commit.ts";
import { LoopBilling } from "../../../../src/inference/control-loop/loop-billing.ts";
import { planFor } from "../../../../src/routing/index.ts";
import type { IntentRecord, RequestRecord } from "../../../../src/store/billing/ledger.ts";
import { setAmbient } from "../../../support/clocks.ts";
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
  restore.push(setAmbient({ clock }));
  let silence: PromiseWithResolvers<void> | undefined;
  const ledger: LedgerPort<IntentRecord, RequestRecord> = {
    open: async () => "test/1",
    async commit(_leaser: string, { moves }: CommitBatch<IntentRecord, RequestRecord>) {
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
  const leaser = await CreditLeaser.open(ledger);
  const billing = new LoopBilling(leaser, call, { modelRequested: "a" }, () => {});
  const speaks = (): void => silence?.resolve();
  return { clock, leaser, billing, falls: () => (silence = Promise.withResolvers<void>()), speaks };
}

const plan = planFor(planArgs(supplyOf([offering("a")]), { now: 0, arrivedAt: 0 }));
const charge = { step: plan.steps[0]!, units: 1, costMicro: 1, wakeUpMicro: 0, hedgeMicro: undefined };

it("a chunk does not wait for the ledger within the remaining credit of an expired bill; half a second later it does", async () => {
  const { clock, leaser, billing, falls, speaks } = await open();
  const begun = billing.cover(plan);
  await clock.advance(10);
  await begun;
  await billing.ready(charge, plan);
  billing.add(charge, undefined, clock.steady());
  falls();

  // A robot that stood still for a moment: its bill was good until the last whole second.
  await clock.advance(1_200);
  expect(billing.tryCover(plan, clock.steady())).toBe(true);
  expect(billing.covers(plan, 2)).toBe(true);
  await clock.advance(400);
  expect(billing.covers(plan, 2)).toBe(false);
  expect(billing.tryCover(plan, clock.steady())).toBe(false);
  const waits = billing.cover(plan);

  speaks();
  await clock.advance(100);
  await waits;
  billing.close(undefined);
  await clock.advance(1_000);
  await leaser.close();
});
