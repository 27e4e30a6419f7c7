/** What providers earn of what calls are charged, and what of it was paid out. Amounts are micro-dollars, shares ten-thousandths. */

import { Reason, refuse } from "../../errors.ts";
import { newId } from "../../ids.ts";
import { type Queryable, type Sql, type Tx, unixSeconds } from "../database/tx.ts";

/** Adds up what was served until now, so that reads of earnings need not. As often as called, each call is counted once. */
export async function addUpServed(sql: Sql): Promise<void> {
  await sql`select add_up_served()`;
}

/** What an offering delivered on a day in one unit. */
export interface ServedRecord {
  /** Such as `2026-11-23`. */
  day: string;
  unit: string;
  calls: number;
  ownKeyCalls: number;
  hedges: number;
  units: number;
}

/** What an offering delivered from a day on. */
export async function servedBy(sql: Sql, offeringId: string, since: string): Promise<ServedRecord[]> {
  return sql<ServedRecord[]>`
    select day::text, unit, sum(calls) as calls, sum(own_key_calls) as own_key_calls, sum(hedges) as hedges, sum(units) as units
    from served where offering_id = ${offeringId} and day >= ${since}::text::date group by day, unit order by day desc, unit`;
}

/** What an offering earned on a day at one share. */
export interface EarningRecord {
  day: string;
  provider: string;
  offeringId: string;
  model: string;
  shareBp: number;
  calls: number;
  ownKeyCalls: number;
  hedges: number;
  grossMicro: number;
  earnedMicro: number;
  /** Where it stands in the list. */
  place: string;
}

/** Whose earnings to read: providers by name, all of them when undefined. */
export interface EarningQuery {
  providers: readonly string[] | undefined;
  limit: number;
  /** Only what stands after this place. */
  cursor: string | undefined;
}

const ofProviders = (sql: Queryable, providers: readonly string[] | undefined) =>
  providers === undefined ? sql`` : sql`and provider = any (${[...providers]}::text[])`;

/** Earnings by day and offering, the newest first. Moments are unix seconds; days in UTC. */
export async function listEarnings(
  sql: Sql,
  {
    providers,
    model,
    offeringId,
    since,
    until,
    limit,
    cursor,
  }: EarningQuery & {
    model?: string | undefined;
    offeringId?: string | undefined;
    since?: number | undefined;
    until?: number | undefined;
  },
): Promise<EarningRecord[]> {
  const day = (seconds: number) => sql`(to_timestamp(${seconds}) at time zone 'UTC')::date`;
  return sql<EarningRecord[]>`
    select * from (
      select day::text, provider, offering_id, model, share_bp, calls, own_key_calls, hedges, gross_micro, earned_micro,
        format('%s~%s~%s~%s', day, provider, offering_id, lpad(share_bp::text, 5, '0')) collate "C" as place
      from earning where true ${ofProviders(sql, providers)}
        ${model === undefined ? sql`` : sql`and model = ${model}`}
        ${offeringId === undefined ? sql`` : sql`and offering_id = ${offeringId}`}
        ${since === undefined ? sql`` : sql`and day >= ${day(since)}`}
        ${until === undefined ? sql`` : sql`and day < ${day(until)}`}
    ) as line where true ${cursor === undefined ? sql`` : sql`and place < ${cursor}`} order by place desc limit ${limit}`;
}

/** What a provider earned in a month. */
export interface StatementRecord {
  /** Such as `2026-11`. */
  month: string;
  provider: string;
  calls: number;
  ownKeyCalls: number;
  hedges: number;
  grossMicro: number;
  earnedMicro: number;
  paidMicro: number;
  /** All calls of the month are in it. */
  closed: boolean;
  models: { model: string; calls: number; gross_micro: number; earned_micro: number }[];
  place: string;
}

/** Statements by month, the newest first. */
export async function listStatements(sql: Sql, { providers, limit, cursor }: EarningQuery): Promise<StatementRecord[]> {
  return sql<StatementRecord[]>`
    with line as (
      select to_char(day, 'YYYY-MM') as month, provider, model, sum(calls) as calls, sum(own_key_calls) as own_key_calls,
        sum(hedges) as hedges, sum(gross_micro) as gross_micro, sum(earned_micro) as earned_micro
      from earning where true ${ofProviders(sql, providers)} group by 1, 2, 3
    ), earned as (
      select month, provider, sum(calls) as calls, sum(own_key_calls) as own_key_calls, sum(hedges) as hedges,
        sum(gross_micro) as gross_micro, sum(earned_micro) as earned_micro,
        json_agg(json_build_object('model', model, 'calls', calls, 'gross_micro', gross_micro, 'earned_micro', earned_micro) order by model)
          as models
      from line group by month, provider
    ), paid as (
      select to_char(created at time zone 'UTC', 'YYYY-MM') as month, provider, sum(amount_micro) as paid_micro
      from payout where true ${ofProviders(sql, providers)} group by 1, 2
    )
    select * from (
      select month, provider, coalesce(calls, 0) as calls, coalesce(own_key_calls, 0) as own_key_calls, coalesce(hedges, 0) as hedges,
        coalesce(gross_micro, 0) as gross_micro, coalesce(earned_micro, 0) as earned_micro, coalesce(paid_micro, 0) as paid_micro,
        coalesce(models, '[]'::json) as models,
        (select at from served_until) >= (to_date(month, 'YYYY-MM') + interval '1 month') at time zone 'UTC' as closed,
        format('%s~%s', month, provider) collate "C" as place
      from earned full join paid using (month, provider)
    ) as statement where true ${cursor === undefined ? sql`` : sql`and place < ${cursor}`} order by place desc limit ${limit}`;
}

/** What a provider earned in all, and what of it was paid out. */
export async function earnedBy(sql: Queryable, provider: string): Promise<{ earnedMicro: number; paidMicro: number }> {
  const [row] = await sql<{ earnedMicro: number; paidMicro: number }[]>`
    select (select coalesce(sum(earned_micro), 0) from earning where provider = ${provider}) as earned_micro,
      (select coalesce(sum(amount_micro), 0) from payout where provider = ${provider}) as paid_micro`;
  return row!; // a select without a table has one row
}

/** The share of a provider that is in force, and whether it is its own. */
export async function shareOf(sql: Queryable, provider: string): Promise<{ shareBp: number; own: boolean }> {
  const [row] = await sql<{ shareBp: number; own: boolean }[]>`
    select share_at(${provider}, now()) as share_bp, coalesce((
      select share_bp is not null from provider_share where provider = ${provider} order by since desc, id desc limit 1
    ), false) as own`;
  return row!; // as above
}

/** Sets the share of a provider from now on, null for none of its own, or that of all without one of their own. */
export async function setShare(tx: Tx, provider: string | undefined, shareBp: number | null): Promise<void> {
  await tx`insert into provider_share (provider, share_bp) values (${provider ?? null}, ${shareBp})`;
}

/** Providers without a share of their own, with their organizations. */
export async function providersAtDefault(sql: Queryable): Promise<{ id: string; name: string; orgId: string }[]> {
  return sql<{ id: string; name: string; orgId: string }[]>`
    select id, name, org_id from provider where (
      select share_bp from provider_share where provider = provider.name order by since desc, id desc limit 1
    ) is null order by org_id, name`;
}

/** A payout on record. */
export interface PayoutRecord {
  id: string;
  provider: string;
  amountMicro: number;
  reference: string;
  /** Unix seconds. */
  created: number;
}

interface PayoutRow extends Omit<PayoutRecord, "created"> {
  created: Date;
}

const payoutOf = (row: PayoutRow): PayoutRecord => ({ ...row, created: unixSeconds(row.created) });

/**
 * Records a payout, which must not exceed what is owed; payouts of one provider wait for each other. One of the same reference and amount is
 * answered as it was recorded; refuses with `already_exists` where the amount is another.
 */
export async function recordPayout(
  tx: Tx,
  { provider, amountMicro, reference }: Pick<PayoutRecord, "provider" | "amountMicro" | "reference">,
): Promise<{ payout: PayoutRecord; isNew: boolean } | { owedMicro: number }> {
  await tx`select from provider where name = ${provider} for no key update`;
  const [known] = await tx<PayoutRow[]>`
    select * from payout where provider = ${provider} and reference = ${reference}`;
  if (known) {
    if (known.amountMicro === amountMicro) return { payout: payoutOf(known), isNew: false };
    const text = "a payout with this `reference` already exists with another amount";
    throw refuse(Reason.ALREADY_EXISTS, text, {}, { param: "reference" });
  }
  const { earnedMicro, paidMicro } = await earnedBy(tx, provider);
  if (amountMicro > earnedMicro - paidMicro) return { owedMicro: earnedMicro - paidMicro };
  const row = { id: newId("pout"), provider, amountMicro, reference };
  const [made] = await tx<PayoutRow[]>`insert into payout ${tx(row)} returning *`;
  return { payout: payoutOf(made!), isNew: true };
}

/** Payouts of a provider, the newest first, from before the one of the name `before`. */
export async function listPayouts(
  sql: Sql,
  provider: string,
  { limit, before }: { limit: number; before: string | undefined },
): Promise<PayoutRecord[]> {
  const rows = await sql<PayoutRow[]>`
    select * from payout where provider = ${provider} ${before === undefined ? sql`` : sql`and id < ${before}`}
    order by id desc limit ${limit}`;
  return rows.map(payoutOf);
}
