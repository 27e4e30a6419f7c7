/** Evaluations of policies whose cameras and state have other names or sizes than the scenario's. */
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import type { App, Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import type { Model } from "../../support/model.ts";
import { startOpenpiServer } from "../../support/openpi-server.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
let model: Model;
let caller: Caller;

beforeAll(async () => {
  model = await openModel();
  app = await ownGateway({ roles: new Set(["api", "worker"]) });
  const cameras = [{ name: "base_0_rgb", required: true }];
  const input = { cameras, proprio: [{ names: ["px", "py", "heading"] }] };
  const offering = { provider: "acme", endpoint: model.endpoint, action_spaces: ["base_twist_2d"] };
  await app.supply({ ...offering, model: "acme/mapped", input });
  await app.supply({ ...offering, model: "acme/sighted", input: { cameras: [{ name: "overhead", required: false }] } });
  caller = await app.caller();
});

const NAV = { scenario: "base-nav", episodes: 1, policy_timeout_ms: 5_000, horizon: 16, replan_steps: 16 };
const MAPS = {
  camera_map: { base_0_rgb: "overhead" },
  state_map: [
    { from: "x", name: "px" },
    { from: "y", name: "py" },
    { from: "yaw", name: "heading" },
  ],
};
const evaluate = (body: object) => app.call("/v1/evaluate", { ...NAV, ...body }, caller);
const ended = async (body: object) => {
  const { status, text, body: started } = await evaluate(body);
  expect(status, text).toBe(202);
  return eventually(async () => {
    const { body: now } = await app.call(`/v1/evaluate/${started.id}`, undefined, caller);
    expect(["completed", "failed"]).toContain(now.status);
    return now;
  });
};

describe("a policy with other cameras or state than the scenario", () => {
  it("is refused with what the scenario offers and what the policy reads", async () => {
    const { status, text, body } = await evaluate({ policy_endpoint: "acme/mapped" });
    expect([status, body.error?.param], text).toEqual([422, "policy_endpoint"]);
    expect(body.error.message).toMatch(
      /input_contract: the policy reads pictures of base_0_rgb; 3 values \(px, py, heading\) of proprioception; the scenario offers the cameras overhead \(128 × 128\), 21 numbers of proprioception \(x, y, yaw, .*\), and base_twist_2d with 2 numbers; map them with `camera_map` and `state_map`/,
    );
  });

  it("gets the cameras and numbers of its maps under its own names", async () => {
    const end = await ended({ policy_endpoint: "acme/mapped", ...MAPS });
    expect(end).toMatchObject({ status: "completed", policy: { pictures: true, ...MAPS } });
    const [seen] = model.acts.at(-1)!.observations;
    expect(seen?.frames.map(({ camera }) => camera)).toEqual(["base_0_rgb"]);
    expect([seen?.proprio.length, seen?.proprioNames]).toEqual([3, ["px", "py", "heading"]]);
  });

  it("gets pictures without being asked if it declares cameras", async () => {
    expect(await ended({ policy_endpoint: "acme/sighted" })).toMatchObject({ policy: { pictures: true } });
    expect(model.acts.at(-1)!.observations[0]?.frames).toHaveLength(1);
    expect(await ended({ policy_endpoint: "acme/sighted", pictures: false })).toMatchObject({
      policy: { pictures: false },
    });
    expect(model.acts.at(-1)!.observations[0]?.frames).toHaveLength(0);
  });

  it.each([
    ["a camera that the scenario lacks", { camera_map: { base_0_rgb: "wrist" } }, "camera_map.base_0_rgb", "overhead"],
    ["a number that the scenario lacks", { state_map: [{ from: "joint_1" }] }, "state_map.0.from", "goal_x"],
    ["one name for two numbers", { state_map: [{ from: "x" }, { from: "y", name: "x" }] }, "state_map.1.name", "twice"],
    ["cameras without pictures", { ...MAPS, pictures: false }, "camera_map", "`pictures`"],
  ])("is refused by the field's name for %s", async (_, body, param, text) => {
    const refused = await evaluate({ policy_endpoint: "acme/mapped", ...body });
    expect([refused.status, refused.body.error?.param], refused.text).toEqual([422, param]);
    expect(refused.body.error.message).toContain(text);
  });

  it("is not blamed if it can't be called: the evaluation fails with both sides named", async () => {
    const server = await startOpenpiServer();
    onTestFinished(() => server.close());
    const profile = { frames: [{ key: "observation/image", camera: "agentview", width: 64, height: 64 }] };
    const end = await ended({ policy_endpoint: server.endpoint, profile });
    expect(end).toMatchObject({ status: "failed", error: { code: "input_contract" }, usage: { cost_usd: 0 } });
    expect(end.error.message).toMatch(
      /^the policy was not called: .*agentview.*; the scenario offers the cameras overhead/,
    );
    expect(end.per_episode).toEqual([]);
  });
});
