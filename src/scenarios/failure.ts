/** What can go wrong: with a scenario itself, and with the policy that is tried in it. */

/** The scenario can't be run: its model, its pack or its own numbers are broken. */
export class ScenarioError extends Error {
  override readonly name = "ScenarioError";
}

/** A policy that failed. */
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
