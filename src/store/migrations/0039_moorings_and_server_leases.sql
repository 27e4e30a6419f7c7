-- Servers that dial the gateway moor at one replica and are called by all; servers that serve one robot at a time are leased to one caller
-- among all replicas.

-- Which replica holds the stream of a provider's server. It renews its rows; one that doesn't is gone, and its streams with it.
create table mooring (
  provider text not null,
  replica text not null,
  since timestamptz not null default now(),
  alive_until timestamptz not null,
  primary key (provider, replica)
);

create function tell_mooring_changed() returns trigger language plpgsql as $$
begin
  perform pg_notify('mooring_changed', '');
  return null;
end
$$;

-- Renewals are no news.
create trigger mooring_changed after insert or delete on mooring
  for each statement execute function tell_mooring_changed();

-- What one replica says to another that holds a stream: questions one way, answers the other. Deleted as it is read, and lost with the
-- server's memory, which fails the calls that wait.
create unlogged table parcel (
  id bigint generated always as identity primary key,
  to_replica text not null,
  from_replica text not null,
  -- The line between the two that it belongs to.
  line text not null,
  provider text not null,
  kind text not null,
  -- How long the call may take from here, in milliseconds; null where there is no call yet to come.
  budget_ms double precision,
  body bytea not null,
  sent_at timestamptz not null default now()
);

create index parcel_for on parcel (to_replica, id);

create function tell_parcel() returns trigger language plpgsql as $$
begin
  perform pg_notify('parcel', to_replica) from (select distinct to_replica from sent) as addressees;
  return null;
end
$$;

create trigger parcel_sent after insert on parcel referencing new table as sent
  for each statement execute function tell_parcel();

-- Who has a server that serves one robot at a time: whose session until `until`, and whose call until `running_until`.
create table server_lease (
  server text primary key,
  -- One replica's connection to it.
  taker text not null,
  session text not null,
  -- Counts up whenever taker or session change: what was set up on the server before is not there any more.
  epoch bigint not null,
  running_until timestamptz not null,
  until timestamptz not null
);
