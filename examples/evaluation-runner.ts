/**
 * Runs evaluations that the gateway cannot run itself. Request an evaluation, then run it:
 *
 *   curl http://127.0.0.1:8080/v1/evaluate -H "authorization: Bearer $LIMBER_KEY" -H 'content-type: application/json' \
 *     -d '{"policy_endpoint": "reference/potential-nav", "scenario": "1x/1x-world-model-challenge", "runner": "external", "episodes": 2}'
 *   node_modules/.bin/node examples/evaluation-runner.ts http://127.0.0.1:8080 KEY [SCENARIO ...]
 *
 * It claims evaluations with `"runner": "external"`, one after the other, and exits when none is queued. Replace `runEpisode` with your benchmark's
 * harness. The example drives a base to a place on the floor with the evaluation's policy.
 */
const [url = "http://127.0.0.1:8080", key = "", ...scenarios] = process.argv.slice(2);

// biome-ignore lint/suspicious/noExplicitAny: the answers are the schema's, `evaluation.proto` and `runner_service.proto`.
type Answer = any;

async function call(path: string, body: object): Promise<Answer> {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const answer = await fetch(url + path, { method: "POST", headers, body: JSON.stringify(body) });
  const content: Answer = await answer.json();
  if (!answer.ok) throw new Error(`${path}: ${content.error.code}: ${content.error.message}`);
  return content;
}

interface Claim {
  readonly epoch: number;
  readonly lease_s: number;
  readonly open_episodes: readonly number[];
  readonly seed: number;
  readonly evaluation: { readonly id: string; readonly policy: { readonly endpoint: string } };
}

const DT_S = 0.1;
const MOST_STEPS = 100;

/** Runs one episode: a base at the center of the floor, and a goal at a distance of 1 m in a direction that depends on the seed. */
async function runEpisode(model: string, seed: number) {
  const towards = ((seed * 7919) % 628) / 100;
  const [goalX, goalY] = [Math.cos(towards), Math.sin(towards)];
  const latencies: number[] = [];
  let [x, y, yaw, steps] = [0, 0, 0, 0];
  const far = (): number => Math.hypot(goalX - x, goalY - y);
  while (steps < MOST_STEPS && far() > 0.1) {
    const began = performance.now();
    const proprio = { x, y, yaw, goal_x: goalX, goal_y: goalY, goal_yaw: towards };
    const observations = [{ proprio: Object.values(proprio), proprio_names: Object.keys(proprio) }];
    const { action } = await call("/v1/act", { model, action_space: "base_twist_2d", horizon: 4, observations });
    latencies.push(performance.now() - began);
    for (const [forward = 0, turn = 0] of action.steps) {
      yaw += turn * DT_S;
      x += forward * DT_S * Math.cos(yaw);
      y += forward * DT_S * Math.sin(yaw);
      steps++;
    }
  }
  const termination = far() <= 0.1 ? "success" : "max_steps";
  return { termination, return: -far(), steps, sim_time_s: steps * DT_S, latencies_ms: latencies };
}

async function run({ epoch, lease_s, open_episodes, seed, evaluation: { id, policy } }: Claim): Promise<void> {
  let stop = false;
  // A runner that sends no heartbeat within its lease loses the evaluation to the next runner.
  const heartbeat = setInterval(
    () => {
      call(`/v1/evaluate/${id}/heartbeat`, { epoch }).then(
        (response) => {
          stop = response.stop;
        },
        (error) => console.error(String(error)),
      );
    },
    (lease_s * 1000) / 3,
  );
  try {
    for (const index of open_episodes) {
      if (stop) break;
      const outcome = await runEpisode(policy.endpoint, seed + index);
      stop = (await call(`/v1/evaluate/${id}/episodes`, { epoch, index, ...outcome })).stop;
    }
    const { status, scores } = await call(`/v1/evaluate/${id}/finish`, { epoch });
    console.log(`${id} ${status}: ${scores?.success_rate.successes} of ${scores?.success_rate.n}`);
  } finally {
    clearInterval(heartbeat);
  }
}

for (;;) {
  const { claim } = await call("/v1/evaluate/claims", { harness: "example 1.0", scenarios });
  if (!claim) break;
  await run(claim);
}
