/** kill -9 of one of two gateways, or of PostgreSQL, under load: the ledger holds exactly what callers were answered. */
import { expect, it } from "vitest";
import { IS_LONG } from "../../support/runs.ts";
import { byKind } from "./findings.ts";
import { besiege } from "./money/siege.ts";

/** `npm run chaos money` takes any number of kills. */
const KILLS = IS_LONG ? 20 : 5;
/** Enough callers to keep both gateways busy between two kills: restarting the killed gateway takes most of the time. */
const CALLERS = 8;

it(`charges no call twice, runs none twice under one idempotency key, and records every answered call through ${KILLS} kills`, async () => {
  const { wrong, kills, answers } = await besiege({ kills: KILLS, seed: 6, callers: CALLERS, hasten: true });
  expect(byKind(wrong)).toEqual([]);
  expect(kills.postgres).toBeGreaterThan(0);
  expect(answers).toBeGreaterThan(5 * KILLS);
}, 400_000);
