-- The people of an organization, the groups that an identity provider pushes (SCIM, RFC 7643), and OAuth applications.

-- A member is also what an identity provider calls a user.
create table member (
  id text primary key,
  org_id text not null references org,
  -- The identity provider's name of the user: the email address, unless it says otherwise.
  user_name text not null,
  email text not null,
  external_id text,
  -- What the identity provider sent of the user beside what has a column of its own.
  resource jsonb not null default '{}',
  -- The role that applies now, and the role that was given by hand; a mapped group makes them differ.
  role text not null,
  given_role text not null,
  -- The workspaces that the member is confined to; empty: not confined.
  workspace_ids text[] not null default '{}',
  status text not null check (status in ('invited', 'active', 'deactivated')),
  -- SHA-256 of the invite that is not accepted yet.
  invite_hash bytea unique,
  invite_ends timestamptz,
  -- Counts the changes of the row.
  version integer not null default 1,
  created timestamptz not null default now(),
  updated timestamptz not null default now(),
  check ((invite_hash is null) = (invite_ends is null))
);

create function member_cap() returns trigger language plpgsql as $$
declare
  org text;
begin
  for org in select distinct org_id from made order by 1 loop
    perform org_cap_turn('members', org);
    perform assert_org_cap('members', (select count(*) from member where org_id = org));
  end loop;
  return null;
end
$$;

create trigger member_cap after insert on member referencing new table as made for each statement execute function member_cap();

create unique index member_by_name on member (org_id, lower(user_name));
create index member_by_email on member (org_id, lower(email));
create index member_by_external_id on member (org_id, external_id) where external_id is not null;
create index member_of_org on member (org_id, created, id);

-- A member's keys change with the member.
create function notify_member_changed() returns trigger language plpgsql as $$
begin
  perform pg_notify('key_changed', old.id);
  return null;
end
$$;

create trigger key_changed after update of status, role or delete on member
  for each row execute function notify_member_changed();

-- The event types that a member muted in mail; `*` for all.
create table mail_preference (
  member_id text primary key references member on delete cascade,
  org_id text not null references org,
  muted text[] not null,
  updated timestamptz not null default now()
);

-- An issuer of OpenID Connect that signs an organization's people in.
create table issuer (
  id text primary key,
  org_id text not null references org,
  name text not null,
  issuer text not null,
  client_id text not null,
  -- The client's secret; null for a client that has none.
  sealed bytea,
  -- The role of new members who sign in; null if the issuer creates none.
  join_role text,
  -- The operator found that it verifies every e-mail address that it names, whether it says so or not.
  emails_verified boolean not null default false,
  version integer not null default 1,
  created timestamptz not null default now(),
  updated timestamptz not null default now(),
  unique (org_id, name)
);

-- E-mail domains that the operator found to be an organization's.
create table email_domain (
  domain text primary key check (domain = lower(domain)),
  org_id text not null references org,
  -- The issuer that signs its people in.
  issuer_id text references issuer on delete set null,
  verified timestamptz not null default now()
);

create index email_domain_of_org on email_domain (org_id);
create index email_domain_of_issuer on email_domain (issuer_id) where issuer_id is not null;

-- The issuer's subject of a member, from the first sign-in: a reassigned e-mail address gives no access.
create table sign_in_identity (
  issuer_id text not null references issuer on delete cascade,
  subject text not null,
  org_id text not null references org,
  user_id text not null references member on delete cascade,
  primary key (issuer_id, subject),
  unique (issuer_id, user_id)
);

create index sign_in_identity_of_user on sign_in_identity (user_id);

-- A member that is signed in at a browser. The secret in the browser's cookie is not stored: `hash` is its SHA-256.
create table session (
  id text primary key,
  org_id text not null references org,
  user_id text not null references member on delete cascade,
  -- The sign-ins of one browser share it.
  browser text not null,
  -- By which the member acts.
  key_id text not null references key,
  hash bytea not null unique,
  -- How the member proved who they are: by a one-time link, or at an issuer of OpenID Connect.
  method text not null check (method in ('link', 'oidc')),
  issuer_id text references issuer on delete cascade,
  created timestamptz not null default now(),
  -- When it was used last, to the minute.
  seen timestamptz not null default now(),
  -- When it ends, however much it is used.
  ends timestamptz not null
);

create index session_of_user on session (user_id);
create index session_of_issuer on session (issuer_id) where issuer_id is not null;
create index session_of_browser on session (browser);
create index session_by_end on session (ends);

-- Replicas keep sessions in memory as they keep keys.
create function notify_session_changed() returns trigger language plpgsql as $$
begin
  perform pg_notify('key_changed', old.id);
  return null;
end
$$;

create trigger session_changed after update of hash, key_id, ends or delete on session
  for each row execute function notify_session_changed();

-- A member that is deactivated is signed out, by SCIM or by hand, and stays so when activated again.
create function end_sessions() returns trigger language plpgsql as $$
begin
  delete from session where user_id = new.id;
  delete from sign_in_link where user_id = new.id;
  return null;
end
$$;

create trigger end_sessions after update of status on member
  for each row when (new.status = 'deactivated') execute function end_sessions();

-- One-time links that sign a member in. The token is not stored: `hash` is its SHA-256.
create table sign_in_link (
  hash bytea primary key,
  org_id text not null references org,
  user_id text not null references member on delete cascade,
  ends timestamptz not null
);

create index sign_in_link_of_user on sign_in_link (user_id);
create index sign_in_link_by_end on sign_in_link (ends);

create table scim_group (
  id text primary key,
  org_id text not null references org,
  display_name text not null,
  external_id text,
  -- The role that it gives to its members; null: none.
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

-- Every change of a member or a group makes a new version of it.
create function next_version() returns trigger language plpgsql as $$
begin
  new.version := old.version + 1;
  return new;
end
$$;

create trigger next_version before update on member for each row execute function next_version();
create trigger next_version before update on scim_group for each row execute function next_version();

create function scim_time(moment timestamptz) returns text language sql immutable as $$
  select to_char(moment at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;

-- A member as RFC 7643 writes a user.
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

-- What filters compare: the resource as it is under `r`, and in lower case, names included, under `l`.
create function scim_seen(resource jsonb) returns jsonb language sql immutable as $$
  select jsonb_build_object('r', resource, 'l', lower(resource::text)::jsonb)
$$;

-- Applications that ask members for consent.
create table oauth_client (
  id text primary key,
  -- The organization that registered it; null for one that registered itself (RFC 7591), to which members of any organization may consent.
  org_id text references org,
  name text not null,
  redirect_uris text[] not null,
  scopes text[] not null,
  auth_method text not null check (auth_method in ('none', 'client_secret_basic', 'client_secret_post')),
  -- SHA-256 of the secret; null for clients that can't keep one.
  secret_hash bytea,
  created timestamptz not null default now(),
  check ((secret_hash is null) = (auth_method = 'none'))
);

create index oauth_client_of_org on oauth_client (org_id, id);
create index oauth_client_of_nobody on oauth_client (created) where org_id is null;

-- Authorization codes. A code is not stored: `hash` is its SHA-256.
create table oauth_code (
  hash bytea primary key,
  client_id text not null references oauth_client on delete cascade,
  org_id text not null references org,
  -- The key that consented.
  consented_by text not null references key,
  redirect_uri text not null,
  -- The PKCE challenge (RFC 7636).
  challenge text not null,
  scope text not null,
  -- The key that the code is exchanged for.
  granted jsonb not null,
  ends timestamptz not null,
  -- The key that it was exchanged for.
  key_id text references key
);

create index oauth_code_by_end on oauth_code (ends);
