-- Idempotency keys of the last day. A row without a response is a claim: its call still runs in the till that it names, or
-- died with it; then the next caller takes it over.
create table idempotency (
  org_id text not null,
  key text not null,
  -- SHA-256 of the route and the canonical request.
  hash bytea not null,
  claim_id text not null,
  -- No foreign key: it would lock the row that the till renews with every batch.
  till_id text not null,
  method text not null,
  response bytea,
  created timestamptz not null default now(),
  primary key (org_id, key)
);

create index idempotency_by_age on idempotency (created);
