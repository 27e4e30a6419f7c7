/** What the gateway as a whole can do and is limited to, as this deployment was set up. */

/** What a deployment may have or not. */
export interface PlatformSetup {
  readonly nats: boolean;
  readonly payments: boolean;
  readonly publicSignup: boolean;
  readonly scenarioPacks: boolean;
}

/** What can be done here, by name. */
export const featuresOf = ({
  nats,
  payments,
  publicSignup,
  scenarioPacks,
}: PlatformSetup): Record<string, boolean> => ({
  act_stream: true,
  batch: true,
  broadcast: true,
  evaluate: true,
  events_nats: nats,
  payments,
  public_signup: publicSignup,
  scenario_packs: scenarioPacks,
  webhooks: true,
});

/** What no call may exceed. */
export const LIMITS: Readonly<Record<string, number>> = {
  batch_items: 1_000,
  batch_bytes: 64 << 20,
  evaluation_episodes: 10_000,
  metadata_keys: 16,
  metadata_value_characters: 512,
  request_bytes: 64 << 20,
  session_silence_s: 900,
};
