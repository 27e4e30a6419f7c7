/** Calls the policy of a published evaluation again on its seeds, and compares the results pair by pair. */
import { mcnemarExact, rateDifference } from "../src/scenarios/paired.ts";
import type { PublishedDocument, PublishedEpisode, PublishedEvaluation } from "../src/scenarios/published.ts";
import { FAULTS, type Termination } from "../src/scenarios/scenario.ts";
import { bootstrapMean, type Interval } from "../src/scenarios/scores.ts";
import {
  type Episode,
  type Evaluation,
  fieldsOf,
  followed,
  gatewayOf,
  Misuse,
  Refused,
  whole,
} from "./evaluate-gateway.ts";

/** The options of a live verification. */
export interface LiveOptions {
  readonly url?: string;
  readonly key?: string;
  readonly policy?: string;
  readonly label?: string;
  readonly episodes?: string;
  readonly "max-usd"?: string;
  readonly json?: string;
  readonly yes?: boolean;
}

/** A run that may cost more needs `--yes` or `--max-usd`. */
const FREE_TO_START_USD = 1;
/** The chance that a policy which has not changed is said to differ: half for success, half for the return. */
const ALPHA = 0.05;
/** With fewer seeds an interval of the return says nothing. */
const FEWEST = 5;
/** Relative difference of returns that another machine's last digits explain. */
const ROUNDING = 1e-9;

/** Runs the episodes again and prints each pair; resolves with whether the results are consistent. Throws `Misuse` and `Refused`. */
export async function liveAgrees(document: PublishedDocument, options: LiveOptions): Promise<boolean> {
  const evaluation = chosen(document, options.label);
  const { ask, url } = gatewayOf(options);
  const limit = amountOf(options["max-usd"]);
  const request = requestOf(evaluation, options);
  const draft = await draftOf(evaluation, request, async (body) => {
    const answer = await ask("/v1/evaluate", { method: "POST", body: JSON.stringify({ ...body, dry_run: true }) });
    return (await answer.json()) as Evaluation;
  });
  const { episodes_usd = 0, policy_calls_usd = 0, total_usd = 0 } = draft.shown.estimate ?? {};
  const cost = `${draft.body.episodes} episodes at ${url} cost up to ${usd(total_usd)}: ${usd(episodes_usd)} for episodes, ${usd(policy_calls_usd)} for calls`;
  if (limit !== undefined && episodes_usd >= limit)
    throw new Misuse(`${cost}; the episodes alone reach --max-usd ${limit}, so run fewer with --episodes`);
  const isOver = total_usd > (limit ?? FREE_TO_START_USD);
  if (isOver && limit === undefined && !options.yes)
    throw new Misuse(`${cost}; confirm with --yes, cap it with --max-usd, or run fewer with --episodes`);
  console.log(cost);
  const cap = isOver && limit !== undefined ? { max_calls_usd: limit - episodes_usd } : {};
  const answer = await ask("/v1/evaluate", { method: "POST", body: JSON.stringify({ ...draft.body, ...cap }) });
  const { id } = (await answer.json()) as Evaluation;
  console.log(`evaluation ${id}`);
  const ended = await followed(await ask(`/v1/evaluate/${id}/events`));
  return compared(evaluation, ended);
}

function chosen({ evaluations }: PublishedDocument, label: string | undefined): PublishedEvaluation {
  const found = label === undefined ? evaluations : evaluations.filter((each) => each.label === label);
  const [only] = found;
  if (only && found.length === 1) return only;
  const labels = evaluations.map((each) => each.label).join(", ");
  throw new Misuse(`--label must be one of the document's policies: ${labels}`);
}

function amountOf(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const amount = Number(text);
  if (!(amount > 0 && Number.isFinite(amount)))
    throw new Misuse(`--max-usd must be an amount in US dollars, not ${text}`);
  return amount;
}

/** The published evaluation as a request, without its scenario. */
function requestOf({ scenario, policy, seed, episodes }: PublishedEvaluation, options: LiveOptions) {
  const { kind, model, protocol, horizon, replan_steps, pictures, camera_map, state_map } = policy as {
    readonly kind: "model" | "server";
    readonly model?: string;
    readonly protocol?: string;
    readonly horizon?: number;
    readonly replan_steps?: number;
    readonly pictures: boolean;
    readonly camera_map?: object;
    readonly state_map?: object;
  };
  if (kind === "server" && options.policy === undefined)
    throw new Misuse(`the policy is a server whose address isn't published; give it with --policy`);
  if (options.policy === undefined && (typeof model !== "string" || model.includes("://")))
    throw new Misuse(
      `the document has no name of a model, but ${JSON.stringify(model)}; give the policy with --policy`,
    );
  const most = whole("episodes", options.episodes) ?? episodes.length;
  if (most < 1 || most > episodes.length)
    throw new Misuse(`--episodes must be between 1 and ${episodes.length}, got ${most}`);
  return {
    policy_endpoint: options.policy ?? model,
    ...(kind === "server" && { runtime: protocol }),
    ...{ seed, episodes: most, action_space: scenario.action_space, mode: scenario.mode },
    ...{ horizon, replan_steps, pictures, camera_map, state_map },
    ...fieldsOf(options.json),
  };
}

/** The request for the published scenario: the gateway's current version, or the published one. */
async function draftOf<R extends object>(
  { scenario }: PublishedEvaluation,
  request: R,
  dryRun: (body: object) => Promise<Evaluation>,
) {
  for (const name of [scenario.id, `${scenario.id}@${scenario.version}`]) {
    const body = { ...request, scenario: name };
    const shown = await dryRun(body);
    if (shown.scenario.digest === scenario.digest) return { body, shown };
  }
  throw new Refused(`the gateway's ${scenario.id} has another digest than the published one`);
}

/** An episode then and now. */
interface Pair {
  readonly then: PublishedEpisode;
  readonly now: Episode;
}

function compared({ episodes }: PublishedEvaluation, { id, status, error, per_episode }: Evaluation): boolean {
  const bySeed = new Map(episodes.map((episode) => [episode.seed, episode]));
  const all = per_episode.flatMap((now): Pair[] => {
    const then = bySeed.get(now.seed);
    return then ? [{ then, now }] : [];
  });
  // A timeout, then or now, does not tell how well the policy acts.
  const pairs = all.filter(({ then, now }) => now.status !== "error" && !FAULTS.has(then.termination as Termination));
  const faults = all.length - pairs.length;
  if (pairs.length === 0)
    throw new Refused(`${id} ${status} without a comparable episode: ${error?.message ?? "all had faults"}`);
  for (const { then, now } of pairs) console.log(rowOf(then, now));
  if (faults > 0) console.log(`${faults} episodes ended by a fault of the policy, and are not compared`);
  if (status !== "completed") console.log(`${id} is ${status}${error?.message ? `: ${error.message}` : ""}`);
  const onlyNow = pairs.filter(({ then, now }) => now.success && !then.success).length;
  const onlyThen = pairs.filter(({ then, now }) => then.success && !now.success).length;
  const returns = pairs.map(({ then, now }) => now.return - then.return);
  const p = mcnemarExact(onlyNow, onlyThen);
  const n = pairs.length;
  const success = rateDifference(onlyNow, onlyThen, n);
  console.log(
    `success, now minus then: ${figure((onlyNow - onlyThen) / n)}${within(success)}; ${onlyNow} seeds only now, ${onlyThen} only then; McNemar p = ${figure(p)}`,
  );
  console.log(`return, now minus then: ${figure(meanOf(returns))}${n > 1 ? within(bootstrapMean(returns)) : ""}`);
  const scale = Math.max(...pairs.map(({ then }) => Math.abs(then.return)));
  const isShifted = n >= FEWEST && !reaches(bootstrapMean(returns, ALPHA / 2), ROUNDING * scale);
  const agrees = p >= ALPHA / 2 && !isShifted;
  // A run that its own limit ended compares fewer seeds, as requested. Any other early end leaves the remaining seeds unchecked.
  if (agrees && status !== "completed" && error?.code !== "calls_budget_exhausted")
    throw new Refused(
      `${id} is ${status}, so some seeds are not compared; the compared ones (${n}) show no difference`,
    );
  console.log(
    agrees
      ? `consistent: ${n} seeds show no difference between then and now at 5 %`
      : `the live results differ from the published ones at 5 %`,
  );
  return agrees;
}

/** Whether an interval reaches zero, up to a tolerance. */
const reaches = ({ low, high }: Interval, tolerance: number): boolean => low <= tolerance && high >= -tolerance;

function rowOf(then: PublishedEpisode, now: Episode): string {
  const word = ({ success, termination }: { success: boolean; termination: string }): string =>
    (success ? "success" : termination).padEnd(13);
  const [was, is] = [`${word(then)} ${figure(then.return)}`, `${word(now)} ${figure(now.return)}`];
  return `  seed ${then.seed}  then ${was.padEnd(26)}  now ${is}${then.success === now.success ? "" : "  ≠"}`;
}

const meanOf = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
const figure = (value: number): string => String(Number(value.toPrecision(4)));
const within = ({ low, high }: Interval): string => ` [${figure(low)}, ${figure(high)}] at 95 %`;
const usd = (amount: number): string => `$${amount.toFixed(amount < 0.01 && amount > 0 ? 6 : 2)}`;
