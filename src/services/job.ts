/** Jobs: deferred work, and batches of many requests. */

import { createHash } from "node:crypto";
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
import { type JobService, ListBatchResultsResponseSchema } from "../../gen/limber/v1/job_service_pb.ts";
import { toUsd } from "../billing/price.ts";
import { byCall, type Implementation, type KeyPrincipal, keyOf, lineOf } from "../call.ts";
import { enumOf, enumWord, violation, wordOfContract } from "../contracts/contract.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import { emit } from "../events/emit.ts";
import { audit } from "../store/account/audit.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import * as deps from "../store/jobs/jobs.ts";
import * as store from "../store/jobs/jobs.ts";
import {
  findJobKey,
  forgetJobKey,
  type ItemEnd,
  type ItemRecord,
  type JobIdempotency,
  type JobRecord,
  jobKeyContext,
  type NewJob,
} from "../store/jobs/jobs.ts";
import { type DataKey, type Vault, VaultError } from "../vault.ts";
import { DEFAULT_PAGE, readPage } from "./pages.ts";
import { assertMayCall } from "./permissions.ts";

/** Time limit of a batch in seconds. */
const BATCH_LIFE_S = 24 * 3600;
/** Results per database read. */
const RESULTS_AT_ONCE = 25;
const SHOWN_ERRORS = 20;

/** Dependencies of jobs. */
interface JobDeps {
  sql: Sql;
  seals: JobSeals;
}

/** The job RPCs. */
export function jobService({ sql, seals }: JobDeps): Implementation<typeof JobService> {
  const batchOf = async (whose: store.JobsOf, id: string): Promise<store.JobRecord> => {
    const job = await store.findJob(sql, whose, "batch", id);
    if (!job) throw refuse(Reason.NOT_FOUND, "batch not found", {}, { param: "job_id" });
    return job;
  };
  const shown = async (job: store.JobRecord): Promise<Batch> => shownBatch(sql, job, await seals.of(job));

  return {
    async createBatch({ contract, requests, metadata, idempotencyKey }, call) {
      const key = keyOf(call);
      const { orgId, keyId, workspaceId, settings } = key;
      const word = wordOfContract(contract);
      // A key can request only calls that it may make itself. Its models are checked with each request when it runs.
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
      return { batch: await shown(await batchOf(key, id)) };
    },

    async getBatch({ jobId, items }, call) {
      const job = await batchOf(keyOf(call), jobId);
      const seal = await seals.of(job);
      const batch = await shownBatch(sql, job, seal);
      if (items) batch.items = (await deps.outlineOf(sql, jobId)).map((item) => outlined(seal.item(item)));
      return { batch };
    },

    async cancelBatch({ jobId }, call) {
      const key = keyOf(call);
      const { orgId } = key;
      await tx(sql, async (tx) => {
        const how = await store.cancelJob(tx, key, "batch", jobId);
        if (how === undefined) throw refuse(Reason.NOT_FOUND, "batch not found", {}, { param: "job_id" });
        if (how === "ended") throw refuse(Reason.JOB_FINISHED, "this batch has already ended");
        if (how === "cancelled") {
          const happening = { case: "batchCancelled", value: { jobId } } as const;
          await emit(tx, orgId, happening, await store.workspaceOf(tx, jobId));
        }
        await audit(tx, { ...byCall(call), orgId, action: "batch.cancelled", subject: jobId });
      });
      return { batch: await shown(await batchOf(key, jobId)) };
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
      // The results were read to the end: with zero data retention they are deleted now.
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
      return { ...page, data: records.map(listed) };
    },
  };
}

const CUSTOM_ID_LETTERS = 256;

/** A request of a batch without the caller's id for it. */
function itemOf(given: JsonObject, index: number): { customId: string | undefined; request: object } {
  const { custom_id: customId, ...request } = given;
  if (customId === undefined || customId === null) return { customId: undefined, request };
  const path = `requests.${index}.custom_id`;
  if (typeof customId !== "string") throw violation(path, "must be a string", "string_type");
  if (customId.length === 0 || customId.length > CUSTOM_ID_LETTERS)
    throw violation(path, `must have 1 to ${CUSTOM_ID_LETTERS} characters`, "string_length");
  return { customId, request };
}

function refuseTwins(items: readonly { customId: string | undefined }[]): void {
  const seen = new Set<string>();
  for (const [index, { customId }] of items.entries()) {
    if (customId === undefined) continue;
    if (seen.has(customId))
      throw violation(
        `requests.${index}.custom_id`,
        "must be unique in the batch; an earlier request has it",
        "duplicate",
      );
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

/** The code and message of a refusal's body. */
function wordsOfError(error: object | undefined): { code: string; message: string } {
  const { code = "", message = "" } =
    (error as { error?: { code?: string; message?: string } } | undefined)?.error ?? {};
  return { code, message };
}

/** Job statuses as the schema's enum values. */
export const statusOf = ({ status }: Pick<store.JobRecord, "status">): JobStatus =>
  JobStatus[status.toUpperCase() as keyof typeof JobStatus]; // the store's words are the schema's in lower case

const outlined = ({ index, customId, state, costMicro }: Awaited<ReturnType<typeof deps.outlineOf>>[number]) => ({
  $typeName: "limber.v1.BatchItem" as const,
  index,
  ...(customId !== undefined && { customId }),
  status: enumOf(BatchItemStatus, state),
  costUsd: toUsd(costMicro),
});

function resultOf(jobId: string, { index, customId, state, response, error }: deps.ItemRecord) {
  const { status_code: statusCode, body } = (response ?? {}) as { status_code?: number; body?: JsonObject };
  const result: MessageInitShape<typeof BatchResultSchema> = {
    id: `${jobId}.${index}`,
    index,
    status: enumOf(BatchItemStatus, state),
    ...(customId !== undefined && { customId }),
    ...(statusCode !== undefined && body && { response: { statusCode, body } }),
    ...(error && { error: error as JsonObject }),
  };
  return create(BatchResultSchema, result);
}

const wordOfKind = (kind: JobKind): store.JobKind | undefined => enumWord(JobKind, kind);

function listed(job: store.JobRecord) {
  const { completed, failed, cancelled } = job.counts;
  return create(JobSchema, {
    id: job.id,
    object: "job",
    kind: enumOf(JobKind, job.kind as Exclude<store.JobKind, "share">), // shares are not listed
    status: statusOf(job),
    total: job.total,
    ended: completed + failed + cancelled,
    createdAt: job.created,
    ...(job.started !== undefined && { startedAt: job.started }),
    ...(job.finished !== undefined && { finishedAt: job.finished }),
    costUsd: toUsd(job.costMicro),
  });
}

// The caller's data in a job. With zero data retention it is sealed under a key that is deleted with the job.

/** A sealed value, as stored in a JSON column. */
interface Sealed {
  readonly sealed: string;
}

/** Reads and writes one job's data. */
export interface JobSeal {
  /** Whether the sealed data can no longer be read: it was fetched or has expired. */
  readonly gone: boolean;
  /** The job with its sealed data, as far as it is readable. */
  job<T extends JobRecord>(kept: T): T;
  /** A part with its sealed data, as far as it is readable. */
  item<T extends Partial<ItemRecord> & { readonly index: number }>(kept: T): T;
  /** Seals the outcome of a part for storage. */
  end(end: ItemEnd): ItemEnd;
  /** Seals the job's result for storage. `open` is the unsealed part. */
  result(result: object, open?: object): object;
}

/** Seals the data of jobs. */
export class JobSeals {
  readonly #sql: Sql;
  readonly #vault: Vault;

  constructor(sql: Sql, vault: Vault) {
    this.#sql = sql;
    this.#vault = vault;
  }

  /** Seals a new job under its own key: the request's `secret` and all parts. */
  fresh(id: string, { items, request }: Pick<NewJob, "items" | "request">, secret: object) {
    const { wrapped, key } = this.#vault.dataKey(jobKeyContext(id));
    return {
      wrapped,
      request: { ...request, ...sealedBy(key, secret, "request") },
      items: items.map(({ customId, request }, index) => ({
        customId: customId === undefined ? undefined : sealedBy(key, customId, `${index}.custom_id`).sealed,
        request: sealedBy(key, request, `${index}.request`),
      })),
    };
  }

  /** The stored hashes of a key's request, under its idempotency key. */
  idempotent(principal: KeyPrincipal, key: string | undefined, asked: object): JobIdempotency | undefined {
    const { orgId, workspaceId, settings } = principal;
    if (key === undefined) return undefined;
    const hash = createHash("sha256").update(JSON.stringify(asked)).digest();
    const hashes = this.#vault.hashes(hash, settings.zdr, JSON.stringify(["job", orgId, workspaceId ?? "", key]));
    return { key, line: lineOf(principal), ...hashes };
  }

  /** The reader and writer of an existing job. */
  async of(job: Pick<JobRecord, "id" | "sealed">): Promise<JobSeal> {
    if (!job.sealed) return PLAIN;
    const wrapped = await findJobKey(this.#sql, job.id);
    if (wrapped === undefined) return GONE;
    try {
      return new SealedKey(this.#vault.openDataKey(wrapped, jobKeyContext(job.id)));
    } catch (thrown) {
      // Its master key is no longer loaded.
      if (thrown instanceof VaultError) return GONE;
      throw thrown;
    }
  }

  /** Deletes the key of a fetched job, so its sealed data becomes unreadable. */
  async fetched(job: JobRecord): Promise<void> {
    if (job.sealed) await forgetJobKey(this.#sql, job);
  }
}

/** The refusal if zero-retention results were already fetched or have expired. */
const dataGone = (): Refusal =>
  refuse(
    Reason.DATA_GONE,
    "the results were already fetched or have expired; your organization retains no data, so they were deleted",
  );

const PLAIN: JobSeal = {
  gone: false,
  job: (kept) => kept,
  item: (kept) => kept,
  end: (end) => end,
  result: (result) => result,
};

const without = <T extends object>(kept: T): T => {
  const { sealed: _, ...open } = kept as T & Partial<Sealed>;
  return open as T; // the unsealed fields
};

const GONE: JobSeal = {
  gone: true,
  job: (kept) => ({ ...kept, request: without(kept.request), result: kept.result && without(kept.result) }),
  item: (kept) => ({ ...kept, customId: undefined, request: undefined, response: undefined, error: undefined }),
  end: ({ index, state, costMicro }) => ({ index, state, costMicro }),
  result: (_, open = {}) => open,
};

class SealedKey implements JobSeal {
  readonly gone = false;
  readonly #key: DataKey;

  constructor(key: DataKey) {
    this.#key = key;
  }

  job<T extends JobRecord>(kept: T): T {
    const { request, result } = kept;
    return {
      ...kept,
      request: { ...without(request), ...(this.#open(request, "request") as object) },
      result: result && { ...without(result), ...(this.#open(result, "result") as object) },
    };
  }

  item<T extends Partial<ItemRecord> & { readonly index: number }>(kept: T): T {
    const { index, customId, request, response, error } = kept;
    return {
      ...kept,
      customId: customId === undefined ? undefined : this.#open({ sealed: customId }, `${index}.custom_id`),
      request: request && this.#open(request, `${index}.request`),
      response: response && this.#open(response, `${index}.response`),
      error: error && this.#open(error, `${index}.error`),
    };
  }

  end({ index, response, error, ...end }: ItemEnd): ItemEnd {
    return {
      ...end,
      index,
      ...(response && { response: sealedBy(this.#key, response, `${index}.response`) }),
      ...(error && { error: sealedBy(this.#key, error, `${index}.error`) }),
    };
  }

  result(result: object, open: object = {}): object {
    return { ...open, ...sealedBy(this.#key, result, "result") };
  }

  /** Returns unsealed values unchanged, such as those of a worker that gives a part up. */
  #open(kept: object, place: string): unknown {
    const { sealed } = kept as Partial<Sealed>;
    if (sealed === undefined) return kept;
    return JSON.parse(this.#key.open(Buffer.from(sealed, "base64"), place).toString());
  }
}

const sealedBy = (key: DataKey, value: object | string, place: string): Sealed => ({
  sealed: key.seal(Buffer.from(JSON.stringify(value)), place).toString("base64"),
});
