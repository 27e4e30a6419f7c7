-- What can be asked for (models), who runs it (providers) and where (offerings). Each change reaches every replica when it
-- commits, through `supply_changed`.

create table provider (
  id text primary key,
  org_id text not null references org,
  name text not null unique,
  display_name text not null,
  contact_email text,
  homepage text,
  regions text[] not null default '{}',
  retains_frames boolean not null default true,
  created timestamptz not null default now()
);

-- The catalog. A model is here whether or not anything serves it.
create table model (
  slug text primary key,
  name text not null,
  summary text not null default '',
  -- What it can't do, in a sentence or two.
  limits text not null default '',
  kind text not null default 'policy' check (kind in ('world-model', 'policy', 'reasoning')),
  domain text not null default 'embodied' check (domain in ('embodied', 'driving', 'game', 'science', 'general')),
  family text not null default '',
  tier text not null default 'catalog' check (tier in ('servable', 'integration', 'catalog')),
  era text not null default 'current' check (era in ('current', 'classic')),
  contracts text[] not null default '{}',
  action_spaces text[] not null default '{}',
  embodiments text[] not null default '{}',
  featured boolean not null default false,
  created timestamptz not null default now()
);

-- A provider's endpoint that serves a model. Prices are integer nano-dollars per unit; null where the contract isn't served.
create table offering (
  id text primary key,
  org_id text not null references org,
  provider_id text not null references provider,
  model text not null references model,
  status text not null default 'pending' check (status in (
    'pending', 'verifying', 'live', 'rejected', 'degraded', 'suspended', 'draining', 'removed'
  )),
  runtime text not null,
  endpoint text not null,
  hardware text not null,
  contracts text[] not null check (cardinality(contracts) > 0),
  action_spaces text[] not null default '{}',
  action_dim integer check (action_dim > 0),
  embodiments text[] not null default '{}',
  precision text not null default '',
  region text not null default '',
  price_frame_nano bigint check (price_frame_nano >= 0),
  price_step_nano bigint check (price_step_nano >= 0),
  price_token_nano bigint check (price_token_nano >= 0),
  price_episode_nano bigint check (price_episode_nano >= 0),
  max_horizon integer not null default 256 check (max_horizon between 1 and 256),
  dt_ms integer not null default 0 check (dt_ms >= 0),
  -- The wire profile, as ProtoJSON.
  profile jsonb,
  auth_type text not null default 'none' check (auth_type in ('none', 'bearer', 'api_key')),
  -- Sealed by the vault; never leaves by any list.
  auth_secret bytea,
  p50_ms double precision,
  p95_ms double precision,
  units_per_s double precision,
  uptime_30d double precision check (uptime_30d between 0 and 1),
  timeout_s double precision not null default 30 check (timeout_s > 0),
  cold_timeout_s double precision check (cold_timeout_s > 0),
  cost_nano_per_second bigint check (cost_nano_per_second >= 0),
  -- Null: it stays warm.
  scaledown_s double precision check (scaledown_s >= 0),
  parameters text[] not null default '{}',
  note text not null default '',
  -- The last report of the conformance probe, as ProtoJSON.
  report jsonb,
  verified_at timestamptz,
  created timestamptz not null default now(),
  check ((auth_type = 'none') = (auth_secret is null))
);

create index offering_of_org on offering (org_id, created);

create function tell_supply_changed() returns trigger language plpgsql as $$
begin
  perform pg_notify('supply_changed', '');
  return null;
end
$$;

create trigger supply_changed after insert or update or delete on provider
  for each statement execute function tell_supply_changed();
create trigger supply_changed after insert or update or delete on model
  for each statement execute function tell_supply_changed();
create trigger supply_changed after insert or update or delete on offering
  for each statement execute function tell_supply_changed();
