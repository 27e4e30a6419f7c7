/** Issuers of OpenID Connect by organisation, the e-mail domains that are an organisation's, and whom an issuer knows as whom. */
import { now } from "../../clock.ts";
import { newId } from "../../ids.ts";
import type { Queryable, Tx } from "../database/tx.ts";
import { unixSeconds } from "../database/types.ts";
import type { MemberRecord } from "./members.ts";

/** An issuer. */
export interface IssuerRecord {
  id: string;
  orgId: string;
  name: string;
  issuer: string;
  clientId: string;
  /** The client's secret, sealed; undefined for a public client. */
  sealed: Buffer | undefined;
  /** The role of newcomers; undefined: there are none. */
  joinRole: string | undefined;
  /** The operator found that it verifies every e-mail address that it names. */
  emailsVerified: boolean;
  /** The e-mail domains that it signs in. */
  domains: string[];
  /** Unix seconds. */
  created: number;
  /** Counts its changes. */
  version: number;
  updated: number;
}

interface IssuerRow extends Omit<IssuerRecord, "sealed" | "joinRole" | "created" | "updated"> {
  sealed: Buffer | null;
  joinRole: string | null;
  created: Date;
  updated: Date;
}

const issuerOf = ({ sealed, joinRole, created, updated, ...row }: IssuerRow): IssuerRecord => ({
  ...row,
  sealed: sealed ?? undefined,
  joinRole: joinRole ?? undefined,
  created: unixSeconds(created),
  updated: unixSeconds(updated),
});

const columns = (sql: Queryable) => sql`
  id, org_id, name, issuer, client_id, sealed, join_role, emails_verified, created, updated, version,
  array(select domain from email_domain where issuer_id = issuer.id order by domain) as domains`;

/** What a client's secret is sealed for: another row's opens nothing here. */
export const issuerContext = (id: string): string => `issuer ${id}`;

/** The issuer of a name in its organisation, or a name for one that is new. */
export async function nextIssuer(
  tx: Tx,
  orgId: string,
  name: string,
): Promise<{ id: string; known: IssuerRecord | undefined }> {
  const [row] = await tx<IssuerRow[]>`
    select ${columns(tx)} from issuer where org_id = ${orgId} and name = ${name} for update`;
  return row ? { id: row.id, known: issuerOf(row) } : { id: newId("iss"), known: undefined };
}

/** Keeps an issuer with the domains that it signs in, which are the organisation's; others of them that it had it signs in no more. */
export async function putIssuer(
  tx: Tx,
  {
    id,
    orgId,
    name,
    issuer,
    clientId,
    sealed,
    joinRole,
    emailsVerified,
    domains,
  }: Omit<IssuerRecord, "created" | "updated" | "version">,
): Promise<IssuerRecord> {
  const at = new Date(now());
  const facts = { issuer, clientId, sealed: sealed ?? null, joinRole: joinRole ?? null, emailsVerified, updated: at };
  await tx`
    insert into issuer ${tx({ id, orgId, name, created: at, ...facts })}
    on conflict (org_id, name) do update set ${tx(facts)}, version = issuer.version + 1`;
  await tx`update email_domain set issuer_id = null where issuer_id = ${id} and domain <> all(${domains})`;
  await tx`update email_domain set issuer_id = ${id} where org_id = ${orgId} and domain = any(${domains})`;
  const [row] = await tx<IssuerRow[]>`select ${columns(tx)} from issuer where id = ${id}`;
  return issuerOf(row!);
}

/** An issuer; of an active organisation. */
export async function findIssuer(sql: Queryable, id: string): Promise<IssuerRecord | undefined> {
  const [row] = await sql<IssuerRow[]>`
    select ${columns(sql)} from issuer
    where id = ${id} and exists (select from org where org.id = issuer.org_id and org.status = 'active')`;
  return row && issuerOf(row);
}

/** The issuer that signs an e-mail domain in; of an active organisation. */
export async function issuerOfDomain(sql: Queryable, domain: string): Promise<IssuerRecord | undefined> {
  const [row] = await sql<{ issuerId: string | null }[]>`
    select issuer_id from email_domain where domain = ${domain}`;
  return row?.issuerId == null ? undefined : findIssuer(sql, row.issuerId);
}

/** The issuers of an organisation, by name. */
export async function listIssuers(sql: Queryable, orgId: string): Promise<IssuerRecord[]> {
  const rows = await sql<IssuerRow[]>`select ${columns(sql)} from issuer where org_id = ${orgId} order by name`;
  return rows.map(issuerOf);
}

/** Deletes an issuer, with the sessions that began by it. Answers its id; undefined where there is none. */
export async function dropIssuer(tx: Tx, orgId: string, name: string): Promise<string | undefined> {
  const [row] = await tx<{ id: string }[]>`
    delete from issuer where org_id = ${orgId} and name = ${name} returning id`;
  return row?.id;
}

/** An e-mail domain. */
export interface DomainRecord {
  domain: string;
  orgId: string;
  /** The word of the issuer that signs it in. */
  issuer: string | undefined;
  /** Unix seconds. */
  verified: number;
}

/** The e-mail domains of an organisation. */
export async function listDomains(sql: Queryable, orgId: string): Promise<DomainRecord[]> {
  const rows = await sql<{ domain: string; orgId: string; issuer: string | null; verified: Date }[]>`
    select d.domain, d.org_id, issuer.name as issuer, d.verified
    from email_domain as d left join issuer on issuer.id = d.issuer_id where d.org_id = ${orgId} order by d.domain`;
  return rows.map(({ issuer, verified, ...row }) => ({
    ...row,
    issuer: issuer ?? undefined,
    verified: unixSeconds(verified),
  }));
}

/** Makes a domain an organisation's. Answers whether it is: it may be another's. */
export async function addDomain(tx: Tx, orgId: string, domain: string): Promise<boolean> {
  await tx`insert into email_domain ${tx({ domain, orgId, verified: new Date(now()) })} on conflict (domain) do nothing`;
  const { count } = await tx`select from email_domain where domain = ${domain} and org_id = ${orgId}`;
  return count > 0;
}

/** Takes a domain from an organisation, with the sessions of its people that began by an issuer. Answers whether it was the organisation's. */
export async function dropDomain(tx: Tx, orgId: string, domain: string): Promise<boolean> {
  const { count } = await tx`delete from email_domain where domain = ${domain} and org_id = ${orgId}`;
  if (count === 0) return false;
  await tx`
    delete from session using member where session.user_id = member.id and member.org_id = ${orgId}
      and session.issuer_id is not null and lower(split_part(member.email, '@', -1)) = ${domain}`;
  return true;
}

/** The subject by which an issuer knows a member; undefined where it has not signed the member in yet. */
export async function subjectOf(sql: Queryable, issuerId: string, userId: string): Promise<string | undefined> {
  const [row] = await sql<{ subject: string }[]>`
    select subject from sign_in_identity where issuer_id = ${issuerId} and user_id = ${userId}`;
  return row?.subject;
}

/** The member that an issuer has signed in as a subject before. */
export async function memberOfSubject(sql: Queryable, issuerId: string, subject: string): Promise<string | undefined> {
  const [row] = await sql<{ userId: string }[]>`
    select user_id from sign_in_identity where issuer_id = ${issuerId} and subject = ${subject}`;
  return row?.userId;
}

/** Remembers as whom an issuer knows a member. */
export async function addSubject(tx: Tx, issuerId: string, subject: string, userId: string): Promise<void> {
  await tx`
    insert into sign_in_identity (issuer_id, subject, user_id, org_id)
    select id, ${subject}, ${userId}, org_id from issuer where id = ${issuerId} on conflict do nothing`;
}

/** Members of an organisation by what an identity provider calls them in SCIM (`externalId`), two at most. */
export async function membersByExternalId(
  sql: Queryable,
  orgId: string,
  ids: readonly string[],
): Promise<Pick<MemberRecord, "id">[]> {
  return sql<{ id: string }[]>`
    select id from member where org_id = ${orgId} and external_id = any(${[...ids]}) order by id limit 2`;
}

/** Members of an organisation by e-mail, two at most. */
export async function membersByEmail(
  sql: Queryable,
  orgId: string,
  email: string,
): Promise<Pick<MemberRecord, "id">[]> {
  return sql<{ id: string }[]>`
    select id from member where org_id = ${orgId} and lower(email) = lower(${email}) order by id limit 2`;
}
