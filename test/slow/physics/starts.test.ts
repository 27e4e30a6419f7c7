/** No start of a built-in scenario succeeds by itself, and earlier versions stay as they were. */
import { describe, expect, it } from "vitest";
import { BUILT_IN, builtIn, digestOf, EARLIER } from "../../../src/scenarios/index.ts";
import { runs } from "../../support/runs.ts";
import { solvedStarts } from "../../support/starts.ts";

const variants = BUILT_IN.flatMap(({ id, variants }) =>
  variants.map((variant) => [`${id} in ${variant.actionSpace}`, variant] as const),
);

describe("starts", () => {
  it.each(variants)("%s needs a policy from every start", async (_, variant) => {
    expect(await solvedStarts(variant, Array(runs(40)).keys())).toEqual([]);
  });

  it.each([
    ["arm-reach", [4308, 4312, 38354]],
    ["pendulum-swingup", [1276, 3328]],
  ])("draws the starts of %s again that version 1.0.0 solved by doing nothing", async (id, seeds) => {
    expect(await solvedStarts(builtIn(`${id}@1.0.0`)!.variants[0], seeds)).toEqual(seeds);
    expect(await solvedStarts(builtIn(id)!.variants[0], seeds)).toEqual([]);
  });
});

it("keeps the digests of version 1.0.0", () => {
  const digests = EARLIER.flatMap((scenario) =>
    scenario.variants.map((variant) => [`${scenario.id} ${variant.actionSpace}`, digestOf(scenario, variant)]),
  );
  expect(Object.fromEntries(digests)).toEqual({
    "pendulum-swingup continuous_nd": "sha256:f4ce0abdd556bdddabc59f3c08ab22b9f1c8679ef31d70c15c50848652bc0fa1",
    "arm-reach ee_delta_6d_grip": "sha256:492b0c1098c2f05ba02195502cd349eee690fe42e03f15f6944dcebe5eaa2203",
    "arm-reach joint_pos_7": "sha256:ad8864cda32783a7fb7583b8afb921542591141540f7a79687e29384a3ba00df",
    "push-t continuous_nd": "sha256:d4bdb718418fea203e0fcae1ed35e080c4de9b42fdfadeea061b5015a24c17a7",
    "bimanual-reach joint_pos_14": "sha256:ea9f860828436b9fb06583f5a0ccef3ee92aba51ca71bbe99e94feb39dcc1ec2",
    "humanoid-reach joint_pos_23": "sha256:ad2c501a38af5f54c37ffb33e6b17c589b5868ce98085773ab69c3dd787657b7",
    "humanoid-reach joint_pos_29": "sha256:a5e1abb76f131df812df6d6b2e92859c1ebec03191cc70873c79801923b1573e",
  });
});
