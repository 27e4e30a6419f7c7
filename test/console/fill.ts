/** What a gateway has after a while of use: calls of every outcome, a preset, a workspace, a member, a webhook, a stop, jobs. */

import type { Answer, Caller, CallOptions } from "../support/app.ts";

const OBSERVATION = {
  proprio: [0, 0, 0, 1, 1, 0],
  proprio_names: ["x", "y", "yaw", "goal_x", "goal_y", "goal_yaw"],
};

/** A gateway, and whose organisation is filled. */
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

/** Fills the organisation of the console, with texts of `text` where callers may put any. */
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
  await call("/v1/batch", { contract: "act", requests: [act], metadata: { note: `later${text}` } });
  await call("/v1/evaluate", {
    policy_endpoint: "reference/ik-reach",
    scenario: "arm-reach",
    episodes: 1,
    action_space: "joint_pos_7",
  });
}
