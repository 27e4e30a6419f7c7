-- A webhook may be of one workspace: it gets the events whose cause belongs to that workspace, and no other.
alter table webhook add column workspace_id text;

-- The workspace that an event message names: its field 5, which stands before what happened, as fields are written by their numbers.
-- The message alone says it, however the event came into the outbox; null where there is none.
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

-- An event goes to the webhooks of its organisation that are of no workspace or of its own, in the transaction of its cause.
create or replace function fan_out() returns trigger language plpgsql as $$
begin
  insert into webhook_delivery (hook_id, event_id, event, payload)
  select id, new.event_id, new.name, new.payload from webhook
  where org_id = new.org_id and enabled
    and (new.name = any (events) or ('*' = any (events) and new.name not in ('request.failed', 'route.fallback_used')))
    and (workspace_id is null or workspace_id = event_workspace(new.payload));
  if found then
    perform pg_notify('webhook', '');
  end if;
  return null;
end $$;
