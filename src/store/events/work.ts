/** Work that travels as messages of NATS. The rows are the truth: a message says that one waits, and entitles to nothing. */
import { type Sql, type Tx, tx } from "../database/tx.ts";
import { type JobKind, type QueuedJob, queueJobs } from "../jobs/jobs.ts";
import { type QueuedDeliveries, queueDeliveries } from "./webhooks.ts";

/** Held by the replica that sends messages for what waits: two at once would send some twice. */
const LOCK = 5_417_116_325;

/** What waits and is sent now. */
export interface WaitingWork {
  readonly jobs: readonly QueuedJob[];
  readonly deliveries: QueuedDeliveries;
}

/** What is looked for. */
export interface WorkRound {
  /** When the stream was made: of what waits an earlier one had the messages. */
  readonly born: string;
  readonly kinds: readonly JobKind[];
  /** Messages of a round: jobs and deliveries each. */
  readonly limit: number;
  /** For how many seconds a job and a delivery count as sent. */
  readonly jobS: number;
  readonly deliveryS: number;
  readonly atOneHook: number;
  /** The webhook that was visited last. */
  readonly after: string;
}

/**
 * Notes what waits and has no message as sent, and answers it: it is to be sent now. Who dies before that delays it. One caller at a time among
 * all that use the database: undefined while another is at it.
 */
export function beginSending(sql: Sql, round: WorkRound): Promise<WaitingWork | undefined> {
  return tx(sql, async (tx) => {
    const [row] = await tx<{ held: boolean; born: string | null }[]>`
      select pg_try_advisory_xact_lock(${LOCK}) as held, (select born from work_stream) as born`;
    if (!row?.held) return undefined;
    if (row.born !== round.born) await forgetMessages(tx, round.born);
    const { kinds, limit, jobS, deliveryS, atOneHook, after } = round;
    const jobs = await queueJobs(tx, { kinds, limit, forS: jobS });
    const deliveries = await queueDeliveries(tx, { limit, forS: deliveryS, atOneHook, after });
    return { jobs, deliveries };
  });
}

/** What could not be sent has no message, unless NATS has it all the same: by its name it has it once. */
export async function noteUnsent(sql: Sql, { jobs, deliveries }: WaitingWork): Promise<void> {
  await sql`
    with back as (
      update webhook_delivery set queued_until = null where id = any (${deliveries.queued.map(({ id }) => id)}::text[]) and state = 'pending')
    update job set queued_until = null where id = any (${jobs.map(({ id }) => id)}::text[]) and rank < 9`;
}

/** The stream is another than before: it has the message of nothing that waits. */
async function forgetMessages(tx: Tx, born: string): Promise<void> {
  await tx`
    update webhook_delivery set queued_until = null where id in (
      select id from webhook_delivery where state = 'pending' and queued_until is not null for update skip locked)`;
  await tx`
    update job set queued_until = null where id in (
      select id from job where rank < 9 and queued_until is not null for update skip locked)`;
  await tx`insert into work_stream (born) values (${born}) on conflict (is_one) do update set born = excluded.born`;
}
