-- The archive: months of the request history whose rows were written to files and folded into `closing_entry`.

-- A file of the archive. Its rows were deleted in the transaction that wrote this row.
create table archive_file (
  -- Its path in the archive: the month, the week of its partition, and the beginning of its hash.
  name text primary key,
  -- The first day of the month of its requests.
  month date not null,
  sha256 bytea not null,
  bytes bigint not null,
  records bigint not null,
  cost_micro bigint not null,
  created timestamptz not null default now()
);

create index archive_file_of_month on archive_file (month);

create trigger archive_file_append_only before update or delete or truncate on archive_file
  for each statement execute function refuse_change();
create trigger closing_entry_stays before delete or truncate on closing_entry
  for each statement execute function refuse_change();

-- Deletes requests of a week, with their hedges, and adds them to closing entries. Returns how many there were, and what they cost. It works on
-- partitions, whose rows only it and the making of partitions may delete.
create function history_fold(
  p_month date, p_week date, p_orgs text[], p_requests text[], out folded bigint, out charged_micro bigint
) language plpgsql as $$
begin
  perform history_partition('hedge_loser', p_week);
  execute format($fold$
    with picked as materialized (
      select * from unnest($1, $2) as p (org_id, request_id)
    ), gone as (
      delete from %I as e using picked as p where e.org_id = p.org_id and e.request_id = p.request_id returning e.*
    ), lost as (
      delete from %I as l using picked as p where l.org_id = p.org_id and l.request_id = p.request_id returning l.*
    ), hedged as (
      select org_id, request_id, sum(cost_micro) as micro from lost
      where earns and not exists (select from provider as own where own.name = lost.provider and own.org_id = lost.org_id) group by 1, 2
    ), line as (
      select g.org_id, (g.created at time zone 'UTC')::date as day, coalesce(g.lease, '') as lease, k.key_id, count(*) as records,
        count(*) filter (where k.status in ('settled', 'unmetered')) as requests, sum(g.cost_micro)::bigint as cost_micro,
        coalesce(sum(g.cost_micro) filter (where k.byok), 0)::bigint as own_key_micro,
        (coalesce(sum(g.cost_micro - coalesce(k.hedge_cost_micro, 0)) filter (
          where k.status = 'settled' and not k.byok and not k.simulated and k.offering_id <> ''
            and not exists (select from provider as own where own.name = k.provider and own.org_id = g.org_id)
        ), 0) + coalesce(sum(h.micro), 0))::bigint as gross_micro
      from gone as g join request_kind as k on k.id = g.kind
        left join hedged as h on h.org_id = g.org_id and h.request_id = g.request_id
      group by 1, 2, 3, 4
    ), put as (
      insert into closing_entry as c (org_id, month, day, lease, key_id, records, requests, cost_micro, own_key_micro, gross_micro)
      select org_id, $3, day, lease, key_id, records, requests, cost_micro, own_key_micro, gross_micro from line
      on conflict (org_id, month, day, lease, key_id) do update set
        records = c.records + excluded.records, requests = c.requests + excluded.requests, cost_micro = c.cost_micro + excluded.cost_micro,
        own_key_micro = c.own_key_micro + excluded.own_key_micro, gross_micro = c.gross_micro + excluded.gross_micro
    )
    select coalesce(sum(records), 0)::bigint, coalesce(sum(cost_micro), 0)::bigint from line
  $fold$, 'request_outcome_' || to_char(p_week, 'YYYYMMDD'), 'hedge_loser_' || to_char(p_week, 'YYYYMMDD'))
  into folded, charged_micro using p_orgs, p_requests, p_month;
end
$$;
