-- Applications that ask members for consent, and the codes that consent is handed over in.

create table oauth_client (
  id text primary key,
  org_id text not null references org,
  name text not null,
  redirect_uris text[] not null,
  scopes text[] not null,
  auth_method text not null check (auth_method in ('none', 'client_secret_basic', 'client_secret_post')),
  -- SHA-256 of the secret; null for clients that can keep none.
  secret_hash bytea,
  created timestamptz not null default now(),
  check ((secret_hash is null) = (auth_method = 'none'))
);

create index oauth_client_of_org on oauth_client (org_id, id);

-- A code is never here: `hash` is its SHA-256. `granted` is the key that it will be exchanged for.
create table oauth_code (
  hash bytea primary key,
  client_id text not null references oauth_client on delete cascade,
  org_id text not null references org,
  -- The key that consented.
  consented_by text not null references key,
  redirect_uri text not null,
  challenge text not null,
  scope text not null,
  granted jsonb not null,
  ends timestamptz not null,
  -- What it was exchanged for.
  key_id text references key
);

create index oauth_code_by_end on oauth_code (ends);

-- The application that a key was made for.
alter table key add column client_id text;
create index key_of_client on key (client_id) where client_id is not null;
