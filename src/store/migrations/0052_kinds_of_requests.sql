-- What requests share from call to call is kept once for good: a request is a narrow row that names its kind. Writing the fifteen columns of
-- each again was half of what a settlement cost. Whoever reads finds all of it in the view `request`, as before.

-- Whatever runs on the tills of before begins anew on those of after.
select till_recover(id, true) from till where fenced_at is null;

create table request_kind (
  id bigint generated always as identity primary key,
  -- SHA-256 of all that follows, by which a kind is found.
  digest bytea not null unique,
  key_id text not null,
  status request_status not null,
  contract text not null,
  model text not null,
  provider text not null,
  offering_id text not null,
  unit text not null,
  wake_up_micro bigint not null,
  hedge_cost_micro bigint,
  simulated boolean not null,
  byok boolean not null,
  http_status smallint,
  error_code text,
  created timestamptz not null default now()
);

-- The names of kinds, in their order, that are there once this has ended. `p_fields` has 13 for each: the columns above in their order.
-- Two who make the same kind wait for each other; all make theirs in one order, so that they never do so in a ring.
create function request_kinds(p_fields text[]) returns bigint[] language plpgsql as $$
declare
  places integer[] := array(select generate_series(1, cardinality(p_fields), 13));
  digests bytea[];
begin
  digests := array(
    select sha256(convert_to(p_fields[k : k + 12]::text, 'UTF8')) from unnest(places) with ordinality as kind (k, nth) order by nth
  );
  insert into request_kind (
    digest, key_id, status, contract, model, provider, offering_id, unit, wake_up_micro, hedge_cost_micro, simulated, byok,
    http_status, error_code
  )
  select
    digest, p_fields[k], p_fields[k + 1]::request_status, p_fields[k + 2], coalesce(p_fields[k + 3], ''), coalesce(p_fields[k + 4], ''),
    coalesce(p_fields[k + 5], ''), coalesce(p_fields[k + 6], ''), coalesce(p_fields[k + 7]::bigint, 0), p_fields[k + 8]::bigint,
    p_fields[k + 9]::boolean, p_fields[k + 10]::boolean, p_fields[k + 11]::smallint, p_fields[k + 12]
  from unnest(places, digests) as kind (k, digest)
  where not exists (select from request_kind as known where known.digest = kind.digest)
  order by digest
  on conflict (digest) do nothing;
  return array(
    select request_kind.id from unnest(digests) with ordinality as kind (digest, nth)
    join request_kind using (digest) order by nth
  );
end
$$;

-- How a request ended, one row each: what differs from call to call. A charge is its own row of the ledger, by its name there once.
create table ending (
  created timestamptz not null default now(),
  kind bigint not null,
  units bigint not null default 0,
  cost_micro bigint not null default 0,
  latency_ms real,
  -- How long its one attempt took, where that and its success is all there is to say of attempts.
  attempt_ms real,
  org_id text not null,
  request_id text not null,
  -- Where the cost was taken from; null where nothing was.
  lease text,
  -- The rest of the log record, as JSON that no query reads.
  log text
);

do $$
declare
  kinds bigint[];
begin
  create temp table said on commit drop as
    select row_number() over () as nth, *
    from (
      select distinct key_id, status, contract, model, provider, offering_id, unit, wake_up_micro, hedge_cost_micro, simulated, byok,
        http_status, error_code
      from request
    ) as kind;
  kinds := request_kinds(array(
    select field
    from said, lateral unnest(array[
      key_id, status::text, contract, nullif(model, ''), nullif(provider, ''), nullif(offering_id, ''), nullif(unit, ''),
      wake_up_micro::text, hedge_cost_micro::text, simulated::text, byok::text, http_status::text, error_code
    ]) with ordinality as f (field, place)
    order by nth, place
  ));
  insert into ending (created, kind, units, cost_micro, latency_ms, attempt_ms, org_id, request_id, lease, log)
  select r.created, kinds[nth], r.units, r.cost_micro, r.latency_ms, r.attempt_ms, r.org_id, r.request_id, r.lease, r.log
  from request as r join said as k on
    r.key_id = k.key_id and r.status = k.status and r.contract = k.contract and r.model = k.model and r.provider = k.provider
    and r.offering_id = k.offering_id and r.unit = k.unit and r.wake_up_micro = k.wake_up_micro
    and r.hedge_cost_micro is not distinct from k.hedge_cost_micro and r.simulated = k.simulated and r.byok = k.byok
    and r.http_status is not distinct from k.http_status and r.error_code is not distinct from k.error_code
  order by r.created, r.request_id;
  if (select count(*) from ending) <> (select count(*) from request) then
    raise exception 'not every request found its kind';
  end if;
end
$$;

drop view entry;
drop table request;

alter table ending add primary key (org_id, request_id);
-- For reports on a time: blocks of rows by when they were written, which costs a write next to nothing.
create index ending_by_time on ending using brin (created) with (pages_per_range = 32, autosummarize = on);

-- Retention forgets logs; whose request it was and what it cost stays as it is.
create trigger ending_append_only
  before update of org_id, request_id, kind, lease, units, cost_micro or delete or truncate on ending
  for each statement execute function refuse_change();
create trigger request_kind_append_only before update or delete or truncate on request_kind
  for each statement execute function refuse_change();

-- Every request that ended: the usage list (settled, unmetered) and the request log (all of them).
create view request as
  select e.org_id, e.request_id, k.key_id, k.status, k.contract, k.model, k.provider, k.offering_id, k.unit, e.units, e.cost_micro,
    k.wake_up_micro, k.hedge_cost_micro, k.simulated, k.http_status, k.error_code, e.latency_ms, e.log, e.created, k.byok, e.lease,
    e.attempt_ms
  from ending as e join request_kind as k on k.id = e.kind;

-- The whole ledger: each row moves an amount between two accounts of one organisation.
create view entry as
  select cause, kind::text, org_id, debit, credit, amount_micro, created from transfer
  union all
  select request_id, 'charge', org_id, lease, 'spent', cost_micro, created from ending where cost_micro > 0;

create or replace function till_recover(p_till text, p_force boolean) returns integer language plpgsql as $$
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

  with page as materialized (
    select batch, promised::json as promised from intent where till_id = p_till
  ), kind as materialized (
    select row_number() over (order by page.batch, k.place) as nth, page.batch, k.*
    from page, rows from (
      json_to_recordset(promised -> 'kinds') as (
        org_id text, key_id text, contract text, model text, provider text, offering_id text, unit text
      )
    ) with ordinality as k (org_id, key_id, contract, model, provider, offering_id, unit, place)
  ), made as materialized (
    select request_kinds(array(
      select field
      from kind, lateral unnest(array[
        key_id, 'unmetered', contract, nullif(model, ''), nullif(provider, ''), nullif(offering_id, ''), nullif(unit, ''), '0', null,
        'false', 'false', null, null
      ]) with ordinality as f (field, at)
      order by nth, at
    )) as kinds
  )
  insert into ending (org_id, request_id, kind)
  select k.org_id, r ->> 1, made.kinds[k.nth]
  from made, page, json_array_elements(promised -> 'requests') as r join kind as k on k.place = (r ->> 0)::bigint + 1
  where k.batch = page.batch
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

drop function till_commit;

-- Commits one batch of a till: returns and takes of credit, intents, settlements, the answers of idempotent calls, events,
-- and leases that end, in this order. A batch that was committed before is not applied again: its takes are read back.
-- Answers null when there is nothing to say, else {fenced} or {takes, recalled, kinds}. (A batch of intents alone needs none of this: see
-- `PROMISE` in `store/billing/ledger.ts`.)
--
-- `p_more` has what few batches have: {moves, claims, events}. `p_kinds` has 13 fields, as `request_kinds` takes them, for each kind that the
-- till has no name of yet; the answer has their names. Of the requests themselves there is one array for each column: a kind's name (or -n
-- for the nth of `p_kinds`), the place of who pays, and so on; texts are divided by the unit separator, and empty is null. Who pays is an
-- organisation and its lease (null where nothing was held), with what it pays and for how many settled requests.
create function till_commit(
  p_till text, p_batch bigint, p_life interval,
  p_intents text, p_over bigint[], p_more json,
  p_kinds text, p_kind bigint[], p_payer integer[], p_request text, p_units bigint[], p_cost bigint[], p_latency real[], p_attempt real[],
  p_log text, p_orgs text[], p_leases text[], p_costs bigint[], p_counts bigint[]
) returns json language plpgsql as $$
declare
  seen bigint;
  move record;
  takes json[] := '{}';
  wanted json;
  is_wanted boolean;
  moves json := p_more -> 'moves';
  charged integer;
  made bigint[];
  orgs text[];
  leases text[];
  requests text[];
  logs text[];
begin
  update till set last_batch = p_batch, alive_until = clock_timestamp() + p_life
  where id = p_till and last_batch = p_batch - 1 and fenced_at is null
  returning exists (select from recall where recall.till_id = p_till) into is_wanted;
  if not found then
    select last_batch into seen from till where id = p_till;
    if seen is null or seen < p_batch then
      return json_build_object('fenced', true);
    end if;
    return json_build_object('takes', (
      select json_agg(taken)
      from json_to_recordset(moves) as m (kind text, entry text, lease text, org text, key text, day date, need bigint),
        lateral lease_taken(p_till, m.entry, m.lease, m.org, m.key, m.day, m.need) as taken
      where m.kind = 'take' and taken is not null
    ));
  end if;

  if moves is not null then
    perform 1 from account
    where org_id in (select org from json_to_recordset(moves) as m (org text)) order by org_id for update;
    for move in
      select * from json_to_recordset(moves) as m (
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

  if p_request is not null then
    if p_kinds is not null then
      made := request_kinds(string_to_array(p_kinds, E'\x1f', ''));
      p_kind := array(
        select case when kind > 0 then kind else made[-kind] end from unnest(p_kind) with ordinality as k (kind, nth) order by nth
      );
    end if;
    -- To read from what was assigned costs the same at every place.
    orgs := p_orgs;
    leases := p_leases;
    requests := string_to_array(p_request, E'\x1f');
    logs := string_to_array(p_log, E'\x1f', '');
    insert into ending (kind, org_id, request_id, units, cost_micro, latency_ms, attempt_ms, lease, log)
    select kind, orgs[payer], request, units, cost, latency, attempt, leases[payer], log
    from unnest(p_kind, p_payer, requests, p_units, p_cost, p_latency, p_attempt, logs)
      as ended (kind, payer, request, units, cost, latency, attempt, log);
    update lease set spent_micro = lease.spent_micro + paid.cost, requests = lease.requests + paid.count
    from unnest(p_leases, p_costs, p_counts) as paid (lease, cost, count)
    where lease.id = paid.lease and paid.cost >= 0;
    get diagnostics charged = row_count;
    if charged <> cardinality(array_remove(p_leases, null)) then
      raise exception 'a settlement names a lease that this till does not have, or a charge below zero'
        using errcode = 'foreign_key_violation';
    end if;
  end if;

  if p_over is not null then
    delete from intent where till_id = p_till and batch = any (p_over);
  end if;

  if p_more -> 'claims' is not null then
    update idempotency as i set response = decode(c.response, 'base64')
    from json_to_recordset(p_more -> 'claims') as c (org text, key text, claim text, response text)
    where i.org_id = c.org and i.key = c.key and i.claim_id = c.claim and i.response is null and c.response is not null;
    delete from idempotency as i using json_to_recordset(p_more -> 'claims') as c (org text, key text, claim text, response text)
    where i.org_id = c.org and i.key = c.key and i.claim_id = c.claim and i.response is null and c.response is null;
  end if;

  if p_more -> 'events' is not null then
    insert into outbox (event_id, name, org_id, payload)
    select event_id, name, org_id, decode(payload, 'base64')
    from json_to_recordset(p_more -> 'events') as e (event_id text, name text, org_id text, payload text);
  end if;

  if moves is not null then
    for move in select entry, lease from json_to_recordset(moves) as m (kind text, entry text, lease text) where kind = 'end'
    loop
      perform lease_return(move.entry, move.lease, null, true);
    end loop;
  end if;

  if is_wanted then
    select json_agg(lease) into wanted from recall where till_id = p_till;
  elsif cardinality(takes) = 0 and made is null then
    return null;
  end if;
  return json_build_object('takes', to_json(takes), 'recalled', wanted, 'kinds', to_json(made));
end
$$;
