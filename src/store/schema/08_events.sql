-- Events and their ways out: to NATS, to webhooks, and to targets of spans. All rows are written in the transaction of the event's cause.

-- Events in the order of `position`. The relay to NATS marks them as sent.
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
-- For those who watch the events of an organization.
create index outbox_of_org on outbox (org_id, position);

-- Which transaction wrote them: one notification, however many it wrote. Those who listen hear of all in the order of their commits.
create function notify_outbox() returns trigger language plpgsql as $$
begin
  perform pg_notify('outbox', pg_current_xact_id()::text);
  return null;
end
$$;

create trigger outbox_filled after insert on outbox
  for each statement execute function notify_outbox();

-- Events of one organization are relayed in the order of their positions, though overlapping transactions commit in any order. A transaction that
-- writes an event first takes a shared lock for its organization, which lasts as long as the transaction, and only then a position.
create function outbox_lock_key(org text) returns integer language sql immutable as $$ select hashtext(coalesce(org, '')) $$;

create function outbox_take_position() returns trigger language plpgsql as $$
begin
  perform pg_advisory_xact_lock_shared(541711, outbox_lock_key(new.org_id));
  new.position := nextval(pg_get_serial_sequence('outbox', 'position'));
  return new;
end $$;

create trigger outbox_takes_position before insert on outbox for each row execute function outbox_take_position();

-- The oldest unsent events whose organization has no earlier one in a transaction that is still open. For everything up to `last` the lock was
-- taken before `last` was read: a transaction without the lock has ended by then, so that the last statement sees what it wrote.
create function outbox_next(most integer) returns setof outbox language plpgsql as $$
declare
  last bigint := (select last_value from outbox_position_seq);
  open integer[] := (
    select array_agg(objid::bigint::bit(32)::integer) from pg_locks
    where locktype = 'advisory' and classid = 541711 and objsubid = 2
      and database = (select oid from pg_database where datname = current_database()));
begin
  return query
    select * from outbox
    where sent_at is null and position <= last and outbox_lock_key(org_id) <> all (coalesce(open, '{}'))
    order by position limit most;
end $$;

-- Whether a transaction is open that may write an event of an organization with a position that was taken before.
create function outbox_is_open(p_org text) returns boolean language sql volatile as $$
  select exists (
    select from pg_locks
    where locktype = 'advisory' and classid = 541711 and objsubid = 2 and objid::bigint::bit(32)::integer = outbox_lock_key(p_org)
      and database = (select oid from pg_database where datname = current_database()))
$$;

-- The last position behind which all events of an organization are still to come; null while a transaction is open that may have an earlier one.
create function outbox_end(p_org text) returns bigint language plpgsql as $$
declare
  last bigint := (select case when is_called then last_value else 0 end from outbox_position_seq);
begin
  return case when outbox_is_open(p_org) then null else last end;
end $$;

-- The events of an organization behind a position, in order; none while a transaction is open that may have an earlier one, by the reasoning of
-- `outbox_next`.
create function outbox_after(p_org text, p_after bigint, most integer) returns setof outbox language plpgsql as $$
declare
  last bigint := (select last_value from outbox_position_seq);
begin
  if outbox_is_open(p_org) then
    return;
  end if;
  return query
    select * from outbox where org_id = p_org and position > p_after and position <= last order by position limit most;
end $$;

-- The workspace that an event message names: its field 5, which stands before what happened, as fields are written by their numbers. The message
-- alone says it, however the event came into the outbox; null if there is none.
create function event_workspace(payload bytea) returns text language plpgsql immutable strict as $$
declare
  place integer := 0;
  tag integer;
  size bigint;
  shift integer;
  byte integer;
begin
  while place < length(payload) loop
    tag := get_byte(payload, place);
    place := place + 1;
    size := 0;
    shift := 0;
    -- A number, or how long a text is. What happened has a tag of two bytes.
    loop
      if tag >= 128 or tag & 7 not in (0, 2) or shift > 28 or place >= length(payload) then
        return null;
      end if;
      byte := get_byte(payload, place);
      place := place + 1;
      size := size | ((byte & 127)::bigint << shift);
      shift := shift + 7;
      exit when byte < 128;
    end loop;
    if tag & 7 = 2 then
      if size > length(payload) - place then
        return null;
      elsif tag = 42 then
        return convert_from(substr(payload, place + 1, size::integer), 'UTF8');
      end if;
      place := place + size;
    end if;
  end loop;
  return null;
end $$;

-- WEBHOOKS

create table webhook (
  id text primary key,
  org_id text not null,
  -- It gets the events whose cause belongs to this workspace, and no other; null: all of the organization.
  workspace_id text,
  url text not null,
  -- Names of events; `*` for all except those that must be named.
  events text[] not null,
  description text not null default '',
  enabled boolean not null default true,
  -- Sealed, the newest and the one before, which signs until `old_secret_until`.
  secret bytea not null,
  old_secret bytea,
  old_secret_until timestamptz,
  consecutive_failures integer not null default 0,
  failing_since timestamptz,
  created timestamptz not null default now()
);

create index webhook_by_org on webhook (org_id, created);

-- Events on their way to webhooks. A sender claims a delivery for a while; a sender that dies only delays it. A delivery is changed at least
-- twice, when it is claimed and when it ended: the free space beside it spares the first change new entries in the indexes, and ids that grow with
-- time keep the entries of what happens together side by side.
create table webhook_delivery (
  id text primary key default
    'dlv_' || lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') || substr(replace(gen_random_uuid()::text, '-', ''), 13),
  position bigint generated always as identity,
  hook_id text not null references webhook on delete cascade,
  event_id text not null,
  event text not null,
  payload bytea not null,
  state text not null default 'pending' check (state in ('pending', 'delivered', 'failed')),
  tries integer not null default 0,
  due timestamptz not null default now(),
  claimed_until timestamptz,
  -- NATS has a message for it until then; what still waits afterwards is sent again. In no index, so that sending changes none.
  queued_until timestamptz,
  last_status smallint,
  last_error text,
  created timestamptz not null default now(),
  delivered timestamptz
) with (fillfactor = 50);

create index webhook_delivery_due on webhook_delivery (due) where state = 'pending';
-- A sender goes from webhook to webhook and reads of each the few that are due first, however many wait for one.
create index webhook_delivery_pending on webhook_delivery (hook_id, due, position) where state = 'pending';
create index webhook_delivery_by_hook on webhook_delivery (hook_id, position desc);

-- An event goes to the webhooks of its organization that are of no workspace or of its own.
create function fan_out_to_webhooks() returns trigger language plpgsql as $$
begin
  insert into webhook_delivery (hook_id, event_id, event, payload)
  select id, new.event_id, new.name, new.payload from webhook
  where org_id = new.org_id and enabled
    and (new.name = any (events) or split_part(new.name, '.', 1) || '.*' = any (events) or ('*' = any (events) and new.name not in ('request.failed', 'route.fallback_used')))
    and (workspace_id is null or workspace_id = event_workspace(new.payload));
  if found then
    perform pg_notify('webhook', '');
  end if;
  return null;
end $$;

create trigger outbox_fans_out_to_webhooks after insert on outbox for each row execute function fan_out_to_webhooks();

-- The stream of NATS that has the messages of waiting work, by the moment at which it was made: another one has none of them.
create table work_stream (
  is_one boolean primary key default true check (is_one),
  born text not null
);

-- TARGETS OF SPANS

-- Where organizations want spans of their calls. `revision` grows with every change that its owner makes; the result of sending is noted
-- without it.
create table broadcast_target (
  id text primary key,
  org_id text not null,
  name text not null default '',
  endpoint text not null,
  protocol text not null check (protocol in ('http/protobuf', 'http/json', 'grpc')),
  -- Sealed: an object of names and values.
  headers bytea,
  header_names text[] not null default '{}',
  sampling_rate double precision not null default 1,
  privacy_mode boolean not null default false,
  -- Filters on calls; empty and null let all through.
  contracts text[] not null default '{}',
  models text[] not null default '{}',
  key_ids text[] not null default '{}',
  workspace_id text,
  resource_attributes json not null default '{}',
  -- Whether it gets events too.
  events boolean not null default false,
  enabled boolean not null default true,
  revision integer not null default 1,
  last_error text,
  dropped_spans bigint not null default 0,
  created timestamptz not null default now()
);

create index broadcast_target_by_org on broadcast_target (org_id, created);

create function notify_broadcast_changed() returns trigger language plpgsql as $$
begin
  perform pg_notify('broadcast_changed', '');
  return null;
end $$;

create trigger broadcast_target_changed after insert or delete or update of revision on broadcast_target
  for each statement execute function notify_broadcast_changed();

-- Events on their way to targets, until the target took them or they were given up. A sender claims an event for a while.
create table broadcast_event (
  position bigint generated always as identity primary key,
  target_id text not null references broadcast_target on delete cascade,
  event_id text not null,
  payload bytea not null,
  tries integer not null default 0,
  due timestamptz not null default now()
);

create index broadcast_event_due on broadcast_event (target_id, due);

-- A target whose filter names a workspace gets the events whose cause belongs to that workspace alone, as it does with calls.
create function fan_out_to_targets() returns trigger language plpgsql as $$
begin
  insert into broadcast_event (target_id, event_id, payload)
  select id, new.event_id, new.payload from broadcast_target
  where org_id = new.org_id and enabled and events
    and (workspace_id is null or workspace_id = event_workspace(new.payload));
  if found then
    perform pg_notify('broadcast_event', '');
  end if;
  return null;
end $$;

create trigger outbox_fans_out_to_targets after insert on outbox for each row execute function fan_out_to_targets();

-- PLANS

-- What plans of alike calls have in common: what was considered, dropped and able to serve. Records of the log name it.
create table plan_digest (
  -- A hash of the digest.
  id text primary key,
  digest jsonb not null,
  -- The last day on which a call named it, or the day before.
  used date not null default current_date
);

-- MAIL

-- Outgoing mail: about an event, or an invite. Its content is deleted once it is sent.
create table mail (
  id text primary key,
  org_id text,
  kind text not null check (kind in ('event', 'invite')),
  -- Null if the recipients are not resolved yet.
  recipient text,
  -- The event message, binary.
  payload bytea,
  -- What an invite's mail says.
  sealed bytea,
  state text not null default 'pending' check (state in ('pending', 'sent', 'failed')),
  tries integer not null default 0,
  due timestamptz not null default now(),
  created timestamptz not null default now()
);

create index mail_due on mail (due) where state = 'pending';
create index mail_to on mail (recipient, created) where recipient is not null;
create index mail_of_org on mail (org_id, created);

create function notify_mail() returns trigger language plpgsql as $$
begin
  perform pg_notify('mail', '');
  return null;
end $$;

create trigger mail_filled after insert on mail for each statement execute function notify_mail();

create function fan_out_to_mail() returns trigger language plpgsql as $$
begin
  insert into mail (id, org_id, kind, payload) values ('mail_' || new.event_id, new.org_id, 'event', new.payload);
  return null;
end $$;

create trigger outbox_fans_out_to_mail after insert on outbox for each row
  when (new.org_id is not null and new.name in ('balance.low', 'balance.exhausted', 'topup.failed', 'budget.threshold', 'key.expiring',
    'offering.rejected', 'offering.suspended', 'evaluation.completed', 'evaluation.failed'))
  execute function fan_out_to_mail();
