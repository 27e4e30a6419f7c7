/** Mail on its way: written in the transaction of its cause, handed out to one sender at a time, tried again, and given up after a day. */
import { now } from "../../clock.ts";
import { newId } from "../../ids.ts";
import type { Queryable, Sql, Tx } from "../database/tx.ts";

/** Mail that a sender has claimed. */
export interface ClaimedMail {
  id: string;
  orgId: string | null;
  /** `event`: about an event message; `invite`: what is sealed says what. */
  kind: "event" | "invite";
  /** To whom; undefined where that is still to be found. */
  recipient: string | undefined;
  payload: Buffer | undefined;
  sealed: Buffer | undefined;
  /** Which try this is, from 1. */
  tries: number;
}

/** How long a sender may take with what it claimed: after that another one tries. */
const CLAIM_S = 300;
/** What waited for longer says nothing new any more. */
const STALE_H = 24;
/** So many mails a day one address gets at most, and one organization has sent to people who are no members yet. */
const MOST_A_DAY = 100;

/** What the token by which mail is muted was sealed for. */
export const UNSUBSCRIBE_CONTEXT = "mail unsubscribe";

/** What an invite's mail was sealed for. */
export const mailContext = (id: string): string => `mail ${id}`;

/** Claims mail that is due, oldest first. What waited for a day is given up. */
export async function claimMail(sql: Sql, limit: number): Promise<ClaimedMail[]> {
  await sql`update mail set state = 'failed', payload = null, sealed = null
    where state = 'pending' and created < now() - make_interval(hours => ${STALE_H})`;
  const rows = await sql<
    (Omit<ClaimedMail, "recipient" | "payload" | "sealed"> & {
      recipient: string | null;
      payload: Buffer | null;
      sealed: Buffer | null;
    })[]
  >`
    update mail set tries = tries + 1, due = now() + make_interval(secs => ${CLAIM_S})
    where id in (select id from mail where state = 'pending' and due <= now() order by due limit ${limit} for update skip locked)
    returning id, org_id, kind, recipient, payload, sealed, tries`;
  return rows.map((row) => ({
    ...row,
    recipient: row.recipient ?? undefined,
    payload: row.payload ?? undefined,
    sealed: row.sealed ?? undefined,
  }));
}

/** In how many milliseconds the next mail is due; undefined where none waits. */
export async function nextMail(sql: Sql): Promise<number | undefined> {
  const [row] = await sql<{ ms: number | null }[]>`
    select greatest(0, extract(epoch from min(due) - now()) * 1000)::float8 as ms from mail where state = 'pending'`;
  return row?.ms ?? undefined;
}

/** Puts a mail to each recipient in the place of one whose recipients had to be found. Who has had many today gets no more. */
export async function expandMail(tx: Tx, mail: ClaimedMail, recipients: readonly string[]): Promise<void> {
  for (const recipient of new Set(recipients.map((each) => each.toLowerCase()))) {
    if ((await sentToday(tx, { recipient })) >= MOST_A_DAY) continue;
    const { orgId, kind, payload } = mail;
    await tx`insert into mail ${tx({ id: newId("mail"), orgId, kind, recipient, payload: payload ?? null })}`;
  }
  await endMail(tx, mail.id, "sent");
}

async function sentToday(sql: Queryable, of: { recipient: string } | { orgId: string }): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int as count from mail where created > now() - interval '24 hours'
      and ${"recipient" in of ? sql`recipient = ${of.recipient}` : sql`org_id = ${of.orgId} and kind = 'invite'`}`;
  return row?.count ?? 0;
}

/** A new name for mail that is sealed under it. */
export const newMailId = (): string => newId("mail");

/** Writes mail to somebody who is invited. Reports whether it will be sent: an organization's share of a day may be used up. */
export async function addInviteMail(
  tx: Tx,
  { id, orgId, recipient, sealed }: { id: string; orgId: string; recipient: string; sealed: Buffer },
): Promise<boolean> {
  if ((await sentToday(tx, { orgId })) >= MOST_A_DAY) return false;
  if ((await sentToday(tx, { recipient: recipient.toLowerCase() })) >= MOST_A_DAY) return false;
  await tx`insert into mail ${tx({ id, orgId, kind: "invite", recipient: recipient.toLowerCase(), sealed })}`;
  return true;
}

/** Notes what became of mail; nothing of it is kept but that it was. */
export async function endMail(sql: Queryable, id: string, state: "sent" | "failed"): Promise<void> {
  await sql`update mail set state = ${state}, payload = null, sealed = null where id = ${id}`;
}

/** Has mail tried again later. */
export async function delayMail(sql: Queryable, id: string, ms: number): Promise<void> {
  await sql`update mail set due = now() + make_interval(secs => ${ms / 1000}) where id = ${id}`;
}

/** Deletes mail that was sent or given up, or that nobody sends. */
export async function pruneMail(sql: Sql, days: number): Promise<void> {
  await sql`delete from mail where created < ${new Date(now() - days * 24 * 3600 * 1000)}`;
}

/** Active members of an organization in some roles who are told of what is of a workspace, or of none, and want to be told of such an event. */
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

/** That the member of the row did not mute an event. */
const isWanted = (sql: Queryable, event: string) =>
  sql`not exists (select from mail_preference where member_id = member.id and muted && ${["*", event]})`;

/** The active member whose key it is, and whether that one wants to be told of such an event; undefined for a key of the organization. */
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

/** The active member of an organization to whom an address belongs. */
export async function memberAt(sql: Queryable, orgId: string, email: string): Promise<string | undefined> {
  const [row] = await sql<{ id: string }[]>`
    select id from member where org_id = ${orgId} and lower(email) = lower(${email}) and status = 'active' order by id limit 1`;
  return row?.id;
}

/** The events of which a member is told nothing. */
export async function mutedOf(sql: Queryable, memberId: string): Promise<string[]> {
  const [row] = await sql<{ muted: string[] }[]>`select muted from mail_preference where member_id = ${memberId}`;
  return row?.muted ?? [];
}

/** Mutes these events for a member, and no others. Reports whether that changed anything. */
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

/** What a mail about something calls it: the organization, a key, a workspace, an offering's model, a job's key. */
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
