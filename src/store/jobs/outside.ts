/** Jobs that a runner outside works on: taken, kept and given up like any other, by the organisation's own keys. */

import type { Sql, Tx } from "../database/tx.ts";
import { type JobHold, type JobsOf, ofThese, renew } from "./jobs.ts";

/** What a runner asks for. */
export interface OutsideAsk extends JobsOf {
  /** The runner's key: no other can go on with what it took. */
  readonly keyId: string;
  /** What it calls itself. */
  readonly name: string;
  /** Scenarios that it can run; all when empty. */
  readonly scenarios: readonly string[];
  /** Seconds that it keeps a job after its last word. */
  readonly leaseS: number;
}

/** Gives a runner the evaluation of its organisation, or of its workspace, that has waited longest; undefined when none waits. */
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

/** Marks a part of a held job as begun, unless it has ended; answers whether it's the caller's to end. */
export async function beginItem(tx: Tx, hold: JobHold, index: number): Promise<boolean> {
  await renew(tx, hold);
  const { count } = await tx`
    update job_item set state = 'running', rank = 3, epoch = ${hold.epoch}, tries = tries + 1
    where job_id = ${hold.id} and index = ${index} and rank < 9`;
  return count > 0;
}
