/** Callers whose calls keep failing are slowed, each alone. */
import { expect, test } from "vitest";
import { Refusal } from "../../../src/errors.ts";
import { FailingCallers } from "../../../src/inference/call.ts";

const who = (keyId: string, orgId = `org_of_${keyId}`) => ({ keyId, orgId });

/** When a caller may come again, in seconds; 0 where it may call. */
function waits(callers: FailingCallers, caller: { keyId: string; orgId: string }, now: number): number {
  try {
    callers.assertMayCall(caller, now);
    return 0;
  } catch (thrown) {
    if (!(thrown instanceof Refusal)) throw thrown;
    return thrown.retryAfter ?? Number.NaN;
  }
}

const fail = (callers: FailingCallers, caller: { keyId: string; orgId: string }, count: number, now = 0): void => {
  for (let i = 0; i < count; i++) callers.failed(caller, now);
};

test("a key can have twenty failed calls at once, and then one every two seconds", () => {
  const callers = new FailingCallers();
  fail(callers, who("a"), 19);
  expect(waits(callers, who("a"), 0)).toBe(0);
  fail(callers, who("a"), 1);
  expect([waits(callers, who("a"), 0), waits(callers, who("a"), 1_000), waits(callers, who("a"), 2_000)]).toEqual([
    2, 1, 0,
  ]);
  fail(callers, who("a"), 1, 2_000);
  expect(waits(callers, who("a"), 2_000)).toBe(2);
  expect(waits(callers, who("b"), 2_000)).toBe(0);
});

test("an organization's keys can have a hundred failed calls together, and then two a second", () => {
  const callers = new FailingCallers();
  for (let key = 0; key < 10; key++) fail(callers, who(`key_${key}`, "org"), 10);
  expect([waits(callers, who("key_new", "org"), 0), waits(callers, who("key_new", "org"), 500)]).toEqual([1, 0]);
  expect(waits(callers, who("key_new", "another"), 0)).toBe(0);
});

test("no caller waits for more than ten seconds, however many fail at once", () => {
  const callers = new FailingCallers();
  fail(callers, who("a"), 64);
  expect([waits(callers, who("a"), 0), waits(callers, who("a"), 9_999)]).toEqual([10, 1]);
  expect(waits(callers, who("a"), 10_000)).toBe(0);
});

test("above the maximum of tracked callers, the one with the oldest failure is dropped", () => {
  const callers = new FailingCallers();
  fail(callers, who("first"), 20);
  fail(callers, who("second"), 20);
  for (let i = 0; i < 9_999; i++) callers.failed(who(`key_${i}`), 0);
  expect([waits(callers, who("first"), 0), waits(callers, who("second"), 0)]).toEqual([0, 2]);
});
