/** What a job holds of its caller's, sealed where the organisation retains no data, under a key that dies with it. */
import { createHash } from "node:crypto";
import { type KeyPrincipal, lineOf } from "../../call.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import type { Sql } from "../../store/database/tx.ts";
import type { ItemEnd, ItemRecord } from "../../store/jobs/job-items.ts";
import {
  findJobKey,
  forgetJobKey,
  type JobIdempotency,
  type JobRecord,
  jobKeyContext,
  type NewJob,
} from "../../store/jobs/jobs.ts";
import { type DataKey, type Vault, VaultError } from "../../vault.ts";

/** A sealed value as a column of JSON holds it. */
interface Sealed {
  readonly sealed: string;
}

/** How one job is kept and read. */
export interface JobSeal {
  /** Whether what was sealed can't be read any more: it was fetched, or its time is over. */
  readonly gone: boolean;
  /** The job with what was sealed of it, as far as it can be read. */
  job<T extends JobRecord>(kept: T): T;
  /** A part of it, likewise. */
  item<T extends Partial<ItemRecord> & { readonly index: number }>(kept: T): T;
  /** What became of a part, to be kept. */
  end(end: ItemEnd): ItemEnd;
  /** The result of the whole, to be kept. `open` is the part that needs no seal. */
  result(result: object, open?: object): object;
}

/** The seals of jobs. */
export class JobSeals {
  readonly #sql: Sql;
  readonly #vault: Vault;

  constructor(sql: Sql, vault: Vault) {
    this.#sql = sql;
    this.#vault = vault;
  }

  /** Seals a new job under a key of its own: `secret` of its request, and all of its parts. */
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

  /** What is kept under an idempotency key of what a key asked for. */
  idempotent(principal: KeyPrincipal, key: string | undefined, asked: object): JobIdempotency | undefined {
    const { orgId, workspaceId, settings } = principal;
    if (key === undefined) return undefined;
    const hash = createHash("sha256").update(JSON.stringify(asked)).digest();
    const hashes = this.#vault.hashes(hash, settings.zdr, JSON.stringify(["job", orgId, workspaceId ?? "", key]));
    return { key, line: lineOf(principal), ...hashes };
  }

  /** How a job is read and kept from now on. */
  async of(job: Pick<JobRecord, "id" | "sealed">): Promise<JobSeal> {
    if (!job.sealed) return PLAIN;
    const wrapped = await findJobKey(this.#sql, job.id);
    if (wrapped === undefined) return GONE;
    try {
      return new SealedKey(this.#vault.openDataKey(wrapped, jobKeyContext(job.id)));
    } catch (thrown) {
      // Its master key is not loaded any more.
      if (thrown instanceof VaultError) return GONE;
      throw thrown;
    }
  }

  /** Forgets the key of a job that was fetched: nothing that is sealed under it can be read any more. */
  async fetched(job: JobRecord): Promise<void> {
    if (job.sealed) await forgetJobKey(this.#sql, job);
  }
}

/** The refusal of what was fetched, or not fetched in time, where no data is retained. */
export const dataGone = (): Refusal =>
  refuse(
    Reason.DATA_GONE,
    "the results were fetched, or their time is over: your organisation retains no data, so nothing of them is left",
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
  return open as T; // all of it but what is sealed, which no reader knows
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

  /** What was kept as it is, as by the worker that gives a part up, is answered as it is. */
  #open(kept: object, place: string): unknown {
    const { sealed } = kept as Partial<Sealed>;
    if (sealed === undefined) return kept;
    return JSON.parse(this.#key.open(Buffer.from(sealed, "base64"), place).toString());
  }
}

const sealedBy = (key: DataKey, value: object | string, place: string): Sealed => ({
  sealed: key.seal(Buffer.from(JSON.stringify(value)), place).toString("base64"),
});
