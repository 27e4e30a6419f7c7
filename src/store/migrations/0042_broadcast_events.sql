-- Targets of spans may ask for events too. Each waits here, from the transaction of its cause until its target took it or it was given up;
-- it is claimed for a while by whoever sends it.
alter table broadcast_target add column events boolean not null default false;

create table broadcast_event (
  position bigint generated always as identity primary key,
  target_id text not null references broadcast_target on delete cascade,
  event_id text not null,
  payload bytea not null,
  tries integer not null default 0,
  due timestamptz not null default now()
);

create index broadcast_event_due on broadcast_event (target_id, due);

create function fan_out_to_targets() returns trigger language plpgsql as $$
begin
  insert into broadcast_event (target_id, event_id, payload)
  select id, new.event_id, new.payload from broadcast_target where org_id = new.org_id and enabled and events;
  if found then
    perform pg_notify('broadcast_event', '');
  end if;
  return null;
end $$;

create trigger outbox_fans_out_to_targets after insert on outbox for each row execute function fan_out_to_targets();
