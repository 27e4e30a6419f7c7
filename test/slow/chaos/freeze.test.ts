/** PostgreSQL stands still under load: nobody is answered late, and nobody pays for what was not answered. */
import { expect, it } from "vitest";
import { IS_LONG } from "../../support/runs.ts";
import { byKind } from "./findings.ts";
import { besiegeFrozen } from "./freeze/siege.ts";

const ROUNDS = IS_LONG ? 3 : 2;

it(`${ROUNDS} freezes cause no late answer, no 500 and no charge of a failed call, and stops reach both replicas`, async () => {
  // The machine may be busy with other tests: what counts is that nobody waits until a freeze is over.
  const verdict = await besiegeFrozen({ rounds: ROUNDS, seed: 4, longestMs: 5_000, toleranceMs: 5_000 });
  expect(byKind(verdict.wrong)).toEqual([]);
  expect([verdict.stops, verdict.cut]).toEqual([ROUNDS, 2 * ROUNDS]);
  expect(verdict.answers["act: ok"]).toBeGreaterThan(0);
  expect(verdict.answers["act: 504 deadline_exceeded"]).toBeGreaterThan(0);
}, 240_000);
