/** What a gateway has after a while of use: calls of every outcome, a preset, a workspace, a member, a webhook, a stop, a robot, an arming, jobs. */

import type { Answer, Caller, CallOptions } from "../../support/app.ts";

const OBSERVATION = {
  proprio: [0, 0, 0, 1, 1, 0],
  proprio_names: ["x", "y", "yaw", "goal_x", "goal_y", "goal_yaw"],
};

/** A gateway, and whose organization is filled. */
interface Filled {
  readonly app: { call(path: string, body?: unknown, options?: CallOptions): Promise<Answer> };
  readonly caller: Caller;
}

/** An act that the reference provider answers. */
export const ACT = {
  model: "service/auto",
  action_space: "base_twist_2d",
  observations: [OBSERVATION],
};

/** A robot as it is written down. */
const robotOf = (text: string) => ({
  description: `the arm at the window${text}`,
  embodiment: "arm",
  action_space: "ee_delta_6d_grip",
  cameras: [{ name: `wrist${text}`, role: "wrist", width: 224, height: 224, format: "png", rate_hz: 30 }],
  proprio: { names: ["x", "y", `z${text}`], units: ["m"] },
  actions: { reference: "relative", gripper: { indexes: [6], open: 1, closed: 0 } },
  bounds: { lowest: [-0.1], highest: [0.1] },
  control_hz: 20,
});

/** Fills the organization of the console, with texts of `text` where callers may put any. */
export async function fill({ app, caller: { org, key } }: Filled, text = ""): Promise<void> {
  const call = (path: string, body?: unknown, method?: string) =>
    app.call(path, body, { key, ...(method !== undefined && { method }) });
  const act = {
    ...ACT,
    robot_id: `base-1${text}`,
    instruction: `drive${text}`,
    metadata: { note: `first${text}` },
  };
  await call("/v1/act", act);
  await call("/v1/act", { ...act, provider: { session_id: `night${text}`, deadline_ms: 900 } });
  await call("/v1/act", { ...act, provider: { max_latency_ms: 1 } });
  await call("/v1/act", { ...act, model: "nobody/nothing" });
  await call("/v1/presets/night-shift", { preference: "reliable", instruction: `go${text}` }, "PUT");
  await call(`/v1/orgs/${org}/workspaces`, { name: `warehouse${text}` });
  await call(`/v1/orgs/${org}/keys`, { name: `arm-07${text}`, role: "operator" });
  await call(`/v1/orgs/${org}/members`, { email: "ada@example.com", role: "operator" });
  await call("/v1/webhooks", { url: "https://example.com/limber", events: ["*"], description: `a channel${text}` });
  await call("/v1/robots/stop", { robot_id: `arm-09${text}`, reason: `a person in the cell${text}` });
  await call(`/v1/robots/${encodeURIComponent(`arm-1${text}`)}`, robotOf(text), "PUT");
  const { body: agent } = await call(`/v1/orgs/${org}/keys`, { name: `agent${text}`, role: "operator" });
  await call("/v1/robots/arm", {
    robot_id: `arm-1${text}`,
    key_id: agent.id,
    models: ["reference/visual-reach"],
    bounds: { lowest: [-0.1], highest: [0.1] },
    max_seconds: 30,
    expires_in: 3600,
  });
  await call("/v1/batch", { contract: "act", requests: [act], metadata: { note: `later${text}` } });
  await call("/v1/evaluate", {
    policy_endpoint: "reference/ik-reach",
    scenario: "arm-reach",
    episodes: 1,
    action_space: "joint_pos_7",
  });
}
