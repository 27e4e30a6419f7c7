/** Leases of servers that serve one robot at a time, among all replicas. */
import type { Queryable } from "../database/tx.ts";

interface ServerLeaseRow {
  epoch: number | null;
  beforeEpoch: number | null;
  beforeSession: string | null;
  beforeSetup: string | null;
  over: boolean | null;
}

/** A server that was taken, and what is known of it. */
export interface ServerTaken {
  epoch: number;
  session: string | undefined;
  setup: string | undefined;
}

/**
 * Takes a server for one call of a session, for `runMs` at most. `running`: a call of that session, or of none, has it. `busy`: another
 * session has it.
 */
export async function takeServer(
  sql: Queryable,
  { server, session, runMs, taker }: { server: string; session: string; runMs: number; taker: string },
): Promise<ServerTaken | "running" | "busy"> {
  const end = sql`now() + ${runMs} * interval '1 millisecond'`;
  const [row] = await sql<ServerLeaseRow[]>`
    with before as (
      select epoch, session, setup, until <= now() as over from server_lease where server = ${server}
    ), taken as (
      insert into server_lease as held (server, taker, session, epoch, running_until, until)
      values (${server}, ${taker}, ${session}, 1, ${end}, ${end})
      on conflict (server) do update set taker = excluded.taker, session = excluded.session, epoch = held.epoch + 1,
        setup = null, running_until = excluded.running_until, until = excluded.until
      where held.running_until <= now() and (held.session = excluded.session or held.until <= now())
      returning epoch
    )
    select taken.epoch, before.epoch as before_epoch, before.session as before_session, before.setup as before_setup, before.over
    from (select) as one left join taken on true left join before on true`;
  const { epoch, beforeEpoch, beforeSession, beforeSetup, over } = row!; // the select of nothing has one row
  if (epoch === null) return over || beforeSession === session || !beforeSession ? "running" : "busy";
  // Somebody came in between: what is set up there is not known.
  if (beforeEpoch !== epoch - 1) return { epoch, session: undefined, setup: undefined };
  return { epoch, session: beforeSession ?? undefined, setup: beforeSetup ?? undefined };
}

/** Gives a server back, which its session keeps for `keepMs`; does nothing where somebody took it meanwhile. */
export async function releaseServer(
  sql: Queryable,
  { server, epoch, keepMs, setup }: { server: string; epoch: number; keepMs: number; setup: string | undefined },
): Promise<void> {
  await sql`
    update server_lease set running_until = now(), until = now() + ${keepMs} * interval '1 millisecond',
      setup = ${setup ?? null}
    where server = ${server} and epoch = ${epoch}`;
}

/** Forgets servers that were not leased for a day. */
export async function pruneServerLeases(sql: Queryable): Promise<void> {
  await sql`delete from server_lease where until < now() - interval '1 day'`;
}
