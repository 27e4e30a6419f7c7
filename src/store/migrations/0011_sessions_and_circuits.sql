-- What replicas have to agree on: which checkpoint and provider a session is pinned to, and which circuits are open.

create table session_pin (
  -- SHA-256 of organisation and session, so that nothing of the caller's words is kept.
  session bytea primary key,
  model text not null,
  provider text not null,
  -- Unix milliseconds of the last call that is known here.
  at bigint not null
);

create index session_pin_by_age on session_pin (at);

-- One row per offering whose breaker any replica opened, or that an operator has a hand on.
create table circuit (
  offering_id text primary key references offering on delete cascade,
  -- Opened by failures and not closed since, by whichever replica.
  is_open boolean not null default false,
  -- An operator's hand: calls are kept away, or let through.
  forced text check (forced in ('open', 'closed')),
  changed timestamptz not null default now()
);

create function tell_circuit_forced() returns trigger language plpgsql as $$
begin
  perform pg_notify('circuit_forced', '');
  return null;
end
$$;

create trigger circuit_forced after insert or update of forced or delete on circuit
  for each statement execute function tell_circuit_forced();
