-- What was promised to upstreams, and how it ended.

-- The journal of intents: one row per batch, written before any answer of the batch leaves, and gone when every request in
-- it has ended. `promised` is a JSON array of objects with the columns of `request` that are known at dispatch; it is read
-- by recovery alone, and kept as text because checking it each time would cost more than writing it.
create table intent (
  -- No foreign key: the till's own row is locked in the same transaction, and the check would cost each batch a query.
  till_id text not null,
  batch bigint not null,
  promised text not null,
  created timestamptz not null default now(),
  primary key (till_id, batch)
);

-- settled: answered and charged; failed: not charged; unmetered: dispatched by a gateway that died, not charged.
create type request_status as enum ('settled', 'failed', 'unmetered');

-- One row per request that ended: the usage list (settled, unmetered) and the request log (all of them).
create table request (
  org_id text not null,
  request_id text not null,
  key_id text not null,
  status request_status not null,
  contract text not null,
  model text not null default '',
  provider text not null default '',
  offering_id text not null default '',
  unit text not null default '',
  units bigint not null default 0,
  cost_micro bigint not null default 0 check (cost_micro >= 0),
  wake_up_micro bigint not null default 0,
  hedge_cost_micro bigint,
  simulated boolean not null default false,
  http_status smallint,
  error_code text,
  latency_ms real,
  -- The rest of the log record, as its reader expects it: attempts, region, session and so on.
  log json,
  created timestamptz not null default now(),
  primary key (org_id, request_id)
);
