-- Workspaces with their budgets, what keys may be beyond their beginning, and what an organisation settles for all its calls.

create table workspace (
  id text primary key,
  org_id text not null references org,
  name text not null,
  -- The word that stands for it in its organisation.
  slug text not null,
  budget_micro bigint check (budget_micro >= 0),
  budget_interval text check (budget_interval in ('daily', 'weekly', 'monthly', 'lifetime')),
  -- Those of the organisation's settings that are others here, by their names on the wire.
  settings jsonb not null default '{}',
  created timestamptz not null default now(),
  deleted_at timestamptz,
  check ((budget_micro is null) = (budget_interval is null))
);

create unique index workspace_slug on workspace (org_id, slug) where deleted_at is null;

-- A key's workspace never changes, so that what it took always counts in the same budget.
alter table key
  add column workspace_id text references workspace,
  add column robot_id text,
  add column rate_streams integer not null default 16 check (rate_streams > 0),
  add column revoked_at timestamptz;

create index key_of_workspace on key (workspace_id) where workspace_id is not null;

-- What the keys of a workspace have taken on a day: the sum of their `key_day`, kept by a trigger on it. The account's lock is held
-- by whoever changes either.
create table workspace_day (
  workspace_id text not null,
  day date not null,
  org_id text not null,
  taken_micro bigint not null check (taken_micro >= 0),
  primary key (workspace_id, day)
) with (fillfactor = 50);

create function count_workspace_day() returns trigger language plpgsql as $$
declare
  workspace text;
  taken bigint := new.taken_micro;
begin
  select workspace_id into workspace from key where id = new.key_id;
  if workspace is not null then
    if tg_op = 'UPDATE' then
      taken := new.taken_micro - old.taken_micro;
    end if;
    update workspace_day set taken_micro = taken_micro + taken where workspace_id = workspace and day = new.day;
    if not found then
      insert into workspace_day (workspace_id, day, org_id, taken_micro) values (workspace, new.day, new.org_id, taken);
    end if;
  end if;
  return null;
end
$$;

create trigger count_workspace_day after insert or update of taken_micro on key_day
  for each row execute function count_workspace_day();

create index key_day_of_org on key_day (org_id, day);

-- What is left of a budget on a day, after what was taken since it was renewed last.
create function budget_left(p_budget bigint, p_taken numeric) returns bigint language sql immutable as $$
  select greatest(p_budget - coalesce(p_taken, 0), 0)::bigint
$$;

-- As before, and a workspace's budget counts too: the least of the three is what there is.
create or replace function lease_room(
  p_till text, p_entry text, p_org text, p_key text, p_day date, p_need bigint, out room bigint, out short json
) language plpgsql as $$
declare
  available bigint;
  k record;
  key_left bigint;
  workspace_left bigint;
  source text := 'org_credits';
  period text;
begin
  select coalesce(sum(available_micro), 0) into available from account where org_id = p_org;
  select key.budget_micro, key.budget_interval, w.id as workspace, w.budget_micro as w_budget, w.budget_interval as w_interval
  into k from key left join workspace as w on w.id = key.workspace_id where key.id = p_key;
  if k.budget_micro is not null then
    key_left := budget_left(k.budget_micro, (
      select sum(taken_micro) from key_day where key_id = p_key and day >= budget_start(k.budget_interval, p_day)
    ));
  end if;
  if k.w_budget is not null then
    workspace_left := budget_left(k.w_budget, (
      select sum(taken_micro) from workspace_day where workspace_id = k.workspace and day >= budget_start(k.w_interval, p_day)
    ));
  end if;
  room := available;
  if key_left < room then
    source := 'key_budget';
    period := k.budget_interval;
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
      'roomMicro', room,
      'resetsAt', extract(epoch from budget_reset(period, p_day)),
      'heldElsewhere', exists (
        select from lease
        where org_id = p_org and till_id <> p_till and amount_micro > spent_micro and counts_in(source, key_id, p_key, k.workspace)
      ),
      'recalled', exists (
        select from recall where org_id = p_org and till_id <> p_till and counts_in(source, key_id, p_key, k.workspace)
      )
    );
  end if;
end
$$;

-- Whether credit that one key holds would help another, when `source` is what ran short.
create function counts_in(p_source text, p_holder text, p_key text, p_workspace text) returns boolean language sql stable as $$
  select case p_source
    when 'key_budget' then p_holder = p_key
    when 'workspace_budget' then exists (select from key where id = p_holder and workspace_id = p_workspace)
    else true
  end
$$;

-- What an organisation settles for all its calls. No row: the defaults of `store/settings.ts`; null: the default of that field.
create table org_settings (
  org_id text primary key references org,
  retention_days integer check (retention_days between 0 and 3650),
  zdr boolean,
  cache_sharing boolean,
  byok_mode text check (byok_mode in ('off', 'fallback', 'prefer', 'require')),
  default_preset text,
  allowed_regions text[],
  max_hedge_ratio double precision check (max_hedge_ratio between 0 and 1),
  updated timestamptz not null default now()
);

-- Keys carry the settings of their organisation and workspace with them, so their change reaches every replica as that of a key does.
-- A budget that shrinks calls back what leases hold: nothing that was set aside before may be spent against the new one.
create function tell_settings_changed() returns trigger language plpgsql as $$
begin
  perform pg_notify('key_changed', coalesce(new.org_id, old.org_id));
  return null;
end
$$;

create trigger settings_changed after insert or update or delete on org_settings
  for each row execute function tell_settings_changed();
create trigger settings_changed after update or delete on workspace
  for each row execute function tell_settings_changed();

create function tell_budget_changed() returns trigger language plpgsql as $$
begin
  perform pg_notify('lease_wanted', new.org_id || ' ');
  return null;
end
$$;

create trigger budget_changed after update on workspace for each row
  when (old.budget_micro is distinct from new.budget_micro or old.budget_interval is distinct from new.budget_interval)
  execute function tell_budget_changed();
create trigger budget_changed after update on key for each row
  when (old.budget_micro is distinct from new.budget_micro or old.budget_interval is distinct from new.budget_interval)
  execute function tell_budget_changed();
