-- A key spends from its own budget and from that of every key that it descends from.

-- What the descendants of a key have taken on a day: the sum of their `key_day`, kept by a trigger on it. The account's lock is held by
-- whoever changes either. Keys without a parent have no part in it.
create table key_line_day (
  key_id text not null,
  day date not null,
  org_id text not null,
  taken_micro bigint not null check (taken_micro >= 0),
  primary key (key_id, day)
) with (fillfactor = 50);

create function count_line_day() returns trigger language plpgsql as $$
declare
  ancestor text;
  taken bigint := new.taken_micro;
begin
  if tg_op = 'UPDATE' then
    taken := new.taken_micro - old.taken_micro;
  end if;
  if taken = 0 or not exists (select from key where id = new.key_id and parent_id is not null) then
    return null;
  end if;
  for ancestor in select id from key_ancestors(new.key_id) order by id loop
    update key_line_day set taken_micro = taken_micro + taken where key_id = ancestor and day = new.day;
    if not found then
      insert into key_line_day (key_id, day, org_id, taken_micro) values (ancestor, new.day, new.org_id, taken);
    end if;
  end loop;
  return null;
end
$$;

create trigger count_line_day after insert or update of taken_micro on key_day
  for each row execute function count_line_day();

-- What a key and its descendants have taken since a day, leases included.
create function line_taken(p_key text, p_since date) returns numeric language sql stable as $$
  select coalesce((select sum(taken_micro) from key_day where key_id = p_key and day >= p_since), 0)
    + coalesce((select sum(taken_micro) from key_line_day where key_id = p_key and day >= p_since), 0)
$$;

-- Whether one key is another or descends from it.
create function is_of_line(p_key text, p_of text) returns boolean language sql stable as $$
  select p_key = p_of or exists (select from key_ancestors(p_key) where id = p_of)
$$;

-- What leases of a key and of its descendants hold and have not spent, of those since a day.
create function line_held(p_key text, p_org text, p_since date) returns numeric language sql stable as $$
  select coalesce(sum(amount_micro - spent_micro), 0) from lease
  where org_id = p_org and day >= p_since and amount_micro > spent_micro and is_of_line(key_id, p_key)
$$;

-- As before, and the budgets of all keys that a key descends from count too: the least of all is what there is. `holder` is the key whose
-- budget was short.
create or replace function lease_room(
  p_till text, p_entry text, p_org text, p_key text, p_day date, p_need bigint, out room bigint, out short json
) language plpgsql as $$
declare
  available bigint;
  k record;
  link record;
  link_left bigint;
  key_left bigint;
  key_period text;
  key_holder text;
  workspace_left bigint;
  source text := 'org_credits';
  period text;
begin
  select coalesce(sum(available_micro), 0) into available from account where org_id = p_org;
  select key.budget_micro, key.budget_interval, key.parent_id, w.id as workspace, w.budget_micro as w_budget, w.budget_interval as w_interval
  into k from key left join workspace as w on w.id = key.workspace_id where key.id = p_key;
  if k.budget_micro is not null then
    key_left := budget_left(k.budget_micro, line_taken(p_key, budget_start(k.budget_interval, p_day)));
    key_period := k.budget_interval;
    key_holder := p_key;
  end if;
  if k.parent_id is not null then
    for link in
      select key.id, key.budget_micro, key.budget_interval from key_ancestors(p_key) as a join key on key.id = a.id
      where key.budget_micro is not null order by a.depth
    loop
      link_left := budget_left(link.budget_micro, line_taken(link.id, budget_start(link.budget_interval, p_day)));
      if key_left is null or link_left < key_left then
        key_left := link_left;
        key_period := link.budget_interval;
        key_holder := link.id;
      end if;
    end loop;
  end if;
  if k.w_budget is not null then
    workspace_left := budget_left(k.w_budget, (
      select sum(taken_micro) from workspace_day where workspace_id = k.workspace and day >= budget_start(k.w_interval, p_day)
    ));
  end if;
  room := available;
  if key_left < room then
    source := 'key_budget';
    period := key_period;
    room := key_left;
  end if;
  if workspace_left < room then
    source := 'workspace_budget';
    period := k.w_interval;
    room := workspace_left;
  end if;
  if room < p_need then
    short := json_build_object(
      'entry', p_entry,
      'short', source,
      'holder', case when source = 'key_budget' then key_holder end,
      'roomMicro', room,
      'resetsAt', extract(epoch from budget_reset(period, p_day)),
      'heldElsewhere', exists (
        select from lease
        where org_id = p_org and till_id <> p_till and amount_micro > spent_micro
          and counts_in(source, key_id, key_holder, k.workspace)
      ),
      'recalled', exists (
        select from recall where org_id = p_org and till_id <> p_till and counts_in(source, key_id, key_holder, k.workspace)
      )
    );
  end if;
end
$$;

-- Whether credit that one key holds would help another, when `source` is what ran short, and for a key's budget whose it is.
create or replace function counts_in(p_source text, p_holder text, p_key text, p_workspace text) returns boolean language sql stable as $$
  select case p_source
    when 'key_budget' then is_of_line(p_holder, p_key)
    when 'workspace_budget' then exists (select from key where id = p_holder and workspace_id = p_workspace)
    else true
  end
$$;

-- As before; what descendants took counts.
create or replace function budget_of(p_holder text, p_day date)
returns table (org_id text, scope text, budget_micro bigint, period text, since date, taken_micro bigint)
language sql stable as $$
  select k.org_id, 'key', k.budget_micro, k.budget_interval, budget_start(k.budget_interval, p_day),
    line_taken(k.id, budget_start(k.budget_interval, p_day))::bigint
  from key as k where k.id = p_holder and k.budget_micro is not null
  union all
  select w.org_id, 'workspace', w.budget_micro, w.budget_interval, budget_start(w.budget_interval, p_day),
    (select coalesce(sum(d.taken_micro), 0)::bigint from workspace_day as d
      where d.workspace_id = w.id and d.day >= budget_start(w.budget_interval, p_day))
  from workspace as w where w.id = p_holder and w.budget_micro is not null
$$;

-- As before; what leases of descendants hold and have not spent is not used either.
create or replace function budget_reach(p_holder text, p_day date, p_short boolean)
returns table (org_id text, scope text, percent smallint, budget_micro bigint, used_micro bigint, resets_at bigint)
language sql as $$
  with known as (
    select b.*, least(b.budget_micro, b.taken_micro - coalesce((
      select sum(l.amount_micro - l.spent_micro)::bigint from lease as l join key as k on k.id = l.key_id
      where l.org_id = b.org_id and (k.workspace_id = p_holder or is_of_line(l.key_id, p_holder)) and l.day >= b.since
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

create or replace function tell_budget_used() returns trigger language plpgsql as $$
declare
  whose text;
begin
  if tg_table_name = 'workspace_day' then
    whose := new.workspace_id;
  else
    whose := new.key_id;
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

create trigger tell_budget_used after insert or update of taken_micro on key_line_day
  for each row execute function tell_budget_used();

-- Asks the other tills for what is idle in their leases of an organisation, or of one key of it and of its descendants. Answers how many were
-- asked.
create or replace function lease_recall(p_till text, p_org text, p_key text) returns integer language plpgsql as $$
declare
  asked integer;
begin
  insert into recall (lease, till_id, org_id, key_id)
  select id, till_id, org_id, key_id from lease
  where org_id = p_org and till_id <> p_till and amount_micro > spent_micro and (p_key is null or is_of_line(key_id, p_key))
  order by id
  on conflict do nothing;
  get diagnostics asked = row_count;
  if asked > 0 then
    perform pg_notify('lease_wanted', p_org || ' ' || p_till);
  end if;
  return asked;
end
$$;
