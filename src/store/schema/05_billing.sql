-- Payments, commitments, alerts on balances and budgets, and what providers earn.

-- PAYMENTS

-- Payments. Credit enters the ledger under the payment's id, which the ledger accepts once per kind: a payment is credited once, however often
-- it is reported.
create table payment (
  id text primary key,
  org_id text not null references org,
  key_id text not null,
  amount_micro bigint not null check (amount_micro > 0),
  status text not null default 'pending' check (status in ('pending', 'succeeded', 'failed', 'expired', 'refunded')),
  -- The caller's idempotency key.
  idempotency_key text,
  success_url text not null,
  cancel_url text not null,
  -- The processor's ids of the checkout and of what was paid by it.
  session_id text unique,
  checkout_url text,
  intent_id text unique,
  expires_at timestamptz not null,
  completed_at timestamptz,
  -- When the processor was last asked on schedule.
  asked_at timestamptz,
  -- It is charged to a stored payment method, by these names of the processor, without a checkout.
  automatic boolean not null default false,
  customer_id text,
  method_id text,
  created timestamptz not null default now(),
  check (not automatic or (customer_id is not null and method_id is not null and session_id is null))
);

create unique index payment_idempotency on payment (org_id, idempotency_key) where idempotency_key is not null;
create index payment_of_org on payment (org_id, id);
create index payment_pending on payment (expires_at) where status = 'pending';
-- An organization is charged for one automatic payment at a time, by whichever replica.
create unique index payment_one_automatic on payment (org_id) where automatic and status = 'pending';

-- The rule for automatic top-up. Without a row, there is none.
create table auto_topup (
  org_id text primary key references org,
  enabled boolean not null default false,
  threshold_micro bigint check (threshold_micro > 0),
  amount_micro bigint check (amount_micro > 0),
  -- The most that is charged in a calendar month.
  ceiling_micro bigint check (ceiling_micro > 0),
  -- The key that turned it on last.
  key_id text,
  -- The processor's names of the payer and of what is charged, and what people know it by.
  customer_id text,
  method_id text,
  method_kind text,
  method_brand text,
  method_last4 text,
  method_since timestamptz,
  -- The processor's page on which a payment method is being given.
  setup_session text unique,
  setup_expires timestamptz,
  -- Charges in a row that were declined.
  declines integer not null default 0 check (declines >= 0),
  -- Nothing is charged before.
  next_try timestamptz not null default now(),
  -- The month in which the reached ceiling was reported.
  ceiling_told date,
  updated timestamptz not null default now(),
  check (not enabled or (
    method_id is not null and customer_id is not null and key_id is not null
    and threshold_micro is not null and amount_micro is not null and ceiling_micro >= amount_micro
  ))
);

-- What the processor still has of organizations that were deleted: a stored payment method, or a page on which one may be given until it ends.
create table method_to_forget (
  id bigint generated always as identity primary key,
  method_id text unique,
  setup_session text unique,
  ends timestamptz not null default now(),
  asked_at timestamptz,
  created timestamptz not null default now(),
  check (num_nonnulls(method_id, setup_session) = 1)
);

create index auto_topup_on on auto_topup (next_try) where enabled;

-- The account has the threshold too, so that a balance above it costs nothing to compare.
create function auto_topup_changed() returns trigger language plpgsql as $$
begin
  update account set topup_micro = case when new.enabled then new.threshold_micro else 0 end
  where org_id = new.org_id and topup_micro <> case when new.enabled then new.threshold_micro else 0 end;
  if new.enabled then
    perform pg_notify('topup_due', new.org_id);
  end if;
  return null;
end
$$;

create trigger auto_topup_changed after insert or update of enabled, threshold_micro on auto_topup
  for each row execute function auto_topup_changed();

create function notify_topup_due() returns trigger language plpgsql as $$
begin
  perform pg_notify('topup_due', new.org_id);
  return null;
end
$$;

create trigger account_topup after update of available_micro on account
  for each row when (new.available_micro < new.topup_micro and new.available_micro < old.available_micro)
  execute function notify_topup_due();

-- What went back of a payment, under the processor's id of the refund or the dispute. It moves one way: `taken` when the money left, `returned`
-- when it came back (the refund failed, the dispute was won), and never from there to `taken`.
create table payment_reversal (
  id text primary key,
  payment_id text not null references payment,
  org_id text not null,
  kind text not null check (kind in ('refund', 'dispute')),
  state text not null check (state in ('taken', 'returned')),
  -- What the processor says that it was. Reversals of a payment can overlap, and take no more than was paid together.
  claimed_micro bigint not null check (claimed_micro >= 0),
  -- What was taken for it.
  amount_micro bigint not null check (amount_micro between 0 and claimed_micro),
  -- The part that the balance could not give yet.
  owed_micro bigint not null default 0 check (owed_micro between 0 and amount_micro),
  -- How many times the balance has given to it.
  takings integer not null default 0,
  created timestamptz not null default now()
);

create index reversal_of_payment on payment_reversal (payment_id);
create index reversal_owed on payment_reversal (org_id, created) where owed_micro > 0;

-- Credit that comes in, from wherever, pays first what is owed, in the same statement: it leaves again from `available` to `granted`.
create function collect_owed() returns trigger language plpgsql as $$
declare
  r payment_reversal;
  part bigint;
begin
  for r in select * from payment_reversal where org_id = new.org_id and owed_micro > 0 order by created, id loop
    part := least(r.owed_micro, new.available_micro);
    exit when part = 0;
    insert into transfer (cause, kind, org_id, debit, credit, amount_micro, note)
    values (r.id || '/' || (r.takings + 1), 'refund', new.org_id, 'available', 'granted', part, r.payment_id);
    update payment_reversal set owed_micro = owed_micro - part, takings = takings + 1 where id = r.id;
    new.available_micro := new.available_micro - part;
    new.granted_micro := new.granted_micro - part;
    new.owed_micro := new.owed_micro - part;
  end loop;
  return new;
end
$$;

create trigger account_owed before update on account
  for each row when (new.owed_micro > 0 and new.available_micro > 0) execute function collect_owed();

-- COMMITMENTS

-- What an organization promised to spend each month; nothing when it is zero.
create table commitment (
  org_id text primary key references org,
  min_micro bigint not null check (min_micro >= 0),
  starts_on date not null,
  updated timestamptz not null default now()
);

-- Months that are over, each once: what was promised, what was used, and what of the rest was charged as availability fee. A fee that the
-- balance didn't cover is collected in parts, as there is credit.
create table commitment_month (
  org_id text not null references org,
  month date not null,
  min_micro bigint not null,
  used_micro bigint not null,
  fee_micro bigint not null check (fee_micro >= 0),
  paid_micro bigint not null default 0 check (paid_micro between 0 and fee_micro),
  parts integer not null default 0,
  closed_at timestamptz not null default now(),
  primary key (org_id, month)
);

create index commitment_month_unpaid on commitment_month (org_id) where paid_micro < fee_micro;

create function commitment_month_only_paid() returns trigger language plpgsql as $$
begin
  if tg_op = 'UPDATE' and new.paid_micro > old.paid_micro and new.parts = old.parts + 1
    and (new.org_id, new.month, new.min_micro, new.used_micro, new.fee_micro, new.closed_at)
      = (old.org_id, old.month, old.min_micro, old.used_micro, old.fee_micro, old.closed_at) then
    return new;
  end if;
  raise exception 'a month that is over stays as it is' using errcode = 'insufficient_privilege';
end
$$;

create trigger commitment_month_only_paid before update or delete on commitment_month
  for each row execute function commitment_month_only_paid();
create trigger commitment_month_stays before truncate on commitment_month
  for each statement execute function refuse_change();

-- What an organization was charged for calls on the days from `p_from` until before `p_to`.
create function used_between(p_org text, p_from date, p_to date) returns bigint language sql stable as $$
  select (
    (select coalesce(sum(taken_micro), 0) from key_day where org_id = p_org and day >= p_from and day < p_to)
    - (select coalesce(sum(amount_micro - spent_micro), 0) from lease where org_id = p_org and day >= p_from and day < p_to)
  )::bigint
$$;

-- What was promised for a month: less in the first one, by its days.
create function commitment_of(p_min bigint, p_starts date, p_month date) returns bigint language sql immutable as $$
  select case
    when p_starts <= p_month then p_min
    else p_min * ((p_month + interval '1 month')::date - p_starts) / ((p_month + interval '1 month')::date - p_month)
  end
$$;

-- Closes the months of an organization that were over on `p_today`, each once on whichever replica comes first, and charges what is due as far as
-- the balance goes. A month with calls that still run waits for them. Returns how many were closed.
create function commitment_close(p_org text, p_today date) returns integer language plpgsql as $$
declare
  c commitment;
  due commitment_month;
  month date;
  next date;
  promised bigint;
  used bigint;
  part bigint;
  closed integer := 0;
begin
  perform 1 from account where org_id = p_org for update;
  select * into c from commitment where org_id = p_org;
  if not found then
    return 0;
  end if;
  select greatest(date_trunc('month', c.starts_on)::date, (max(m.month) + interval '1 month')::date) into month
  from commitment_month as m where m.org_id = p_org;
  loop
    next := (month + interval '1 month')::date;
    exit when next > p_today or exists (
      select from lease where org_id = p_org and day >= month and day < next and amount_micro > spent_micro
    );
    promised := commitment_of(c.min_micro, c.starts_on, month);
    used := used_between(p_org, greatest(month, c.starts_on), next);
    insert into commitment_month (org_id, month, min_micro, used_micro, fee_micro)
    values (p_org, month, promised, used, greatest(promised - used, 0));
    closed := closed + 1;
    month := next;
  end loop;
  for due in select * from commitment_month as m where m.org_id = p_org and paid_micro < fee_micro order by m.month loop
    select least(available_micro, due.fee_micro - due.paid_micro) into part from account where org_id = p_org;
    exit when part = 0;
    insert into transfer (cause, kind, org_id, debit, credit, amount_micro, note)
    values (
      format('commitment/%s/%s/%s', p_org, to_char(due.month, 'YYYY-MM'), due.parts + 1), 'availability_fee', p_org,
      'available', 'spent', part, format('unused commitment of %s', to_char(due.month, 'YYYY-MM'))
    );
    update account set available_micro = available_micro - part, fee_micro = fee_micro + part where org_id = p_org;
    update commitment_month as m set paid_micro = paid_micro + part, parts = parts + 1
    where m.org_id = p_org and m.month = due.month;
  end loop;
  return closed;
end
$$;

-- ALERTS

-- The balance is called low at a tenth of what it was after credit was last added.
create function set_low_mark() returns trigger language plpgsql as $$
begin
  new.low_micro := (new.available_micro + held_of(new.org_id)) / 10;
  new.low_notified := false;
  new.exhausted_notified := false;
  return new;
end
$$;

-- Triggers run in the order of their names: `account_raised` comes after `account_owed` has taken what is owed.
create trigger account_raised before update of granted_micro on account
  for each row when (new.granted_micro > old.granted_micro) execute function set_low_mark();

-- The balance falls while leases spend, and every lease takes from `available`: the first lease that leaves less than the mark there
-- makes a replica look at the whole balance.
create function notify_balance_low() returns trigger language plpgsql as $$
begin
  perform pg_notify('balance_low', new.org_id);
  return null;
end
$$;

create trigger account_low after update of available_micro on account
  for each row when (not new.low_notified and new.available_micro < new.low_micro) execute function notify_balance_low();

-- Shares of budgets, in percent, that were notified. A budget that is renewed or changed is another one.
create table budget_alert (
  holder text not null,
  since date not null,
  budget_micro bigint not null,
  percent smallint not null,
  primary key (holder, since, budget_micro, percent)
);

-- Records which shares of a budget are reached now and were not notified yet, and answers them; all of them where a call was refused for want
-- of it (`p_short`). What leases hold and have not spent is not used.
create function budget_reach(p_holder text, p_day date, p_short boolean)
returns table (org_id text, scope text, percent smallint, budget_micro bigint, used_micro bigint, resets_at bigint)
language sql as $$
  with known as (
    select b.*, least(b.budget_micro, b.taken_micro - coalesce((
      select sum(l.amount_micro - l.spent_micro)::bigint from lease as l join key as k on k.id = l.key_id
      where l.org_id = b.org_id and (k.workspace_id = p_holder or is_key_or_descendant(l.key_id, p_holder)) and l.day >= b.since
    ), 0)) as used_micro
    from budget_of(p_holder, p_day) as b
  ), reached as (
    insert into budget_alert as t (holder, since, budget_micro, percent)
    select p_holder, since, budget_micro, share from known, unnest(array[80, 100]::smallint[]) as share
    where p_short or used_micro * 100 >= budget_micro * share
    on conflict do nothing
    returning t.percent
  )
  select known.org_id, known.scope, reached.percent, known.budget_micro, known.used_micro,
    extract(epoch from budget_reset(known.period, p_day))::bigint
  from known, reached order by reached.percent
$$;

-- Credit that is taken or given back may reach a share: a replica that is notified looks at the whole budget.
create function notify_budget_used() returns trigger language plpgsql as $$
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
      select from budget_alert as t
      where t.holder = whose and t.since = b.since and t.budget_micro = b.budget_micro and t.percent = share
    )
  );
  return null;
end
$$;

-- The name puts it after the triggers that count, whose sums it reads.
create trigger notify_budget_used after insert or update of taken_micro on key_day
  for each row execute function notify_budget_used();
create trigger notify_budget_used after insert or update of taken_micro on workspace_day
  for each row execute function notify_budget_used();
create trigger notify_budget_used after insert or update of taken_micro on key_descendants_day
  for each row execute function notify_budget_used();

-- EARNINGS
--
-- What providers earn: a share of what calls that they served were charged. Calls with the caller's own key at the provider, placeholders,
-- episodes, an organization's calls of its own supply, and calls that were not charged earn nothing.

-- The operator's shares of providers, in ten-thousandths, each from a moment on; rows stay, so that what was earned before is as it was.
create table provider_share (
  id bigint generated always as identity primary key,
  -- The provider's name; null: of all that have none of their own.
  provider text references provider (name),
  -- Null: that of all others.
  share_bp integer check (share_bp between 0 and 10000),
  since timestamptz not null default now(),
  check (provider is not null or share_bp is not null)
);

create index provider_share_of on provider_share (provider, since);
create trigger provider_share_append_only before update or delete or truncate on provider_share
  for each statement execute function refuse_change();

-- The share of a provider at a moment. Nothing before the operator set one.
create function share_at(p_provider text, p_at timestamptz) returns integer language sql stable as $$
  select coalesce(
    (select share_bp from provider_share where provider = p_provider and since <= p_at order by since desc, id desc limit 1),
    (select share_bp from provider_share where provider is null and since <= p_at order by since desc, id desc limit 1),
    0
  )
$$;

-- What offerings delivered and were paid for in a span of time, by UTC day and by the share that was in force. Planned once, as `series_between`.
create function served_between(p_from timestamptz, p_to timestamptz) returns table (
  day date, provider text, offering_id text, model text, unit text, share_bp integer,
  calls bigint, own_key_calls bigint, hedges bigint, units bigint, gross_micro bigint
) language sql stable set plan_cache_mode = force_generic_plan as $$
  with cut as (
    -- Between two of these moments each share is one.
    select array_agg(at order by at) as at
    from (select p_from as at union select since from provider_share where since > p_from and since < p_to) as moments
  ), ended as (
    -- A kind is of one key, and so of one organization.
    select o.kind, min(o.org_id) as org_id, (o.created at time zone 'UTC')::date as day, cut.at[width_bucket(o.created, cut.at)] as at,
      count(*) as calls, sum(o.units) as units, sum(o.cost_micro) as cost
    from request_outcome as o, cut where o.created >= p_from and o.created < p_to group by 1, 3, 4
  ), line as (
    select e.day, e.at, k.provider, k.offering_id, k.model, k.unit,
      case when k.byok then 0 else e.calls end as calls, case when k.byok then e.calls else 0 end as own_key_calls, 0 as hedges, e.units,
      case when k.byok or p.org_id = e.org_id then 0 else e.cost - e.calls * coalesce(k.hedge_cost_micro, 0) end as gross
    from ended as e join request_kind as k on k.id = e.kind left join provider as p on p.name = k.provider
    where k.status = 'settled' and not k.simulated and k.offering_id <> ''
    union all
    select (l.created at time zone 'UTC')::date, cut.at[width_bucket(l.created, cut.at)], l.provider, l.offering_id, l.model, '',
      0, 0, 1, 0, case when p.org_id = l.org_id then 0 else l.cost_micro end
    from hedge_loser as l left join provider as p on p.name = l.provider, cut where l.earns and l.created >= p_from and l.created < p_to
  )
  select day, provider, offering_id, model, unit, share_at(provider, at),
    sum(calls)::bigint, sum(own_key_calls)::bigint, sum(hedges)::bigint, sum(units)::bigint, sum(gross)::bigint
  from line group by 1, 2, 3, 4, 5, 6
$$;

-- The same, added up until a time, so that one provider's statement does not read the calls of all others.
create table served_day (
  day date not null,
  provider text not null,
  offering_id text not null,
  model text not null,
  unit text not null,
  share_bp integer not null,
  calls bigint not null,
  own_key_calls bigint not null,
  hedges bigint not null,
  units bigint not null,
  gross_micro bigint not null,
  primary key (provider, day, offering_id, model, unit, share_bp)
);

create index served_day_of_offering on served_day (offering_id, day);

create table served_until (
  only_one boolean primary key default true check (only_one),
  at timestamptz not null
);

insert into served_until (at) values ('-infinity');

-- Adds up what is committed. Nothing is added twice, and nothing is missed.
create function add_up_served() returns void language plpgsql as $$
declare
  before timestamptz;
  until timestamptz := committed_before();
begin
  select at into strict before from served_until for update;
  if until <= before then
    return;
  end if;
  insert into served_day select * from served_between(before, until)
  on conflict (provider, day, offering_id, model, unit, share_bp) do update set
    calls = served_day.calls + excluded.calls, own_key_calls = served_day.own_key_calls + excluded.own_key_calls,
    hedges = served_day.hedges + excluded.hedges, units = served_day.units + excluded.units,
    gross_micro = served_day.gross_micro + excluded.gross_micro;
  update served_until set at = until;
end
$$;

-- What was served, up to now: what is added up, and what came after.
create view served as
  select day, provider, offering_id, model, unit, share_bp, sum(calls)::bigint as calls, sum(own_key_calls)::bigint as own_key_calls,
    sum(hedges)::bigint as hedges, sum(units)::bigint as units, sum(gross_micro)::bigint as gross_micro
  from (
    select * from served_day
    union all
    select * from served_between((select at from served_until), 'infinity')
  ) as part group by day, provider, offering_id, model, unit, share_bp;

-- What was earned, one line for each day, offering and share: rounded down once for each line, and every sum is a sum of lines.
create view earning as
  select day, provider, offering_id, model, share_bp, sum(calls)::bigint as calls, sum(own_key_calls)::bigint as own_key_calls,
    sum(hedges)::bigint as hedges, sum(gross_micro)::bigint as gross_micro,
    floor(sum(gross_micro) * share_bp / 10000)::bigint as earned_micro
  from served group by day, provider, offering_id, model, share_bp;

-- What the operator paid out, under the reference of the payment.
create table payout (
  id text primary key,
  provider text not null references provider (name),
  amount_micro bigint not null check (amount_micro > 0),
  reference text not null,
  created timestamptz not null default now(),
  unique (provider, reference)
);

create trigger payout_append_only before update or delete or truncate on payout
  for each statement execute function refuse_change();
