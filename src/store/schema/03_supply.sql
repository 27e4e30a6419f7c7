-- What can be asked for (models), who runs it (providers) and where (offerings), and how offerings do.
--
-- A change of a provider, a model or an offering makes every replica plan again: what changes often stands in tables of its own.

create table provider (
  id text primary key,
  org_id text not null references org,
  name text not null unique,
  display_name text not null,
  contact_email text,
  homepage text,
  regions text[] not null default '{}',
  retains_frames boolean not null default true,
  -- What the operator says of it, why, and when. Community supply serves those who ask for it, rejected supply its own organization alone.
  standing text not null default 'community' check (standing in ('community', 'verified', 'rejected')),
  standing_note text not null default '',
  reviewed_at timestamptz,
  created timestamptz not null default now()
);

create index provider_of_org on provider (org_id);

create function provider_cap() returns trigger language plpgsql as $$
declare
  org text;
begin
  for org in select distinct org_id from made order by 1 loop
    perform org_cap_turn('providers', org);
    perform assert_org_cap('providers', (select count(*) from provider where org_id = org));
  end loop;
  return null;
end
$$;

create trigger provider_cap after insert on provider referencing new table as made for each statement execute function provider_cap();

-- The organization of an owner name, the part of a model's slug before the slash: the one whose offering passed first, or the one that the
-- operator chose. Names in the catalog have none until the operator assigns them.
create table model_owner (
  owner text primary key,
  org_id text not null references org,
  created timestamptz not null default now()
);

-- The keys by which the owner of a name signs checkpoints. They go with the name.
create table maker_key (
  id text primary key,
  owner text not null references model_owner on delete cascade,
  org_id text not null references org,
  name text not null default '',
  -- Ed25519, as PEM.
  public_key text not null,
  created timestamptz not null default now(),
  unique (owner, public_key)
);

-- A model is here whether or not anything serves it.
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
  -- When its end was announced, and when it ends.
  deprecated_at timestamptz,
  sunset_at timestamptz,
  -- The organization that declared it where the catalog does not have it: it is public while an offering of it has passed its probe.
  declared_by text references org,
  created timestamptz not null default now(),
  check ((deprecated_at is null) = (sunset_at is null))
);

-- A provider's endpoint that serves a model. Prices are integer nano-dollars per unit; null where the contract isn't served.
create table offering (
  id text primary key,
  org_id text not null references org,
  provider_id text not null references provider,
  model text not null references model,
  status text not null default 'pending' check (status in (
    'pending', 'verifying', 'live', 'rejected', 'degraded', 'suspended', 'paused', 'draining', 'removed'
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
  -- The constant chunk length of its server, from the last successful probe; null if the length varies.
  chunk_steps integer check (chunk_steps > 0),
  dt_ms integer not null default 0 check (dt_ms >= 0),
  -- The wire profile, as ProtoJSON.
  profile jsonb,
  -- ProtoJSON of SafetyBounds.
  bounds jsonb,
  -- What it reads, as ProtoJSON of InputContract, and what its actions mean, as a list of ProtoJSON of ActionMeaning; null where neither its
  -- owner nor its server says so. Its server says it where `undeclared` has the column.
  input jsonb,
  actions jsonb,
  -- ProtoJSON of SignedCheckpoint.
  checkpoint jsonb,
  -- Null: what its provider says of itself.
  retains_frames boolean,
  auth_type text not null default 'none' check (auth_type in ('none', 'bearer', 'api_key')),
  -- Sealed by the vault; no list shows it.
  auth_secret bytea,
  p50_ms double precision,
  p95_ms double precision,
  units_per_s double precision,
  uptime_30d double precision check (uptime_30d between 0 and 1),
  timeout_s double precision not null default 30 check (timeout_s > 0),
  cold_timeout_s double precision check (cold_timeout_s > 0),
  cost_nano_per_second bigint check (cost_nano_per_second >= 0),
  -- Null: a window is assumed.
  scaledown_s double precision check (scaledown_s >= 0),
  parameters text[] not null default '{}',
  note text not null default '',
  -- Columns that the declaration left out: the server's own word for them is taken at the first probe.
  undeclared text[] not null default '{}',
  -- The last report of the conformance probe, as ProtoJSON.
  report jsonb,
  verified_at timestamptz,
  -- When the next probe is due; null before the offering was ever live.
  probe_due timestamptz,
  -- Failed probes since the last one that passed.
  probe_failures integer not null default 0,
  -- Probes in a row that it had no time for, and no caller was served meanwhile.
  probe_busy integer not null default 0,
  -- A worker probes it until then.
  probe_until timestamptz,
  withdrawn_at timestamptz,
  created timestamptz not null default now(),
  check ((auth_type = 'none') = (auth_secret is null))
);

create index offering_of_org on offering (org_id, created);
create index offering_to_probe on offering (probe_due) where status in ('live', 'degraded', 'suspended');

create function notify_supply_changed() returns trigger language plpgsql as $$
begin
  perform pg_notify('supply_changed', '');
  return null;
end
$$;

create trigger supply_changed after insert or update or delete on provider
  for each statement execute function notify_supply_changed();
create trigger supply_changed after insert or update or delete on model_owner
  for each statement execute function notify_supply_changed();
create trigger supply_changed after insert or update or delete on maker_key
  for each statement execute function notify_supply_changed();
create trigger supply_changed after insert or update or delete on model
  for each statement execute function notify_supply_changed();
create trigger supply_changed after insert or update or delete on offering
  for each statement execute function notify_supply_changed();

-- What a running probe has found so far: written after each check by the replica that runs it, read by all.
create table probe_progress (
  offering_id text primary key references offering on delete cascade,
  -- The report so far, as ProtoJSON.
  report jsonb not null,
  at timestamptz not null default now()
);

-- Bring your own key: organizations' own keys at providers, sealed. Replicas keep them in memory, sealed as they are here.
create table credential (
  id text primary key,
  org_id text not null references org,
  provider text not null,
  -- The provider that had this name when the key was stored: the key is sent to no other. Null: to none.
  provider_id text references provider,
  label text not null default '',
  -- Sealed by the vault, bound to organization, provider, id and version.
  sealed bytea not null,
  fingerprint text not null,
  -- Counts how often it was stored, so that an older one that is put back does not open.
  version integer not null default 1,
  mode text check (mode in ('off', 'fallback', 'prefer', 'require')),
  created timestamptz not null default now(),
  updated timestamptz not null default now(),
  verified_at timestamptz,
  unique (org_id, provider)
);

create function notify_credential_changed() returns trigger language plpgsql as $$
begin
  perform pg_notify('credential_changed', coalesce(new.org_id, old.org_id));
  return null;
end
$$;

create trigger credential_changed after insert or delete or update of sealed, provider_id, mode on credential
  for each row execute function notify_credential_changed();

-- The catalog that was imported last; no row before the first (see `store/supply/catalog.ts`).
create table catalog (
  only_one boolean primary key default true check (only_one),
  -- SHA-256 of its files.
  version text not null,
  -- Its vocabularies with their meanings, and the layouts of the action spaces.
  taxonomy jsonb not null,
  imported_at timestamptz not null default now()
);

-- What the catalog knows of a model that routing doesn't need. A model without a row here was declared by its provider alone.
create table catalog_entry (
  slug text primary key references model on delete cascade,
  owner text not null,
  year integer not null,
  servable_candidate boolean not null default false,
  params_b double precision check (params_b > 0),
  license text,
  arxiv text,
  repo text,
  weights text,
  protocols text[] not null default '{}',
  sources text[] not null
);

-- Benchmarks, simulators and evaluation suites; never routable.
create table scenario (
  slug text primary key,
  name text not null,
  owner text not null,
  year integer not null,
  target text not null check (target in ('embodied', 'driving', 'game', 'science', 'general')),
  topic text not null,
  runnable boolean not null,
  license text,
  arxiv text,
  repo text,
  sources text[] not null
);

-- Surveys, position papers, theory and tutorials; never routable.
create table literature (
  slug text primary key,
  title text not null,
  kind text not null check (kind in ('survey', 'position', 'theory', 'tutorial')),
  year integer not null,
  domain text not null check (domain in ('embodied', 'driving', 'game', 'science', 'general')),
  arxiv text,
  repo text,
  sources text[] not null
);

-- How offerings did, minute by minute. A replica writes whole figures, so that writing twice is writing once; hours and uptimes are computed
-- from the minutes of all replicas, and may be computed again. There is no reference to the offering: figures of one that is gone are pruned
-- with the rest.
create table offering_minute (
  -- Minutes since 1970.
  minute integer not null,
  offering_id text not null,
  -- One life of a process; no later process has this name.
  replica text not null,
  -- Calls with a verdict, and those that the provider failed.
  calls integer not null check (calls >= 0),
  failures integer not null check (failures between 0 and calls),
  -- How long its breaker kept calls away.
  rested_ms integer not null check (rested_ms between 0 and 60000),
  -- Warm latencies by bucket of the router's sketch: its counts add up.
  latency integer[] not null,
  primary key (minute, offering_id, replica)
);

create table offering_hour (
  -- Hours since 1970.
  hour integer not null,
  offering_id text not null,
  calls bigint not null,
  failures bigint not null,
  rested_ms integer not null,
  latency bigint[] not null,
  primary key (hour, offering_id)
);

create index offering_hour_of on offering_hour (offering_id, hour);

-- What went wrong at offerings, by day (UTC): failed attempts by reason, and holds of robots in control loops as `hold`. For their owners.
create table offering_trouble (
  offering_id text not null,
  day date not null,
  kind text not null,
  count bigint not null check (count >= 0),
  -- What the server, or the gateway of it, last said.
  said text,
  primary key (offering_id, day, kind)
);

create table offering_uptime (
  offering_id text primary key,
  -- Share of calls that succeeded, times the share of the time in which the breaker let them through; null without calls.
  uptime_5m double precision,
  uptime_1d double precision,
  uptime_30d double precision not null,
  calls_30d bigint not null
);

-- Null where it was neither called nor resting.
create function uptime_of(calls numeric, failures numeric, rested_ms numeric, span_ms numeric)
returns double precision language sql immutable as $$
  select case
    when calls is null then null
    else (1 - coalesce(failures / nullif(calls, 0), 0)) * (1 - least(1, rested_ms / span_ms))
  end::double precision
$$;

-- One row for each offering whose breaker a replica opened, or that an operator forced.
create table circuit (
  offering_id text primary key references offering on delete cascade,
  -- Opened by failures and not closed since, by any replica.
  is_open boolean not null default false,
  -- An operator keeps calls away, or lets them through.
  forced text check (forced in ('open', 'closed')),
  changed timestamptz not null default now()
);

-- When breakers opened and closed, and what operators did with them.
create table circuit_change (
  id bigint generated always as identity primary key,
  offering_id text not null,
  move text not null check (move in ('opened', 'closed', 'forced_open', 'forced_closed', 'freed')),
  at timestamptz not null default now()
);

create index circuit_change_of on circuit_change (offering_id, id);

create function notify_circuit_forced() returns trigger language plpgsql as $$
begin
  perform pg_notify('circuit_forced', '');
  return null;
end
$$;

create trigger circuit_forced after insert or update of forced or delete on circuit
  for each statement execute function notify_circuit_forced();
