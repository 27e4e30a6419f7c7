/** OpenID Connect issuers of organizations, their e-mail domains, and the subjects of members; members and groups of SCIM. */
import { now } from "../../clock.ts";
import { Reason, refuse } from "../../errors.ts";
import { newId } from "../../ids.ts";
import { allRecords, firstRecord, type Queryable, type Sql, type Tx } from "../database/tx.ts";
import type { MemberRecord, MemberStatus } from "./members.ts";

/** An issuer. */
export interface IssuerRecord {
  id: string;
  orgId: string;
  name: string;
  issuer: string;
  clientId: string;
  /** The client secret, sealed; undefined for a public client. */
  sealed: Buffer | undefined;
  /** The role of new members; undefined if the issuer creates none. */
  joinRole: string | undefined;
  /** Whether the operator confirmed that it verifies every e-mail address that it reports. */
  emailsVerified: boolean;
  /** The e-mail domains that it signs in. */
  domains: string[];
  /** Unix seconds. */
  created: number;
  /** Incremented with each change. */
  version: number;
  updated: number;
}

const columns = (sql: Queryable) => sql`
  id, org_id, name, issuer, client_id, sealed, join_role, emails_verified, created, updated, version,
  array(select domain from email_domain where issuer_id = issuer.id order by domain) as domains`;

/** The sealing context of a client secret; it does not open in another row. */
export const issuerContext = (id: string): string => `issuer ${id}`;

/** The id of an issuer in its organization, or a new id. */
export async function nextIssuer(
  tx: Tx,
  orgId: string,
  name: string,
): Promise<{ id: string; known: IssuerRecord | undefined }> {
  const row = await firstRecord<IssuerRecord>(tx`
    select ${columns(tx)} from issuer where org_id = ${orgId} and name = ${name} for update`);
  return row ? { id: row.id, known: row } : { id: newId("iss"), known: undefined };
}

/** Stores an issuer and its domains, which belong to the organization. Domains that are not listed are removed from the issuer. */
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
  return (await firstRecord<IssuerRecord>(tx`select ${columns(tx)} from issuer where id = ${id}`))!;
}

/** An issuer of an active organization. */
export async function findIssuer(sql: Queryable, id: string): Promise<IssuerRecord | undefined> {
  return firstRecord<IssuerRecord>(sql`
    select ${columns(sql)} from issuer
    where id = ${id} and exists (select from org where org.id = issuer.org_id and org.status = 'active')`);
}

/** The issuer of an e-mail domain, of an active organization. */
export async function issuerOfDomain(sql: Queryable, domain: string): Promise<IssuerRecord | undefined> {
  const [row] = await sql<{ issuerId: string | null }[]>`
    select issuer_id from email_domain where domain = ${domain}`;
  return row?.issuerId == null ? undefined : findIssuer(sql, row.issuerId);
}

/** The issuers of an organization, by name. */
export async function listIssuers(sql: Queryable, orgId: string): Promise<IssuerRecord[]> {
  return allRecords<IssuerRecord>(sql`select ${columns(sql)} from issuer where org_id = ${orgId} order by name`);
}

/** Deletes an issuer and the sessions that it started. Returns its id; undefined if there is none. */
export async function dropIssuer(tx: Tx, orgId: string, name: string): Promise<string | undefined> {
  const [row] = await tx<{ id: string }[]>`
    delete from issuer where org_id = ${orgId} and name = ${name} returning id`;
  return row?.id;
}

/** An e-mail domain. */
export interface DomainRecord {
  domain: string;
  orgId: string;
  /** The name of its issuer. */
  issuer: string | undefined;
  /** Unix seconds. */
  verified: number;
}

/** The e-mail domains of an organization. */
export async function listDomains(sql: Queryable, orgId: string): Promise<DomainRecord[]> {
  return allRecords<DomainRecord>(sql`
    select d.domain, d.org_id, issuer.name as issuer, d.verified
    from email_domain as d left join issuer on issuer.id = d.issuer_id where d.org_id = ${orgId} order by d.domain`);
}

/** Assigns a domain to an organization. Returns false if it belongs to another one. */
export async function addDomain(tx: Tx, orgId: string, domain: string): Promise<boolean> {
  await tx`insert into email_domain ${tx({ domain, orgId, verified: new Date(now()) })} on conflict (domain) do nothing`;
  const { count } = await tx`select from email_domain where domain = ${domain} and org_id = ${orgId}`;
  return count > 0;
}

/** Removes a domain from an organization, and its users' sessions that an issuer started. Returns false if it was not the organization's. */
export async function dropDomain(tx: Tx, orgId: string, domain: string): Promise<boolean> {
  const { count } = await tx`delete from email_domain where domain = ${domain} and org_id = ${orgId}`;
  if (count === 0) return false;
  await tx`
    delete from session using member where session.user_id = member.id and member.org_id = ${orgId}
      and session.issuer_id is not null and lower(split_part(member.email, '@', -1)) = ${domain}`;
  return true;
}

/** The issuer's subject of a member; undefined if the issuer has not signed the member in yet. */
export async function subjectOf(sql: Queryable, issuerId: string, userId: string): Promise<string | undefined> {
  const [row] = await sql<{ subject: string }[]>`
    select subject from sign_in_identity where issuer_id = ${issuerId} and user_id = ${userId}`;
  return row?.subject;
}

/** The member that an issuer has signed in with this subject before. */
export async function memberOfSubject(sql: Queryable, issuerId: string, subject: string): Promise<string | undefined> {
  const [row] = await sql<{ userId: string }[]>`
    select user_id from sign_in_identity where issuer_id = ${issuerId} and subject = ${subject}`;
  return row?.userId;
}

/** Stores the issuer's subject of a member. */
export async function addSubject(tx: Tx, issuerId: string, subject: string, userId: string): Promise<void> {
  await tx`
    insert into sign_in_identity (issuer_id, subject, user_id, org_id)
    select id, ${subject}, ${userId}, org_id from issuer where id = ${issuerId} on conflict do nothing`;
}

/** Members of an organization by their SCIM `externalId`, two at most. */
export async function membersByExternalId(
  sql: Queryable,
  orgId: string,
  ids: readonly string[],
): Promise<Pick<MemberRecord, "id">[]> {
  return sql<{ id: string }[]>`
    select id from member where org_id = ${orgId} and external_id = any(${[...ids]}) order by id limit 2`;
}

/** Members of an organization by e-mail, two at most. */
export async function membersByEmail(
  sql: Queryable,
  orgId: string,
  email: string,
): Promise<Pick<MemberRecord, "id">[]> {
  return sql<{ id: string }[]>`
    select id from member where org_id = ${orgId} and lower(email) = lower(${email}) order by id limit 2`;
}

// SCIM members and groups. Resources are JSON with the names of RFC 7643.

/** A SCIM resource. */
export type ScimResource = Record<string, unknown>;

/** A page of resources. Both paths are SQL/JSON paths over `{r: resource, l: resource in lower case}`. */
export interface ScimQuery {
  orgId: string;
  /** Only the resources that match. */
  filter?: string | undefined;
  sortBy?: string | undefined;
  descending: boolean;
  offset: number;
  limit: number;
}

/** One page of resources, and the total. */
export interface ScimPage {
  total: number;
  resources: ScimResource[];
}

const asUser = (sql: Queryable) => sql`scim_user(member)`;
const asGroup = (sql: Queryable) => sql`scim_group_resource(scim_group)`;

/** Lists members. */
export const listUsers = (sql: Sql, query: ScimQuery): Promise<ScimPage> => list(sql, "member", asUser(sql), query);

/** Lists groups. */
export const listGroups = (sql: Sql, query: ScimQuery): Promise<ScimPage> =>
  list(sql, "scim_group", asGroup(sql), query);

async function list(
  sql: Sql,
  table: string,
  resource: ReturnType<typeof asUser>,
  { orgId, filter, sortBy, descending, offset, limit }: ScimQuery,
): Promise<ScimPage> {
  const found = filter === undefined ? sql`true` : sql`scim_seen(${resource}) @? ${filter}::text::jsonpath`;
  const where = sql`from ${sql(table)} where org_id = ${orgId} and ${found}`;
  const direction = descending ? sql`desc` : sql`asc`;
  const order =
    sortBy === undefined
      ? sql`id`
      : sql`jsonb_path_query_first(scim_seen(${resource}), ${sortBy}::text::jsonpath) #>> '{}' ${direction}, id`;
  const [[counted], rows] = await Promise.all([
    sql<{ total: number }[]>`select count(*) as total ${where}`,
    limit === 0
      ? []
      : sql<{ resource: ScimResource }[]>`
          select ${resource} as resource ${where} order by ${order} limit ${limit} offset ${offset}`,
  ]);
  return { total: counted?.total ?? 0, resources: rows.map((row) => row.resource) };
}

/** A member as a resource. */
export async function findUser(sql: Queryable, orgId: string, id: string): Promise<ScimResource | undefined> {
  const [row] = await sql<{ resource: ScimResource }[]>`
    select ${asUser(sql)} as resource from member where org_id = ${orgId} and id = ${id}`;
  return row?.resource;
}

/** A group as a resource. */
export async function findGroup(sql: Queryable, orgId: string, id: string): Promise<ScimResource | undefined> {
  const [row] = await sql<{ resource: ScimResource }[]>`
    select ${asGroup(sql)} as resource from scim_group where org_id = ${orgId} and id = ${id}`;
  return row?.resource;
}

/** The attributes of a member from an identity provider. */
export interface ToldUser {
  userName: string;
  email: string;
  externalId: string | undefined;
  /** All other attributes. */
  resource: ScimResource;
}

const userColumns = ({ userName, email, externalId, resource }: ToldUser) => ({
  userName,
  email,
  externalId: externalId ?? null,
  resource: JSON.stringify(resource),
});

const sameUser = () =>
  refuse(Reason.ALREADY_EXISTS, "a user with this `userName` already exists", {}, { param: "userName" });

/** Creates a member from an identity provider's attributes. Refuses with `already_exists` if the user name is taken. */
export async function addUser(
  tx: Tx,
  orgId: string,
  told: ToldUser,
  { role, status }: { role: string; status: MemberStatus },
): Promise<string> {
  const { resource, ...columns } = userColumns(told);
  const moment = new Date(now());
  const row = {
    id: newId("usr"),
    orgId,
    role,
    givenRole: role,
    status,
    created: moment,
    updated: moment,
    // The next change makes the first version.
    version: 0,
    ...columns,
  };
  const { count } = await tx`insert into member ${tx(row)} on conflict (org_id, lower(user_name)) do nothing`;
  if (count === 0) throw sameUser();
  await tx`update member set resource = ${resource}::text::jsonb where id = ${row.id}`;
  return row.id;
}

/** Changes the attributes of an existing member. Refuses with `already_exists` if the user name is taken. */
export async function changeUser(tx: Tx, orgId: string, id: string, told: ToldUser): Promise<void> {
  const { resource, ...columns } = userColumns(told);
  const [other] = await tx`
    select from member where org_id = ${orgId} and lower(user_name) = lower(${told.userName}) and id <> ${id}`;
  if (other) throw sameUser();
  await tx`
    update member set ${tx({ ...columns, updated: new Date(now()) })}, resource = ${resource}::text::jsonb where id = ${id}`;
}

/** A group, without its members. */
export interface GroupRecord {
  id: string;
  displayName: string;
  externalId: string | undefined;
  /** The role of its members. */
  role: string | undefined;
}

/** Finds a group by its id, or by its display name in any case. */
export async function findGroupRecord(sql: Queryable, orgId: string, name: string): Promise<GroupRecord | undefined> {
  return firstRecord<GroupRecord>(sql`
    select id, display_name, external_id, role from scim_group
    where org_id = ${orgId} and (id = ${name} or lower(display_name) = lower(${name})) order by id = ${name} desc limit 1`);
}

const sameGroup = () =>
  refuse(Reason.ALREADY_EXISTS, "a group with this `displayName` already exists", {}, { param: "displayName" });

/** Creates an empty group. Refuses with `already_exists` if the display name is taken. */
export async function addGroup(
  tx: Tx,
  orgId: string,
  { displayName, externalId }: Pick<GroupRecord, "displayName" | "externalId">,
): Promise<GroupRecord> {
  const moment = new Date(now());
  const row = {
    id: newId("grp"),
    orgId,
    displayName,
    externalId: externalId ?? null,
    created: moment,
    updated: moment,
  };
  const { count } = await tx`insert into scim_group ${tx(row)} on conflict (org_id, lower(display_name)) do nothing`;
  if (count === 0) throw sameGroup();
  return { id: row.id, displayName, externalId, role: undefined };
}

/** Changes an existing group. Refuses with `already_exists` if the display name is taken. */
export async function changeGroup(
  tx: Tx,
  orgId: string,
  { id, displayName, externalId, role }: GroupRecord,
): Promise<void> {
  const [other] = await tx`
    select from scim_group where org_id = ${orgId} and lower(display_name) = lower(${displayName}) and id <> ${id}`;
  if (other) throw sameGroup();
  const row = {
    displayName,
    externalId: externalId ?? null,
    role: role ?? null,
    updated: new Date(now()),
  };
  await tx`update scim_group set ${tx(row)} where id = ${id}`;
}

/** Deletes a group; its members stay. */
export async function dropGroup(tx: Tx, id: string): Promise<void> {
  await tx`delete from scim_group where id = ${id}`;
}

/** The members of a group. */
export async function membersOf(tx: Tx, groupId: string): Promise<string[]> {
  const rows = await tx<{ userId: string }[]>`select user_id from scim_membership where group_id = ${groupId}`;
  return rows.map(({ userId }) => userId);
}

/** The ids among these that are not members of the organization. */
export async function strangersAmong(tx: Tx, orgId: string, userIds: readonly string[]): Promise<string[]> {
  const rows = await tx<{ id: string }[]>`
    select id from unnest(${[...userIds]}::text[]) as asked (id)
    where not exists (select from member where member.id = asked.id and org_id = ${orgId})`;
  return rows.map(({ id }) => id);
}

/** Replaces the members of a group. */
export async function setMembers(tx: Tx, groupId: string, userIds: readonly string[]): Promise<void> {
  await tx`delete from scim_membership where group_id = ${groupId} and not user_id = any(${[...userIds]})`;
  await tx`
    insert into scim_membership (group_id, user_id) select ${groupId}, unnest(${[...userIds]}::text[])
    on conflict do nothing`;
}

/** The roles that members have from their groups. Members without such a role are absent. */
export async function mappedRoles(tx: Tx, userIds: readonly string[]): Promise<ReadonlyMap<string, string[]>> {
  const rows = await tx<{ userId: string; roles: string[] }[]>`
    select user_id, array_agg(distinct role) as roles
    from scim_group join scim_membership on group_id = scim_group.id
    where user_id = any(${[...userIds]}) and role is not null group by user_id`;
  return new Map(rows.map(({ userId, roles }) => [userId, roles]));
}

/** Makes new versions of members whose displayed attributes have changed. */
export async function touchMembers(tx: Tx, userIds: readonly string[]): Promise<void> {
  await tx`update member set updated = ${new Date(now())} where id = any(${[...userIds]})`;
}
