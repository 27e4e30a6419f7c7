-- A target of spans whose filter names a workspace gets the events whose cause belongs to that workspace alone, as it does with calls.
create or replace function fan_out_to_targets() returns trigger language plpgsql as $$
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
