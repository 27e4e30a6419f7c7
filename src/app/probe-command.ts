/**
 * `npx limber probe ADDRESS`: the conformance probe for one server of any wire, without a gateway, a database or an account. Exit codes: 0 if
 * every required check passed, 1 if one failed, 2 if the command is invalid.
 */
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { toJson } from "@bufbuild/protobuf";
import { type ProbeReport, ProbeReportSchema } from "../../gen/limber/v1/supply_pb.ts";
import { secretBytes } from "../random.ts";
import type { OfferingRecord } from "../store/supply/supply.ts";
import { liveOffering } from "../supply/facts.ts";
import { probe } from "../supply/probe/probe.ts";
import { createUpstream } from "../upstream/index.ts";
import { guardedAgent } from "../upstream/transport/guard.ts";
import { createVault } from "../vault.ts";

const HELP = `Looks whether a model server does what a gateway expects of it, over its own wire.

  npx limber probe ADDRESS [options]

  --runtime NAME         the wire that it speaks, by what its address begins with when absent: openpi-ws for ws://, limber-policy for
                         grpc://, gr00t-zmq for tcp://
  --model NAME           for servers of several models
  --contract NAME        act, predict or ground; act when absent
  --action-space NAME    ee_delta_6d_grip when absent
  --action-dim N         for spaces that fix no dimension
  --max-horizon N        most steps or frames of an answer; 16 when absent
  --profile NAME         a ready-made profile of the wire, such as openpi/droid
  --timeout-s N          seconds that an answer may take; 30 when absent
  --auth TYPE            bearer or api_key
  --secret-file PATH     where its secret is
  --json                 the report as JSON, in place of a table in Markdown
  --help`;

const OPTIONS = {
  runtime: { type: "string" },
  model: { type: "string" },
  contract: { type: "string" },
  "action-space": { type: "string" },
  "action-dim": { type: "string" },
  "max-horizon": { type: "string" },
  profile: { type: "string" },
  "timeout-s": { type: "string" },
  auth: { type: "string" },
  "secret-file": { type: "string" },
  json: { type: "boolean" },
  help: { type: "boolean" },
} as const;

const BY_SCHEME: Readonly<Record<string, string>> = {
  "ws:": "openpi-ws",
  "wss:": "openpi-ws",
  "grpc:": "limber-policy",
  "grpcs:": "limber-policy",
  "tcp:": "gr00t-zmq",
};

/** An invalid command. */
class Misuse extends Error {}

type Values = ReturnType<typeof read>["values"];

function read(args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true });
  } catch (thrown) {
    throw new Misuse(thrown instanceof Error ? thrown.message : String(thrown));
  }
}

function whole(values: Values, name: "action-dim" | "max-horizon" | "timeout-s", most: number): number | undefined {
  const text = values[name];
  if (text === undefined) return undefined;
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1 || value > most)
    throw new Misuse(`--${name} must be an integer between 1 and ${most}, got ${text}`);
  return value;
}

/** The server in the form of a declared offering. */
function recordOf(endpoint: string, runtime: string, values: Values): OfferingRecord {
  const contract = values.contract ?? "act";
  if (!["act", "predict", "ground"].includes(contract))
    throw new Misuse(`--contract must be act, predict or ground, got ${contract}`);
  return {
    id: "off_probed",
    orgId: "",
    providerId: "",
    provider: "probed",
    providerRegions: [],
    retainsFrames: false,
    standing: "community",
    ownsName: false,
    status: "pending",
    report: null,
    chunkSteps: null,
    probeFailures: 0,
    created: 0,
    verifiedAt: null,
    model: values.model ?? "probed/model",
    runtime,
    endpoint,
    hardware: "CPU",
    contracts: [contract],
    actionSpaces: contract === "act" ? [values["action-space"] ?? "ee_delta_6d_grip"] : [],
    actionDim: whole(values, "action-dim", 1024) ?? null,
    embodiments: [],
    precision: "",
    region: "",
    priceFrameNano: null,
    priceStepNano: null,
    priceTokenNano: null,
    priceEpisodeNano: null,
    maxHorizon: whole(values, "max-horizon", 256) ?? 16,
    dtMs: 50,
    profile: values.profile === undefined ? null : { preset: values.profile },
    authType: "none",
    authSecret: null,
    p50Ms: null,
    p95Ms: null,
    unitsPerS: null,
    uptime30d: null,
    timeoutS: whole(values, "timeout-s", 3600) ?? 30,
    coldTimeoutS: null,
    costNanoPerSecond: null,
    scaledownS: null,
    parameters: [],
    note: "",
    bounds: null,
    input: null,
    actions: null,
    checkpoint: null,
    makerKeys: [],
    ownRetention: null,
    undeclared: [],
  };
}

function authOf({ auth, "secret-file": file }: Values): { type: "none" | "bearer" | "api_key"; secret: string } {
  if (auth === undefined) return { type: "none", secret: "" };
  if (auth !== "bearer" && auth !== "api_key") throw new Misuse(`--auth must be bearer or api_key, got ${auth}`);
  if (file === undefined) throw new Misuse("--auth needs --secret-file");
  try {
    return { type: auth, secret: readFileSync(file, "utf8").trim() };
  } catch {
    throw new Misuse(`--secret-file ${file} cannot be read`);
  }
}

/** The report for a README: a Markdown table, and what to do. */
function tableOf({ checks, measured, passed, address }: ProbeReport, endpoint: string, runtime: string): string {
  const cell = (text: string): string => text.replaceAll("|", "\\|").replaceAll(/\s+/g, " ");
  const result = (ok: boolean, required: boolean): string => (ok ? "passed" : required ? "FAILED" : "warned");
  const steps = checks.flatMap(({ name, nextStep }) => (nextStep === undefined ? [] : [`- ${name}: ${nextStep}`]));
  return [
    `${passed ? "Passes" : "Fails"} the probe of Limber over \`${runtime}\`: ${endpoint}`,
    "",
    "| check | result | time | seen |",
    "|---|---|---|---|",
    ...checks.map(
      ({ name, passed, required, latencyMs, detail }) =>
        `| ${name} | ${result(passed, required)} | ${latencyMs.toFixed(1)} ms | ${cell(detail)} |`,
    ),
    ...(measured && passed
      ? ["", `Median ${measured.p50Ms} ms, 95th percentile ${measured.p95Ms} ms, first answer ${measured.coldMs} ms.`]
      : []),
    ...(address !== undefined && address !== endpoint ? ["", `Calls went to ${address}.`] : []),
    ...(steps.length > 0 ? ["", "What to do:", "", ...steps] : []),
  ].join("\n");
}

/** Runs the command with these arguments; returns its exit code. */
export async function probeCommand(
  args: readonly string[],
  say: (text: string) => void = console.log,
  complain: (text: string) => void = console.error,
): Promise<number> {
  try {
    const { values, positionals } = read(args);
    if (values.help) {
      say(HELP);
      return 0;
    }
    const [endpoint, ...rest] = positionals;
    if (endpoint === undefined || rest.length > 0) throw new Misuse("specify one address, such as ws://127.0.0.1:8000");
    if (!URL.canParse(endpoint))
      throw new Misuse(`${endpoint} is not a valid address; use one such as ws://127.0.0.1:8000`);
    const runtime = values.runtime ?? BY_SCHEME[new URL(endpoint).protocol];
    if (runtime === undefined) throw new Misuse(`--runtime is required: the wire of ${endpoint}`);
    const record = recordOf(endpoint, runtime, values);
    const auth = authOf(values);
    // Addresses are unrestricted, because the user of the machine chose this one.
    const guard = { allowPrivate: true, dnsServers: undefined };
    const upstream = createUpstream(guard);
    const agent = guardedAgent(guard);
    try {
      const wire = upstream.wireOf(runtime);
      if (!wire || runtime === "limber-outbound" || runtime === "simulated")
        throw new Misuse(`--runtime must be one of ${dialed(upstream.runtimes).join(", ")}, got ${runtime}`);
      const { offering, target, bounds } = liveOffering(record, undefined, {
        vault: createVault(secretBytes(32)),
        upstream,
      });
      const deps = { agent, allowPrivate: true, native: upstream.native, addressOf: upstream.addressOf };
      const { report } = await probe(deps, { offering, target: { ...target, auth }, wire, bounds, record });
      // The region comes from a declaration, and there is none.
      report.checks = report.checks.filter(({ name }) => name !== "region");
      say(
        values.json
          ? JSON.stringify(toJson(ProbeReportSchema, report, { useProtoFieldName: true }))
          : tableOf(report, endpoint, runtime),
      );
      return report.passed ? 0 : 1;
    } finally {
      agent.destroy();
      await upstream.close();
    }
  } catch (thrown) {
    if (!(thrown instanceof Misuse)) throw thrown;
    complain(`probe: ${thrown.message}\nsee npx limber probe --help`);
    return 2;
  }
}

const dialed = (runtimes: readonly string[]): string[] =>
  runtimes.filter((name) => name !== "limber-outbound" && name !== "simulated");
