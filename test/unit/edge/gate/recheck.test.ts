/** Callers who stay: what looks at them again ends with them. */

import { expect, it } from "vitest";
import { Cancel } from "../../../../src/cancellation.ts";
import { recheckWhileOpen } from "../../../../src/edge/gate/gate.ts";
import { setClock } from "../../../support/clocks.ts";
import { DEVELOPER } from "../../../support/key-call.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const admission = { principal: DEVELOPER, headers: [], leave: () => {}, again: async () => {} };

it("the recheck repeats until the signal is aborted, and never runs for a caller that has left", () => {
  const clock = new ManualClock();
  setClock(clock);
  const signal = new Cancel();
  recheckWhileOpen(admission, { cut: () => {} }, signal);
  expect(clock.pending).toBe(1);
  signal.abort(undefined);
  expect(clock.pending).toBe(0);
  recheckWhileOpen(admission, { cut: () => {} }, signal);
  expect(clock.pending).toBe(0);
});
