/** The audit log: administrative actions, in a hash chain per organization. */

import { now } from "../../clock.ts";
import { newId } from "../../ids.ts";
import { type Queryable, type Sql, type Tx, unixSeconds } from "../database/tx.ts";
import { type Bounded, boundedPage, newest } from "../history/bounded.ts";

/** An action to record. */
export interface Act {
  orgId: string;
  /** `admin`, `public`, `system`, or the id of the key or user that acted. */
  actor: string;
  /** The action, such as `key.created`: a resource, a dot, a past participle. */
  action: string;
  /** The id of the resource. */
  subject: string;
  /** Further details. Never a secret. */
  details?: Readonly<Record<string, unknown>>;
  requestId?: string | undefined;
}

/** A recorded action. Hashes are in hexadecimal. */
export interface AuditRecord extends Required<Omit<Act, "requestId" | "details">> {
  id: string;
  seq: number;
  details: Record<string, unknown>;
  requestId: string | null;
  /** Unix seconds. */
  created: number;
  previous: string;
  hash: string;
}

/** Records an action in the transaction that performs it. Call it last: it locks the organization's chain. */
export async function audit(tx: Tx, { orgId, actor, action, subject, details = {}, requestId }: Act): Promise<void> {
  await tx`
    select audit_append(${orgId}, ${newId("aud")}, ${actor}, ${action}, ${subject}, ${JSON.stringify(details)}::text::jsonb,
      ${requestId ?? null}, ${new Date(now())}::timestamptz)`;
}

/** A page of an organization's log. */
export interface AuditQuery {
  limit: number;
  /** Only records before this number. */
  before?: number | undefined;
  action?: string | undefined;
  actor?: string | undefined;
  subject?: string | undefined;
  requestId?: string | undefined;
}

/** The actions in an organization, newest first. A filter reads a bounded number of records. */
export async function listAudit(
  sql: Sql,
  orgId: string,
  { limit, before, action, actor, subject, requestId }: AuditQuery,
): Promise<Bounded<AuditRecord>> {
  const window = {
    rows: sql`select * from audit where org_id = ${orgId} ${before === undefined ? sql`` : sql`and seq < ${before}`}`,
    order: sql`seq desc`,
    cursor: sql`seq::text`,
  };
  const rows = await sql<AuditRow[]>`
    select *, encode(previous, 'hex') as previous, encode(hash, 'hex') as hash from (${newest(sql, window)}) as e
    where true ${matching(sql, "action", action)} ${matching(sql, "actor", actor)} ${matching(sql, "subject", subject)}
      ${matching(sql, "request_id", requestId)}
    order by seq desc limit ${limit}`;
  return boundedPage(sql, { rows: rows.map(recordOf), limit, window });
}

const matching = (sql: Queryable, column: string, value: string | undefined) =>
  value === undefined ? sql`` : sql`and ${sql(column)} = ${value}`;

interface AuditRow extends Omit<AuditRecord, "created"> {
  created: Date;
}

const recordOf = (row: AuditRow): AuditRecord => ({ ...row, created: unixSeconds(row.created) });

/** One break of a chain. */
export interface AuditFault {
  orgId: string;
  seq: number;
  fault: string;
}

/** Finds changed, removed and inserted records in one organization's chain or in all chains; empty if they are intact. */
export async function verifyAuditChain(sql: Sql, orgId?: string): Promise<AuditFault[]> {
  return sql<AuditFault[]>`
    select org_id, seq, fault from audit_faults(${orgId ?? null}) order by org_id, seq`;
}
