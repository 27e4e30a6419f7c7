/** Publishes evaluations as signed documents, and ranks them. */
import { createPrivateKey, createPublicKey, type KeyObject } from "node:crypto";
import type { JsonObject, MessageInitShape } from "@bufbuild/protobuf";
import type { PublicationSchema } from "../../gen/limber/v1/publication_pb.ts";
import type { CreatePublicationRequest, PublicationService } from "../../gen/limber/v1/publication_service_pb.ts";
import { API_VERSION } from "../brand.ts";
import { byCall, type Implementation, type KeyPrincipal, keyOf } from "../call.ts";
import { nowSeconds } from "../clock.ts";
import { violation } from "../contracts/contract.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import { newId } from "../ids.ts";
import { secretBytes } from "../random.ts";
import { builtIn, digestOf, variantFor } from "../scenarios/index.ts";
import {
  comparisonFacts,
  completedDocument,
  type PublicJwk,
  type PublishedComparison,
  type PublishedDocument,
  type PublishedEpisode,
  type PublishedEvaluation,
  signed,
  thumbprintOf,
} from "../scenarios/published.ts";
import type { Scenario } from "../scenarios/scenario.ts";
import { type SuiteTask, sharesOf, taskFacts, taskOfFacts } from "../scenarios/suite.ts";
import { overallOf, type PublishedSuite } from "../scenarios/suite-published.ts";
import { audit } from "../store/account/audit.ts";
import { findOrg } from "../store/account/orgs.ts";
import {
  currentSigningKey,
  listSigningKeys,
  replaceSigningKey,
  type SigningKeyRecord,
  signingKeyContext,
} from "../store/account/signing-keys.ts";
import { type Sql, type Tx, tx } from "../store/database/tx.ts";
import { findJob, hasEnded, type JobRecord, jobsOfComparison } from "../store/jobs/jobs.ts";
import * as store from "../store/jobs/publications.ts";
import { type Vault, VaultError } from "../vault.ts";
import type { EvaluationRequest } from "./evaluation-run.ts";
import { Leaderboards } from "./leaderboard.ts";
import { DEFAULT_PAGE, readPage } from "./pages.ts";
import type { Controls } from "./publication-controls.ts";
import { type Draft, draftsOf, MOST_RECORDED, type PublishedModel, unpublishable } from "./publication-drafts.ts";

/** Dependencies of publications. */
interface PublicationDeps {
  sql: Sql;
  vault: Pick<Vault, "seal" | "open">;
  scenarios: ReadonlyMap<string, Scenario>;
  controls: Controls;
  /** The gateway's address. */
  home: string;
}

/** The fewest episodes that leaderboards count, and the most policies that they list. */
const FEWEST_RANKED = 50;
const MOST_RANKED = 100;

/** The publication RPCs. */
export function publicationService(deps: PublicationDeps): Implementation<typeof PublicationService> {
  const { sql, scenarios } = deps;
  const boards = new Leaderboards();
  return {
    async createPublication(asked, call) {
      const { orgId } = keyOf(call);
      const source = await sourceOf(sql, asked, keyOf(call));
      const { kind, subject, jobs } = source;
      const known = await store.publicationOf(sql, orgId, subject);
      if (known && !asked.dryRun) return { publication: shown(known) };
      const { drafts, recorded } = await draftsOf(sql, publishable(jobs));
      const evaluations = drafts.map(({ evaluation }) => evaluation);
      const runs = deps.controls.runsOf(evaluations);
      if (typeof runs === "string") throw unpublishable(runs);
      const controls = asked.dryRun ? [] : await deps.controls.of(orgId, runs, MOST_RECORDED - recorded);
      if (typeof controls === "string") throw unpublishable(controls);
      const id = asked.dryRun ? "" : newId("pub");
      const document = completedDocument({
        object: "publication",
        format: 1,
        id,
        title: asked.title,
        publisher: (await findOrg(sql, orgId))?.name ?? "",
        published_at: nowSeconds(),
        gateway: { version: API_VERSION, url: deps.home },
        evaluations,
        controls,
        ...(kind === "comparison" && { comparison: comparisonOf(jobs, drafts) }),
      });
      const discloses = disclosed(document);
      if (asked.dryRun) {
        const draft = { id, kind, subject, title: asked.title, created: document.published_at, withdrawn: undefined };
        return { publication: { ...shown(draft), path: "", discloses } };
      }
      await tx(sql, async (tx) => {
        const { key, kid } = await signingKey(tx, deps);
        const text = JSON.stringify(signed(document, key, kid));
        const results = resultsOf(drafts, document);
        const isNew = await store.addPublication(tx, orgId, { id, kind, subject, title: asked.title }, text, results);
        if (isNew)
          await audit(tx, { ...byCall(call), orgId, action: "publication.created", subject: id, details: { subject } });
      });
      const published = await store.publicationOf(sql, orgId, subject);
      if (!published) throw refuse(Reason.NOT_FOUND, "publication not found");
      return { publication: { ...shown(published), discloses } };
    },

    async listPublications({ limit = DEFAULT_PAGE, cursor }, call) {
      const { orgId } = keyOf(call);
      const { records, ...page } = await readPage(
        limit,
        (most) => store.listPublications(sql, orgId, { limit: most, cursor }),
        ({ id }) => id,
      );
      return { ...page, data: records.map(shown) };
    },

    async getPublication({ publicationId }) {
      const text = await store.publicText(sql, publicationId);
      if (text === undefined) throw notFound();
      return { document: JSON.parse(text) as JsonObject }; // written by this service
    },

    async withdrawPublication({ publicationId, reason }, call) {
      const { orgId } = keyOf(call);
      const known = await store.findPublication(sql, orgId, publicationId);
      if (!known) throw notFound();
      await tx(sql, async (tx) => {
        const { key, kid } = await signingKey(tx, deps);
        const notice = { object: "publication.withdrawal", id: publicationId, withdrawn_at: nowSeconds(), reason };
        const text = JSON.stringify(signed(notice, key, kid));
        if (await store.withdrawPublication(tx, orgId, publicationId, text))
          await audit(tx, { ...byCall(call), orgId, action: "publication.withdrawn", subject: publicationId });
      });
      return { publication: shown((await store.findPublication(sql, orgId, publicationId)) ?? known) };
    },

    async getLeaderboard({ scenario: name, actionSpace }) {
      if (name.startsWith("sha256:")) {
        const results = await store.resultsOf(sql, name, MOST_RANKED);
        const tasks = results[0] && (await boards.tasksOf(name, () => publishedTasks(sql, results[0]!.publicationId)));
        if (!tasks) throw refuse(Reason.NOT_FOUND, "no ranked comparison on this suite", {}, { param: "scenario" });
        if (actionSpace !== undefined) throw violation("action_space", "must be absent for a suite", "value_error");
        const data = await boards.of(results, tasks);
        return { object: "leaderboard", digest: name, tasks: [...tasks], data };
      }
      const scenario = scenarios.get(name) ?? builtIn(name);
      if (!scenario) throw refuse(Reason.NOT_FOUND, "scenario not found", {}, { param: "scenario" });
      const variant = variantFor(scenario, actionSpace);
      if (!variant) {
        const spaces = scenario.variants.map((each) => each.actionSpace);
        throw violation("action_space", `must be one of this scenario's: ${spaces.join(", ")}`, "enum", spaces);
      }
      const digest = digestOf(scenario, variant);
      const data = await boards.of(await store.resultsOf(sql, digest, MOST_RANKED));
      return { object: "leaderboard", scenario: scenario.id, digest, actionSpace: variant.actionSpace, data };
    },

    async listSigningKeys() {
      return { keys: (await listSigningKeys(sql)).map(jwkOf) };
    },

    async rotateSigningKey() {
      return { key: jwkOf((await tx(sql, (tx) => newSigningKey(tx, deps))).record) };
    },
  };
}

/** The tasks of the suite of a public publication. */
async function publishedTasks(sql: Sql, publicationId: string): Promise<SuiteTask[] | undefined> {
  const text = await store.publicText(sql, publicationId);
  if (text === undefined) return undefined;
  const { comparison } = JSON.parse(text) as Partial<PublishedDocument>; // written by this service
  return comparison?.suite?.tasks.map(taskOfFacts);
}

const notFound = (): Refusal => refuse(Reason.NOT_FOUND, "publication not found", {}, { param: "publication_id" });

const shown = ({ id, kind, subject, title, created, withdrawn }: store.PublicationRecord) =>
  ({
    id,
    object: "publication",
    ...(kind === "evaluation" ? { evaluationId: subject } : { comparisonId: subject }),
    title,
    publishedAt: created,
    ...(withdrawn !== undefined && { withdrawnAt: withdrawn }),
    path: `/v1/publications/${id}`,
  }) satisfies MessageInitShape<typeof PublicationSchema>;

/** The jobs to publish: one evaluation, or the evaluations of a comparison. */
async function sourceOf(sql: Sql, { evaluationId, comparisonId }: CreatePublicationRequest, key: KeyPrincipal) {
  if ((evaluationId === undefined) === (comparisonId === undefined))
    throw violation("evaluation_id", "must be set, or `comparison_id`, but not both", "oneof");
  const jobs =
    evaluationId !== undefined
      ? [await findJob(sql, key, "evaluation", evaluationId)].filter((job) => job !== undefined)
      : await jobsOfComparison(sql, key, comparisonId!);
  if (jobs.length === 0) {
    const [what, param] =
      evaluationId !== undefined ? ["evaluation", "evaluation_id"] : ["comparison", "comparison_id"];
    throw refuse(Reason.NOT_FOUND, `${what} not found`, {}, { param });
  }
  const kind = evaluationId !== undefined ? ("evaluation" as const) : ("comparison" as const);
  const open = jobs.find(({ status }) => !hasEnded(status));
  if (open) throw unpublishable(`this ${kind} is still running; publish it once it has completed`);
  const isWhole = ({ status }: JobRecord): boolean =>
    status === "completed" || (kind === "comparison" && status === "failed");
  const broken = jobs.find((job) => !isWhole(job));
  const failed = failedIn(jobs);
  if (!broken && inSuite(jobs[0]!) && jobs.every((job) => failed.has(labelOf(job))))
    throw unpublishable("each policy failed in a task of the suite");
  if (broken || !jobs.some(({ status }) => status === "completed"))
    throw unpublishable(`only a completed ${kind} can be published; this one is ${(broken ?? jobs[0]!).status}`);
  return { kind, subject: evaluationId ?? comparisonId!, jobs };
}

const placeOf = ({ request }: JobRecord) => (request as EvaluationRequest).comparison;
const inSuite = (job: JobRecord) => placeOf(job)?.inSuite;
const labelOf = (job: JobRecord): string => placeOf(job)?.label ?? "";

/** The labels of policies whose evaluations failed; on a suite, in any task. */
const failedIn = (jobs: readonly JobRecord[]): ReadonlySet<string> =>
  new Set(jobs.filter(({ status }) => status === "failed").map(labelOf));

/** The evaluations to publish: on a suite by task, and only of policies that failed in none. */
function publishable(jobs: readonly JobRecord[]): readonly JobRecord[] {
  const failed = failedIn(jobs);
  const completed = jobs.filter((job) => job.status === "completed" && !(inSuite(job) && failed.has(labelOf(job))));
  return completed.toSorted((a, b) => (inSuite(a)?.index ?? 0) - (inSuite(b)?.index ?? 0));
}

function comparisonOf(jobs: readonly JobRecord[], drafts: readonly Draft[]): PublishedComparison {
  const { metric, policies, stopWhenKnown: stop_when_known, inSuite } = placeOf(jobs[0]!)!;
  const tasks = new Map(jobs.map((job) => [placeOf(job)?.inSuite?.index ?? 0, placeOf(job)?.inSuite?.task]));
  const facts = [...tasks].toSorted(([a], [b]) => a - b).flatMap(([, task]) => (task ? taskFacts(task) : []));
  const suite = inSuite && { title: inSuite.suite.title, digest: inSuite.suite.digest, tasks: facts };
  const judged = { metric, policies, stop_when_known, ...(suite && { suite }) };
  const evaluations = drafts.map(({ evaluation }) => evaluation);
  return { ...judged, failed: [...failedIn(jobs)], ...comparisonFacts(evaluations, judged) };
}

/** What leaderboards and routing read of a publication. */
function resultsOf(drafts: readonly Draft[], { comparison }: PublishedDocument): store.PublishedResult[] {
  const { suite } = comparison ?? {};
  if (!suite) return drafts.flatMap(({ evaluation, policy }) => (policy && resultOf(evaluation, policy)) ?? []);
  const byLabel = Map.groupBy(drafts, ({ evaluation }) => evaluation.label ?? "");
  return [...byLabel].flatMap(([label, own]) => suiteResultOf(label, own, suite) ?? []);
}

/** Only evaluations that begin at seed 0, because publishers must not choose seeds. */
function resultOf(
  { label = "", scenario, seed, episodes, attempts }: PublishedEvaluation,
  { model, offering, revision }: PublishedModel,
): store.PublishedResult | undefined {
  if (seed !== 0 || scenario.mode !== "sync" || episodes.length < FEWEST_RANKED) return undefined;
  const outcomes = outcomesOf(episodes);
  const progress = episodes.reduce((sum, each) => sum + each.progress, 0) / episodes.length;
  const facts = { label, digest: scenario.digest, model, offeringId: offering, revision, attempts };
  return { ...facts, outcomes, rate: rateOf(outcomes), progress };
}

/** Only complete runs of a suite, by one offering. The suite sets the seeds. */
function suiteResultOf(
  label: string,
  drafts: readonly Draft[],
  { digest, tasks }: PublishedSuite,
): store.PublishedResult | undefined {
  const [first] = drafts;
  const ran = drafts.map(({ evaluation }) => evaluation);
  const episodes = ran.flatMap((each) => each.episodes);
  const isWhole = tasks.every((task, at) => ran[at]?.episodes.length === task.episodes);
  const isOne = drafts.every(({ policy }) => policy && policy.offering === first?.policy?.offering);
  const isSync = ran.every(({ scenario }) => scenario.mode === "sync");
  if (!first?.policy || !isWhole || !isOne || !isSync || episodes.length < FEWEST_RANKED) return undefined;
  const { model, offering, revision } = first.policy;
  const { success, progress } = overallOf(
    sharesOf(tasks),
    ran.map((each) => each.episodes),
  );
  const attempts = Math.max(...ran.map((each) => each.attempts));
  const facts = { label, digest, model, offeringId: offering, revision, attempts };
  return { ...facts, outcomes: outcomesOf(episodes), rate: success.mean, progress: progress.mean };
}

const outcomesOf = (episodes: readonly PublishedEpisode[]): string =>
  episodes.map(({ success }) => (success ? "1" : "0")).join("");

const rateOf = (outcomes: string): number => outcomes.replaceAll("0", "").length / outcomes.length;

/** What becomes public, in words. */
function disclosed({ publisher, evaluations, comparison }: PublishedDocument): string[] {
  const suite = comparison?.suite;
  // On a suite, each policy has an evaluation for every task.
  const policies = evaluations
    .filter(({ task = 0 }) => task === 0)
    .map(({ label, policy }) => {
      const { kind, model, provider, protocol, revision } = policy as {
        kind: string;
        model?: string;
        provider?: string;
        protocol?: string;
        revision?: string;
      };
      const name = label === undefined ? "the policy" : `policy ${label}`;
      if (kind === "server") return `${name}: a server that speaks ${protocol}, without its address`;
      return `${name}: the model ${model} of the provider ${provider}${revision === undefined ? "" : `, checkpoint ${revision}`}`;
    });
  const { scenario } = evaluations[0]!;
  const episodes = evaluations.reduce((sum, each) => sum + each.episodes.length, 0);
  return [
    `the organization's name: ${publisher}`,
    ...policies,
    suite
      ? `the suite ${JSON.stringify(suite.title)} with its ${suite.tasks.length} tasks, the seeds, and the scores`
      : `the scenario ${scenario.id} ${scenario.version}, the seeds, and the scores`,
    `every action and result of ${episodes} episodes`,
    `how often the policy was evaluated in this ${suite ? "suite" : "scenario"}`,
    "how controls do on the same seeds: zeros, random actions, and the scenario's reference controller",
    ...(comparison ? ["the paired differences of the policies"] : []),
  ];
}

// The signing key.

/** PKCS #8 of an Ed25519 private key, before its 32 bytes (RFC 8410). */
const PKCS8 = Buffer.from("302e020100300506032b657004220420", "hex");

const jwkOf = ({ id: kid, x }: SigningKeyRecord) => ({
  ...{ kty: "OKP", crv: "Ed25519", x },
  ...{ kid, alg: "EdDSA", use: "sig" },
});

/** The current key; a new one if there is none, or if its master key is lost. */
async function signingKey(tx: Tx, deps: PublicationDeps): Promise<{ key: KeyObject; kid: string }> {
  const current = await currentSigningKey(tx);
  if (current) {
    try {
      const opened = deps.vault.open(current.sealed, signingKeyContext(current.id));
      return { key: privateKey(opened), kid: current.id };
    } catch (thrown) {
      if (!(thrown instanceof VaultError)) throw thrown;
    }
  }
  const { key, record } = await newSigningKey(tx, deps);
  return { key, kid: record.id };
}

const privateKey = (base64: string): KeyObject =>
  createPrivateKey({ key: Buffer.from(base64, "base64"), format: "der", type: "pkcs8" });

/** Makes a new key the current one. */
async function newSigningKey(tx: Tx, { vault }: PublicationDeps) {
  const secret = Buffer.concat([PKCS8, secretBytes(32)]).toString("base64");
  const key = privateKey(secret);
  const jwk = createPublicKey(key).export({ format: "jwk" }) as unknown as PublicJwk; // an Ed25519 key
  const record = { id: thumbprintOf(jwk), x: jwk.x };
  await replaceSigningKey(tx, { ...record, sealed: vault.seal(secret, signingKeyContext(record.id)) });
  return { key, record };
}
