-- What is told before it hurts: keys that will end, and budgets that are nearly used.

-- The end that was told of; another one is told of again.
alter table key add column expiry_told timestamptz;
create index key_by_end on key (expires_at) where expires_at is not null;

-- Shares of budgets that were told. A budget that is renewed or changed is another one.
create table budget_told (
  holder text not null,
  since date not null,
  budget_micro bigint not null,
  percent smallint not null,
  primary key (holder, since, budget_micro, percent)
);

-- The budget of a key or a workspace on a day, and what was taken of it, leases included.
create function budget_of(p_holder text, p_day date)
returns table (org_id text, scope text, budget_micro bigint, period text, since date, taken_micro bigint)
language sql stable as $$
  select k.org_id, 'key', k.budget_micro, k.budget_interval, budget_start(k.budget_interval, p_day),
    (select coalesce(sum(d.taken_micro), 0)::bigint from key_day as d
      where d.key_id = k.id and d.day >= budget_start(k.budget_interval, p_day))
  from key as k where k.id = p_holder and k.budget_micro is not null
  union all
  select w.org_id, 'workspace', w.budget_micro, w.budget_interval, budget_start(w.budget_interval, p_day),
    (select coalesce(sum(d.taken_micro), 0)::bigint from workspace_day as d
      where d.workspace_id = w.id and d.day >= budget_start(w.budget_interval, p_day))
  from workspace as w where w.id = p_holder and w.budget_micro is not null
$$;

-- Notes which shares of a budget are reached now and were not told yet, and answers them; all of them where a call was refused for
-- want of it. What leases hold and have not spent is not used.
create function budget_reach(p_holder text, p_day date, p_short boolean)
returns table (org_id text, scope text, percent smallint, budget_micro bigint, used_micro bigint, resets_at bigint)
language sql as $$
  with known as (
    select b.*, least(b.budget_micro, b.taken_micro - coalesce((
      select sum(l.amount_micro - l.spent_micro)::bigint from lease as l join key as k on k.id = l.key_id
      where (l.key_id = p_holder or k.workspace_id = p_holder) and l.day >= b.since
    ), 0)) as used_micro
    from budget_of(p_holder, p_day) as b
  ), told as (
    insert into budget_told as t (holder, since, budget_micro, percent)
    select p_holder, since, budget_micro, share from known, unnest(array[80, 100]::smallint[]) as share
    where p_short or used_micro * 100 >= budget_micro * share
    on conflict do nothing
    returning t.percent
  )
  select known.org_id, known.scope, told.percent, known.budget_micro, known.used_micro,
    extract(epoch from budget_reset(known.period, p_day))::bigint
  from known, told order by told.percent
$$;

-- Whatever is taken or given back may be what reaches a share: who hears of it looks at the whole.
create function tell_budget_used() returns trigger language plpgsql as $$
declare
  whose text;
begin
  if tg_table_name = 'key_day' then
    whose := new.key_id;
  else
    whose := new.workspace_id;
  end if;
  perform pg_notify('budget_used', whose) from budget_of(whose, new.day) as b
  where b.taken_micro * 100 >= b.budget_micro * 80 and exists (
    select from unnest(array[80, 100]) as share
    where b.taken_micro * 100 >= b.budget_micro * share and not exists (
      select from budget_told as t
      where t.holder = whose and t.since = b.since and t.budget_micro = b.budget_micro and t.percent = share
    )
  );
  return null;
end
$$;

create trigger tell_budget_used after insert or update of taken_micro on key_day
  for each row execute function tell_budget_used();
create trigger tell_budget_used after insert or update of taken_micro on workspace_day
  for each row execute function tell_budget_used();
