/** What can go wrong with a scenario itself, as opposed to the policy that is tried in it. */

/** The scenario can't be run: its model, its pack or its own numbers are broken. */
export class ScenarioError extends Error {
  override readonly name = "ScenarioError";
}
