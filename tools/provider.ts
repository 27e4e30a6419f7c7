/** Brings a model server to a gateway over its public API: `npx limber provider register …`. Registers, declares, verifies. */
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { addressUnder } from "../src/codecs/base-address.ts";

const HELP = `Brings a model server to a gateway: registers the provider, declares the model, runs the conformance probe.

  limber provider register --model owner/name --runtime openpi-ws --endpoint ws://host:8000 [options]

  --url URL              the gateway; LIMBER_URL, or http://127.0.0.1:8080
  --key KEY              an API key that may write supply; better in the environment, as LIMBER_KEY
  --provider NAME        the provider's name; the model's owner when absent
  --model OWNER/NAME     what the server serves
  --runtime NAME         the wire that it speaks; GET /v1/runtimes lists them
  --endpoint URL         where it listens
  --hardware NAME        the accelerator; CPU when absent
  --contract NAME        act, predict or ground; may be given several times; act when absent
  --action-space NAME    may be given several times; ee_delta_6d_grip when absent and act is served
  --action-dim N         for spaces that fix no dimension
  --profile NAME         a ready-made profile, such as openpi/droid
  --region NAME  --precision NAME  --embodiment NAME  --max-horizon N  --dt-ms N  --timeout-s N
  --price N              US dollars per step, frame or thousand tokens, by the first contract
  --auth TYPE            bearer or api_key; the secret is read from the environment, as LIMBER_PROVIDER_SECRET
  --json TEXT            any further fields of the declaration, as JSON; they win over the options
  --help

Ends with 0 when the offering is live, 1 when the probe rejected it, 2 when the command is wrong, 3 when the gateway refused.`;

/** The command can't be carried out as it was given. */
class Misuse extends Error {}

/** The gateway said no. */
class Refused extends Error {}

const OPTIONS = {
  url: { type: "string" },
  key: { type: "string" },
  provider: { type: "string" },
  model: { type: "string" },
  runtime: { type: "string" },
  endpoint: { type: "string" },
  hardware: { type: "string" },
  contract: { type: "string", multiple: true },
  "action-space": { type: "string", multiple: true },
  "action-dim": { type: "string" },
  embodiment: { type: "string", multiple: true },
  profile: { type: "string" },
  region: { type: "string" },
  precision: { type: "string" },
  "max-horizon": { type: "string" },
  "dt-ms": { type: "string" },
  "timeout-s": { type: "string" },
  price: { type: "string" },
  auth: { type: "string" },
  json: { type: "string" },
  help: { type: "boolean" },
} as const;

type Values = ReturnType<typeof read>["values"];

function read() {
  try {
    return parseArgs({ options: OPTIONS, allowPositionals: true });
  } catch (thrown) {
    throw new Misuse(thrown instanceof Error ? thrown.message : String(thrown));
  }
}

function required(values: Values, name: "model" | "runtime" | "endpoint"): string {
  const value = values[name];
  if (value === undefined) throw new Misuse(`--${name} is required`);
  return value;
}

function numberOf(
  values: Values,
  name: "action-dim" | "max-horizon" | "dt-ms" | "timeout-s" | "price",
): number | undefined {
  const text = values[name];
  if (text === undefined) return undefined;
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value)) throw new Misuse(`--${name} must be a number, not ${text}`);
  return value;
}

const PRICES: Readonly<Record<string, string>> = {
  act: "price_per_action_step",
  predict: "price_per_frame",
  ground: "price_per_1k_tokens",
};

/** The body of the declaration; what is undefined is left out of its JSON. */
function declarationOf(values: Values): Record<string, unknown> {
  const contracts = values.contract ?? ["act"];
  const unknown = contracts.find((name) => !(name in PRICES));
  if (unknown !== undefined) throw new Misuse(`--contract must be act, predict or ground, not ${unknown}`);
  const { auth } = values;
  const secret = process.env.LIMBER_PROVIDER_SECRET;
  if (auth !== undefined && !secret)
    throw new Misuse("--auth needs the secret in the environment, as LIMBER_PROVIDER_SECRET");
  return {
    model: required(values, "model"),
    runtime: required(values, "runtime"),
    endpoint: required(values, "endpoint"),
    hardware: values.hardware ?? "CPU",
    contracts,
    action_spaces: values["action-space"] ?? (contracts.includes("act") ? ["ee_delta_6d_grip"] : undefined),
    action_dim: numberOf(values, "action-dim"),
    embodiments: values.embodiment,
    profile: values.profile === undefined ? undefined : { preset: values.profile },
    region: values.region,
    precision: values.precision,
    max_horizon: numberOf(values, "max-horizon"),
    dt_ms: numberOf(values, "dt-ms"),
    timeout_s: numberOf(values, "timeout-s"),
    [PRICES[contracts[0]!]!]: numberOf(values, "price"),
    auth: auth === undefined ? undefined : { type: auth, secret },
    ...fieldsOf(values.json),
  };
}

function fieldsOf(json: string | undefined): object {
  if (json === undefined) return {};
  try {
    const value: unknown = JSON.parse(json);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  } catch {
    // Said below.
  }
  throw new Misuse('--json must be an object, such as \'{"parameters":["seed"]}\'');
}

interface Check {
  name: string;
  passed: boolean;
  required: boolean;
  detail: string;
  latency_ms: number;
  next_step?: string;
}

interface Report {
  passed: boolean;
  checks: Check[];
  measured: { p50_ms: number; p95_ms: number; cold_ms: number; action_dim?: number };
}

/** A gateway, reached as anybody reaches it. */
class Gateway {
  readonly #url: string;
  readonly #key: string;

  constructor({ url = process.env.LIMBER_URL ?? "http://127.0.0.1:8080", key = process.env.LIMBER_KEY }: Values) {
    if (!URL.canParse(url)) throw new Misuse(`--url must be an address, not ${url}`);
    if (!key) throw new Misuse("an API key is needed: LIMBER_KEY in the environment, or --key");
    this.#url = url;
    this.#key = key;
  }

  // biome-ignore lint/suspicious/noExplicitAny: answers of several shapes, read where they are used.
  async call(path: string, body?: object): Promise<{ status: number; body: any }> {
    const headers = { authorization: `Bearer ${this.#key}`, "content-type": "application/json" };
    const init = body === undefined ? { headers } : { method: "POST", headers, body: JSON.stringify(body) };
    const response = await fetch(addressUnder(this.#url, path), init).catch(() => {
      throw new Refused(`no gateway answers at ${this.#url}`);
    });
    const text = await response.text();
    try {
      return { status: response.status, body: JSON.parse(text) };
    } catch {
      throw new Refused(`what answers at ${this.#url} is no gateway`);
    }
  }

  /** As `call`, and throws the gateway's own sentence when it says no. */
  async ask(path: string, body?: object) {
    const answer = await this.call(path, body);
    if (answer.status < 300) return answer.body;
    const near: string[] = answer.body.error?.details?.near ?? [];
    const message: string = answer.body.error?.message ?? `HTTP ${answer.status}`;
    const missing = near.filter((name) => !message.includes(name));
    throw new Refused(missing.length > 0 ? `${message} (near: ${missing.join(", ")})` : message);
  }
}

async function register(values: Values): Promise<number> {
  const gateway = new Gateway(values);
  const declaration = declarationOf(values);
  const provider = values.provider ?? String(declaration.model).split("/")[0]!;
  await becomeProvider(gateway, provider);
  const { id } = await gateway.ask(`/v1/supply/providers/${encodeURIComponent(provider)}/models`, declaration);
  console.log(`declared  ${declaration.model} as ${id}`);
  console.log(`probing   ${declaration.endpoint} over ${declaration.runtime}`);
  const { offering, report } = await verify(gateway, id);
  console.log(`\n${tableOf(report)}\n`);
  console.log(
    offering.status === "live" ? `${declaration.model} is live` : `${declaration.model} was ${offering.status}`,
  );
  return offering.status === "live" ? 0 : 1;
}

/** How often the probe is looked at while it runs. */
const LOOK_MS = 300;

/** Runs the probe and prints a line for each of its checks as soon as it is known. */
async function verify(gateway: Gateway, id: string): Promise<{ offering: { status: string }; report: Report }> {
  let told = 0;
  const tell = (checks: readonly Check[]): void => {
    for (const check of checks.slice(told)) console.log(`  ${resultOf(check)}  ${check.name}`);
    told = Math.max(told, checks.length);
  };
  const ended = new AbortController();
  const verified = gateway.ask(`/v1/supply/offerings/${id}/verify`, {}).finally(() => ended.abort());
  const looking = (async () => {
    while (!ended.signal.aborted) {
      const { status, body } = await gateway.call(`/v1/supply/offerings/${id}/report?running=true`);
      if (status === 200) tell(body.checks);
      await sleep(LOOK_MS, undefined, { signal: ended.signal });
    }
  })().catch(() => {}); // what counts is what the probe itself ends with
  const answer = await verified;
  await looking;
  tell(answer.report.checks);
  return answer;
}

async function becomeProvider(gateway: Gateway, name: string): Promise<void> {
  const { status } = await gateway.call(`/v1/supply/providers/${encodeURIComponent(name)}`);
  if (status === 200) return console.log(`provider  ${name} is yours already`);
  await gateway.ask("/v1/supply/providers", { name });
  console.log(`provider  ${name} is registered`);
}

const resultOf = ({ passed, required }: Check): string => (passed ? "passed" : required ? "FAILED" : "warned");

/** The report as a table: what was looked at, what was seen, and what to do about it. */
function tableOf({ checks, measured }: Report): string {
  const rows = checks.map((check) => [check.name, resultOf(check), `${check.latency_ms.toFixed(1)} ms`, check.detail]);
  const head = ["check", "result", "time", "seen"];
  const widths = head.map((title, i) => Math.max(title.length, ...rows.map((row) => (i === 3 ? 4 : row[i]!.length))));
  const line = (cells: string[]): string =>
    cells
      .map((cell, i) => cell.padEnd(widths[i]!))
      .join("  ")
      .trimEnd();
  const steps = checks.flatMap(({ name, next_step }) => (next_step === undefined ? [] : [`  ${name}: ${next_step}`]));
  return [
    line(head),
    line(widths.map((width) => "-".repeat(width))),
    ...rows.map(line),
    `\nmedian ${measured.p50_ms} ms, 95th percentile ${measured.p95_ms} ms, first call ${measured.cold_ms} ms`,
    ...(steps.length > 0 ? ["\nwhat to do:", ...steps] : []),
  ].join("\n");
}

async function main(): Promise<number> {
  const { values, positionals } = read();
  if (values.help || positionals.length === 0) {
    console.log(HELP);
    return values.help ? 0 : 2;
  }
  if (positionals.length > 1 || positionals[0] !== "register")
    throw new Misuse(`there is no command ${positionals.join(" ")}`);
  return register(values);
}

main().then(
  (code) => process.exit(code),
  (thrown: unknown) => {
    console.error(`provider: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
    if (thrown instanceof Misuse) console.error("limber provider --help says how");
    process.exit(thrown instanceof Misuse ? 2 : 3);
  },
);
