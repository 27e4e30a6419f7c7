-- What calls came to over time, for charts: by minute and by hour, for each combination of key, contract, model, provider and robot. Added up
-- apart from calls, from what they put on record; sums are exact. A stretch of a control loop, of about a second, is one call here as in the log.

-- One combination on one day (UTC).
create table series_line (
  id bigint generated always as identity primary key,
  org_id text not null,
  day date not null,
  key_id text not null,
  contract text not null,
  model text not null,
  provider text not null,
  -- Empty where none was named; null where it was forgotten with the log.
  robot text,
  unique (org_id, day, key_id, contract, model, provider, robot)
);

create table series_minute (
  line bigint not null references series_line on delete cascade,
  -- Minutes since 1970.
  minute integer not null,
  calls bigint not null,
  failed bigint not null,
  cost_micro bigint not null,
  -- Counts by name: `f:` and the word of a refusal, `h:` and the word of a hold, `l:` and a bucket of latencies as routing's sketch has them,
  -- `a:` and a bucket of the ages of observations when their chunks were sent.
  parts jsonb not null,
  primary key (line, minute)
);

create index series_minute_by_time on series_minute using brin (minute);

create table series_hour (
  line bigint not null references series_line on delete cascade,
  -- Hours since 1970.
  hour integer not null,
  calls bigint not null,
  failed bigint not null,
  cost_micro bigint not null,
  parts jsonb not null,
  primary key (line, hour)
);

-- All calls before this moment are added up.
create table series_until (
  only_one boolean primary key default true check (only_one),
  at timestamptz not null
);

insert into series_until (at) values (now());

-- Two counts by name as one.
create function series_sum(a jsonb, b jsonb) returns jsonb language sql immutable as $$
  select case
    when a = '{}' then b
    when b = '{}' then a
    else (
      select jsonb_object_agg(key, amount)
      from (
        select key, sum(value::bigint) as amount
        from (select * from jsonb_each_text(a) union all select * from jsonb_each_text(b)) as each group by key
      ) as summed
    )
  end
$$;

create aggregate series_sum_of(jsonb) (sfunc = series_sum, stype = jsonb, initcond = '{}');

-- The bucket of a duration, as `bucketOf` in `routing/health/sketch.ts` has it.
create function series_bucket(ms double precision) returns integer language sql immutable as $$
  select least(99, floor(ln(greatest(ms, 0.1) / 0.1) / ln(1.2::double precision)))::integer
$$;

-- What the calls of a span of time came to, of one organization or of all.
create function series_between(p_from timestamptz, p_to timestamptz, p_org text) returns table (
  org_id text, minute integer, key_id text, contract text, model text, provider text, robot text,
  calls bigint, failed bigint, cost_micro bigint, parts jsonb
) language sql stable as $$
  with call as materialized (
    select o.org_id, floor(extract(epoch from o.created) / 60)::integer as minute, k.key_id, k.contract, k.model, k.provider,
      coalesce(l.robot_id, '') as robot,
      k.status, k.error_code, o.cost_micro, o.latency_ms, l.log, coalesce(l.log like '%"stream_id":%', false) as is_stretch
    from request_outcome as o join request_kind as k on k.id = o.kind
      -- The limit keeps the planner from reading the whole log to join it.
      left join lateral (
        select robot_id, log from request_log as l where l.org_id = o.org_id and l.request_id = o.request_id limit 1
      ) as l on true
    where o.created >= p_from and o.created < p_to and (p_org is null or o.org_id = p_org) and k.contract <> 'preview'
  ), counted as (
    select org_id, minute, key_id, contract, model, provider, robot, count(*) as calls, count(*) filter (where status = 'failed') as failed,
      sum(cost_micro)::bigint as cost_micro
    from call group by 1, 2, 3, 4, 5, 6, 7
  ), one as (
    select org_id, minute, key_id, contract, model, provider, robot, 'f:' || coalesce(error_code, '') as name, 1::bigint as amount
    from call where status = 'failed'
    union all
    select org_id, minute, key_id, contract, model, provider, robot, 'h:' || hold.key, hold.value::bigint
    from call, json_each_text(log::json -> 'holds') as hold where is_stretch and log like '%"holds":%'
    union all
    select org_id, minute, key_id, contract, model, provider, robot, 'a:' || age.key, age.value::bigint
    from call, json_each_text(log::json -> 'ages') as age where is_stretch and log like '%"ages":%'
    union all
    select org_id, minute, key_id, contract, model, provider, robot, 'l:' || series_bucket(latency_ms), 1
    from call where status = 'settled' and not is_stretch and latency_ms is not null
    union all
    -- Of a stretch what is known of its answers is their mean.
    select org_id, minute, key_id, contract, model, provider, robot, 'l:' || series_bucket((tried ->> 'latency_ms')::double precision),
      coalesce((tried ->> 'count')::bigint, 1)
    from call, json_array_elements(log::json -> 'attempts') as tried
    where is_stretch and log like '%"attempts":%' and tried ->> 'status' = 'ok'
  ), named as (
    select org_id, minute, key_id, contract, model, provider, robot, name, sum(amount)::bigint as amount
    from one group by 1, 2, 3, 4, 5, 6, 7, 8
  ), gathered as (
    select org_id, minute, key_id, contract, model, provider, robot, jsonb_object_agg(name, amount) as parts
    from named group by 1, 2, 3, 4, 5, 6, 7
  )
  select org_id, minute, key_id, contract, model, provider, robot, calls, failed, cost_micro, coalesce(parts, '{}')
  from counted left join gathered using (org_id, minute, key_id, contract, model, provider, robot)
$$;

-- Adds up the calls of a span of time, each of which has to be in one span alone.
create function series_put(p_from timestamptz, p_to timestamptz) returns void language sql as $$
  with delta as materialized (
    select *, (to_timestamp(minute * 60.0) at time zone 'UTC')::date as day from series_between(p_from, p_to, null)
  ), wanted as (
    select distinct org_id, day, key_id, contract, model, provider, robot from delta
  ), made as (
    insert into series_line (org_id, day, key_id, contract, model, provider, robot)
    select * from wanted on conflict do nothing returning *
  ), line as materialized (
    select id, org_id, day, key_id, contract, model, provider, robot from made
    union all
    select l.id, l.org_id, l.day, l.key_id, l.contract, l.model, l.provider, l.robot
    from series_line as l join wanted using (org_id, day, key_id, contract, model, provider, robot)
  ), told as materialized (
    select id, minute, calls, failed, cost_micro, parts
    from delta join line using (org_id, day, key_id, contract, model, provider, robot)
  ), minutes as (
    insert into series_minute as m (line, minute, calls, failed, cost_micro, parts)
    select * from told
    on conflict (line, minute) do update set calls = m.calls + excluded.calls, failed = m.failed + excluded.failed,
      cost_micro = m.cost_micro + excluded.cost_micro, parts = series_sum(m.parts, excluded.parts)
  )
  insert into series_hour as h (line, hour, calls, failed, cost_micro, parts)
  select id, minute / 60, sum(calls)::bigint, sum(failed)::bigint, sum(cost_micro)::bigint, series_sum_of(parts) from told group by 1, 2
  on conflict (line, hour) do update set calls = h.calls + excluded.calls, failed = h.failed + excluded.failed,
    cost_micro = h.cost_micro + excluded.cost_micro, parts = series_sum(h.parts, excluded.parts);
$$;

-- Adds up what is over: until the beginning of the oldest transaction that is still open, since what that writes is of the moment at which it
-- began, and no more than ten minutes at one time. Nothing is added twice, and nothing is missed. Reports whether there may be more; nothing is
-- done while another replica is at it.
create function series_add_up() returns boolean language plpgsql as $$
declare
  before timestamptz;
  until timestamptz;
  known timestamptz;
begin
  select at into before from series_until for update skip locked;
  if not found then
    return false;
  end if;
  select least(now() - interval '10 seconds', min(xact_start)) into known
  from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid();
  until := least(known, before + interval '10 minutes');
  if until <= before then
    return false;
  end if;
  perform series_put(before, until);
  update series_until set at = until;
  return until < known;
end
$$;
