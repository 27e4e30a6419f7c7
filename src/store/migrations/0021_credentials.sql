-- Bring your own key: organisations' own keys at providers, sealed. Every replica keeps them in memory, sealed as they are here;
-- a change reaches all of them when it commits.

create table credential (
  id text primary key,
  org_id text not null references org,
  provider text not null,
  -- The provider that was known by this name when the key was stored: it goes to no other. Null: to nobody.
  provider_id text references provider,
  label text not null default '',
  -- Sealed by the vault, bound to organisation, provider, id and version.
  sealed bytea not null,
  fingerprint text not null,
  -- Counts how often it was stored, so that an older one put back does not open.
  version integer not null default 1,
  mode text check (mode in ('off', 'fallback', 'prefer', 'require')),
  created timestamptz not null default now(),
  updated timestamptz not null default now(),
  verified_at timestamptz,
  unique (org_id, provider)
);

create function tell_credential_changed() returns trigger language plpgsql as $$
begin
  perform pg_notify('credential_changed', coalesce(new.org_id, old.org_id));
  return null;
end
$$;

create trigger credential_changed after insert or delete or update of sealed, provider_id, mode on credential
  for each row execute function tell_credential_changed();

-- Served with the caller's own key at the provider.
alter table request add column if not exists byok boolean
  generated always as (coalesce((log ->> 'byok')::boolean, false)) stored;
