-- What a running probe has found so far: written after each check by whichever replica runs it, read through any.
-- A table of its own, since every change of an offering makes all replicas plan anew.

create table probe_progress (
  offering_id text primary key references offering on delete cascade,
  -- The report as far as it came, as ProtoJSON.
  report jsonb not null,
  at timestamptz not null default now()
);
