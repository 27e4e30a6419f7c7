/** Where the control loops of sessions ended, for streams that resume them. */
import type { Sql } from "../database/tx.ts";

/** The last chunk of a session that was charged. */
export interface LastChunk {
  step: number;
  /** Binary `limber.v1.LoopChunk`; sealed where the organisation retains no data. */
  chunk: Uint8Array;
  sealed: boolean;
  /** How long ago the stream ended, in milliseconds. */
  agoMs: number;
}

/** What is known of the stream that had a session before. */
export interface Before {
  /** False while it still runs, on whatever replica, or died there. */
  ended: boolean;
  last: LastChunk | undefined;
}

/** How long the end of a stream is of use: the life of a pin. */
const LIFE = "15 minutes";

/** Gives a session to a stream, and tells the replica that carries the one before; answers what is known of that. */
export async function takeLoopSession(sql: Sql, session: string, stream: string): Promise<Before | undefined> {
  const [row] = await sql<BeforeRow[]>`
    with before as (
      select true as known, ended, step, chunk, sealed, extract(epoch from now() - ended) * 1000 as ago_ms from loop_session
      where session = ${session} and (ended is null or ended > now() - ${LIFE}::text::interval)
    ), taken as (
      insert into loop_session (session, stream) values (${session}, ${stream})
      on conflict (session) do update set stream = excluded.stream, ended = null, step = null, chunk = null, created = now()
      returning pg_notify('loop_taken', session || ' ' || stream)
    )
    select before.* from taken left join before on true where before.known`;
  return row && beforeOf(row);
}

/** What is known by now of a session that this stream has taken. */
export async function lookAtLoopSession(sql: Sql, session: string): Promise<Before | undefined> {
  const [row] = await sql<BeforeRow[]>`
    select ended, step, chunk, sealed, extract(epoch from now() - ended) * 1000 as ago_ms from loop_session where session = ${session}`;
  return row && beforeOf(row);
}

/** The stream that has a session. */
export async function holderOfLoopSession(sql: Sql, session: string): Promise<string | undefined> {
  const [row] = await sql<{ stream: string }[]>`select stream from loop_session where session = ${session}`;
  return row?.stream;
}

/** Notes where a stream ended. One that lost its session meanwhile leaves its last chunk to the stream that has it, unless that went on. */
export async function endLoopSession(
  sql: Sql,
  session: string,
  stream: string,
  last: Omit<LastChunk, "agoMs"> | undefined,
): Promise<void> {
  await sql`
    update loop_session set ended = now(), step = ${last?.step ?? null}, chunk = ${last ? Buffer.from(last.chunk) : null},
      sealed = ${last?.sealed ?? false}
    where session = ${session} and (stream = ${stream} or ended is null)`;
}

/** Forgets sessions that nobody can resume any more: what has not ended for a month died with its replica. */
export async function pruneLoopSessions(sql: Sql): Promise<void> {
  await sql`
    delete from loop_session where created < now() - interval '1 hour'
    and (ended < now() - ${LIFE}::text::interval or created < now() - interval '1 month')`;
}

interface BeforeRow {
  ended: Date | null;
  step: number | null;
  chunk: Buffer | null;
  sealed: boolean;
  agoMs: number;
}

const beforeOf = ({ ended, step, chunk, sealed, agoMs }: BeforeRow): Before => ({
  ended: ended !== null,
  last: step === null || chunk === null ? undefined : { step, chunk, sealed, agoMs },
});
