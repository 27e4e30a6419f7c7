-- Where organisations want to hear of events, and every event on its way there. A delivery is claimed for a while by whoever sends it;
-- a sender that dies only delays it.
create table webhook (
  id text primary key,
  org_id text not null,
  url text not null,
  -- Names of events; `*` for all that need no asking for.
  events text[] not null,
  description text not null default '',
  enabled boolean not null default true,
  -- Sealed, each with the moment until which it signs; the newest has none.
  secret bytea not null,
  old_secret bytea,
  old_secret_until timestamptz,
  consecutive_failures integer not null default 0,
  failing_since timestamptz,
  created timestamptz not null default now()
);

create index webhook_by_org on webhook (org_id, created);

create table webhook_delivery (
  id text primary key default 'dlv_' || replace(gen_random_uuid()::text, '-', ''),
  position bigint generated always as identity,
  hook_id text not null references webhook on delete cascade,
  event_id text not null,
  event text not null,
  payload bytea not null,
  state text not null default 'pending' check (state in ('pending', 'delivered', 'failed')),
  tries integer not null default 0,
  due timestamptz not null default now(),
  claimed_until timestamptz,
  last_status smallint,
  last_error text,
  created timestamptz not null default now(),
  delivered timestamptz
);

create index webhook_delivery_due on webhook_delivery (due) where state = 'pending';
create index webhook_delivery_by_hook on webhook_delivery (hook_id, position desc);

-- An event goes to the webhooks of its organisation in the transaction of its cause, whoever wrote it.
create function fan_out() returns trigger language plpgsql as $$
begin
  insert into webhook_delivery (hook_id, event_id, event, payload)
  select id, new.event_id, new.name, new.payload from webhook
  where org_id = new.org_id and enabled
    and (new.name = any (events) or ('*' = any (events) and new.name not in ('request.failed', 'route.fallback_used')));
  if found then
    perform pg_notify('webhook', '');
  end if;
  return null;
end $$;

create trigger outbox_fans_out after insert on outbox for each row execute function fan_out();
