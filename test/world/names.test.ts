/** Names of models as people write them: the model is the first suggestion, wherever a name is not found. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { nearNames } from "../../src/routing/index.ts";
import type { App } from "../support/app.ts";
import { ownGateway } from "../support/world.ts";

const KNOWN = [
  "openpi/pi0",
  "openpi/pi05-droid",
  "openpi/pi0-fast-droid",
  "openvla/openvla-7b",
  "nvidia/GR00T-N1.5-3B",
  "lerobot/smolvla-base",
  "allenai/MolmoAct-7B-D-0812",
  "google/gemini-robotics-er-1.5-preview",
  "service/auto",
];

describe("a misspelled name", () => {
  it.each([
    ["pi0.5-droid", "openpi/pi05-droid", "openpi"],
    ["π₀.₅ droid", "openpi/pi05-droid", "openpi"],
    ["OpenPI/Pi0_Fast_DROID", "openpi/pi0-fast-droid", "openpi"],
    ["OpenVLA-7B", "openvla/openvla-7b", "openvla"],
    ["openvla/OpenVLA_7b", "openvla/openvla-7b", "openvla"],
    ["gr00t n1.5 3b", "nvidia/GR00T-N1.5-3B", "Isaac-GR00T"],
    ["nvidia/gr00t-n1.5-3b", "nvidia/GR00T-N1.5-3B", "Isaac-GR00T"],
    ["smolvla_base", "lerobot/smolvla-base", "lerobot"],
    ["https://huggingface.co/lerobot/smolvla_base", "lerobot/smolvla-base", "lerobot"],
    ["smolvla", "lerobot/smolvla-base", "lerobot"],
    ["allenai/molmoact-7b-d-0812", "allenai/MolmoAct-7B-D-0812", "molmoact"],
    ["models/gemini-robotics-er-1.5-preview", "google/gemini-robotics-er-1.5-preview", "Gemini"],
    ["Service/Auto", "service/auto", "OpenRouter's aliases"],
    ["auto", "service/auto", "OpenRouter's aliases"],
  ])("of %s suggests %s first (%s)", (written, meant) => {
    expect(nearNames(written, KNOWN)[0]).toBe(meant);
  });

  it("without near names has no suggestion", () => {
    for (const name of ["gpt-4o", "", "/", "---", "a".repeat(300)])
      expect([name, nearNames(name, KNOWN)]).toEqual([name, []]);
  });
});

describe("a call with a misspelled name", () => {
  let app: App;
  let key: string;
  beforeAll(async () => {
    app = await ownGateway();
    await app.catalog("acme/Reach-v1.5");
    ({ key } = await app.caller(1));
  });
  afterAll(() => app.close());

  it.each([
    ["acme/reach-v1.5", "acme/Reach-v1.5"],
    ["Acme/Reach_v1_5", "acme/Reach-v1.5"],
    ["reach v1.5", "acme/Reach-v1.5"],
    ["acme/reach-v1.5:turbo", "acme/Reach-v1.5:turbo"],
  ])("for %s is refused with %s as the first of the near names", async (model, meant) => {
    const { status, body } = await app.call("/v1/routes/preview", { model, observations: [{}] }, { key });
    expect([status, body.error.code, body.error.details.near[0]]).toEqual([404, "model_not_found", meant]);
    expect(body.error.message).toContain(meant);
  });

  it("for a model's page is refused, too", async () => {
    const { status, body } = await app.call("/v1/models/ACME/reach_v1.5", undefined, { key });
    expect([status, body.error.details.near]).toEqual([404, ["acme/Reach-v1.5"]]);
  });
});
