/** What the callers were told, held against what the ledger holds. */

import type { Sql } from "../../../../src/store/database/tx.ts";
import { addUpSeries } from "../../../../src/store/history/series.ts";
import { brokenInvariants } from "../../../support/invariants.ts";
import type { Log, Told } from "./callers.ts";

interface Row {
  requestId: string;
  status: "settled" | "failed" | "unmetered";
  cost: number;
  /** The caller's own name of the call; null where its gateway died before it was settled. */
  call: string | null;
}

/** Whatever is wrong, in words; empty when all is well. `org` is the callers' organisation, and nothing runs any more. */
export async function verdict(sql: Sql, org: string, callers: Log, grantedMicro: number): Promise<string[]> {
  const rows = await sql<Row[]>`
    select request_id, status, cost_micro as cost, log::json -> 'metadata' ->> 'call' as call from request where org_id = ${org}`;
  const [account] = await sql<{ granted: number; available: number; held: number }[]>`
    select granted_micro as granted, available_micro as available,
      (select coalesce(sum(amount_micro - spent_micro), 0) from lease where org_id = ${org}) as held
    from account where org_id = ${org}`;
  await addUpSeries(sql);
  const wrong = [...callers.faults, ...(await brokenInvariants(sql))];
  const settled = rows.filter(({ status }) => status === "settled");
  const spent = settled.reduce((sum, { cost }) => sum + cost, 0);
  if (account?.granted !== grantedMicro)
    wrong.push(`${grantedMicro} were paid in, and the account says ${account?.granted}`);
  if (account && account.granted - account.available !== spent + account.held)
    wrong.push(`${spent} were charged, and ${account.granted - account.available} are gone`);
  if (account?.held !== 0) wrong.push(`${account?.held} are still held`);
  wrong.push(...chargedTwice(settled), ...chargedForNothing(settled, callers.runs));
  const charged = new Set(settled.map(({ call }) => call));
  for (const { id, last } of callers.unheard)
    if (charged.has(id)) wrong.push(`${id} was charged and its key never answered: ${last}`);
  const byId = new Map(rows.map((row) => [row.requestId, row]));
  for (const told of callers.told.values()) wrong.push(...liesTo(told, byId));
  return wrong;
}

/** A call is charged once, under whatever request ids it ran. */
function chargedTwice(settled: readonly Row[]): string[] {
  const seen = new Set<string>();
  const twice: string[] = [];
  for (const { call, requestId } of settled) {
    if (call === null) twice.push(`${requestId} was charged, and nobody called`);
    else if (seen.has(call)) twice.push(`${call} was charged twice`);
    else seen.add(call);
  }
  return twice;
}

/** Nobody pays for a call that no model was asked for. */
const chargedForNothing = (settled: readonly Row[], runs: ReadonlyMap<string, number>): string[] =>
  settled.flatMap(({ call }) => (call === null || runs.has(call) ? [] : [`${call} was charged and never ran`]));

/** What a caller was told and the ledger does not know, or knows otherwise. */
function liesTo({ id, keyed, answered, failed }: Told, byId: ReadonlyMap<string, Row>): string[] {
  const lies: string[] = [];
  for (const [requestId, cost] of answered) {
    const row = byId.get(requestId);
    if (row === undefined) lies.push(`${id} was answered and is not on record`);
    else if (row.status === "failed") lies.push(`${id} was answered and is on record as failed`);
    else if (keyed && row.status !== "settled") lies.push(`${id} was answered under its key and not charged`);
    else if (row.status === "settled" && row.cost !== cost) lies.push(`${id} was told ${cost} and charged ${row.cost}`);
  }
  for (const requestId of failed)
    if (byId.get(requestId)?.status === "settled") lies.push(`${id} was told of a failure and charged`);
  return lies;
}
