-- Money. Every amount is in integer micro-dollars (`…_micro`).
--
-- The ledger has double entry and is append-only: a row moves an amount between two accounts of one organization, so that every row sums to
-- zero by itself. Accounts are `granted` (the world outside), `available`, `spent`, and one for each lease, named as the lease is.
--
-- Locks are taken in one order everywhere, so that transactions never wait for each other in a ring: the leaser, accounts by name, its leases.
-- No transaction locks two leasers.

-- The cached balance of an organization. What it has spent is: granted - available - (what its leases hold).
create table account (
  org_id text primary key references org,
  granted_micro bigint not null default 0 check (granted_micro >= 0),
  -- What no lease holds.
  available_micro bigint not null default 0 check (available_micro >= 0),
  -- Fees for unused commitments, charged so far.
  fee_micro bigint not null default 0 check (fee_micro >= 0),
  -- What refunds and disputes could not take yet.
  owed_micro bigint not null default 0 check (owed_micro >= 0),
  -- The balance below which `balance.low` is sent, and whether it and `balance.exhausted` were sent since credit was last added.
  low_micro bigint not null default 0,
  low_notified boolean not null default false,
  exhausted_notified boolean not null default false,
  -- The balance below which credit is bought automatically; zero: never.
  topup_micro bigint not null default 0 check (topup_micro >= 0),
  requests bigint not null default 0 check (requests >= 0),
  created timestamptz not null default now()
) with (fillfactor = 50);

-- `charge` is not used here: a charge is a row of `request_outcome`.
create type transfer_kind as enum ('grant', 'lease', 'return', 'charge', 'availability_fee', 'refund');

-- The rows of the ledger that are no charges. `cause` is what a row stands for: an entry (grant, lease, return) or a lease that ended (return).
create table transfer (
  cause text not null,
  kind transfer_kind not null,
  org_id text not null,
  debit text not null,
  credit text not null,
  amount_micro bigint not null check (amount_micro > 0),
  -- Of grants: why, and the caller's idempotency key.
  note text,
  grant_key text,
  created timestamptz not null default now(),
  primary key (cause, kind)
);

create unique index transfer_grant_key on transfer (org_id, grant_key) where grant_key is not null;

-- What moved a balance beside calls, for its list.
create index transfer_shown on transfer (org_id, created) where kind in ('grant', 'availability_fee');

create function refuse_change() returns trigger language plpgsql as $$
begin
  raise exception 'the ledger is append-only: % on % is refused', tg_op, tg_table_name using errcode = 'insufficient_privilege';
end
$$;

-- A note is no part of the account: that of a deleted organization is taken out.
create trigger transfer_append_only
  before update of cause, kind, org_id, debit, credit, amount_micro, grant_key, created or delete or truncate on transfer
  for each statement execute function refuse_change();

-- REQUESTS

-- settled: answered and charged; failed: refused or failed, not charged; unmetered: dispatched by a gateway that died, not charged; done: a
-- preview, which costs nothing.
create type request_status as enum ('settled', 'failed', 'unmetered', 'done');

-- What requests share from call to call, kept once, so that a request is a narrow row that names its kind: to write these columns with each
-- request was half of what a settlement cost.
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
  -- The batch that it is an item of; empty for none.
  batch_id text not null default '',
  created timestamptz not null default now()
);

-- What accounting needs of a request that ended, one row each. A row with a cost is also its charge in the ledger: the cost moves from the lease
-- to `spent`, once, because the request's id is there once.
--
-- This table, `request_log` and `hedge_loser` are partitioned by week. A request id starts with the time at which it was made, so a range of
-- ids is a range of time (`request_mark`), and an id always belongs to the same partition: the primary key, which each partition checks, holds
-- for the whole table. See `11_partitions.sql` for how partitions come and go.
create table request_outcome (
  created timestamptz not null default now(),
  kind bigint not null,
  units bigint not null default 0,
  cost_micro bigint not null default 0,
  latency_ms real,
  org_id text not null,
  request_id text collate "C" not null,
  -- The lease that paid; null where nothing was held.
  lease text,
  primary key (org_id, request_id)
) partition by range (request_id);

-- For rollups of a span of time: blocks of rows by when they were written, which costs a write next to nothing.
create index request_outcome_by_time on request_outcome using brin (created) with (pages_per_range = 32, autosummarize = on);

-- The moment before which everything is committed: the beginning of the oldest transaction that is still open, since a row carries the moment at
-- which its transaction began. `p_slack` covers transactions that have begun and are not listed yet.
create function committed_before(p_slack interval default '10 seconds') returns timestamptz language sql as $$
  select least(now() - p_slack, min(xact_start))
  from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
$$;

-- What the log needs beyond that, until the organization's retention ends. Rows that have none of it are absent.
create table request_log (
  -- How long its one attempt took, where that and its success is all there is to say of attempts.
  attempt_ms real,
  -- How long it waited before it was planned: for room, for its body, for its key's limits.
  queue_ms real,
  input_bytes integer,
  org_id text not null,
  request_id text collate "C" not null,
  -- The caller's names of its session and its robot, by which callers search.
  session_id text,
  robot_id text,
  -- The rest of the log record, as JSON that no query reads.
  log text,
  primary key (org_id, request_id)
) partition by range (request_id);

-- Rows without a session or a robot cost these indexes nothing.
create index request_log_of_session on request_log (org_id, session_id, request_id) where session_id is not null;
create index request_log_of_robot on request_log (org_id, robot_id, request_id) where robot_id is not null;

create trigger request_outcome_append_only
  before update of org_id, request_id, kind, lease, units, cost_micro or delete or truncate on request_outcome
  for each statement execute function refuse_change();
create trigger request_kind_append_only before update or delete or truncate on request_kind
  for each statement execute function refuse_change();

-- The paid losers of hedges: offerings that were called in addition to the one that answered. The sum of a request's rows is the
-- `hedge_cost_micro` of its kind.
create table hedge_loser (
  org_id text not null,
  request_id text collate "C" not null,
  place smallint not null,
  offering_id text not null,
  provider text not null,
  model text not null,
  -- False for a call with the caller's own key, and for a placeholder.
  earns boolean not null,
  cost_micro bigint not null check (cost_micro >= 0),
  created timestamptz not null default now(),
  primary key (org_id, request_id, place)
) partition by range (request_id);

create index hedge_loser_by_time on hedge_loser using brin (created) with (pages_per_range = 32, autosummarize = on);
create trigger hedge_loser_append_only before update or delete or truncate on hedge_loser
  for each statement execute function refuse_change();

-- Every request that ended: the usage list (settled, unmetered) and the request log (all of them). What is past the organization's retention is
-- not shown, although its partition may still be there.
create view request as
  select e.org_id, e.request_id, k.key_id, k.status, k.contract, k.model, k.provider, k.offering_id, k.unit, e.units, e.cost_micro,
    k.wake_up_micro, k.hedge_cost_micro, k.simulated, k.http_status, k.error_code, e.latency_ms, l.log, e.created, k.byok, e.lease,
    l.attempt_ms, l.queue_ms, l.input_bytes, l.session_id, l.robot_id, k.batch_id
  from request_outcome as e join request_kind as k on k.id = e.kind
    left join org_settings as s on s.org_id = e.org_id
    left join request_log as l on l.org_id = e.org_id and l.request_id = e.request_id
      and e.created >= now() - make_interval(days => coalesce(s.retention_days, 30));

-- What is left in the database of requests that are in the archive (`13_archive.sql`): one entry for each account, a lease or none, and day. A
-- lease is of one key.
create table closing_entry (
  org_id text not null,
  -- The month of the archive, which is that of the request's id, and the day of the charge: in another month if it was late.
  month date not null,
  day date not null,
  -- The lease that paid; empty where nothing was held.
  lease text not null,
  key_id text not null,
  -- All requests, and those of the usage list.
  records bigint not null check (records > 0),
  requests bigint not null,
  cost_micro bigint not null check (cost_micro >= 0),
  -- The part of the cost that was charged for calls with the caller's own provider key.
  own_key_micro bigint not null,
  -- What providers were credited with.
  gross_micro bigint not null,
  primary key (org_id, month, day, lease, key_id)
);

-- The whole ledger.
create view entry as
  select cause, kind::text, org_id, debit, credit, amount_micro, created from transfer
  union all
  select request_id, 'charge', org_id, lease, 'spent', cost_micro, created from request_outcome where cost_micro > 0
  union all
  select 'closing/' || day, 'charge', org_id, lease, 'spent', cost_micro, day::timestamp at time zone 'UTC' from closing_entry
  where cost_micro > 0;

-- The ids of kinds, in the order of `p_fields`; kinds that are missing are made. `p_fields` has 14 elements for each: the columns of
-- `request_kind` from `key_id` to `batch_id`. Two transactions that make the same kind wait for each other; all of them make theirs in one
-- order, so that they never wait in a ring.
create function request_kinds(p_fields text[]) returns bigint[] language plpgsql as $$
declare
  places integer[] := array(select generate_series(1, cardinality(p_fields), 14));
  digests bytea[];
begin
  digests := array(
    select sha256(convert_to(p_fields[k : k + 13]::text, 'UTF8')) from unnest(places) with ordinality as kind (k, nth) order by nth
  );
  insert into request_kind (
    digest, key_id, status, contract, model, provider, offering_id, unit, wake_up_micro, hedge_cost_micro, simulated, byok,
    http_status, error_code, batch_id
  )
  select
    digest, p_fields[k], p_fields[k + 1]::request_status, p_fields[k + 2], coalesce(p_fields[k + 3], ''), coalesce(p_fields[k + 4], ''),
    coalesce(p_fields[k + 5], ''), coalesce(p_fields[k + 6], ''), coalesce(p_fields[k + 7]::bigint, 0), p_fields[k + 8]::bigint,
    p_fields[k + 9]::boolean, p_fields[k + 10]::boolean, p_fields[k + 11]::smallint, p_fields[k + 12],
    coalesce(p_fields[k + 13], '')
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

-- LEASES

-- One life of one replica's credit leaser. It renews `alive_until` as it commits batches. Another replica may fence it once that is past, and
-- a fenced leaser writes nothing more. `last_batch` makes a batch that is sent twice apply once.
create table leaser (
  id text primary key,
  replica text not null,
  epoch bigint not null,
  last_batch bigint not null default 0,
  alive_until timestamptz not null,
  fenced_at timestamptz,
  created timestamptz not null default now(),
  unique (replica, epoch)
) with (fillfactor = 50);

create index leaser_living on leaser (replica) where fenced_at is null;

-- Credit that a leaser holds for a key: `amount_micro` was debited to it, `spent_micro` of that was charged. It counts against the budget of
-- `day`, the UTC day on which it was taken. The row lives as long as the lease does; the ledger keeps its history.
create table lease (
  id text primary key,
  leaser_id text not null references leaser,
  org_id text not null references org,
  key_id text not null,
  day date not null,
  amount_micro bigint not null default 0,
  spent_micro bigint not null default 0,
  requests bigint not null default 0,
  created timestamptz not null default now(),
  check (spent_micro between 0 and amount_micro)
) with (fillfactor = 50);

create index lease_of_leaser on lease (leaser_id);
create index lease_of_org on lease (org_id);

-- Leases whose idle credit another leaser asked for, until their own leaser has answered.
create table recall (
  lease text primary key,
  leaser_id text not null,
  org_id text not null,
  key_id text not null,
  created timestamptz not null default now()
);

-- The journal of intents: one row for each batch, written before any answer of the batch leaves, and deleted when every request in it has ended.
create table intent (
  -- No foreign key: the leaser's own row is locked in the same transaction, and the check would cost each batch a query.
  leaser_id text not null,
  batch bigint not null,
  -- JSON {kinds, requests}: `kinds` are objects with what requests share, `requests` are pairs of a kind's place among them and a request's id.
  -- Recovery alone reads it; as text it costs no check.
  promised text not null,
  created timestamptz not null default now(),
  primary key (leaser_id, batch)
);

alter table intent alter column promised set storage external;

-- What leases of an organization hold.
create function held_of(p_org text) returns bigint language sql stable as $$
  select coalesce(sum(amount_micro - spent_micro), 0)::bigint from lease where org_id = p_org
$$;

-- BUDGETS

-- What a key has taken on a day, in leases and charges: less what its leases still hold, this is what it has spent.
create table key_day (
  key_id text not null,
  day date not null,
  org_id text not null,
  taken_micro bigint not null check (taken_micro >= 0),
  created timestamptz not null default now(),
  primary key (key_id, day)
) with (fillfactor = 50);

create index key_day_of_org on key_day (org_id, day);

-- What the keys of a workspace have taken on a day: the sum of their `key_day`, kept by a trigger on it. A transaction that changes either holds
-- the lock of the account.
create table workspace_day (
  workspace_id text not null,
  day date not null,
  org_id text not null,
  taken_micro bigint not null check (taken_micro >= 0),
  primary key (workspace_id, day)
) with (fillfactor = 50);

-- What the descendants of a key have taken on a day, kept likewise.
create table key_descendants_day (
  key_id text not null,
  day date not null,
  org_id text not null,
  taken_micro bigint not null check (taken_micro >= 0),
  primary key (key_id, day)
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

create function count_descendants_day() returns trigger language plpgsql as $$
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
    update key_descendants_day set taken_micro = taken_micro + taken where key_id = ancestor and day = new.day;
    if not found then
      insert into key_descendants_day (key_id, day, org_id, taken_micro) values (ancestor, new.day, new.org_id, taken);
    end if;
  end loop;
  return null;
end
$$;

create trigger count_descendants_day after insert or update of taken_micro on key_day
  for each row execute function count_descendants_day();

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

-- What is left of a budget after what was taken since it was last renewed.
create function budget_left(p_budget bigint, p_taken numeric) returns bigint language sql immutable as $$
  select greatest(p_budget - coalesce(p_taken, 0), 0)::bigint
$$;

-- What a key and its descendants have taken since a day, leases included.
create function key_tree_taken(p_key text, p_since date) returns numeric language sql stable as $$
  select coalesce((select sum(taken_micro) from key_day where key_id = p_key and day >= p_since), 0)
    + coalesce((select sum(taken_micro) from key_descendants_day where key_id = p_key and day >= p_since), 0)
$$;

-- What leases of a key and of its descendants, taken since a day, hold and have not spent.
create function key_tree_held(p_key text, p_org text, p_since date) returns numeric language sql stable as $$
  select coalesce(sum(amount_micro - spent_micro), 0) from lease
  where org_id = p_org and day >= p_since and amount_micro > spent_micro and is_key_or_descendant(key_id, p_key)
$$;

-- The budget of a key or a workspace on a day, and what was taken of it, leases included; no row without a budget.
create function budget_of(p_holder text, p_day date)
returns table (org_id text, scope text, budget_micro bigint, period text, since date, taken_micro bigint)
language sql stable as $$
  select k.org_id, 'key', k.budget_micro, k.budget_interval, budget_start(k.budget_interval, p_day),
    key_tree_taken(k.id, budget_start(k.budget_interval, p_day))::bigint
  from key as k where k.id = p_holder and k.budget_micro is not null
  union all
  select w.org_id, 'workspace', w.budget_micro, w.budget_interval, budget_start(w.budget_interval, p_day),
    (select coalesce(sum(d.taken_micro), 0)::bigint from workspace_day as d
      where d.workspace_id = w.id and d.day >= budget_start(w.budget_interval, p_day))
  from workspace as w where w.id = p_holder and w.budget_micro is not null
$$;

-- WHAT A LEASER DOES, each in one statement

-- Opens a leaser for a replica; returns its id.
create function leaser_open(p_replica text, p_life interval) returns text language plpgsql as $$
declare
  mine text;
begin
  perform pg_advisory_xact_lock(hashtext('leaser'), hashtext(p_replica));
  insert into leaser (id, replica, epoch, alive_until)
  select p_replica || '/' || next, p_replica, next, clock_timestamp() + p_life
  from (select coalesce(max(epoch), 0) + 1 as next from leaser where replica = p_replica) as life
  returning id into mine;
  return mine;
end
$$;

-- Fences a leaser that is dead (with `p_force`, any), records its open intents as unmetered requests, and returns what its leases hold. Returns
-- how many intents that were; null when the leaser lives or was fenced before.
create function leaser_recover(p_leaser text, p_force boolean) returns integer language plpgsql as $$
declare
  unmetered integer;
  returned text[];
begin
  update leaser set fenced_at = clock_timestamp()
  where id = p_leaser and fenced_at is null and (p_force or alive_until < clock_timestamp());
  if not found then
    return null;
  end if;
  perform 1 from account
  where org_id in (
    select org_id from lease where leaser_id = p_leaser
    union select k ->> 'org_id' from intent, json_array_elements(promised::json -> 'kinds') as k where leaser_id = p_leaser
  )
  order by org_id for update;

  with page as materialized (
    select batch, promised::json as promised from intent where leaser_id = p_leaser
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
        'false', 'false', null, null, null
      ]) with ordinality as f (field, at)
      order by nth, at
    )) as kinds
  ), put as (
    insert into request_outcome (org_id, request_id, kind)
    select k.org_id, r ->> 1, made.kinds[k.nth]
    from made, page, json_array_elements(promised -> 'requests') as r join kind as k on k.place = (r ->> 0)::bigint + 1
    where k.batch = page.batch
    on conflict (org_id, request_id) do nothing
    returning org_id
  ), counted as (
    update account set requests = account.requests + p.count
    from (select org_id, count(*) from put group by org_id) as p where account.org_id = p.org_id
  )
  select count(*) into unmetered from put;
  delete from intent where leaser_id = p_leaser;
  delete from recall where leaser_id = p_leaser;

  with gone as (
    delete from lease where leaser_id = p_leaser
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

-- Whether credit that `p_holder` has would help another key, where `p_source` is what ran short; `p_key` is the key whose budget that is.
create function credit_would_help(p_source text, p_holder text, p_key text, p_workspace text) returns boolean language sql stable as $$
  select case p_source
    when 'key_budget' then is_key_or_descendant(p_holder, p_key)
    when 'workspace_budget' then exists (select from key where id = p_holder and workspace_id = p_workspace)
    else true
  end
$$;

-- The credit that a key can take on a day: the minimum of the balance, its own budget, its ancestors' budgets and its workspace's. `short` is
-- null if that covers `p_need`; else it names what is exhausted, for a key's budget the key (`holder`), and whether other leasers hold some
-- of it or were notified.
create function lease_room(
  p_leaser text, p_entry text, p_org text, p_key text, p_day date, p_need bigint, out room bigint, out short json
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
    key_left := budget_left(k.budget_micro, key_tree_taken(p_key, budget_start(k.budget_interval, p_day)));
    key_period := k.budget_interval;
    key_holder := p_key;
  end if;
  if k.parent_id is not null then
    for link in
      select key.id, key.budget_micro, key.budget_interval from key_ancestors(p_key) as a join key on key.id = a.id
      where key.budget_micro is not null order by a.depth
    loop
      link_left := budget_left(link.budget_micro, key_tree_taken(link.id, budget_start(link.budget_interval, p_day)));
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
        where org_id = p_org and leaser_id <> p_leaser and amount_micro > spent_micro
          and credit_would_help(source, key_id, key_holder, k.workspace)
      ),
      'recalled', exists (
        select from recall where org_id = p_org and leaser_id <> p_leaser and credit_would_help(source, key_id, key_holder, k.workspace)
      )
    );
  end if;
end
$$;

-- Takes credit into a lease: as much as is wanted while there is plenty, down to what is needed as it runs out. Beyond the calls that wait now
-- (`p_asked`) it is never more than an eighth of what is there, so that replicas share what is left. Returns what was granted, or what was short.
create function lease_take(
  p_leaser text, p_entry text, p_lease text, p_org text, p_key text, p_day date,
  p_need bigint, p_asked bigint, p_want bigint
) returns json language plpgsql as $$
declare
  room bigint;
  short json;
  granted bigint;
begin
  select r.room, r.short into room, short from lease_room(p_leaser, p_entry, p_org, p_key, p_day, p_need) as r;
  if short is not null then
    return short;
  end if;
  granted := least(room, greatest(p_asked, least(p_want, room / 8)));
  insert into lease (id, leaser_id, org_id, key_id, day, amount_micro)
  values (p_lease, p_leaser, p_org, p_key, p_day, granted)
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
  p_leaser text, p_entry text, p_lease text, p_org text, p_key text, p_day date, p_need bigint
) returns json language sql as $$
  select coalesce(
    (select json_build_object('entry', p_entry, 'grantedMicro', amount_micro)
      from transfer where cause = p_entry and kind = 'lease'),
    (select json_build_object('entry', p_entry, 'grantedMicro', 0) from lease where id = p_lease and p_need = 0),
    (select short from lease_room(p_leaser, p_entry, p_org, p_key, p_day, p_need))
  )
$$;

-- Returns credit from a lease. A null amount ends the lease: all that is left goes back. `p_answers`: it answers a recall.
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

-- Requests idle credit from the other leasers: from leases of an organization, or of one key and its descendants. Returns the number of
-- leases.
create function lease_recall(p_leaser text, p_org text, p_key text) returns integer language plpgsql as $$
declare
  asked integer;
begin
  insert into recall (lease, leaser_id, org_id, key_id)
  select id, leaser_id, org_id, key_id from lease
  where org_id = p_org and leaser_id <> p_leaser and amount_micro > spent_micro and (p_key is null or is_key_or_descendant(key_id, p_key))
  order by id
  on conflict do nothing;
  get diagnostics asked = row_count;
  if asked > 0 then
    perform pg_notify('lease_wanted', p_org || ' ' || p_leaser);
  end if;
  return asked;
end
$$;

-- Commits one batch of a leaser: returns and takes of credit, intents, settlements, the answers of idempotent calls, events, and leases that end,
-- in this order. Returns null when there is nothing to say, else {fenced} or {takes, recalled, kinds}.
--
-- Batches are numbered upwards, not one by one: most batches of intents alone are one row of `intent` and don't come here (see
-- `INTENTS_ALONE` in `store/billing/ledger.ts`). A batch that was committed before is not applied again: its takes are read back. An intent that
-- was written the other way and comes again here is there already.
--
-- `p_more` has what few batches have: {moves, claims, losers, events}. `p_kinds` has 14 fields, as `request_kinds` takes them, for each kind whose id the
-- leaser doesn't know; the answer has their ids. Of the requests there is one array for each column: a kind's id (or -n for the nth of
-- `p_kinds`), the place of the payer, and so on; texts are divided by the unit separator, and empty is null; `p_sessions` and `p_robots` are null where no request has one. A payer is an organization and its
-- lease (null where nothing was held), with what it pays and for how many settled requests.
--
-- What is slow here was measured: columns are unnested side by side because a table of them was first written down whole; leases are found by
-- their names because a search among all leases of the leaser cost two thirds more.
create function leaser_commit(
  p_leaser text, p_batch bigint, p_life interval,
  p_intents text, p_over bigint[], p_more json,
  p_kinds text, p_kind bigint[], p_payer integer[], p_request text, p_units bigint[], p_cost bigint[], p_latency real[], p_attempt real[],
  p_queue real[], p_bytes integer[], p_sessions text, p_robots text, p_log text, p_orgs text[], p_leases text[], p_costs bigint[], p_counts bigint[]
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
  sessions text[];
  robots text[];
  logs text[];
begin
  update leaser set last_batch = p_batch, alive_until = clock_timestamp() + p_life
  where id = p_leaser and last_batch < p_batch and fenced_at is null
  returning exists (select from recall where recall.leaser_id = p_leaser) into is_wanted;
  if not found then
    select last_batch into seen from leaser where id = p_leaser;
    if seen is null or seen < p_batch then
      return json_build_object('fenced', true);
    end if;
    return json_build_object('takes', (
      select json_agg(taken)
      from json_to_recordset(moves) as m (kind text, entry text, lease text, org text, key text, day date, need bigint),
        lateral lease_taken(p_leaser, m.entry, m.lease, m.org, m.key, m.day, m.need) as taken
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
          p_leaser, move.entry, move.lease, move.org, move.key, move.day, move.need, move.asked, move.want
        ));
      end if;
    end loop;
  end if;

  if p_intents is not null then
    insert into intent (leaser_id, batch, promised) values (p_leaser, p_batch, p_intents) on conflict do nothing;
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
    sessions := string_to_array(p_sessions, E'\x1f', '');
    robots := string_to_array(p_robots, E'\x1f', '');
    logs := string_to_array(p_log, E'\x1f', '');
    insert into request_outcome (kind, org_id, request_id, units, cost_micro, latency_ms, lease)
    select kind, orgs[payer], request, units, cost, latency, leases[payer]
    from (
      select unnest(p_kind) as kind, unnest(p_payer) as payer, unnest(requests) as request, unnest(p_units) as units,
        unnest(p_cost) as cost, unnest(p_latency) as latency
    ) as ended;
    insert into request_log (org_id, request_id, attempt_ms, queue_ms, input_bytes, session_id, robot_id, log)
    select orgs[payer], request, attempt, queue, bytes, session, robot, log
    from (
      select unnest(p_payer) as payer, unnest(requests) as request, unnest(p_attempt) as attempt, unnest(p_queue) as queue,
        unnest(p_bytes) as bytes, unnest(sessions) as session, unnest(robots) as robot, unnest(logs) as log
    ) as ended
    where num_nonnulls(attempt, queue, bytes, session, robot, log) > 0;
    update lease set spent_micro = lease.spent_micro + paid.cost, requests = lease.requests + paid.count
    from unnest(p_leases, p_costs, p_counts) as paid (lease, cost, count)
    where lease.id = paid.lease and paid.cost >= 0;
    get diagnostics charged = row_count;
    if charged <> cardinality(array_remove(p_leases, null)) then
      raise exception 'a settlement names a lease that this leaser does not have, or a charge below zero'
        using errcode = 'foreign_key_violation';
    end if;
  end if;

  if p_over is not null then
    delete from intent where leaser_id = p_leaser and batch = any (p_over);
  end if;

  if p_more -> 'claims' is not null then
    update idempotency as i set response = decode(c.response, 'base64')
    from json_to_recordset(p_more -> 'claims') as c (org text, key text, claim text, response text)
    where i.org_id = c.org and i.key = c.key and i.claim_id = c.claim and i.response is null and c.response is not null;
    delete from idempotency as i using json_to_recordset(p_more -> 'claims') as c (org text, key text, claim text, response text)
    where i.org_id = c.org and i.key = c.key and i.claim_id = c.claim and i.response is null and c.response is null;
  end if;

  if p_more -> 'losers' is not null then
    insert into hedge_loser (org_id, request_id, place, offering_id, provider, model, earns, cost_micro)
    select org, request, place, offering, provider, model, earns, cost
    from json_to_recordset(p_more -> 'losers') as l (
      org text, request text, place smallint, offering text, provider text, model text, earns boolean, cost bigint
    );
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
    select json_agg(lease) into wanted from recall where leaser_id = p_leaser;
  elsif cardinality(takes) = 0 and made is null then
    return null;
  end if;
  return json_build_object('takes', to_json(takes), 'recalled', wanted, 'kinds', to_json(made));
end
$$;
