-- Money: integer micro-dollars (`_micro`) everywhere.

-- The cached balance of an organisation: what was ever paid in, and what no lease holds. What it has spent is the rest:
-- granted - available - (what its leases hold).
create table account (
  org_id text primary key references org,
  granted_micro bigint not null default 0 check (granted_micro >= 0),
  available_micro bigint not null default 0 check (available_micro >= 0),
  requests bigint not null default 0 check (requests >= 0),
  created timestamptz not null default now()
) with (fillfactor = 50);

-- The ledger: one row moves an amount between two accounts of one organisation, so every row sums to zero by itself.
-- Accounts: `granted` (the world outside), `available`, `spent`, and one per lease, named as the lease is.
-- `cause` is what the row stands for: a request (charge), an entry (grant, lease, return) or a lease that ended (return).
create type transfer_kind as enum ('grant', 'lease', 'return', 'charge');

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

create function refuse_change() returns trigger language plpgsql as $$
begin
  raise exception 'the ledger is append-only: % on % is refused', tg_op, tg_table_name using errcode = 'insufficient_privilege';
end
$$;

create trigger transfer_append_only before update or delete or truncate on transfer
  for each statement execute function refuse_change();

-- One life of one replica's till. It renews `alive_until` with every batch; whoever finds it in the past may fence it,
-- and a fenced till writes nothing more. `last_batch` makes a batch that is sent twice apply once.
create table till (
  id text primary key,
  replica text not null,
  epoch bigint not null,
  last_batch bigint not null default 0,
  alive_until timestamptz not null,
  fenced_at timestamptz,
  created timestamptz not null default now(),
  unique (replica, epoch)
) with (fillfactor = 50);

create index till_living on till (replica) where fenced_at is null;

-- Credit that a till holds for a key: `amount` was debited to it, `spent` of that was charged. It counts against the
-- budget of `day`, the UTC day on which it was taken. The row lives as long as the lease does; the ledger keeps its story.
create table lease (
  id text primary key,
  till_id text not null references till,
  org_id text not null references org,
  key_id text not null,
  day date not null,
  amount_micro bigint not null default 0,
  spent_micro bigint not null default 0,
  requests bigint not null default 0,
  created timestamptz not null default now(),
  check (spent_micro between 0 and amount_micro)
) with (fillfactor = 50);

create index lease_of_till on lease (till_id);
create index lease_of_org on lease (org_id);

-- Leases that another till asks for what is idle of, until their own till has answered.
create table recall (
  lease text primary key,
  till_id text not null,
  org_id text not null,
  key_id text not null,
  created timestamptz not null default now()
);

-- What a key has taken on a day, in leases and charges: less what its leases still hold, this is what it has spent.
create table key_day (
  key_id text not null,
  day date not null,
  org_id text not null,
  taken_micro bigint not null check (taken_micro >= 0),
  created timestamptz not null default now(),
  primary key (key_id, day)
) with (fillfactor = 50);
