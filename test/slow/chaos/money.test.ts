/** kill -9 of one of two gateways, or of PostgreSQL, under load: what the callers were told is what the ledger holds. */
import { describe, expect, it } from "vitest";
import { byKind } from "./findings.ts";
import { BUGS, plant } from "./money/bugs.ts";
import { besiege } from "./money/siege.ts";

/** `npm run chaos:money` kills as often as it is told to. */
const KILLS = 20;
/** As many as keep both gateways busy between two kills: what takes time is to start the dead again. */
const CALLERS = 8;

it(`${KILLS} kills charge no call twice, run none twice for its key, and leave no answered call unrecorded`, async () => {
  const { wrong, kills, answers } = await besiege({ kills: KILLS, seed: 6, callers: CALLERS, hasten: true });
  expect(byKind(wrong)).toEqual([]);
  expect(kills.postgres).toBeGreaterThan(0);
  expect(answers).toBeGreaterThan(5 * KILLS);
}, 400_000);

describe("a gateway is found out that", () => {
  /** Each shows within a few kills, most likely: several rounds make sure. */
  const ROUNDS = 6;
  /** A promise that isn't kept is lost with the gateway that has just answered, the more likely the slower the disk. */
  const SIEGE = { kills: 4, postgresShare: 0, aimedShare: 1, callers: CALLERS, hasten: true, slowDiskMs: 90 };
  it.each(Object.keys(BUGS) as (keyof typeof BUGS)[])("%s", { timeout: 400_000 }, async (name) => {
    const { tree, remove } = plant(name);
    const wrong: string[] = [];
    for (let seed = 1; seed <= ROUNDS && wrong.length === 0; seed++)
      wrong.push(...(await besiege({ ...SIEGE, tree, seed })).wrong);
    remove();
    expect(wrong.join("\n")).toMatch(SIGNS[name]);
  });
});

/** How each of the planted bugs shows. */
const SIGNS: Readonly<Record<keyof typeof BUGS, RegExp>> = {
  "answers before the intent is durable": /is not on record/,
  "settles twice after recovery": /was charged twice/,
  "lets an expired key run again": /was answered in two ways|ran again after it was answered/,
};
