/** Deletes organizations. Records that the ledger needs stay, without personal data. Amounts are micro-dollars. */
import { leaveToForget } from "../billing/auto-topup.ts";
import type { Tx } from "../database/tx.ts";
import { balanceOf } from "./orgs.ts";

/** What is lost when an organization is deleted. */
export interface OrgContents {
  /** Unused paid credit. */
  balanceMicro: number;
  /** Whether it has a monthly commitment. */
  hasCommitment: boolean;
  openJobs: number;
  pendingPayments: number;
  liveOfferings: number;
}

/** Locks an organization and returns what would be lost; undefined if it does not exist or was deleted. */
export async function contentsOfOrg(tx: Tx, orgId: string): Promise<OrgContents | undefined> {
  const { count } = await tx`select from org where id = ${orgId} and status <> 'deleted' for update`;
  if (count === 0) return undefined;
  const [row] = await tx<Omit<OrgContents, "balanceMicro">[]>`
    select
      exists (select from commitment where org_id = ${orgId} and min_micro > 0) as has_commitment,
      (select count(*)::int from job where org_id = ${orgId} and parent is null and rank < 9) as open_jobs,
      (select count(*)::int from payment where org_id = ${orgId} and status = 'pending' and expires_at > now()) as pending_payments,
      (select count(*)::int from offering where org_id = ${orgId} and status in ('live', 'degraded')) as live_offerings`;
  return { ...row!, balanceMicro: (await balanceOf(tx, orgId)).balanceMicro };
}

/** Tables from which an organization's rows are deleted, in the order of their references. Providers with earnings are the exception. */
export const EMPTIED = [
  "oauth_code",
  "oauth_client",
  "scim_group",
  "session",
  "sign_in_link",
  "sign_in_identity",
  "email_domain",
  "issuer",
  "mail_preference",
  "member",
  "preset",
  "org_settings",
  "credential",
  "webhook",
  "broadcast_target",
  "robot_stop",
  "robot",
  "robot_run",
  "robot_arming",
  "job",
  "publication",
  "suite",
  "idempotency",
  "outbox",
  "series_line",
  "mail",
  "commitment",
  "auto_topup",
  "maker_key",
  "offering",
  "provider",
] as const;

/**
 * Tables whose amounts and ids stay, and whose other columns are blanked. The names of model owners stay reserved: a robot that calls a model
 * by its full name must not reach a later owner of the name.
 */
export const KEPT = [
  "model_owner",
  "workspace",
  "key",
  "account",
  "transfer",
  "request_outcome",
  "hedge_loser",
  "closing_entry",
  "margin_hour",
  "lease",
  "recall",
  "key_day",
  "workspace_day",
  "key_descendants_day",
  "payment",
  "payment_reversal",
  "commitment_month",
  "audit",
  "audit_head",
] as const;

/** Tables from which the rows of deleted organizations disappear in batches, because they can be millions (see `forgetLogs`). */
export const EMPTIED_LATER = ["request_log"] as const;

/**
 * Deletes all data of a locked organization that the ledger does not need. Returns the number of its audit records and the hash of the last
 * one: the log starts again.
 */
export async function deleteOrg(tx: Tx, orgId: string): Promise<{ records: number; hash: string }> {
  const models = await tx<{ model: string }[]>`select distinct model from offering where org_id = ${orgId}`;
  await tx`
    update credential set provider_id = null where provider_id in (select id from provider where org_id = ${orgId})`;
  await tx`
    delete from outbound_connection where provider in (select name from provider where org_id = ${orgId})`;
  // A provider with earnings keeps its name: its due amounts can be paid, and no later provider inherits them.
  const own = await tx<{ name: string }[]>`select name from provider where org_id = ${orgId}`;
  const names = own.map(({ name }) => name);
  const kept = await tx<{ provider: string }[]>`
    select provider from served where provider = any (${names}::text[])
    union select provider from payout where provider = any (${names}::text[])
    union select provider from provider_share where provider = any (${names}::text[])`;
  await leaveToForget(tx, orgId);
  for (const table of EMPTIED)
    await tx`
      delete from ${tx(table)} where org_id = ${orgId}
        ${table === "provider" ? tx`and name <> all (${kept.map(({ provider }) => provider)}::text[])` : tx``}`;
  await tx`
    update provider set display_name = name, contact_email = null, homepage = null, standing_note = '' where org_id = ${orgId}`;
  // A model that only this organization served was declared by it.
  await tx`
    delete from model where slug = any (${models.map(({ model }) => model)}::text[])
      and not exists (select from offering where offering.model = model.slug)
      and not exists (select from catalog_entry as entry where entry.slug = model.slug)`;
  await tx`
    update key set name = '', prefix = '', user_id = null, client_id = null, robot_id = null, bounds = null, models = '{}',
      disabled = true, revoked_at = coalesce(revoked_at, now())
    where org_id = ${orgId}`;
  await tx`
    update workspace set name = '', slug = id, settings = '{}', deleted_at = coalesce(deleted_at, now())
    where org_id = ${orgId}`;
  await tx`
    update payment set success_url = '', cancel_url = '', checkout_url = null, idempotency_key = null,
      customer_id = case when automatic then '' end, method_id = case when automatic then '' end
    where org_id = ${orgId}`;
  await tx`update transfer set note = null where org_id = ${orgId} and kind = 'grant' and note is not null`;
  await tx`update org set name = '', email = null, status = 'deleted' where id = ${orgId}`;
  const [forgotten] = await tx<{ records: number; hash: string }[]>`select * from audit_forget(${orgId})`;
  return forgotten ?? { records: 0, hash: "" };
}
