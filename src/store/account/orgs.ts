/** Organizations and their balance. Amounts are micro-dollars. */

import { Reason, refuse } from "../../errors.ts";
import { newId } from "../../ids.ts";
import { type Queryable, type Sql, type Tx, tx, unixSeconds } from "../database/tx.ts";

/** An organization. */
export interface OrgRecord {
  id: string;
  name: string;
  email: string | null;
  status: "active" | "suspended" | "deleted";
  /** Unix seconds. */
  created: number;
}

interface OrgRow extends Omit<OrgRecord, "created"> {
  created: Date;
}

const orgOf = ({ id, name, email, status, created }: OrgRow): OrgRecord => ({
  id,
  name,
  email,
  status,
  created: unixSeconds(created),
});

/** The fields of a new organization. */
export interface NewOrg {
  name: string;
  email?: string | undefined;
}

/** Creates an organization with an empty account. */
export const createOrg = (sql: Sql, org: NewOrg): Promise<OrgRecord> => tx(sql, (tx) => addOrg(tx, org));

/** The same in a transaction that makes more than that. */
export async function addOrg(tx: Tx, { name, email }: NewOrg): Promise<OrgRecord> {
  const [row] = await tx<
    OrgRow[]
  >`insert into org (id, name, email) values (${newId("org")}, ${name}, ${email ?? null}) returning *`;
  await tx`insert into account (org_id) values (${row!.id})`;
  return orgOf(row!);
}

/** Finds an organization by its name in paths, unless it was deleted. */
export async function findOrg(sql: Queryable, id: string): Promise<OrgRecord | undefined> {
  const [row] = await sql<OrgRow[]>`select * from org where id = ${id} and status <> 'deleted'`;
  return row && orgOf(row);
}

/** Whether there is an organization of this name, or was until it was deleted. */
export async function wasOrg(sql: Queryable, id: string): Promise<boolean> {
  const [row] = await sql`select from org where id = ${id}`;
  return row !== undefined;
}

/** Lets an organization call again, or refuses its calls. Reports whether there is such an organization. */
export async function setOrgStatus(sql: Sql, id: string, status: OrgRecord["status"]): Promise<boolean> {
  const { count } = await sql`update org set status = ${status} where id = ${id} and status <> 'deleted'`;
  return count > 0;
}

/** Credit that was paid in. */
export interface OrgGrant {
  orgId: string;
  amountMicro: number;
  reason?: string | undefined;
  /** The same key adds the credit once. */
  idempotencyKey?: string | undefined;
  /** Names the ledger's entry, which the ledger takes once; a fresh name when absent. */
  entryId?: string | undefined;
}

/** Credit on the balance: the ledger's entry, what there is now, and whether this call added it. */
export interface Granted {
  entryId: string;
  balanceMicro: number;
  /** False when the idempotency key had added it before. */
  isNew: boolean;
}

/**
 * Adds credit to an organization's balance, once per idempotency key. Refuses with `not_found` when there is no such
 * organization, and with `idempotency_conflict` when the key was used for another amount.
 */
export const addCredits = (sql: Sql, grant: OrgGrant): Promise<Granted> => tx(sql, (tx) => grantCredits(tx, grant));

/** The same in a transaction that does more than that. */
export async function grantCredits(tx: Tx, grant: OrgGrant): Promise<Granted> {
  const earlier = await earlierGrant(tx, grant);
  const entryId = earlier ?? (await enterGrant(tx, grant));
  return { entryId, balanceMicro: (await readBalance(tx, grant.orgId)).balanceMicro, isNew: earlier === undefined };
}

async function earlierGrant(tx: Tx, { orgId, amountMicro, idempotencyKey }: OrgGrant): Promise<string | undefined> {
  // The account's lock makes two grants of one key follow each other.
  const { count } = await tx`select from account where org_id = ${orgId} for update`;
  if (count === 0) throw refuse(Reason.NOT_FOUND, "there is no organisation of this name");
  if (idempotencyKey === undefined) return undefined;
  const [earlier] = await tx<{ cause: string; amountMicro: number }[]>`
    select cause, amount_micro from transfer where org_id = ${orgId} and grant_key = ${idempotencyKey}`;
  if (earlier && earlier.amountMicro !== amountMicro) {
    const text = "this idempotency key was used for another amount";
    throw refuse(Reason.IDEMPOTENCY_CONFLICT, text, {}, { param: "idempotency_key" });
  }
  return earlier?.cause;
}

async function enterGrant(tx: Tx, { orgId, amountMicro, reason, idempotencyKey, entryId }: OrgGrant): Promise<string> {
  const entry = entryId ?? newId("entry");
  await tx`
    insert into transfer (cause, kind, org_id, debit, credit, amount_micro, note, grant_key)
    values (${entry}, 'grant', ${orgId}, 'granted', 'available', ${amountMicro}, ${reason ?? null}, ${idempotencyKey ?? null})`;
  await tx`
    update account set granted_micro = granted_micro + ${amountMicro}, available_micro = available_micro + ${amountMicro}
    where org_id = ${orgId}`;
  // Calls of other replicas may be waiting for it.
  await tx`select pg_notify('lease_returned', ${orgId})`;
  return entry;
}

/** What an organization has: granted = spent + balance, available = balance - held. */
export interface BalanceRecord {
  grantedMicro: number;
  spentMicro: number;
  balanceMicro: number;
  /** What leases hold: promised to running calls, or about to be. */
  heldMicro: number;
  availableMicro: number;
  /** What reversed payments took back beyond what was there; the next credit goes to it first. */
  owedMicro: number;
}

/** The balance of an organization at one moment. */
export const balanceOf = (sql: Sql | Tx, orgId: string): Promise<BalanceRecord> => readBalance(sql, orgId);

async function readBalance(sql: Sql | Tx, orgId: string): Promise<BalanceRecord> {
  const [row] = await sql<{ granted: number; available: number; held: number; owed: number }[]>`
    select granted_micro as granted, available_micro as available, owed_micro as owed,
      (select coalesce(sum(amount_micro - spent_micro), 0) from lease where lease.org_id = account.org_id) as held
    from account where org_id = ${orgId}`;
  if (!row) throw refuse(Reason.NOT_FOUND, "there is no organisation of this name");
  const { granted, available, held, owed } = row;
  const balance = available + held;
  return {
    grantedMicro: granted,
    spentMicro: granted - balance,
    balanceMicro: balance,
    heldMicro: held,
    availableMicro: available,
    owedMicro: owed,
  };
}

/** Notes that an organization is told of a low balance; returns undefined when the balance is not low, or that was told before. */
export async function tellLow(tx: Tx, orgId: string): Promise<{ balanceMicro: number; lowMicro: number } | undefined> {
  const [row] = await tx<{ balanceMicro: number; lowMicro: number }[]>`
    update account set low_notified = true
    where org_id = ${orgId} and not low_notified and available_micro + held_of(org_id) < low_micro
    returning available_micro + held_of(org_id) as balance_micro, low_micro`;
  return row;
}

/** Notes that an organization is told of a balance that was not enough; returns undefined when that was told before. */
export async function tellExhausted(tx: Tx, orgId: string): Promise<{ balanceMicro: number } | undefined> {
  const [row] = await tx<{ balanceMicro: number }[]>`
    update account set exhausted_notified = true where org_id = ${orgId} and not exhausted_notified
    returning available_micro + held_of(org_id) as balance_micro`;
  return row;
}
