/** Credit that is bought without anybody asking: the rule, the stored payment method, and one charge at a time. Amounts are micro-dollars. */
import { newId } from "../../ids.ts";
import { type Queryable, type Sql, type Tx, tx, unixSeconds } from "../database/tx.ts";

/** A payment method that the processor has stored, by its names there. */
export interface MethodRecord {
  customerId: string;
  methodId: string;
  kind: string;
  brand: string | undefined;
  last4: string | undefined;
  /** Unix seconds. */
  since: number;
}

/** When an organization buys credit. */
export interface AutoTopUpRecord {
  enabled: boolean;
  thresholdMicro: number | undefined;
  amountMicro: number | undefined;
  ceilingMicro: number | undefined;
  method: MethodRecord | undefined;
  /** The payer, who stays known when the payment method is forgotten. */
  customerId: string | undefined;
  /** The page on which a payment method is being given. */
  setupSession: string | undefined;
  declines: number;
  /** Unix seconds. */
  nextTry: number;
  /** What was charged in this calendar month (UTC), with the charge that is being made. */
  chargedMicro: number;
  pendingPayment: string | undefined;
}

interface RuleRow {
  enabled: boolean;
  thresholdMicro: number | null;
  amountMicro: number | null;
  ceilingMicro: number | null;
  customerId: string | null;
  methodId: string | null;
  methodKind: string | null;
  methodBrand: string | null;
  methodLast4: string | null;
  methodSince: Date | null;
  setupSession: string | null;
  declines: number;
  nextTry: Date;
  chargedMicro: number;
  pendingPayment: string | null;
}

/** Charges in a row that may be declined before the rule is turned off. */
const MOST_DECLINES = 3;
/** How long a payment may be asked for under its name: less than the day for which the processor remembers it. */
const LIFE_H = 23;

/** What was charged in this month. Money that is on its way counts, and so does what went back since. */
const chargedOf = (sql: Queryable, org: ReturnType<Queryable>) => sql`
  (select coalesce(sum(p.amount_micro), 0)::bigint from payment as p
   where p.org_id = ${org} and p.automatic and p.status in ('pending', 'succeeded', 'refunded')
     and p.created >= date_trunc('month', now() at time zone 'UTC') at time zone 'UTC')`;

/** The rule of an organization; one that never made any has one that is off. */
export async function findAutoTopUp(sql: Queryable, orgId: string): Promise<AutoTopUpRecord> {
  const [row] = await sql<RuleRow[]>`
    select *, ${chargedOf(sql, sql`auto_topup.org_id`)} as charged_micro,
      (select id from payment where org_id = ${orgId} and automatic and status = 'pending') as pending_payment
    from auto_topup where org_id = ${orgId}`;
  return row ? ruleOf(row) : NONE;
}

const NONE: AutoTopUpRecord = {
  enabled: false,
  thresholdMicro: undefined,
  amountMicro: undefined,
  ceilingMicro: undefined,
  method: undefined,
  customerId: undefined,
  setupSession: undefined,
  declines: 0,
  nextTry: 0,
  chargedMicro: 0,
  pendingPayment: undefined,
};

const ruleOf = (row: RuleRow): AutoTopUpRecord => ({
  enabled: row.enabled,
  thresholdMicro: row.thresholdMicro ?? undefined,
  amountMicro: row.amountMicro ?? undefined,
  ceilingMicro: row.ceilingMicro ?? undefined,
  method:
    row.customerId === null || row.methodId === null || row.methodSince === null
      ? undefined
      : {
          customerId: row.customerId,
          methodId: row.methodId,
          kind: row.methodKind ?? "card",
          brand: row.methodBrand ?? undefined,
          last4: row.methodLast4 ?? undefined,
          since: unixSeconds(row.methodSince),
        },
  customerId: row.customerId ?? undefined,
  setupSession: row.setupSession ?? undefined,
  declines: row.declines,
  nextTry: unixSeconds(row.nextTry),
  chargedMicro: row.chargedMicro,
  pendingPayment: row.pendingPayment ?? undefined,
});

/** Locks the rule of an organization, which is made where there is none. */
export async function lockAutoTopUp(tx: Tx, orgId: string): Promise<AutoTopUpRecord> {
  await tx`insert into auto_topup (org_id) values (${orgId}) on conflict do nothing`;
  await tx`select from auto_topup where org_id = ${orgId} for update`;
  return findAutoTopUp(tx, orgId);
}

/** Writes a locked rule. `renews` takes back declines, so that it is tried at once. */
export async function saveAutoTopUp(
  tx: Tx,
  orgId: string,
  rule: Pick<AutoTopUpRecord, "enabled" | "thresholdMicro" | "amountMicro" | "ceilingMicro"> & {
    keyId: string;
    renews: boolean;
  },
): Promise<void> {
  const { enabled, thresholdMicro = null, amountMicro = null, ceilingMicro = null, keyId, renews } = rule;
  await tx`
    update auto_topup set enabled = ${enabled}, threshold_micro = ${thresholdMicro}, amount_micro = ${amountMicro},
      ceiling_told = case when ceiling_micro is distinct from ${ceilingMicro} then null else ceiling_told end,
      next_try = case when ${renews} or ceiling_micro is distinct from ${ceilingMicro} then now() else next_try end,
      ceiling_micro = ${ceilingMicro}, key_id = ${keyId}, updated = now(),
      declines = case when ${renews} then 0 else declines end
    where org_id = ${orgId}`;
}

/** Notes the page on which a payment method is given; one that was opened before stores nothing any more. */
export async function noteSetUp(tx: Tx, orgId: string, page: { sessionId: string; expiresAt: number }): Promise<void> {
  await lockAutoTopUp(tx, orgId);
  await tx`
    update auto_topup set setup_session = ${page.sessionId}, setup_expires = ${new Date(page.expiresAt * 1000)}
    where org_id = ${orgId}`;
}

/** The organization that a page is of. */
export async function orgOfSetUp(sql: Queryable, sessionId: string): Promise<string | undefined> {
  const [row] = await sql<{ orgId: string }[]>`select org_id from auto_topup where setup_session = ${sessionId}`;
  return row?.orgId;
}

/** Stores what was given on a page, once; reports whether it was this time. */
export async function storeMethod(tx: Tx, sessionId: string, method: Omit<MethodRecord, "since">): Promise<boolean> {
  const { customerId, methodId, kind, brand = null, last4 = null } = method;
  const { count } = await tx`
    update auto_topup set customer_id = ${customerId}, method_id = ${methodId}, method_kind = ${kind}, method_brand = ${brand},
      method_last4 = ${last4}, method_since = now(), setup_session = null, setup_expires = null, declines = 0, next_try = now()
    where setup_session = ${sessionId}`;
  return count > 0;
}

/** Deletes a payment method, and turns the rule off; a page that is open stores nothing any more. */
export async function dropMethod(tx: Tx, orgId: string): Promise<void> {
  await tx`
    update auto_topup set enabled = false, method_id = null, method_kind = null, method_brand = null, method_last4 = null,
      method_since = null, setup_session = null, setup_expires = null, updated = now()
    where org_id = ${orgId}`;
}

/** Leaves it to the workers that the processor forgets the payment method of an organization, and what may still be given on an open page. */
export async function leaveToForget(tx: Tx, orgId: string): Promise<void> {
  const { count } = await tx`
    insert into method_to_forget (method_id, setup_session, ends)
    select method_id, null, now() from auto_topup where org_id = ${orgId} and method_id is not null
    union all
    select null, setup_session, setup_expires from auto_topup
    where org_id = ${orgId} and setup_session is not null and setup_expires is not null
    on conflict do nothing`;
  if (count > 0) await tx`select pg_notify('topup_due', ${orgId})`;
}

/** What the processor is to forget: a payment method, or whatever is given on a page. */
export interface ToForget {
  id: number;
  methodId: string | null;
  setupSession: string | null;
  /** Nothing can be given on the page any more. */
  isOver: boolean;
}

/** After so many days the processor knows no page any more. */
const PAGE_DAYS = 30;

/** What the processor is to be asked to forget now; each is put off as charges are. */
export async function takeToForget(sql: Sql, limit: number): Promise<ToForget[]> {
  await sql`
    delete from method_to_forget where setup_session is not null and ends < now() - make_interval(days => ${PAGE_DAYS})`;
  return sql<ToForget[]>`
    update method_to_forget set asked_at = now()
    where id in (
      select id from method_to_forget
      where asked_at is null
        or asked_at + greatest(interval '30 seconds', least(asked_at - created, interval '1 hour')) <= now()
      order by id limit ${limit} for update skip locked
    )
    returning id, method_id, setup_session, ends <= now() as is_over`;
}

/** Has a page of an organization that was deleted asked about at once: something was given on it. */
export async function hurryToForget(sql: Sql, sessionId: string): Promise<void> {
  await tx(sql, async (tx) => {
    const { count } = await tx`update method_to_forget set asked_at = null where setup_session = ${sessionId}`;
    if (count > 0) await tx`select pg_notify('topup_due', '')`;
  });
}

/** The processor has forgotten it. */
export async function noteForgotten(sql: Sql, id: number): Promise<void> {
  await sql`delete from method_to_forget where id = ${id}`;
}

/** What a rule that is due came to: a payment that is to be charged, or a ceiling that is reached. */
export interface BegunTopUp {
  orgId: string;
  amountMicro: number;
  /** The payment; undefined where the ceiling stands against it. */
  paymentId: string | undefined;
  keyId: string;
  /** The ceiling was not told of in this month. */
  isNews: boolean;
}

interface DueRow {
  orgId: string;
  amountMicro: number;
  ceilingMicro: number;
  keyId: string;
  customerId: string;
  methodId: string;
  chargedMicro: number;
  told: boolean;
}

/**
 * Begins what is due for one organization whose balance is below its threshold; undefined where nothing is. Two replicas never begin for one
 * organization: its rule is locked and put off by a minute, and the database holds one automatic payment that is pending for each.
 */
export async function beginDue(tx: Tx): Promise<BegunTopUp | undefined> {
  const [due] = await tx<DueRow[]>`
    update auto_topup as a set next_try = now() + interval '1 minute'
    where org_id = (
      select t.org_id from auto_topup as t join account as c on c.org_id = t.org_id join org as o on o.id = t.org_id
      where t.enabled and t.next_try <= now() and o.status = 'active'
        and c.available_micro < t.threshold_micro and c.available_micro + held_of(t.org_id) < t.threshold_micro
        and not exists (select from payment as p where p.org_id = t.org_id and p.automatic and p.status = 'pending')
      order by t.next_try limit 1 for update of t skip locked
    )
    returning org_id, amount_micro, ceiling_micro, key_id, customer_id, method_id, ${chargedOf(tx, tx`a.org_id`)} as charged_micro,
      coalesce(ceiling_told = date_trunc('month', now() at time zone 'UTC')::date, false) as told`;
  if (!due) return undefined;
  const { orgId, amountMicro, ceilingMicro, keyId, customerId, methodId, chargedMicro, told } = due;
  if (chargedMicro + amountMicro > ceilingMicro) {
    await tx`
      update auto_topup set next_try = now() + interval '1 hour',
        ceiling_told = date_trunc('month', now() at time zone 'UTC')::date
      where org_id = ${orgId}`;
    return { orgId, amountMicro, keyId, paymentId: undefined, isNews: !told };
  }
  const id = newId("pay");
  await tx`
    insert into payment (id, org_id, key_id, amount_micro, success_url, cancel_url, expires_at, automatic, customer_id, method_id)
    values (${id}, ${orgId}, ${keyId}, ${amountMicro}, '', '', now() + make_interval(hours => ${LIFE_H}), true, ${customerId}, ${methodId})`;
  return { orgId, amountMicro, keyId, paymentId: id, isNews: true };
}

/**
 * Automatic payments whose charge is to be asked for, or asked about, now; each is put off for twice as long as before, an hour at most, so
 * that another replica asks again where this one dies.
 */
export async function takeCharges(sql: Sql, limit: number): Promise<{ orgId: string; id: string }[]> {
  return sql<{ orgId: string; id: string }[]>`
    update payment set asked_at = now()
    where id in (
      select id from payment
      where automatic and status = 'pending' and (
        asked_at is null
        or asked_at + greatest(interval '30 seconds', least(asked_at - created, interval '1 hour')) <= now()
      )
      order by created limit ${limit} for update skip locked
    )
    returning org_id, id`;
}

/** What a charge made of its rule. */
export interface ChargedRule {
  declines: number;
  /** It was turned off by it. */
  turnedOff: boolean;
}

/** Notes what became of a charge: one that was paid takes back declines, the third that is declined in a row turns the rule off. */
export async function noteCharged(
  tx: Tx,
  orgId: string,
  became: "succeeded" | "failed" | "expired",
): Promise<ChargedRule> {
  const [before] = await tx<{ enabled: boolean; declines: number }[]>`
    select enabled, declines from auto_topup where org_id = ${orgId} for update`;
  if (!before || became === "expired") return { declines: before?.declines ?? 0, turnedOff: false };
  const declines = became === "succeeded" ? 0 : before.declines + 1;
  const isOver = declines >= MOST_DECLINES;
  await tx`
    update auto_topup set declines = ${declines}, enabled = enabled and ${!isOver},
      next_try = case when ${declines} > 0 then now() + make_interval(hours => ${declines}) else next_try end
    where org_id = ${orgId}`;
  return { declines, turnedOff: before.enabled && isOver };
}
