/** Outgoing mail: stored in the transaction of its cause, claimed by one sender at a time, retried, and dropped after a day. */
import { now } from "../../clock.ts";
import { newId } from "../../ids.ts";
import { allRecords, type Queryable, type Sql, type Tx } from "../database/tx.ts";

/** Claimed mail. */
export interface ClaimedMail {
  id: string;
  orgId: string | undefined;
  /** `event`: about an event message; `invite`: described by the sealed content. */
  kind: "event" | "invite";
  /** Undefined if the recipients are not resolved yet. */
  recipient: string | undefined;
  payload: Buffer | undefined;
  sealed: Buffer | undefined;
  /** The number of this attempt, from 1. */
  tries: number;
}

/** How long a claim lasts before another sender takes over. */
const CLAIM_S = 300;
/** Older mail is out of date and is dropped. */
const STALE_H = 24;
/** The daily limit of mails to one address, and of invites from one organization. */
const MOST_A_DAY = 100;

/** The sealing context of unsubscribe tokens. */
export const UNSUBSCRIBE_CONTEXT = "mail unsubscribe";

/** The sealing context of an invite's mail. */
export const mailContext = (id: string): string => `mail ${id}`;

/** Claims due mail, oldest first. Drops mail that waited for a day. */
export async function claimMail(sql: Sql, limit: number): Promise<ClaimedMail[]> {
  await sql`update mail set state = 'failed', payload = null, sealed = null
    where state = 'pending' and created < now() - make_interval(hours => ${STALE_H})`;
  return allRecords<ClaimedMail>(sql`
    update mail set tries = tries + 1, due = now() + make_interval(secs => ${CLAIM_S})
    where id in (select id from mail where state = 'pending' and due <= now() order by due limit ${limit} for update skip locked)
    returning id, org_id, kind, recipient, payload, sealed, tries`);
}

/** Milliseconds until the next mail is due; undefined if none waits. */
export async function nextMail(sql: Sql): Promise<number | undefined> {
  const [row] = await sql<{ ms: number | null }[]>`
    select greatest(0, extract(epoch from min(due) - now()) * 1000)::float8 as ms from mail where state = 'pending'`;
  return row?.ms ?? undefined;
}

/** Replaces a mail without recipients by one per recipient. Skips recipients who reached the daily limit. */
export async function expandMail(tx: Tx, mail: ClaimedMail, recipients: readonly string[]): Promise<void> {
  for (const recipient of new Set(recipients.map((each) => each.toLowerCase()))) {
    if ((await sentToday(tx, { recipient })) >= MOST_A_DAY) continue;
    const { orgId, kind, payload } = mail;
    await tx`insert into mail ${tx({ id: newId("mail"), orgId: orgId ?? null, kind, recipient, payload: payload ?? null })}`;
  }
  await endMail(tx, mail.id, "sent");
}

async function sentToday(sql: Queryable, of: { recipient: string } | { orgId: string }): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int as count from mail where created > now() - interval '24 hours'
      and ${"recipient" in of ? sql`recipient = ${of.recipient}` : sql`org_id = ${of.orgId} and kind = 'invite'`}`;
  return row?.count ?? 0;
}

/** A new mail id, for the sealing context. */
export const newMailId = (): string => newId("mail");

/** Stores mail to an invited person. Reports whether it will be sent: the daily limit might be reached. */
export async function addInviteMail(
  tx: Tx,
  { id, orgId, recipient, sealed }: { id: string; orgId: string; recipient: string; sealed: Buffer },
): Promise<boolean> {
  if ((await sentToday(tx, { orgId })) >= MOST_A_DAY) return false;
  if ((await sentToday(tx, { recipient: recipient.toLowerCase() })) >= MOST_A_DAY) return false;
  await tx`insert into mail ${tx({ id, orgId, kind: "invite", recipient: recipient.toLowerCase(), sealed })}`;
  return true;
}

/** Records the final state of mail and deletes its content. */
export async function endMail(sql: Queryable, id: string, state: "sent" | "failed"): Promise<void> {
  await sql`update mail set state = ${state}, payload = null, sealed = null where id = ${id}`;
}

/** Postpones mail to a later attempt. */
export async function delayMail(sql: Queryable, id: string, ms: number): Promise<void> {
  await sql`update mail set due = now() + make_interval(secs => ${ms / 1000}) where id = ${id}`;
}

/** Deletes mail older than `days` days, in any state. */
export async function pruneMail(sql: Sql, days: number): Promise<void> {
  await sql`delete from mail where created < ${new Date(now() - days * 24 * 3600 * 1000)}`;
}

/**
 * Active members with one of the roles who did not mute the event, 50 at most. For an event of a workspace, those with access to it; else only
 * members of the entire organization.
 */
export async function peopleToTell(
  sql: Queryable,
  orgId: string,
  { roles, workspaceId, event }: { roles: readonly string[]; workspaceId: string | undefined; event: string },
): Promise<string[]> {
  const rows = await sql<{ email: string }[]>`
    select email from member where org_id = ${orgId} and status = 'active' and role = any(${[...roles]})
      and (workspace_ids = '{}' ${workspaceId === undefined ? sql`` : sql`or ${workspaceId} = any(workspace_ids)`})
      and ${isWanted(sql, event)}
    order by id limit 50`;
  return rows.map(({ email }) => email);
}

/** A predicate: the row's member did not mute the event. */
const isWanted = (sql: Queryable, event: string) =>
  sql`not exists (select from mail_preference where member_id = member.id and muted && ${["*", event]})`;

/** The active member who owns a key, and whether the event is not muted; undefined for a key of the organization. */
export async function ownerOfKey(
  sql: Queryable,
  keyId: string,
  event: string,
): Promise<{ email: string; wants: boolean } | undefined> {
  const [row] = await sql<{ email: string; wants: boolean }[]>`
    select email, ${isWanted(sql, event)} as wants from member
    where status = 'active' and id = (select user_id from key where key.id = ${keyId})`;
  return row;
}

/** The active member of an organization with this e-mail address. */
export async function memberAt(sql: Queryable, orgId: string, email: string): Promise<string | undefined> {
  const [row] = await sql<{ id: string }[]>`
    select id from member where org_id = ${orgId} and lower(email) = lower(${email}) and status = 'active' order by id limit 1`;
  return row?.id;
}

/** The events that a member muted. */
export async function mutedOf(sql: Queryable, memberId: string): Promise<string[]> {
  const [row] = await sql<{ muted: string[] }[]>`select muted from mail_preference where member_id = ${memberId}`;
  return row?.muted ?? [];
}

/** Replaces a member's muted events. Reports whether that changed anything. */
export async function mute(
  tx: Tx,
  of: { orgId: string; memberId: string },
  muted: readonly string[],
): Promise<boolean> {
  const { orgId, memberId } = of;
  const { count } = await tx`
    insert into mail_preference ${tx({ memberId, orgId, muted: [...muted] })}
    on conflict (member_id) do update set muted = excluded.muted, updated = now()
    where mail_preference.muted <> excluded.muted`;
  return count > 0;
}

/** Display names for a mail: of the organization, a key, a workspace, an offering's model, a job's key. */
export async function namesFor(
  sql: Queryable,
  orgId: string,
  { key, workspace, offering, job }: { key?: string; workspace?: string; offering?: string; job?: string },
): Promise<{ org: string; key?: string; workspace?: string; model?: string; jobKey?: string }> {
  const [row] = await sql<Record<"org" | "key" | "workspace" | "model" | "jobKey", string | null>[]>`
    select (select name from org where id = ${orgId}) as org,
      (select name from key where id = ${key ?? null} and org_id = ${orgId}) as key,
      (select name from workspace where id = ${workspace ?? null} and org_id = ${orgId}) as workspace,
      (select model from offering where id = ${offering ?? null} and org_id = ${orgId}) as model,
      (select key_id from job where id = ${job ?? null} and org_id = ${orgId}) as job_key`;
  const known = Object.entries(row ?? {}).filter(([, value]) => value !== null);
  return { org: "", ...Object.fromEntries(known) };
}
