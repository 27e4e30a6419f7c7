-- Organizations, their settings, workspaces, keys and presets.
--
-- Replicas keep what they read of these tables in memory. A trigger notifies all of them when a change commits.

create table org (
  id text primary key,
  name text not null,
  email text,
  status text not null default 'active' check (status in ('active', 'suspended', 'deleted')),
  created timestamptz not null default now()
);

-- What an organization sets for all its calls. No row: the defaults of `store/account/settings.ts`; null: the default of that field.
create table org_settings (
  org_id text primary key references org,
  retention_days integer check (retention_days between 0 and 3650),
  -- Zero data retention.
  zdr boolean,
  cache_sharing boolean,
  byok_mode text check (byok_mode in ('off', 'fallback', 'prefer', 'require')),
  default_preset text,
  allowed_regions text[],
  max_hedge_ratio double precision check (max_hedge_ratio between 0 and 1),
  -- Whose supply may serve at most; null: `named`.
  trust text check (trust in ('own', 'verified', 'named', 'community')),
  -- Only checkpoints that their makers signed may serve.
  require_signed boolean,
  -- Whether members may consent to applications that registered themselves; null: they may.
  self_registered_apps text check (self_registered_apps in ('allow', 'deny')),
  -- People who are signed in may make keys for hardware. The operator sets it.
  hardware_keys boolean,
  updated timestamptz not null default now()
);

create table workspace (
  id text primary key,
  org_id text not null references org,
  name text not null,
  -- The word that stands for it in its organization.
  slug text not null,
  budget_micro bigint check (budget_micro >= 0),
  budget_interval text check (budget_interval in ('daily', 'weekly', 'monthly', 'lifetime')),
  -- The organization's settings that differ here, by their names on the wire.
  settings jsonb not null default '{}',
  created timestamptz not null default now(),
  deleted_at timestamptz,
  check ((budget_micro is null) = (budget_interval is null))
);

create unique index workspace_slug on workspace (org_id, slug) where deleted_at is null;

-- An API key. Its secret is not stored: `hash` is its SHA-256, `prefix` its first characters, for display.
create table key (
  id text primary key,
  org_id text not null references org,
  -- A key's workspace never changes, so that what it took always counts in the same budget.
  workspace_id text references workspace,
  -- The key that made this one. It never changes. The budgets of all ancestors limit a key, and what narrows or revokes an ancestor narrows or
  -- revokes the key.
  parent_id text references key,
  -- The member who owns the key; the key works only while the member is active.
  user_id text,
  -- The OAuth application that it belongs to.
  client_id text,
  -- `api` for a caller's key, `member` for the key of a signed-in member, whose secret is never revealed.
  kind text not null default 'api' check (kind in ('api', 'member')),
  robot_id text,
  name text not null,
  prefix text not null,
  hash bytea not null unique,
  role text not null,
  -- Its permissions within its role; null for all of them.
  permissions text[],
  scopes text[] not null default '{}',
  models text[] not null default '{}',
  environment text not null default 'simulation' check (environment in ('simulation', 'hardware')),
  -- ProtoJSON of SafetyBounds, which no action exceeds.
  bounds jsonb,
  -- Whose supply may serve it at most.
  trust text check (trust in ('own', 'verified', 'named', 'community')),
  -- Only checkpoints that their makers signed may serve it.
  require_signed boolean not null default false,
  disabled boolean not null default false,
  expires_at timestamptz,
  -- The end that the event `key.expiring` was last sent for; another end is announced again.
  expiry_notified timestamptz,
  revoked_at timestamptz,
  budget_micro bigint check (budget_micro >= 0),
  budget_interval text check (budget_interval in ('daily', 'weekly', 'monthly', 'lifetime')),
  rate_requests integer not null check (rate_requests > 0),
  rate_window_s integer not null check (rate_window_s > 0),
  rate_burst integer not null check (rate_burst > 0),
  rate_concurrency integer not null check (rate_concurrency > 0),
  rate_streams integer not null default 16 check (rate_streams > 0),
  created timestamptz not null default now(),
  check ((budget_micro is null) = (budget_interval is null))
);

-- What an organization may have at most: `keepOrgCaps` writes what the configuration says.
create table org_cap (
  what text primary key check (what in ('keys', 'members', 'providers', 'queued_items', 'suites')),
  most bigint not null check (most > 0)
);

-- Inserts of one kind into one organization come one after the other from here to the end of their transactions, so that each counts the ones before.
create function org_cap_turn(p_what text, p_org text) returns void language sql as $$
  select pg_advisory_xact_lock(hashtextextended('org_cap ' || p_what || ' ' || p_org, 0))
$$;

-- Refuses the transaction that has gone beyond a cap.
create function assert_org_cap(p_what text, p_count bigint) returns void language plpgsql as $$
declare
  cap bigint;
begin
  select most into cap from org_cap where what = p_what;
  if p_count > cap then
    raise exception 'an organization may have % % at most; remove some, or have the operator raise the limit', cap, replace(p_what, '_', ' ')
      using errcode = 'LM001';
  end if;
end
$$;

create function key_cap() returns trigger language plpgsql as $$
declare
  org text;
begin
  for org in select distinct org_id from made where kind = 'api' order by 1 loop
    perform org_cap_turn('keys', org);
    perform assert_org_cap('keys', (select count(*) from key where org_id = org and kind = 'api' and revoked_at is null));
  end loop;
  return null;
end
$$;

create trigger key_cap after insert on key referencing new table as made for each statement execute function key_cap();

create index key_of_org on key (org_id, created);
create index key_of_workspace on key (workspace_id) where workspace_id is not null;
create index key_of_parent on key (parent_id) where parent_id is not null;
create index key_of_user on key (user_id) where user_id is not null;
-- A member acts by one key in each workspace, and by one in the whole organization.
create unique index key_of_signed_in on key (user_id, coalesce(workspace_id, '')) where kind = 'member' and revoked_at is null;
create index key_of_client on key (client_id) where client_id is not null;
create index key_by_end on key (expires_at) where expires_at is not null;

-- The ancestors of a key, the nearest first; nothing for a key without a parent.
create function key_ancestors(p_key text) returns table (id text, depth integer) language sql stable as $$
  with recursive line as (
    select key.parent_id as id, 1 as depth from key where key.id = p_key and key.parent_id is not null
    union all
    select key.parent_id, line.depth + 1 from line join key on key.id = line.id where key.parent_id is not null
  )
  select id, depth from line
$$;

-- Whether one key is another or descends from it.
create function is_key_or_descendant(p_key text, p_of text) returns boolean language sql stable as $$
  select p_key = p_of or exists (select from key_ancestors(p_key) where id = p_of)
$$;

-- The payload is the key, or the organization where all its keys are meant.
create function notify_key_changed() returns trigger language plpgsql as $$
begin
  perform pg_notify('key_changed', coalesce(new.id, old.id));
  return null;
end
$$;

create trigger key_changed after insert or update or delete on key
  for each row execute function notify_key_changed();
create trigger key_changed after update of status on org
  for each row execute function notify_key_changed();

-- Replicas keep the settings of the organization and the workspace with each key, so their change is notified as a change of keys is.
create function notify_settings_changed() returns trigger language plpgsql as $$
begin
  perform pg_notify('key_changed', coalesce(new.org_id, old.org_id));
  return null;
end
$$;

create trigger settings_changed after insert or update or delete on org_settings
  for each row execute function notify_settings_changed();
create trigger settings_changed after update or delete on workspace
  for each row execute function notify_settings_changed();

-- A budget that changes calls idle credit of the organization back, so that nothing that was leased before is spent against the new one.
create function notify_budget_changed() returns trigger language plpgsql as $$
begin
  perform pg_notify('lease_wanted', new.org_id || ' ');
  return null;
end
$$;

create trigger budget_changed after update on workspace for each row
  when (old.budget_micro is distinct from new.budget_micro or old.budget_interval is distinct from new.budget_interval)
  execute function notify_budget_changed();
create trigger budget_changed after update on key for each row
  when (old.budget_micro is distinct from new.budget_micro or old.budget_interval is distinct from new.budget_interval)
  execute function notify_budget_changed();

-- Request configurations that were saved under a name, one row for each version.
create table preset (
  org_id text not null references org,
  name text not null,
  version integer not null check (version > 0),
  -- ProtoJSON of PresetConfig.
  config jsonb not null,
  created timestamptz not null default now(),
  primary key (org_id, name, version)
);

create function notify_preset_changed() returns trigger language plpgsql as $$
begin
  perform pg_notify('preset_changed', coalesce(new.org_id, old.org_id));
  return null;
end
$$;

create trigger preset_changed after insert or update or delete on preset
  for each row execute function notify_preset_changed();

-- The names of the master keys that sealed secrets open under: what sealed bytes begin with. A process that has none of them does not start.
create table master_key (
  name bytea primary key,
  since timestamptz not null default now()
);

-- Keys that are made here and never change, so that what was hashed under them is known again after a change of the master key. Sealed.
create table hash_key (
  id text primary key,
  sealed bytea not null
);

-- The gateway's Ed25519 keys that sign publications. Public keys stay; a rotation deletes the sealed private key.
create table signing_key (
  -- The SHA-256 thumbprint of RFC 7638.
  id text primary key,
  -- The public key, base64url.
  x text not null,
  sealed bytea,
  created timestamptz not null default now(),
  retired timestamptz,
  check ((sealed is null) = (retired is not null))
);
create unique index signing_key_current on signing_key ((true)) where retired is null;
