/** The final state of control loop sessions, for streams that resume them. */
import type { Queryable, Sql, Tx } from "../database/tx.ts";

/** The last charged chunk of a session. */
interface LastChunk {
  step: number;
  /** Binary `limber.v1.LoopChunk`; sealed for zero data retention. */
  chunk: Uint8Array;
  sealed: boolean;
  /** How long ago the stream ended, in milliseconds. */
  agoMs: number;
}

/** The state of the stream that held the session before. */
export interface Before {
  /** False while it is running on any replica, or if it died. */
  ended: boolean;
  /** The current or last episode number. */
  episode: number;
  last: LastChunk | undefined;
}

/** The sealing context of a session's last chunk. */
export const loopSessionContext = (session: string): string => JSON.stringify(["loop_session", session]);

/** How long the final state of a stream is useful: the lifetime of a pin. */
const LIFE = "15 minutes";

/**
 * Assigns a session to a stream, and notifies the replica of the previous stream; returns the previous stream's state. A stream without an
 * episode number continues the previous stream's episode.
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

/** The current state of a session that this stream holds. */
export async function lookAtLoopSession(sql: Sql, session: string): Promise<Before | undefined> {
  const [row] = await sql<BeforeRow[]>`
    select ended, episode, step, chunk, sealed, extract(epoch from now() - ended) * 1000 as ago_ms from loop_session
    where session = ${session}`;
  return row && beforeOf(row);
}

/** The stream that holds a session. */
export async function holderOfLoopSession(sql: Sql, session: string): Promise<string | undefined> {
  const [row] = await sql<{ stream: string }[]>`select stream from loop_session where session = ${session}`;
  return row?.stream;
}

/**
 * Starts an episode in a stream's session and deletes the state of earlier ones. Does nothing if another stream holds the session, or if this
 * one is past that episode.
 */
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
 * Stores the final state of a stream, and its end by the database's clock: now, or earlier if that is known. If another stream holds the
 * session, it gets the last chunk, unless it has sent chunks of its own or is in another episode.
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

/** Deletes sessions that cannot be resumed any more: one that has not ended for a month died with its replica. */
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

// The pins of sessions, for replicas that have not served them yet.

/** The pin of one session. */
export interface PinRecord {
  /** The session's hash, in hexadecimal. */
  session: string;
  model: string;
  provider: string;
  /** Unix milliseconds of the last known call. */
  atMs: number;
}

interface PinRow {
  session: string;
  model: string;
  provider: string;
  at: number;
}

const pinOf = ({ session, model, provider, at }: PinRow): PinRecord => ({ session, model, provider, atMs: at });

/** The pin of a session, regardless of age. */
export async function findPin(sql: Queryable, session: string): Promise<PinRecord | undefined> {
  const [row] = await sql<PinRow[]>`
    select encode(session, 'hex') as session, model, provider, at from session_pin
    where session = decode(${session}, 'hex')`;
  return row && pinOf(row);
}

/**
 * Stores pins, one per session, and returns the previous ones. Other replicas are notified of each changed pin.
 */
export async function putPins(tx: Tx, pins: readonly PinRecord[]): Promise<PinRecord[]> {
  // The same order on all replicas prevents deadlocks.
  const ordered = [...pins].sort((a, b) => (a.session < b.session ? -1 : 1));
  const lines = JSON.stringify(
    ordered.map(({ session, model, provider, atMs }) => ({ session, model, provider, at: atMs })),
  );
  const before = await tx<PinRow[]>`
    select encode(pin.session, 'hex') as session, pin.model, pin.provider, pin.at
    from jsonb_to_recordset(${lines}::text::jsonb) as line (session text)
    join session_pin as pin on pin.session = decode(line.session, 'hex')
    order by pin.session for update of pin`;
  await tx`
    insert into session_pin (session, model, provider, at)
    select decode(session, 'hex'), model, provider, at
    from jsonb_to_recordset(${lines}::text::jsonb) as line (session text, model text, provider text, at bigint)
    on conflict (session) do update set
      model = excluded.model, provider = excluded.provider, at = greatest(session_pin.at, excluded.at)`;
  const known = new Map(before.map((row) => [row.session, row]));
  for (const { session, model, provider, atMs } of ordered) {
    const old = known.get(session);
    if (!old || (old.model === model && old.provider === provider)) continue;
    await tx`select pg_notify('pin_moved', ${JSON.stringify({ session, model, provider, atMs })})`;
  }
  return before.map(pinOf);
}

/** Deletes the pins of sessions whose last call was before `atMs`; returns their number. */
export async function prunePins(sql: Queryable, atMs: number): Promise<number> {
  const { count } = await sql`delete from session_pin where at < ${atMs}`;
  return count;
}
