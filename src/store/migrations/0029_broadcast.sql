-- Where organisations want spans of their calls. `revision` grows with every change that its owner makes; what sending it came to
-- is noted without.
create table broadcast_target (
  id text primary key,
  org_id text not null,
  name text not null default '',
  endpoint text not null,
  protocol text not null check (protocol in ('http/protobuf', 'http/json', 'grpc')),
  -- Sealed: an object of names and values.
  headers bytea,
  header_names text[] not null default '{}',
  sampling_rate double precision not null default 1,
  privacy_mode boolean not null default false,
  -- What calls have to be; empty and null let all through.
  contracts text[] not null default '{}',
  models text[] not null default '{}',
  key_ids text[] not null default '{}',
  workspace_id text,
  resource_attributes json not null default '{}',
  enabled boolean not null default true,
  revision integer not null default 1,
  last_error text,
  dropped_spans bigint not null default 0,
  created timestamptz not null default now()
);

create index broadcast_target_by_org on broadcast_target (org_id, created);

create function broadcast_changed() returns trigger language plpgsql as $$
begin
  perform pg_notify('broadcast_changed', '');
  return null;
end $$;

create trigger broadcast_target_changed after insert or delete or update of revision on broadcast_target
  for each statement execute function broadcast_changed();
