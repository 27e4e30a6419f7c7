/** Organizations and their balances. Amounts are micro-dollars. */

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

/** Like `createOrg`, within an existing transaction. */
export async function addOrg(tx: Tx, { name, email }: NewOrg): Promise<OrgRecord> {
  const [row] = await tx<
    OrgRow[]
  >`insert into org (id, name, email) values (${newId("org")}, ${name}, ${email ?? null}) returning *`;
  await tx`insert into account (org_id) values (${row!.id})`;
  return orgOf(row!);
}

/** Finds an organization by id, unless it was deleted. */
export async function findOrg(sql: Queryable, id: string): Promise<OrgRecord | undefined> {
  const [row] = await sql<OrgRow[]>`select * from org where id = ${id} and status <> 'deleted'`;
  return row && orgOf(row);
}

/** Whether an organization with this id exists, or existed until it was deleted. */
export async function wasOrg(sql: Queryable, id: string): Promise<boolean> {
  const [row] = await sql`select from org where id = ${id}`;
  return row !== undefined;
}

/** Sets an organization's status, which allows or refuses its calls. Returns false if the organization does not exist. */
export async function setOrgStatus(sql: Sql, id: string, status: OrgRecord["status"]): Promise<boolean> {
  const { count } = await sql`update org set status = ${status} where id = ${id} and status <> 'deleted'`;
  return count > 0;
}

/** Credit to add. */
export interface OrgGrant {
  orgId: string;
  amountMicro: number;
  reason?: string | undefined;
  /** Credit is added once per key. */
  idempotencyKey?: string | undefined;
  /** The id of the ledger entry, which the ledger accepts once; a new id if absent. */
  entryId?: string | undefined;
}

/** Added credit: the ledger entry, the new balance, and whether this call added it. */
export interface Granted {
  entryId: string;
  balanceMicro: number;
  /** False if the idempotency key had already added it. */
  isNew: boolean;
}

/**
 * Adds credit to an organization's balance, once per idempotency key. Refuses with `not_found` if the organization does not exist, and with
 * `idempotency_conflict` if the key was used for another amount.
 */
export const addCredits = (sql: Sql, grant: OrgGrant): Promise<Granted> => tx(sql, (tx) => grantCredits(tx, grant));

/** Like `addCredits`, within an existing transaction. */
export async function grantCredits(tx: Tx, grant: OrgGrant): Promise<Granted> {
  const earlier = await earlierGrant(tx, grant);
  const entryId = earlier ?? (await enterGrant(tx, grant));
  return { entryId, balanceMicro: (await readBalance(tx, grant.orgId)).balanceMicro, isNew: earlier === undefined };
}

async function earlierGrant(tx: Tx, { orgId, amountMicro, idempotencyKey }: OrgGrant): Promise<string | undefined> {
  // The account's lock serializes two grants with one key.
  const { count } = await tx`select from account where org_id = ${orgId} for update`;
  if (count === 0) throw refuse(Reason.NOT_FOUND, "organization not found");
  if (idempotencyKey === undefined) return undefined;
  const [earlier] = await tx<{ cause: string; amountMicro: number }[]>`
    select cause, amount_micro from transfer where org_id = ${orgId} and grant_key = ${idempotencyKey}`;
  if (earlier && earlier.amountMicro !== amountMicro) {
    const text = "the idempotency key was already used for another amount; use a new key";
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
  // Calls on other replicas may be waiting for credit.
  await tx`select pg_notify('lease_returned', ${orgId})`;
  return entry;
}

/** The parts of a balance: granted = spent + balance, available = balance - held. */
export interface BalanceRecord {
  grantedMicro: number;
  spentMicro: number;
  balanceMicro: number;
  /** Credit in leases: reserved for running calls, or about to be. */
  heldMicro: number;
  availableMicro: number;
  /** Reversed payments that the balance did not cover; deducted from the next credit. */
  owedMicro: number;
}

/** The balance of an organization at one moment. */
export const balanceOf = (sql: Sql | Tx, orgId: string): Promise<BalanceRecord> => readBalance(sql, orgId);

async function readBalance(sql: Sql | Tx, orgId: string): Promise<BalanceRecord> {
  const [row] = await sql<{ granted: number; available: number; held: number; owed: number }[]>`
    select granted_micro as granted, available_micro as available, owed_micro as owed,
      (select coalesce(sum(amount_micro - spent_micro), 0) from lease where lease.org_id = account.org_id) as held
    from account where org_id = ${orgId}`;
  if (!row) throw refuse(Reason.NOT_FOUND, "organization not found");
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

/** Marks the low-balance notice as sent; undefined if the balance is not low, or the notice was sent before. */
export async function claimLowBalanceNotice(
  tx: Tx,
  orgId: string,
): Promise<{ balanceMicro: number; lowMicro: number } | undefined> {
  const [row] = await tx<{ balanceMicro: number; lowMicro: number }[]>`
    update account set low_notified = true
    where org_id = ${orgId} and not low_notified and available_micro + held_of(org_id) < low_micro
    returning available_micro + held_of(org_id) as balance_micro, low_micro`;
  return row;
}

/** Marks the notice of an insufficient balance as sent; undefined if it was sent before. */
export async function claimExhaustedNotice(tx: Tx, orgId: string): Promise<{ balanceMicro: number } | undefined> {
  const [row] = await tx<{ balanceMicro: number }[]>`
    update account set exhausted_notified = true where org_id = ${orgId} and not exhausted_notified
    returning available_micro + held_of(org_id) as balance_micro`;
  return row;
}
