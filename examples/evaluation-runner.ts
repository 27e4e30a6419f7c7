/**
 * Runs evaluations that the gateway can't run itself:
 *
 *   node_modules/.bin/node examples/evaluation-runner.ts http://127.0.0.1:8080 KEY [SCENARIO ...]
 *
 * It takes what was asked for with `"runner": "external"`, one after the other, and ends when nothing waits. Put your benchmark's own harness
 * where `runEpisode` is: what stands there is a point that has to be driven to its goal, by the policy that the evaluation names.
 */
const [url = "http://127.0.0.1:8080", key = "", ...scenarios] = process.argv.slice(2);

// biome-ignore lint/suspicious/noExplicitAny: the answers are the schema's, `evaluation.proto` and `runner_service.proto`.
type Said = any;

async function call(path: string, body: object): Promise<Said> {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const answer = await fetch(url + path, { method: "POST", headers, body: JSON.stringify(body) });
  const said: Said = await answer.json();
  if (!answer.ok) throw new Error(`${path}: ${said.error.code}: ${said.error.message}`);
  return said;
}

interface Claim {
  readonly epoch: number;
  readonly lease_s: number;
  readonly open_episodes: readonly number[];
  readonly seed: number;
  readonly evaluation: { readonly id: string; readonly policy: { readonly endpoint: string } };
}

/** One episode: a point on a line, pushed by the first number of each action. */
async function runEpisode(model: string, seed: number) {
  const goal = ((seed * 7919) % 100) / 50 - 1;
  const latencies: number[] = [];
  let [at, steps] = [0, 0];
  while (steps < 50 && Math.abs(goal - at) > 0.1) {
    const began = performance.now();
    const observations = [{ proprio: [goal - at, at] }];
    const { action } = await call("/v1/act", { model, action_space: "base_twist_2d", horizon: 4, observations });
    latencies.push(performance.now() - began);
    for (const [push = 0] of action.steps) {
      at += Math.max(-0.1, Math.min(0.1, push));
      steps++;
    }
  }
  const termination = Math.abs(goal - at) <= 0.1 ? "success" : "max_steps";
  return { termination, return: -Math.abs(goal - at), steps, sim_time_s: steps / 10, latencies_ms: latencies };
}

async function run({ epoch, lease_s, open_episodes, seed, evaluation: { id, policy } }: Claim): Promise<void> {
  let stop = false;
  // A runner that isn't heard of for its lease has lost the evaluation: the next one goes on.
  const heartbeat = setInterval(
    () => {
      call(`/v1/evaluate/${id}/heartbeat`, { epoch }).then(
        (told) => {
          stop = told.stop;
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
