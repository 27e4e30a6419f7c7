/**
 * `npx limber probe ADDRESS`: the conformance probe for one server of any wire, without a gateway, a database or an account. Exit codes: 0 if
 * every required check passed, 1 if one failed, 2 if the command is invalid.
 */
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { create, toJson } from "@bufbuild/protobuf";
import { ObservationSchema } from "../../gen/limber/v1/observation_pb.ts";
import { type ProbeReport, ProbeReportSchema, WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import { Cancel } from "../cancellation.ts";
import { after } from "../clock.ts";
import { type ActAnswer, AttemptFailure, Contract, UpstreamFailure } from "../contracts/contract.ts";
import { newId } from "../ids.ts";
import { secretBytes } from "../random.ts";
import type { OfferingRecord } from "../store/supply/supply.ts";
import { liveOffering } from "../supply/facts.ts";
import { probe } from "../supply/probe/probe.ts";
import { createUpstream } from "../upstream/index.ts";
import { type FrameOptions, FrameSet, frameSources } from "../upstream/pictures/frames.ts";
import { redSquare } from "../upstream/pictures/test-picture.ts";
import { guardedAgent } from "../upstream/transport/guard.ts";
import type { UpstreamTarget, Wire } from "../upstream/wire.ts";
import { createVault } from "../vault.ts";

const HELP = `Looks whether a model server does what a gateway expects of it, over its own wire.

  npx limber probe ADDRESS [options]

  --runtime NAME         the wire that it speaks, by what its address begins with when absent: openpi-ws for ws://, limber-policy for
                         grpc://, gr00t-zmq for tcp://
  --model NAME           for servers of several models
  --contract NAME        act, predict or ground; act when absent
  --action-space NAME    guessed for openpi-ws, otherwise ee_delta_6d_grip when absent
  --action-dim N         for spaces that fix no dimension
  --max-horizon N        most steps or frames of an answer; 16 when absent
  --profile NAME         a ready-made profile of the wire, such as openpi/droid; guessed for openpi-ws when absent
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

/** A ready-made profile of openpi's own policies, and the actions of a server that reads it. */
interface Guess {
  readonly profile: string;
  readonly actionDim: number;
  readonly actionSpace: string;
}

const GUESSES: readonly Guess[] = [
  { profile: "openpi/libero", actionDim: 7, actionSpace: "ee_delta_6d_grip" },
  { profile: "openpi/droid", actionDim: 8, actionSpace: "continuous_nd" },
  { profile: "openpi/aloha", actionDim: 14, actionSpace: "joint_pos_14" },
  { profile: "roboarena/droid", actionDim: 8, actionSpace: "continuous_nd" },
];

/**
 * The first profile that the server answers with actions of the profile's dimension: openpi servers refuse observations that lack a key, and
 * their metadata seldom say what they read. Undefined if there is none.
 */
async function guessProfile(
  wire: Wire,
  target: UpstreamTarget,
  { timeoutMs, ...options }: FrameOptions & { readonly timeoutMs: number },
): Promise<Guess | undefined> {
  for (const guess of GUESSES) {
    const guessed = { ...target, profile: create(WireProfileSchema, { preset: guess.profile }), actionDim: undefined };
    const call = { signal: new Cancel(), budgetMs: timeoutMs, requestId: newId("req") };
    const forget = after(timeoutMs, () => call.signal.abort(new UpstreamFailure(AttemptFailure.TIMEOUT, "too slow")));
    try {
      const { cameras = [], proprioDim = 0 } = (await wire.wants?.(guessed, call)) ?? {};
      const data = await redSquare(0.5, 0.5);
      const seen = create(ObservationSchema, {
        frames: cameras.map((camera) => ({ camera, data })),
        proprio: Array.from({ length: proprioDim }, () => 0.1),
      });
      const asked = {
        instruction: "reach the red square",
        seed: undefined,
        temperature: undefined,
        sessionId: undefined,
      };
      const input = {
        ...asked,
        observations: [seen],
        actionSpace: guess.actionSpace,
        horizon: 1,
        returnPrediction: false,
      };
      const answer = await wire.act?.(guessed, input, new FrameSet(frameSources([seen]), options), call);
      if (answer !== undefined && dimOf(answer) === guess.actionDim) return guess;
    } catch (thrown) {
      // Another profile may fit where the server refused this one. The probe reports a server that does not answer at all.
      if (!(thrown instanceof UpstreamFailure) || SILENT.has(thrown.failure)) return undefined;
    } finally {
      forget();
    }
  }
  return undefined;
}

/** Failures that no other profile would change. */
const SILENT: ReadonlySet<AttemptFailure> = new Set([
  AttemptFailure.TIMEOUT,
  AttemptFailure.UNREACHABLE,
  AttemptFailure.UPSTREAM_AUTH,
  AttemptFailure.UPSTREAM_BUSY,
]);

const dimOf = ({ packed, steps }: ActAnswer): number => packed?.dim ?? steps[0]?.values.length ?? 0;

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
    const auth = authOf(values);
    // Addresses are unrestricted, because the user of the machine chose this one.
    const guard = { allowPrivate: true, dnsServers: undefined };
    const upstream = createUpstream(guard);
    const agent = guardedAgent(guard);
    try {
      const wire = upstream.wireOf(runtime);
      if (!wire || runtime === "limber-outbound" || runtime === "simulated")
        throw new Misuse(`--runtime must be one of ${dialed(upstream.runtimes).join(", ")}, got ${runtime}`);
      const live = (asked: Values) => {
        const record = recordOf(endpoint, runtime, asked);
        const parts = { vault: createVault(secretBytes(32)), upstream };
        const { offering, target, bounds } = liveOffering(record, undefined, parts);
        return { record, offering, target: { ...target, auth }, bounds };
      };
      const plain = live(values);
      const guesses =
        runtime === "openpi-ws" && values.profile === undefined && plain.offering.contracts[0] === Contract.ACT;
      const options = { agent, allowPrivate: true, timeoutMs: plain.offering.timeoutMs };
      const guess = guesses ? await guessProfile(wire, plain.target, options) : undefined;
      const { record, offering, target, bounds } = guess === undefined ? plain : live(withGuess(values, guess));
      const deps = { agent, allowPrivate: true, native: upstream.native, addressOf: upstream.addressOf };
      const { report } = await probe(deps, { offering, target, wire, bounds, record });
      // The region comes from a declaration, and there is none.
      report.checks = report.checks.filter(({ name }) => name !== "region");
      say(
        values.json
          ? JSON.stringify(toJson(ProbeReportSchema, report, { useProtoFieldName: true }))
          : tableOf(report, endpoint, runtime),
      );
      if (guesses) (values.json ? complain : say)(`\nAssumed ${wordsOf(guess, offering.actionSpaces)}`);
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

/** The command's options where the user gave them, otherwise the guess. */
const withGuess = (values: Values, { profile, actionSpace, actionDim }: Guess): Values => ({
  "action-space": actionSpace,
  "action-dim": `${actionDim}`,
  ...values,
  profile,
});

const wordsOf = (guess: Guess | undefined, spaces: readonly string[]): string =>
  guess === undefined
    ? `no profile (one image, and the state as it is) and ${spaces.join(", ")}: the server answered none of ${GUESSES.map(({ profile }) => profile).join(", ")}. Choose with --profile and --action-space.`
    : `the profile ${guess.profile} and ${spaces.join(", ")}: the server answers its observations with ${guess.actionDim} numbers per step. Choose others with --profile and --action-space.`;

const dialed = (runtimes: readonly string[]): string[] =>
  runtimes.filter((name) => name !== "limber-outbound" && name !== "simulated");
