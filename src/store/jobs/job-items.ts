/** The parts of jobs: requests of a batch, episodes of an evaluation. Amounts are micro-dollars. */

import type { Queryable, Tx } from "../database/tx.ts";
import { Fenced, type ItemCounts, type JobHold } from "./jobs.ts";

/** Where a part of a job stands. */
export type ItemState = keyof ItemCounts;

/** A part of a job. */
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

/** How often one part is begun before it's given up: it may be what ends its workers. */
export const MOST_TRIES = 5;

/** Parts of a job from `from` on, in order. */
export async function listItems(sql: Queryable, jobId: string, from: number, limit: number): Promise<ItemRecord[]> {
  const rows = await sql<ItemRow[]>`
    select * from job_item where job_id = ${jobId} and index >= ${from} order by index limit ${limit}`;
  return rows.map(itemOf);
}

/** How the parts of a job stand, without what they hold. */
export async function outlineOf(
  sql: Queryable,
  jobId: string,
): Promise<Pick<ItemRecord, "index" | "customId" | "state" | "costMicro">[]> {
  const rows = await sql<ItemRow[]>`
    select index, custom_id, state, cost_micro from job_item where job_id = ${jobId} order by index`;
  return rows.map(itemOf);
}

/** The first parts that failed, in order. */
export async function failuresOf(sql: Queryable, jobId: string, limit: number): Promise<ItemRecord[]> {
  const rows = await sql<ItemRow[]>`
    select index, custom_id, state, error, cost_micro from job_item
    where job_id = ${jobId} and state = 'failed' order by index limit ${limit}`;
  return rows.map(itemOf);
}

interface ItemRow {
  index: number;
  customId: string | null;
  state: ItemState;
  request?: object | null;
  response?: object | null;
  error?: object | null;
  costMicro: number;
  tries?: number;
}

const itemOf = (row: ItemRow): ItemRecord => ({
  index: row.index,
  customId: row.customId ?? undefined,
  state: row.state,
  request: row.request ?? undefined,
  response: row.response ?? undefined,
  error: row.error ?? undefined,
  costMicro: row.costMicro,
  tries: row.tries ?? 0,
});

/** What became of a part. */
export interface ItemEnd {
  index: number;
  state: "completed" | "failed";
  response?: object | undefined;
  error?: object | undefined;
  costMicro: number;
}

/** What a holder does with the parts of its job at one time. */
export interface Turn {
  /** What ended. */
  readonly ended?: readonly ItemEnd[];
  /** How many more it takes: waiting ones, and those that an earlier owner left behind. */
  readonly take?: number;
  /** The error of parts that were begun too often, and are failed instead. */
  readonly poison?: object;
}

/**
 * Writes down what became of parts of a held job, and takes others, in one statement that makes the lease longer; answers those that it took,
 * in order. Throws `Fenced` for who doesn't hold the job: nothing of it is kept.
 */
export async function turn(
  sql: Queryable,
  hold: JobHold,
  { ended = [], take = 0, poison = {} }: Turn,
): Promise<ItemRecord[]> {
  const { id, owner, epoch } = hold;
  const rows = await sql<(ItemRow | { index: null })[]>`
    with held as (
      update job set lease_until = now() + make_interval(secs => lease_s)
      where id = ${id} and owner = ${owner} and epoch = ${epoch} and rank < 9 returning id),
    ended as (
      update job_item as item
      set state = e->>'state', rank = 9, response = e->'response', error = e->'error', cost_micro = (e->>'costMicro')::bigint
      from held, jsonb_array_elements(${sql.json(ended as never)}) as e
      where item.job_id = held.id and item.index = (e->>'index')::int and item.state = 'running' and item.epoch = ${epoch}),
    poisoned as (
      update job_item as item set state = 'failed', rank = 9, error = ${sql.json(poison as never)}
      from held where item.job_id = held.id and state = 'running' and epoch < ${epoch} and tries >= ${MOST_TRIES}),
    taken as (
      update job_item as item set state = 'running', rank = 3, epoch = ${epoch}, tries = tries + 1
      from held where item.job_id = held.id and item.index in (
        select index from job_item where job_id = ${id}
          and (state = 'queued' or (state = 'running' and epoch < ${epoch} and tries < ${MOST_TRIES}))
        order by index limit ${take})
      returning item.*)
    select taken.* from held left join taken on true order by index`;
  if (rows.length === 0) throw new Fenced(`${id} is not held in epoch ${epoch}`);
  return rows.flatMap((row) => (row.index === null ? [] : [itemOf(row)]));
}

/** Whether a part of a job waits or runs. */
export async function hasOpenItems(sql: Queryable, { id }: Pick<JobHold, "id">): Promise<boolean> {
  const [row] = await sql`select from job_item where job_id = ${id} and state in ('queued', 'running') limit 1`;
  return row !== undefined;
}

/** What a job's parts came to. */
export async function outcomeOf(tx: Tx, id: string): Promise<{ cancelled: boolean; dropped: boolean; ran: boolean }> {
  const [outcome] = await tx<{ cancelled: boolean; dropped: boolean; ran: boolean }[]>`
    select cancelled_at is not null as cancelled,
      exists (select from job_item where job_id = job.id and state = 'cancelled') as dropped,
      exists (select from job_item where job_id = job.id and state = 'completed') as ran
    from job where id = ${id}`;
  return outcome ?? { cancelled: false, dropped: false, ran: false };
}
