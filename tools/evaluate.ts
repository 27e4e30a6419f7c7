/** Evaluates a policy in a scenario of a gateway over its public API: `limber evaluate --policy owner/name --scenario base-nav`. */
import { parseArgs } from "node:util";
import { type Evaluation, fieldsOf, followed, gatewayOf, Misuse, whole } from "./evaluate-gateway.ts";
import { verifyCommand } from "./evaluate-verify.ts";

const HELP = `Evaluates a policy in a scenario, and shows each episode as it ends.

  limber evaluate --policy owner/name --scenario base-nav [--episodes 20] [options]

  --url URL          the gateway; LIMBER_URL, or http://127.0.0.1:8080
  --key KEY          an API key; better in the environment, as LIMBER_KEY
  --policy NAME      a model or an alias of the gateway, or the address of a server: ws://…, grpc://…
  --runtime NAME     the wire that the server at an address speaks; GET /v1/runtimes lists them
  --scenario NAME    the scenario; GET /v1/scenarios?runnable=true lists them
  --episodes N       20 when absent
  --seed N           of the first episode; each later one has the next
  --horizon N        steps of each chunk that is asked for
  --json TEXT        any further fields of the request, as JSON; they win over the options
  --help

  limber evaluate verify URL|FILE
                     verifies a published evaluation by replaying it, with --live by calling its policy again; --help says more

Ends with 0 when the evaluation completed, 1 when it failed, 2 when the command is wrong, 3 when the gateway refused.`;

const OPTIONS = {
  url: { type: "string" },
  key: { type: "string" },
  policy: { type: "string" },
  runtime: { type: "string" },
  scenario: { type: "string" },
  episodes: { type: "string" },
  seed: { type: "string" },
  horizon: { type: "string" },
  json: { type: "string" },
  help: { type: "boolean" },
} as const;

type Values = ReturnType<typeof read>;

function read() {
  try {
    return parseArgs({ options: OPTIONS }).values;
  } catch (thrown) {
    throw new Misuse(thrown instanceof Error ? thrown.message : String(thrown));
  }
}

function requestOf(values: Values): object {
  const { policy, scenario, runtime, json } = values;
  const more = fieldsOf(json);
  if (policy === undefined && !("policy_endpoint" in more)) throw new Misuse("--policy is required");
  if (scenario === undefined && !("scenario" in more)) throw new Misuse("--scenario is required");
  return {
    ...{ policy_endpoint: policy, scenario, runtime, episodes: whole("episodes", values.episodes) ?? 20 },
    ...{ seed: whole("seed", values.seed), horizon: whole("horizon", values.horizon) },
    ...more,
  };
}

async function main(): Promise<number> {
  const values = read();
  if (values.help) {
    console.log(HELP);
    return 0;
  }
  const { ask } = gatewayOf(values);
  const body = JSON.stringify(requestOf(values));
  const { id } = (await (await ask("/v1/evaluate", { method: "POST", body })).json()) as Evaluation;
  console.log(`evaluation ${id}`);
  const ended = await followed(await ask(`/v1/evaluate/${id}/events`, { method: "GET" }));
  if (ended.scores !== undefined) console.log(JSON.stringify(ended.scores, null, 2));
  console.log(`${ended.id} ${ended.status}${ended.error?.message ? `: ${ended.error.message}` : ""}`);
  return ended.status === "completed" ? 0 : 1;
}

const run = process.argv[2] === "verify" ? () => verifyCommand(process.argv.slice(3)) : main;

run().then(
  (code) => process.exit(code),
  (thrown: unknown) => {
    console.error(`evaluate: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
    if (thrown instanceof Misuse) console.error("limber evaluate --help says how");
    process.exit(thrown instanceof Misuse ? 2 : 3);
  },
);
