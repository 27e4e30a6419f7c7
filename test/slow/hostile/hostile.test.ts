/**
 * What anyone may send, against a gateway as operators run it: it lives, it serves the good client beside the attacker, and its memory
 * comes back. A quarter of the attacks, chosen by a seed; `npm run hostile 60` tries everything for an hour.
 */
import { afterAll, describe, expect, it } from "vitest";
import { IS_LONG } from "../../support/runs.ts";
import { lineOf, Suite } from "./suite.ts";

const SEED = Number(process.env.HOSTILE_SEED ?? 1);
const suite = new Suite();
afterAll(() => suite.stop());
const attacks = IS_LONG ? suite.attacks : suite.attacks.filter((_, i) => i % 4 === SEED % 4);

describe(`a gateway under attack (HOSTILE_SEED=${SEED})`, () => {
  it.each(attacks.map((attack) => [attack.name, attack] as const))(
    "survives, serves the good client and frees its memory: %s",
    async (_name, attack) => {
      const outcome = await suite.run(attack, SEED, false);
      expect(outcome.findings, lineOf(outcome)).toEqual([]);
    },
    300_000,
  );
});
