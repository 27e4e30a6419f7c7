/**
 * An example body for every call with one, and some responses, by message name. A test sends each unchanged to a gateway with the reference
 * provider; placeholders such as `key_01J…` stand for the caller's own ids.
 */

/** A gray table, a red square and a green one, 64 by 48. */
const PICTURE =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAEAAAAAwCAIAAAAuKetIAAAAV0lEQVR42u3YsQ0AEBRAQZP8IYxtF43GOkYQhQgueQtc+1Jr9eoSAAAAAAAAAADAs4AeMQ0AAAAAAGC9KHkaAMB5wL4AAAAAAP4GuBIAAAAAAAAAAAB1AHiWtcbW1bOkAAAAAElFTkSuQmCC";

const ULID = "01JABCDEFGHJKMNPQRSTVWXYZ0";
const SEEN = [{ frames: [{ camera: "wrist", url: PICTURE }] }];
const DRIVEN = [{ proprio: [0, 0, 0, 1, 2, 0] }];
const USER_SCHEMA = "urn:ietf:params:scim:schemas:core:2.0:User";
const GROUP_SCHEMA = "urn:ietf:params:scim:schemas:core:2.0:Group";
const PATCH_SCHEMA = "urn:ietf:params:scim:api:messages:2.0:PatchOp";
const SEARCH_SCHEMA = "urn:ietf:params:scim:api:messages:2.0:SearchRequest";
const SEARCH = { schemas: [SEARCH_SCHEMA], startIndex: 1, count: 10 };
const REDIRECT = "https://app.example.com/callback";

/** Examples by the name of their message. */
export const EXAMPLES: Readonly<Record<string, unknown>> = {
  ActRequest: {
    model: "service/auto",
    observations: SEEN,
    instruction: "reach the green cube",
    action_space: "ee_delta_6d_grip",
    horizon: 4,
    provider: { deadline_ms: 10000 },
  },
  ActResponse: {
    id: "act_01JABCDEFGHJKMNPQRSTVWXYZ0",
    object: "world.action",
    created: 1764547200,
    model: "limber/classic-reach",
    action: {
      space: "ee_delta_6d_grip",
      steps: [
        [0.01, 0, -0.02, 0, 0, 0, 1],
        [0.01, 0, -0.02, 0, 0, 0, 1],
      ],
      dt_ms: 50,
      note: "",
    },
    route: {
      model: "limber/classic-reach",
      region: "local",
      precision: "fp64",
      attempts: [
        {
          model: "limber/classic-reach",
          status: "ok",
          latency_ms: 3.2,
          provider: "limber",
          offering_id: "off_01JABCDEFGHJKMNPQRSTVWXYZ0",
        },
      ],
      fallback_used: false,
      simulated: false,
      provider: "limber",
      offering_id: "off_01JABCDEFGHJKMNPQRSTVWXYZ0",
    },
    usage: { action_steps: 2, gpu_seconds: 0, cost_usd: 0.0002 },
    chunk_id: "act_01JABCDEFGHJKMNPQRSTVWXYZ0",
    valid_until_ms: 100,
    prediction: [],
  },
  PredictRequest: {
    model: "service/auto",
    observations: SEEN,
    instruction: "the cube is pushed to the left",
    horizon: 4,
  },
  GroundRequest: { observations: SEEN, instruction: "the red cube" },
  PreviewedRequest: { model: "service/auto", observations: DRIVEN, action_space: "base_twist_2d", horizon: 4 },
  EvaluateRequest: {
    policy_endpoint: "reference/ik-reach",
    scenario: "arm-reach",
    action_space: "joint_pos_7",
    episodes: 2,
  },
  CreateSuiteRequest: {
    title: "reach and drive",
    tasks: [
      { scenario: "arm-reach", action_space: "joint_pos_7", episodes: 50 },
      { scenario: "base-nav", episodes: 50, weight: 2 },
    ],
  },
  ClaimEvaluationRequest: { harness: "my-harness 1.4.0", lease_s: 60 },
  RenewClaimRequest: { epoch: 1 },
  ReportEpisodeRequest: { epoch: 1, index: 0, termination: "success", return: 12.5, steps: 84, sim_time_s: 4.2 },
  FinishEvaluationRequest: { epoch: 1, error: { code: "harness_failed", message: "the simulator did not start" } },
  CreateBatchRequest: {
    contract: "act",
    requests: [
      { model: "service/auto", action_space: "base_twist_2d", horizon: 4, observations: DRIVEN },
      { model: "service/auto", action_space: "base_twist_2d", horizon: 8, observations: DRIVEN },
    ],
  },
  CreateOrgRequest: { name: "Acme Robotics", email: "owner@acme.example" },
  CreateKeyRequest: {
    name: "arm in cell 4",
    scopes: ["act"],
    budget: { limit_usd: 25, interval: "monthly" },
    rate_limit: { requests: 6000, window_s: 60 },
    role: "operator",
    robot_id: "cell-4",
  },
  UpdateKeyRequest: { name: "arm in cell 5", budget: { limit_usd: 50, interval: "monthly" } },
  RotateKeyRequest: {},
  AddCreditsRequest: { amount_usd: 100, reason: "first order" },
  SetCommitmentRequest: { min_monthly_usd: 500 },
  SetShareRequest: { percent: 80 },
  RecordPayoutRequest: { amount_usd: 412.5, reference: "SEPA 2026-11-23 0042" },
  SetHardwareKeysRequest: { allowed: true },
  UpdateSettingsRequest: { retention_days: 14, max_hedge_ratio: 0.1 },
  InviteMemberRequest: { email: "kim@acme.example", role: "developer" },
  AcceptInviteRequest: { invite: `lmb_inv_${ULID}`, key_name: "laptop" },
  CreateSessionRequest: { token: `lmb_in_${ULID}` },
  BeginSignInRequest: { email: "kim@acme.example", return_to: "/calls" },
  FinishSignInRequest: { issuer_id: `iss_${ULID}`, query: "code=SplxlOBeZQQYbYS6WxSbIA&state=af0ifjsldkj" },
  PutIssuerRequest: {
    issuer: "https://accounts.acme.example",
    client_id: "limber",
    client_secret: "the-secret-that-the-issuer-gave",
    domains: ["acme.example"],
    join_role: "viewer",
  },
  TestIssuerRequest: {
    issuer: "https://accounts.acme.example",
    client_id: "limber",
    client_secret: "the-secret-that-the-issuer-gave",
  },
  VerifyDomainRequest: { domain: "acme.example" },
  UpdateSessionRequest: { org_id: `org_${ULID}` },
  CreateSignInLinkRequest: {},
  UpdateMemberRequest: { role: "operator" },
  TransferOwnershipRequest: { user_id: `usr_${ULID}` },
  CreateOauthClientRequest: { name: "Fleet viewer", redirect_uris: [REDIRECT], scopes: ["act"] },
  RegisterOauthClientRequest: {
    client_name: "Fleet viewer",
    redirect_uris: [REDIRECT],
    token_endpoint_auth_method: "none",
    scope: "act usage.read",
  },
  SendTestMailRequest: {},
  CompareEvaluationsRequest: {
    policies: [{ policy_endpoint: "grpc://127.0.0.1:7000" }, { policy_endpoint: "ws://127.0.0.1:8000" }],
    scenario: "arm-reach",
    episodes: 50,
    stop_when_known: true,
  },
  CreatePublicationRequest: { evaluation_id: `job_${ULID}`, title: "acme/pick-1 in arm-reach" },
  UpdateMailPreferencesRequest: { muted: ["evaluation.completed"] },
  UnsubscribeFromMailRequest: {},
  // The verifier and the challenge are those of RFC 7636, appendix B.
  AuthorizeRequest: {
    client_id: `oac_${ULID}`,
    redirect_uri: REDIRECT,
    code_challenge: "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
    code_challenge_method: "S256",
    scope: "act",
    state: "af0ifjsldkj",
  },
  ExchangeTokenRequest: {
    grant_type: "authorization_code",
    code: `code_${ULID}`,
    code_verifier: "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
    client_id: `oac_${ULID}`,
    redirect_uri: REDIRECT,
  },
  RevokeTokenRequest: { token: `lmb_sk_${ULID}`, client_id: `oac_${ULID}` },
  User: {
    schemas: [USER_SCHEMA],
    userName: "kim@acme.example",
    active: true,
    emails: [{ value: "kim@acme.example", primary: true }],
  },
  Group: { schemas: [GROUP_SCHEMA], displayName: "Robot crew", members: [{ value: `usr_${ULID}` }] },
  PatchOp: {
    schemas: [PATCH_SCHEMA],
    Operations: [{ op: "replace", path: "displayName", value: "Night shift" }],
  },
  SearchRequest: SEARCH,
  SearchUsersRequest: { ...SEARCH, filter: 'userName sw "kim"' },
  SearchGroupsRequest: { ...SEARCH, filter: 'displayName co "crew"' },
  MapGroupRequest: { role: "operator" },
  ExportOrgRequest: {},
  CreateWorkspaceRequest: { name: "Warehouse 7", budget: { limit_usd: 200, interval: "monthly" } },
  UpdateWorkspaceRequest: { name: "Warehouse 8" },
  UpdateAutoTopUpRequest: { enabled: true, threshold_usd: 20, amount_usd: 100, monthly_ceiling_usd: 500 },
  SetUpPaymentMethodRequest: { success_url: "https://acme.example/stored" },
  TopUpRequest: { amount_usd: 50, success_url: "https://acme.example/paid" },
  PresetConfig: { preference: "reliable", action_space: "base_twist_2d", horizon: 8, provider: { deadline_ms: 800 } },
  RobotConfig: {
    description: "the base at the window",
    embodiment: "mobile-base",
    action_space: "base_twist_2d",
    cameras: [{ name: "front", role: "body", width: 640, height: 480, format: "jpeg", rate_hz: 30 }],
    proprio: { names: ["x", "y", "heading", "goal_x", "goal_y", "goal_heading"] },
    bounds: { lowest: [-1], highest: [1], max_change: 0.2 },
    control_hz: 20,
  },
  NewCredential: { secret: "sk-of-your-own-account", label: "lab account" },
  StopRobotsRequest: { robot_id: "cell-4", reason: "light curtain" },
  ArmRobotRequest: {
    robot_id: "base-7",
    client_id: `oac_${ULID}`,
    models: ["reference/potential-nav"],
    bounds: { lowest: [-0.5], highest: [0.5] },
    max_seconds: 60,
    expires_in: 3600,
  },
  DisarmRobotRequest: { arming_id: `arm_${ULID}` },
  RunPolicyRequest: {
    robot_id: "base-7",
    model: "reference/potential-nav",
    instruction: "drive to the dock",
    max_seconds: 20,
    wait_s: 0,
  },
  UpdateRobotStopRequest: { reason: "light curtain, cell 4" },
  ReleaseRobotsRequest: { stop_id: `stop_${ULID}` },
  RegisterProviderRequest: {
    name: "acme",
    display_name: "Acme Robotics",
    regions: ["eu-central"],
    data_collection: "deny",
  },
  DeclareModelRequest: {
    model: "acme/pick-and-place",
    runtime: "limber-policy",
    endpoint: "grpc://127.0.0.1:50051",
    hardware: "L4",
    contracts: ["act"],
    action_spaces: ["ee_delta_6d_grip"],
    price_per_action_step: 0.0001,
    dt_ms: 50,
    max_horizon: 32,
  },
  UpdateProviderRequest: { display_name: "Acme Robotics, Berlin" },
  ReviewProviderRequest: { standing: "verified", note: "visited on 3 March" },
  SetModelOwnerRequest: { org_id: `org_${ULID}` },
  AddMakerKeyRequest: {
    public_key:
      "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEADnRqHI+/WDSnIxH/XLzsEkPOE68pQ54iWuc8a/UQ3dQ=\n-----END PUBLIC KEY-----\n",
    name: "release 2026",
  },
  StateCheckpointRequest: {
    served_by: "acme",
    model: "acme/pick-place",
    digest: `sha256:${"0a".repeat(32)}`,
    input: { cameras: [{ name: "front", required: true }], proprio: [{ dimension: 7 }] },
  },
  PauseOfferingRequest: {},
  ResumeOfferingRequest: {},
  UpdateOfferingRequest: { hardware: "A100-40GB", scaledown_s: 300, timeout_s: 20 },
  CreateWebhookRequest: { url: "https://acme.example/hooks", events: ["batch.completed", "robot.stopped"] },
  UpdateWebhookRequest: { events: ["*"], enabled: true },
  RotateWebhookSecretRequest: {},
  TestWebhookRequest: {},
  RedeliverWebhookRequest: {},
  CreateBroadcastRequest: { name: "collector", endpoint: "https://otlp.acme.example", protocol: "http/protobuf" },
  UpdateBroadcastRequest: { sampling_rate: 0.1 },
  DeprecateModelRequest: { sunset_at: 2051222400 },
  ForceCircuitRequest: { state: "forced_open", reason: "maintenance" },
};
