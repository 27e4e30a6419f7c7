/** What sessions are pinned to, for replicas that have not served them yet. */
import type { Queryable, Tx } from "../database/tx.ts";

/** The pin of one session. */
export interface PinRecord {
  /** Names the session, in hexadecimal. */
  session: string;
  model: string;
  provider: string;
  /** Unix milliseconds of the last call that is known. */
  atMs: number;
}

interface PinRow {
  session: string;
  model: string;
  provider: string;
  at: number;
}

const pinOf = ({ session, model, provider, at }: PinRow): PinRecord => ({ session, model, provider, atMs: at });

/** The pin of a session, however old. */
export async function findPin(sql: Queryable, session: string): Promise<PinRecord | undefined> {
  const [row] = await sql<PinRow[]>`
    select encode(session, 'hex') as session, model, provider, at from session_pin
    where session = decode(${session}, 'hex')`;
  return row && pinOf(row);
}

/**
 * Writes pins, one per session, and answers those that stood there before. Other replicas hear of each that is another one now.
 */
export async function putPins(tx: Tx, pins: readonly PinRecord[]): Promise<PinRecord[]> {
  // In one order, so that two replicas that write the same sessions wait for each other and don't lock each other up.
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

/** Forgets the pins of sessions that were last heard of before `atMs`; answers how many. */
export async function prunePins(sql: Queryable, atMs: number): Promise<number> {
  const { count } = await sql`delete from session_pin where at < ${atMs}`;
  return count;
}
