-- What calls came to over time, for charts and totals: by minute, hour and day, for each combination of key, contract, model, provider and robot.
-- Added up apart from calls, from what they put on record; sums are exact. Minutes are kept for 2 days, hours for 400, days as long as accounting
-- rows. A stretch of a control loop, of about a second, is one call here as in the log.

-- One combination on one day (UTC), and its totals. `requests` are settled or unmetered calls, `own_micro` is the cost of those with the
-- organization's own key at the provider.
create table series_line (
  id bigint generated always as identity primary key,
  org_id text not null,
  day date not null,
  key_id text not null,
  contract text not null,
  model text not null,
  provider text not null,
  -- Empty where none was named, or where its name was forgotten with the log.
  robot text not null,
  calls bigint not null,
  failed bigint not null,
  cost_micro bigint not null,
  requests bigint not null,
  own_micro bigint not null,
  -- Counts by name: `f:` and the word of a refusal, `h:` and the word of a hold, `l:` and a bucket of latencies as routing's sketch has them,
  -- `a:` and a bucket of the ages of observations when their chunks were sent.
  parts jsonb not null,
  unique (org_id, day, key_id, contract, model, provider, robot)
) with (fillfactor = 70);

create index series_line_named on series_line (day) where robot <> '';

create table series_minute (
  line bigint not null references series_line on delete cascade,
  -- Minutes since 1970.
  minute integer not null,
  calls bigint not null,
  failed bigint not null,
  cost_micro bigint not null,
  requests bigint not null,
  own_micro bigint not null,
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
  requests bigint not null,
  own_micro bigint not null,
  parts jsonb not null,
  primary key (line, hour)
);

create index series_hour_by_time on series_hour using brin (hour);

-- All calls before this moment are added up.
create table series_until (
  only_one boolean primary key default true check (only_one),
  at timestamptz not null
);

insert into series_until (at) values ('-infinity');

-- The sum of counts by name.
create function series_merged(p_parts jsonb[]) returns jsonb language sql immutable as $$
  select case
    when cardinality(p_parts) = 1 then p_parts[1]
    else (
      select coalesce(jsonb_object_agg(key, amount), '{}')
      from (select key, sum(value::bigint) as amount from unnest(p_parts) as part, jsonb_each_text(part) group by key) as summed
    )
  end
$$;

-- The same for two.
create function series_sum(a jsonb, b jsonb) returns jsonb language sql immutable as $$
  select case when a = '{}' then b when b = '{}' then a else series_merged(array[a, b]) end
$$;

-- Collects, and sums at the end: a sum for each row would read and write all counts again.
create aggregate series_sum_of(jsonb) (sfunc = array_append, stype = jsonb[], finalfunc = series_merged, initcond = '{}');

-- The bucket of a duration, as `bucketOf` in `routing/health/sketch.ts` has it.
create function series_bucket(ms double precision) returns integer language sql immutable as $$
  select least(99, floor(ln(greatest(ms, 0.1) / 0.1) / ln(1.2::double precision)))::integer
$$;

-- What the calls of a span of time came to, of one organization or of all. Its plan is made once for each connection: over a year of partitions,
-- planning takes longer than reading what was added since a moment.
create function series_between(p_from timestamptz, p_to timestamptz, p_org text) returns table (
  org_id text, minute integer, key_id text, contract text, model text, provider text, robot text,
  calls bigint, failed bigint, cost_micro bigint, requests bigint, own_micro bigint, parts jsonb
) language sql stable set plan_cache_mode = force_generic_plan as $$
  with call as materialized (
    select o.org_id, floor(extract(epoch from o.created) / 60)::integer as minute, k.key_id, k.contract, k.model, k.provider,
      coalesce(l.robot_id, '') as robot,
      k.status, k.byok, k.error_code, o.cost_micro, o.latency_ms, l.log, coalesce(l.log like '%"stream_id":%', false) as is_stretch
    from request_outcome as o join request_kind as k on k.id = o.kind
      -- The limit keeps the planner from reading the whole log to join it.
      left join lateral (
        select robot_id, log from request_log as l where l.org_id = o.org_id and l.request_id = o.request_id limit 1
      ) as l on true
    where o.created >= p_from and o.created < p_to and (p_org is null or o.org_id = p_org) and k.contract <> 'preview'
  ), counted as (
    select org_id, minute, key_id, contract, model, provider, robot, count(*) as calls, count(*) filter (where status = 'failed') as failed,
      sum(cost_micro)::bigint as cost_micro, count(*) filter (where status in ('settled', 'unmetered')) as requests,
      coalesce(sum(cost_micro) filter (where byok), 0)::bigint as own_micro
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
  select org_id, minute, key_id, contract, model, provider, robot, calls, failed, cost_micro, requests, own_micro, coalesce(parts, '{}')
  from counted left join gathered using (org_id, minute, key_id, contract, model, provider, robot)
$$;

-- Adds up the calls of a span of time, each of which has to be in one span alone.
create function series_put(p_from timestamptz, p_to timestamptz) returns void language sql as $$
  with delta as materialized (
    select *, (to_timestamp(minute * 60.0) at time zone 'UTC')::date as day from series_between(p_from, p_to, null)
  ), line as (
    insert into series_line as l (org_id, day, key_id, contract, model, provider, robot, calls, failed, cost_micro, requests, own_micro, parts)
    select org_id, day, key_id, contract, model, provider, robot, sum(calls)::bigint, sum(failed)::bigint, sum(cost_micro)::bigint,
      sum(requests)::bigint, sum(own_micro)::bigint, series_sum_of(parts)
    from delta group by 1, 2, 3, 4, 5, 6, 7
    on conflict (org_id, day, key_id, contract, model, provider, robot) do update set calls = l.calls + excluded.calls,
      failed = l.failed + excluded.failed, cost_micro = l.cost_micro + excluded.cost_micro, requests = l.requests + excluded.requests,
      own_micro = l.own_micro + excluded.own_micro, parts = series_sum(l.parts, excluded.parts)
    returning id, org_id, day, key_id, contract, model, provider, robot
  ), counted as materialized (
    select id, minute, calls, failed, cost_micro, requests, own_micro, parts
    from delta join line using (org_id, day, key_id, contract, model, provider, robot)
  ), minutes as (
    insert into series_minute as m (line, minute, calls, failed, cost_micro, requests, own_micro, parts)
    select * from counted
    on conflict (line, minute) do update set calls = m.calls + excluded.calls, failed = m.failed + excluded.failed,
      cost_micro = m.cost_micro + excluded.cost_micro, requests = m.requests + excluded.requests,
      own_micro = m.own_micro + excluded.own_micro, parts = series_sum(m.parts, excluded.parts)
  )
  insert into series_hour as h (line, hour, calls, failed, cost_micro, requests, own_micro, parts)
  select id, minute / 60, sum(calls)::bigint, sum(failed)::bigint, sum(cost_micro)::bigint, sum(requests)::bigint, sum(own_micro)::bigint,
    series_sum_of(parts)
  from counted group by 1, 2
  on conflict (line, hour) do update set calls = h.calls + excluded.calls, failed = h.failed + excluded.failed,
    cost_micro = h.cost_micro + excluded.cost_micro, requests = h.requests + excluded.requests,
      own_micro = h.own_micro + excluded.own_micro, parts = series_sum(h.parts, excluded.parts);
$$;

-- Adds up committed calls, at most ten minutes of them and none after `p_before`. The sums and the moment until which they reach change in one
-- transaction, so that nothing is added twice and nothing is missed. Reports whether there may be more; does nothing while another replica adds up.
create function series_add_up(p_before timestamptz default 'infinity') returns boolean language plpgsql as $$
declare
  before timestamptz;
  until timestamptz;
  known timestamptz := least(committed_before(), p_before);
begin
  select at into before from series_until for update skip locked;
  if not found then
    return false;
  end if;
  if before = '-infinity' then
    select coalesce(min(created), known) into before from request_outcome;
  end if;
  until := least(known, before + interval '10 minutes');
  if until <= before then
    return false;
  end if;
  perform series_put(before, until);
  update series_until set at = until;
  return until < known;
end
$$;

-- Adds the sums of robots whose names are past the retention of their organization's logs to those of unnamed ones, at most `p_most` lines at once.
create function series_forget_robots(p_now timestamptz, p_most integer) returns bigint language plpgsql as $$
declare
  forgotten bigint;
begin
  -- No sum is added while lines move.
  perform from series_until for update;
  with gone as (
    delete from series_line where id in (
      select id from series_line left join org_settings using (org_id)
      where robot <> '' and day < (p_now at time zone 'UTC')::date - coalesce(retention_days, 30) limit p_most
    ) returning *
  ), line as (
    insert into series_line as l (org_id, day, key_id, contract, model, provider, robot, calls, failed, cost_micro, requests, own_micro, parts)
    select org_id, day, key_id, contract, model, provider, '', sum(calls)::bigint, sum(failed)::bigint, sum(cost_micro)::bigint,
      sum(requests)::bigint, sum(own_micro)::bigint, series_sum_of(parts)
    from gone group by 1, 2, 3, 4, 5, 6
    on conflict (org_id, day, key_id, contract, model, provider, robot) do update set calls = l.calls + excluded.calls,
      failed = l.failed + excluded.failed, cost_micro = l.cost_micro + excluded.cost_micro, requests = l.requests + excluded.requests,
      own_micro = l.own_micro + excluded.own_micro, parts = series_sum(l.parts, excluded.parts)
    returning id, org_id, day, key_id, contract, model, provider
  ), hours as (
    insert into series_hour as h (line, hour, calls, failed, cost_micro, requests, own_micro, parts)
    select line.id, hour, sum(each.calls)::bigint, sum(each.failed)::bigint, sum(each.cost_micro)::bigint, sum(each.requests)::bigint,
      sum(each.own_micro)::bigint, series_sum_of(each.parts)
    from series_hour as each join gone on gone.id = each.line join line using (org_id, day, key_id, contract, model, provider) group by 1, 2
    on conflict (line, hour) do update set calls = h.calls + excluded.calls, failed = h.failed + excluded.failed,
      cost_micro = h.cost_micro + excluded.cost_micro, requests = h.requests + excluded.requests,
      own_micro = h.own_micro + excluded.own_micro, parts = series_sum(h.parts, excluded.parts)
  ), minutes as (
    insert into series_minute as m (line, minute, calls, failed, cost_micro, requests, own_micro, parts)
    select line.id, minute, sum(each.calls)::bigint, sum(each.failed)::bigint, sum(each.cost_micro)::bigint, sum(each.requests)::bigint,
      sum(each.own_micro)::bigint, series_sum_of(each.parts)
    from series_minute as each join gone on gone.id = each.line join line using (org_id, day, key_id, contract, model, provider) group by 1, 2
    on conflict (line, minute) do update set calls = m.calls + excluded.calls, failed = m.failed + excluded.failed,
      cost_micro = m.cost_micro + excluded.cost_micro, requests = m.requests + excluded.requests,
      own_micro = m.own_micro + excluded.own_micro, parts = series_sum(m.parts, excluded.parts)
  )
  select count(*) into forgotten from gone;
  return forgotten;
end
$$;

-- MARGIN

-- Charges and work of offerings by hour: busy time, and idle time in which they stay warm after a call until the next one of any caller. `free`: a
-- placeholder, or a call with the caller's own key, which costs the operator nothing.
create table margin_hour (
  -- Hours since 1970.
  hour integer not null,
  org_id text not null,
  model text not null,
  offering_id text not null,
  free boolean not null,
  settled bigint not null,
  unmetered bigint not null,
  cost_micro bigint not null,
  ledger_micro bigint not null,
  busy_us bigint not null,
  idle_us bigint not null,
  primary key (hour, org_id, model, offering_id, free)
);

-- All hours before this moment are added up.
create table margin_until (
  only_one boolean primary key default true check (only_one),
  at timestamptz not null
);

insert into margin_until (at) values ('-infinity');

-- How long a call can keep an offering warm, at most.
create function margin_ahead(p_assumed_s double precision) returns interval language sql stable as $$
  select make_interval(secs => greatest(p_assumed_s, coalesce(max(scaledown_s), 0))) from offering
$$;

-- The same for any span of time, planned once as `series_between`. It also reads later calls that could find an offering warm.
create function margin_between(p_from timestamptz, p_to timestamptz, p_assumed_s double precision) returns setof margin_hour
language sql stable set plan_cache_mode = force_generic_plan as $$
  with served as (
    select o.created, o.org_id, k.model, k.offering_id, k.simulated or k.byok as free, k.status, o.cost_micro, o.lease,
      coalesce(o.latency_ms, 0)::double precision as busy_ms, coalesce(f.scaledown_s, p_assumed_s) as warm_s,
      extract(epoch from lead(o.created - coalesce(o.latency_ms, 0) * interval '1 millisecond') over (
        partition by k.offering_id order by o.created
      ) - o.created) as gap_s
    from request_outcome as o join request_kind as k on k.id = o.kind left join offering as f on f.id = k.offering_id
    where k.status in ('settled', 'unmetered') and o.created >= p_from and o.created < p_to + (select margin_ahead(p_assumed_s))
  )
  select floor(extract(epoch from created) / 3600)::integer, org_id, model, offering_id, free,
    count(*) filter (where status = 'settled'), count(*) filter (where status = 'unmetered'), sum(cost_micro)::bigint,
    coalesce(sum(cost_micro) filter (where lease is not null), 0)::bigint, round(sum(busy_ms) * 1000)::bigint,
    round(sum(least(greatest(coalesce(gap_s, warm_s), 0), warm_s)) * 1000000)::bigint
  from served where created < p_to group by 1, 2, 3, 4, 5
$$;

-- Adds up the hours after which nothing can change the idle time, at most a day of them and none after `p_before`, as `series_add_up` does.
create function margin_add_up(p_assumed_s double precision, p_before timestamptz default 'infinity') returns boolean language plpgsql as $$
declare
  before timestamptz;
  until timestamptz;
  known timestamptz := date_trunc('hour', least(committed_before() - margin_ahead(p_assumed_s), p_before), 'UTC');
begin
  select at into before from margin_until for update skip locked;
  if not found then
    return false;
  end if;
  if before = '-infinity' then
    select date_trunc('hour', coalesce(min(created), known), 'UTC') into before from request_outcome;
  end if;
  until := least(known, before + interval '1 day');
  if until <= before then
    return false;
  end if;
  insert into margin_hour select * from margin_between(before, until, p_assumed_s);
  update margin_until set at = until;
  return until < known;
end
$$;
