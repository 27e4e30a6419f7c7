-- How often keys may call, shared by all replicas; and what organisations promised to spend.

-- Token buckets. A replica takes tokens ahead, so that no call asks the database while there are some; what it doesn't use it returns.
-- Nothing here outlives a crash of the server: then all buckets are full.
create unlogged table rate_bucket (
  id text primary key,
  tokens double precision not null,
  filled_at timestamptz not null
) with (fillfactor = 50);

-- Calls and streams that replicas may have running, until `alive_until`; a replica that lives renews it.
create unlogged table rate_slot (
  id text not null,
  replica text not null,
  calls integer not null,
  streams integer not null,
  alive_until timestamptz not null,
  primary key (id, replica)
) with (fillfactor = 50);

-- Serves what one replica asks for its keys at once, in the order of their names. `tokens` may be negative: returned. `calls` and
-- `streams` are how many the replica wants to be able to run in all. Answers what each got, and how many tokens are left.
create function rate_take(p_replica text, p_life interval, p_asks json) returns table (
  id text, granted double precision, remaining double precision, calls integer, streams integer
) language plpgsql as $$
#variable_conflict use_column
declare
  ask record;
  held record;
  full_tokens double precision;
begin
  for ask in
    select * from json_to_recordset(p_asks) as a (
      id text, per_s double precision, burst double precision, tokens double precision,
      calls integer, most_calls integer, streams integer, most_streams integer
    ) order by id
  loop
    insert into rate_bucket (id, tokens, filled_at) values (ask.id, ask.burst, clock_timestamp()) on conflict do nothing;
    select least(ask.burst, b.tokens + greatest(extract(epoch from clock_timestamp() - b.filled_at), 0) * ask.per_s)
    into full_tokens from rate_bucket as b where b.id = ask.id for update;
    id := ask.id;
    granted := case when ask.tokens < 0 then ask.tokens else least(ask.tokens, floor(full_tokens)) end;
    remaining := least(ask.burst, full_tokens - granted);
    update rate_bucket as b set tokens = remaining, filled_at = clock_timestamp() where b.id = ask.id;
    select coalesce(sum(s.calls), 0) as calls, coalesce(sum(s.streams), 0) as streams into held
    from rate_slot as s where s.id = ask.id and s.replica <> p_replica and s.alive_until > clock_timestamp();
    calls := greatest(least(ask.calls, ask.most_calls - held.calls), 0);
    streams := greatest(least(ask.streams, ask.most_streams - held.streams), 0);
    if calls = 0 and streams = 0 then
      delete from rate_slot as s where s.id = ask.id and s.replica = p_replica;
    else
      insert into rate_slot as s (id, replica, calls, streams, alive_until)
      values (ask.id, p_replica, calls, streams, clock_timestamp() + p_life)
      on conflict (id, replica) do update
      set calls = excluded.calls, streams = excluded.streams, alive_until = excluded.alive_until;
    end if;
    return next;
  end loop;
end
$$;

-- Forgets buckets that are full again, and what dead replicas held.
create function rate_prune() returns void language sql as $$
  delete from rate_slot where alive_until < clock_timestamp();
  delete from rate_bucket where filled_at < clock_timestamp() - interval '1 day';
$$;

-- What an organisation promised to spend each month; nothing when it is zero.
create table commitment (
  org_id text primary key references org,
  min_micro bigint not null check (min_micro >= 0),
  starts_on date not null,
  updated timestamptz not null default now()
);

-- Months that are over, each once: what was promised, what was used, and what of the rest was charged as availability fee. A fee that
-- the balance didn't cover is collected in parts, as there is credit.
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

alter type transfer_kind add value 'availability_fee';
alter table account add column fee_micro bigint not null default 0 check (fee_micro >= 0);

-- What an organisation was charged for calls on the days from `p_from` until before `p_to`.
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

-- Closes the months of an organisation that were over on `p_today`, each once on whichever replica comes first, and charges what is
-- due as far as the balance goes. A month with calls that still run waits for them. Answers how many were closed.
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
