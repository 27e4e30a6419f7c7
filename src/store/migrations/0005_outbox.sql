-- Events, written in the transaction of their cause. `position` orders them; whoever carries them out marks them sent.
create table outbox (
  position bigint generated always as identity primary key,
  event_id text not null unique,
  name text not null,
  org_id text,
  payload bytea not null,
  sent_at timestamptz,
  created timestamptz not null default now()
);

create index outbox_unsent on outbox (position) where sent_at is null;

create function tell_outbox() returns trigger language plpgsql as $$
begin
  perform pg_notify('outbox', '');
  return null;
end
$$;

create trigger outbox_filled after insert on outbox
  for each statement execute function tell_outbox();
