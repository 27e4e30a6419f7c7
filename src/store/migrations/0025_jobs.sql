-- Work that is done later. A worker holds a job by a lease with an epoch; whoever finds the lease over takes the job with the next
-- epoch, and from then on the earlier owner writes nothing. States only go forward.
create table job (
  id text primary key,
  kind text not null check (kind in ('batch', 'evaluation', 'verification', 'export')),
  org_id text not null,
  -- Whose key the work is done and paid with.
  key_id text not null,
  status text not null,
  -- Waiting, running, called off, ending, ended: never falls.
  rank smallint not null,
  -- Higher goes first.
  priority smallint not null default 0,
  -- What was asked for, as the kind has it.
  request jsonb not null,
  -- What came of it, as the kind has it.
  result jsonb,
  total integer not null,
  -- Set once: what has not begun never begins.
  cancelled_at timestamptz,
  owner text,
  epoch integer not null default 0,
  lease_until timestamptz,
  idempotency_key text,
  idempotency_hash bytea,
  created timestamptz not null default now(),
  started timestamptz,
  finalizing timestamptz,
  finished timestamptz,
  expires timestamptz not null
);

create unique index job_by_idempotency_key on job (org_id, idempotency_key) where idempotency_key is not null;
create index job_by_org on job (org_id, created desc, id desc);
create index job_open on job (priority desc, created) where rank < 9;

-- The parts of a job: requests of a batch, episodes of an evaluation.
create table job_item (
  job_id text not null references job on delete cascade,
  index integer not null,
  custom_id text,
  state text not null default 'queued' check (state in ('queued', 'running', 'completed', 'failed', 'cancelled')),
  rank smallint not null default 1,
  -- The epoch of the job in which it was begun last.
  epoch integer,
  -- How often it was begun; work that ends its worker each time is given up.
  tries smallint not null default 0,
  request jsonb,
  response jsonb,
  error jsonb,
  cost_micro bigint not null default 0,
  primary key (job_id, index)
);

create index job_item_by_state on job_item (job_id, state);

create function rank_never_falls() returns trigger language plpgsql as $$
begin
  if new.rank < old.rank then
    raise exception 'a % never goes back', tg_table_name using errcode = '23514';
  end if;
  if old.rank = 9 and to_jsonb(new) - 'idempotency_key' <> to_jsonb(old) - 'idempotency_key' then
    raise exception 'a % that has ended never changes', tg_table_name using errcode = '23514';
  end if;
  return new;
end $$;

create trigger job_goes_forward before update on job for each row execute function rank_never_falls();
create trigger job_item_goes_forward before update on job_item for each row execute function rank_never_falls();

create function job_waits() returns trigger language plpgsql as $$
begin
  perform pg_notify('job', new.id);
  return null;
end $$;

-- Workers hear of new work, and of work that was called off.
create trigger job_told after insert on job for each row execute function job_waits();
create trigger job_called_off after update of cancelled_at on job for each row
  when (new.cancelled_at is distinct from old.cancelled_at) execute function job_waits();
