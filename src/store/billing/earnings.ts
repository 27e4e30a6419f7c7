/** Earnings of providers and their payouts. Amounts are micro-dollars, shares are ten-thousandths. */

import { Reason, refuse } from "../../errors.ts";
import { newId } from "../../ids.ts";
import { allRecords, firstRecord, type Queryable, type Sql, type Tx } from "../database/tx.ts";

/** Adds new deliveries to the totals, which speeds up reads. Counts each call once, however often it runs. */
export async function addUpServed(sql: Sql): Promise<void> {
  await sql`select add_up_served()`;
}

/** An offering's deliveries on one day in one unit. */
export interface ServedRecord {
  /** Such as `2026-11-23`. */
  day: string;
  unit: string;
  calls: number;
  ownKeyCalls: number;
  hedges: number;
  units: number;
}

/** An offering's deliveries from a day on. */
export async function servedBy(sql: Sql, offeringId: string, since: string): Promise<ServedRecord[]> {
  return sql<ServedRecord[]>`
    select day::text, unit, sum(calls) as calls, sum(own_key_calls) as own_key_calls, sum(hedges) as hedges, sum(units) as units
    from served where offering_id = ${offeringId} and day >= ${since}::text::date group by day, unit order by day desc, unit`;
}

/** An offering's earnings on one day at one share. */
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
  /** Its position in the list. */
  place: string;
}

/** A page of earnings: of the named providers, or of all if undefined. */
export interface EarningQuery {
  providers: readonly string[] | undefined;
  limit: number;
  /** Only rows after this position. */
  cursor: string | undefined;
}

const ofProviders = (sql: Queryable, providers: readonly string[] | undefined) =>
  providers === undefined ? sql`` : sql`and provider = any (${[...providers]}::text[])`;

/** Earnings by day and offering, newest first. Times are unix seconds; days in UTC. */
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

/** A provider's earnings in a month. */
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
  /** Whether all calls of the month are included. */
  closed: boolean;
  models: { model: string; calls: number; gross_micro: number; earned_micro: number }[];
  place: string;
}

/** Statements by month, newest first. */
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

/** A provider's total earnings and payouts. */
export async function earnedBy(sql: Queryable, provider: string): Promise<{ earnedMicro: number; paidMicro: number }> {
  const [row] = await sql<{ earnedMicro: number; paidMicro: number }[]>`
    select (select coalesce(sum(earned_micro), 0) from earning where provider = ${provider}) as earned_micro,
      (select coalesce(sum(amount_micro), 0) from payout where provider = ${provider}) as paid_micro`;
  return row!; // a select without a table has one row
}

/** The current share of a provider, and whether it has its own. */
export async function shareOf(sql: Queryable, provider: string): Promise<{ shareBp: number; own: boolean }> {
  const [row] = await sql<{ shareBp: number; own: boolean }[]>`
    select share_at(${provider}, now()) as share_bp, coalesce((
      select share_bp is not null from provider_share where provider = ${provider} order by since desc, id desc limit 1
    ), false) as own`;
  return row!; // as above
}

/** Sets a provider's share from now on, null to remove it; or the default share of all providers. */
export async function setShare(tx: Tx, provider: string | undefined, shareBp: number | null): Promise<void> {
  await tx`insert into provider_share (provider, share_bp) values (${provider ?? null}, ${shareBp})`;
}

/** Providers without their own share, with their organizations. */
export async function providersAtDefault(sql: Queryable): Promise<{ id: string; name: string; orgId: string }[]> {
  return sql<{ id: string; name: string; orgId: string }[]>`
    select id, name, org_id from provider where (
      select share_bp from provider_share where provider = provider.name order by since desc, id desc limit 1
    ) is null order by org_id, name`;
}

/** A recorded payout. */
export interface PayoutRecord {
  id: string;
  provider: string;
  amountMicro: number;
  reference: string;
  /** Unix seconds. */
  created: number;
}

/**
 * Records a payout, which must not exceed the amount due. Payouts of one provider are serialized. Returns an existing payout with the same
 * reference and amount unchanged; refuses with `already_exists` if its amount differs.
 */
export async function recordPayout(
  tx: Tx,
  { provider, amountMicro, reference }: Pick<PayoutRecord, "provider" | "amountMicro" | "reference">,
): Promise<{ payout: PayoutRecord; isNew: boolean } | { owedMicro: number }> {
  await tx`select from provider where name = ${provider} for no key update`;
  const known = await firstRecord<PayoutRecord>(tx`
    select * from payout where provider = ${provider} and reference = ${reference}`);
  if (known) {
    if (known.amountMicro === amountMicro) return { payout: known, isNew: false };
    const text = "a payout with this `reference` already exists with another amount";
    throw refuse(Reason.ALREADY_EXISTS, text, {}, { param: "reference" });
  }
  const { earnedMicro, paidMicro } = await earnedBy(tx, provider);
  if (amountMicro > earnedMicro - paidMicro) return { owedMicro: earnedMicro - paidMicro };
  const row = { id: newId("pout"), provider, amountMicro, reference };
  const made = await firstRecord<PayoutRecord>(tx`insert into payout ${tx(row)} returning *`);
  return { payout: made!, isNew: true };
}

/** Payouts of a provider, newest first, before the id `before`. */
export async function listPayouts(
  sql: Sql,
  provider: string,
  { limit, before }: { limit: number; before: string | undefined },
): Promise<PayoutRecord[]> {
  return allRecords<PayoutRecord>(sql`
    select * from payout where provider = ${provider} ${before === undefined ? sql`` : sql`and id < ${before}`}
    order by id desc limit ${limit}`);
}
