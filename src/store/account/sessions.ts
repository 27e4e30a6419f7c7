/** Browser sessions of signed-in users, one-time sign-in links, and OAuth applications with their codes. */
import { SESSION_PREFIX, SIGN_IN_PREFIX } from "../../brand.ts";
import { now } from "../../clock.ts";
import { newId } from "../../ids.ts";
import { secretBytes } from "../../random.ts";
import { allRecords, firstRecord, type Queryable, type Sql, type Tx, unixSeconds } from "../database/tx.ts";
import { createKey, findKey, type KeyRecord, type NewKey } from "./keys.ts";
import type { MemberRecord } from "./members.ts";
import { hashSecret } from "./secret.ts";

/** How a member signed in. */
export type SignInMethod = "link" | "oidc";

/** The idle timeout of a session. */
const IDLE_MS = 12 * 3600 * 1000;
/** The maximum lifetime of a session. */
export const LONGEST_MS = 7 * 24 * 3600 * 1000;
/** The shortest interval between two updates of a session's last use. */
const SEEN_MS = 60_000;

/** A session. */
export interface SessionRecord {
  id: string;
  orgId: string;
  userId: string;
  browser: string;
  keyId: string;
  method: SignInMethod;
  /** Unix seconds. */
  created: number;
  /** Its expiry at the latest, in unix milliseconds. */
  endsMs: number;
  seenMs: number;
}

interface SessionRow extends Omit<SessionRecord, "created" | "endsMs" | "seenMs"> {
  created: Date;
  ends: Date;
  seen: Date;
}

const columns = (sql: Queryable) => sql`id, org_id, user_id, browser, key_id, method, created, seen, ends`;

const sessionOf = ({ created, ends, seen, ...row }: SessionRow): SessionRecord => ({
  ...row,
  created: unixSeconds(created),
  endsMs: ends.getTime(),
  seenMs: seen.getTime(),
});

/** When a session expires that is not used from now on, in unix milliseconds. */
export const endOf = ({ endsMs, seenMs }: Pick<SessionRecord, "endsMs" | "seenMs">): number =>
  Math.min(endsMs, seenMs + IDLE_MS);

const newToken = (prefix: string): string => prefix + secretBytes(32).toString("base64url");
const SHAPE = new RegExp(`^${SESSION_PREFIX}[A-Za-z0-9_-]{43}$`);

/** Whether a text has the form of a session secret. */
export const isSessionSecret = (text: string): boolean => SHAPE.test(text);

/**
 * The key of a session's member, by the hash of the session's secret, with the session. It expires with the session. Undefined if the session
 * does not exist.
 */
export async function findSessionKey(sql: Queryable, hash: Buffer): Promise<KeyRecord | undefined> {
  const [row] = await sql<SessionRow[]>`select ${columns(sql)} from session where hash = ${hash}`;
  if (!row) return undefined;
  const session = sessionOf(row);
  const key = await findKey(sql, session.keyId);
  const { id, browser, seenMs } = session;
  return key && { ...key, expiresAt: Math.floor(endOf(session) / 1000), session: { id, browser, seenMs } };
}

/** The fields of a new session. */
interface NewSession {
  member: Pick<MemberRecord, "id" | "orgId" | "role" | "workspaceIds">;
  method: SignInMethod;
  /** The issuer that signed the member in. */
  issuerId?: string | undefined;
  /** The browser whose other sessions continue. */
  beside?: string | undefined;
}

/**
 * Signs a member in to the entire organization if the member has access to it, else to the first of the member's workspaces. An earlier
 * session of the member in this browser ends. Only the return value contains the secret. All earlier secrets of this browser stop working:
 * a secret that an attacker knows or planted gains nothing from a sign-in. The member's row is locked.
 */
export async function addSession(
  tx: Tx,
  { member, method, issuerId, beside }: NewSession,
): Promise<{ session: SessionRecord; secret: string }> {
  const { id: userId, orgId } = member;
  const keyId = await memberKey(tx, member, member.workspaceIds[0]);
  const browser = newToken("");
  if (beside !== undefined) {
    await tx`delete from session where browser = ${beside} and user_id = ${userId}`;
    await tx`update session set browser = ${browser} where browser = ${beside}`;
    await shutOthers(tx, browser, undefined);
  }
  const secret = newToken(SESSION_PREFIX);
  const at = now();
  const row = {
    id: newId("ses"),
    orgId,
    userId,
    browser,
    keyId,
    hash: hashSecret(secret),
    method,
    issuerId: issuerId ?? null,
    created: new Date(at),
    seen: new Date(at),
    ends: new Date(at + LONGEST_MS),
  };
  const [made] = await tx<SessionRow[]>`insert into session ${tx(row)} returning ${columns(tx)}`;
  return { session: sessionOf(made!), secret };
}

/** The member's key for a workspace or the entire organization; created if missing. */
async function memberKey(
  tx: Tx,
  { id: userId, orgId, role }: NewSession["member"],
  workspaceId: string | undefined,
): Promise<string> {
  await tx`select from member where id = ${userId} for update`;
  const [known] = await tx<{ id: string }[]>`
    select id from key where user_id = ${userId} and kind = 'member' and revoked_at is null
      and workspace_id is not distinct from ${workspaceId ?? null}`;
  if (known) {
    await tx`update key set role = ${role} where id = ${known.id} and role <> ${role}`;
    return known.id;
  }
  const { key } = await createKey(tx, { orgId, userId, role, workspaceId, name: "console", kind: "member" });
  return key.id;
}

/** Removes the secrets of a browser's other sessions, which are reached by switching from this one. */
async function shutOthers(tx: Tx, browser: string, id: string | undefined): Promise<void> {
  await tx`update session set hash = sha256(random()::text::bytea || uuid_send(gen_random_uuid()))
    where browser = ${browser} and id is distinct from ${id ?? null}`;
}

/** Moves a session to another workspace of its member, with a new secret. All old secrets of this browser stop working. */
export async function moveSession(
  tx: Tx,
  { id, browser }: Pick<SessionRecord, "id" | "browser">,
  to: { member: NewSession["member"]; workspaceId: string | undefined },
): Promise<string> {
  const keyId = await memberKey(tx, to.member, to.workspaceId);
  const secret = newToken(SESSION_PREFIX);
  await tx`update session set ${tx({ keyId, hash: hashSecret(secret), seen: new Date(now()) })} where id = ${id}`;
  await shutOthers(tx, browser, id);
  return secret;
}

/** A session by id. */
export async function findSession(sql: Queryable, id: string): Promise<SessionRecord | undefined> {
  const [row] = await sql<SessionRow[]>`select ${columns(sql)} from session where id = ${id}`;
  return row && sessionOf(row);
}

/** A session of a browser, with the name of its organization. */
interface BrowserSession extends SessionRecord {
  orgName: string;
  role: string;
}

/** The active sessions of a browser, of active members of active organizations, oldest first. */
export async function sessionsOfBrowser(sql: Queryable, browser: string): Promise<BrowserSession[]> {
  const rows = await sql<(SessionRow & { orgName: string; role: string })[]>`
    select s.id, s.org_id, s.user_id, s.browser, s.key_id, s.method, s.created, s.seen, s.ends, org.name as org_name, member.role
    from session as s join org on org.id = s.org_id and org.status = 'active'
      join member on member.id = s.user_id and member.status = 'active'
    where s.browser = ${browser} and s.ends > ${new Date(now())} and s.seen > ${new Date(now() - IDLE_MS)}
    order by s.created, s.id`;
  return rows.map(({ orgName, role, ...row }) => ({ ...sessionOf(row), orgName, role }));
}

/** Ends the sessions of a browser, or all of a member. Returns them. */
export async function endSessions(
  tx: Tx,
  which: { browser: string } | { userId: string },
): Promise<Pick<SessionRecord, "id" | "orgId" | "userId">[]> {
  const these = "browser" in which ? tx`browser = ${which.browser}` : tx`user_id = ${which.userId}`;
  return tx<Pick<SessionRecord, "id" | "orgId" | "userId">[]>`
    delete from session where ${these} returning id, org_id, user_id`;
}

/** Records the use of a session, at most once a minute. */
export async function noteSeen(sql: Sql, { id, seenMs }: { id: string; seenMs: number }): Promise<void> {
  if (now() - seenMs < SEEN_MS) return;
  await sql`update session set seen = greatest(seen, ${new Date(now())}) where id = ${id}`;
}

/** Creates the token of a one-time link for a member. Only the return value contains it. */
export async function addLink(
  sql: Queryable,
  { orgId, userId, endsMs }: { orgId: string; userId: string; endsMs: number },
): Promise<string> {
  const token = newToken(SIGN_IN_PREFIX);
  await sql`insert into sign_in_link ${sql({ hash: hashSecret(token), orgId, userId, ends: new Date(endsMs) })}`;
  return token;
}

/** Redeems the token of a link, once. Returns its member; undefined if it is invalid, used or expired. */
export async function takeLink(tx: Tx, hash: Uint8Array): Promise<{ orgId: string; userId: string } | undefined> {
  const [row] = await tx<{ orgId: string; userId: string }[]>`
    delete from sign_in_link where hash = ${Buffer.from(hash)} and ends > ${new Date(now())} returning org_id, user_id`;
  return row;
}

/** Deletes expired sessions and links. */
export async function pruneSessions(sql: Sql): Promise<void> {
  await sql`delete from session where ends < ${new Date(now())} or seen < ${new Date(now() - IDLE_MS)}`;
  await sql`delete from sign_in_link where ends < ${new Date(now())}`;
}

// OAuth applications and the codes that they exchange for keys.

/** How an application authenticates at the token endpoint. */
export type AuthMethod = "none" | "client_secret_basic" | "client_secret_post";

/** An application. */
export interface ClientRecord {
  id: string;
  /** Undefined for a self-registered application, to which members of any organization can consent. */
  orgId: string | undefined;
  name: string;
  redirectUris: string[];
  scopes: string[];
  authMethod: AuthMethod;
  /** SHA-256 of its secret; undefined for a public client. */
  secretHash: Buffer | undefined;
  /** Unix seconds. */
  created: number;
}

/** Registers an application. */
export async function addClient(tx: Tx, client: Omit<ClientRecord, "id" | "created">): Promise<ClientRecord> {
  const row = {
    id: newId("oac"),
    orgId: client.orgId ?? null,
    name: client.name,
    redirectUris: client.redirectUris,
    scopes: client.scopes,
    authMethod: client.authMethod,
    secretHash: client.secretHash ?? null,
    created: new Date(now()),
  };
  return (await firstRecord<ClientRecord>(tx`insert into oauth_client ${tx(row)} returning *`))!;
}

/** Finds an application: any, or one that members of an organization can consent to. */
export async function findClient(sql: Queryable, id: string, orgId?: string): Promise<ClientRecord | undefined> {
  return firstRecord<ClientRecord>(sql`
    select * from oauth_client where id = ${id} ${orgId === undefined ? sql`` : sql`and (org_id = ${orgId} or org_id is null)`}`);
}

/** The applications of an organization, oldest first, after the id `after`. */
export async function listClients(
  sql: Sql,
  orgId: string,
  { limit, after = "" }: { limit: number; after?: string | undefined },
): Promise<ClientRecord[]> {
  return allRecords<ClientRecord>(sql`
    select * from oauth_client where org_id = ${orgId} and id > ${after} order by id limit ${limit}`);
}

/** Deletes an application and its codes; returns false if it does not exist. */
export async function dropClient(tx: Tx, orgId: string, id: string): Promise<boolean> {
  return (await tx`delete from oauth_client where org_id = ${orgId} and id = ${id}`).count > 0;
}

/** The grant of a code. */
export interface Consent {
  clientId: string;
  orgId: string;
  /** The key that consented. */
  consentedBy: string;
  redirectUri: string;
  /** The PKCE challenge: SHA-256 of the application's verifier, in base64url. */
  challenge: string;
  /** The granted scopes, separated by spaces. */
  scope: string;
  /** The fields of the key to create; its role and user are those of the consenting key at the exchange. */
  granted: Omit<NewKey, "orgId" | "role" | "userId">;
  /** Unix milliseconds. */
  endsMs: number;
}

/** Stores a code by its hash; returns false if its application was deleted. */
export async function addCode(tx: Tx, hash: Uint8Array, consent: Consent): Promise<boolean> {
  const { granted, endsMs, ...rest } = consent;
  const { count } = await tx`
    insert into oauth_code (hash, client_id, org_id, consented_by, redirect_uri, challenge, scope, granted, ends)
    select ${Buffer.from(hash)}, id, ${rest.orgId}, ${rest.consentedBy}, ${rest.redirectUri}, ${rest.challenge},
      ${rest.scope}, ${JSON.stringify(granted)}::text::jsonb, ${new Date(endsMs)}
    from oauth_client where id = ${rest.clientId} and (org_id = ${rest.orgId} or org_id is null) for key share`;
  return count > 0;
}

interface CodeRow extends Omit<Consent, "endsMs"> {
  ends: Date;
  keyId: string | null;
}

/** A stored code, and the key if it was exchanged. The row is locked: a second exchange of the code waits. */
export async function takeCode(
  tx: Tx,
  hash: Uint8Array,
): Promise<{ consent: Consent; keyId: string | undefined } | undefined> {
  const [row] = await tx<CodeRow[]>`
    select client_id, org_id, consented_by, redirect_uri, challenge, scope, granted, ends, key_id
    from oauth_code where hash = ${Buffer.from(hash)} for update`;
  if (!row) return undefined;
  const { ends, keyId, ...consent } = row;
  return { consent: { ...consent, endsMs: ends.getTime() }, keyId: keyId ?? undefined };
}

/** Creates the key of a code, and marks the code as used. */
export async function redeemCode(
  tx: Tx,
  hash: Uint8Array,
  consent: Consent,
  { role, userId }: Pick<KeyRecord, "role" | "userId">,
): Promise<{ key: KeyRecord; secret: string }> {
  const made = await createKey(tx, { ...consent.granted, orgId: consent.orgId, role, userId });
  await tx`update key set client_id = ${consent.clientId} where id = ${made.key.id}`;
  await tx`update oauth_code set key_id = ${made.key.id} where hash = ${Buffer.from(hash)}`;
  return made;
}

/** The key of an application's token; undefined if there is none. */
export async function findClientKey(
  tx: Tx,
  hash: Uint8Array,
): Promise<{ id: string; orgId: string; clientId: string } | undefined> {
  const [row] = await tx<{ id: string; orgId: string; clientId: string }[]>`
    select id, org_id, client_id from key where hash = ${Buffer.from(hash)} and client_id is not null`;
  return row;
}

const DAY_MS = 24 * 3600 * 1000;

/**
 * Deletes codes a day after their expiry; until then, a repeated exchange revokes the key. Deletes self-registered applications that got no
 * consent within a day, or whose keys are all revoked.
 */
export async function pruneCodes(sql: Sql): Promise<void> {
  const before = new Date(now() - DAY_MS);
  await sql`delete from oauth_code where ends < ${before}`;
  await sql`
    delete from oauth_client as client where org_id is null and created < ${before}
      and not exists (select from oauth_code where client_id = client.id)
      and not exists (select from key where key.client_id = client.id and revoked_at is null)`;
}
