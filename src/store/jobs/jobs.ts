/** Jobs and their items: asynchronous work that one worker at a time holds under a lease. Amounts are micro-dollars. */
import { newId } from "../../ids.ts";
import { assertSameCall } from "../billing/idempotency.ts";
import { allRecords, firstRecord, type Queryable, type Sql, type Tx, unixSeconds } from "../database/tx.ts";
import { type Bounded, boundedPage, newest } from "../history/bounded.ts";

/** The kinds of jobs. */
export type JobKind = "batch" | "evaluation" | "verification" | "export" | "film" | "share";

/** The rank of each status: a job never moves to a lower one. */
export const RANKS = {
  validating: 0,
  queued: 1,
  provisioning: 2,
  in_progress: 3,
  running: 3,
  cancelling: 4,
  finalizing: 5,
  scoring: 5,
  completed: 9,
  failed: 9,
  cancelled: 9,
  expired: 9,
} as const;

/** The status of a job. */
export type JobStatus = keyof typeof RANKS;

/** Whether a job has ended. */
export const hasEnded = (status: JobStatus): boolean => RANKS[status] === 9;

/** The number of a job's items in each state. */
export interface ItemCounts {
  queued: number;
  running: number;
  completed: number;
  failed: number;
  cancelled: number;
}

/** A job and its progress. Times are unix seconds. */
export interface JobRecord {
  id: string;
  kind: JobKind;
  orgId: string;
  keyId: string;
  /** The workspace of the key that created it; undefined for the organization. */
  workspaceId: string | undefined;
  /** Whether the request and results are sealed under the job's own key. */
  sealed: boolean;
  /** The comparison that it belongs to. */
  comparison: string | undefined;
  /** Of a share: the evaluation whose episodes it runs. */
  parent: string | undefined;
  status: JobStatus;
  request: object;
  /** The sealed credentials of the model server that the job calls. */
  secret: Buffer | undefined;
  result: object | undefined;
  total: number;
  counts: ItemCounts;
  costMicro: number;
  cancelled: boolean;
  created: number;
  started: number | undefined;
  finalizing: number | undefined;
  finished: number | undefined;
  expires: number;
}

/** A job that a worker holds. */
export interface HeldJob extends JobRecord {
  owner: string;
  epoch: number;
}

/** The fields of a new job. */
export interface NewJob {
  kind: JobKind;
  orgId: string;
  keyId: string;
  workspaceId: string | undefined;
  request: object;
  items: readonly { customId: string | undefined; request: object }[];
  /** Seconds until unfinished work expires. */
  lifeS: number;
  /** Whether an external runner works on it. */
  outside?: boolean;
  /** The comparison that it belongs to. */
  comparison?: string | undefined;
  /** Seals the credentials of the model server. */
  secret?: ((id: string) => Buffer) | undefined;
  /** Seals the stored content for zero data retention; returns the wrapped key too. */
  seal?: ((id: string) => Pick<NewJob, "request" | "items"> & { wrapped: Buffer }) | undefined;
  /** The hash of the request, and other hashes under which the same request may be stored. */
  idempotency?: JobIdempotency | undefined;
  /** Called if the idempotency key already created the job. */
  known?: () => void;
}

/** An idempotency key, with the API key that uses it and its ancestors. */
export interface JobIdempotency {
  readonly key: string;
  readonly line: readonly string[];
  readonly hash: Buffer;
  readonly otherHashes?: readonly Buffer[] | undefined;
}

/** The owner of jobs: an organization, or one of its workspaces. A key's principal is one. */
export interface JobsOf {
  readonly orgId: string;
  readonly workspaceId: string | undefined;
}

/** A predicate for the jobs of an organization or workspace. */
export const ofThese = (sql: Queryable, { orgId, workspaceId }: JobsOf) =>
  sql`job.org_id = ${orgId} ${workspaceId === undefined ? sql`` : sql`and job.workspace_id = ${workspaceId}`}`;

/** How long a worker holds a job after its last renewal. It is fixed, so that a dead worker's jobs resume within 30 s. */
export const LEASE_S = 30;
const IDEMPOTENCY_HOURS = 24;
/** How long the key of a sealed job lives: the longest run of a batch, and a day to fetch the results. */
const JOB_KEY_HOURS = 48;

/**
 * Queues a job. If the idempotency key was used in the last day, returns the earlier job instead. Refuses with `idempotency_conflict` if
 * that job had a different request, or was created by an API key that is neither this one nor an ancestor of it.
 */
export async function createJob(tx: Tx, job: NewJob): Promise<string> {
  const { orgId, workspaceId, idempotency } = job;
  if (idempotency) {
    await tx`select pg_advisory_xact_lock(hashtextextended(${`${orgId} ${idempotency.key}`}, 0))`;
    const known = await jobOfKey(tx, job, idempotency);
    if (known !== undefined) {
      job.known?.();
      return known;
    }
    await tx`
      update job set idempotency_key = null
      where org_id = ${orgId} and idempotency_key = ${idempotency.key} and workspace_id is not distinct from ${workspaceId ?? null}`;
  }
  const [id] = await addJobs(tx, [job]);
  return id!;
}

/** Jobs that one statement inserts. */
const MOST_INSERTED = 64;

/** Queues jobs, and returns their ids in order. Does not look for earlier jobs of their idempotency keys. */
export async function addJobs(tx: Tx, jobs: readonly NewJob[]): Promise<string[]> {
  const ids: string[] = [];
  for (let from = 0; from < jobs.length; from += MOST_INSERTED)
    ids.push(...(await insertJobs(tx, jobs.slice(from, from + MOST_INSERTED))));
  return ids;
}

async function insertJobs(tx: Tx, jobs: readonly NewJob[]): Promise<string[]> {
  const made = jobs.map((job) => {
    const id = newId("job");
    const sealed = job.seal?.(id);
    return { id, job, sealed, request: sealed?.request ?? job.request, items: sealed?.items ?? job.items };
  });
  const rows = made.map(({ id, job, sealed, request, items }) => ({
    ...{ id, request, kind: job.kind, org_id: job.orgId, key_id: job.keyId, workspace_id: job.workspaceId },
    ...{ sealed: sealed !== undefined, wrapped: sealed?.wrapped.toString("base64"), total: items.length },
    ...{ secret: job.secret?.(id).toString("base64"), outside: job.outside ?? false, comparison: job.comparison },
    ...{ life_s: job.lifeS, idempotency_key: job.idempotency?.key },
    idempotency_hash: job.idempotency?.hash.toString("base64"),
  }));
  await tx`
    insert into job (id, kind, org_id, key_id, workspace_id, sealed, status, rank, request, secret, total, outside, comparison, expires, idempotency_key, idempotency_hash)
    select id, kind, org_id, key_id, workspace_id, sealed, 'queued', ${RANKS.queued}, request, decode(secret, 'base64'), total, outside, comparison,
      now() + make_interval(secs => life_s), idempotency_key, decode(idempotency_hash, 'base64')
    from jsonb_to_recordset(${tx.json(rows as never)}) as made (id text, kind text, org_id text, key_id text, workspace_id text, sealed boolean,
      request jsonb, secret text, total int, outside boolean, comparison text, life_s float8, idempotency_key text, idempotency_hash text)`;
  const keys = rows.flatMap(({ id, wrapped }) => (wrapped === undefined ? [] : { id, wrapped }));
  if (keys.length > 0)
    await tx`
      insert into job_key (id, wrapped, until)
      select id, decode(wrapped, 'base64'), now() + make_interval(hours => ${JOB_KEY_HOURS})
      from jsonb_to_recordset(${tx.json(keys)}) as made (id text, wrapped text)`;
  const items = made.flatMap(({ id, items }) =>
    items.map(({ customId, request }, index) => ({ job_id: id, index, custom_id: customId, request })),
  );
  await tx`
    insert into job_item (job_id, index, custom_id, request)
    select job_id, index, custom_id, request
    from jsonb_to_recordset(${tx.json(items as never)}) as made (job_id text, index int, custom_id text, request jsonb)`;
  return made.map(({ id }) => id);
}

/** The outcome of work that its caller waited for. */
export interface DoneWork {
  readonly passed: boolean;
  readonly tookMs: number;
}

/** Records work that ran while its caller waited, as an ended job with one item. No worker takes it. */
export async function recordJob(
  sql: Queryable,
  job: Pick<NewJob, "kind" | "orgId" | "keyId" | "workspaceId" | "request">,
  { passed, tookMs }: DoneWork,
): Promise<void> {
  const { kind, orgId, keyId, workspaceId, request } = job;
  const id = newId("job");
  const status = passed ? "completed" : "failed";
  const begun = sql`now() - make_interval(secs => ${tookMs / 1000})`;
  await sql`
    with done as (
      insert into job (id, kind, org_id, key_id, workspace_id, status, rank, request, total, created, started, finished, expires)
      values (${id}, ${kind}, ${orgId}, ${keyId}, ${workspaceId ?? null}, ${status}, ${RANKS[status]}, ${sql.json(request as never)}, 1,
        ${begun}, ${begun}, now(), now())
      returning id)
    insert into job_item (job_id, index, state, rank) select id, 0, ${status}, ${RANKS[status]} from done`;
}

/** The job that an idempotency key created in the last day. Refuses with `idempotency_conflict` like `createJob`. */
export async function jobOfKey(
  sql: Queryable,
  { orgId, workspaceId }: JobsOf,
  { key, line, hash, otherHashes = [] }: JobIdempotency,
): Promise<string | undefined> {
  const hashes = [hash, ...otherHashes].map((each) => each.toString("hex"));
  const [known] = await sql<{ id: string; keyId: string; same: boolean }[]>`
    select id, key_id, encode(idempotency_hash, 'hex') = any (${hashes}::text[]) as same
    from job where org_id = ${orgId} and idempotency_key = ${key} and workspace_id is not distinct from ${workspaceId ?? null}
      and created >= now() - make_interval(hours => ${IDEMPOTENCY_HOURS})`;
  if (known) assertSameCall(known, line);
  return known?.id;
}

type JobRow = Omit<HeldJob, "counts" | "costMicro" | "cancelled"> & {
  counts: Partial<ItemCounts> | undefined;
  /** A sum of bigint is numeric. */
  costMicro: number | undefined;
  cancelledAt: number | undefined;
};

const jobOf = ({ counts, costMicro = 0, cancelledAt, ...row }: JobRow): HeldJob => ({
  ...row,
  counts: { queued: 0, running: 0, completed: 0, failed: 0, cancelled: 0, ...counts },
  costMicro,
  cancelled: cancelledAt !== undefined,
});

/** Jobs with the counts and cost of their items. */
const counted = (sql: Queryable, jobs = sql`job`) => sql`
  job.*, parts.counts, parts.cost_micro from ${jobs}, lateral (
    select jsonb_object_agg(state, n) as counts, sum(cost) as cost_micro
    from (select state, count(*) as n, sum(cost_micro) as cost from job_item where job_id = job.id group by state) as by_state
  ) as parts`;

/** A job of an organization, or of a workspace. */
export async function findJob(
  sql: Queryable,
  whose: JobsOf,
  kind: JobKind,
  id: string,
): Promise<JobRecord | undefined> {
  const row = await firstRecord<JobRow>(sql`
    select ${counted(sql)} where job.id = ${id} and ${ofThese(sql, whose)} and job.kind = ${kind}`);
  return row && jobOf(row);
}

/** The evaluations of a comparison of an organization, or of a workspace; none if the comparison does not exist. */
export async function jobsOfComparison(sql: Queryable, whose: JobsOf, comparison: string): Promise<JobRecord[]> {
  const rows = await allRecords<JobRow>(sql`
    select ${counted(sql)} where job.comparison = ${comparison} and ${ofThese(sql, whose)} and job.kind = 'evaluation' order by job.id`);
  return rows.map(jobOf);
}

/**
 * Lists the jobs of an organization or workspace, newest first, after the job with the id `cursor`. Those of one kind are found among a bounded
 * number of jobs.
 */
export async function listJobs(
  sql: Sql,
  whose: JobsOf,
  { kind, limit, cursor }: { kind: JobKind | undefined; limit: number; cursor: string | undefined },
): Promise<Bounded<JobRecord>> {
  const window = {
    rows: sql`select * from job where ${ofThese(sql, whose)} and parent is null
      ${cursor === undefined ? sql`` : sql`and (created, id) < (select created, id from job where id = ${cursor} and ${ofThese(sql, whose)})`}`,
    order: sql`created desc, id desc`,
    cursor: sql`id`,
  };
  const rows = await allRecords<JobRow>(sql`
    select ${counted(sql, sql`(${newest(sql, window)}) as job`)}
    ${kind === undefined ? sql`` : sql`where job.kind = ${kind}`}
    order by job.created desc, job.id desc limit ${limit}`);
  return boundedPage(sql, { rows: rows.map(jobOf), limit, window });
}

/**
 * Cancels a job. A job without a worker ends at once if it has unfinished items; the worker of a running job is notified. Returns the
 * resulting state; undefined if the job does not exist.
 */
export async function cancelJob(
  tx: Tx,
  whose: JobsOf,
  kind: JobKind,
  id: string,
): Promise<"ended" | "cancelled" | "cancelling" | undefined> {
  const [job] = await tx<{ status: JobStatus; held: boolean }[]>`
    select status, coalesce(lease_until > now(), false) as held from job
    where id = ${id} and ${ofThese(tx, whose)} and kind = ${kind} for update`;
  if (!job) return undefined;
  if (hasEnded(job.status)) return "ended";
  // A batch whose items are all done was canceled too late; a worker finishes it with their results.
  if (job.held || ((await dropItems(tx, id)) === 0 && kind === "batch")) {
    await tx`
      update job set cancelled_at = coalesce(cancelled_at, now()), status = 'cancelling', rank = ${RANKS.cancelling}
      where id = ${id} and rank < ${RANKS.cancelling}`;
    return "cancelling";
  }
  await tx`
    update job set cancelled_at = now(), status = 'cancelled', rank = 9, finished = now(), lease_until = null, secret = null where id = ${id}`;
  return "cancelled";
}

/** The workspace of a job; undefined if it belongs to the organization. */
export async function workspaceOf(sql: Queryable, jobId: string): Promise<string | undefined> {
  const [row] = await sql<{ workspace: string | null }[]>`
    select workspace_id as workspace from job where id = ${jobId}`;
  return row?.workspace ?? undefined;
}

/** Deletes the shares of a job, which then write nothing more, and cancels its unfinished items; returns their number. */
async function dropItems(tx: Tx, jobId: string): Promise<number> {
  // Before the items, because a share's turn locks its own row first.
  await tx`delete from job where parent = ${jobId}`;
  const { count } =
    await tx`update job_item set state = 'cancelled', rank = 9 where job_id = ${jobId} and state in ('queued', 'running')`;
  return count;
}

/** A predicate for jobs that wait for a worker. Of jobs with an external runner, only canceled and expired ones do, to be ended. */
const waits = (sql: Queryable, kinds: readonly JobKind[]) => sql`
  rank < 9 and kind in ${sql([...kinds])} and (lease_until is null or lease_until < now())
  and (ready_at is null or ready_at <= now() or cancelled_at is not null or expires < now())
  and (not outside or cancelled_at is not null or expires < now())`;

/** A predicate for jobs that this worker can take: shares are for other workers than the one that holds their evaluation. */
const isFor = (sql: Queryable, owner: string) => sql`
  (parent is null or not exists (select from job as whole where whole.id = waiting.parent and whole.owner = ${owner}))`;

/** The number of an organization's jobs that a worker holds. */
const underWay = (sql: Queryable, orgId: ReturnType<Queryable>) => sql`
  (select count(*) from job as other where other.org_id = ${orgId} and other.rank < 9 and other.lease_until > now())`;

/**
 * Takes the next job of the given kinds: by highest priority, then the organization with the fewest running jobs, then the one served
 * longest ago, then the oldest job, shares last. Takes over a job whose worker did not renew its lease. Of the organizations in `full`,
 * takes only canceled or expired jobs. With `hasMessage`, takes only a job that has a message; else that job would lack one. Undefined if
 * none waits.
 */
export async function takeJob(
  sql: Sql,
  owner: string,
  kinds: readonly JobKind[],
  full: readonly string[] = [],
  { hasMessage = false } = {},
): Promise<HeldJob | undefined> {
  const [taken] = await sql<{ id: string }[]>`
    update job set owner = ${owner}, epoch = epoch + 1, lease_s = ${LEASE_S}, lease_until = now() + make_interval(secs => ${LEASE_S}),
      started = coalesce(started, now()), taken = clock_timestamp(), ready_at = null
    where id = (
      select id from job as waiting where ${waits(sql, kinds)} and ${isFor(sql, owner)} and (not ${hasMessage} or queued_until is not null)
        and (org_id <> all (${[...full]}::text[]) or cancelled_at is not null or expires < now())
      order by priority desc, ${underWay(sql, sql`waiting.org_id`)},
        (select max(taken) from job as other where other.org_id = waiting.org_id) nulls first,
        parent is not null, created
      limit 1 for update skip locked)
    returning id`;
  if (!taken) return undefined;
  const row = await firstRecord<JobRow>(
    sql`select ${counted(sql)} where job.id = ${taken.id} and job.owner = ${owner}`,
  );
  return row && jobOf(row);
}

/**
 * Whether a job of an organization with fewer running jobs than this job's organization waits: it would be next. For a share, also whether
 * another job of its own organization waits that is not a share.
 */
export async function othersWait(
  sql: Sql,
  { orgId, owner, parent }: Pick<HeldJob, "orgId" | "owner" | "parent">,
  kinds: readonly JobKind[],
): Promise<boolean> {
  const [row] = await sql`
    select from job as waiting where ${waits(sql, kinds)} and ${isFor(sql, owner)}
      and case when org_id = ${orgId} then ${parent !== undefined} and parent is null
        else ${underWay(sql, sql`waiting.org_id`)} < ${underWay(sql, sql`${orgId}`)} end
    limit 1`;
  return row !== undefined;
}

/** Thrown if this worker no longer holds the job; none of its writes are kept. */
export class Fenced extends Error {
  override readonly name = "Fenced";
}

/** A worker's hold on a job, which every write checks. */
export type JobHold = Pick<HeldJob, "id" | "owner" | "epoch">;

/** The result of a lease renewal. */
export interface Renewed {
  readonly cancelled: boolean;
  readonly expired: boolean;
  /** Unix seconds. */
  readonly until: number;
}

/** Locks a held job and renews its lease. Throws `Fenced` if this worker no longer holds it. */
export async function renew(sql: Queryable, { id, owner, epoch }: JobHold): Promise<Renewed> {
  const [row] = await sql<{ cancelled: boolean; expired: boolean; until: Date }[]>`
    update job set lease_until = now() + make_interval(secs => lease_s)
    where id = ${id} and owner = ${owner} and epoch = ${epoch} and rank < 9
    returning cancelled_at is not null as cancelled, expires < now() as expired, lease_until as until`;
  if (!row) throw new Fenced(`job ${id} is no longer held in epoch ${epoch}`);
  return { ...row, until: unixSeconds(row.until) };
}

/** Moves a held job to a later status; `cancelling` never goes back to an earlier one. */
export async function advance(tx: Tx, hold: JobHold, status: JobStatus, result?: object): Promise<void> {
  await renew(tx, hold);
  const rank = RANKS[status];
  await tx`
    update job set status = ${status}, rank = ${rank},
      result = coalesce(${result === undefined ? null : tx.json(result as never)}, result),
      finalizing = case when ${rank} >= ${RANKS.finalizing} then coalesce(finalizing, now()) else finalizing end,
      finished = case when ${rank} = 9 then now() else finished end,
      secret = case when ${rank} = 9 then null else secret end,
      lease_until = case when ${rank} = 9 then null else lease_until end
    where id = ${hold.id} and rank <= ${rank}`;
}

/** Cancels the queued items of a held job. */
export async function dropRest(tx: Tx, hold: JobHold): Promise<void> {
  await renew(tx, hold);
  await dropItems(tx, hold.id);
}

/**
 * Returns an unfinished job to the queue. No worker takes it for `restMs` milliseconds unless it expired. The hold ends, so a renewal that arrives
 * later does not extend the lease.
 */
export async function giveBack(sql: Queryable, { id, owner, epoch }: JobHold, restMs = 0): Promise<void> {
  await sql`
    update job set owner = null, lease_until = null, ready_at = now() + make_interval(secs => ${restMs / 1000}) where id = ${id} and owner = ${owner} and epoch = ${epoch} and rank < 9`;
}

/** A queued job, and what distinguishes this message of it from all others. */
export interface QueuedJob {
  readonly id: string;
  readonly kind: JobKind;
  readonly turn: string;
}

/** Marks queued jobs without a NATS message as having one for some seconds. Returns them in queue order. */
export async function queueJobs(
  sql: Queryable,
  { kinds, limit, forS }: { kinds: readonly JobKind[]; limit: number; forS: number },
): Promise<QueuedJob[]> {
  return sql<QueuedJob[]>`
    with waiting as (
      select id, queued_until as before from job
      where ${waits(sql, kinds)} and (queued_until is null or queued_until < now())
      order by priority desc, created limit ${limit} for update skip locked)
    update job set queued_until = now() + make_interval(secs => ${forS}) from waiting where job.id = waiting.id
    returning job.id, kind, concat_ws('.', epoch, extract(epoch from before)) as turn`;
}

/** How long to wait, for a worker that found no job to take. */
export interface JobWait {
  /** Milliseconds until the job can be taken: at most 0 if it can be now, undefined if it has ended. */
  readonly ms: number | undefined;
  /** Whether any job of these kinds waits and has a message. */
  readonly isAnyWaiting: boolean;
}

/** How long a worker leaves a share to others that it must not take itself. */
const OWN_SHARE_MS = 500;

/** Returns how long this worker waits for a job, and whether any job waits for it. */
export async function jobWait(
  sql: Queryable,
  id: string,
  { owner, kinds }: { readonly owner: string; readonly kinds: readonly JobKind[] },
): Promise<JobWait> {
  const [row] = await sql<{ isOpen: boolean; ms: number | null; isAnyWaiting: boolean }[]>`
    select waiting.id is not null as is_open,
      greatest((extract(epoch from greatest(lease_until, ready_at) - now()) * 1000)::float8,
        case when waiting.id is not null and not ${isFor(sql, owner)} then ${OWN_SHARE_MS}::float8 end) as ms,
      exists (select from job as waiting where ${waits(sql, kinds)} and ${isFor(sql, owner)} and queued_until is not null) as is_any_waiting
    from (select) as always left join job as waiting on waiting.id = ${id} and waiting.rank < 9`;
  return { ms: row?.isOpen ? (row.ms ?? 0) : undefined, isAnyWaiting: row?.isAnyWaiting ?? false };
}

/** The jobs of all organizations, counted. */
export async function countJobs(sql: Queryable): Promise<{ queued: number; running: number; failed24h: number }> {
  const [row] = await sql<{ queued: string; running: string; failed: string }[]>`
    select count(*) filter (where rank = 1) as queued, count(*) filter (where rank between 2 and 8) as running,
      count(*) filter (where status = 'failed' and finished > now() - interval '24 hours') as failed
    from job where parent is null and (rank < 9 or finished > now() - interval '24 hours')`;
  return { queued: Number(row?.queued ?? 0), running: Number(row?.running ?? 0), failed24h: Number(row?.failed ?? 0) };
}

/** The sealing context of a job's key. */
export const jobKeyContext = (jobId: string): string => JSON.stringify(["job", jobId]);

/** The sealing context of a job's secret. */
export const jobSecretContext = (jobId: string): string => JSON.stringify(["job secret", jobId]);

/** The wrapped key of a sealed job; undefined once it expired or was deleted. */
export async function findJobKey(sql: Queryable, jobId: string): Promise<Buffer | undefined> {
  const [row] = await sql<{ wrapped: Buffer }[]>`select wrapped from job_key where id = ${jobId} and until > now()`;
  return row?.wrapped;
}

/** Deletes the key of a job, and the responses stored in case one of its items runs again. */
export async function forgetJobKey(sql: Queryable, { id, orgId, total }: JobRecord): Promise<void> {
  await sql`
    with forgotten as (delete from job_key where id = ${id})
    delete from idempotency
    where org_id = ${orgId} and key in (select ${`${id}.`}::text || index from generate_series(0, ${total}::int - 1) as index)`;
}

/** Deletes the expired keys of jobs; returns their number. */
export async function pruneJobKeys(sql: Sql): Promise<number> {
  const { count } = await sql`delete from job_key where until < now()`;
  return count;
}

/** Deletes jobs that ended more than `days` days ago; returns their number. */
export async function pruneJobs(sql: Sql, days: number): Promise<number> {
  const { count } = await sql`delete from job where rank = 9 and finished < now() - make_interval(days => ${days})`;
  return count;
}

// Items of jobs: requests of a batch, episodes of an evaluation. Amounts are micro-dollars.

/** The state of an item. */
export type ItemState = keyof ItemCounts;

/** An item of a job. */
export interface ItemRecord {
  index: number;
  customId: string | undefined;
  state: ItemState;
  request: object | undefined;
  response: object | undefined;
  error: object | undefined;
  costMicro: number;
  tries: number;
}

/** The most attempts of one item: after that it fails, because it may be what crashes its workers. */
export const MOST_TRIES = 5;

/** The items of a job from `from` on, in order. */
export async function listItems(
  sql: Queryable,
  jobId: string,
  from: number,
  limit: number,
  { actions = false } = {},
): Promise<ItemRecord[]> {
  return allRecords<ItemRecord>(sql`
    select index, custom_id, state, request, ${actions ? sql`response` : sql`response - 'actions' as response`}, error, cost_micro, tries
    from job_item where job_id = ${jobId} and index >= ${from} order by index limit ${limit}`);
}

/** The size of a job's recorded actions, in characters of base64. */
export async function recordedOf(sql: Queryable, jobId: string): Promise<number> {
  const [row] = await sql<{ size: number }[]>`
    select coalesce(sum(length(response ->> 'actions')), 0)::float8 as size from job_item
    where job_id = ${jobId} and state in ('completed', 'failed')`;
  return row?.size ?? 0;
}

/** The items of several jobs without their actions, by job and in order. */
export async function itemsOfJobs(sql: Queryable, jobIds: readonly string[]): Promise<Map<string, ItemRecord[]>> {
  const rows = await allRecords<ItemRecord & { jobId: string }>(sql`
    select job_id, index, custom_id, state, request, response - 'actions' as response, error, cost_micro, tries
    from job_item where job_id = any (${[...jobIds]}::text[]) order by job_id, index`);
  return Map.groupBy(rows, ({ jobId }) => jobId);
}

/** The states of a job's items, without their content. */
export async function outlineOf(
  sql: Queryable,
  jobId: string,
): Promise<Pick<ItemRecord, "index" | "customId" | "state" | "costMicro">[]> {
  return allRecords<ItemRecord>(sql`
    select index, custom_id, state, cost_micro from job_item where job_id = ${jobId} order by index`);
}

/** The first items that failed, in order. */
export async function failuresOf(sql: Queryable, jobId: string, limit: number): Promise<ItemRecord[]> {
  return allRecords<ItemRecord>(sql`
    select index, custom_id, state, error, cost_micro from job_item
    where job_id = ${jobId} and state = 'failed' order by index limit ${limit}`);
}

/** The result of an item. */
export interface ItemEnd {
  index: number;
  state: "completed" | "failed";
  response?: object | undefined;
  error?: object | undefined;
  costMicro: number;
}

/** One step of a holder: the items that it ends and those that it takes. */
export interface Turn {
  /** Ended items. */
  readonly ended?: readonly ItemEnd[];
  /** How many items to take: queued ones, and those that another holder left. */
  readonly take?: number;
  /** The error of items that were attempted too often and now fail. */
  readonly poison?: object;
}

/**
 * Records the results of items of a held job and takes further items, in one statement that also renews the lease. Returns the taken items
 * in order. Throws `Fenced`, and writes nothing, if this worker does not hold the job.
 *
 * For a share, the items are those of its evaluation: it takes none once that is canceled or being scored, and is fenced once that has
 * ended, because its row is deleted then. A running item is left over if the job that began it is not held in that epoch any more.
 *
 * Items are locked before they are taken: a turn that waited for another one still sees that one's items as queued. For the same reason, a
 * left-over item must have the holder that the statement's snapshot shows: that snapshot can lack a holder that took the item meanwhile.
 */
export async function turn(
  sql: Queryable,
  hold: JobHold,
  { ended = [], take = 0, poison = {} }: Turn,
): Promise<ItemRecord[]> {
  const { id, owner, epoch } = hold;
  const rows = await allRecords<ItemRecord | { index: undefined }>(sql`
    with held as (
      update job set lease_until = now() + make_interval(secs => lease_s)
      where id = ${id} and owner = ${owner} and epoch = ${epoch} and rank < 9
      returning coalesce(parent, id) as whole, parent is not null as is_share),
    ended as (
      update job_item as item
      set state = e->>'state', rank = 9, response = e->'response', error = e->'error', cost_micro = (e->>'costMicro')::bigint
      from held, jsonb_array_elements(${sql.json(ended as never)}) as e
      where item.job_id = held.whole and item.index = (e->>'index')::int and item.state = 'running'
        and item.holder = ${id} and item.epoch = ${epoch}),
    left_over as materialized (
      select index, holder, epoch from job_item as item
      where job_id = (select coalesce(parent, id) from job where id = ${id}) and state = 'running'
        and (holder, epoch) is distinct from (${id}::text, ${epoch}::int)
        and not exists (
          select from job as live where live.id = item.holder and live.epoch = item.epoch and live.rank < 9 and live.lease_until > now())),
    poisoned as (
      update job_item as item set state = 'failed', rank = 9, error = ${sql.json(poison as never)}
      from held, left_over where not is_share and item.job_id = held.whole and item.index = left_over.index and item.state = 'running'
        and (item.holder, item.epoch) is not distinct from (left_over.holder, left_over.epoch) and item.tries >= ${MOST_TRIES}),
    next as (
      select job_id, index from job_item as item
      where job_id = (
          select whole from held where not is_share
            or exists (select from job where job.id = held.whole and rank < ${RANKS.cancelling} and cancelled_at is null))
        and (state = 'queued' or (state = 'running' and tries < ${MOST_TRIES} and exists (
          select from left_over where left_over.index = item.index
            and (left_over.holder, left_over.epoch) is not distinct from (item.holder, item.epoch))))
      order by index limit ${take} for update skip locked),
    taken as (
      update job_item as item set state = 'running', rank = 3, holder = ${id}, epoch = ${epoch}, tries = tries + 1
      from next where item.job_id = next.job_id and item.index = next.index
      returning item.*)
    select taken.* from held left join taken on true order by index`);
  if (rows.length === 0) throw new Fenced(`job ${id} is no longer held in epoch ${epoch}`);
  return rows.filter((row) => row.index !== undefined);
}

/** Whether a job has queued or running items. */
export async function hasOpenItems(sql: Queryable, { id }: Pick<JobHold, "id">): Promise<boolean> {
  const [row] = await sql`select from job_item where job_id = ${id} and state in ('queued', 'running') limit 1`;
  return row !== undefined;
}

/** The totals of a job's items. */
export async function outcomeOf(tx: Tx, id: string): Promise<{ cancelled: boolean; dropped: boolean; ran: boolean }> {
  const [outcome] = await tx<{ cancelled: boolean; dropped: boolean; ran: boolean }[]>`
    select cancelled_at is not null as cancelled,
      exists (select from job_item where job_id = job.id and state = 'cancelled') as dropped,
      exists (select from job_item where job_id = job.id and state = 'completed') as ran
    from job where id = ${id}`;
  return outcome ?? { cancelled: false, dropped: false, ran: false };
}

// Jobs of external runners: taken, kept and given up like other jobs, with the organization's own keys.

/** A runner's request for a job. */
export interface OutsideAsk extends JobsOf {
  /** The runner's key; no other key can continue what it took. */
  readonly keyId: string;
  /** The runner's name. */
  readonly name: string;
  /** Scenarios that it can run; empty means all. */
  readonly scenarios: readonly string[];
  /** Seconds that it holds a job after its last renewal. */
  readonly leaseS: number;
}

/** Assigns a runner the longest-waiting evaluation of its organization or workspace; undefined if none waits. */
export async function takeOutside(sql: Sql, ask: OutsideAsk): Promise<JobHold | undefined> {
  const { keyId, name, scenarios, leaseS } = ask;
  const [taken] = await sql<JobHold[]>`
    update job set owner = ${keyId}, epoch = epoch + 1, lease_s = ${leaseS}, lease_until = now() + make_interval(secs => ${leaseS}),
      started = coalesce(started, now()), status = 'running', rank = 3, result = jsonb_build_object('harness', ${name}::text)
    where id = (
      select id from job where ${ofThese(sql, ask)} and kind = 'evaluation' and outside and rank < 4 and expires > now()
        and (lease_until is null or lease_until < now())
        and (${scenarios.length === 0} or request->>'scenario' = any (${[...scenarios]}::text[]))
      order by priority desc, created limit 1 for update skip locked)
    returning id, owner, epoch`;
  return taken;
}

/** Marks an item of a held job as running, unless it has ended. Reports whether the caller can end it. */
export async function beginItem(tx: Tx, hold: JobHold, index: number): Promise<boolean> {
  await renew(tx, hold);
  const { count } = await tx`
    update job_item set state = 'running', rank = 3, holder = ${hold.id}, epoch = ${hold.epoch}, tries = tries + 1
    where job_id = ${hold.id} and index = ${index} and rank < 9`;
  return count > 0;
}
