-- People of an organisation. A member is also what an identity provider calls a user: `resource` is what it told of him.

create table member (
  id text primary key,
  org_id text not null references org,
  -- What an identity provider knows him by: his address, unless it says otherwise.
  user_name text not null,
  email text not null,
  -- The role that he acts in, and the one that he was given by hand; they differ while a mapped group has him.
  role text not null,
  given_role text not null,
  -- The workspaces that he is confined to; none: he is not.
  workspace_ids text[] not null default '{}',
  status text not null check (status in ('invited', 'active', 'deactivated')),
  -- SHA-256 of the invite that he has not accepted yet.
  invite_hash bytea unique,
  invite_ends timestamptz,
  created timestamptz not null default now(),
  updated timestamptz not null default now(),
  check ((invite_hash is null) = (invite_ends is null))
);

create unique index member_by_name on member (org_id, lower(user_name));
create index member_by_email on member (org_id, lower(email));
create index member_of_org on member (org_id, created, id);

-- A key with a user works while he is an active member. `permissions` are all that a key may do within its role; null: all of it.
alter table key add column user_id text;
alter table key add column permissions text[];
create index key_of_user on key (user_id) where user_id is not null;

-- The keys of a member change with him.
create function tell_member_changed() returns trigger language plpgsql as $$
begin
  perform pg_notify('key_changed', old.id);
  return null;
end
$$;

create trigger key_changed after update of status, role or delete on member
  for each row execute function tell_member_changed();
