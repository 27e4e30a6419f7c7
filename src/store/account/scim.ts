/** Members and groups as an identity provider sees them. Resources are JSON by the names of RFC 7643. */

import { now } from "../../clock.ts";
import { Reason, refuse } from "../../errors.ts";
import { newId } from "../../ids.ts";
import type { Queryable, Sql, Tx } from "../database/tx.ts";
import type { MemberStatus } from "./members.ts";

/** A resource of an identity provider. */
export type ScimResource = Record<string, unknown>;

/** Which resources to list. Both paths are SQL/JSON paths over `{r: resource, l: resource in lower case}`. */
export interface ScimQuery {
  orgId: string;
  /** Only those that it finds. */
  filter?: string | undefined;
  sortBy?: string | undefined;
  descending: boolean;
  offset: number;
  limit: number;
}

/** One page of resources, and how many there are. */
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

/** What an identity provider tells of a member. */
export interface ToldUser {
  userName: string;
  email: string;
  externalId: string | undefined;
  /** All else that it told. */
  resource: ScimResource;
}

const userColumns = ({ userName, email, externalId, resource }: ToldUser) => ({
  userName,
  email,
  externalId: externalId ?? null,
  resource: JSON.stringify(resource),
});

const sameUser = () =>
  refuse(Reason.ALREADY_EXISTS, "a user of this userName exists already", {}, { param: "userName" });

/** Makes a member from what an identity provider tells. Refuses with `already_exists` where the name is taken. */
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
    // The change below makes the first version.
    version: 0,
    ...columns,
  };
  const { count } = await tx`insert into member ${tx(row)} on conflict (org_id, lower(user_name)) do nothing`;
  if (count === 0) throw sameUser();
  await tx`update member set resource = ${resource}::text::jsonb where id = ${row.id}`;
  return row.id;
}

/** Changes what is known of a member who exists. Refuses with `already_exists` where the name is taken. */
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
  /** The role that it gives. */
  role: string | undefined;
}

interface GroupRow extends Omit<GroupRecord, "externalId" | "role"> {
  externalId: string | null;
  role: string | null;
}

const groupOf = (row: GroupRow): GroupRecord => ({
  ...row,
  externalId: row.externalId ?? undefined,
  role: row.role ?? undefined,
});

/** Finds a group by its id, or by its display name in any case. */
export async function findGroupRecord(sql: Queryable, orgId: string, name: string): Promise<GroupRecord | undefined> {
  const [row] = await sql<GroupRow[]>`
    select id, display_name, external_id, role from scim_group
    where org_id = ${orgId} and (id = ${name} or lower(display_name) = lower(${name})) order by id = ${name} desc limit 1`;
  return row && groupOf(row);
}

const sameGroup = () =>
  refuse(Reason.ALREADY_EXISTS, "a group of this displayName exists already", {}, { param: "displayName" });

/** Makes a group without members. Refuses with `already_exists` where the name is taken. */
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

/** Changes a group that exists. Refuses with `already_exists` where the name is taken. */
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

/** Removes a group; its members stay. */
export async function dropGroup(tx: Tx, id: string): Promise<void> {
  await tx`delete from scim_group where id = ${id}`;
}

/** The members of a group. */
export async function membersOf(tx: Tx, groupId: string): Promise<string[]> {
  const rows = await tx<{ userId: string }[]>`select user_id from scim_membership where group_id = ${groupId}`;
  return rows.map(({ userId }) => userId);
}

/** Those of some users who are not members of an organisation. */
export async function strangersAmong(tx: Tx, orgId: string, userIds: readonly string[]): Promise<string[]> {
  const rows = await tx<{ id: string }[]>`
    select id from unnest(${[...userIds]}::text[]) as asked (id)
    where not exists (select from member where member.id = asked.id and org_id = ${orgId})`;
  return rows.map(({ id }) => id);
}

/** Lets exactly these be in a group. */
export async function setMembers(tx: Tx, groupId: string, userIds: readonly string[]): Promise<void> {
  await tx`delete from scim_membership where group_id = ${groupId} and not user_id = any(${[...userIds]})`;
  await tx`
    insert into scim_membership (group_id, user_id) select ${groupId}, unnest(${[...userIds]}::text[])
    on conflict do nothing`;
}

/** The roles that the groups of some members give, by member; those whom no group gives a role are not in it. */
export async function mappedRoles(tx: Tx, userIds: readonly string[]): Promise<ReadonlyMap<string, string[]>> {
  const rows = await tx<{ userId: string; roles: string[] }[]>`
    select user_id, array_agg(distinct role) as roles
    from scim_group join scim_membership on group_id = scim_group.id
    where user_id = any(${[...userIds]}) and role is not null group by user_id`;
  return new Map(rows.map(({ userId, roles }) => [userId, roles]));
}

/** Makes new versions of some members: something that is shown with them has changed. */
export async function touchMembers(tx: Tx, userIds: readonly string[]): Promise<void> {
  await tx`update member set updated = ${new Date(now())} where id = any(${[...userIds]})`;
}
