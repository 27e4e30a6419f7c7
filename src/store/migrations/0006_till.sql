-- What a till may do, each in one statement: open, commit a batch, call credit back, and recover what a dead one left.
-- Locks are taken in one order everywhere, so that tills never wait for each other in a ring: the till, accounts by name, its
-- leases. No transaction locks two tills.

-- The first day of the interval of a budget that `day` lies in.
create function budget_start(period text, day date) returns date language sql immutable as $$
  select case period
    when 'daily' then day
    when 'weekly' then date_trunc('week', day::timestamp)::date
    when 'monthly' then date_trunc('month', day::timestamp)::date
    else '-infinity'::date
  end
$$;

-- The day on which that budget is renewed; null when never.
create function budget_reset(period text, day date) returns date language sql immutable as $$
  select case period
    when 'daily' then day + 1
    when 'weekly' then date_trunc('week', day::timestamp)::date + 7
    when 'monthly' then (date_trunc('month', day::timestamp) + interval '1 month')::date
  end
$$;

-- Opens a till for a replica; answers its name.
create function till_open(p_replica text, p_life interval) returns text language plpgsql as $$
declare
  mine text;
begin
  perform pg_advisory_xact_lock(hashtext('till'), hashtext(p_replica));
  insert into till (id, replica, epoch, alive_until)
  select p_replica || '/' || next, p_replica, next, clock_timestamp() + p_life
  from (select coalesce(max(epoch), 0) + 1 as next from till where replica = p_replica) as life
  returning id into mine;
  return mine;
end
$$;

-- Fences a till that is dead (or, with `p_force`, any), puts its open intents on record as unmetered and returns what its
-- leases hold. Answers how many intents that were; null when the till lives or was fenced before.
create function till_recover(p_till text, p_force boolean) returns integer language plpgsql as $$
declare
  unmetered integer;
  returned text[];
begin
  update till set fenced_at = clock_timestamp()
  where id = p_till and fenced_at is null and (p_force or alive_until < clock_timestamp());
  if not found then
    return null;
  end if;
  perform 1 from account where org_id in (select org_id from lease where till_id = p_till) order by org_id for update;

  insert into request (org_id, request_id, key_id, status, contract, model, provider, offering_id, unit)
  select p.org_id, p.request_id, p.key_id, 'unmetered', p.contract, p.model, p.provider, p.offering_id, p.unit
  from intent, json_to_recordset(promised::json) as p (
    org_id text, request_id text, key_id text, contract text, model text, provider text, offering_id text, unit text
  )
  where till_id = p_till
  on conflict (org_id, request_id) do nothing;
  get diagnostics unmetered = row_count;
  delete from intent where till_id = p_till;
  delete from recall where till_id = p_till;

  with gone as (
    delete from lease where till_id = p_till
    returning id, org_id, key_id, day, requests, amount_micro - spent_micro as rest
  ), entry as (
    insert into transfer (cause, kind, org_id, debit, credit, amount_micro)
    select id, 'return', org_id, id, 'available', rest from gone where rest > 0
  ), untaken as (
    update key_day set taken_micro = taken_micro - g.rest
    from (select key_id, day, sum(rest)::bigint as rest from gone group by key_id, day) as g
    where key_day.key_id = g.key_id and key_day.day = g.day
  ), back as (
    update account set available_micro = available_micro + g.rest, requests = account.requests + g.requests
    from (select org_id, sum(rest)::bigint as rest, sum(requests)::bigint as requests from gone group by org_id) as g
    where account.org_id = g.org_id
    returning account.org_id
  )
  select array_agg(org_id) into returned from back;
  perform pg_notify('lease_returned', org) from unnest(returned) as org;
  return unmetered;
end
$$;

-- What a key may take on a day: the balance, or what is left of its budget if that is less. `short` says what is missing when
-- that isn't what is needed, and whether other tills hold some of it or were asked for it.
create function lease_room(
  p_till text, p_entry text, p_org text, p_key text, p_day date, p_need bigint, out room bigint, out short json
) language plpgsql as $$
declare
  available bigint;
  budget bigint;
  period text;
  budget_left bigint;
  by_budget boolean;
begin
  select coalesce(sum(available_micro), 0) into available from account where org_id = p_org;
  select budget_micro, budget_interval into budget, period from key where id = p_key;
  if budget is not null then
    select greatest(budget - coalesce(sum(taken_micro), 0), 0) into budget_left
    from key_day where key_id = p_key and day >= budget_start(period, p_day);
  end if;
  room := least(available, budget_left);
  if room < p_need then
    by_budget := coalesce(budget_left < available, false);
    short := json_build_object(
      'entry', p_entry,
      'short', case when by_budget then 'key_budget' else 'org_credits' end,
      'roomMicro', room,
      'resetsAt', case when by_budget then extract(epoch from budget_reset(period, p_day)) end,
      'heldElsewhere', exists (
        select from lease
        where org_id = p_org and till_id <> p_till and amount_micro > spent_micro and (not by_budget or key_id = p_key)
      ),
      'recalled', exists (
        select from recall where org_id = p_org and till_id <> p_till and (not by_budget or key_id = p_key)
      )
    );
  end if;
end
$$;

-- Takes credit into a lease of `p_till`: as much as is wanted while there is plenty, down to what is needed as it runs out.
-- Beyond the calls that wait now it is never more than an eighth of what is there, so that replicas share what is left.
-- Answers what was granted, or what was short.
create function lease_take(
  p_till text, p_entry text, p_lease text, p_org text, p_key text, p_day date,
  p_need bigint, p_asked bigint, p_want bigint
) returns json language plpgsql as $$
declare
  room bigint;
  short json;
  granted bigint;
begin
  select r.room, r.short into room, short from lease_room(p_till, p_entry, p_org, p_key, p_day, p_need) as r;
  if short is not null then
    return short;
  end if;
  granted := least(room, greatest(p_asked, least(p_want, room / 8)));
  insert into lease (id, till_id, org_id, key_id, day, amount_micro)
  values (p_lease, p_till, p_org, p_key, p_day, granted)
  on conflict (id) do update set amount_micro = lease.amount_micro + granted;
  if granted > 0 then
    insert into transfer (cause, kind, org_id, debit, credit, amount_micro)
    values (p_entry, 'lease', p_org, 'available', p_lease, granted);
    update account set available_micro = available_micro - granted where org_id = p_org;
    insert into key_day (key_id, day, org_id, taken_micro) values (p_key, p_day, p_org, granted)
    on conflict (key_id, day) do update set taken_micro = key_day.taken_micro + granted;
  end if;
  return json_build_object('entry', p_entry, 'grantedMicro', granted);
end
$$;

-- What became of a take that was committed before: what it was granted, or what was short; null when it has to be asked again.
create function lease_taken(
  p_till text, p_entry text, p_lease text, p_org text, p_key text, p_day date, p_need bigint
) returns json language sql as $$
  select coalesce(
    (select json_build_object('entry', p_entry, 'grantedMicro', amount_micro)
      from transfer where cause = p_entry and kind = 'lease'),
    (select json_build_object('entry', p_entry, 'grantedMicro', 0) from lease where id = p_lease and p_need = 0),
    (select short from lease_room(p_till, p_entry, p_org, p_key, p_day, p_need))
  )
$$;

-- Returns credit from a lease. A null amount ends the lease: whatever is left goes back.
create function lease_return(p_entry text, p_lease text, p_amount bigint, p_answers boolean) returns void language plpgsql as $$
declare
  l lease;
  back bigint;
begin
  select * into strict l from lease where id = p_lease for update;
  back := coalesce(p_amount, l.amount_micro - l.spent_micro);
  if back > 0 then
    insert into transfer (cause, kind, org_id, debit, credit, amount_micro)
    values (p_entry, 'return', l.org_id, p_lease, 'available', back);
    update key_day set taken_micro = taken_micro - back where key_id = l.key_id and day = l.day;
  end if;
  if p_amount is null then
    update account set available_micro = available_micro + back, requests = requests + l.requests where org_id = l.org_id;
    delete from lease where id = p_lease;
  else
    update account set available_micro = available_micro + back where org_id = l.org_id;
    update lease set amount_micro = amount_micro - back where id = p_lease;
  end if;
  if p_answers then
    delete from recall where lease = p_lease;
    if found then
      perform pg_notify('lease_returned', l.org_id);
    end if;
  end if;
end
$$;

-- Commits one batch of a till: returns and takes of credit, intents, settlements, the answers of idempotent calls, events,
-- and leases that end, in this order. What is usual of a settlement is left out of its object: it is settled, without extras. A batch that was committed before is not applied again: its takes are read back.
-- Answers null when there is nothing to say, else {fenced} or {takes, recalled}.
create function till_commit(
  p_till text, p_batch bigint, p_life interval,
  p_intents text, p_settled json, p_over bigint[], p_moves json, p_claims json, p_events json
) returns json language plpgsql as $$
declare
  seen bigint;
  move record;
  takes json[] := '{}';
  wanted json;
  unknown integer;
begin
  update till set last_batch = p_batch, alive_until = clock_timestamp() + p_life
  where id = p_till and last_batch = p_batch - 1 and fenced_at is null;
  if not found then
    select last_batch into seen from till where id = p_till;
    if seen is null or seen < p_batch then
      return json_build_object('fenced', true);
    end if;
    return json_build_object('takes', (
      select json_agg(taken)
      from json_to_recordset(p_moves) as m (kind text, entry text, lease text, org text, key text, day date, need bigint),
        lateral lease_taken(p_till, m.entry, m.lease, m.org, m.key, m.day, m.need) as taken
      where m.kind = 'take' and taken is not null
    ));
  end if;

  if p_moves is not null then
    perform 1 from account
    where org_id in (select org from json_to_recordset(p_moves) as m (org text)) order by org_id for update;
    for move in
      select * from json_to_recordset(p_moves) as m (
        kind text, entry text, lease text, org text, key text, day date,
        need bigint, asked bigint, want bigint, amount bigint, answers boolean
      )
    loop
      if move.kind = 'return' then
        perform lease_return(move.entry, move.lease, move.amount, move.answers);
      elsif move.kind = 'take' then
        takes := array_append(takes, lease_take(
          p_till, move.entry, move.lease, move.org, move.key, move.day, move.need, move.asked, move.want
        ));
      end if;
    end loop;
  end if;

  if p_intents is not null then
    insert into intent (till_id, batch, promised) values (p_till, p_batch, p_intents);
  end if;

  if p_settled is not null then
    with s as materialized (
      select * from json_to_recordset(p_settled) as s (
        lease text, org_id text, request_id text, key_id text, status text, contract text, model text, provider text,
        offering_id text, unit text, units bigint, cost_micro bigint, wake_up_micro bigint, hedge_cost_micro bigint,
        simulated boolean, http_status smallint, error_code text, latency_ms real, log json
      )
    ), ended as (
      insert into request (
        org_id, request_id, key_id, status, contract, model, provider, offering_id, unit, units, cost_micro,
        wake_up_micro, hedge_cost_micro, simulated, http_status, error_code, latency_ms, log
      )
      select
        org_id, request_id, key_id, coalesce(status, 'settled')::request_status, contract, model, provider, offering_id, unit,
        coalesce(units, 0), coalesce(cost_micro, 0), coalesce(wake_up_micro, 0), hedge_cost_micro, coalesce(simulated, false),
        http_status, error_code, latency_ms, log
      from s
    ), entry as (
      insert into transfer (cause, kind, org_id, debit, credit, amount_micro)
      select request_id, 'charge', org_id, lease, 'spent', cost_micro from s where cost_micro > 0
    ), per_lease as (
      select lease, coalesce(sum(cost_micro), 0)::bigint as cost, count(*) filter (where status is null) as requests
      from s where lease is not null group by lease
    ), charged as (
      update lease set spent_micro = spent_micro + cost, requests = lease.requests + per_lease.requests
      from per_lease where id = lease
      returning id
    )
    select count(*) - (select count(*) from charged) into unknown from per_lease;
    if unknown > 0 then
      raise exception 'a settlement names a lease that this till does not have' using errcode = 'foreign_key_violation';
    end if;
  end if;

  if p_over is not null then
    delete from intent where till_id = p_till and batch = any (p_over);
  end if;

  if p_claims is not null then
    update idempotency as i set response = decode(c.response, 'base64')
    from json_to_recordset(p_claims) as c (org text, key text, claim text, response text)
    where i.org_id = c.org and i.key = c.key and i.claim_id = c.claim and i.response is null and c.response is not null;
    delete from idempotency as i using json_to_recordset(p_claims) as c (org text, key text, claim text, response text)
    where i.org_id = c.org and i.key = c.key and i.claim_id = c.claim and i.response is null and c.response is null;
  end if;

  if p_events is not null then
    insert into outbox (event_id, name, org_id, payload)
    select event_id, name, org_id, decode(payload, 'base64')
    from json_to_recordset(p_events) as e (event_id text, name text, org_id text, payload text);
  end if;

  if p_moves is not null then
    for move in select entry, lease from json_to_recordset(p_moves) as m (kind text, entry text, lease text) where kind = 'end'
    loop
      perform lease_return(move.entry, move.lease, null, true);
    end loop;
  end if;

  select json_agg(lease) into wanted from recall where till_id = p_till;
  if cardinality(takes) = 0 and wanted is null then
    return null;
  end if;
  return json_build_object('takes', to_json(takes), 'recalled', wanted);
end
$$;

-- Asks the other tills for what is idle in their leases of an organisation (or of one key of it). Answers how many were asked.
create function lease_recall(p_till text, p_org text, p_key text) returns integer language plpgsql as $$
declare
  asked integer;
begin
  insert into recall (lease, till_id, org_id, key_id)
  select id, till_id, org_id, key_id from lease
  where org_id = p_org and till_id <> p_till and amount_micro > spent_micro and (p_key is null or key_id = p_key)
  order by id
  on conflict do nothing;
  get diagnostics asked = row_count;
  if asked > 0 then
    perform pg_notify('lease_wanted', p_org || ' ' || p_till);
  end if;
  return asked;
end
$$;
