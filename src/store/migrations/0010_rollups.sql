-- How offerings did, minute by minute. A replica writes what it counted as whole figures, so that writing twice is writing once;
-- hours and uptimes are made from the minutes of all replicas, again as often as one likes.

-- No reference to the offering: figures of one that is gone are pruned with the rest.
create table offering_minute (
  -- Minutes since 1970.
  minute integer not null,
  offering_id text not null,
  -- A process, by a name that no later one bears.
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

create table offering_uptime (
  offering_id text primary key,
  -- Share of calls that succeeded, times the share of the time in which the breaker let them; null without calls.
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
