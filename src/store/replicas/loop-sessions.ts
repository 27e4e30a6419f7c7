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
  /** Number of the episode that it is in, or was in when it ended. */
  episode: number;
  last: LastChunk | undefined;
}

/** What the last chunk of a session is sealed for. */
export const loopSessionContext = (session: string): string => JSON.stringify(["loop_session", session]);

/** How long the end of a stream is of use: the life of a pin. */
const LIFE = "15 minutes";

/**
 * Gives a session to a stream, and tells the replica that carries the one before; answers what is known of that. The stream goes on in the
 * episode of the one before where it names none.
 */
export async function takeLoopSession(
  sql: Sql,
  { session, stream, episode }: { session: string; stream: string; episode: number | undefined },
): Promise<Before | undefined> {
  const [row] = await sql<BeforeRow[]>`
    with before as (
      select true as known, ended, episode, step, chunk, sealed, extract(epoch from now() - ended) * 1000 as ago_ms from loop_session
      where session = ${session} and (ended is null or ended > now() - ${LIFE}::text::interval)
    ), taken as (
      insert into loop_session (session, stream, episode)
      values (${session}, ${stream}, coalesce(${episode ?? null}::int8, (select episode from before), 1))
      on conflict (session) do update set stream = excluded.stream, episode = excluded.episode, ended = null, step = null, chunk = null,
        created = now()
      returning pg_notify('loop_taken', session || ' ' || stream)
    )
    select before.* from taken left join before on true where before.known`;
  return row && beforeOf(row);
}

/** What is known by now of a session that this stream has taken. */
export async function lookAtLoopSession(sql: Sql, session: string): Promise<Before | undefined> {
  const [row] = await sql<BeforeRow[]>`
    select ended, episode, step, chunk, sealed, extract(epoch from now() - ended) * 1000 as ago_ms from loop_session
    where session = ${session}`;
  return row && beforeOf(row);
}

/** The stream that has a session. */
export async function holderOfLoopSession(sql: Sql, session: string): Promise<string | undefined> {
  const [row] = await sql<{ stream: string }[]>`select stream from loop_session where session = ${session}`;
  return row?.stream;
}

/** Begins an episode in the session of a stream: nothing is left of those before. Does nothing where another stream has the session, or this one is past that episode. */
export async function resetLoopSession(
  sql: Sql,
  { session, stream, episode }: { session: string; stream: string; episode: number },
): Promise<void> {
  await sql`
    insert into loop_session (session, stream, episode) values (${session}, ${stream}, ${episode})
    on conflict (session) do update set episode = excluded.episode, ended = null, step = null, chunk = null
    where loop_session.stream = excluded.stream and loop_session.episode < excluded.episode`;
}

/**
 * Notes where a stream ended, and when by the database's clock: now, or before it was asked where that is known. One that lost its session meanwhile leaves its last chunk to the stream that
 * has it, unless that went on or is in another episode.
 */
export async function endLoopSession(
  sql: Sql,
  { session, stream, episode }: { session: string; stream: string; episode: number },
  last: (Omit<LastChunk, "agoMs"> & { endedMs: number | undefined }) | undefined,
): Promise<void> {
  await sql`
    update loop_session set ended = least(now(), to_timestamp(${last?.endedMs ?? null}::float8 / 1000)), episode = ${episode},
      step = ${last?.step ?? null}, chunk = ${last ? Buffer.from(last.chunk) : null}, sealed = ${last?.sealed ?? false}
    where session = ${session} and (stream = ${stream} or (ended is null and episode = ${episode}))`;
}

/** Forgets sessions that nobody can resume any more: what has not ended for a month died with its replica. */
export async function pruneLoopSessions(sql: Sql): Promise<void> {
  await sql`
    delete from loop_session where created < now() - interval '1 hour'
    and (ended < now() - ${LIFE}::text::interval or created < now() - interval '1 month')`;
}

interface BeforeRow {
  ended: Date | null;
  episode: number;
  step: number | null;
  chunk: Buffer | null;
  sealed: boolean;
  agoMs: number;
}

const beforeOf = ({ ended, episode, step, chunk, sealed, agoMs }: BeforeRow): Before => ({
  ended: ended !== null,
  episode,
  last: step === null || chunk === null ? undefined : { step, chunk, sealed, agoMs },
});
