/** Automatic top-up: the rule, the stored payment method, and one charge at a time. Amounts are micro-dollars. */
import { newId } from "../../ids.ts";
import { type Queryable, type Sql, type Tx, tx, unixSeconds } from "../database/tx.ts";

/** A payment method stored at the processor, by the processor's ids. */
export interface MethodRecord {
  customerId: string;
  methodId: string;
  kind: string;
  brand: string | undefined;
  last4: string | undefined;
  /** Unix seconds. */
  since: number;
}

/** The top-up rule of an organization. */
export interface AutoTopUpRecord {
  enabled: boolean;
  thresholdMicro: number | undefined;
  amountMicro: number | undefined;
  ceilingMicro: number | undefined;
  method: MethodRecord | undefined;
  /** The processor's customer, which stays when the payment method is deleted. */
  customerId: string | undefined;
  /** The open page for storing a payment method. */
  setupSession: string | undefined;
  declines: number;
  /** Unix seconds. */
  nextTry: number;
  /** The amount charged in this calendar month (UTC), including a pending charge. */
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

/** Consecutive declines after which the rule is turned off. */
const MOST_DECLINES = 3;
/** How long a payment can be requested under one id: less than the day for which the processor remembers it. */
const LIFE_H = 23;

/** The amount charged in this month. Pending and refunded amounts count. */
const chargedOf = (sql: Queryable, org: ReturnType<Queryable>) => sql`
  (select coalesce(sum(p.amount_micro), 0)::bigint from payment as p
   where p.org_id = ${org} and p.automatic and p.status in ('pending', 'succeeded', 'refunded')
     and p.created >= date_trunc('month', now() at time zone 'UTC') at time zone 'UTC')`;

/** The rule of an organization; a disabled one by default. */
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

/** Locks the rule of an organization; creates it if missing. */
export async function lockAutoTopUp(tx: Tx, orgId: string): Promise<AutoTopUpRecord> {
  await tx`insert into auto_topup (org_id) values (${orgId}) on conflict do nothing`;
  await tx`select from auto_topup where org_id = ${orgId} for update`;
  return findAutoTopUp(tx, orgId);
}

/** Stores a locked rule. `renews` resets the declines, so that the next charge is attempted at once. */
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

/** Stores the open page for a payment method; an earlier page stores nothing any more. */
export async function noteSetUp(tx: Tx, orgId: string, page: { sessionId: string; expiresAt: number }): Promise<void> {
  await lockAutoTopUp(tx, orgId);
  await tx`
    update auto_topup set setup_session = ${page.sessionId}, setup_expires = ${new Date(page.expiresAt * 1000)}
    where org_id = ${orgId}`;
}

/** The organization of a page. */
export async function orgOfSetUp(sql: Queryable, sessionId: string): Promise<string | undefined> {
  const [row] = await sql<{ orgId: string }[]>`select org_id from auto_topup where setup_session = ${sessionId}`;
  return row?.orgId;
}

/** Stores the payment method of a page, once; reports whether this call stored it. */
export async function storeMethod(tx: Tx, sessionId: string, method: Omit<MethodRecord, "since">): Promise<boolean> {
  const { customerId, methodId, kind, brand = null, last4 = null } = method;
  const { count } = await tx`
    update auto_topup set customer_id = ${customerId}, method_id = ${methodId}, method_kind = ${kind}, method_brand = ${brand},
      method_last4 = ${last4}, method_since = now(), setup_session = null, setup_expires = null, declines = 0, next_try = now()
    where setup_session = ${sessionId}`;
  return count > 0;
}

/** Deletes the payment method and turns the rule off; an open page stores nothing any more. */
export async function dropMethod(tx: Tx, orgId: string): Promise<void> {
  await tx`
    update auto_topup set enabled = false, method_id = null, method_kind = null, method_brand = null, method_last4 = null,
      method_since = null, setup_session = null, setup_expires = null, updated = now()
    where org_id = ${orgId}`;
}

/** Queues the deletion of an organization's payment method at the processor, and of one still given on an open page. */
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

/** A pending deletion at the processor: of a payment method, or of the one given on a page. */
export interface ToForget {
  id: number;
  methodId: string | null;
  setupSession: string | null;
  /** Whether the page has expired. */
  isOver: boolean;
}

/** Days after which the processor no longer knows a page. */
const PAGE_DAYS = 30;

/** The due deletions at the processor; each is postponed like charges. */
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

/** Makes the deletion due at once for a page of a deleted organization that received a payment method. */
export async function hurryToForget(sql: Sql, sessionId: string): Promise<void> {
  await tx(sql, async (tx) => {
    const { count } = await tx`update method_to_forget set asked_at = null where setup_session = ${sessionId}`;
    if (count > 0) await tx`select pg_notify('topup_due', '')`;
  });
}

/** Marks a deletion at the processor as done. */
export async function noteForgotten(sql: Sql, id: number): Promise<void> {
  await sql`delete from method_to_forget where id = ${id}`;
}

/** The outcome of a due rule: a payment to charge, or a reached ceiling. */
export interface BegunTopUp {
  orgId: string;
  amountMicro: number;
  /** The payment; undefined if the ceiling prevents it. */
  paymentId: string | undefined;
  keyId: string;
  /** Whether the ceiling was not reported in this month yet. */
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
 * Begins the due top-up of one organization whose balance is below its threshold; undefined if none is due. Two replicas never begin one for
 * the same organization: the rule is locked and postponed by a minute, and the database allows one pending automatic payment each.
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
 * Automatic payments whose charge is to be requested or queried now. The delay of each doubles up to an hour, so that another replica
 * continues if this one dies.
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

/** The effect of a charge on its rule. */
export interface ChargedRule {
  declines: number;
  /** Whether it turned the rule off. */
  turnedOff: boolean;
}

/** Applies the result of a charge: success resets the declines, the third consecutive decline turns the rule off. */
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
