-- Payments: what was asked for, what was paid, what went back. Credit comes into the ledger under the payment's own name, and
-- the ledger takes a name once for each kind: so a payment is credited once, whoever hears of it first and however often.

-- Credit that leaves again: from `available` back to `granted`, the world outside.
alter type transfer_kind add value 'refund';

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
  -- The processor's names of the checkout and of what was paid by it.
  session_id text unique,
  checkout_url text,
  intent_id text unique,
  expires_at timestamptz not null,
  completed_at timestamptz,
  -- When the processor was last asked without anybody's wish.
  asked_at timestamptz,
  created timestamptz not null default now()
);

create unique index payment_idempotency on payment (org_id, idempotency_key) where idempotency_key is not null;
create index payment_of_org on payment (org_id, id);
create index payment_pending on payment (expires_at) where status = 'pending';

-- What went back of a payment, under the processor's own name of the refund or the dispute. It moves one way: `taken` when the
-- money left, `returned` when it came back (the refund failed, the dispute was won), and never from there to `taken`.
-- `owed` is the part that the balance could not give yet.
create table payment_reversal (
  id text primary key,
  payment_id text not null references payment,
  org_id text not null,
  kind text not null check (kind in ('refund', 'dispute')),
  state text not null check (state in ('taken', 'returned')),
  amount_micro bigint not null check (amount_micro > 0),
  owed_micro bigint not null default 0 check (owed_micro between 0 and amount_micro),
  -- How many times the balance has given to it.
  takings integer not null default 0,
  created timestamptz not null default now()
);

create index reversal_of_payment on payment_reversal (payment_id);
create index reversal_owed on payment_reversal (org_id, created) where owed_micro > 0;

-- `owed`: what reversals could not take. `low`: below what the balance is called low. `…_told`: its event was told.
alter table account
  add column owed_micro bigint not null default 0 check (owed_micro >= 0),
  add column low_micro bigint not null default 0,
  add column low_told boolean not null default false,
  add column exhausted_told boolean not null default false;

-- What leases of an organisation hold.
create function held_of(p_org text) returns bigint language sql stable as $$
  select coalesce(sum(amount_micro - spent_micro), 0)::bigint from lease where org_id = p_org
$$;

-- Credit that comes in, from wherever, goes first to what is owed, in the same statement.
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

-- A tenth of the balance after credit was added is what it is called low at.
create function mark_low() returns trigger language plpgsql as $$
begin
  new.low_micro := (new.available_micro + held_of(new.org_id)) / 10;
  new.low_told := false;
  new.exhausted_told := false;
  return new;
end
$$;

-- Named so that it comes after what is owed was taken: triggers run in the order of their names.
create trigger account_raised before update of granted_micro on account
  for each row when (new.granted_micro > old.granted_micro) execute function mark_low();

-- The balance only falls while leases spend, but every lease takes from `available`: the first one that leaves less than that
-- free looks at the whole.
create function tell_low() returns trigger language plpgsql as $$
begin
  perform pg_notify('balance_low', new.org_id);
  return null;
end
$$;

create trigger account_low after update of available_micro on account
  for each row when (not new.low_told and new.available_micro < new.low_micro) execute function tell_low();
