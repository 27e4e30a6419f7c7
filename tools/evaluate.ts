/** Evaluates a policy in a scenario of a gateway over its public API: `limber evaluate --policy owner/name --scenario base-nav`. */
import { parseArgs } from "node:util";
import { addressUnder } from "../src/codecs/base-address.ts";
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
                     verifies a published evaluation by replaying it; --help says more

Ends with 0 when the evaluation completed, 1 when it failed, 2 when the command is wrong, 3 when the gateway refused.`;

/** The command can't be carried out as it was given. */
class Misuse extends Error {}

/** The gateway said no. */
class Refused extends Error {}

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

function whole(values: Values, name: "episodes" | "seed" | "horizon"): number | undefined {
  const text = values[name];
  if (text === undefined) return undefined;
  if (!/^\d{1,10}$/.test(text)) throw new Misuse(`--${name} must be a whole number, not ${text}`);
  return Number(text);
}

function requestOf(values: Values): object {
  const { policy, scenario, runtime, json } = values;
  let more: unknown = {};
  try {
    if (json !== undefined) more = JSON.parse(json);
  } catch {
    throw new Misuse("--json must be JSON");
  }
  if (typeof more !== "object" || more === null || Array.isArray(more)) throw new Misuse("--json must be an object");
  if (policy === undefined && !("policy_endpoint" in more)) throw new Misuse("--policy is required");
  if (scenario === undefined && !("scenario" in more)) throw new Misuse("--scenario is required");
  return {
    ...{ policy_endpoint: policy, scenario, runtime, episodes: whole(values, "episodes") ?? 20 },
    ...{ seed: whole(values, "seed"), horizon: whole(values, "horizon") },
    ...more,
  };
}

interface Episode {
  readonly index: number;
  readonly termination: string;
  readonly steps: number;
}

interface Evaluation {
  readonly id: string;
  readonly status: string;
  readonly scores?: unknown;
  readonly error?: { readonly message?: string };
}

async function main(): Promise<number> {
  const values = read();
  if (values.help) {
    console.log(HELP);
    return 0;
  }
  const { url = process.env.LIMBER_URL ?? "http://127.0.0.1:8080", key = process.env.LIMBER_KEY } = values;
  if (!URL.canParse(url)) throw new Misuse(`--url must be an address, not ${url}`);
  if (!key) throw new Misuse("an API key is needed: LIMBER_KEY in the environment, or --key");
  const body = JSON.stringify(requestOf(values));
  const ask = async (path: string, init: RequestInit): Promise<Response> => {
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const answer = await fetch(addressUnder(url, path), { ...init, headers }).catch(() => {
      throw new Refused(`no gateway answers at ${url}`);
    });
    if (answer.ok) return answer;
    const said = (await answer.json().catch(() => ({}))) as { error?: { message?: string } };
    throw new Refused(said.error?.message ?? `HTTP ${answer.status}`);
  };
  const { id } = (await (await ask("/v1/evaluate", { method: "POST", body })).json()) as Evaluation;
  console.log(`evaluation ${id}`);
  const ended = await followed(await ask(`/v1/evaluate/${id}/events`, { method: "GET" }));
  if (ended.scores !== undefined) console.log(JSON.stringify(ended.scores, null, 2));
  console.log(`${ended.id} ${ended.status}${ended.error?.message ? `: ${ended.error.message}` : ""}`);
  return ended.status === "completed" ? 0 : 1;
}

/** Prints each episode of a stream of server-sent events; resolves with the evaluation as it ended. */
async function followed(answer: Response): Promise<Evaluation> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const bytes of answer.body ?? []) {
    rest += decoder.decode(bytes, { stream: true });
    const events = rest.split("\n\n");
    rest = events.pop() ?? "";
    for (const event of events) {
      const name = /^event: (\S+)/m.exec(event)?.[1];
      const data = /^data: (.*)$/m.exec(event)?.[1];
      if (data === undefined) continue;
      if (name === "episode") {
        const { index, termination, steps } = JSON.parse(data) as Episode;
        console.log(`  episode ${index}  ${termination}  ${steps} steps`);
      }
      if (name === "done") return JSON.parse(data) as Evaluation;
      if (name === "error")
        throw new Refused((JSON.parse(data) as { error?: { message?: string } }).error?.message ?? data);
    }
  }
  throw new Refused("the gateway ended the stream before the evaluation was over");
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
