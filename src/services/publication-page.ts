/** The page of a publication, for people: everything that its document says, without the actions. */
import { BRAND } from "../brand.ts";
import type { PublishedControls, PublishedDocument, PublishedEvaluation } from "../scenarios/published.ts";
import type { Interval } from "../scenarios/scores.ts";
import type { PublishedSuite } from "../scenarios/suite-published.ts";

/** The headers of the page: it loads nothing, and is short-lived in caches because a publication can be withdrawn. */
export const PAGE_HEADERS = [
  ...[
    "content-type",
    "text/html; charset=utf-8",
    "x-content-type-options",
    "nosniff",
    "referrer-policy",
    "no-referrer",
  ],
  ...["cache-control", "public, max-age=60", "vary", "accept"],
  "content-security-policy",
  "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
] as const;

/** The most seeds in the table; the document has all. */
const MOST_SEEDS = 1_000;

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};
const escaped = (value: unknown): string => String(value ?? "").replaceAll(/[&<>"']/g, (letter) => ENTITIES[letter]!);

const figure = (value: number | undefined): string =>
  value === undefined ? "–" : String(Number(value.toPrecision(4)));
const within = (interval: Interval | undefined): string =>
  interval ? ` [${figure(interval.low)}, ${figure(interval.high)}]` : "";
const dateOf = (unixSeconds: number): string => new Date(unixSeconds * 1000).toISOString().slice(0, 10);

const row = (tag: "td" | "th", cells: readonly unknown[]): string =>
  `<tr>${cells.map((cell) => `<${tag}>${escaped(cell)}</${tag}>`).join("")}</tr>`;
const table = (head: readonly unknown[], rows: readonly (readonly unknown[])[]): string =>
  `<table>${row("th", head)}${rows.map((cells) => row("td", cells)).join("\n")}</table>`;

/** The notice of a withdrawal. */
interface Withdrawal {
  readonly object: "publication.withdrawal";
  readonly id: string;
  readonly withdrawn_at: number;
  readonly reason: string;
}

/** Scores of a published evaluation, as far as the page shows them. */
interface ShownScores {
  readonly success_rate: {
    readonly value: number;
    readonly successes: number;
    readonly n: number;
    readonly ci95: Interval;
  };
  readonly return: { readonly mean: number; readonly ci95?: Interval };
  readonly progress: { readonly mean: number };
}

/** A pair of a published comparison, as far as the page shows it. */
interface ShownPair {
  readonly a: string;
  readonly b: string;
  readonly n: number;
  readonly success: { readonly mean: number; readonly ci95?: Interval };
  readonly better?: string;
}

/** A policy's weighted means, as far as the page shows them. */
interface ShownOverall {
  readonly label: string;
  readonly success: { readonly mean: number; readonly ci95?: Interval };
  readonly progress: { readonly mean: number; readonly ci95?: Interval };
}

/** Returns the page of a publication's document, or of the notice that replaced it. */
export function publicationPage(document: unknown): string {
  // Written by this gateway's service.
  const known = document as PublishedDocument | Withdrawal;
  if (known.object === "publication.withdrawal")
    return page("Withdrawn publication", [
      `<p>The publication <code>${escaped(known.id)}</code> was withdrawn on ${dateOf(known.withdrawn_at)}.</p>`,
      known.reason === "" ? "" : `<p>Reason: ${escaped(known.reason)}</p>`,
    ]);
  const { title, publisher, published_at: at, evaluations, comparison, controls, gateway, id } = known;
  const { scenario } = evaluations[0]!;
  const [name, url] = [title === "" ? id : title, `${gateway.url}/v1/publications/${id}`];
  return page(name, [
    `<p>Published by ${escaped(publisher)} on ${dateOf(at)}.</p>`,
    ...(comparison?.suite
      ? suiteParts(comparison.suite, comparison.overall as ShownOverall[])
      : [
          table(
            ["Scenario", "Version", "Action space", "Mode", "Engine"],
            [
              [
                scenario.id,
                scenario.version,
                scenario.action_space,
                scenario.mode,
                `${scenario.engine} ${scenario.engine_version}`,
              ],
            ],
          ),
        ]),
    "<h2>Policies</h2>",
    table(
      ["", "Policy", "Success, 95 % interval", "Return", "Progress", "Attempts"],
      [...evaluations.map(policyRow), ...controls.flatMap((each) => controlRows(each, comparison?.suite))],
    ),
    ...evaluations.flatMap((evaluation) => controls.flatMap((each) => doubtsOf(evaluation, each))),
    ...(comparison ? ["<h2>Paired differences</h2>", pairsTable(comparison.pairs as ShownPair[])] : []),
    "<h2>Verify</h2>",
    `<pre>npx ${BRAND} evaluate verify ${escaped(url)}</pre>`,
    "<p>It checks the signature, recomputes the digests and the scores, and replays every action in the same scenario, those of the controls too.</p>",
    "<h2>Digests</h2>",
    table(
      ["", "Digest"],
      [
        ...evaluations.flatMap(digestRows),
        ...controls.flatMap((each) => controlHashes(each, comparison?.suite)),
        ...Object.entries(known.digests),
      ],
    ),
    "<h2>Episodes</h2>",
    ...[...Map.groupBy(evaluations, ({ task }) => task).values()].map(seedsTable),
  ]);
}

const labelOf = ({ label = "", task }: PublishedEvaluation): string =>
  task === undefined ? label : `${label}, task ${task}`;

/** The suite of a comparison, and the policies' weighted means. */
const suiteParts = ({ title, digest, tasks }: PublishedSuite, overall: readonly ShownOverall[]): string[] => [
  `<p>Suite ${escaped(title)}, <code>${escaped(digest)}</code></p>`,
  table(
    ["Task", "Scenario", "Version", "Action space", "Instruction", "Seeds", "Weight"],
    tasks.map(({ scenario, version, action_space, instruction, seed, episodes, weight }, task) => [
      ...[task, scenario, version, action_space, instruction ?? "the scenario's"],
      ...[`${seed} to ${seed + episodes - 1}`, weight],
    ]),
  ),
  "<h2>Overall</h2>",
  table(
    ["", "Weighted success, 95 % interval", "Weighted progress"],
    overall.map(({ label, success, progress }) => [
      label,
      ...[success, progress].map(({ mean, ci95 }) => `${figure(mean)}${within(ci95)}`),
    ]),
  ),
];

/** Success, return and progress. */
function scoreCells(scores: object): unknown[] {
  const { success_rate: success, return: returned, progress } = scores as ShownScores;
  return [
    `${figure(success.value)}${within(success.ci95)}, ${success.successes} of ${success.n}`,
    `${figure(returned.mean)}${within(returned.ci95)}`,
    figure(progress.mean),
  ];
}

function policyRow(evaluation: PublishedEvaluation): unknown[] {
  const policy = evaluation.policy as { kind: string; model?: string; provider?: string; protocol?: string };
  const name =
    policy.kind === "model" ? `${policy.model} (${policy.provider})` : `a server that speaks ${policy.protocol}`;
  return [labelOf(evaluation), name, ...scoreCells(evaluation.scores), evaluation.attempts];
}

const CONTROL_NAMES = { zero: "sends zeros", random: "acts at random", reference: "" } as const;

/** A control, and on a suite the tasks whose scenario and seeds it plays: `control, tasks 0 and 2`. */
function controlName({ scenario, seed }: PublishedControls, suite: PublishedSuite | undefined): string {
  const tasks = suite?.tasks.flatMap((task, at) => (task.digest === scenario.digest && task.seed === seed ? at : []));
  if (tasks === undefined || tasks.length === 0) return "control";
  return `control, task${tasks.length > 1 ? "s" : ""} ${tasks.join(" and ")}`;
}

const controlRows = (controls: PublishedControls, suite: PublishedSuite | undefined): unknown[][] =>
  controls.arms.map(({ control, model, scores }) => [
    ...[controlName(controls, suite), CONTROL_NAMES[control] || model],
    ...[...scoreCells(scores), "–"],
  ]);

const controlHashes = (controls: PublishedControls, suite: PublishedSuite | undefined): unknown[][] =>
  controls.arms.map(({ control, hash }) => [`${controlName(controls, suite)}: ${control} trajectories`, hash]);

/** A sentence for each control without skill that may succeed as often as the policy. */
function doubtsOf({ label, task, scenario, seed, scores }: PublishedEvaluation, controls: PublishedControls): string[] {
  if (controls.scenario.digest !== scenario.digest || controls.seed !== seed) return [];
  const policy = (scores as ShownScores).success_rate;
  return controls.arms
    .filter(
      ({ control, scores }) =>
        control !== "reference" && policy.ci95.low <= (scores as ShownScores).success_rate.ci95.high,
    )
    .map(({ control }) => {
      const name = label === undefined ? "The policy" : `Policy ${label}`;
      const where = task === undefined ? "" : ` in task ${task} (${scenario.id})`;
      return `<p><strong>${escaped(name + where)} is not known to succeed more often than a control that ${CONTROL_NAMES[control]}.</strong></p>`;
    });
}

const pairsTable = (pairs: readonly ShownPair[]): string =>
  table(
    ["Pair", "Seeds", "Difference of success, 95 % interval", "Better"],
    pairs.map(({ a, b, n, success, better }) => [
      ...[`${a} − ${b}`, n, `${figure(success.mean)}${within(success.ci95)}`],
      better === undefined ? "not known" : better,
    ]),
  );

const digestRows = (evaluation: PublishedEvaluation): unknown[][] =>
  Object.entries({
    ...evaluation.digests,
    "scenario rules": evaluation.scenario.digest,
    trajectories: evaluation.hash,
  }).map(([name, digest]) => [`${labelOf(evaluation)} ${name}`.trim(), digest]);

/** One line per seed, one column per policy. */
function seedsTable(evaluations: readonly PublishedEvaluation[]): string {
  const longest = evaluations.reduce((a, b) => (b.episodes.length > a.episodes.length ? b : a));
  const rows = longest.episodes.slice(0, MOST_SEEDS).map(({ seed }, i) => [
    seed,
    ...evaluations.map(({ episodes }) => {
      const episode = episodes[i];
      return episode ? `${episode.success ? "success" : episode.termination}, return ${figure(episode.return)}` : "–";
    }),
  ]);
  const rest = longest.episodes.length - rows.length;
  const note = rest > 0 ? `<p>${rest} more seeds are in the JSON document.</p>` : "";
  return table(["Seed", ...evaluations.map((each) => labelOf(each) || "Result")], rows) + note;
}

const page = (title: string, parts: readonly string[]): string => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escaped(title)}</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}table{border-collapse:collapse}th,td{text-align:left;padding:.2rem .8rem .2rem 0;border-bottom:1px solid #ccc;overflow-wrap:anywhere}pre{overflow-x:auto;background:#f4f4f4;padding:.6rem}</style>
</head>
<body>
<h1>${escaped(title)}</h1>
${parts.join("\n")}
</body>
</html>
`;
