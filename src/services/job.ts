/** Jobs: what is done later, and the batches that are made of many requests. */
import { create, type JsonObject, type MessageInitShape } from "@bufbuild/protobuf";
import { Contract } from "../../gen/limber/v1/contract_pb.ts";
import { InferenceService } from "../../gen/limber/v1/inference_service_pb.ts";
import {
  type Batch,
  BatchItemStatus,
  BatchResultSchema,
  BatchSchema,
  JobKind,
  JobSchema,
  JobStatus,
} from "../../gen/limber/v1/job_pb.ts";
import {
  CancelBatchResponseSchema,
  CreateBatchResponseSchema,
  GetBatchResponseSchema,
  type JobService,
  ListBatchResultsResponseSchema,
  ListJobsResponseSchema,
} from "../../gen/limber/v1/job_service_pb.ts";
import { toUsd } from "../billing/price.ts";
import { byCall, type Implementation, keyOf } from "../call.ts";
import { violation, wordOfContract } from "../contracts/contract.ts";
import { Reason, refuse } from "../errors.ts";
import { emit } from "../events/emit.ts";
import { audit } from "../store/account/audit.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import * as deps from "../store/jobs/job-items.ts";
import * as store from "../store/jobs/jobs.ts";
import { dataGone, type JobSeal, type JobSeals } from "./job/seal.ts";
import { DEFAULT_PAGE, readPage } from "./pages.ts";
import { assertMayCall } from "./permissions.ts";

/** Seconds that a batch has to run. */
const BATCH_LIFE_S = 24 * 3600;
/** Results that are read from the database at one time. */
const RESULTS_AT_ONCE = 25;
const SHOWN_ERRORS = 20;

/** What jobs depend on. */
export interface JobDeps {
  sql: Sql;
  seals: JobSeals;
}

/** The job RPCs. */
export function jobService({ sql, seals }: JobDeps): Implementation<typeof JobService> {
  const batchOf = async (whose: store.JobsOf, id: string): Promise<store.JobRecord> => {
    const job = await store.findJob(sql, whose, "batch", id);
    if (!job) throw refuse(Reason.NOT_FOUND, "there is no batch of this name", {}, { param: "job_id" });
    return job;
  };
  const shown = async (job: store.JobRecord): Promise<Batch> => shownBatch(sql, job, await seals.of(job));

  return {
    async createBatch({ contract, requests, metadata, idempotencyKey }, call) {
      const key = keyOf(call);
      const { orgId, keyId, workspaceId, settings } = key;
      const word = wordOfContract(contract);
      // A key asks for no call that it may not make itself. Its models are looked at with each request, when it runs.
      assertMayCall(key, InferenceService.method[word as keyof typeof CONTRACTS]);
      const items = requests.map(itemOf);
      refuseTwins(items);
      const open = { contract: word };
      const request = { ...open, metadata };
      const id = await tx(sql, (tx) =>
        store.createJob(tx, {
          kind: "batch",
          orgId,
          keyId,
          workspaceId,
          request,
          items,
          lifeS: BATCH_LIFE_S,
          seal: settings.zdr ? (id) => seals.fresh(id, { items, request: open }, { metadata }) : undefined,
          idempotency: seals.idempotent(key, idempotencyKey, [request, items]),
          known: () => call.replayed?.(),
        }),
      );
      return create(CreateBatchResponseSchema, { batch: await shown(await batchOf(key, id)) });
    },

    async getBatch({ jobId, items }, call) {
      const job = await batchOf(keyOf(call), jobId);
      const seal = await seals.of(job);
      const batch = await shownBatch(sql, job, seal);
      if (items) batch.items = (await deps.outlineOf(sql, jobId)).map((item) => outlined(seal.item(item)));
      return create(GetBatchResponseSchema, { batch });
    },

    async cancelBatch({ jobId }, call) {
      const key = keyOf(call);
      const { orgId } = key;
      await tx(sql, async (tx) => {
        const how = await store.cancelJob(tx, key, "batch", jobId);
        if (how === undefined)
          throw refuse(Reason.NOT_FOUND, "there is no batch of this name", {}, { param: "job_id" });
        if (how === "ended") throw refuse(Reason.JOB_FINISHED, "this batch has ended: there is nothing to call off");
        if (how === "cancelled") {
          const happening = { case: "batchCancelled", value: { jobId } } as const;
          await emit(tx, orgId, happening, await store.workspaceOf(tx, jobId));
        }
        await audit(tx, { ...byCall(call), orgId, action: "batch.cancelled", subject: jobId });
      });
      return create(CancelBatchResponseSchema, { batch: await shown(await batchOf(key, jobId)) });
    },

    async *listBatchResults({ jobId }, call) {
      const job = await batchOf(keyOf(call), jobId);
      const { total, status } = job;
      const seal = await seals.of(job);
      if (seal.gone) throw dataGone();
      for (let from = 0; from < total; from += RESULTS_AT_ONCE) {
        for (const item of await deps.listItems(sql, jobId, from, RESULTS_AT_ONCE)) {
          yield create(ListBatchResultsResponseSchema, { result: resultOf(jobId, seal.item(item)) });
        }
      }
      // Read to the end: where no data is retained, nothing of it is left from here on.
      if (store.hasEnded(status)) await seals.fetched(job);
    },

    async listJobs({ kind, limit = DEFAULT_PAGE, cursor }, call) {
      const only = kind === undefined ? undefined : wordOfKind(kind);
      const whose = keyOf(call);
      const { records, ...page } = await readPage(
        limit,
        (most) => store.listJobs(sql, whose, { kind: only, limit: most, cursor }),
        ({ id }) => id,
      );
      return create(ListJobsResponseSchema, { ...page, data: records.map(listed) });
    },
  };
}

const CUSTOM_ID_LETTERS = 256;

/** A request of a batch, its caller's own name for it taken out. */
function itemOf(given: JsonObject, index: number): { customId: string | undefined; request: object } {
  const { custom_id: customId, ...request } = given;
  if (customId === undefined || customId === null) return { customId: undefined, request };
  const path = `requests.${index}.custom_id`;
  if (typeof customId !== "string") throw violation(path, "must be text", "string_type");
  if (customId.length === 0 || customId.length > CUSTOM_ID_LETTERS)
    throw violation(path, `must have 1 to ${CUSTOM_ID_LETTERS} characters`, "string_length");
  return { customId, request };
}

function refuseTwins(items: readonly { customId: string | undefined }[]): void {
  const seen = new Set<string>();
  for (const [index, { customId }] of items.entries()) {
    if (customId === undefined) continue;
    if (seen.has(customId))
      throw violation(`requests.${index}.custom_id`, "is the name of an earlier request of this batch", "duplicate");
    seen.add(customId);
  }
}

const CONTRACTS = { act: Contract.ACT, predict: Contract.PREDICT } as const;

async function shownBatch(sql: Sql, kept: store.JobRecord, seal: JobSeal): Promise<Batch> {
  const job = seal.job(kept);
  const { contract, metadata } = job.request as { contract: keyof typeof CONTRACTS; metadata?: JsonObject };
  const failures = job.counts.failed > 0 && !seal.gone ? await deps.failuresOf(sql, job.id, SHOWN_ERRORS) : [];
  return create(BatchSchema, {
    id: job.id,
    object: "batch",
    contract: CONTRACTS[contract],
    status: statusOf(job),
    requestCounts: { total: job.total, ...job.counts },
    createdAt: job.created,
    ...(job.started !== undefined && { startedAt: job.started }),
    ...(job.finalizing !== undefined && { finalizingAt: job.finalizing }),
    ...(job.finished !== undefined && { completedAt: job.finished }),
    expiresAt: job.expires,
    costUsd: toUsd(job.costMicro),
    errors: failures.map((item) => ({ index: item.index, ...wordsOfError(seal.item(item).error) })),
    ...(metadata && { metadata }),
  });
}

/** What a refusal's body says in two words. */
function wordsOfError(error: object | undefined): { code: string; message: string } {
  const { code = "", message = "" } =
    (error as { error?: { code?: string; message?: string } } | undefined)?.error ?? {};
  return { code, message };
}

/** The words of a job's status, in the schema's numbers. */
export const statusOf = ({ status }: Pick<store.JobRecord, "status">): JobStatus =>
  JobStatus[status.toUpperCase() as keyof typeof JobStatus]; // the store's words are the schema's in lower case

const ITEM_STATUS: Readonly<Record<deps.ItemState, BatchItemStatus>> = {
  queued: BatchItemStatus.QUEUED,
  running: BatchItemStatus.RUNNING,
  completed: BatchItemStatus.COMPLETED,
  failed: BatchItemStatus.FAILED,
  cancelled: BatchItemStatus.CANCELLED,
};

const outlined = ({ index, customId, state, costMicro }: Awaited<ReturnType<typeof deps.outlineOf>>[number]) => ({
  $typeName: "limber.v1.BatchItem" as const,
  index,
  ...(customId !== undefined && { customId }),
  status: ITEM_STATUS[state],
  costUsd: toUsd(costMicro),
});

function resultOf(jobId: string, { index, customId, state, response, error }: deps.ItemRecord) {
  const { status_code: statusCode, body } = (response ?? {}) as { status_code?: number; body?: JsonObject };
  const result: MessageInitShape<typeof BatchResultSchema> = {
    id: `${jobId}.${index}`,
    index,
    status: ITEM_STATUS[state],
    ...(customId !== undefined && { customId }),
    ...(statusCode !== undefined && body && { response: { statusCode, body } }),
    ...(error && { error: error as JsonObject }),
  };
  return create(BatchResultSchema, result);
}

const KINDS: Readonly<Record<store.JobKind, JobKind>> = {
  batch: JobKind.BATCH,
  evaluation: JobKind.EVALUATION,
  verification: JobKind.VERIFICATION,
  export: JobKind.EXPORT,
};

const wordOfKind = (kind: JobKind): store.JobKind | undefined =>
  (Object.keys(KINDS) as store.JobKind[]).find((word) => KINDS[word] === kind);

function listed(job: store.JobRecord) {
  const { completed, failed, cancelled } = job.counts;
  return create(JobSchema, {
    id: job.id,
    object: "job",
    kind: KINDS[job.kind],
    status: statusOf(job),
    total: job.total,
    ended: completed + failed + cancelled,
    createdAt: job.created,
    ...(job.started !== undefined && { startedAt: job.started }),
    ...(job.finished !== undefined && { finishedAt: job.finished }),
    costUsd: toUsd(job.costMicro),
  });
}
