-- Work that is done later. A worker holds a job by a lease with an epoch. A job whose lease is over is taken with the next epoch, and from then on
-- the earlier owner writes nothing. States only go forward.

create table job (
  id text primary key,
  kind text not null check (kind in ('batch', 'evaluation', 'verification', 'export', 'film', 'share')),
  org_id text not null,
  -- The workspace of the key that asked for it; null: the organization's own.
  workspace_id text,
  -- The key that the work is done and paid with.
  key_id text not null,
  status text not null,
  -- The rank of the status: waiting, running, canceled, finalizing, ended. It never decreases.
  rank smallint not null,
  -- Higher runs first.
  priority smallint not null default 0,
  -- The request, in the format of its kind.
  request jsonb not null,
  -- The sealed credentials of the model server; null if it needs none, and once the job has ended.
  secret bytea,
  -- The result, in the format of its kind.
  result jsonb,
  total integer not null,
  -- Whether caller data is sealed: in the member `sealed` of `request` and `result`, and in all such columns of its items.
  sealed boolean not null default false,
  -- Whether an external runner of the organization works on it, not a worker of the gateway.
  outside boolean not null default false,
  -- The comparison that an evaluation belongs to.
  comparison text,
  -- Of a share: the evaluation whose episodes it runs. A share has no items, and its row is deleted when it ends.
  parent text references job on delete cascade,
  -- Set once: items that have not begun never begin.
  cancelled_at timestamptz,
  -- Until then, a job that waits for its key's limits is not taken by any worker, unless it expires.
  ready_at timestamptz,
  owner text,
  epoch integer not null default 0,
  -- How long the owner keeps it after its last word, in seconds.
  lease_s integer not null default 30,
  lease_until timestamptz,
  -- NATS has a message for it until then; what still waits afterwards is sent again.
  queued_until timestamptz,
  idempotency_key text,
  idempotency_hash bytea,
  created timestamptz not null default now(),
  started timestamptz,
  -- When a worker last took it.
  taken timestamptz,
  finalizing timestamptz,
  finished timestamptz,
  expires timestamptz not null
);

create unique index job_by_idempotency_key on job (org_id, idempotency_key, coalesce(workspace_id, ''))
  where idempotency_key is not null;
create index job_by_comparison on job (comparison) where comparison is not null;
create index job_by_parent on job (parent) where parent is not null;
create index job_open_of_org on job (org_id) where rank < 9;

-- The items of jobs that have not ended count as queued. Films and shares do not: they belong to an evaluation, whose episodes
-- counted.
create function job_cap() returns trigger language plpgsql as $$
declare
  org text;
begin
  for org in select distinct org_id from made where kind not in ('film', 'share') order by 1 loop
    perform org_cap_turn('queued_items', org);
    perform assert_org_cap('queued_items', (select sum(total) from job where org_id = org and rank < 9 and kind not in ('film', 'share')));
  end loop;
  return null;
end
$$;

create trigger job_cap after insert on job referencing new table as made for each statement execute function job_cap();

create index job_by_org on job (org_id, created desc, id desc);
create index job_by_workspace on job (workspace_id, created desc, id desc) where workspace_id is not null;
create index job_open on job (priority desc, created) where rank < 9;
-- When an organization was last given a worker: of those that have as many jobs under way, the one that waited longest is next.
create index job_by_org_taken on job (org_id, taken);

-- The parts of a job: requests of a batch, episodes of an evaluation.
create table job_item (
  job_id text not null references job on delete cascade,
  index integer not null,
  custom_id text,
  state text not null default 'queued' check (state in ('queued', 'running', 'completed', 'failed', 'cancelled')),
  rank smallint not null default 1,
  -- The job that last began it, which is this one or a share of it, and that job's epoch.
  holder text,
  epoch integer,
  -- How often it was begun; an item that ends its worker each time is given up.
  tries smallint not null default 0,
  request jsonb,
  response jsonb,
  error jsonb,
  cost_micro bigint not null default 0,
  primary key (job_id, index)
);

create index job_item_by_state on job_item (job_id, state);

-- What an export has written so far: the lines of a file, an item of the job, in parts. Whichever worker continues it begins after the position
-- of the last part: the key of its last line.
create table export_part (
  job_id text not null references job on delete cascade,
  item integer not null,
  part integer not null,
  lines text not null,
  records integer not null,
  position jsonb not null,
  primary key (job_id, item, part)
);

-- Writes a part: lines of `p_query`, one fetched at a time, until there are `p_bytes` or `p_rows` of them. The query has two columns, a line
-- and its position, and two parameters, the organization and the position of the part before. Returns whether the part is full.
create function export_write(
  p_job text, p_item integer, p_part integer, p_org text, p_query text, p_bytes integer, p_rows integer
) returns boolean language plpgsql as $$
declare
  page refcursor;
  line text;
  at jsonb;
  last jsonb;
  lines text[] := '{}';
  bytes bigint := 0;
begin
  open page for execute p_query
    using p_org, (select position from export_part where job_id = p_job and item = p_item and part = p_part - 1);
  while bytes < p_bytes and cardinality(lines) < p_rows loop
    fetch page into line, at;
    exit when not found;
    lines := array_append(lines, line);
    bytes := bytes + octet_length(line);
    last := at;
  end loop;
  close page;
  if cardinality(lines) > 0 then
    insert into export_part (job_id, item, part, lines, records, position)
    values (p_job, p_item, p_part, array_to_string(lines, E'\n') || E'\n', cardinality(lines), last);
  end if;
  return bytes >= p_bytes or cardinality(lines) >= p_rows;
end
$$;

-- Films of an evaluation's episodes. They are planned when the evaluation ends, and rendered by a job of the kind `film`.
create table film (
  job_id text not null references job on delete cascade,
  -- The episode.
  index integer not null,
  -- The file; null until it is rendered.
  bytes bytea,
  -- Its media type, and its SHA-256.
  type text,
  sha256 text,
  -- What happens in it, in the format of the schema's message.
  series jsonb,
  -- Why it could not be rendered.
  error text,
  primary key (job_id, index)
);

-- Films do not compress any further.
alter table film alter column bytes set storage external;

-- The data key of a sealed job, wrapped by the master key. Without its row nothing of the sealed columns can be read.
create table job_key (
  id text primary key references job on delete cascade,
  wrapped bytea not null,
  -- It is deleted then, whether the results were fetched or not.
  until timestamptz not null
);

create index job_key_by_age on job_key (until);

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

-- Notifies workers of new, canceled and deleted jobs.
create function notify_job() returns trigger language plpgsql as $$
begin
  perform pg_notify('job', coalesce(new.id, old.id));
  return null;
end $$;

create trigger job_inserted after insert on job for each row execute function notify_job();
create trigger job_called_off after update of cancelled_at on job for each row
  when (new.cancelled_at is distinct from old.cancelled_at) execute function notify_job();
create trigger job_deleted after delete on job for each row when (old.rank < 9) execute function notify_job();
