/** The errors of a scenario, and of the evaluated policy. */

/** The scenario cannot run: its model, its pack or its numbers are invalid. */
export class ScenarioError extends Error {
  override readonly name = "ScenarioError";
}

/** The policy failed. */
export class PolicyFailure extends Error {
  override readonly name = "PolicyFailure";
  readonly termination:
    | "policy_timeout"
    | "policy_disconnected"
    | "policy_error"
    | "action_dim_mismatch"
    | "invalid_action";

  constructor(termination: PolicyFailure["termination"], message: string) {
    super(message);
    this.termination = termination;
  }
}
