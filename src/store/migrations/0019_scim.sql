-- What identity providers push: more about members, and the groups that they are in.

-- `resource` is what the identity provider told of a member beside what has a column of its own.
alter table member add column external_id text;
alter table member add column resource jsonb not null default '{}';
alter table member add column version integer not null default 1;
create index member_by_external_id on member (org_id, external_id) where external_id is not null;

create table scim_group (
  id text primary key,
  org_id text not null references org,
  display_name text not null,
  external_id text,
  -- The role that its members act in; null: it gives none.
  role text,
  version integer not null default 1,
  created timestamptz not null default now(),
  updated timestamptz not null default now()
);

create unique index scim_group_by_name on scim_group (org_id, lower(display_name));
create index scim_group_of_org on scim_group (org_id, id);

create table scim_membership (
  group_id text not null references scim_group on delete cascade,
  user_id text not null references member on delete cascade,
  primary key (group_id, user_id)
);

create index scim_membership_of_user on scim_membership (user_id);

create function scim_time(moment timestamptz) returns text language sql immutable as $$
  select to_char(moment at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;

-- A member as RFC 7643 writes him.
create function scim_user(m member) returns jsonb language sql stable as $$
  select m.resource || jsonb_strip_nulls(jsonb_build_object(
    'id', m.id,
    'externalId', m.external_id,
    'userName', m.user_name,
    'active', m.status <> 'deactivated',
    'emails', coalesce(m.resource -> 'emails',
      case when m.email like '%@%' then jsonb_build_array(jsonb_build_object('value', m.email, 'primary', true)) end),
    'groups', (
      select jsonb_agg(jsonb_build_object(
        'value', g.id, '$ref', '/v1/scim/v2/Groups/' || g.id, 'display', g.display_name, 'type', 'direct') order by g.id)
      from scim_membership s join scim_group g on g.id = s.group_id where s.user_id = m.id),
    'meta', jsonb_build_object(
      'resourceType', 'User', 'created', scim_time(m.created), 'lastModified', scim_time(m.updated),
      'location', '/v1/scim/v2/Users/' || m.id, 'version', 'W/"' || m.version || '"')))
$$;

-- A group as RFC 7643 writes it.
create function scim_group_resource(g scim_group) returns jsonb language sql stable as $$
  select jsonb_strip_nulls(jsonb_build_object(
    'id', g.id,
    'externalId', g.external_id,
    'displayName', g.display_name,
    'members', (
      select jsonb_agg(jsonb_build_object(
        'value', m.id, '$ref', '/v1/scim/v2/Users/' || m.id, 'display', m.user_name, 'type', 'User') order by m.id)
      from scim_membership s join member m on m.id = s.user_id where s.group_id = g.id),
    'meta', jsonb_build_object(
      'resourceType', 'Group', 'created', scim_time(g.created), 'lastModified', scim_time(g.updated),
      'location', '/v1/scim/v2/Groups/' || g.id, 'version', 'W/"' || g.version || '"')))
$$;

-- What filters look at: the resource as it is under `r`, and in lower case, names included, under `l`.
create function scim_seen(resource jsonb) returns jsonb language sql immutable as $$
  select jsonb_build_object('r', resource, 'l', lower(resource::text)::jsonb)
$$;

-- Every change of a member or a group makes a new version of it.
create function next_version() returns trigger language plpgsql as $$
begin
  new.version := old.version + 1;
  return new;
end
$$;

create trigger next_version before update on member for each row execute function next_version();
create trigger next_version before update on scim_group for each row execute function next_version();
