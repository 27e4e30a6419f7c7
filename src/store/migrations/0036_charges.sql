-- What a settlement costs. A request that was charged is its own row of the ledger: it moves its cost from its lease to `spent`,
-- once, since its name is there once. A batch says once what its requests share, so that little of it has to be read per request.

-- Whatever runs on the tills of before begins anew on those of after.
select till_recover(id, true) from till where fenced_at is null;

alter table request
  -- Where the cost was taken from; null where nothing was.
  add column lease text,
  -- How long its one attempt took, where that and its success is all there is to say of attempts.
  add column attempt_ms real,
  -- Never read by a query; checking it as JSON each time would cost more than writing it.
  alter column log type text,
  alter column byok drop expression,
  -- Checked where requests are written, once for all of a batch.
  drop constraint request_cost_micro_check;
update request set byok = false where byok is null;
alter table request alter column byok set default false, alter column byok set not null;

alter table transfer disable trigger transfer_append_only;
update request set lease = transfer.debit from transfer
where transfer.kind = 'charge' and transfer.cause = request.request_id and transfer.org_id = request.org_id;
delete from transfer where kind = 'charge';
alter table transfer enable trigger transfer_append_only;

-- Retention forgets logs; whose request it was and what it cost stays as it is.
create trigger request_append_only
  before update of org_id, request_id, key_id, status, lease, cost_micro or delete or truncate on request
  for each statement execute function refuse_change();

-- The whole ledger: each row moves an amount between two accounts of one organisation.
create view entry as
  select cause, kind::text, org_id, debit, credit, amount_micro, created from transfer
  union all
  select request_id, 'charge', org_id, lease, 'spent', cost_micro, created from request where cost_micro > 0;

-- For reports on a time: blocks of rows by when they were written, which costs a write next to nothing.
create index request_by_time on request using brin (created) with (pages_per_range = 32, autosummarize = on);

-- `promised` is an object: `kinds` has what requests share, `requests` has pairs of a kind's place in it and a request's name.
alter table intent alter column promised set storage external;

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
    select page.batch, k.*
    from page, rows from (
      json_to_recordset(promised -> 'kinds') as (
        org_id text, key_id text, contract text, model text, provider text, offering_id text, unit text
      )
    ) with ordinality as k (org_id, key_id, contract, model, provider, offering_id, unit, place)
  )
  insert into request (org_id, request_id, key_id, status, contract, model, provider, offering_id, unit)
  select k.org_id, r ->> 1, k.key_id, 'unmetered', k.contract, k.model, k.provider, k.offering_id, k.unit
  from page, json_array_elements(promised -> 'requests') as r join kind as k on k.place = (r ->> 0)::bigint + 1
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
-- Answers null when there is nothing to say, else {fenced} or {takes, recalled}.
--
-- Settlements come as arrays. `p_k_…` have an element for each kind of request in the batch, `p_r_…` one for each request: the place of
-- its kind, its name, what it cost, and the place of its log among `p_logs`, or null.
create function till_commit(
  p_till text, p_batch bigint, p_life interval,
  p_intents text, p_over bigint[], p_moves json, p_claims json, p_events json,
  p_k_lease text[], p_k_org text[], p_k_key text[], p_k_status request_status[], p_k_contract text[], p_k_model text[],
  p_k_provider text[], p_k_offering text[], p_k_unit text[], p_k_wake_up bigint[], p_k_hedge bigint[], p_k_simulated boolean[],
  p_k_byok boolean[], p_k_http smallint[], p_k_error text[],
  p_r_kind integer[], p_r_request text[], p_r_units bigint[], p_r_cost bigint[], p_r_latency real[], p_r_attempt real[],
  p_r_log integer[], p_logs text[]
) returns json language plpgsql as $$
declare
  seen bigint;
  move record;
  takes json[] := '{}';
  wanted json;
  wrong boolean;
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

  if p_r_kind is not null then
    with ended as (
      insert into request (
        org_id, request_id, key_id, status, contract, model, provider, offering_id, unit, units, cost_micro, lease,
        wake_up_micro, hedge_cost_micro, simulated, byok, http_status, error_code, latency_ms, attempt_ms, log
      )
      select
        p_k_org[k], p_r_request[i], p_k_key[k], p_k_status[k], p_k_contract[k], p_k_model[k], p_k_provider[k], p_k_offering[k],
        p_k_unit[k], p_r_units[i], p_r_cost[i], p_k_lease[k], p_k_wake_up[k], p_k_hedge[k], p_k_simulated[k], p_k_byok[k],
        p_k_http[k], p_k_error[k], p_r_latency[i], p_r_attempt[i], p_logs[p_r_log[i]]
      from unnest(p_r_kind) with ordinality as r (k, i)
      returning request.lease, request.cost_micro, request.status
    ), per_lease as (
      select lease, sum(cost_micro)::bigint as cost, min(cost_micro) as least, count(*) filter (where status = 'settled') as requests
      from ended group by lease
    ), charged as (
      update lease set spent_micro = spent_micro + per_lease.cost, requests = lease.requests + per_lease.requests
      from per_lease where lease.id = per_lease.lease and per_lease.least >= 0
      returning 1
    )
    select count(*) filter (where lease is not null or cost <> 0) <> (select count(*) from charged) into wrong from per_lease;
    if wrong then
      raise exception 'a settlement names a lease that this till does not have, or a charge below zero'
        using errcode = 'foreign_key_violation';
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

  if exists (select from recall where till_id = p_till) then
    select json_agg(lease) into wanted from recall where till_id = p_till;
  elsif cardinality(takes) = 0 then
    return null;
  end if;
  return json_build_object('takes', to_json(takes), 'recalled', wanted);
end
$$;
