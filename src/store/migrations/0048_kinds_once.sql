-- What the requests of a batch share is read once for each kind of them, not once for each request: to look fifteen fields up and turn them
-- into numbers and words was a tenth of what a request cost, now that hundreds of ends share a batch.

-- Commits one batch of a till: returns and takes of credit, intents, settlements, the answers of idempotent calls, events,
-- and leases that end, in this order. A batch that was committed before is not applied again: its takes are read back.
-- Answers null when there is nothing to say, else {fenced} or {takes, recalled}.
--
-- `p_more` has what few batches have: {moves, claims, events}. Settlements come as fields that end with the unit separator, an empty one is
-- null: `p_kinds` has 15 for each kind of request in the batch; `p_ended` has 6 for each request, whose kind's begin where `p_places` says.
-- (An array that is unnested is planned once and for all; a series of unknown length would be planned anew for each batch.)
-- `p_leases` says of each lease what it pays, and for how many settled requests.
create or replace function till_commit(
  p_till text, p_batch bigint, p_life interval,
  p_intents text, p_over bigint[], p_more json,
  p_kinds text, p_places integer[], p_ended text, p_leases text[], p_costs bigint[], p_counts bigint[]
) returns json language plpgsql as $$
declare
  seen bigint;
  move record;
  takes json[] := '{}';
  wanted json;
  is_wanted boolean;
  moves json := p_more -> 'moves';
  charged integer;
  kinds text[];
  kind_places integer[];
  ends text[];
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

  if p_ended is not null then
    kinds := string_to_array(p_kinds, E'\x1f', '');
    kind_places := array(select generate_series(1, cardinality(kinds), 15));
    ends := string_to_array(p_ended, E'\x1f', '');
    insert into request (
      org_id, key_id, status, contract, model, provider, offering_id, unit, lease, wake_up_micro, hedge_cost_micro, simulated, byok,
      http_status, error_code, request_id, units, cost_micro, latency_ms, attempt_ms, log
    )
    select
      kind.org_id, kind.key_id, kind.status, kind.contract, kind.model, kind.provider, kind.offering_id, kind.unit, kind.lease, kind.wake_up_micro,
      kind.hedge_cost_micro, kind.simulated, kind.byok, kind.http_status, kind.error_code,
      ends[i - 5], ends[i - 4]::bigint, ends[i - 3]::bigint, ends[i - 2]::real, ends[i - 1]::real, ends[i]
    from (select k, 6 * nth as i from unnest(p_places) with ordinality as r (k, nth) offset 0) as request
    join (
      select k, kinds[k] as org_id, kinds[k + 1] as key_id, kinds[k + 2]::request_status as status, kinds[k + 3] as contract,
        coalesce(kinds[k + 4], '') as model, coalesce(kinds[k + 5], '') as provider, coalesce(kinds[k + 6], '') as offering_id,
        coalesce(kinds[k + 7], '') as unit, kinds[k + 8] as lease, kinds[k + 9]::bigint as wake_up_micro,
        kinds[k + 10]::bigint as hedge_cost_micro, kinds[k + 11]::boolean as simulated, kinds[k + 12]::boolean as byok,
        kinds[k + 13]::smallint as http_status, kinds[k + 14] as error_code
      from unnest(kind_places) as k offset 0
    ) as kind using (k);
    update lease set spent_micro = lease.spent_micro + paid.cost, requests = lease.requests + paid.count
    from unnest(p_leases, p_costs, p_counts) as paid (lease, cost, count)
    where lease.id = paid.lease and paid.cost >= 0;
    get diagnostics charged = row_count;
    if charged <> cardinality(p_leases) then
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
  elsif cardinality(takes) = 0 then
    return null;
  end if;
  return json_build_object('takes', to_json(takes), 'recalled', wanted);
end
$$;
