-- Who calls and who pays.

create table org (
  id text primary key,
  name text not null,
  email text,
  status text not null default 'active' check (status in ('active', 'suspended')),
  created timestamptz not null default now()
);

-- A key's secret is never here: `hash` is its SHA-256, `prefix` its first letters, to recognise it by.
create table key (
  id text primary key,
  org_id text not null references org,
  name text not null,
  prefix text not null,
  hash bytea not null unique,
  role text not null,
  scopes text[] not null default '{}',
  models text[] not null default '{}',
  environment text not null default 'simulation' check (environment in ('simulation', 'hardware')),
  disabled boolean not null default false,
  expires_at timestamptz,
  budget_micro bigint check (budget_micro >= 0),
  budget_interval text check (budget_interval in ('daily', 'weekly', 'monthly', 'lifetime')),
  rate_requests integer not null check (rate_requests > 0),
  rate_window_s integer not null check (rate_window_s > 0),
  rate_burst integer not null check (rate_burst > 0),
  rate_concurrency integer not null check (rate_concurrency > 0),
  created timestamptz not null default now(),
  check ((budget_micro is null) = (budget_interval is null))
);

create index key_of_org on key (org_id, created);

-- Every replica keeps keys in memory; a change reaches all of them when it commits. The payload names the key, or the
-- organisation when all its keys are meant.
create function tell_key_changed() returns trigger language plpgsql as $$
begin
  perform pg_notify('key_changed', coalesce(new.id, old.id));
  return null;
end
$$;

create trigger key_changed after insert or update or delete on key
  for each row execute function tell_key_changed();
create trigger key_changed after update of status on org
  for each row execute function tell_key_changed();
