-- The columns of what ended are unnested side by side where they are selected: as a table of their own they were all written down once more
-- before the first row was made, a tenth of what a request cost.

-- Commits one batch of a till: returns and takes of credit, intents, settlements, the answers of idempotent calls, events,
-- and leases that end, in this order. A batch that was committed before is not applied again: its takes are read back.
-- Answers null when there is nothing to say, else {fenced} or {takes, recalled, kinds}. (A batch of intents alone needs none of this: see
-- `PROMISE` in `store/billing/ledger.ts`.)
--
-- `p_more` has what few batches have: {moves, claims, events}. `p_kinds` has 13 fields, as `request_kinds` takes them, for each kind that the
-- till has no name of yet; the answer has their names. Of the requests themselves there is one array for each column: a kind's name (or -n
-- for the nth of `p_kinds`), the place of who pays, and so on; texts are divided by the unit separator, and empty is null. Who pays is an
-- organisation and its lease (null where nothing was held), with what it pays and for how many settled requests.
create or replace function till_commit(
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
    from (
      select unnest(p_kind) as kind, unnest(p_payer) as payer, unnest(requests) as request, unnest(p_units) as units,
        unnest(p_cost) as cost, unnest(p_latency) as latency, unnest(p_attempt) as attempt, unnest(logs) as log
    ) as ended;
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
