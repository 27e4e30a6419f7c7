/** The audit log: every administrative act, in a chain of hashes per organization. */

import { now } from "../../clock.ts";
import { newId } from "../../ids.ts";
import { type Queryable, type Sql, type Tx, unixSeconds } from "../database/tx.ts";

/** An act to put on record. */
export interface Act {
  orgId: string;
  /** `admin`, `public`, `system`, or the name of the key or user that acted. */
  actor: string;
  /** What was done, such as `key.created`: the thing, a dot, a past participle. */
  action: string;
  /** The name of what it was done to. */
  subject: string;
  /** What else is worth knowing. Never a secret. */
  details?: Readonly<Record<string, unknown>>;
  requestId?: string | undefined;
}

/** An act on record. Hashes are in hexadecimal. */
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

/** Puts an act on record in the transaction of its cause: no commit, no record. Call it last; it holds the organization's chain. */
export async function audit(tx: Tx, { orgId, actor, action, subject, details = {}, requestId }: Act): Promise<void> {
  await tx`
    select audit_append(${orgId}, ${newId("aud")}, ${actor}, ${action}, ${subject}, ${JSON.stringify(details)}::text::jsonb,
      ${requestId ?? null}, ${new Date(now())}::timestamptz)`;
}

/** What to read of an organization's log. */
export interface AuditQuery {
  limit: number;
  /** Only records before this number. */
  before?: number | undefined;
  action?: string | undefined;
  actor?: string | undefined;
  subject?: string | undefined;
  requestId?: string | undefined;
}

/** The acts on an organization, newest first. */
export async function listAudit(
  sql: Sql,
  orgId: string,
  { limit, before, action, actor, subject, requestId }: AuditQuery,
): Promise<AuditRecord[]> {
  const rows = await sql<AuditRow[]>`
    select *, encode(previous, 'hex') as previous, encode(hash, 'hex') as hash from audit
    where org_id = ${orgId} ${before === undefined ? sql`` : sql`and seq < ${before}`}
      ${matching(sql, "action", action)} ${matching(sql, "actor", actor)} ${matching(sql, "subject", subject)}
      ${matching(sql, "request_id", requestId)}
    order by seq desc limit ${limit}`;
  return rows.map(recordOf);
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

/** What was changed, removed or slipped in, of one organization's chain or of all; empty when they are whole. */
export async function verifyAuditChain(sql: Sql, orgId?: string): Promise<AuditFault[]> {
  return sql<AuditFault[]>`
    select org_id, seq, fault from audit_faults(${orgId ?? null}) order by org_id, seq`;
}
