/** Bodies to begin with, by the name of their message; a test reads each with the gateway's own decoder. */
export const EXAMPLES: Readonly<Record<string, unknown>> = {
  ActRequest: {
    model: "service/auto:vla",
    observations: [
      {
        frames: [{ camera: "front", url: "https://example.com/front.jpg" }],
        proprio: [0.31, 0.02, 0.44, 0, 3.14, 0, 0.04],
      },
    ],
    instruction: "pick up the red cube",
    action_space: "ee_delta_6d_grip",
    horizon: 2,
    provider: { max_latency_ms: 300, deadline_ms: 1000 },
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
    observations: [{ frames: [{ camera: "front", url: "https://example.com/front.jpg" }] }],
    instruction: "the cube is pushed to the left",
    horizon: 8,
  },
  GroundRequest: {
    observations: [{ frames: [{ camera: "front", url: "https://example.com/front.jpg" }] }],
    instruction: "the red cube",
  },
};
