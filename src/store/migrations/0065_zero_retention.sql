-- Where an organisation retains no data, what must live until it is fetched is sealed under a key that dies with it.

-- The data key of a job, wrapped by the master key. Without its row nothing of the job's sealed columns can be read, by anyone.
create table job_key (
  id text primary key references job on delete cascade,
  wrapped bytea not null,
  -- It is forgotten then, fetched or not.
  until timestamptz not null
);

create index job_key_by_age on job_key (until);

-- What its caller sent and got is sealed: in `request` and `result` the member `sealed`, in its parts all columns that hold any of it.
alter table job add column sealed boolean not null default false;

-- The answer is sealed under a data key of its own, which is forgotten with the row.
alter table idempotency add column sealed boolean not null default false;
alter table loop_session add column sealed boolean not null default false;
