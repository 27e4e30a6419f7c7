/** Suites: weighted tasks on which policies are compared. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { SuiteSchema } from "../../gen/limber/v1/suite_pb.ts";
import type { CreateSuiteRequest, NewSuiteTask, SuiteService } from "../../gen/limber/v1/suite_service_pb.ts";
import { byCall, type Implementation, keyOf } from "../call.ts";
import { violation } from "../contracts/contract.ts";
import { atPart, Reason, refuse } from "../errors.ts";
import { newId } from "../ids.ts";
import { digestOf } from "../scenarios/index.ts";
import { type SuiteTask, suiteDigestOf, taskFacts } from "../scenarios/suite.ts";
import { audit } from "../store/account/audit.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import * as store from "../store/jobs/suites.ts";
import { type EvaluationServiceDeps, MOST_SEED, variantOf } from "./evaluation.ts";
import { DEFAULT_PAGE, readPage } from "./pages.ts";

/** Dependencies of suites. */
interface SuiteDeps extends Pick<EvaluationServiceDeps, "scenarios" | "catalogued"> {
  readonly sql: Sql;
}

/** Episodes of all tasks: a comparison has at least two policies, and 10,000 episodes at most. */
const MOST_EPISODES = 5_000;

/** The suite RPCs. */
export function suiteService(deps: SuiteDeps): Implementation<typeof SuiteService> {
  const { sql } = deps;
  return {
    async createSuite(asked, call) {
      const { orgId } = keyOf(call);
      const tasks = tasksOf(deps, asked);
      const suite = { id: newId("suite"), title: asked.title, digest: suiteDigestOf(tasks.map(taskFacts)), tasks };
      await tx(sql, async (tx) => {
        await store.addSuite(tx, orgId, suite);
        const details = { digest: suite.digest };
        await audit(tx, { ...byCall(call), orgId, action: "suite.created", subject: suite.id, details });
      });
      return { suite: shown(await suiteOf(sql, orgId, suite.id)) };
    },

    async listSuites({ limit = DEFAULT_PAGE, cursor }, call) {
      const { orgId } = keyOf(call);
      const { records, ...page } = await readPage(
        limit,
        (most) => store.listSuites(sql, orgId, { limit: most, cursor }),
        ({ id }) => id,
      );
      return { ...page, data: records.map(stored).map(shown) };
    },

    async getSuite({ suiteId }, call) {
      return { suite: shown(await suiteOf(sql, keyOf(call).orgId, suiteId)) };
    },

    async archiveSuite({ suiteId }, call) {
      const { orgId } = keyOf(call);
      await tx(sql, async (tx) => {
        if (await store.archiveSuite(tx, orgId, suiteId))
          await audit(tx, { ...byCall(call), orgId, action: "suite.archived", subject: suiteId });
      });
      return { suite: shown(await suiteOf(sql, orgId, suiteId)) };
    },
  };
}

/** A suite with its tasks. */
export interface StoredSuite extends Omit<store.SuiteRecord, "tasks"> {
  readonly tasks: readonly SuiteTask[];
}

/** A suite of an organization, archived or not. Refuses if there is none, and names the field. */
export async function suiteOf(sql: Sql, orgId: string, id: string, param = "suite_id"): Promise<StoredSuite> {
  const suite = await store.findSuite(sql, orgId, id);
  if (!suite) throw refuse(Reason.NOT_FOUND, "suite not found", {}, { param });
  return stored(suite);
}

// Its tasks were written by this service.
const stored = (suite: store.SuiteRecord): StoredSuite => suite as StoredSuite;

/** The tasks of a new suite, bound to their scenarios' digests. Refusals name the task. */
function tasksOf(deps: SuiteDeps, { tasks: asked }: CreateSuiteRequest): SuiteTask[] {
  const tasks: SuiteTask[] = [];
  for (const [i, each] of asked.entries()) {
    const task = taskOf(deps, each, i);
    const same = tasks.findIndex(
      ({ digest, instruction }) => digest === task.digest && instruction === task.instruction,
    );
    if (same >= 0) {
      const text = `repeats tasks.${same}: the same scenario, action space and instruction; raise its \`weight\` or \`episodes\``;
      throw violation(`tasks.${i}`, text, "value_error");
    }
    tasks.push(task);
  }
  const episodes = episodesOf(tasks);
  if (episodes > MOST_EPISODES)
    throw violation("tasks", `must have at most ${MOST_EPISODES} episodes together, got ${episodes}`, "too_long");
  return tasks;
}

function taskOf(deps: SuiteDeps, { seed = 0, weight = 1, ...asked }: NewSuiteTask, index: number): SuiteTask {
  const { episodes, instruction } = asked;
  if (seed + episodes - 1 > MOST_SEED) {
    const text = `must be at most ${MOST_SEED - episodes + 1} for ${episodes} episodes, got ${seed}`;
    throw violation(`tasks.${index}.seed`, text, "less_than_equal");
  }
  try {
    const { scenario, variant } = variantOf(deps, asked);
    const { actionSpace } = variant;
    const pin = { scenario: scenario.id, version: scenario.version, digest: digestOf(scenario, variant), actionSpace };
    return { ...pin, ...(instruction !== undefined && { instruction }), episodes, seed, weight };
  } catch (thrown) {
    throw atPart(thrown, `task ${index}`, (path) => `tasks.${index}.${path}`);
  }
}

/** Episodes of all tasks. */
export const episodesOf = (tasks: readonly SuiteTask[]): number =>
  tasks.reduce((sum, { episodes }) => sum + episodes, 0);

const shown = (suite: StoredSuite) =>
  ({
    id: suite.id,
    object: "suite",
    title: suite.title,
    digest: suite.digest,
    tasks: suite.tasks.map(({ instruction, ...task }) => ({
      ...task,
      ...(instruction !== undefined && { instruction }),
    })),
    episodes: episodesOf(suite.tasks),
    createdAt: suite.created,
    ...(suite.archived !== undefined && { archivedAt: suite.archived }),
  }) satisfies MessageInitShape<typeof SuiteSchema>;
